# SPDX-License-Identifier: Apache-2.0
"""Provides fixtures that run a scenario on a controller. One has no IPsec policy, the other has
SPDs."""

from policy_world import run_scenario as run_policy_scenario
from test_controller import run_scenario

__all__ = ["run_policy_scenario", "run_scenario"]

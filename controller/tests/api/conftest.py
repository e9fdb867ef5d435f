# SPDX-License-Identifier: Apache-2.0
"""Running controllers, without policy (`run_scenario`) and with it (`run_policy_scenario`)."""

from policy_world import run_scenario as run_policy_scenario
from test_controller import run_scenario

__all__ = ["run_policy_scenario", "run_scenario"]

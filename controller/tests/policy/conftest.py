# SPDX-License-Identifier: Apache-2.0
"""The world of policy, for every test here."""

from policy_world import run_scenario

__all__ = ["run_scenario"]

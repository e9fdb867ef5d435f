# SPDX-License-Identifier: Apache-2.0
"""Running controllers, without policy (`play`) and with it (`play_policy`)."""

from policy_world import play as play_policy
from test_controller import play

__all__ = ["play", "play_policy"]

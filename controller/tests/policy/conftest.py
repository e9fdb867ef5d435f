# SPDX-License-Identifier: Apache-2.0
"""Provides the fixtures for routers with SPDs to every test in this folder."""

from policy_world import run_scenario

__all__ = ["run_scenario"]

# SPDX-License-Identifier: Apache-2.0
"""Tests sites protected by SAs of the configuration and of `sluice sa`, with real engines."""

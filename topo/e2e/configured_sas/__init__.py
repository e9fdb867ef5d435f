# SPDX-License-Identifier: Apache-2.0
"""Tests sites that are protected by SAs from the configuration and from `sluice sa`, with real ESP
engines.
"""

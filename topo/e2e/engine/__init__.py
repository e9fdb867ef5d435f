# SPDX-License-Identifier: Apache-2.0
"""Tests protected traffic end to end with the real ESP engine: `sluice-esp`, and the engine inside
sluice-switch.
"""

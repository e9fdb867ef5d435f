# SPDX-License-Identifier: Apache-2.0
"""Tests policy end to end, with three routers, an ESP engine for each, and captures on every wire.

All tests in this package share one network. Each test restores its state.
"""

# SPDX-License-Identifier: Apache-2.0
"""Tests policy end to end. The network has three routers, an ESP engine for each, and captures on
every link between them.

All tests in this package share one network. Each test restores the network's state.
"""

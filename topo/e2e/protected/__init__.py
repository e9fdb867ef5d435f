# SPDX-License-Identifier: Apache-2.0
"""Policy walked end to end: three routers with an ESP engine each, and captures on every wire.

One network serves all tests in here; each test restores its state.
"""

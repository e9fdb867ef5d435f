# SPDX-License-Identifier: Apache-2.0
"""Bytes to model and back: netlink, FPM and packets. Pure: no I/O, no clock, no state.

Everything here that decodes raises `WireError` and nothing else, whatever the bytes are.
"""

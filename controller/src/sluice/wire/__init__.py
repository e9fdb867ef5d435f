# SPDX-License-Identifier: Apache-2.0
"""Decodes bytes to the model and encodes the model: netlink, FPM and packets. Pure: no I/O, no
clock.

Invariant: for any input, a decoder raises `WireError` and no other exception.
"""

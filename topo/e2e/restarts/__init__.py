# SPDX-License-Identifier: Apache-2.0
"""Tests the death and restart of each program of a router under traffic.

The switch must then have the same routes as zebra.
"""

# SPDX-License-Identifier: Apache-2.0
"""Tests programs of a router that die and restart under traffic.

The switch keeps zebra's routes.
"""

# SPDX-License-Identifier: Apache-2.0
"""Parts of a router that die and restart, under traffic: the switch keeps zebra's routes."""

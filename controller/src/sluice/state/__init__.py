# SPDX-License-Identifier: Apache-2.0
"""Holds the known state of the router and derives the desired state of the switch.

`apply(event, now)` changes the state and returns `EntityChanges`. The modules use no I/O and no
clock, so a test can replay any history. Depends on model and entities.
"""

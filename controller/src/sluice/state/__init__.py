# SPDX-License-Identifier: Apache-2.0
"""Holds the known state of the router and derives the desired state of the switch.

State changes by `apply(event, now) -> EntityChanges`. The modules use no I/O and no clock, so a
test can replay any history. Depends on model and entities.
"""

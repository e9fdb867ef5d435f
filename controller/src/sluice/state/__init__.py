# SPDX-License-Identifier: Apache-2.0
"""The known state of the router and the desired one: pure, `apply(event, now) -> EntityChanges`.

No I/O and no clock in here, so that a test can replay any history. Depends on model and entities.
"""

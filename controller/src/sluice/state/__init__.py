# SPDX-License-Identifier: Apache-2.0
"""What the controller believes and wants: pure state machines, `apply(event, now) -> Changes`.

No I/O and no clock in here, so that a test can replay any history. Depends on model and entities.
"""

# SPDX-License-Identifier: Apache-2.0
"""Provides the sources of events: FPM, the kernel, the host's interfaces, punted packets.

All sources have the same interface. `fileno()` returns a descriptor that is readable while events
may wait. `poll(limit)` returns about `limit` events and never blocks. It returns an empty list if
no event waits. So the controller reads each source in slices of bounded size. Further events wait
in a bounded queue of the kernel or of the native module. `counters` counts refused inputs and
errors by name.
"""

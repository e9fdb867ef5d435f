# SPDX-License-Identifier: Apache-2.0
"""Where events come from: FPM, the kernel, the host's interfaces, punted packets.

All sources have one shape. `fileno()` is readable while there may be something to read;
`poll(limit)` gives about `limit` events and never blocks, an empty list meaning that nothing is
left for now. So the controller drains each in bounded slices, and what waits, waits in the kernel's
or the native module's bounded queue. `counters` names what was refused or went wrong.
"""

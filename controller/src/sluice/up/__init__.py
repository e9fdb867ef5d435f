# SPDX-License-Identifier: Apache-2.0
"""Runs `sluice up`: takes over the interfaces of a running router, and gives them back.

Three processes belong to a takeover:

- The supervisor (`supervisor`) steers frames to the switch or to the kernel, and watches the host.
- The switch runs in a network namespace of its own. Its ports are veth pairs.
- The controller runs as under `sluice run`, with the kernel's interfaces instead of TAPs and the
  kernel's routes instead of FPM (`host_sources`).

If the switch or the controller dies, the kernel gets all frames from that moment on, even if the
supervisor does nothing (`wire.steering_programs`). If the supervisor dies, the other two processes
die with it.

The network cards keep their addresses, routes and neighbours. Packets for this host go to the
kernel directly, and this host's own packets leave by the card directly.
"""

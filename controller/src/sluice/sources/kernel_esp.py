# SPDX-License-Identifier: Apache-2.0
"""Recognizes ESP packets of the kernel. They must not leave, because an engine may use the same SA,
and the nonces would repeat.

Host interfaces have `disable_xfrm`, but IPv6 ignores this setting. So the kernel encrypts the
router's own IPv6 packets that match one of the kernel's policies. It uses its own sequence numbers
for these packets, and may fragment them. A later fragment of ESP in UDP has no port by which it
could be recognized. So a later fragment is refused if it has the identification of a refused first
fragment. This works because the kernel sends the first fragment first.

Pure; depends on wire.packet.
"""

from __future__ import annotations

from collections import OrderedDict

from sluice.wire.packet import ipv6_fragment_id, is_esp

REMEMBERED = 1024
"""Number of fragmented packets whose later fragments are refused. The oldest packet is forgotten
first."""


class KernelEsp:
    """Tests the IP packets of one host stack, in the order in which the stack sends them."""

    def __init__(self) -> None:
        self._refused: OrderedDict[bytes, None] = OrderedDict()

    def covers(self, packet: bytes) -> bool:
        """Returns whether a packet is ESP, or a fragment of ESP. Raises WireError."""
        is_ipv6 = packet[:1] and packet[0] >> 4 == 6
        fragment = ipv6_fragment_id(packet) if is_ipv6 else None
        if is_esp(packet):
            if fragment is not None:
                self._refused[fragment] = None
                if len(self._refused) > REMEMBERED:
                    self._refused.popitem(last=False)
            return True
        return fragment in self._refused

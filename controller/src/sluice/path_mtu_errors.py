# SPDX-License-Identifier: Apache-2.0
"""Applies path MTUs from ICMP errors about ESP packets of this router (RFC 4301, section 8.2.1).

An error is applied only if it arrived through a bundle and quotes an ESP packet of the same bundle.
Then an engine has checked the error's integrity, and the inbound list permits the error in this
bundle. An error in clear text is only counted, because any host on the path could have forged it.

Depends on associations and wire.selectors.
"""

from __future__ import annotations

import logging
from collections import Counter

from sluice.associations import Associations
from sluice.model import PuntedPacket, format_address
from sluice.sa_model import SecurityAssociation
from sluice.wire.errors import WireError
from sluice.wire.selectors import TooBig, too_big

log = logging.getLogger(__name__)


class PathMtuErrors:
    """Finds ICMP errors with a path MTU among the packets that are delivered to this router's host
    stack."""

    def __init__(self, associations: Associations) -> None:
        self._associations = associations
        self.counters: Counter[str] = Counter()

    def delivered(self, packet: PuntedPacket) -> None:
        """If the packet is an ICMP error about an ESP packet of this router, applies or ignores the
        path MTU in it."""
        if not self._associations.table.wanted:
            return
        try:
            error = too_big(packet.frame)
        except WireError:
            return  # the host drops such a packet too
        sa = None if error is None else self._sender_of(error, packet.vrf)
        if error is not None and sa is not None:
            self.counters[self._take(error, sa, packet)] += 1

    def _sender_of(self, error: TooBig, vrf: int) -> SecurityAssociation | None:
        """Returns the outbound SA of the ESP packet that an error quotes, or None."""
        quoted = error.quoted
        made = vrf, quoted.spi, quoted.selectors.destination, quoted.selectors.source
        for sa in self._associations.table.wanted:
            one = sa.settings
            if sa.is_outbound and (one.vrf, one.spi, one.local, one.remote) == made:
                return sa
        return None

    def _take(self, error: TooBig, sa: SecurityAssociation, packet: PuntedPacket) -> str:
        """Applies an error or ignores it. Returns the name of its counter."""
        if packet.bundle == 0:
            return "refused: came in clear"
        if packet.bundle != sa.settings.bundle:
            return "refused: came by another bundle"
        if not 0 < error.mtu < error.length:
            return "refused: the packet would fit"
        if not self._associations.report_path_mtu(sa, error.mtu, error.sender):
            return "refused: tells no less than is known"
        log.info(
            "SA %s: an ICMP error from %s reports a path MTU of %d bytes",
            sa.name,
            format_address(error.sender),
            error.mtu,
        )
        return "path MTUs told"

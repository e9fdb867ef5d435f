# SPDX-License-Identifier: Apache-2.0
"""Decides what one host stack of several VRFs may get and send: no answer changes its VRF.

It is for interfaces that the kernel does not separate by VRF devices (`sources.vrf_devices`). There
the host's stack has one routing table for all VRFs. It may send the answer to a packet of one VRF
by an interface of another, under that one's policy. Two rules prevent it:

- The host gets packets of a VRF other than the default one only where an answer comes from the
  address that was asked (`answers_from_its_destination`). A server on a UDP socket that is bound to
  no address answers from whichever address the routing table suggests, so of UDP only routing
  protocols and IKE get through: their daemons choose interface or source themselves. For the same
  reason it sends nothing else by an interface of such a VRF (`is_of_its_vrf`): it might answer a
  packet of the default VRF, whose sender's address lies behind that interface.
- What the host sends must come from an address of the interface's own VRF, and of no other VRF
  unless it stays on the link (`stays_on_link`).

Pure; depends on policy_model and wire.
"""

from __future__ import annotations

from sluice.policy_model import Selectors
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    HOP_BY_HOP,
    ICMP,
    ICMPV6,
    TCP,
    UDP,
    is_multicast,
    parse_ethernet,
)
from sluice.wire.selectors import is_neighbor_discovery, selectors

IGMP, OSPF, PIM, VRRP = 2, 89, 103, 112
ANSWERED_IN_PLACE = frozenset({ICMP, ICMPV6, TCP, IGMP, OSPF, PIM, VRRP})
"""Protocols whose answers the kernel, or the connection, sends from the address that was asked."""
PORTS_OF_DAEMONS = frozenset({500, 520, 521, 646, 3784, 3785, 4500, 4784})
"""UDP: IKE, RIP, RIPng, LDP, BFD (RFC 5881, RFC 5883)."""
PORTS_OF_BFD = frozenset({3784, 3785, 4784})
FIRST_PORT_OF_BFD_SENDERS = 49152
"""RFC 5881, section 4. All the others send from the port that they listen on."""
LIMITED_BROADCAST = b"\xff\xff\xff\xff"
_IN_PLACE = ANSWERED_IN_PLACE | {None}
_NOTHING = Selectors(b"", b"", None, None, None, None)


def answers_from_its_destination(frame: bytes) -> bool:
    """Whether the host answers a frame, if at all, from the address that it was sent to.

    Later fragments are worth as much as their first.
    """
    seen = _upper(frame)
    if seen is None or seen.protocol != UDP:
        return seen is not None and seen.protocol in _IN_PLACE
    return seen.destination_port in PORTS_OF_DAEMONS


def is_answered_in_its_vrf(frame: bytes) -> bool:
    """Whether the kernel, with VRF devices, answers a frame in the VRF that it came in.

    It does so for UDP and what `ANSWERED_IN_PLACE` has; SCTP, for one, answers what belongs to no
    association by the default VRF's routes (net/sctp/protocol.c).
    """
    seen = _upper(frame)
    return seen is not None and (seen.protocol == UDP or seen.protocol in _IN_PLACE)


def is_of_its_vrf(frame: bytes) -> bool:
    """Whether the host sends a frame by an interface that connection or daemon have chosen."""
    seen = _upper(frame)
    if seen is None or seen.protocol != UDP:
        return seen is not None and seen.protocol in _IN_PLACE
    source, destination = seen.source_port or 0, seen.destination_port
    if destination in PORTS_OF_BFD:
        return source >= FIRST_PORT_OF_BFD_SENDERS or source in PORTS_OF_BFD
    return source in PORTS_OF_DAEMONS - PORTS_OF_BFD


def _upper(frame: bytes) -> Selectors | None:
    """Returns what is behind the IP headers; protocol None where there are no ports to show, and
    None where the frame cannot be read."""
    try:
        if parse_ethernet(frame).ethertype not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
            return _NOTHING  # ARP, LLDP, IS-IS: they stay on the link
        packet = selectors(frame)
    except WireError:
        return None
    is_later = packet.fragment is not None and packet.fragment.start > 0
    return _NOTHING if is_later else packet.selectors


def stays_on_link(frame: bytes, destination: bytes) -> bool:
    """Whether a frame of the host's is for the link of the interface that it leaves by, whatever
    the routing table says: to a group, to a link-local address, or neighbour discovery."""
    if destination == LIMITED_BROADCAST or is_multicast(destination):
        return True
    if len(destination) == 4:
        return destination[:2] == b"\xa9\xfe"
    if destination[0] == 0xFE and destination[1] & 0xC0 == 0x80:
        return True
    if frame[20] not in (ICMPV6, HOP_BY_HOP):
        return False
    try:
        return frame[21] == 255 and is_neighbor_discovery(selectors(frame).selectors)
    except WireError:
        return False

# SPDX-License-Identifier: Apache-2.0
"""Filters the frames of a host stack that several VRFs share, so that no answer leaves in another
VRF than its request.

The filter is for interfaces that the kernel does not separate by VRF devices
(`sources.vrf_devices`). For these interfaces the host's stack has one routing table. So the stack
may send the answer to a packet of one VRF through an interface of another VRF, under the policy of
the other VRF. Two rules prevent this:

- Towards the host: a packet of a VRF other than the default VRF is delivered only if every answer
  has the packet's destination as its source (`answers_from_its_destination`). A server on an
  unbound UDP socket answers from an address that the routing table selects. So of UDP, only routing
  protocols and IKE pass, because their daemons choose interface or source themselves.
- From the host: the source of a frame must be an address of the interface's own VRF. Unless the
  frame stays on the link (`stays_on_link`), no other VRF may have this address too. In a VRF other
  than the default VRF, the host may send no other UDP either (`is_of_its_vrf`). Such a datagram
  could be an answer to a packet of the default VRF that the routing table sends to this interface.

Pure; depends on policy.model and wire.
"""

from __future__ import annotations

from sluice.policy.model import Selectors
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
"""Protocols whose answers have the request's destination as their source. The kernel or the
connection ensures this."""
PORTS_OF_DAEMONS = frozenset({500, 520, 521, 646, 3784, 3785, 4500, 4784})
"""UDP ports of IKE, RIP, RIPng, LDP and BFD (RFC 5881, RFC 5883)."""
PORTS_OF_BFD = frozenset({3784, 3785, 4784})
FIRST_PORT_OF_BFD_SENDERS = 49152
"""First source port of BFD (RFC 5881, section 4). All other daemons send from the port that they
listen on."""
LIMITED_BROADCAST = b"\xff\xff\xff\xff"
_IN_PLACE = ANSWERED_IN_PLACE | {None}
_NOTHING = Selectors(b"", b"", None, None, None, None)


def answers_from_its_destination(frame: bytes) -> bool:
    """Returns whether all answers of the host to a frame have the frame's destination as source.

    Returns True for later fragments, because they are useless without their first fragment.
    """
    seen = _upper(frame)
    if seen is None or seen.protocol != UDP:
        return seen is not None and seen.protocol in _IN_PLACE
    return seen.destination_port in PORTS_OF_DAEMONS


def is_answered_in_its_vrf(frame: bytes) -> bool:
    """Returns whether the kernel, with VRF devices, answers a frame in the VRF in which it arrived.

    The kernel does so for UDP and the protocols of `ANSWERED_IN_PLACE`. SCTP, for example, does
    not: it answers a packet without an association by the default VRF's routes
    (net/sctp/protocol.c).
    """
    seen = _upper(frame)
    return seen is not None and (seen.protocol == UDP or seen.protocol in _IN_PLACE)


def is_of_its_vrf(frame: bytes) -> bool:
    """Returns whether a connection or a daemon chose the frame's interface, and not a route
    lookup."""
    seen = _upper(frame)
    if seen is None or seen.protocol != UDP:
        return seen is not None and seen.protocol in _IN_PLACE
    source, destination = seen.source_port or 0, seen.destination_port
    if destination in PORTS_OF_BFD:
        return source >= FIRST_PORT_OF_BFD_SENDERS or source in PORTS_OF_BFD
    return source in PORTS_OF_DAEMONS - PORTS_OF_BFD


def _upper(frame: bytes) -> Selectors | None:
    """Returns the selectors of a frame, or None if it cannot be decoded.

    The protocol in the selectors is None for later fragments and for frames other than IP.
    """
    try:
        if parse_ethernet(frame).ethertype not in (ETHERTYPE_IPV4, ETHERTYPE_IPV6):
            return _NOTHING  # ARP, LLDP, IS-IS stay on the link
        packet = selectors(frame)
    except WireError:
        return None
    is_later = packet.fragment is not None and packet.fragment.start > 0
    return _NOTHING if is_later else packet.selectors


def stays_on_link(frame: bytes, destination: bytes) -> bool:
    """Returns whether a frame of the host stays on its link, so that the routing table does not
    matter.

    A frame stays on its link if its destination is a multicast or link-local address, or if it is
    neighbour discovery.
    """
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

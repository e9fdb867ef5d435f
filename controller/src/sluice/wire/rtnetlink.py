# SPDX-License-Identifier: Apache-2.0
"""Decodes rtnetlink(7) events of links, addresses and neighbours, and encodes requests.

Routes and next-hop objects are in `routes`. Decoders return a model event, or None for messages
that are irrelevant to a router (a neighbour entry of a bridge, a multicast mapping).
"""

from __future__ import annotations

from struct import Struct

from sluice.model import (
    Address,
    AddressAdded,
    AddressRemoved,
    InterfaceAddress,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    Mac,
    NeighborChanged,
    NeighborState,
)
from sluice.wire.errors import WireError
from sluice.wire.netlink import (
    I32,
    NLM_F_ACK,
    NLM_F_CREATE,
    NLM_F_DUMP,
    NLM_F_EXCL,
    NLM_F_REPLACE,
    NLM_F_REQUEST,
    U8,
    U32,
    attribute,
    attributes,
    fixed,
    message,
)
from sluice.wire.routes import (
    ADDRESS_SIZE,
    AF_INET,
    AF_INET6,
    AF_UNSPEC,
    RTM_GETROUTE,
    RTMSG,
    RTN_LOCAL,
    RTN_UNICAST,
    RTN_UNSPEC,
)

RTM_NEWLINK, RTM_DELLINK, RTM_GETLINK = 16, 17, 18
RTM_NEWADDR, RTM_DELADDR, RTM_GETADDR = 20, 21, 22
RTM_NEWNEIGH, RTM_DELNEIGH, RTM_GETNEIGH = 28, 29, 30
KERNEL_MESSAGES = frozenset(
    {RTM_NEWLINK, RTM_DELLINK, RTM_NEWADDR, RTM_DELADDR, RTM_NEWNEIGH, RTM_DELNEIGH}
)

# Multicast groups for NETLINK_ADD_MEMBERSHIP.
RTNLGRP_LINK, RTNLGRP_NEIGH, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR = 1, 3, 5, 9

# family, pad, type, index, flags, change mask
IFINFOMSG = Struct("=BBHiII")
# family, prefix length, flags, scope, index
IFADDRMSG = Struct("=BBBBI")
# family, pad, pad, ifindex, state, flags, type
NDMSG = Struct("=BBHiHBB")

IFLA_ADDRESS, IFLA_IFNAME, IFLA_MTU, IFLA_LINK, IFLA_MASTER = 1, 3, 4, 5, 10
IFLA_LINKINFO, IFLA_LINK_NETNSID, IFLA_PROTO_DOWN = 18, 37, 39
IFLA_INFO_KIND, IFLA_INFO_DATA = 1, 2
IFLA_VRF_TABLE = 1
IFF_UP, IFF_LOWER_UP = 0x1, 0x10000
IFA_ADDRESS, IFA_LOCAL, IFA_BROADCAST, IFA_FLAGS, IFA_PROTO = 1, 2, 4, 8, 11
# IFA_PROTO of addresses that Sluice added (since Linux 5.18). The kernel itself uses 1 to 3.
IFAPROT_SLUICE = 0x53
IFA_F_TENTATIVE, IFA_F_DADFAILED = 0x40, 0x08
NDA_DST, NDA_LLADDR, NDA_FLAGS_EXT = 1, 2, 15
NTF_USE, NTF_PROXY, NTF_EXT_LEARNED = 0x01, 0x08, 0x10
NTF_EXT_MANAGED, NTF_EXT_VALIDATED = 0x01, 0x04
AF_BRIDGE = 7

MAC_SIZE = 6
NO_MAC = bytes(MAC_SIZE)


def decode_kernel_message(kind: int, body: bytes, base: int) -> KernelEvent | None:
    """Returns the event in the body of a message of type `kind`, one of KERNEL_MESSAGES.

    `base` is the body's position in the received data, for the offsets in WireErrors.
    """
    if kind in (RTM_NEWLINK, RTM_DELLINK):
        return _decode_link(kind, body, base)
    if kind in (RTM_NEWADDR, RTM_DELADDR):
        return _decode_address(kind, body, base)
    return _decode_neighbor(kind, body, base)


def _decode_link(kind: int, body: bytes, base: int) -> LinkChanged | LinkRemoved | None:
    if len(body) < IFINFOMSG.size:
        raise WireError("link_truncated", base, f"{len(body)} bytes of {IFINFOMSG.size}")
    family, _, _, ifindex, flags, _ = IFINFOMSG.unpack_from(body)
    if family != AF_UNSPEC:  # AF_BRIDGE: settings of a bridge port, not of the link
        return None
    if kind == RTM_DELLINK:
        return LinkRemoved(ifindex)
    attrs = attributes(body, IFINFOMSG.size, base)
    if IFLA_IFNAME not in attrs:
        raise WireError("link_without_name", base, f"link {ifindex} lacks IFLA_IFNAME")
    mac = attrs.get(IFLA_ADDRESS, NO_MAC)
    info = attributes(attrs.get(IFLA_LINKINFO, b""), 0, base)
    return LinkChanged(
        ifindex,
        attrs[IFLA_IFNAME].rstrip(b"\0").decode("utf-8", "backslashreplace"),
        bool(flags & IFF_UP),
        bool(flags & IFF_LOWER_UP),
        fixed(attrs[IFLA_MTU], "IFLA_MTU", U32, base) if IFLA_MTU in attrs else 0,
        mac if len(mac) == MAC_SIZE else NO_MAC,
        _macvlan_on(attrs, info, base),
        IFLA_PROTO_DOWN in attrs and fixed(attrs[IFLA_PROTO_DOWN], "IFLA_PROTO_DOWN", U8, base) > 0,
        fixed(attrs[IFLA_MASTER], "IFLA_MASTER", U32, base) if IFLA_MASTER in attrs else None,
        _vrf_table(info, base),
    )


def _kind(info: dict[int, bytes]) -> bytes:
    return info.get(IFLA_INFO_KIND, b"").rstrip(b"\0")


def _vrf_table(info: dict[int, bytes], base: int) -> int | None:
    """Returns the routing table of a VRF device, or None for other links."""
    if _kind(info) != b"vrf":
        return None
    data = attributes(info.get(IFLA_INFO_DATA, b""), 0, base)
    if IFLA_VRF_TABLE not in data:
        return None
    return fixed(data[IFLA_VRF_TABLE], "IFLA_VRF_TABLE", U32, base)


def _macvlan_on(attrs: dict[int, bytes], info: dict[int, bytes], base: int) -> int | None:
    """Returns the interface below a macvlan device, or None.

    Returns None for other links, and if the lower interface is in another network namespace.
    """
    if _kind(info) != b"macvlan" or IFLA_LINK not in attrs or IFLA_LINK_NETNSID in attrs:
        return None
    return fixed(attrs[IFLA_LINK], "IFLA_LINK", U32, base)


def _decode_address(kind: int, body: bytes, base: int) -> AddressAdded | AddressRemoved | None:
    if len(body) < IFADDRMSG.size:
        raise WireError("address_truncated", base, f"{len(body)} bytes of {IFADDRMSG.size}")
    family, length, flags, _, ifindex = IFADDRMSG.unpack_from(body)
    if family not in ADDRESS_SIZE:
        return None
    attrs = attributes(body, IFADDRMSG.size, base)
    if IFA_FLAGS in attrs:
        flags = fixed(attrs[IFA_FLAGS], "IFA_FLAGS", U32, base)
    # IFA_LOCAL is the address of this host. IFA_ADDRESS differs only on point-to-point links.
    own = attrs.get(IFA_LOCAL, attrs.get(IFA_ADDRESS))
    if own is None or len(own) != ADDRESS_SIZE[family] or length > len(own) * 8:
        raise WireError("address_size", base, f"address {own!r}/{length} of family {family}")
    if attrs.get(IFA_ADDRESS, own) != own:
        length = len(own) * 8  # the peer's prefix is connected, and arrives as a route
    address = InterfaceAddress(own, length)
    if kind == RTM_DELADDR or flags & IFA_F_DADFAILED:
        return AddressRemoved(ifindex, address)
    return AddressAdded(ifindex, address, attrs.get(IFA_PROTO) == bytes([IFAPROT_SLUICE]))


def _decode_neighbor(kind: int, body: bytes, base: int) -> NeighborChanged | None:
    if len(body) < NDMSG.size:
        raise WireError("neighbor_truncated", base, f"{len(body)} bytes of {NDMSG.size}")
    family, _, _, ifindex, state, flags, form = NDMSG.unpack_from(body)
    if family not in ADDRESS_SIZE or flags & NTF_PROXY:
        return None
    # The kernel sets RTN_LOCAL in the entry of a neighbour whose address some interface of this
    # host also has, even if that interface is down. On a VRRP backup, the VRRP master is such a
    # neighbour. With NOARP in addition, the entry stands for this host itself.
    to_itself = form == RTN_LOCAL and state == NeighborState.NOARP
    if form not in (RTN_UNSPEC, RTN_UNICAST, RTN_LOCAL) or to_itself:
        return None  # entries for multicast, broadcast and this host are not neighbours
    attrs = attributes(body, NDMSG.size, base)
    address = attrs.get(NDA_DST)
    if address is None or len(address) != ADDRESS_SIZE[family]:
        raise WireError("address_size", base, f"neighbour {address!r} of family {family}")
    current = NeighborState.NONE if kind == RTM_DELNEIGH else _neighbor_state(state)
    mac = attrs.get(NDA_LLADDR)
    if current not in STATES_WITH_MAC or mac is None or len(mac) != MAC_SIZE:
        mac = None
    foreign = bool(flags & NTF_EXT_LEARNED)
    if NDA_FLAGS_EXT in attrs:
        more = fixed(attrs[NDA_FLAGS_EXT], "NDA_FLAGS_EXT", U32, base)
        foreign = foreign or bool(more & (NTF_EXT_MANAGED | NTF_EXT_VALIDATED))
    if current is NeighborState.NONE:
        foreign = False
    if current in LEARNED_STATES and mac is not None and not foreign and not _is_host_mac(mac):
        # RFC 1812, 3.3.2 forbids such a MAC address in ARP, but Linux accepts it.
        mac, current = None, NeighborState.FAILED
    return NeighborChanged(ifindex, address, mac, current, foreign)


def _is_host_mac(mac: Mac) -> bool:
    """Returns whether a MAC address can be that of a host: not multicast, broadcast or zero."""
    return not mac[0] & 1 and any(mac)


LEARNED_STATES = frozenset(
    {
        NeighborState.REACHABLE,
        NeighborState.STALE,
        NeighborState.DELAY,
        NeighborState.PROBE,
    }
)
"""States of entries whose MAC address ARP or ND has learned."""


STATES_WITH_MAC = LEARNED_STATES | {NeighborState.NOARP, NeighborState.PERMANENT}


def _neighbor_state(state: int) -> NeighborState:
    try:
        return NeighborState(state)
    except ValueError:  # a state of a later kernel counts as unusable
        return NeighborState.NONE


def decode_error(body: bytes, base: int) -> tuple[int, int]:
    """Returns (errno, sequence of the request) of an NLMSG_ERROR. errno 0 is an acknowledgement."""
    if len(body) < 20:
        raise WireError("error_truncated", base, f"{len(body)} bytes of 20")
    (code,) = I32.unpack_from(body)
    (sequence,) = U32.unpack_from(body, 12)
    return -code, sequence


# --- requests ------------------------------------------------------------------------------------


def dump_links(sequence: int) -> bytes:
    """Encodes a dump request for all links."""
    return message(RTM_GETLINK, _DUMP, sequence, IFINFOMSG.pack(AF_UNSPEC, 0, 0, 0, 0, 0))


def dump_addresses(sequence: int) -> bytes:
    """Encodes a dump request for the addresses of all links, both families."""
    return message(RTM_GETADDR, _DUMP, sequence, IFADDRMSG.pack(AF_UNSPEC, 0, 0, 0, 0))


def dump_neighbors(sequence: int) -> bytes:
    """Encodes a dump request for all neighbour entries, both families."""
    return message(RTM_GETNEIGH, _DUMP, sequence, NDMSG.pack(AF_UNSPEC, 0, 0, 0, 0, 0, 0))


def dump_routes(sequence: int, family: int) -> bytes:
    """Encodes a dump request for all routes of a family, in all tables."""
    return message(RTM_GETROUTE, _DUMP, sequence, RTMSG.pack(family, 0, 0, 0, 0, 0, 0, 0, 0))


_DUMP = NLM_F_REQUEST | NLM_F_DUMP
_SET = NLM_F_REQUEST | NLM_F_ACK


def resolve_neighbor(sequence: int, ifindex: int, address: Address) -> bytes:
    """Encodes a request to create a missing neighbour entry and resolve the neighbour.

    The kernel acknowledges the request.

    With NLM_F_EXCL, the kernel answers EEXIST if the entry exists, and does not change it. Without
    the flag, NTF_USE would remove PERMANENT and NTF_EXT_LEARNED from the entry (since Linux 5.16).
    """
    body = NDMSG.pack(_family(address), 0, 0, ifindex, 0, NTF_USE, 0)
    flags = _SET | NLM_F_CREATE | NLM_F_EXCL
    return message(RTM_NEWNEIGH, flags, sequence, body + attribute(NDA_DST, address))


def add_address(sequence: int, ifindex: int, address: InterfaceAddress) -> bytes:
    """Encodes a request to add an address to an interface. The kernel acknowledges the request.

    The address is marked as added by Sluice. The request succeeds even if the interface already has
    the address.
    """
    body = _address_body(ifindex, address) + attribute(IFA_PROTO, bytes([IFAPROT_SLUICE]))
    return message(RTM_NEWADDR, _SET | NLM_F_CREATE | NLM_F_REPLACE, sequence, body)


def remove_address(sequence: int, ifindex: int, address: InterfaceAddress) -> bytes:
    """Encodes a request to remove an address from an interface. The kernel acknowledges it."""
    return message(RTM_DELADDR, _SET, sequence, _address_body(ifindex, address))


def _address_body(ifindex: int, address: InterfaceAddress) -> bytes:
    own = address.address
    body = IFADDRMSG.pack(_family(own), address.length, 0, 0, ifindex)
    body += attribute(IFA_LOCAL, own) + attribute(IFA_ADDRESS, own)
    if len(own) == 4 and address.length < 31:  # RFC 3021: a /31 has no broadcast address
        host_bits = (1 << (32 - address.length)) - 1
        broadcast = (int.from_bytes(own, "big") | host_bits).to_bytes(4, "big")
        body += attribute(IFA_BROADCAST, broadcast)
    return body


def _family(address: Address) -> int:
    return AF_INET if len(address) == 4 else AF_INET6

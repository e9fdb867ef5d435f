# SPDX-License-Identifier: Apache-2.0
"""Decodes rtnetlink's routes and next-hop objects, as FPM and the kernel send them.

`decode_route_message` converts one RTM_{NEW,DEL}{ROUTE,NEXTHOP} to an event. It returns None for a
message that is irrelevant to a router's FIB, and counts the reason by name in `ignored`. A route
that Sluice cannot use for forwarding (an encapsulation, no next hop at all) becomes UNREACHABLE and
is counted too. If it were left out, its packets would match a less specific route.

Checked against zebra 8.4.4 and Linux 6.18; the goldens are in controller/tests/goldens.
"""

from __future__ import annotations

from collections import Counter
from struct import Struct

from sluice.model import (
    Address,
    NexthopKind,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    NexthopSpec,
    Prefix,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
)
from sluice.wire.errors import WireError
from sluice.wire.netlink import (
    I32,
    NLM_F_DUMP,
    NLM_F_REQUEST,
    U16,
    U32,
    attributes,
    fixed,
    message,
)

AF_UNSPEC, AF_INET, AF_INET6 = 0, 2, 10
ADDRESS_SIZE = {AF_INET: 4, AF_INET6: 16}

RTM_NEWROUTE, RTM_DELROUTE, RTM_GETROUTE = 24, 25, 26
RTM_NEWNEXTHOP, RTM_DELNEXTHOP, RTM_GETNEXTHOP = 104, 105, 106
ROUTE_MESSAGES = frozenset({RTM_NEWROUTE, RTM_DELROUTE, RTM_NEWNEXTHOP, RTM_DELNEXTHOP})

# rtm_family, dst_len, src_len, tos, table, protocol, scope, type, flags
RTMSG = Struct("=BBBBBBBBI")
# nh_family, nh_scope, nh_protocol, resvd, nh_flags
NHMSG = Struct("=BBBBI")
# rtnh_len, flags, hops, ifindex
RTNEXTHOP = Struct("=HBBi")
# id, weight minus one, weight's high byte (since 6.13; zebra leaves it uninitialised), reserved
NEXTHOP_GRP = Struct("=IBBH")

RTN_UNSPEC, RTN_UNICAST, RTN_LOCAL = 0, 1, 2
RTPROT_KERNEL = 2
RTN_NAMES = {2: "local", 3: "broadcast", 4: "anycast", 5: "multicast", 9: "throw", 10: "nat"}
RTN_DROPS = {6: NexthopKind.BLACKHOLE, 7: NexthopKind.UNREACHABLE, 8: NexthopKind.PROHIBIT}

RTM_F_CLONED = 0x200
RTNH_F_DEAD = 0x01

RTA_DST, RTA_SRC, RTA_OIF, RTA_GATEWAY, RTA_PRIORITY = 1, 2, 4, 5, 6
RTA_MULTIPATH, RTA_TABLE, RTA_VIA = 9, 15, 18
RTA_ENCAP_TYPE, RTA_ENCAP, RTA_NH_ID = 21, 22, 30
RTA_NEWDST = 19  # MPLS label stack that the route pushes, or swaps in

NHA_ID, NHA_GROUP, NHA_BLACKHOLE, NHA_OIF, NHA_GATEWAY = 1, 2, 4, 5, 6
NHA_ENCAP_TYPE, NHA_ENCAP, NHA_FDB = 7, 8, 11

# Attributes of next hops in the route message itself. The kernel sends them in addition to the id
# of the next-hop object. zebra does not.
_SPELLED_OUT = frozenset({RTA_MULTIPATH, RTA_GATEWAY, RTA_VIA, RTA_OIF})

UNREACHABLE = (NexthopSpec(None, None, 1, NexthopKind.UNREACHABLE),)


def decode_route_message(
    kind: int, body: bytes, base: int, ignored: Counter[str]
) -> RouteEvent | None:
    """Returns the event in the body of a message of type `kind`, one of ROUTE_MESSAGES.

    `base` is the body's position in the received data, for the offsets in WireErrors.
    """
    if kind in (RTM_NEWROUTE, RTM_DELROUTE):
        return _decode_route(kind, body, base, ignored)
    return _decode_nexthop_object(kind, body, base, ignored)


def metric_of(body: bytes) -> int:
    """Returns the metric in the body of an RTM_NEWROUTE or RTM_DELROUTE. Raises WireError."""
    attrs = attributes(body, RTMSG.size)
    return fixed(attrs[RTA_PRIORITY], "RTA_PRIORITY", U32, 0) if RTA_PRIORITY in attrs else 0


def dump_nexthops(sequence: int) -> bytes:
    """Encodes a dump request for all next-hop objects."""
    body = NHMSG.pack(AF_UNSPEC, 0, 0, 0, 0)
    return message(RTM_GETNEXTHOP, NLM_F_REQUEST | NLM_F_DUMP, sequence, body)


def _decode_route(kind: int, body: bytes, base: int, ignored: Counter[str]) -> RouteEvent | None:
    if len(body) < RTMSG.size:
        raise WireError("route_truncated", base, f"{len(body)} bytes, rtmsg has {RTMSG.size}")
    family, length, _, _, table, protocol, _, form, _ = header = RTMSG.unpack_from(body)
    attrs = attributes(body, RTMSG.size, base)
    reason = _not_for_the_fib(header, attrs)
    if reason is not None:
        ignored[reason] += 1
        return None
    if RTA_TABLE in attrs:
        table = fixed(attrs[RTA_TABLE], "RTA_TABLE", U32, base)
    key = RouteKey(table, _prefix(ADDRESS_SIZE[family], length, attrs.get(RTA_DST), base))
    if kind == RTM_DELROUTE:
        return RouteDeleted(key)
    metric = fixed(attrs[RTA_PRIORITY], "RTA_PRIORITY", U32, base) if RTA_PRIORITY in attrs else 0
    if form in RTN_DROPS:
        return RouteUpdated(
            Route(key, protocol, metric, (NexthopSpec(None, None, 1, RTN_DROPS[form]),))
        )
    if RTA_NH_ID in attrs and not _SPELLED_OUT.intersection(attrs):
        nexthop_id = fixed(attrs[RTA_NH_ID], "RTA_NH_ID", U32, base)
        return RouteUpdated(Route(key, protocol, metric, (), nexthop_id))
    return RouteUpdated(Route(key, protocol, metric, _nexthops(attrs, family, base, ignored)))


def _not_for_the_fib(header: tuple[int, ...], attrs: dict[int, bytes]) -> str | None:
    """Returns the reason why a route does not belong in the FIB, as a counter's name, or None if it
    does."""
    family, _, source_length, tos, _, _, _, form, flags = header
    if family not in ADDRESS_SIZE:
        return f"route_family_{family}"
    if flags & RTM_F_CLONED:
        return "route_cache_entry"
    if source_length or RTA_SRC in attrs:
        return "route_source_specific"
    if tos:
        return "route_with_tos"
    if form not in RTN_DROPS and form not in (RTN_UNSPEC, RTN_UNICAST):
        return f"route_type_{RTN_NAMES.get(form, form)}"
    return None


def _prefix(size: int, length: int, address: bytes | None, base: int) -> Prefix:
    if length > size * 8:
        raise WireError("prefix_length", base, f"/{length} of an address of {size * 8} bits")
    if address is None:
        if length:
            raise WireError("prefix_missing", base, f"a /{length} without RTA_DST")
        return Prefix(bytes(size), 0)
    if len(address) != size:
        raise WireError("address_size", base, f"RTA_DST has {len(address)} bytes, not {size}")
    host_bits = size * 8 - length
    if host_bits and int.from_bytes(address, "big") & ((1 << host_bits) - 1):
        return Prefix.of(address, length)
    return Prefix(address, length)


def _nexthops(
    attrs: dict[int, bytes], family: int, base: int, ignored: Counter[str]
) -> tuple[NexthopSpec, ...]:
    """Returns the next hops that the route message itself contains."""
    if RTA_MULTIPATH in attrs:
        found = _multipath(attrs[RTA_MULTIPATH], family, base, ignored)
        if not found:
            ignored["route_without_usable_nexthop"] += 1
        return found or UNREACHABLE
    if _is_encapsulated(attrs):
        ignored["route_encapsulated"] += 1
        return UNREACHABLE
    gateway = _gateway(attrs, family, base)
    ifindex = fixed(attrs[RTA_OIF], "RTA_OIF", U32, base) if RTA_OIF in attrs else None
    if gateway is None and ifindex is None:
        ignored["route_without_usable_nexthop"] += 1
        return UNREACHABLE
    return (_spec(gateway, ifindex, 1),)


def _multipath(
    value: bytes, family: int, base: int, ignored: Counter[str]
) -> tuple[NexthopSpec, ...]:
    found: list[NexthopSpec] = []
    start, end = 0, len(value)
    while start < end:
        if end - start < RTNEXTHOP.size:
            raise WireError("multipath_truncated", base, f"{end - start} bytes left over")
        length, flags, weight, ifindex = RTNEXTHOP.unpack_from(value, start)
        if length < RTNEXTHOP.size or length > end - start:
            raise WireError(
                "multipath_length", base, f"next hop length {length} of {end - start} bytes left"
            )
        attrs = attributes(value[start : start + length], RTNEXTHOP.size, base)
        start += (length + 3) & ~3
        if flags & RTNH_F_DEAD:
            ignored["nexthop_dead"] += 1
        elif _is_encapsulated(attrs):
            ignored["nexthop_encapsulated"] += 1
        elif (gateway := _gateway(attrs, family, base)) is not None or ifindex > 0:
            found.append(_spec(gateway, ifindex if ifindex > 0 else None, weight + 1))
        else:
            ignored["nexthop_without_gateway_and_interface"] += 1
    return tuple(found)


def _is_encapsulated(attrs: dict[int, bytes]) -> bool:
    return RTA_ENCAP in attrs or RTA_ENCAP_TYPE in attrs or RTA_NEWDST in attrs


def _gateway(attrs: dict[int, bytes], family: int, base: int) -> Address | None:
    """Returns the gateway of a route, or None.

    An address in RTA_GATEWAY is of the route's family. RTA_VIA names its family (RFC 8950).
    """
    if RTA_GATEWAY in attrs:
        address = attrs[RTA_GATEWAY]
    elif RTA_VIA in attrs:
        via = attrs[RTA_VIA]
        if len(via) < 2:
            raise WireError("address_size", base, f"RTA_VIA has {len(via)} bytes")
        family, address = U16.unpack_from(via)[0], via[2:]
        if family not in ADDRESS_SIZE:
            raise WireError("address_family", base, f"RTA_VIA of family {family}")
    else:
        return None
    if len(address) != ADDRESS_SIZE[family]:
        raise WireError(
            "address_size", base, f"gateway has {len(address)} bytes, not {ADDRESS_SIZE[family]}"
        )
    return address if any(address) else None


def _spec(gateway: Address | None, ifindex: int | None, weight: int) -> NexthopSpec:
    kind = NexthopKind.CONNECTED if gateway is None else NexthopKind.GATEWAY
    return NexthopSpec(gateway, ifindex, weight, kind)


# --- next-hop objects ----------------------------------------------------------------------------


def _decode_nexthop_object(
    kind: int, body: bytes, base: int, ignored: Counter[str]
) -> NexthopObjectUpdated | NexthopObjectDeleted | None:
    if len(body) < NHMSG.size:
        raise WireError("nexthop_truncated", base, f"{len(body)} bytes, nhmsg has {NHMSG.size}")
    family = body[0]
    attrs = attributes(body, NHMSG.size, base)
    if NHA_ID not in attrs:
        raise WireError("nexthop_without_id", base, "a next-hop object without NHA_ID")
    identity = fixed(attrs[NHA_ID], "NHA_ID", U32, base)
    if kind == RTM_DELNEXTHOP:
        return NexthopObjectDeleted(identity)
    if NHA_FDB in attrs:
        ignored["nexthop_fdb"] += 1
        return None
    if NHA_GROUP in attrs:
        return NexthopObjectUpdated(identity, None, _group(attrs[NHA_GROUP], base))
    return NexthopObjectUpdated(identity, _single(attrs, family, base, ignored))


def _group(value: bytes, base: int) -> tuple[tuple[int, int], ...]:
    if not value or len(value) % NEXTHOP_GRP.size:
        raise WireError(
            "nexthop_group_size", base, f"{len(value)} bytes is not a list of {NEXTHOP_GRP.size}"
        )
    return tuple((member, weight + 1) for member, weight, _, _ in NEXTHOP_GRP.iter_unpack(value))


def _single(attrs: dict[int, bytes], family: int, base: int, ignored: Counter[str]) -> NexthopSpec:
    if NHA_BLACKHOLE in attrs:
        return NexthopSpec(None, None, 1, NexthopKind.BLACKHOLE)
    if NHA_ENCAP in attrs or NHA_ENCAP_TYPE in attrs:
        ignored["nexthop_encapsulated"] += 1
        return UNREACHABLE[0]
    ifindex = fixed(attrs[NHA_OIF], "NHA_OIF", I32, base) if NHA_OIF in attrs else None
    gateway = attrs.get(NHA_GATEWAY)
    if gateway is not None:
        if len(gateway) != ADDRESS_SIZE.get(family):
            raise WireError(
                "address_size", base, f"NHA_GATEWAY of {len(gateway)} bytes, family {family}"
            )
    elif ifindex is None:
        ignored["nexthop_without_gateway_and_interface"] += 1
        return UNREACHABLE[0]
    return _spec(gateway, ifindex, 1)

# SPDX-License-Identifier: Apache-2.0
"""Tests the decoding of rtnetlink's routes and next-hop objects.

The events must have the fields that a FIB needs, and ignored messages must be counted.
"""

from __future__ import annotations

from collections import Counter

import pytest

from sluice.model import (
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
    parse_address,
)
from sluice.wire.errors import WireError
from sluice.wire.netlink import I32, U16, U32, attribute
from sluice.wire.routes import (
    AF_INET,
    AF_INET6,
    NEXTHOP_GRP,
    NHA_BLACKHOLE,
    NHA_ENCAP,
    NHA_FDB,
    NHA_GATEWAY,
    NHA_GROUP,
    NHA_ID,
    NHA_OIF,
    NHMSG,
    RTA_DST,
    RTA_ENCAP,
    RTA_GATEWAY,
    RTA_MULTIPATH,
    RTA_NEWDST,
    RTA_NH_ID,
    RTA_OIF,
    RTA_PRIORITY,
    RTA_SRC,
    RTA_TABLE,
    RTA_VIA,
    RTM_DELNEXTHOP,
    RTM_DELROUTE,
    RTM_F_CLONED,
    RTM_NEWNEXTHOP,
    RTM_NEWROUTE,
    RTMSG,
    RTN_UNICAST,
    RTNEXTHOP,
    RTNH_F_DEAD,
    UNREACHABLE,
    decode_route_message,
)

GATEWAY, GATEWAY6 = parse_address("10.0.1.2"), parse_address("fe80::2")
PREFIX = bytes((192, 0, 2, 0))
KEY = RouteKey(254, Prefix.parse("192.0.2.0/24"))
BY_GATEWAY = {RTA_GATEWAY: GATEWAY, RTA_OIF: U32.pack(7)}

Attributes = dict[int, bytes]


def route(
    attributes: Attributes,
    *,
    kind: int = RTM_NEWROUTE,
    family: int = AF_INET,
    length: int = 24,
    source_length: int = 0,
    tos: int = 0,
    form: int = RTN_UNICAST,
    flags: int = 0,
) -> tuple[RouteEvent | None, Counter[str]]:
    """Returns the event of a route message, and the counters of ignored messages and attributes."""
    header = RTMSG.pack(family, length, source_length, tos, 254, 186, 0, form, flags)
    body = header + b"".join(attribute(*one) for one in attributes.items())
    ignored: Counter[str] = Counter()
    return decode_route_message(kind, body, 0, ignored), ignored


def nexthops(attributes: Attributes, **header: int) -> tuple[tuple[NexthopSpec, ...], list[str]]:
    """Returns the next hops of a route to 192.0.2.0/24, and the names of the counters of ignored
    parts.
    """
    event, ignored = route({RTA_DST: PREFIX} | attributes, **header)
    assert isinstance(event, RouteUpdated)
    return event.route.nexthops, list(ignored)


def leg(attributes: Attributes, ifindex: int = 0, weight: int = 1, flags: int = 0) -> bytes:
    """Encodes one next hop of RTA_MULTIPATH."""
    inner = b"".join(attribute(*one) for one in attributes.items())
    return RTNEXTHOP.pack(RTNEXTHOP.size + len(inner), flags, weight - 1, ifindex) + inner


def nexthop_object(
    attributes: Attributes, kind: int = RTM_NEWNEXTHOP, family: int = AF_INET
) -> tuple[RouteEvent | None, list[str]]:
    body = NHMSG.pack(family, 0, 0, 0, 0)
    body += b"".join(attribute(*one) for one in attributes.items())
    ignored: Counter[str] = Counter()
    return decode_route_message(kind, body, 0, ignored), list(ignored)


def test_a_route_by_a_gateway() -> None:
    event, ignored = route({RTA_DST: PREFIX, RTA_PRIORITY: U32.pack(20)} | BY_GATEWAY)
    assert event == RouteUpdated(Route(KEY, 186, 20, (NexthopSpec(GATEWAY, 7),)))
    assert not ignored


def test_a_deleted_route_needs_no_next_hop() -> None:
    assert route({RTA_DST: PREFIX}, kind=RTM_DELROUTE)[0] == RouteDeleted(KEY)


def test_tables_above_255_are_in_an_attribute() -> None:
    event, _ = route({RTA_TABLE: U32.pack(1005), RTA_DST: PREFIX}, kind=RTM_DELROUTE)
    assert event == RouteDeleted(KEY._replace(table=1005))


def test_a_default_route_has_no_destination() -> None:
    event, _ = route({}, kind=RTM_DELROUTE, length=0, family=AF_INET6)
    assert event == RouteDeleted(RouteKey(254, Prefix.parse("::/0")))


def test_host_bits_of_a_prefix_are_cleared() -> None:
    event, _ = route({RTA_DST: bytes((192, 0, 2, 77))}, kind=RTM_DELROUTE)
    assert event == RouteDeleted(KEY)


@pytest.mark.parametrize(
    ("attributes", "length", "name"),
    [
        ({RTA_DST: PREFIX}, 33, "prefix_length"),
        ({}, 24, "prefix_missing"),
        ({RTA_DST: PREFIX[:3]}, 24, "address_size"),
        ({RTA_DST: PREFIX, RTA_GATEWAY: GATEWAY6}, 24, "address_size"),
        ({RTA_DST: PREFIX, RTA_VIA: b"\0"}, 24, "address_size"),
        ({RTA_DST: PREFIX, RTA_VIA: U16.pack(77) + GATEWAY}, 24, "address_family"),
        ({RTA_DST: PREFIX, RTA_OIF: b"\7"}, 24, "attribute_size"),
        ({RTA_DST: PREFIX, RTA_MULTIPATH: b"\0\0"}, 24, "multipath_truncated"),
        ({RTA_DST: PREFIX, RTA_MULTIPATH: RTNEXTHOP.pack(9, 0, 0, 7)}, 24, "multipath_length"),
    ],
)
def test_an_invalid_route_is_an_error_with_a_name(
    attributes: Attributes, length: int, name: str
) -> None:
    with pytest.raises(WireError) as error:
        route(attributes, length=length)
    assert error.value.name == name


@pytest.mark.parametrize(
    ("header", "more", "reason"),
    [
        ({"family": 7}, {}, "route_family_7"),
        ({"flags": RTM_F_CLONED}, {}, "route_cache_entry"),
        ({"source_length": 8}, {}, "route_source_specific"),
        ({}, {RTA_SRC: GATEWAY}, "route_source_specific"),
        ({"tos": 4}, {}, "route_with_tos"),
        ({"form": 2}, {}, "route_type_local"),
        ({"form": 11}, {}, "route_type_11"),
    ],
)
def test_a_route_that_is_not_for_the_fib_is_counted(
    header: dict[str, int], more: Attributes, reason: str
) -> None:
    event, ignored = route({RTA_DST: PREFIX} | BY_GATEWAY | more, **header)
    assert event is None
    assert ignored == {reason: 1}


@pytest.mark.parametrize(
    ("form", "kind"),
    [(6, NexthopKind.BLACKHOLE), (7, NexthopKind.UNREACHABLE), (8, NexthopKind.PROHIBIT)],
)
def test_a_route_that_drops(form: int, kind: NexthopKind) -> None:
    assert nexthops({}, form=form) == ((NexthopSpec(None, None, 1, kind),), [])


def test_next_hops_without_gateway_are_connected() -> None:
    connected = NexthopSpec(None, 7, 1, NexthopKind.CONNECTED)
    assert nexthops({RTA_OIF: U32.pack(7)}) == ((connected,), [])
    assert nexthops({RTA_OIF: U32.pack(7), RTA_GATEWAY: bytes(4)}) == ((connected,), [])


def test_a_gateway_of_another_family_is_in_via() -> None:
    via = {RTA_VIA: U16.pack(AF_INET6) + GATEWAY6, RTA_OIF: U32.pack(7)}
    assert nexthops(via) == ((NexthopSpec(GATEWAY6, 7),), [])


def test_an_object_counts_where_no_next_hop_is_spelled_out() -> None:
    event, _ = route({RTA_DST: PREFIX, RTA_NH_ID: U32.pack(42)})
    assert event == RouteUpdated(Route(KEY, 186, 0, (), 42))
    event, _ = route({RTA_DST: PREFIX, RTA_NH_ID: U32.pack(42)} | BY_GATEWAY)
    assert event == RouteUpdated(Route(KEY, 186, 0, (NexthopSpec(GATEWAY, 7),)))


@pytest.mark.parametrize("kind", [RTA_ENCAP, RTA_NEWDST])
def test_an_encapsulating_route_is_unreachable_and_counted(kind: int) -> None:
    assert nexthops(BY_GATEWAY | {kind: bytes(4)}) == (UNREACHABLE, ["route_encapsulated"])


def test_a_route_without_next_hop_is_unreachable_and_counted() -> None:
    assert nexthops({}) == (UNREACHABLE, ["route_without_usable_nexthop"])


def test_usable_legs_of_a_multipath_route() -> None:
    legs = (
        leg({RTA_GATEWAY: GATEWAY}, 7, weight=256),
        leg({RTA_GATEWAY: GATEWAY}, 8, flags=RTNH_F_DEAD),
        leg({RTA_GATEWAY: GATEWAY, RTA_ENCAP: bytes(4)}, 9),
        leg({}, 0),
        leg({}, 10, weight=2),
        leg({RTA_VIA: U16.pack(AF_INET6) + GATEWAY6}, 0),
    )
    found, ignored = nexthops({RTA_MULTIPATH: b"".join(one + bytes(-len(one) % 4) for one in legs)})
    assert found == (
        NexthopSpec(GATEWAY, 7, 256),
        NexthopSpec(None, 10, 2, NexthopKind.CONNECTED),
        NexthopSpec(GATEWAY6, None),
    )
    assert ignored == [
        "nexthop_dead",
        "nexthop_encapsulated",
        "nexthop_without_gateway_and_interface",
    ]


def test_a_multipath_route_of_dead_legs_is_unreachable() -> None:
    found, ignored = nexthops({RTA_MULTIPATH: leg({RTA_GATEWAY: GATEWAY}, 8, flags=RTNH_F_DEAD)})
    assert found == UNREACHABLE
    assert ignored == ["nexthop_dead", "route_without_usable_nexthop"]


def test_objects() -> None:
    identity = {NHA_ID: U32.pack(42)}
    by_gateway = {NHA_GATEWAY: GATEWAY, NHA_OIF: I32.pack(7)}
    # The value 77 is in a field that the kernel does not initialise. It must be ignored.
    group = NEXTHOP_GRP.pack(1, 0, 0, 0) + NEXTHOP_GRP.pack(2, 255, 77, 0)
    blackhole = NexthopSpec(None, None, 1, NexthopKind.BLACKHOLE)
    for attributes, expected in (
        (by_gateway, NexthopObjectUpdated(42, NexthopSpec(GATEWAY, 7))),
        ({NHA_GROUP: group}, NexthopObjectUpdated(42, None, ((1, 1), (2, 256)))),
        ({NHA_BLACKHOLE: b""}, NexthopObjectUpdated(42, blackhole)),
    ):
        assert nexthop_object(identity | attributes) == (expected, [])
    assert nexthop_object(identity, RTM_DELNEXTHOP) == (NexthopObjectDeleted(42), [])


@pytest.mark.parametrize(
    ("attributes", "event", "reason"),
    [
        ({NHA_FDB: b""}, None, "nexthop_fdb"),
        ({}, NexthopObjectUpdated(42, UNREACHABLE[0]), "nexthop_without_gateway_and_interface"),
        (
            {NHA_OIF: I32.pack(7), NHA_ENCAP: bytes(4)},
            NexthopObjectUpdated(42, UNREACHABLE[0]),
            "nexthop_encapsulated",
        ),
    ],
)
def test_an_object_that_is_of_no_use_is_counted(
    attributes: Attributes, event: RouteEvent | None, reason: str
) -> None:
    assert nexthop_object({NHA_ID: U32.pack(42)} | attributes) == (event, [reason])


@pytest.mark.parametrize(
    ("attributes", "name"),
    [
        ({NHA_OIF: I32.pack(7)}, "nexthop_without_id"),
        ({NHA_ID: U32.pack(42), NHA_GROUP: b""}, "nexthop_group_size"),
        ({NHA_ID: U32.pack(42), NHA_GROUP: bytes(7)}, "nexthop_group_size"),
        ({NHA_ID: U32.pack(42), NHA_GATEWAY: GATEWAY6}, "address_size"),
    ],
)
def test_an_invalid_object_is_an_error_with_a_name(attributes: Attributes, name: str) -> None:
    with pytest.raises(WireError) as error:
        nexthop_object(attributes)
    assert error.value.name == name


@pytest.mark.parametrize(
    ("kind", "name"), [(RTM_NEWROUTE, "route_truncated"), (RTM_NEWNEXTHOP, "nexthop_truncated")]
)
def test_a_body_shorter_than_its_header_is_an_error(kind: int, name: str) -> None:
    with pytest.raises(WireError) as error:
        decode_route_message(kind, b"\2", 16, Counter())
    assert (error.value.name, error.value.offset) == (name, 16)

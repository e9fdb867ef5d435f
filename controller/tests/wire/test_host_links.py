# SPDX-License-Identifier: Apache-2.0
"""Tests the decoders for the host's state that `sluice up` reads. tests/sources/test_host_survey.py
tests messages of the real kernel."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import Prefix
from sluice.wire import host_links, tc
from sluice.wire.errors import WireError
from sluice.wire.host_links import (
    FRA_PRIORITY,
    FRA_SUPPRESS_PREFIXLEN,
    FRA_TABLE,
    RULE,
    decode_ingress_qdisc,
    decode_link,
    decode_local_route,
    decode_rule,
    misplaced,
)
from sluice.wire.netlink import U32, attribute
from sluice.wire.routes import AF_INET, AF_INET6, RTA_DST, RTMSG
from sluice.wire.rtnetlink import IFINFOMSG, IFLA_LINKINFO

FRA_IIFNAME = 3


def rule(
    priority: int, table: int, *, family: int = AF_INET, action: int = 1, more: bytes = b""
) -> bytes:
    head = RULE.pack(family, 0, 0, 0, table, 0, 0, action, 0)
    return head + attribute(FRA_PRIORITY, U32.pack(priority)) + more


@pytest.mark.parametrize(("priority", "table"), [(0, 255), (32766, 254), (32767, 253)])
def test_rules_of_the_kernel_itself(priority: int, table: int) -> None:
    assert decode_rule(rule(priority, table)) is None
    suppressed = attribute(FRA_SUPPRESS_PREFIXLEN, U32.pack(0xFFFFFFFF))
    assert decode_rule(rule(priority, table, more=suppressed)) is None


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (rule(100, 5), "ip rule 100 to table 5"),
        (rule(100, 0, more=attribute(FRA_TABLE, U32.pack(1000))), "ip rule 100 to table 1000"),
        (rule(0, 255, more=attribute(FRA_IIFNAME, b"eth1\0")), "ip rule 0"),
        (rule(32766, 254, action=6, family=AF_INET6), "ip -6 rule 32766"),
        (rule(32766, 254, more=attribute(FRA_SUPPRESS_PREFIXLEN, U32.pack(0))), "ip rule 32766"),
    ],
)
def test_other_rules_are_named(body: bytes, text: str) -> None:
    assert decode_rule(body) == text


def test_rule_with_a_prefix_is_named() -> None:
    assert decode_rule(RULE.pack(AF_INET, 24, 0, 0, 254, 0, 0, 1, 0)) == "ip rule 0"


@pytest.mark.parametrize(
    ("table", "form", "found"),
    [
        (255, 2, Prefix.parse("10.0.0.0/8")),
        (255, 3, Prefix.parse("10.0.0.0/8")),
        (255, 4, Prefix.parse("10.0.0.0/8")),
        (255, 1, None),
        (254, 2, None),
    ],
)
def test_prefixes_for_this_host(table: int, form: int, found: Prefix | None) -> None:
    body = RTMSG.pack(AF_INET, 8, 0, 0, table, 2, 0, form, 0)
    assert decode_local_route(body + attribute(RTA_DST, bytes([10, 0, 0, 0]))) == found


def route(table: int, form: int, prefix: str, flags: int = 0) -> bytes:
    wanted = Prefix.parse(prefix)
    family = AF_INET if len(wanted.address) == 4 else AF_INET6
    body = RTMSG.pack(family, wanted.length, 0, 0, table, 2, 0, form, flags)
    return body + attribute(RTA_DST, wanted.address)


@pytest.mark.parametrize(
    ("body", "found"),
    [
        (route(255, 2, "10.0.0.0/8"), None),
        (route(255, 3, "10.0.0.255/32"), None),
        (route(255, 4, "2001:db8::/128"), None),
        (route(255, 5, "ff00::/8"), None),
        (route(255, 1, "ff00::/8"), None),  # of older kernels
        (route(255, 5, "224.0.0.0/4"), None),
        (route(255, 1, "10.0.0.0/8"), "route_in_table_local"),
        (route(255, 6, "10.0.0.0/8"), "route_in_table_local"),
        (route(255, 5, "10.0.0.0/8"), "route_in_table_local"),
        (route(255, 1, "fe00::/7"), "route_in_table_local"),
        (route(253, 1, "10.0.0.0/8"), "route_in_table_default"),
        (route(253, 6, "2001:db8::/32"), "route_in_table_default"),
        (route(254, 1, "10.0.0.0/8"), None),
        (route(254, 6, "10.0.0.0/8"), None),
        (route(254, 2, "10.0.0.0/8"), "local_route_in_main"),
        (route(254, 3, "10.0.0.0/8"), "local_route_in_main"),
        (route(254, 2, "2001:db8::/32", 0x200), None),  # a cached route, which is ignored
        (route(5, 2, "10.0.0.0/8"), None),
        (route(252, 2, "10.0.0.0/8"), None),
    ],
)
def test_misplaced_routes(body: bytes, found: str | None) -> None:
    assert misplaced(body) == found


@pytest.mark.parametrize(
    ("kind", "mode", "found"),
    [
        ("macvlan", 8, True),
        ("macvtap", 8, True),
        ("macvlan", 4, False),
        ("ipvlan", 0, True),
        ("ipvtap", 0, True),
    ],
)
def test_devices_that_take_frames_of_the_interface_below(kind: str, mode: int, found: bool) -> None:
    data = attribute(1, U32.pack(mode))
    info = attribute(1, kind.encode() + b"\0") + attribute(2, data)
    body = IFINFOMSG.pack(0, 0, 1, 7, 0, 0) + attribute(IFLA_LINKINFO, info)
    assert decode_link(body).takes_frames == found


def test_ingress_qdiscs() -> None:
    assert decode_ingress_qdisc(tc.clsact(7)) == 7
    assert decode_ingress_qdisc(host_links.TCMSG.pack(0, 0, 0, 7, 0, 0xFFFFFFFF, 0)) is None


def test_filters_are_recognized_by_their_name() -> None:
    body = tc.bpf_filter(7, tc.Hook.INGRESS, 5)
    assert tc.is_ours(body)
    assert not tc.is_ours(body.replace(b"sluice-up", b"others-up"))
    assert not tc.is_ours(tc.filters(7, tc.Hook.INGRESS))


@given(st.binary(max_size=60))
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    for decode in (decode_link, decode_rule, decode_local_route, decode_ingress_qdisc, misplaced):
        try:
            decode(body)
        except WireError:
            continue

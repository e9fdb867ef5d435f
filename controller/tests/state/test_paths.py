# SPDX-License-Identifier: Apache-2.0
"""Tests the resolution of next hops to targets: single next hops, weighted groups, discards."""

from __future__ import annotations

import pytest

from scenes import (
    Desired,
    address,
    gateway,
    link,
    mac,
    neighbor,
    no_route,
    route,
)
from sluice.entities import (
    BLACKHOLE,
    MAX_GROUP_WEIGHT,
    PROHIBITED,
    UNREACHABLE,
    EntityKind,
    NexthopGroup,
    RouteTarget,
)
from sluice.model import (
    NexthopKind,
    NexthopSpec,
)
from state.forwarding import GW1, GW2, group_of

TNA_GROUP = 64
"""Largest group in p4src/tna/arch.p4 (MULTIPATH_GROUP_SIZE)."""


def test_several_next_hops_make_a_shared_weighted_group(wanted: Desired) -> None:
    legs = (gateway(GW1, 1, 10), gateway(GW2, 2, 30))
    wanted.apply(route("192.0.2.0/24", *legs), route("198.51.100.0/24", *reversed(legs)))
    assert wanted.target("192.0.2.0/24") == wanted.target("198.51.100.0/24")
    group = group_of(wanted, "192.0.2.0/24")
    assert sorted(weight for _, weight in group.members) == [1, 3]


def test_the_same_gateway_twice_is_one_member(wanted: Desired) -> None:
    wanted.apply(route("192.0.2.0/24", gateway(GW1, 1), gateway(GW1, 1)))
    assert wanted.nexthop("192.0.2.0/24").l3_if == 1


@pytest.mark.parametrize(
    "weights",
    [(7, 15, 46, 30), (256, 1), (255, 254, 253), (100, 250), tuple(range(193, 257))],
)
def test_weights_keep_their_proportions(wanted: Desired, weights: tuple[int, ...]) -> None:
    legs = [gateway(f"10.0.1.{n + 2}", 1, weight) for n, weight in enumerate(weights)]
    wanted.apply(route("192.0.2.0/24", *legs))
    written = sorted(weight for _, weight in group_of(wanted, "192.0.2.0/24").members)
    assert [weight * sum(weights) for weight in written] == [
        weight * sum(written) for weight in sorted(weights)
    ]


@pytest.mark.parametrize("weights", [(1,) * 100, (256,) * 64, (256,) * 63 + (255,) * 30])
def test_weights_fit_the_selector(wanted: Desired, weights: tuple[int, ...]) -> None:
    legs = [gateway(f"10.0.1.{n + 2}", 1, weight) for n, weight in enumerate(weights)]
    wanted.apply(route("192.0.2.0/24", *legs))
    members = group_of(wanted, "192.0.2.0/24").members
    assert sum(weight for _, weight in members) <= MAX_GROUP_WEIGHT
    assert all(weight >= 1 for _, weight in members)
    assert len(members) == min(64, len(weights))


def test_weights_beyond_the_selector_are_scaled(wanted: Desired) -> None:
    """Checks that weights whose sum exceeds the selector's maximum are scaled.

    If a route names a next hop twice, the two weights are added, here up to 511.
    """
    legs = [gateway(f"10.0.1.{n + 2}", 1, 256) for n in range(64)]
    more = [gateway(f"10.0.1.{n + 2}", 1, 255 - n) for n in range(64)]
    wanted.apply(route("192.0.2.0/24", *legs, *more))
    written = sorted(weight for _, weight in group_of(wanted, "192.0.2.0/24").members)
    assert sum(written) <= MAX_GROUP_WEIGHT
    wants = [256 + 255 - n for n in reversed(range(64))]
    for weight, want in zip(written, wants, strict=True):
        assert weight / sum(written) == pytest.approx(want / sum(wants), rel=0.01)


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        (NexthopKind.BLACKHOLE, BLACKHOLE),
        (NexthopKind.UNREACHABLE, UNREACHABLE),
        (NexthopKind.PROHIBIT, PROHIBITED),
    ],
)
def test_discards(wanted: Desired, kind: NexthopKind, target: RouteTarget) -> None:
    wanted.apply(route("192.0.2.0/24", NexthopSpec(None, None, 1, kind)))
    assert wanted.target("192.0.2.0/24") == target


def test_a_next_hop_off_the_switch_is_unreachable(wanted: Desired) -> None:
    wanted.apply(route("192.0.2.0/24", NexthopSpec(b"\x0a\x63\0\1", 99)))
    assert wanted.target("192.0.2.0/24") == UNREACHABLE


def test_it_becomes_reachable_with_its_interface() -> None:
    wanted = Desired()
    wanted.apply(route("192.0.2.0/24", gateway(GW1, 1)))
    assert wanted.target("192.0.2.0/24") == UNREACHABLE
    wanted.apply(link(1), address(1, "10.0.1.1/24"))
    assert wanted.nexthop("192.0.2.0/24").l3_if == 1


def test_a_gateway_without_interface_is_found_by_its_prefix(wanted: Desired) -> None:
    wanted.apply(route("192.0.2.0/24", gateway(GW2, None)))
    assert wanted.nexthop("192.0.2.0/24").l3_if == 2


def test_ipv6_gateway_for_an_ipv4_route(wanted: Desired) -> None:
    wanted.apply(route("192.0.2.0/24", gateway("fe80::9", 1)), neighbor(1, "fe80::9", 5))
    assert wanted.nexthop("192.0.2.0/24").mac == mac(5)


def test_a_share_that_is_off_is_named() -> None:
    wanted = Desired(group_size=TNA_GROUP)
    for n in (1, 2, 3):
        wanted.apply(link(n), address(n, f"10.0.{n}.1/24"))
    fits = [gateway(f"10.0.{n}.9", n, weight) for n, weight in ((1, 10), (2, 30))]
    near = [gateway(f"10.0.{n}.9", n, weight) for n, weight in ((1, 100), (2, 101))]
    worse = [gateway(f"10.0.1.{n}", 1, weight) for n, weight in enumerate((7, 15, 46, 30), 2)]
    worst = [gateway(f"10.0.3.{n}", 3, weight) for n, weight in enumerate((1, 199), 2)]
    wanted.apply(route("192.0.2.0/24", *fits), route("192.0.3.0/24", *near))
    assert wanted.fib.path_sets.problems() == {}
    wanted.apply(route("192.0.4.0/24", *worse))
    target = wanted.target("192.0.4.0/24")
    assert target is not None
    written = wanted.entities[EntityKind.GROUP, target.id]
    assert isinstance(written, NexthopGroup)
    assert [weight for _, weight in written.members] == [4, 9, 27, 17]
    [(text, count)] = wanted.fib.path_sets.problems().items()
    assert f"group {target.id} should have 7:15:46:30 but has 4:9:27:17" in text
    assert "error of 3.2%" in text
    assert "sum up to 64 at most" in text
    assert count == 1
    wanted.apply(route("192.0.5.0/24", *worst))
    [(text, count)] = wanted.fib.path_sets.problems().items()
    assert "1:199" in text
    assert count == 2
    wanted.apply(no_route("192.0.4.0/24"), route("192.0.5.0/24", *fits))
    assert wanted.fib.path_sets.problems() == {}


def test_more_next_hops_than_a_group_holds_are_left_out() -> None:
    wanted = Desired(group_size=3)
    wanted.apply(link(1), address(1, "10.0.1.1/24"))
    legs = [gateway(f"10.0.1.{n}", 1, n) for n in range(2, 7)]
    wanted.apply(route("192.0.2.0/24", *legs))
    target = wanted.target("192.0.2.0/24")
    assert target is not None
    assert wanted.entities[EntityKind.GROUP, target.id] == NexthopGroup(((2, 1), (3, 1), (4, 1)))

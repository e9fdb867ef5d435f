# SPDX-License-Identifier: Apache-2.0
"""Tests the kernel as a source of routes, with the real kernel."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator

import pytest

from kernel_namespace import DEADLINE, ip, network_namespace, poll_until
from sluice.model import (
    FpmSessionClosed,
    FpmSessionOpened,
    NexthopKind,
    NexthopSpec,
    Prefix,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
    parse_address,
)
from sluice.sources.kernel_feed import KernelFeed
from sluice.state.kernel_table import KernelTable

V1, V3 = 10, 12
UNREACHABLE = NexthopSpec(None, None, 1, NexthopKind.UNREACHABLE)


class Router:
    """Applies the events of a feed, as the controller does."""

    def __init__(self) -> None:
        self.feed = KernelFeed(KernelTable())
        self.routes: dict[Prefix, Route] = {}
        self.opened = 0
        self.poll()

    def poll(self) -> None:
        while True:
            events: list[RouteEvent] = self.feed.poll(64)
            for event in events:
                assert not isinstance(event, FpmSessionClosed)
                self.opened += isinstance(event, FpmSessionOpened)
                if isinstance(event, RouteUpdated):
                    self.routes[event.route.key.prefix] = event.route
                elif isinstance(event, RouteDeleted):
                    del self.routes[event.key.prefix]
            if not events and self.feed.idle and self.feed.synced:
                return

    def has(self, prefix: str, *nexthops: NexthopSpec) -> None:
        """Waits until the route has these next hops, or is gone if there are none."""
        end = time.monotonic() + DEADLINE
        while True:
            self.poll()
            route = self.routes.get(Prefix.parse(prefix))
            found = () if route is None else tuple(sorted(route.nexthops))
            if found == tuple(sorted(nexthops)):
                return
            assert time.monotonic() < end, (found, nexthops)
            time.sleep(0.005)


@pytest.fixture
def router() -> Iterator[Router]:
    with network_namespace():
        for name, peer, index, net in (("v1", "v2", V1, 1), ("v3", "v4", V3, 3)):
            ip(f"link add {name} index {index} type veth peer name {peer}")
            ip(f"link set {name} up")
            ip(f"link set {peer} up")
            ip(f"addr add 10.0.{net}.1/24 dev {name}")
            ip(f"addr add 2001:db8:{net}::1/64 dev {name} nodad")
        ip("route add 192.0.2.0/24 via 10.0.1.2")
        made = Router()
        yield made
        made.feed.close()


def via(address: str, ifindex: int, weight: int = 1) -> NexthopSpec:
    return NexthopSpec(parse_address(address), ifindex, weight)


def connected(ifindex: int) -> NexthopSpec:
    return NexthopSpec(None, ifindex, 1, NexthopKind.CONNECTED)


def test_first_dump_is_a_session(router: Router) -> None:
    assert router.opened == 1
    router.has("192.0.2.0/24", via("10.0.1.2", V1))
    router.has("10.0.1.0/24", connected(V1))
    router.has("2001:db8:3::/64", connected(V3))
    assert all(route.key.table == 254 for route in router.routes.values())


@pytest.mark.parametrize(
    ("family", "prefix", "gateways"),
    [
        ("-4", "198.51.100.0/24", ("10.0.1.2", "10.0.3.2")),
        ("-6", "2001:db8:99::/48", ("2001:db8:1::2", "2001:db8:3::2")),
    ],
)
def test_routes_are_followed(
    router: Router, family: str, prefix: str, gateways: tuple[str, str]
) -> None:
    first, second = gateways
    ip(f"{family} route add {prefix} via {first}")
    router.has(prefix, via(first, V1))
    ip(f"{family} route replace {prefix} via {second}")
    router.has(prefix, via(second, V3))
    ip(f"{family} route replace {prefix} nexthop via {first} weight 3 nexthop via {second}")
    router.has(prefix, via(first, V1, 3), via(second, V3))
    ip(f"{family} route delete {prefix}")
    router.has(prefix)


def test_metrics(router: Router) -> None:
    ip("route add 198.51.100.0/24 via 10.0.1.2 metric 20")
    ip("route add 198.51.100.0/24 via 10.0.3.2 metric 10")
    router.has("198.51.100.0/24", via("10.0.3.2", V3))
    ip("route delete 198.51.100.0/24 metric 10")
    router.has("198.51.100.0/24", via("10.0.1.2", V1))


def test_appended_routes(router: Router) -> None:
    """Of several IPv4 routes with one metric, the kernel uses the first."""
    ip("route add 198.51.100.0/24 via 10.0.1.2")
    ip("route append 198.51.100.0/24 via 10.0.3.2")
    router.has("198.51.100.0/24", via("10.0.1.2", V1))
    ip("route delete 198.51.100.0/24 via 10.0.1.2")
    router.has("198.51.100.0/24", via("10.0.3.2", V3))
    ip("route delete 198.51.100.0/24")
    router.has("198.51.100.0/24")


def test_ipv6_next_hops_one_by_one(router: Router) -> None:
    prefix = "2001:db8:99::/48"
    ip(f"-6 route add {prefix} via 2001:db8:1::2")
    ip(f"-6 route append {prefix} via 2001:db8:3::2")
    router.has(prefix, via("2001:db8:1::2", V1), via("2001:db8:3::2", V3))
    ip(f"-6 route delete {prefix} via 2001:db8:1::2")
    router.has(prefix, via("2001:db8:3::2", V3))


@pytest.mark.parametrize(
    ("word", "kind"),
    [
        ("blackhole", NexthopKind.BLACKHOLE),
        ("unreachable", NexthopKind.UNREACHABLE),
        ("prohibit", NexthopKind.PROHIBIT),
    ],
)
def test_routes_that_drop(router: Router, word: str, kind: NexthopKind) -> None:
    ip(f"route add {word} 198.51.100.0/24")
    router.has("198.51.100.0/24", NexthopSpec(None, None, 1, kind))


def test_next_hop_objects(router: Router) -> None:
    ip("nexthop add id 1 via 10.0.1.2 dev v1")
    ip("route add 198.51.100.0/24 nhid 1")
    router.has("198.51.100.0/24", via("10.0.1.2", V1))
    ip("nexthop replace id 1 via 10.0.3.2 dev v3")
    router.has("198.51.100.0/24", via("10.0.3.2", V3))
    ip("nexthop delete id 1")
    router.has("198.51.100.0/24")


def test_routes_that_the_kernel_deletes_silently(router: Router) -> None:
    ip("route add 198.51.100.0/24 via 10.0.3.2")
    router.has("198.51.100.0/24", via("10.0.3.2", V3))
    ip("link set v3 down")
    router.has("198.51.100.0/24")
    router.has("10.0.3.0/24")
    router.has("192.0.2.0/24", via("10.0.1.2", V1))


def test_routes_of_an_address_that_is_removed(router: Router) -> None:
    ip("addr add 10.0.9.1/24 dev v1")
    ip("route add 198.51.100.0/24 via 10.0.1.2 src 10.0.9.1")
    router.has("198.51.100.0/24", via("10.0.1.2", V1))
    ip("addr delete 10.0.9.1/24 dev v1")
    router.has("198.51.100.0/24")


def test_overrun(router: Router) -> None:
    """After the kernel has dropped notifications, a new dump shows what has changed. The session
    stays open."""
    ip("-batch -", lines="\n".join(f"route add 203.0.113.{n}/32 via 10.0.1.2" for n in range(99)))
    router.feed._socket._set_receive_buffer(1 << 12)
    lines = [f"route replace 203.0.113.{n}/32 via 10.0.3.2" for n in range(99)]
    ip("-batch -", lines="\n".join([*lines, "route delete 192.0.2.0/24"]))
    router.feed._socket._set_receive_buffer(8 << 20)
    router.has("192.0.2.0/24")
    router.has("203.0.113.7/32", via("10.0.3.2", V3))
    assert router.feed.counters["overruns"] > 0
    assert router.opened == 1


def test_routes_that_only_the_kernel_can_apply(router: Router) -> None:
    assert router.feed.only_in_kernel == []
    ip("route add throw 198.51.100.0/24")
    ip("route add 203.0.113.0/24 tos 0x10 via 10.0.1.2")
    end = time.monotonic() + DEADLINE
    while len(router.feed.only_in_kernel) < 2 and time.monotonic() < end:
        router.poll()
    assert router.feed.only_in_kernel == ["throw routes", "routes with a TOS"]
    assert router.feed.problem == "the switch cannot apply throw routes and routes with a TOS"


def test_other_tables_are_left_out(router: Router) -> None:
    ip("route add 198.51.100.0/24 via 10.0.1.2 table 5")
    ip("route add 203.0.113.0/24 via 10.0.1.2")
    router.has("203.0.113.0/24", via("10.0.1.2", V1))
    router.has("198.51.100.0/24")


def test_local_addresses_have_a_version(router: Router) -> None:
    before = router.feed.local_version
    ip("addr add 10.0.8.1/32 dev lo")
    poll_until(router.feed, lambda _: router.feed.local_version > before)


def test_ipv6_source_routes_are_counted(router: Router) -> None:
    ip("-6 route add 2001:db8:77::/48 from 2001:db8:1::/64 via 2001:db8:1::2")
    end = time.monotonic() + DEADLINE
    while not router.feed.only_in_kernel and time.monotonic() < end:
        router.poll()
    assert router.feed.only_in_kernel == ["routes with a source prefix"]


def test_comparison_of_unchanged_routes_has_turns(router: Router) -> None:
    """A dump without changes causes no events. One call of `poll` does not read the whole dump."""
    lines = [f"route add 203.{n >> 8}.{n & 255}.0/24 via 10.0.1.2" for n in range(6000)]
    ip("-batch -", lines="\n".join(lines))
    router.has("203.0.7.0/24", via("10.0.1.2", V1))
    router.feed._compare_again()
    turns, events = 0, 0
    while router.feed._dump is not None:
        events += len(router.feed.poll(64))
        turns += 1
    assert turns >= 4
    assert events < 64  # the dump itself causes none


def test_flapping_link_is_not_followed_by_as_many_comparisons(router: Router) -> None:
    router.has("10.0.3.0/24", connected(V3))
    before, began = router.feed.counters["dumps"], time.monotonic()
    for flap in range(20):
        ip(f"link set v3 {('down', 'up')[flap % 2]}")
        router.poll()
    assert router.feed.counters["dumps"] - before <= time.monotonic() - began + 2
    ip("link set v3 down")
    router.has("10.0.3.0/24")


def test_descriptor_is_readable_when_a_comparison_is_due(router: Router) -> None:
    router.feed._compare_again()
    router.poll()
    router.feed._compare_again()
    router.poll()
    before = router.feed.counters["dumps"]
    assert router.feed._waits
    while router.feed.counters["dumps"] == before:
        assert select.select([router.feed], [], [], DEADLINE)[0]
        router.poll()
    assert not router.feed._waits


TUNNELLED = "198.51.100.0/24 encap ip id 7 dst 10.0.1.9 via 10.0.1.2 dev v1"
KEY = RouteKey(254, Prefix.parse("198.51.100.0/24"))


def test_encapsulation_is_of_a_prefix_and_a_metric(router: Router) -> None:
    """The route with the best metric is encapsulated. A plain route with another metric must not
    change this."""
    ip(f"route add {TUNNELLED} metric 10")
    ip("route add 198.51.100.0/24 via 10.0.3.2 metric 20")
    router.has("198.51.100.0/24", UNREACHABLE)
    assert router.feed.encapsulated == {(KEY, 10)}
    router.feed._compare_again()
    router.poll()
    assert router.feed.encapsulated == {(KEY, 10)}
    ip("route append 198.51.100.0/24 via 10.0.3.2 metric 10")  # not used
    ip("route add 203.0.113.0/24 via 10.0.3.2")
    router.has("203.0.113.0/24", via("10.0.3.2", V3))
    assert router.feed.encapsulated == {(KEY, 10)}
    ip("route delete 198.51.100.0/24 metric 10 via 10.0.1.2")
    router.has("198.51.100.0/24", via("10.0.3.2", V3))
    assert router.feed.encapsulated == set()


def test_deleted_route_is_not_encapsulated(router: Router) -> None:
    ip(f"route add {TUNNELLED}")
    router.has("198.51.100.0/24", UNREACHABLE)
    ip("link set v1 down")  # the kernel deletes the route without notification
    router.has("198.51.100.0/24")
    assert router.feed.encapsulated == set()


def test_change_of_the_encapsulation_alone_is_a_change(router: Router) -> None:
    """In the switch both routes drop packets. Only `encapsulated` shows that the kernel forwards
    them."""
    ip("route add unreachable 198.51.100.0/24")
    router.has("198.51.100.0/24", UNREACHABLE)
    ip(f"route replace {TUNNELLED} proto boot")
    events = poll_until(router.feed, lambda _: router.feed.encapsulated)
    assert KEY in [one.route.key for one in events if isinstance(one, RouteUpdated)]


@pytest.mark.parametrize(
    ("route", "text"),
    [
        ("blackhole 10.7.0.0/16 table local", "routes of table local that are not for this host"),
        ("10.7.0.0/16 via 10.0.1.2 table local", "routes of table local that are not for this"),
        ("10.7.0.0/16 via 10.0.1.2 table default", "routes of table default"),
        ("local 10.7.0.0/16 dev lo table main", "local, broadcast and anycast routes of table"),
    ],
)
def test_routes_outside_of_their_table(router: Router, route: str, text: str) -> None:
    assert router.feed.only_in_kernel == []
    ip(f"route add {route}")
    poll_until(router.feed, lambda _: router.feed.only_in_kernel)
    assert text in router.feed.only_in_kernel[0]


def test_first_dump_has_no_silence(router: Router) -> None:
    """Routes of other tables cause no events. But `poll` must not return an empty list before the
    dump is over."""
    lines = [f"route add 203.{n >> 8}.{n & 255}.0/24 via 10.0.1.2 table 5" for n in range(6000)]
    ip("-batch -", lines="\n".join(lines))
    feed = KernelFeed(KernelTable())
    assert feed.poll(1)
    while not feed.synced:
        assert feed.poll(8) or feed.synced
    feed.close()

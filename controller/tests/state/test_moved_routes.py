# SPDX-License-Identifier: Apache-2.0
"""Tests many routes that move together to another next hop.

They move in slices of bounded size. The result must be right whatever events happen between two
slices.
"""

from __future__ import annotations

from scenes import Desired, address, gateway, ifindex, link, no_route, route
from sluice.entities import UNREACHABLE, EntityChanges, EntityKind
from sluice.model import (
    LinkRemoved,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
)
from sluice.state.moved_routes import ROUTES_PER_SLICE
from sluice.state.route_order import BLOCK

COUNT = 12_000
MOST = ROUTES_PER_SLICE + BLOCK


def text(n: int) -> str:
    return f"{20 + n // 65536}.{n // 256 % 256}.{n % 256}.0/24"


def obj(identifier: int, n: int) -> NexthopObjectUpdated:
    return NexthopObjectUpdated(identifier, gateway(f"10.0.{n}.9", n))


def router() -> Desired:
    wanted = Desired()
    for n in (1, 2, 3):
        wanted.apply(link(n), address(n, f"10.0.{n}.1/24"))
    return wanted


def published(changes: EntityChanges) -> int:
    return len(changes.by_kind.get(EntityKind.ROUTE, {}))


def finish(wanted: Desired) -> int:
    """Publishes all moved routes and returns the number of slices."""
    slices = 0
    while wanted.fib.has_moved_routes:
        assert published(wanted.take(wanted.fib.publish_moved())) <= MOST
        slices += 1
    return slices


def test_routes_of_an_object_that_changes() -> None:
    wanted = router()
    wanted.apply(obj(1, 1), *(route(text(n), obj=1) for n in range(COUNT)))
    assert published(wanted.apply(obj(1, 2))) <= MOST
    assert finish(wanted) > 3
    assert {wanted.nexthop(text(n)).l3_if for n in range(COUNT)} == {2}


def test_routes_that_waited_for_their_object() -> None:
    wanted = router()
    wanted.apply(*(route(text(n), obj=1) for n in range(COUNT)))
    assert wanted.fib.rib.waiting_objects() == {1: COUNT}
    wanted.apply(no_route(text(0)))
    assert published(wanted.apply(obj(1, 2))) <= MOST
    assert finish(wanted) > 3
    assert {wanted.nexthop(text(n)).l3_if for n in range(1, COUNT)} == {2}
    assert wanted.target(text(0)) is None
    assert not wanted.fib.rib.waiting_objects()


def test_routes_of_an_interface_that_goes_and_comes_back() -> None:
    wanted = router()
    wanted.apply(*(route(text(n), gateway("10.0.1.9", 1)) for n in range(COUNT)))
    assert published(wanted.apply(LinkRemoved(ifindex(1)))) <= MOST + 10
    wanted.take(wanted.fib.publish_moved())
    # The interface comes back before all routes have moved. Routes that have moved must move back.
    wanted.apply(link(1), address(1, "10.0.1.1/24"))
    finish(wanted)
    assert {wanted.nexthop(text(n)).l3_if for n in range(COUNT)} == {1}
    wanted.apply(LinkRemoved(ifindex(1)))
    finish(wanted)
    assert {wanted.target(text(n)) for n in range(COUNT)} == {UNREACHABLE}


def test_what_comes_between_two_slices_is_right_at_the_end() -> None:
    wanted = router()
    wanted.apply(obj(1, 1), *(route(text(n), obj=1) for n in range(COUNT)))
    wanted.apply(obj(1, 2))
    wanted.apply(no_route(text(0)), no_route(text(COUNT - 1)))
    wanted.apply(route(text(1), gateway("10.0.3.9", 3)), route(text(COUNT - 2), obj=1))
    wanted.take(wanted.fib.publish_moved())
    wanted.apply(NexthopObjectDeleted(1))  # the routes of the object are withdrawn
    wanted.apply(obj(1, 3), route(text(COUNT), obj=1))  # and the routes come back
    finish(wanted)
    assert wanted.target(text(0)) is None
    assert wanted.target(text(COUNT - 1)) is None
    rest = [n for n in range(1, COUNT + 1) if n != COUNT - 1]
    assert {wanted.nexthop(text(n)).l3_if for n in rest} == {3}
    wanted.apply(NexthopObjectDeleted(1))
    finish(wanted)
    assert wanted.target(text(2)) is None
    assert wanted.nexthop(text(1)).l3_if == 3
    wanted.apply(obj(1, 2))  # the object exists again, and all of its routes were waiting for it
    finish(wanted)
    assert {wanted.nexthop(text(n)).l3_if for n in rest[1:]} == {2}

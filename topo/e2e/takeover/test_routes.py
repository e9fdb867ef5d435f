# SPDX-License-Identifier: Apache-2.0
"""Tests that the switch follows the kernel's routes while it has taken over a router."""

import json
from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.kernel_router import EndHost, KernelRouter, address


@pytest.fixture(scope="module")
def taken(module_lab: Lab) -> Iterator[KernelRouter]:
    """Yields a router whose eth1, eth2 and eth3 the switch has taken over."""
    made = KernelRouter(module_lab)
    for host in made.hosts[1:]:  # each of them has the addresses that the tests route to
        host.namespace.add_address("lo", "203.0.113.1/32", "2001:db8:ff::1/128")
    made.up("eth1", "eth2", "eth3")
    yield made
    made.close()


def route(router: KernelRouter, *words: str) -> None:
    router.namespace.run("ip", *words)


def passes(router: KernelRouter, to: str, through: EndHost | None) -> None:
    """Checks that pings from h1 reach `to` through the switch and through this host only."""
    prefix = f"{to}/{128 if ':' in to else 32}"
    ports = {"eth2": 0, "eth3": 0}

    def counts() -> dict[str, int]:
        shown = {one["name"]: one["sent"]["packets"] for one in router.show("interfaces")}
        return {name: shown[name] for name in ports}

    def settled() -> bool:
        before = counts()
        got = probes.ping(router.hosts[0].namespace, to, count=3)
        used = {name for name, count in counts().items() if count - before[name] >= 3}
        wanted = set() if through is None else {f"eth{through.number}"}
        return used == wanted and got.lost == (0 if through else 3)

    wait_until(settled, 10, f"packets to {prefix} to take the new route")


def test_route_is_added_changed_and_deleted(taken: KernelRouter) -> None:
    _, h2, h3 = taken.hosts
    for version, to in ((4, "203.0.113.1"), (6, "2001:db8:ff::1")):
        family = f"-{version}"
        route(taken, family, "route", "add", to, "via", h2.address(version))
        passes(taken, to, h2)
        route(taken, family, "route", "replace", to, "via", h3.address(version))
        passes(taken, to, h3)
        route(taken, family, "route", "delete", to)
        passes(taken, to, None)


def test_lower_metric_wins(taken: KernelRouter) -> None:
    _, h2, h3 = taken.hosts
    to = "203.0.113.1"
    route(taken, "route", "add", to, "via", h2.address(4), "metric", "200")
    passes(taken, to, h2)
    route(taken, "route", "add", to, "via", h3.address(4), "metric", "100")
    passes(taken, to, h3)
    route(taken, "route", "delete", to, "metric", "100")
    passes(taken, to, h2)
    route(taken, "route", "delete", to)
    passes(taken, to, None)


@pytest.mark.parametrize("kind", ["blackhole", "unreachable", "prohibit"])
def test_routes_that_drop(taken: KernelRouter, kind: str) -> None:
    _, h2, _ = taken.hosts
    route(taken, "route", "add", "203.0.113.0/24", "via", h2.address(4))
    passes(taken, "203.0.113.1", h2)
    route(taken, "route", "add", kind, "203.0.113.1")
    passes(taken, "203.0.113.1", None)
    route(taken, "route", "delete", kind, "203.0.113.1")
    passes(taken, "203.0.113.1", h2)
    route(taken, "route", "delete", "203.0.113.0/24")


def test_several_next_hops(taken: KernelRouter) -> None:
    """Routes with two next hops are groups in the switch. When one next hop is deleted, the other
    one gets all packets.
    """
    _, h2, h3 = taken.hosts
    for version, prefix in ((4, "203.0.113.0/24"), (6, "2001:db8:ff::/48")):
        hops = [word for host in (h2, h3) for word in ("nexthop", "via", host.address(version))]
        route(taken, f"-{version}", "route", "add", prefix, *hops)
        wait_for_legs(taken, prefix, 2)
        gateway = h3.address(version)
        if version == 6:
            route(taken, "-6", "route", "delete", prefix, "via", gateway)
        else:
            route(taken, "route", "replace", prefix, "via", h2.address(4))
        wait_for_legs(taken, prefix, 1)
        passes(taken, {4: "203.0.113.1", 6: "2001:db8:ff::1"}[version], h2)
        route(taken, f"-{version}", "route", "delete", prefix)


def wait_for_legs(router: KernelRouter, prefix: str, number: int) -> None:
    """Waits until a prefix has this number of next hops in the switch."""
    words = ("show", "routes", prefix, "--json", "--socket", str(router.socket))

    def legs() -> int:
        found = json.loads(router.command(*words, name=False).stdout)
        return len(found[0]["nexthops"]) if found else 0

    wait_until(lambda: legs() == number, 10, f"{number} next hops of {prefix}")


def test_next_hop_objects(taken: KernelRouter) -> None:
    _, h2, h3 = taken.hosts
    to = "203.0.113.1"
    for number, host in ((2, h2), (3, h3)):
        device = f"eth{host.number}"
        route(taken, "nexthop", "add", "id", str(number), "via", host.address(4), "dev", device)
    route(taken, "nexthop", "add", "id", "1", "group", "2")
    route(taken, "route", "add", to, "nhid", "1")
    passes(taken, to, h2)
    route(taken, "nexthop", "replace", "id", "1", "group", "3")
    passes(taken, to, h3)
    route(taken, "route", "delete", to)
    for number in (1, 2, 3):
        route(taken, "nexthop", "delete", "id", str(number))


def test_link_that_goes_down(taken: KernelRouter) -> None:
    """When a link goes down, the kernel deletes its routes without notifications. The switch
    deletes them too.
    """
    h1, h2, h3 = taken.hosts
    to = "203.0.113.1"
    route(taken, "route", "add", to, "via", h3.address(4), "metric", "10")
    route(taken, "route", "add", to, "via", h2.address(4), "metric", "20")
    passes(taken, to, h3)
    taken.namespace.link_up("eth3", False)
    passes(taken, to, h2)
    taken.namespace.link_up("eth3")
    taken.namespace.run("ip", "route", "delete", to)
    assert probes.ping(h1.namespace, address(3, 1, 4), count=3).lost == 0
    wait_until(
        lambda: probes.ping(h1.namespace, h3.address(4), count=3).lost == 0, 10, "h3 to answer"
    )


def test_route_through_an_interface_of_the_kernel(taken: KernelRouter) -> None:
    """The kernel forwards by a route that the switch cannot use. A more specific route brings
    packets back to the switch.
    """
    h1, h2, _ = taken.hosts
    place = taken.namespace
    place.run("ip", "tuntap", "add", "tun0", "mode", "tun")
    place.link_up("tun0")
    route(taken, "route", "add", "203.0.113.0/24", "dev", "tun0")
    kernel, switch = probes.kernel_forwarded(place), taken.switch_packets()
    probes.ping(h1.namespace, "203.0.113.9", count=3)
    assert probes.kernel_forwarded(place) >= kernel + 3
    assert taken.switch_packets() == switch
    route(taken, "route", "add", "203.0.113.1", "via", h2.address(4))
    passes(taken, "203.0.113.1", h2)
    route(taken, "route", "delete", "203.0.113.1")
    place.run("ip", "link", "delete", "tun0")
    passes(taken, "203.0.113.1", None)

# SPDX-License-Identifier: Apache-2.0
"""Sends packets to test that a flow changes its next hop only if this next hop fails or comes back.

The controller's state and reconciler write a group with weights 7:15:46:30 to sluice-switch. The
members of the group are called legs. Legs that cannot carry packets are left out of the group. The
received frames show which leg each flow takes. BMv2 does not guarantee that the other flows keep
their next hop.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.packet import UDP, Frame
from sluice_testkit.target import CPU_PORT, Target, target_name
from sluice_testkit.wait import wait_until

from fake_switch import PIPELINE
from packets import ethernet, ipv4, ipv6
from real_switch import Router, address_in, connected, run_scenario
from scenes import device, gateway, mac, neighbor, route
from sluice.entities import NO_POLICY, EntityChanges, EntityKind
from sluice.flow_trace import Flow, trace
from sluice.model import NeighborState, format_address, parse_address
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Schema, load_pipeline

pytestmark = pytest.mark.skipif(
    target_name() != "sluice-switch", reason="only sluice-switch guarantees that other flows stay"
)

FLOWS = 2000
LEGS = {  # maps a neighbour to (interface, number of the neighbour's MAC address, weight)
    "10.0.2.9": (2, 4, 7),
    "10.0.2.10": (2, 5, 15),
    "10.0.3.9": (3, 6, 46),
    "10.0.3.10": (3, 7, 30),
}
NAMES = {mac(number): name for name, (_, number, _) in LEGS.items()}
LEGS6 = {  # the same for IPv6; the MAC addresses are the same
    "2001:db8:2::9": (2, 4, 7),
    "2001:db8:3::9": (3, 6, 46),
    "2001:db8:3::10": (3, 7, 30),
}
ASKED = 150
"""Number of flows for which the test queries the leg from the switch.

The switch answers 100 such queries a second.
"""


@pytest.fixture
def hosts(lab: Lab) -> Namespace:
    """Returns the namespace at the other ends of the switch's ports."""
    return lab.namespace("hosts")


@pytest.fixture
def switch(lab: Lab, hosts: Namespace, tmp_path: Path) -> Iterator[Target]:
    namespace = lab.namespace("switch")
    ports = {n: f"p{n}" for n in (1, 2, 3)}
    for n, port in ports.items():
        veth(namespace, port, hosts, f"h{n}")
        hosts.silence(f"h{n}")
    target = Target(namespace, ports, lab.supervisor, address=address_in(tmp_path))
    target.start()
    yield target
    target.stop()


IPV4 = partial(ipv4, "10.0.1.2", "192.0.2.1")
IPV6 = partial(ipv6, "2001:db8:1::2", "2001:db8:9::1")


class Flows:
    """Sends a packet of each flow and returns the leg that each packet took."""

    def __init__(self, hosts: Namespace, packet: Callable[[bytes], bytes] = IPV4) -> None:
        self._hosts = hosts
        self._frames = [ethernet(packet(_udp(n))) for n in range(FLOWS)]

    def taken(self) -> list[str]:
        def routed(frame: Frame) -> bool:
            return not frame.outgoing and frame.protocol == UDP

        with (
            Capture(self._hosts, "h2", routed) as one,
            Capture(self._hosts, "h3", routed) as two,
        ):
            left = list(reversed(self._frames))
            sent = 0
            with self._hosts.socket(17, 3) as port:  # AF_PACKET, SOCK_RAW
                port.bind(("h1", 0))
                # Small batches: no queue may overflow.
                while left:
                    batch, left = left[-100:], left[:-100]
                    for frame in reversed(batch):
                        port.send(frame)
                    sent += len(batch)
                    _wait_for(sent, one, two)
            seen = {frame.source_port: NAMES[frame.data[:6]] for frame in _all(one, two)}
        return [seen[20000 + n] for n in range(FLOWS)]


def _udp(flow: int) -> bytes:
    return (20000 + flow).to_bytes(2, "big") + b"\x00\x07\x00\x08\x00\x00"


def _all(*captures: Capture) -> list[Frame]:
    return [frame for capture in captures for frame in capture.frames()]


def _wait_for(count: int, *captures: Capture) -> None:
    wait_until(lambda: len(_all(*captures)) >= count, 10, f"{count} packets")


async def _start(router: Router) -> None:
    router.reconciler.release(EntityKind)
    bindings = EntityChanges()
    for l3_if in (1, 2, 3):
        bindings.set(EntityKind.INBOUND_BINDING, l3_if, NO_POLICY)
        bindings.set(EntityKind.OUTBOUND_BINDING, l3_if, NO_POLICY)
    router.reconciler.submit(bindings)
    await router.adopt()
    router.interfaces()
    legs = [gateway(name, n, weight) for name, (n, _, weight) in LEGS.items()]
    router.feed(route("192.0.2.0/24", *legs))
    router.feed(*(neighbor(n, name, number) for name, (n, number, _) in LEGS.items()))
    await router.settle()


async def _traced_gateways(router: Router, source: str, destination: str) -> list[str | None]:
    """Returns, for each of the first flows, the gateway that the switch's trace names."""
    packets = PacketSchema(Schema(load_pipeline(PIPELINE).p4info))
    ends = parse_address(source), parse_address(destination)
    gateways: list[str | None] = []
    for n in range(ASKED):
        flow = Flow(*ends, UDP, (20000 + n, 7))
        way = await trace(router.session, packets, CPU_PORT, 0, flow)
        assert way is not None
        assert way.matched
        path = None if way.nexthop is None else router.fib.nexthops.path_of(way.nexthop)
        gateways.append(
            None if path is None or path.address is None else format_address(path.address)
        )
    return gateways


def _assert_only_moved(before: list[str], after: list[str], dead: set[str]) -> None:
    moved = {old for old, new in zip(before, after, strict=True) if old != new}
    assert moved <= dead
    assert not dead & set(after)
    live = {name: weight for name, (_, _, weight) in LEGS.items() if name not in dead}
    for name, count in Counter(after).items():
        due = FLOWS * live[name] / sum(live.values())
        assert abs(count - due) < 5 * due**0.5, (name, count, due)


def test_a_leg_that_dies_moves_only_its_flows(switch: Target, hosts: Namespace) -> None:
    async def scenario() -> None:
        async with connected(switch) as router:
            await _start(router)
            flows = Flows(hosts)
            whole = flows.taken()
            _assert_only_moved(whole, whole, set())

            router.feed(neighbor(3, "10.0.3.9", None, NeighborState.FAILED))
            await router.settle()
            one_less = flows.taken()
            _assert_only_moved(whole, one_less, {"10.0.3.9"})

            router.feed(device(2, carrier=False))
            await router.settle()
            only_one = flows.taken()
            _assert_only_moved(one_less, only_one, {"10.0.3.9", "10.0.2.9", "10.0.2.10"})

            # Now the legs recover, in the order in which they failed.
            router.feed(neighbor(3, "10.0.3.9", 6))
            await router.settle()
            two = flows.taken()
            pairs = zip(only_one, two, strict=True)
            assert {new for old, new in pairs if old != new} == {"10.0.3.9"}
            router.feed(device(2, carrier=True))
            router.feed(*(neighbor(2, name, LEGS[name][1]) for name in ("10.0.2.9", "10.0.2.10")))
            await router.settle()
            assert flows.taken() == whole
            await router.check()

    run_scenario(scenario)


def test_the_switch_names_the_leg_that_a_flow_takes(switch: Target, hosts: Namespace) -> None:
    """Checks that `show route` names the leg that the packets of each flow take."""

    async def scenario() -> None:
        async with connected(switch) as router:
            await _start(router)
            legs = [gateway(name, n, weight) for name, (n, _, weight) in LEGS6.items()]
            router.feed(route("2001:db8:9::/48", *legs))
            router.feed(*(neighbor(n, name, number) for name, (n, number, _) in LEGS6.items()))
            await router.settle()
            packets = {"10.0.1.2": (IPV4, "192.0.2.1"), "2001:db8:1::2": (IPV6, "2001:db8:9::1")}
            of_mac = {name: mac(number) for name, (_, number, _) in (LEGS | LEGS6).items()}
            for source, (packet, destination) in packets.items():
                taken = Flows(hosts, packet).taken()[:ASKED]
                gateways = await _traced_gateways(router, source, destination)
                assert len(set(gateways)) > 2
                assert [NAMES[of_mac[name or ""]] for name in gateways] == taken

            router.feed(neighbor(3, "10.0.3.9", None, NeighborState.FAILED))
            router.feed(device(2, carrier=False))
            await router.settle()
            assert set(await _traced_gateways(router, "10.0.1.2", "192.0.2.1")) == {"10.0.3.10"}
            router.feed(device(3, carrier=False))
            await router.settle()
            # Now no leg can carry packets. Then the group contains all legs, until one of them can
            # carry packets again.
            assert set(await _traced_gateways(router, "10.0.1.2", "192.0.2.1")) == LEGS.keys()

    run_scenario(scenario)

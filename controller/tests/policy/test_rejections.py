# SPDX-License-Identifier: Apache-2.0
"""Tests the ICMP error "administratively prohibited" about discarded packets (RFC 4301, 5.1.1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packets import ethernet, ipv4, ipv6
from policy_world import CONFIG, INBOUND, PolicyWorld, RunScenario, filled
from scenes import address, gateway, route
from sluice.entities import EntityKind
from sluice.model import FpmSessionOpened
from test_punts import SCHEMA

RULES = """\
spd: corp
inbound: []
outbound:
  - {name: told, action: discard, reject: true, protocol: [tcp, udp]}
  - {name: quiet, action: discard, protocol: igmp}
"""
QUIET = RULES.replace("reject: true, ", "")
DROPPED = "dropped: policy discards outbound"
OPEN_SIDE, GUARDED_SIDE = 2, 1
"""Numbers of two interfaces of CONFIG: one without an SPD, one with the SPD corp."""
HOST = "10.0.2.7"
"""A host on OPEN_SIDE."""


class RejectWorld(PolicyWorld):
    """Runs a router that also has IPv6 addresses, from which it can send errors."""

    async def began(self) -> None:
        self.kernel.put(*(address(n, f"2001:db8:{n}::1/64") for n in (1, 2, 3)))
        await super().began()

    async def refused(self, why: str, number: int = 1) -> None:
        counters = self.controller.punts.counters
        await self.until(lambda: counters[f"icmp refused: {why}"] == number)
        assert self.client.sent == []


@pytest.fixture
def run(run_scenario: RunScenario, tmp_path: Path) -> Any:
    def run(scenario: Any, text: str = CONFIG) -> None:
        async def started(world: RejectWorld) -> None:
            await world.began()
            await scenario(world)

        run_scenario(started, text=filled(text, tmp_path), world=RejectWorld)

    return run


def tcp(port: int, destination: str = "10.0.1.77", source: str = HOST) -> bytes:
    payload = (40000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(16)
    return ethernet(ipv4(source, destination, payload, 6))


async def told(world: RejectWorld, number: int = 1) -> tuple[bytes, dict[str, int]]:
    """Waits until the router has sent `number` ICMP errors. Returns the last one as an IP packet,
    and its metadata.
    """
    sent = await world.sent(number)
    assert len(sent) == number
    return world.client.sent[-1][0][14:], sent[-1]


# -- the first packet of a flow


def test_the_sender_of_a_packet_that_a_rule_rejects_is_told(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        world.miss(tcp(80), ingress_l3_if=OPEN_SIDE)
        answer, metadata = await told(world)
        assert answer[9] == 1
        assert answer[20:22] == bytes([3, 13])
        assert (answer[12:16], answer[16:20]) == (bytes([10, 0, 2, 1]), bytes([10, 0, 2, 7]))
        assert (metadata["egress_l3_if"], metadata["bundle"]) == (0, 0), "it meets policy"
        await world.until(world.switch.live)

    run(scenario)


def test_a_sender_of_ipv6_is_told(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        frame = ethernet(ipv6("2001:db8:2::7", "2001:db8:b::1", bytes(16)))
        world.miss(frame, ingress_l3_if=OPEN_SIDE)
        answer, _ = await told(world)
        assert (answer[6], answer[40:42]) == (58, bytes([1, 1]))

    run(scenario)


def test_the_sender_of_a_decrypted_packet_is_told_by_the_same_bundle(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        world.miss(tcp(80), ingress_l3_if=GUARDED_SIDE, bundle=7, origin=2)
        _, metadata = await told(world)
        assert (metadata["egress_l3_if"], metadata["bundle"]) == (0, 7)

    run(scenario)


@pytest.mark.parametrize(
    ("frame", "known", "why"),
    [
        (tcp(80), {"ingress_l3_if": GUARDED_SIDE}, "sender_outside"),
        (tcp(80), {"ingress_l3_if": 99}, "sender_outside"),
        (tcp(80, "224.0.0.251"), {}, "destination_multicast"),
        (ethernet(ipv4("0.0.0.0", "10.0.1.77", bytes(16), 6)), {}, "sender_routed_outside"),
    ],
)
def test_who_is_not_told(run: Any, frame: bytes, known: dict[str, int], why: str) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        world.miss(frame, **({"ingress_l3_if": OPEN_SIDE} | known))
        await world.refused(why)

    run(scenario)


def test_this_router_itself_is_not_told(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        world.miss(tcp(80), ingress_l3_if=OPEN_SIDE, origin=SCHEMA.origin_local)
        counters = world.controller.punts.counters
        await world.until(lambda: counters["dropped: own packet, PROHIBITED"])
        assert world.client.sent == []

    run(scenario)


def test_only_the_first_fragment_is_answered(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        world.miss(
            ethernet(ipv4(HOST, "10.0.1.77", bytes(16), fragment_offset=16)),
            ingress_l3_if=OPEN_SIDE,
        )
        await world.refused("later_fragment")
        world.miss(
            ethernet(ipv4(HOST, "10.0.1.77", bytes(16), more_fragments=True)),
            ingress_l3_if=OPEN_SIDE,
        )
        await told(world)

    run(scenario)


def test_no_error_is_sent_about_an_error(run: Any) -> None:
    rejecting = CONFIG.replace("  - name: corp\n", "  - name: corp\n    reject: true\n")

    async def scenario(world: RejectWorld) -> None:
        await world.commit(QUIET)
        about = ipv4("10.0.1.77", HOST, bytes(8))
        frame = ethernet(ipv4(HOST, "10.0.1.77", bytes([3, 1]) + bytes(6) + about, 1))
        world.miss(frame, ingress_l3_if=OPEN_SIDE)
        await world.refused("about_an_error")

    run(scenario, rejecting)


def test_rules_that_do_not_ask_are_silent(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(QUIET)
        world.miss(tcp(80), ingress_l3_if=OPEN_SIDE)
        world.miss(ethernet(ipv4(HOST, "10.0.1.77", bytes(8), 47)), ingress_l3_if=OPEN_SIDE)
        await world.counted(DROPPED, 2)
        assert world.client.sent == []

    run(scenario)


def test_the_final_discard_asks_by_the_key_of_the_spd(run: Any) -> None:
    rejecting = CONFIG.replace("  - name: corp\n", "  - name: corp\n    reject: true\n")

    async def scenario(world: RejectWorld) -> None:
        await world.commit(QUIET)
        world.miss(tcp(80), ingress_l3_if=OPEN_SIDE)  # its rule has no `reject`
        await world.counted(DROPPED)
        world.miss(ethernet(ipv4(HOST, "10.0.1.77", bytes(8), 47)), ingress_l3_if=OPEN_SIDE)
        answer, _ = await told(world)
        assert answer[20:22] == bytes([3, 13])
        world.miss(tcp(80), INBOUND, ingress_l3_if=OPEN_SIDE)
        await world.counted("dropped: policy discards inbound")
        assert len(world.client.sent) == 1, "an inbound discard is never answered"

    run(scenario, rejecting)


@pytest.mark.parametrize(
    "source",
    [
        "10.0.1.9",  # on the link of an interface with an SPD
        "198.51.100.9",  # one of its two next hops is outside
        "203.0.113.9",  # no route
    ],
)
def test_no_answer_leaves_by_an_interface_outside(run: Any, source: str) -> None:
    """Checks that a packet from inside is not answered if its source address is outside.

    The answer would go outside and quote the discarded packet, and a rule might let it leave in
    clear.
    """

    async def scenario(world: RejectWorld) -> None:
        legs = gateway("10.0.2.2", 2), gateway("10.0.1.2", 1)
        routes = route("198.51.100.0/24", *legs), route("192.0.2.0/24", legs[0])
        world.routes.put(FpmSessionOpened("zebra"), *routes)
        await world.commit(RULES)
        await world.until(lambda: world.controller.fib.interfaces_to(0, bytes([192, 0, 2, 9])))
        world.miss(tcp(80, source=source), ingress_l3_if=OPEN_SIDE)
        await world.refused("sender_routed_outside")
        world.miss(tcp(80, source="192.0.2.9"), ingress_l3_if=OPEN_SIDE)
        await told(world)

    run(scenario)


def test_answers_have_a_rate_of_their_own(run: Any) -> None:
    text = CONFIG + "limits: {{icmp_rejects_per_second: 20}}\n"

    async def scenario(world: RejectWorld) -> None:
        world.controller._clock = lambda: 1000.0
        await world.commit(RULES)
        for host in range(5):
            world.miss(tcp(80, source=f"10.0.2.{10 + host}"), ingress_l3_if=OPEN_SIDE)
        counters = world.controller.punts.counters
        await world.until(lambda: counters["icmp refused: rate_limited_reject"] == 3)
        assert len(world.client.sent) == 2
        limits = replace(world.controller.config.limits, icmp_rejects_per_second=0)
        world.controller.set_limits(replace(world.controller.config, limits=limits))
        world.miss(tcp(9), ingress_l3_if=OPEN_SIDE)
        await world.until(lambda: counters["icmp refused: rate_limited_reject"] == 4)

    run(scenario, text)


@pytest.mark.parametrize(
    ("limits", "why", "answers"),
    [
        ("icmp_rejects_per_second: 80", "rate_limited_reject_source", 2),
        # The limit for all ICMP errors refuses these errors, so they take no token of the limit for
        # answers.
        ("icmp_rejects_per_second: 80, icmp_errors_burst: 2", "rate_limited_source", 1),
    ],
)
def test_one_host_leaves_answers_to_the_others(
    run: Any, limits: str, why: str, answers: int
) -> None:
    text = CONFIG + f"limits: {{{{{limits}}}}}\n"

    async def scenario(world: RejectWorld) -> None:
        world.controller._clock = lambda: 1000.0
        await world.commit(RULES)
        for port in range(20):
            world.miss(tcp(port), ingress_l3_if=OPEN_SIDE)
        counters = world.controller.punts.counters
        await world.until(lambda: counters[f"icmp refused: {why}"] == 20 - answers)
        assert len(world.client.sent) == answers
        world.miss(tcp(80, source="10.0.2.8"), ingress_l3_if=OPEN_SIDE)
        answer, _ = await told(world, answers + 1)
        assert answer[16:20] == bytes([10, 0, 2, 8])

    run(scenario, text)


# -- later packets of a flow


def test_later_packets_of_a_cached_flow_reach_no_controller(run: Any) -> None:
    """Checks that the flow is cached, and that the switch sends no copies of the packets that it
    discards.

    Copies would share a meter with the copies by which the controller learns that an SA is missing.
    """

    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        world.miss(tcp(80), ingress_l3_if=OPEN_SIDE)
        await told(world)
        await world.until(world.switch.live)
        assert "OUTBOUND_DISCARD" not in world.switch.of(EntityKind.COPIED_DROP)

    run(scenario)


def test_while_the_cache_is_off_each_packet_is_answered(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        await world.ask("flow-cache off", spd="corp")
        for number in (1, 2):
            world.miss(tcp(80), ingress_l3_if=OPEN_SIDE)
            await told(world, number)

    run(scenario)

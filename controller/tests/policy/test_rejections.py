# SPDX-License-Identifier: Apache-2.0
"""Tests the ICMP error "administratively prohibited" about discarded packets (RFC 4301, 5.1.1)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from packets import ethernet, ipv4, ipv6
from policy_world import CONFIG, DISCARD, INBOUND, OUTBOUND, PolicyWorld, RunScenario, filled, tcp
from sluice.entities import AUDITED, EntityKind
from test_controller import address
from test_punts import SCHEMA, punt

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
HOST = "10.0.3.7"


class RejectWorld(PolicyWorld):
    """Runs a router that also has IPv6 addresses, from which it can send errors."""

    async def began(self) -> None:
        self.kernel.put(*(address(n, f"2001:db8:{n}::1/64") for n in (1, 2, 3)))
        await super().began()

    @property
    def copies(self) -> bool:
        """Whether the switch copies to the controller the packets that an outbound list
        discards.
        """
        audited = self.switch.of(EntityKind.AUDITED_DROP)
        return audited.get("OUTBOUND_DISCARD") == AUDITED

    async def refused(self, why: str, number: int = 1) -> None:
        counters = self.controller.punts.counters
        await self.until(lambda: counters[f"icmp refused: {why}"] == number)
        assert self.client.sent == []

    def copy(self, frame: bytes, rule: str, **known: int) -> None:
        """Punts the copy of a packet that the flow cache discards."""
        state = self.state("corp", OUTBOUND)
        number = next(n for r, n in zip(state.rules, state.rule_ids, strict=True) if r.name == rule)
        reasons = {name: number for number, name in SCHEMA.drop_reasons.items()}
        fields = {"list_id": state.list_id, "generation": state.version.generation, "rule": number}
        fields |= {"drop_reason": reasons["OUTBOUND_DISCARD"], "verdict": DISCARD}
        packet = punt(frame, "AUDIT", **({"ingress_l3_if": OPEN_SIDE} | fields | known))
        self.client.punt((packet.frame, tuple(packet[1:])))


@pytest.fixture
def run(run_scenario: RunScenario, tmp_path: Path) -> Any:
    def run(scenario: Any, text: str = CONFIG) -> None:
        async def started(world: RejectWorld) -> None:
            await world.began()
            await scenario(world)

        run_scenario(started, text=filled(text, tmp_path), world=RejectWorld)

    return run


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
        assert (answer[12:16], answer[16:20]) == (bytes([10, 0, 2, 1]), bytes([10, 0, 3, 7]))
        assert (metadata["egress_l3_if"], metadata["bundle"]) == (0, 0), "it meets policy"
        await world.until(world.switch.live)

    run(scenario)


def test_a_sender_of_ipv6_is_told(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        frame = ethernet(ipv6("2001:db8:a::7", "2001:db8:b::1", bytes(16)))
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
        (ethernet(ipv4("0.0.0.0", "10.0.1.77", bytes(16), 6)), {}, "source_not_answerable"),
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
        assert not world.copies

    run(scenario)


def test_the_final_discard_asks_by_the_key_of_the_spd(run: Any) -> None:
    rejecting = CONFIG.replace("  - name: corp\n", "  - name: corp\n    reject: true\n")

    async def scenario(world: RejectWorld) -> None:
        await world.commit(QUIET)
        world.miss(tcp(80), ingress_l3_if=OPEN_SIDE)  # its rule does not ask
        await world.counted(DROPPED)
        world.miss(ethernet(ipv4(HOST, "10.0.1.77", bytes(8), 47)), ingress_l3_if=OPEN_SIDE)
        answer, _ = await told(world)
        assert answer[20:22] == bytes([3, 13])
        world.miss(tcp(80), INBOUND, ingress_l3_if=OPEN_SIDE)
        await world.counted("dropped: policy discards inbound")
        assert len(world.client.sent) == 1, "an inbound discard is never answered"
        assert world.copies

    run(scenario, rejecting)


def test_answers_have_a_rate_of_their_own(run: Any) -> None:
    text = CONFIG + "limits: {{icmp_rejects_per_second: 20}}\n"

    async def scenario(world: RejectWorld) -> None:
        world.controller._clock = lambda: 1000.0
        await world.commit(RULES)
        for port in range(5):
            world.miss(tcp(port), ingress_l3_if=OPEN_SIDE)
        counters = world.controller.punts.counters
        await world.until(lambda: counters["icmp refused: rate_limited_reject"] == 3)
        assert len(world.client.sent) == 2
        limits = replace(world.controller.config.limits, icmp_rejects_per_second=0)
        world.controller.set_limits(replace(world.controller.config, limits=limits))
        world.miss(tcp(9), ingress_l3_if=OPEN_SIDE)
        await world.until(lambda: counters["icmp refused: rate_limited_reject"] == 4)

    run(scenario, text)


# -- later packets: the switch sends copies of packets that the flow cache discards


def test_the_switch_copies_discards_only_while_a_rule_asks(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        assert not world.copies
        await world.commit(RULES)
        await world.until(lambda: world.copies)
        await world.commit(QUIET)
        await world.until(lambda: not world.copies)

    run(scenario)


def test_a_copy_is_answered_if_its_rule_asks(run: Any) -> None:
    async def scenario(world: RejectWorld) -> None:
        await world.commit(RULES)
        world.copy(tcp(80), "quiet")
        world.copy(tcp(80), "told", generation=99)  # of earlier rules
        world.copy(tcp(80), "told", list_id=99)
        world.copy(tcp(80), "told")
        answer, _ = await told(world)
        assert answer[20:22] == bytes([3, 13])
        world.copy(tcp(80), "told", ingress_l3_if=GUARDED_SIDE)
        counters = world.controller.punts.counters
        await world.until(lambda: counters["icmp refused: sender_outside"])
        assert len(world.client.sent) == 1
        assert "packet dropped" not in {line["event"] for line in world.audit_lines()}

    run(scenario)

# SPDX-License-Identifier: Apache-2.0
"""Tests the handling of a flow's first packets.

The controller searches the rules for the packet, caches the verdict in the switch, and re-injects
or drops the packet. If anything fails, the packet is dropped.
"""

from __future__ import annotations

import asyncio

import pytest

from packets import ethernet, ipv4, ipv6_chain
from policy_world import (
    BYPASS,
    INBOUND,
    OUTBOUND,
    PROTECT,
    STAGE_INBOUND,
    STAGE_OUTBOUND,
    PolicyWorld,
    RunScenario,
    tcp,
)
from sluice.p4.packets import PACKET_OUT
from sluice.policy.model import Action, Direction
from sluice.sources.punt import PuntQueue
from test_punts import punt


@pytest.fixture(autouse=True, params=["native", "Python"])
def queue(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs each test with the daemon's queue, and with the queue that is its specification.

    The daemon's queue hands plain packets to `answer_plain`. The specification hands all packets to
    `answer`.
    """
    if request.param == "Python":
        monkeypatch.setattr(PolicyWorld, "make_punts", lambda _: PuntQueue(100))


def test_a_first_packet_is_searched_installed_and_sent_on(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        known = {"inbound_list_id": 4, "inbound_generation": 6, "vrf": 0, "nexthop_id": 12}
        world.miss(tcp(80), egress_l3_if=1, **known)
        (sent,) = await world.sent()
        state = world.state("corp", OUTBOUND)
        assert (
            sent
            | {
                "kind": 3,
                "stage": STAGE_OUTBOUND,
                "verdict": BYPASS,
                "list_id": state.list_id,
                "generation": state.version.generation,
                "inbound_list_id": 4,
                "inbound_generation": 6,
                "ingress_l3_if": 3,
            }
            == sent
        )
        assert sent["rule"] in state.rule_ids
        await world.until(world.switch.live)
        ((flow, verdict),) = world.switch.live().items()
        assert (flow.direction, flow.key.destination_port) == (OUTBOUND, 80)
        assert (verdict.action, verdict.rule_id) == (Action.BYPASS, sent["rule"])

    run_scenario(scenario)


def test_protect_names_the_bundle(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(443, "10.9.0.1"))
        (sent,) = await world.sent()
        assert (sent["verdict"], sent["sa_bundle"]) == (PROTECT, 7)

    run_scenario(scenario)


def test_what_is_discarded_is_installed_and_ends_here(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(443))
        await world.counted("dropped: policy discards outbound")
        await world.until(world.switch.live)
        ((_, verdict),) = world.switch.live().items()
        final = world.state("corp", OUTBOUND).final_id
        assert (verdict.action, verdict.rule_id) == (Action.DISCARD, final)
        (flow,) = await world.ask("show", what="flows")
        assert flow["rule"] == "(final)"
        (_, shown) = await world.ask("show", what="spd", spd="corp")
        assert shown["final_discard"]["searched"] == 1
        assert world.client.sent == []

    run_scenario(scenario)


def test_inbound_what_no_rule_matches_is_discarded(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit("spd: corp\ninbound: [{name: dns, action: bypass, protocol: udp}]\n")
        world.miss(tcp(443), INBOUND)
        await world.counted("dropped: policy discards inbound")
        await world.until(world.switch.live)
        (verdict,) = world.switch.live().values()
        final = world.state("corp", INBOUND).final_id
        assert (verdict.action, verdict.rule_id) == (Action.DISCARD, final)
        assert world.client.sent == []

    run_scenario(scenario)


def test_inbound_the_key_says_local_and_carrier(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80), INBOUND, is_local=1, bundle=7, origin=2)
        (sent,) = await world.sent()
        assert (sent["stage"], sent["bundle"], sent["verdict"]) == (STAGE_INBOUND, 7, BYPASS)
        await world.until(world.switch.live)
        ((flow, _),) = world.switch.live().items()
        assert (flow.direction, flow.key.is_local, flow.key.bundle) == (INBOUND, True, 7)

    run_scenario(scenario)


def test_what_the_host_sent_keeps_its_interface(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80), origin=1, egress_l3_if=1, ingress_l3_if=0)
        (sent,) = await world.sent()
        assert (sent["origin"], sent["egress_l3_if"], sent["nexthop_id"]) == (1, 1, 0)

    run_scenario(scenario)


def test_a_deep_chain_is_searched_and_never_cached(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        chain = [(60, bytes(8))] * 7
        frame = ethernet(ipv6_chain(chain, 6, (40000).to_bytes(2, "big") + b"\0\x50" + bytes(16)))
        state = world.state("corp", OUTBOUND)
        known = {"stage": STAGE_OUTBOUND, "list_id": state.list_id}
        packet = punt(frame, "EXTENSION_HEADERS", **known)
        world.client.punt((packet.frame, tuple(packet[1:])))
        (sent,) = await world.sent()
        assert sent["verdict"] == BYPASS
        assert world.switch.flows == {}

    run_scenario(scenario)


def test_ah_behind_a_deep_chain_has_no_sa(run_scenario: RunScenario) -> None:
    """The switch itself drops AH for this router, unless it could not parse all headers up to the
    AH header."""

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        frame = ethernet(ipv6_chain([(60, bytes(8))] * 7, 51, bytes(24)))
        state = world.state("corp", INBOUND)
        known = {"stage": STAGE_INBOUND, "list_id": state.list_id, "is_local": 1}
        carried = punt(frame, "EXTENSION_HEADERS", bundle=7, **known)
        for packet in (punt(frame, "EXTENSION_HEADERS", **known), carried):
            world.client.punt((packet.frame, tuple(packet[1:])))
        await world.counted("dropped: AH_NO_SA")
        (sent,) = await world.sent()  # AH that a bundle carried is treated normally
        assert sent["verdict"] == BYPASS

    run_scenario(scenario)


LOOSE, STRICT = (bytes([kind, 7, 4, 10, 0, 1, 9]) for kind in (131, 137))
BAD_OPTIONS = [
    pytest.param(LOOSE + bytes(1), "source_route", id="loose"),
    pytest.param(STRICT + bytes(1), "source_route", id="strict"),
    pytest.param(bytes([1] * 11) + LOOSE + bytes(2), "source_route", id="behind 11 options"),
    pytest.param(bytes([1] * 11) + b"\x44\x28" + bytes(3), "ipv4_option_length", id="too long"),
]


@pytest.mark.parametrize("direction", [INBOUND, OUTBOUND])
@pytest.mark.parametrize(("options", "name"), BAD_OPTIONS)
def test_source_routes_are_refused_whatever_the_rules_say(
    run_scenario: RunScenario, options: bytes, name: str, direction: Direction
) -> None:
    """Checks that the controller drops packets with a source route, even if a rule permits them.

    The stages after re-injection would not check the options again (RFC 1812, 5.3.13.4).
    """

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        payload = (40000).to_bytes(2, "big") + b"\0\x50" + bytes(16)
        frame = ethernet(ipv4("10.0.3.7", "10.0.1.77", payload, 6, options=options))
        state = world.state("corp", direction)
        stage = STAGE_INBOUND if direction is INBOUND else STAGE_OUTBOUND
        known = {"stage": stage, "list_id": state.list_id, "is_local": 1}
        punted = punt(frame, "EXTENSION_HEADERS", **known)
        world.client.punt((punted.frame, tuple(punted[1:])))
        await world.counted(f"dropped: {name}")
        assert world.client.sent == []
        assert world.switch.flows == {}

    run_scenario(scenario)


@pytest.mark.parametrize("frame", [b"", bytes(14), tcp(80)[:40]])
def test_what_cannot_be_parsed_ends_here(run_scenario: RunScenario, frame: bytes) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(frame)
        counters = world.controller.first_packets.counters
        await world.until(lambda: any(name.startswith("dropped: ") for name in counters))
        assert world.client.sent == []
        assert world.switch.flows == {}

    run_scenario(scenario)


def test_a_list_that_is_not_known_drops(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80), list_id=999)
        await world.counted("dropped: of a list that is not known")
        assert world.client.sent == []

    run_scenario(scenario)


def test_packets_of_one_flow_make_one_write_and_each_goes_on(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        for _ in range(5):
            world.miss(tcp(80))
        await world.sent(5)
        await world.until(world.switch.live)
        assert len(world.switch.flow_log) == 1

    run_scenario(scenario)


def test_a_write_of_a_flow_without_an_answer_ends_the_session(run_scenario: RunScenario) -> None:
    """Checks that the controller ends the session if the switch does not answer a write of a flow.

    Without an answer, the controller does not know which flows the switch holds. A new session
    reads them back.
    """

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        client = world.client

        def lose(token: int, request: bytes) -> None:
            client._emit(("write_done", token, 14, "deadline", []))

        client.write = lose  # type: ignore[method-assign]
        world.miss(tcp(80))
        await world.sent()
        await world.until(lambda: len(world.clients) == 2)
        await world.until(lambda: world.policy.flows.caches)
        world.miss(tcp(80))
        await world.until(world.switch.live)

    run_scenario(scenario)


def test_a_full_cache_evicts_and_a_full_table_does_not_stop_packets(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        for port in range(6):
            world.miss(tcp(80, f"10.0.1.{port}"))
            await world.until(lambda port=port: len(world.switch.flow_log) > port)  # type: ignore[misc]
        await world.sent(6)
        await world.until(lambda: len(world.switch.flow_log) == 8)
        assert len(world.switch.flows) == 4
        world.switch.flow_capacity = 0
        world.miss(tcp(80, "10.0.2.1"))
        await world.sent(7)

    run_scenario(scenario, size=4)


def test_idle_flows_go_and_busy_ones_stay(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80, "10.0.1.1"))
        world.miss(tcp(80, "10.0.1.2"))
        await world.until(lambda: len(world.switch.flows) == 2)
        busy, idle = sorted(world.switch.flows, key=lambda slot: slot.key.destination)
        while idle in world.switch.flows:
            world.switch.flow_packets[busy] += 1
            await asyncio.sleep(0.05)
        assert busy in world.switch.flows

    run_scenario(scenario, idle=1)


def test_a_full_cache_keeps_the_flow_that_is_busy(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        for number in range(1, 5):
            world.miss(tcp(80, f"10.0.1.{number}"))
            await world.until(lambda number=number: len(world.switch.flows) == number)  # type: ignore[misc]
        busy = min(world.switch.flows, key=lambda slot: slot.key.destination)
        cache = world.policy.flows.caches[busy.list_id].cache
        assert cache.flows()[0][0] == busy.key  # the oldest flow is evicted first
        while cache.flows()[0][0] == busy.key:
            world.switch.flow_packets[busy] += 1
            await asyncio.sleep(0.05)
        world.miss(tcp(80, "10.0.1.5"))
        await world.until(lambda: len(world.switch.flow_log) == 6)
        assert busy in world.switch.flows
        assert world.policy.flows.counters["flows evicted"] == 1

    run_scenario(scenario, size=4, idle=4)


def test_packet_out_metadata_are_complete() -> None:
    assert len(PACKET_OUT) == len(set(PACKET_OUT)) == 17


@pytest.mark.parametrize(("bundle", "event"), [(7, "wrong sa"), (0, None)])
def test_a_decrypted_packet_that_no_rule_matches_is_in_the_audit_log(
    run_scenario: RunScenario, bundle: int, event: str | None
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit("spd: corp\ninbound: []\noutbound: []\n")
        world.miss(tcp(80), INBOUND, bundle=bundle, origin=2 if bundle else 0)
        await world.counted("dropped: policy discards inbound")
        line = world.audit_lines()[-1]
        assert line["event"] == (event or "policy changed")
        if event:
            assert (line["rule"], line["bundle"], line["spd"]) == ("(final)", "branch", "corp")

    run_scenario(scenario)

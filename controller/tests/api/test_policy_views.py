# SPDX-License-Identifier: Apache-2.0
"""Tests two views: SPDs (rules with their hit counts), and flows (in the order in which they would
be evicted).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from packets import ethernet, ipv4
from policy_world import INBOUND, OUTBOUND, PolicyWorld, tcp
from sluice.api.server import BadRequestError
from sluice.state.spd import FINAL_DISCARD

RunScenario = Callable[..., None]


async def with_flows(world: PolicyWorld, *frames: bytes) -> None:
    """Starts the router and waits until it has installed a flow for each frame, in order."""
    await world.began()
    for number, frame in enumerate(frames, 1):
        world.miss(frame)
        await world.until(lambda number=number: len(world.switch.live()) == number)  # type: ignore[misc]


async def show(world: PolicyWorld, what: str, **more: Any) -> Any:
    return await world.ask("show", what=what, **more)


def test_rules_in_order_with_their_numbers_and_text(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        inbound, outbound = await show(world, "spd", spd="corp")
        assert (inbound["direction"], outbound["direction"]) == ("inbound", "outbound")
        rules = [rule for rule in outbound["rules"] if not rule["generated"]]
        assert [(one["position"], one["name"], one["action"], one["bundle"]) for one in rules] == [
            (1, "secret", "protect", "branch"),
            (2, "web", "bypass", None),
            (3, "dns", "bypass", None),
        ]
        assert "10.9.0.0/16" in rules[0]["text"]
        state = world.state("corp", OUTBOUND)
        assert [rule["id"] for rule in outbound["rules"]] == list(state.rule_ids)
        assert {rule["position"] for rule in outbound["rules"] if rule["generated"]} == {None}
        assert (outbound["epoch"], outbound["generation"]) == state.version
        assert outbound["digest"] == state.digest
        assert (outbound["cache"], outbound["capacity"], outbound["idle_timeout"]) == (
            True,
            100,
            60,
        )

    run_policy_scenario(scenario)


def test_searches_and_hits_are_counted_by_rule(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world, tcp(80), tcp(81))
        _, outbound = await show(world, "spd", spd="corp")
        searched = {rule["name"]: rule["searched"] for rule in outbound["rules"]}
        assert (searched["web"], searched["dns"]) == (1, 0)
        assert outbound["final_discard"]["searched"] == 1
        assert {rule["hits"] for rule in outbound["rules"]} == {0}  # the fake switch counts no hits
        assert outbound["flows"] == 2

    run_policy_scenario(scenario)


def test_without_a_switch_hits_are_unknown(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world, tcp(80))
        monkeypatch.setattr(type(world.controller.connection), "primary", None)
        _, outbound = await show(world, "spd", spd="corp")
        assert {rule["hits"] for rule in outbound["rules"]} == {None}
        assert outbound["final_discard"]["hits"] is None
        [flow] = await show(world, "flows")
        assert flow["packets"] is None

    run_policy_scenario(scenario)


@pytest.mark.parametrize("what", ["spd", "flow-cache", "flows"])
def test_an_unknown_spd_is_refused(run_policy_scenario: RunScenario, what: str) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        with pytest.raises(BadRequestError, match="there is no SPD 'x'"):
            await show(world, what, spd="x")

    run_policy_scenario(scenario)


def test_flow_caches_of_all_lists(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world, tcp(80))
        found = await show(world, "flow-cache")
        assert [(one["spd"], one["direction"], one["flows"]) for one in found] == [
            *(("corp", "inbound", 0), ("corp", "outbound", 1)),
            *(("edge", "inbound", 0), ("edge", "outbound", 0)),
        ]
        assert all("rules" not in one for one in found)
        ids = [world.state(spd, d).list_id for spd in ("corp", "edge") for d in (INBOUND, OUTBOUND)]
        assert [one["list_id"] for one in found] == ids

    run_policy_scenario(scenario)


def test_flows_with_their_verdict_and_packets(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world, tcp(80), tcp(443), tcp(80, "10.9.1.1"))
        world.switch.flow_packets.update(dict.fromkeys(world.switch.flows, 5))
        first, second, third = await show(world, "flows")
        assert [(one["packets"], one["bytes"]) for one in (first, second, third)] == [(5, 500)] * 3
        assert (first["source"], first["destination"], first["protocol"]) == (
            *("10.0.3.7", "10.0.1.77", 6),
        )
        assert (first["source_port"], first["destination_port"], first["icmp"]) == (40000, 80, None)
        outcomes = [(one["action"], one["rule"], one["bundle"]) for one in (first, second, third)]
        assert outcomes == [
            ("bypass", "web", None),
            ("discard", FINAL_DISCARD, None),
            ("protect", "secret", "branch"),
        ]
        assert {(one["stale"], one["fragment"]) for one in (first, second, third)} == {
            (False, "whole")
        }

    run_policy_scenario(scenario)


def test_an_icmp_flow_has_type_and_code_and_no_ports(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        echo = bytes((8, 0, 0, 0, 0, 1, 0, 1)) + bytes(16)
        await with_flows(world, ethernet(ipv4("10.0.3.7", "10.0.1.77", echo, 1)))
        [flow] = await show(world, "flows")
        assert (flow["protocol"], flow["icmp"]) == (1, "8/0")
        assert (flow["source_port"], flow["destination_port"]) == (None, None)

    run_policy_scenario(scenario)


def test_flows_are_limited_in_the_order_of_eviction(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world, tcp(80), tcp(81), tcp(82))
        shown = await show(world, "flows", limit=2)
        assert [flow["destination_port"] for flow in shown] == [80, 81]
        world.miss(tcp(90), INBOUND)
        await world.until(lambda: len(world.switch.live()) == 4)
        shown = await show(world, "flows", limit=2)  # the limit is for all lists together
        assert [(flow["direction"], flow["destination_port"]) for flow in shown] == [
            *(("inbound", 90), ("outbound", 80)),
        ]
        for wrong in (-1, "all"):
            with pytest.raises(BadRequestError, match=r"limit: .* is not a whole number"):
                await show(world, "flows", limit=wrong)

    run_policy_scenario(scenario)


def test_a_stale_flow_names_no_rule(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world, tcp(80))
        await world.ask("flow-cache clear", spd="corp")
        [flow] = await show(world, "flows")
        assert (flow["stale"], flow["action"], flow["rule"]) == (True, "bypass", None)

    run_policy_scenario(scenario)

# SPDX-License-Identifier: Apache-2.0
"""Tests the view of flows: its filters, the flows with the most packets, and sums. Also tests that
the event loop runs meanwhile."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from fake_client import FLOW_BYTES
from packets import ethernet, ipv4
from policy_world import COMMIT, INBOUND, OUTBOUND, PolicyWorld, filled, tcp
from rule_set_world import with_mode
from sluice.api import flow_survey
from sluice.api.flow_survey import SCANNED
from sluice.api.server import BadRequestError
from sluice.model import parse_address
from sluice.p4.flows import FlowSlot
from sluice.policy.model import Action, FlowKey
from sluice.state.flow_cache import FlowVerdict
from sluice.state.native_flows import NativeFlowCache
from sluice.state.spd import FINAL_DISCARD

RunScenario = Callable[..., None]
Flow = tuple[str, str, int, int, int]
"""Source, destination, protocol, source port, destination port."""


async def flows(world: PolicyWorld, **more: Any) -> Any:
    return await world.ask("show", what="flows", **more)


def fill(world: PolicyWorld, known: Iterable[Flow], rule: str = "web") -> list[FlowSlot]:
    """Adds flows to the switch, and to the controller's record of the list `corp outbound`."""
    state = world.state("corp", OUTBOUND)
    rules = dict(zip((one.name for one in state.rules), state.rule_ids, strict=True))
    now = asyncio.get_running_loop().time()
    verdict = FlowVerdict(state.version.epoch, rules[rule], Action.BYPASS)
    slots = []
    for source, destination, protocol, source_port, destination_port in known:
        ends = parse_address(source), parse_address(destination)
        key = FlowKey(*ends, protocol, source_port, destination_port)
        slot = FlowSlot(OUTBOUND, state.list_id, key)
        world.policy.flows.caches[state.list_id].cache.found(key, verdict, now)
        world.switch.flows[slot] = verdict
        world.switch.raw_flows[slot] = world.switch.flow_codec._entry(slot, verdict)
        slots.append(slot)
    return slots


def udp(source_port: int, destination_port: int) -> bytes:
    ports = source_port.to_bytes(2, "big") + destination_port.to_bytes(2, "big")
    return ethernet(ipv4("10.0.3.7", "10.0.1.77", ports + bytes((0, 8, 0, 0)), 17))


def echo(source: str) -> bytes:
    payload = bytes((8, 0, 0, 0, 0, 1, 0, 1)) + bytes(16)
    return ethernet(ipv4(source, "10.0.1.77", payload, 1))


async def with_six_flows(world: PolicyWorld) -> None:
    """Starts the router with six cached flows. `name_of` has their names."""
    await world.began()
    frames = [tcp(80), tcp(443), tcp(22, "10.9.1.1"), udp(53, 4000), echo("10.0.3.9")]
    for number, frame in enumerate(frames, 1):
        world.miss(frame)
        await world.until(lambda number=number: len(world.switch.live()) == number)  # type: ignore[misc]
    world.miss(tcp(80), INBOUND)
    await world.until(lambda: len(world.switch.live()) == 6)


def name_of(flow: dict[str, Any]) -> str:
    """Returns the name of one of the six flows."""
    if flow["direction"] == "inbound":
        return "in"
    return {80: "web", 443: "https", 22: "secret", 4000: "dns", None: "echo"}[
        flow["destination_port"]
    ]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        ({}, "in web https secret dns echo"),
        ({"spd": "edge"}, ""),
        ({"list": "inbound"}, "in"),
        ({"list": "outbound"}, "web https secret dns echo"),
        ({"source": "10.0.3.7"}, "in web https secret dns"),
        ({"source": "10.0.3.8/31"}, "echo"),
        ({"source": "2001:db8::/32"}, ""),
        ({"destination": "10.9.0.0/16"}, "secret"),
        ({"host": "10.9.1.1"}, "secret"),
        ({"host": "10.0.3.9"}, "echo"),
        ({"protocol": "tcp"}, "in web https secret"),
        ({"protocol": "UDP"}, "dns"),
        ({"protocol": 1}, "echo"),
        ({"protocol": "1"}, "echo"),
        ({"port": 40000}, "in web https secret"),
        ({"port": 53}, "dns"),
        ({"port": 4000}, "dns"),
        ({"port": 0x800}, ""),  # type and code of the echo request are not ports
        ({"action": "bypass"}, "in web dns"),
        ({"action": "discard"}, "https echo"),
        ({"action": "protect"}, "secret"),
        ({"rule": "all-in"}, "in"),
        ({"rule": FINAL_DISCARD}, "https echo"),
        ({"rule": "dns", "list": "outbound"}, "dns"),
        ({"bundle": "branch"}, "secret"),
        ({"stale": True}, ""),
        ({"stale": False}, "in web https secret dns echo"),
        ({"protocol": "tcp", "action": "bypass", "list": "outbound", "port": 80}, "web"),
        ({"protocol": "tcp", "limit": 2}, "in web"),
        ({"action": "discard", "limit": 1}, "https"),
    ],
)
def test_filters(run_policy_scenario: RunScenario, filters: dict[str, Any], expected: str) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_six_flows(world)
        assert " ".join(map(name_of, await flows(world, **filters))) == expected

    run_policy_scenario(scenario)


def test_a_mobility_flow_shows_its_type_and_no_port(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        ends = "2001:db8::1", "2001:db8::2"
        fill(world, [(*ends, 135, 0, kind) for kind in (0, 5)])
        found = await flows(world, protocol="mobility")
        shown = [(one["mobility_type"], one["destination_port"], one["icmp"]) for one in found]
        assert sorted(shown) == [(0, None, None), (5, None, None)]
        assert await flows(world, port=5) == []

    run_policy_scenario(scenario)


def test_stale_flows_have_no_rule(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_six_flows(world)
        await world.ask("flow-cache clear", spd="corp")
        assert len(await flows(world, stale=True)) == 6
        assert await flows(world, stale=False) == []
        assert await flows(world, rule="web") == []
        [total] = await flows(world, by="rule", list="inbound")
        assert (total["rule"], total["flows"]) == (None, 1)

    run_policy_scenario(scenario)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"list": "both"}, "list: 'both' is not one of inbound, outbound"),
        ({"source": "10.0.0.1/8"}, r"source: .* has bits set .* write 10\.0\.0\.0/8"),
        ({"destination": 5}, "destination: 5 is not an address .* or a prefix"),
        ({"host": "r1"}, "host: 'r1' is not an IPv4 or IPv6 address"),
        ({"protocol": "tpc"}, "protocol: 'tpc' is not a number from 0 to 255, or one of icmp, "),
        ({"protocol": 256}, "protocol: 256 is not"),
        ({"protocol": True}, "protocol: True is not"),
        ({"port": 0}, "port: 0 is not a whole number from 1 to 65535"),
        ({"port": "http"}, "port: 'http' is not"),
        ({"action": "drop"}, "action: 'drop' is not one of bypass, discard, protect"),
        ({"rule": 7}, "rule: 7 is not the name of a rule"),
        ({"rule": "x"}, "rule: there is no rule 'x' .*: 'all-in', 'secret', 'web' and 2 more"),
        ({"rule": "all-in", "list": "outbound"}, "there is no rule 'all-in'"),
        ({"bundle": "x"}, "bundle: there is no bundle 'x'; this router has: 'branch'"),
        ({"bundle": ["x"] * 99}, r"there is no bundle \['x', .*\.\.\.;"),
        ({"stale": "yes"}, "stale: 'yes' is not true .* or false"),
        ({"stale": 1}, "stale: 1 is not true"),
        ({"limit": -1}, "limit: -1 is not a whole number"),
        ({"top": 0}, "top: 0 is not a whole number from 1 to 10000"),
        ({"top": 1.5}, "top: 1.5 is not"),
        ({"by": "port"}, "by: 'port' is not one of source, destination, rule, protocol"),
        ({"rate": 1}, "rate: needs top or by"),
        ({"top": 5, "rate": 99}, "rate: 99 is not a number of seconds from 0.1 to 30"),
        ({"top": 5, "rate": float("nan")}, "rate: nan is not"),
        ({"top": 5, "limit": 5}, "limit: not allowed with top or by"),
    ],
)
def test_wrong_values_are_refused_with_their_key(
    run_policy_scenario: RunScenario, request_: dict[str, Any], message: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        with pytest.raises(BadRequestError, match=message):
            await flows(world, **request_)

    run_policy_scenario(scenario)


def test_filters_apply_to_the_rules_in_force(run_policy_scenario: RunScenario) -> None:
    """Checks that a search for the flows of a rule uses the new rules after a commit in the middle
    of the search.
    """

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        fill(world, [("10.0.3.7", f"10.0.{n >> 8}.{n & 0xFF}", 6, 9, 80) for n in range(2000)])
        found = await world.request("show", what="flows", rule="web")
        slices = found.slices
        assert await anext(slices) == []
        await world.commit(COMMIT)
        rest = [flow async for part in slices for flow in part]
        assert {(flow["rule"], flow["stale"]) for flow in rest} <= {("web", False)}

    run_policy_scenario(scenario, size=30_000)


def test_the_event_loop_gets_turns(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that the event loop runs between any two slices of a search through 20,000 flows."""
    searched: list[tuple[int, int]] = []  # per slice: flows, and loop iterations before
    ticks = itertools.count()
    ranked = NativeFlowCache.ranked
    ran = 0

    def recorded(self: NativeFlowCache, keys: Iterable[FlowKey]) -> Any:
        listed = list(keys)
        searched.append((len(listed), ran))
        return ranked(self, listed)

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        fill(world, [(f"10.1.{n >> 8}.{n & 0xFF}", "10.0.1.77", 6, 9, 80) for n in range(20_000)])
        loop = asyncio.get_running_loop()

        def tick() -> None:
            nonlocal ran
            ran = next(ticks)
            loop.call_soon(tick)

        tick()
        monkeypatch.setattr(NativeFlowCache, "ranked", recorded)
        shown = await flows(world, source="10.1.70.0/24", port=80, list="outbound")
        assert len(shown) == 256
        assert [flow["source"] for flow in shown[:2]] == ["10.1.70.0", "10.1.70.1"]
        assert sum(number for number, _ in searched) == 20_000 + 256
        assert max(number for number, _ in searched) <= SCANNED
        starts = [start for _, start in searched]
        assert all(later > earlier for earlier, later in itertools.pairwise(starts))

    run_policy_scenario(scenario, size=30_000)


def count(world: PolicyWorld, slots: list[FlowSlot], packets: list[int]) -> None:
    """Sets the switch's packet counters for these flows."""
    world.switch.flow_packets = Counter(dict(zip(slots, packets, strict=True)))


MANY = [(f"10.1.0.{n}", f"10.2.0.{n % 3}", 6 if n % 2 else 17, 9, 80) for n in range(200)]


def test_the_flows_with_most_packets(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        slots = fill(world, MANY)
        count(world, slots, [(n * 7) % 200 for n in range(200)])
        shown = await flows(world, top=3)
        assert [flow["packets"] for flow in shown] == [199, 198, 197]
        assert [flow["bytes"] for flow in shown] == [n * FLOW_BYTES for n in (199, 198, 197)]
        assert "packets_per_second" not in shown[0]
        assert {flow["rule"] for flow in shown} == {"web"}
        shown = await flows(world, top=300, protocol="udp")
        assert [flow["packets"] for flow in shown] == list(range(198, -1, -2))

    run_policy_scenario(scenario)


def test_flows_that_the_switch_lacks_are_left_out(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        slots = fill(world, MANY)
        count(world, slots, list(range(200)))
        for slot in slots[100:]:
            del world.switch.flows[slot], world.switch.raw_flows[slot]
        assert [flow["packets"] for flow in await flows(world, top=2)] == [99, 98]
        [total] = await flows(world, by="rule")
        assert (total["flows"], total["packets"]) == (100, sum(range(100)))

    run_policy_scenario(scenario)


def test_sums(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        slots = fill(world, MANY)
        count(world, slots, list(range(200)))
        shown = await flows(world, by="source")
        assert [one["source"] for one in shown] == [f"10.1.0.{n}" for n in range(199, 179, -1)]
        shown = await flows(world, by="source", top=2, protocol="udp")
        assert shown == [
            {"source": f"10.1.0.{n}", "flows": 1, "packets": n, "bytes": n * FLOW_BYTES}
            for n in (198, 196)
        ]
        by_end = {one["destination"]: one for one in await flows(world, by="destination")}
        for rest in range(3):
            one = by_end[f"10.2.0.{rest}"]
            assert one["packets"] == sum(range(rest, 200, 3))
            assert one["flows"] == len(range(rest, 200, 3))
        assert await flows(world, by="rule") == [
            {
                "spd": "corp",
                "direction": "outbound",
                "rule": "web",
                "flows": 200,
                "packets": 19900,
                "bytes": 1990000,
            }
        ]
        by_protocol = await flows(world, by="protocol")
        assert [(one["protocol"], one["packets"]) for one in by_protocol] == [
            (6, sum(range(1, 200, 2))),
            (17, sum(range(0, 200, 2))),
        ]

    run_policy_scenario(scenario)


@pytest.mark.parametrize("held", [1, 64, 100_000])
def test_rates(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, held: int
) -> None:
    """Checks the packet rates of flows, which are computed from two reads of their counters.

    Between the two reads, one flow disappears and the counter of another starts again.
    """
    gains = {195: 10**3, 196: 10**6, 197: 10**9, 198: -1}
    monkeypatch.setattr(flow_survey, "COMPARED", held)
    monkeypatch.setattr(flow_survey, "BREATH", 0.02)

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        slots = fill(world, MANY)
        count(world, slots, [1000] * 200)
        read = flow_survey.FlowCounters.read
        seen: Counter[FlowSlot] = Counter()

        async def counted(self: Any, wanted: list[FlowSlot]) -> Any:
            for slot in wanted:
                number = slots.index(slot)
                if seen[slot]:
                    world.switch.flow_packets[slot] += gains.get(number, 0)
                    if number == 199:
                        del world.switch.flows[slot], world.switch.raw_flows[slot]
                seen[slot] += 1
            return await read(self, wanted)

        monkeypatch.setattr(flow_survey.FlowCounters, "read", counted)
        shown = await flows(world, top=3, rate=0.1)
        assert [flow["source"] for flow in shown] == ["10.1.0.197", "10.1.0.196", "10.1.0.195"]
        assert set(seen.values()) == {2}
        first = shown[0]
        assert 0 < first["packets_per_second"] <= 10**9 / 0.1
        assert first["packets"] == 1000 + 10**9
        ratio = first["bytes_per_second"] / first["packets_per_second"]
        assert ratio == pytest.approx(FLOW_BYTES, rel=1e-3)

    run_policy_scenario(scenario)


def test_rates_of_sums(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        count(world, fill(world, MANY), [5] * 200)
        shown = await flows(world, by="protocol", rate=0.1)
        assert {one["packets_per_second"] for one in shown} == {0.0}
        assert [one["flows"] for one in shown] == [100, 100]

    run_policy_scenario(scenario)


@pytest.mark.parametrize("more", [{"top": 5}, {"by": "source"}, {"top": 5, "rate": 1}])
def test_without_a_switch_nothing_is_measured(
    run_policy_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, more: dict[str, Any]
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        fill(world, MANY)
        monkeypatch.setattr(type(world.controller.connection), "primary", None)
        with pytest.raises(BadRequestError, match="the switch is not connected"):
            await flows(world, **more)
        assert {flow["bytes"] for flow in await flows(world, protocol="tcp")} == {None}

    run_policy_scenario(scenario)


@pytest.mark.parametrize(
    ("mode", "why"),
    [
        ("auto", "all rules are in the rule tables"),
        ("rules", "no flow cache (mode: rules)"),
        ("cache", "the flow cache is off"),
    ],
)
def test_lists_whose_flows_are_not_cached_are_named_with_the_reason(
    run_policy_scenario: RunScenario, tmp_path: Path, mode: str, why: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        sets = world.policy.rule_sets
        states = [world.state("corp", direction) for direction in (INBOUND, OUTBOUND)]
        if mode == "cache":
            answer = await world.request("show", what="flows", spd="corp")
            assert answer.more == {"uncached": []}
            await world.ask("flow-cache off", spd="corp")
        else:
            await world.until(
                lambda: all(sets.of_list(world.state(*one.name)) is not None for one in states)
            )
        answer = await world.request("show", what="flows", spd="corp")
        assert await answer.whole() == []
        named = [(one["spd"], one["direction"]) for one in answer.more["uncached"]]
        assert named == [("corp", "inbound"), ("corp", "outbound")]
        assert all(one["why"].startswith(why) for one in answer.more["uncached"])
        answer = await world.request("show", what="flows", list="outbound", spd="corp")
        (only,) = answer.more["uncached"]
        assert only["direction"] == "outbound"

    run_policy_scenario(scenario, text=filled(with_mode(mode), tmp_path))


def test_a_commit_shows_the_mode_that_it_chose(
    run_policy_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        (changed,) = (await world.commit(COMMIT))["changed"]
        held = changed["rule_tables"]
        assert (held["mode"], held["chosen"], held["is_complete"]) == ("auto", "cache+rules", True)
        assert held["why"] == f"all {held['of']} rules in the tables"
        lists = await world.ask("show", what="flow-cache", spd="corp")
        assert lists[1]["rule_tables"] == held

    run_policy_scenario(scenario, text=filled(with_mode("auto"), tmp_path))

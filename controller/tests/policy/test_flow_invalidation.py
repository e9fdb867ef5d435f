# SPDX-License-Identifier: Apache-2.0
"""Tests commits that keep those cached flows whose verdict does not change.

The flows whose verdict changes are deleted before the new rules apply.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch
from policy_world import CODEC, CONFIG, DISCARD, OUTBOUND, PolicyWorld, RunScenario, filled, tcp
from sluice.api.server import BadRequestError
from sluice.entities import EntityKind
from sluice.entities import ListState as ListEntity
from sluice.p4.flows import FlowSlot
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.session import P4RuntimeError
from sluice.policy import flow_invalidation
from sluice.policy.entities import LIST_KINDS
from sluice.policy.model import Direction
from sluice.policy.record import NO_CHANGE
from sluice.policy.spdstore import SpdStore
from sluice.state.flow_cache import FlowVerdict
from sluice.state.invalidation import RuleTest
from sluice.state.spd import MAXIMUM_COUNT, Commit, ListVersion, PolicyList

PORTS = range(8000, 8020)
REFUSED = 13


def rules(*, discarded: set[int] = frozenset(), unrelated: str = "10.8.0.0/16") -> str:  # type: ignore[assignment]
    """Returns an SPD with one rule for each port.

    No packet of the tests matches the rule `unrelated`, so changing it changes no verdict.
    """
    lines = [f"  - {{name: unrelated, action: discard, destination: {unrelated}}}"]
    for port in PORTS:
        action = "discard" if port in discarded else "bypass"
        lines.append(
            f"  - {{name: port-{port}, action: {action}, protocol: tcp,"
            f" destination_ports: [{port}]}}"
        )
    return "\n".join(["spd: corp", "inbound: [{name: all, action: bypass}]", "outbound:", *lines])


async def with_flows(world: PolicyWorld) -> PolicyList:
    """Commits the rules, caches a flow for each port, and returns the outbound list."""
    await world.began()
    await world.commit(rules())
    before = len(world.client.sent)
    for port in PORTS:
        world.miss(tcp(port))
    await world.sent(before + len(PORTS))
    await world.until(lambda: world.policy.flows.counters["flow insert: done"] == len(PORTS))
    assert len(world.switch.live()) == len(PORTS)
    state: PolicyList = world.state("corp", OUTBOUND)
    return state


def live_ports(world: PolicyWorld) -> set[int]:
    return {slot.key.destination_port for slot in world.switch.live()}


def versions_in(switch: FakeSwitch) -> dict[tuple[Direction, int], ListVersion]:
    """Returns the epoch and generation of each list in the switch."""
    return {
        (direction, key): ListVersion(value.epoch, value.generation)
        for direction, kind in LIST_KINDS.items()
        for key, value in switch.of(kind).items()
        if isinstance(key, int) and isinstance(value, ListEntity)
    }


def counted(world: PolicyWorld) -> Any:
    return world.policy.invalidation.counters


def test_an_unrelated_edit_keeps_every_flow(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        before = await with_flows(world)
        flows, log = world.switch.live(), list(world.switch.flow_log)
        await world.commit(rules(unrelated="10.7.0.0/16"))
        version = world.state("corp", OUTBOUND).version
        assert version == (before.version.epoch, before.version.generation + 1)
        assert world.switch.of(EntityKind.OUTBOUND_LIST)[before.list_id] == ListEntity(*version)
        assert world.switch.live() == flows
        assert world.switch.flow_log == log
        assert counted(world)["lists whose flows a commit kept"] == 1
        assert counted(world)["flows that a commit deleted"] == 0

    run_scenario(scenario)


def test_what_changes_is_deleted_before_the_rules_do(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        before = await with_flows(world)
        seen: list[set[int]] = []

        def look(_: UpdateType, kind: EntityKind, __: object) -> int:
            if kind is EntityKind.OUTBOUND_LIST:
                seen.append(live_ports(world))
            return 0

        world.switch.refuse = look
        await world.commit(rules(discarded={8003, 8004}))
        assert world.state("corp", OUTBOUND).version.epoch == before.version.epoch
        assert seen == [set(PORTS) - {8003, 8004}]
        assert live_ports(world) == seen[0]
        assert counted(world)["flows that a commit deleted"] == 2
        # A packet that was punted under the old rules gets the verdict of the new rules.
        world.miss(tcp(8003), generation=before.version.generation)
        await world.until(lambda: 8003 in live_ports(world))
        (verdict,) = [v for s, v in world.switch.live().items() if s.key.destination_port == 8003]
        assert int(verdict.action) == DISCARD

    run_scenario(scenario)


def test_many_changes_retire_them_all(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        before = await with_flows(world)
        log = len(world.switch.flow_log)
        await world.commit(rules(discarded=set(PORTS[:10])))
        assert world.state("corp", OUTBOUND).version.epoch == before.version.epoch + 1
        assert world.switch.live() == {}
        assert len(world.switch.flow_log) == log
        assert counted(world)["lists whose flows a commit retired"] == 1

    run_scenario(scenario)

    async def too_much_to_look_at(world: PolicyWorld) -> None:
        before = await with_flows(world)
        monkeypatch.setattr(flow_invalidation, "TESTS_AT_MOST", 1)
        (shown,) = await world.ask(
            "spd diff", files=[{"name": "a", "text": rules(discarded={8000})}]
        )
        assert shown["flows"]["outbound"]["changed"] is None
        await world.commit(rules(discarded={8000}))
        assert world.state("corp", OUTBOUND).version.epoch == before.version.epoch + 1

    run_scenario(too_much_to_look_at)


@pytest.mark.parametrize("limit", ["SEARCH", "COMPARED_AT_MOST"])
def test_many_changed_rules_are_searched_for_each_flow(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    """Checks that exactly the changed flows are deleted, even if there are too many changed rules
    to test each one."""

    async def scenario(world: PolicyWorld) -> None:
        before = await with_flows(world)
        monkeypatch.setattr(flow_invalidation, limit, 2)
        tested: list[object] = []
        monkeypatch.setattr(RuleTest, "of", tested.append)
        text = rules(discarded={8003, 8007}, unrelated="10.7.0.0/16")
        (shown,) = await world.ask("spd diff", files=[{"name": "a", "text": text}])
        assert shown["flows"]["outbound"]["changed"] == 2
        await world.commit(text)
        assert world.state("corp", OUTBOUND).version.epoch == before.version.epoch
        assert live_ports(world) == set(PORTS) - {8003, 8007}
        assert tested == []

    run_scenario(scenario)


def test_a_packet_that_is_searched_meanwhile_is_not_cached(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        before = await with_flows(world)
        sent = len(world.client.sent)

        def meanwhile(operation: UpdateType, slot: FlowSlot) -> int:
            if operation is UpdateType.DELETE:
                world.miss(tcp(slot.key.destination_port))
            return 0

        world.switch.refuse_flow = meanwhile
        await world.commit(rules(discarded={8003}))
        assert world.state("corp", OUTBOUND).version.epoch == before.version.epoch
        caches = world.policy.flows.counters
        if not caches["flow not installed: a commit is under way"]:
            # The packet arrived after the commit, so the controller searched the new rules.
            await world.counted("dropped: policy discards outbound")
        for slot, verdict in world.switch.live().items():
            expected = DISCARD if slot.key.destination_port == 8003 else 1
            assert int(verdict.action) == expected
        assert len(world.client.sent) - sent <= 1

    run_scenario(scenario)


@pytest.mark.parametrize("refused", ["now", "before"])
def test_a_flow_that_is_not_deleted_retires_them_all(
    run_scenario: RunScenario, refused: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        before = await with_flows(world)
        world.switch.refuse_flow = lambda operation, _: (
            REFUSED if operation is UpdateType.DELETE else 0
        )
        change = rules(discarded={8003})
        if refused == "before":
            cache = world.policy.flows.caches[before.list_id].cache
            (slot,) = [one for one in world.switch.live() if one.key.destination_port == 8003]
            world.policy.flows.verify(slot, None)  # deletes the flow, as the auditor would
            world.policy.flows.flush()
            await world.until(lambda: not cache.is_exact)
            assert 8003 in live_ports(world)
            change = rules(unrelated="10.7.0.0/16")
        await world.commit(change)
        assert world.state("corp", OUTBOUND).version.epoch == before.version.epoch + 1
        assert world.switch.live() == {}
        assert world.policy.flows.caches[before.list_id].cache.is_exact

    run_scenario(scenario)


@pytest.mark.parametrize("target", ["sluice-switch", "bmv2"])
def test_a_refused_commit_leaves_flows_of_the_old_rules(
    run_scenario: RunScenario, target: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        before = await with_flows(world)
        refusals = iter([REFUSED])
        world.switch.refuse = lambda _, kind, __: (
            next(refusals, 0) if kind is EntityKind.OUTBOUND_LIST else 0
        )
        with pytest.raises(BadRequestError, match="the switch refused the change"):
            await world.commit(rules(discarded={8003}))
        assert world.state("corp", OUTBOUND).digest == before.digest
        assert live_ports(world) == set(PORTS) - {8003}
        world.miss(tcp(8003))
        await world.until(lambda: 8003 in live_ports(world))
        assert {int(verdict.action) for verdict in world.switch.live().values()} == {1}
        await world.commit(rules(discarded={8003}))
        assert 8003 not in live_ports(world)

    run_scenario(scenario, target=target)


def test_a_restart_goes_on_with_the_flows_that_were_kept(run_scenario: RunScenario) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await with_flows(world)
        await world.commit(rules(discarded={8003}))

    async def second(world: PolicyWorld) -> None:
        before = switch.live()
        assert len(before) == len(PORTS) - 1
        await world.began()
        assert switch.live() == before
        await world.commit(rules(discarded={8003}, unrelated="10.7.0.0/16"))
        assert switch.live() == before

    run_scenario(first, switch)
    run_scenario(second, switch)


def test_a_restart_between_disk_and_switch_retires_them_all(run_scenario: RunScenario) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await with_flows(world)

        def hang_up(_: UpdateType, kind: EntityKind, __: object) -> int:
            if kind is EntityKind.OUTBOUND_LIST:
                raise P4RuntimeError(14, "the fake switch hung up")
            return 0

        switch.refuse = hang_up
        with pytest.raises(BadRequestError):
            await world.commit(rules(discarded={8003}))

    async def second(world: PolicyWorld) -> None:
        switch.refuse = lambda *_: 0
        await world.began()
        state = world.state("corp", OUTBOUND)
        for slot, verdict in switch.live().items():
            assert world.policy.verdict_of(slot) == verdict
        assert switch.of(EntityKind.OUTBOUND_LIST)[state.list_id] == ListEntity(*state.version)

    run_scenario(first, switch)
    run_scenario(second, switch)


# -- epochs that wrap around


async def at_the_last_epoch(world: PolicyWorld) -> PolicyList:
    """Installs flows of two epochs. One is the last epoch before the number wraps around. Returns
    the list.
    """
    state = await with_flows(world)
    world.policy.table.observe(state.list_id, ListVersion(MAXIMUM_COUNT - 1, 7))
    await world.ask("flow-cache clear", spd="corp")
    world.miss(tcp(8000))
    await world.until(lambda: live_ports(world) == {8000})
    assert len({verdict.epoch for verdict in world.switch.flows.values()}) == 2
    last: PolicyList = world.state("corp", OUTBOUND)
    assert last.version.epoch == MAXIMUM_COUNT
    return last


def test_no_flow_is_left_when_epochs_start_anew(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await at_the_last_epoch(world)
        await world.ask("flow-cache clear", spd="corp")
        assert world.state("corp", OUTBOUND).version.epoch == 1
        assert world.switch.flows == {}
        world.miss(tcp(8000))
        await world.until(lambda: live_ports(world) == {8000})

    run_scenario(scenario)


def test_epochs_do_not_start_anew_while_a_flow_stays(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        before = await at_the_last_epoch(world)
        refusals = iter([REFUSED])
        world.switch.refuse_flow = lambda operation, _: (
            next(refusals, 0) if operation is UpdateType.DELETE else 0
        )
        with pytest.raises(BadRequestError, match=r"flows of list .* are not deleted"):
            await world.ask("flow-cache clear", spd="corp")
        assert versions_in(world.switch)[OUTBOUND, before.list_id] == before.version
        await world.ask("flow-cache clear", spd="corp")
        assert world.switch.flows == {}

    run_scenario(scenario)


@pytest.mark.parametrize("refuses", [False, True])
@pytest.mark.parametrize("why", ["the record is another's", "the cache is off"])
def test_epochs_start_anew_over_a_restart(
    run_scenario: RunScenario, tmp_path: Path, why: str, refuses: bool
) -> None:
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await at_the_last_epoch(world)

    async def second(world: PolicyWorld) -> None:
        if refuses:
            refusals = iter([REFUSED])
            switch.refuse_flow = lambda *_: next(refusals, 0)
        await world.began()
        assert world.state("corp", OUTBOUND).version.epoch == 1
        assert switch.flows == {}

    run_scenario(first, switch)
    text = None
    if why == "the cache is off":
        text = filled(CONFIG, tmp_path).replace("{size: 100,", "{enabled: false, size: 100,")
    else:
        store = SpdStore(tmp_path)
        record = store.load()
        lists = tuple(one._replace(digest="another") for one in record.lists)
        store.save(record._replace(lists=lists))
    run_scenario(second, switch, text=text)


@pytest.mark.parametrize("related", [False, True])
def test_generations_start_anew_and_unchanged_flows_stay(
    run_scenario: RunScenario, related: bool
) -> None:
    switch = FakeSwitch(CODEC)
    lost = {8003} if related else set[int]()
    change = rules(discarded=lost) if related else rules(unrelated="10.7.0.0/16")

    async def first(world: PolicyWorld) -> None:
        state = await with_flows(world)
        world.policy.table.observe(state.list_id, ListVersion(0, MAXIMUM_COUNT - 1))
        await world.commit(rules(unrelated="10.6.0.0/16"))
        last = world.state("corp", OUTBOUND).version
        assert last == (state.version.epoch, MAXIMUM_COUNT)
        await world.commit(change)
        assert world.state("corp", OUTBOUND).version == (state.version.epoch, 1)
        assert versions_in(world.switch)[OUTBOUND, state.list_id] == (state.version.epoch, 1)
        assert live_ports(world) == set(PORTS) - lost
        # A packet that was punted before the commit must be answered with the new generation.
        before = len(world.client.sent)
        world.miss(tcp(8001), generation=MAXIMUM_COUNT)
        assert (await world.sent(before + 1))[-1]["generation"] == 1

    async def second(world: PolicyWorld) -> None:
        flows = switch.live()
        await world.began()
        assert world.state("corp", OUTBOUND).version.generation == 1
        assert switch.live() == flows
        await world.commit(rules(unrelated="10.9.0.0/16"))
        assert world.state("corp", OUTBOUND).version.generation == 2

    run_scenario(first, switch)
    run_scenario(second, switch)


# -- output of `spd diff`


def test_a_diff_names_the_flows_that_would_change(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world)
        files = [{"name": "corp.yaml", "text": rules(discarded={8003, 8004, 8005})}]
        before = world.switch.flow_log[:]
        (shown,) = await world.ask("spd diff", files=files, flows=2)
        flows = shown["flows"]["outbound"]
        assert "inbound" not in shown["flows"]
        assert (flows["live"], flows["changed"], len(flows["first"])) == (len(PORTS), 3, 2)
        one = flows["first"][0]
        port = one["destination_port"]
        assert port in (8003, 8004, 8005)
        assert (one["action"], one["rule"]) == ("bypass", f"port-{port}")
        assert one["after"] == {"action": "discard", "bundle": None, "rule": f"port-{port}"}
        assert world.switch.flow_log == before
        with pytest.raises(BadRequestError, match="flows must be a whole number"):
            await world.ask("spd diff", files=files, flows=-1)

    run_scenario(scenario)


# -- random orders of events


class VerdictObserver:
    """Checks in every state of the switch that each valid flow has the verdict of the current
    rules.
    """

    def __init__(self, world: PolicyWorld) -> None:
        self._switch = world.switch
        self._states: dict[tuple[int, ListVersion], PolicyList] = {}
        self.looks = 0
        policy, save = world.policy, world.policy.record.save

        def saved(commit: Commit = NO_CHANGE) -> None:
            self._know(commit.lists)
            save(commit)

        policy.record.save = saved
        self._know(policy.table.lists.values())
        world.switch.watch = self.look

    def _know(self, states: Any) -> None:
        self._states |= {(one.list_id, one.version): one for one in states}

    def look(self) -> None:
        self.looks += 1
        versions = versions_in(self._switch)
        for slot, verdict in self._switch.live().items():
            state = self._states[slot.list_id, versions[slot.direction, slot.list_id]]
            packet = slot.key.selectors()
            assert packet is not None
            expected = FlowVerdict(state.version.epoch, *state.search(packet))
            assert verdict == expected, (slot, state.version)


@pytest.mark.parametrize("seed", range(6))
def test_no_flow_ever_says_what_the_rules_do_not(run_scenario: RunScenario, seed: int) -> None:
    chance = random.Random(seed)

    def unreliable() -> Callable[[UpdateType, FlowSlot], int]:
        return lambda *_: REFUSED if chance.random() < 0.03 else 0

    async def scenario(world: PolicyWorld) -> None:
        await with_flows(world)
        observer = VerdictObserver(world)
        world.switch.refuse_flow = unreliable()
        discarded: set[int] = set()
        running = True

        async def packets() -> None:
            while running:
                for _ in range(5):
                    world.miss(tcp(chance.choice(PORTS)))
                await asyncio.sleep(0)

        sender = asyncio.create_task(packets())
        kept = 0
        try:
            for _ in range(25):
                discarded ^= set(chance.sample(PORTS, chance.choice([0, 1, 1, 2, 12])))
                network = f"10.{chance.randrange(2, 9)}.0.0/16"
                epoch = world.state("corp", OUTBOUND).version.epoch
                await world.commit(rules(discarded=discarded, unrelated=network))
                kept += world.state("corp", OUTBOUND).version.epoch == epoch
                observer.look()
        finally:
            running = False
            await sender
        assert kept > 3
        assert observer.looks > 50

    run_scenario(scenario)

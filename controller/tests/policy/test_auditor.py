# SPDX-License-Identifier: Apache-2.0
"""Tests that the auditor finds, repairs and reports what other clients have written to the switch.

The auditor must never report the controller's own writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import cast

import pytest
from finsy.proto import p4r

from fake_switch import FakeSwitch
from policy_world import CODEC, CONFIG, OUTBOUND, PolicyWorld, RunScenario, filled, tcp
from scenes import gateway, neighbor, route, slot
from sluice.auditor import BUSY, SLICE, AuditedSwitch, _Round
from sluice.entities import (
    BLACKHOLE,
    HASH_SEED_KEY,
    NO_POLICY,
    Attachment,
    Egress,
    EntityKey,
    EntityKind,
    EntityValue,
    HashSeed,
    L3Interface,
    ListBinding,
    ListState,
    Nexthop,
    RouterMac,
)
from sluice.entity_text import text_of
from sluice.p4.flows import FlowSlot
from sluice.p4runtime.messages import UpdateType
from sluice.policy.model import Action
from sluice.reconciler import Reconciler
from sluice.state.flow_cache import FlowVerdict
from tampering import audit_of, repaired

QUICK = CONFIG + "limits: {{auditor_seconds: 0.1, auditor_per_second: 100000}}\n"


def write(
    switch: FakeSwitch,
    operation: UpdateType,
    kind: EntityKind,
    key: EntityKey,
    value: EntityValue | None = None,
) -> None:
    """Applies an update to the switch as another client would."""
    update = switch.codec.update(operation, kind, key, value)
    assert switch.take(p4r.WriteRequest.FromString(update)) == [0]


def write_flow(switch: FakeSwitch, slot: FlowSlot, verdict: FlowVerdict) -> None:
    entity = switch.flow_codec._entry(slot, verdict)
    kind = p4r.Update.MODIFY if slot in switch.flows else p4r.Update.INSERT
    request = p4r.WriteRequest(updates=[p4r.Update(type=kind, entity=entity)])
    assert switch.take(request) == [0]


async def rounds(world: PolicyWorld, number: int = 2) -> None:
    """Waits until each part of the auditor has completed `number` more rounds."""
    reports = world.controller.auditor.reports.values()
    before = {id(report): report.rounds for report in reports}
    await world.until(
        lambda: all(report.rounds >= before[id(report)] + number for report in reports)
    )


async def settled(world: PolicyWorld) -> None:
    await world.began()
    world.kernel.put(neighbor(1, "10.0.1.9", 4))
    world.routes.put(route("20.0.0.0/8", gateway("10.0.1.9", 1)))
    await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
    world.miss(tcp(80))
    await world.until(world.switch.live)
    await world.synced()


@pytest.fixture
def quick(run_scenario: RunScenario, tmp_path: Path) -> RunScenario:
    def run(scenario: Callable[..., object], switch: FakeSwitch | None = None) -> None:
        text = filled(QUICK, tmp_path)
        run_scenario(scenario, switch, text=text)

    return run


def test_what_we_write_ourselves_is_never_repaired(quick: RunScenario) -> None:
    """Checks that the auditor repairs nothing while lists, routes and flows change."""

    async def scenario(world: PolicyWorld) -> None:
        await settled(world)
        for n in range(40):
            await world.ask("flow-cache clear", spds=["corp"])
            world.routes.put(route(f"21.{n}.0.0/16", gateway("10.0.1.9", 1)))
            world.miss(tcp(1000 + n))
        await rounds(world)
        for report in world.controller.auditor.reports.values():
            assert not report.repairs
            assert report.compared

    quick(scenario)


@pytest.mark.parametrize(
    ("operation", "kind", "key", "value"),
    [
        (UpdateType.MODIFY, EntityKind.OUTBOUND_BINDING, 1, NO_POLICY),
        (UpdateType.MODIFY, EntityKind.INBOUND_BINDING, 2, ListBinding(1)),
        (UpdateType.DELETE, EntityKind.INBOUND_BINDING, 1, None),
        (UpdateType.INSERT, EntityKind.OUTBOUND_BINDING, 77, NO_POLICY),
        (UpdateType.MODIFY, EntityKind.EGRESS_INTERFACE, 1, Egress(2, 0, bytes(6), 1500)),
        (UpdateType.INSERT, EntityKind.L3_INTERFACE, Attachment(7, 0), L3Interface(2, 0)),
        (UpdateType.INSERT, EntityKind.ROUTER_MAC, RouterMac(1, bytes(5) + b"\1"), None),
        (UpdateType.MODIFY, EntityKind.ROUTE, slot("20.0.0.0/8"), BLACKHOLE),
        (UpdateType.DELETE, EntityKind.ROUTE, slot("20.0.0.0/8"), None),
        (UpdateType.INSERT, EntityKind.ROUTE, slot("30.0.0.0/8"), BLACKHOLE),
        (UpdateType.INSERT, EntityKind.NEXTHOP, 999, Nexthop(1, None, None, up=True)),
    ],
    ids=lambda value: value.name.lower() if isinstance(value, EntityKind | UpdateType) else "",
)
def test_an_entity_that_somebody_else_wrote(
    quick: RunScenario,
    operation: UpdateType,
    kind: EntityKind,
    key: EntityKey,
    value: EntityValue | None,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await settled(world)
        before = dict(world.switch.entities)
        put = world.switch.entities[
            EntityKind.ROUTER_MAC, next(iter(world.switch.of(EntityKind.ROUTER_MAC)))
        ]
        write(world.switch, operation, kind, key, put if kind is EntityKind.ROUTER_MAC else value)
        assert world.switch.entities != before
        await world.until(lambda: world.switch.entities == before)
        status = await world.ask("show", what="status")
        part = status["auditor"]["routes" if kind is EntityKind.ROUTE else "policy"]
        assert part["repaired"] == {kind.name.lower(): 1}
        assert text_of(key) in part["last_repairs"][0]
        counters = world.controller.audit.counters
        assert counters["written: switch repaired"] == 1

    quick(scenario)


def test_a_flow_that_was_made_a_bypass_is_what_it_was_again(quick: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await settled(world)
        world.miss(tcp(443, "10.9.0.1"))
        await world.until(lambda: len(world.switch.live()) == 2)
        ((protected, verdict),) = (
            flow for flow in world.switch.live().items() if flow[1].action is Action.PROTECT
        )
        before = world.switch.live()
        write_flow(world.switch, protected, verdict._replace(action=Action.BYPASS, bundle=0))
        await world.until(lambda: world.switch.live() == before)
        other = protected._replace(key=protected.key._replace(destination_port=9))
        write_flow(world.switch, other, verdict._replace(action=Action.BYPASS, bundle=0))
        await world.until(lambda: world.switch.live() == before)
        ahead = protected._replace(key=protected.key._replace(destination_port=10))
        write_flow(world.switch, ahead, FlowVerdict(verdict.epoch + 1, 1, Action.BYPASS))
        await world.until(lambda: ahead not in world.switch.flows)
        status = await world.ask("show", what="status")
        assert status["auditor"]["policy"]["repaired"] == {"outbound_flow": 3}

    quick(scenario)


def test_a_flow_that_was_planted_while_nobody_watched(quick: RunScenario) -> None:
    """Checks that a controller deletes a flow that another client added while no controller ran.

    When a session begins, the controller searches the rules for each flow in the switch. It keeps
    only the flows whose verdict agrees with the rules.
    """
    switch = FakeSwitch(CODEC)

    async def first(world: PolicyWorld) -> None:
        await settled(world)

    async def second(world: PolicyWorld) -> None:
        ((known, verdict),) = switch.live().items()
        planted = known._replace(key=known.key._replace(destination=bytes([10, 9, 0, 1])))
        write_flow(switch, planted, verdict._replace(action=Action.BYPASS))
        assert planted in switch.live()
        await world.began()
        await world.until(lambda: planted not in switch.flows)
        await rounds(world)
        assert switch.live() == {known: verdict}
        status = await world.ask("show", what="status")
        assert status["auditor"]["policy"]["repaired"] == {"outbound_flow": 1}

    quick(first, switch)
    quick(second, switch)


def test_a_list_that_was_changed_gets_new_numbers(quick: RunScenario) -> None:
    """Checks that a list gets a new epoch when another client sets the list's epoch back.

    With an old epoch, stale flows would become valid again. So the list must not keep that epoch.
    """

    async def scenario(world: PolicyWorld) -> None:
        await settled(world)
        state = world.state("corp", OUTBOUND)
        await world.ask("flow-cache clear", spds=["corp"])
        now = world.state("corp", OUTBOUND).version
        write(
            world.switch,
            UpdateType.MODIFY,
            EntityKind.OUTBOUND_LIST,
            state.list_id,
            ListState(now.epoch - 1, now.generation),
        )
        assert world.switch.live()
        await world.until(lambda: not world.switch.live())
        await world.until(lambda: world.state("corp", OUTBOUND).version.epoch > now.epoch)
        version = world.state("corp", OUTBOUND).version
        assert world.switch.of(EntityKind.OUTBOUND_LIST)[state.list_id] == ListState(*version)
        write(world.switch, UpdateType.INSERT, EntityKind.INBOUND_LIST, 500, ListState(1, 1))
        await world.until(lambda: 500 not in world.switch.of(EntityKind.INBOUND_LIST))

    quick(scenario)


def test_a_flow_that_was_deleted_is_searched_again(quick: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await settled(world)
        (known,) = world.switch.live()
        del world.switch.flows[known], world.switch.raw_flows[known]
        await world.until(lambda: world.controller.auditor.reports["policy"].repairs)
        world.miss(tcp(80))
        await world.until(lambda: known in world.switch.live())

    quick(scenario)


def test_a_switch_that_was_given_another_pipeline_is_taken_over_anew(quick: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await settled(world)
        await rounds(world, 0)
        await world.until(lambda: world.controller.auditor.reports["policy"].rounds)
        theirs = p4r.SetForwardingPipelineConfigRequest()
        theirs.config.cookie.cookie = 1
        world.client.pushed.append(theirs)
        await world.until(lambda: len(world.clients) == 2)
        await world.until(lambda: world.client.pushed)
        status = await world.ask("show", what="status")
        assert status["auditor"]["policy"]["repaired"] == {"pipeline": 1}

    quick(scenario)


@pytest.mark.parametrize("written", ["before", "meanwhile"])
def test_a_setting_that_was_written_while_it_was_read_is_ours(tmp_path: Path, written: str) -> None:
    """Checks that the auditor repairs nothing if the controller writes a value while the auditor
    reads it.

    The answer to the read may contain the earlier value, but a later read would return the
    controller's value.
    """
    reconciler = Reconciler(CODEC, lambda *_: None, lambda: 0.0)
    auditor = audit_of(reconciler, tmp_path)
    held = reconciler.installed.by_kind[EntityKind.HASH_SEED]
    others, ours = HashSeed(0), HashSeed(7)
    update = CODEC.update(UpdateType.MODIFY, EntityKind.HASH_SEED, HASH_SEED_KEY, others)
    entity = p4r.WriteRequest.FromString(update).updates[0].entity
    if written == "before":
        held[HASH_SEED_KEY] = ours

    class Session:
        async def read(self, entities: list[p4r.Entity]) -> AsyncIterator[list[p4r.Entity]]:
            if entities[0].HasField("table_entry"):
                held[HASH_SEED_KEY] = ours
                yield [entity]

    async def scenario() -> None:
        audited = _Round(auditor.reports["policy"])
        for request in auditor._codecs.settings.read_requests():
            await auditor._audit_settings(cast(AuditedSwitch, Session()), request, audited)

    asyncio.run(scenario())
    assert sum(repaired(auditor).values()) == (written == "before")


def test_flows_of_a_round_are_not_read_twice(quick: RunScenario) -> None:
    """Checks that a round reads missing flows again only if they are older than the round."""

    async def scenario(world: PolicyWorld) -> None:
        await settled(world)
        (old,) = world.switch.live()
        world.miss(tcp(443))
        await world.until(lambda: len(world.switch.live()) == 2)
        (new,) = world.switch.live().keys() - {old}
        auditor = world.controller.auditor
        cache = auditor._policy.flows.caches[new.list_id].cache
        cache.used(old.key, 0.0)
        cache.used(new.key, auditor._clock() + 60)
        again: list[p4r.Entity] = []

        class EmptySwitch:
            async def read(self, entities: list[p4r.Entity]) -> AsyncIterator[list[p4r.Entity]]:
                again.extend(one for one in entities if one.table_entry.match)
                yield []

        audited = _Round(auditor.reports["policy"])
        await auditor._audit_flows(cast(AuditedSwitch, EmptySwitch()), audited)
        assert again == [auditor._codecs.flows.request(old)]

    quick(scenario)


def test_the_auditor_reads_slowly_while_packets_wait(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        auditor = world.controller.auditor
        slept: list[float] = []

        async def sleep(seconds: float) -> None:
            slept.append(seconds)

        for waiting in (False, True):
            monkeypatch.setattr(auditor, "_is_busy", lambda now=waiting: now)
            with monkeypatch.context() as patched:
                patched.setattr("sluice.auditor.asyncio.sleep", sleep)
                await auditor._pause(100, 50)
        assert slept == [2.0, 2.0 * BUSY]

    run_scenario(scenario)


def test_a_walk_over_routes_that_are_not_held_has_its_turns(run_scenario: RunScenario) -> None:
    """Checks that the auditor ignores desired routes that the switch does not hold, and that it
    does so in slices.

    For example, a switch may lack many routes after a reconnect.
    """

    async def scenario(world: PolicyWorld) -> None:
        auditor = world.controller.auditor
        auditor._routes = lambda: iter([[slot("20.0.0.0/8")] * 5000])
        sizes = [len(keys) for keys in auditor._keys(EntityKind.ROUTE)]
        assert sizes == [0] * -(-5000 // SLICE)

    run_scenario(scenario)

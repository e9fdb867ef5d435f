# SPDX-License-Identifier: Apache-2.0
"""Tests commits of rules.

A commit is in force when its request is answered. It is applied whole or not at all, and survives a
restart.
"""

from __future__ import annotations

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch
from policy_world import (
    BYPASS,
    CODEC,
    COMMIT,
    CONFIG,
    INBOUND,
    OUTBOUND,
    PolicyWorld,
    RunScenario,
    tcp,
)
from scenes import address, gateway, route, slot
from sluice.api.server import BadRequestError
from sluice.audit_log import REQUESTED_BY, Requester
from sluice.entities import EntityKind, ListState
from sluice.model import parse_address
from sluice.p4runtime.messages import UpdateType
from sluice.policy.spdstore import SpdStore, SpdStoreError


def test_a_commit_retires_flows_and_answers_that_travel(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        before = world.state("corp", OUTBOUND).version
        answer = await world.commit(COMMIT)
        assert [one["direction"] for one in answer["changed"]] == ["outbound"]
        version = world.state("corp", OUTBOUND).version
        assert version == (before.epoch + 1, before.generation + 1)
        assert world.switch.of(EntityKind.OUTBOUND_LIST)[
            world.state("corp", OUTBOUND).list_id
        ] == ListState(*version)
        assert world.switch.live() == {}
        world.miss(tcp(80), generation=before.generation)
        await world.counted("dropped: policy discards outbound")
        await world.until(world.switch.live)
        assert [operation for operation, _ in world.switch.flow_log][-1] is UpdateType.MODIFY

    run_scenario(scenario)


def test_it_is_on_disk_before_the_switch_hears_of_it(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        on_disk: list[str] = []

        def look(operation: UpdateType, kind: EntityKind, key: object) -> int:
            if kind in (EntityKind.INBOUND_LIST, EntityKind.OUTBOUND_LIST):
                on_disk.append((tmp_path / "spd.json").read_text())
            return 0

        world.switch.refuse = look
        digest = world.state("corp", OUTBOUND).digest
        await world.commit(COMMIT)
        assert len(on_disk) == 1
        assert digest not in on_disk[0]
        assert world.state("corp", OUTBOUND).digest in on_disk[0]

    run_scenario(scenario)


def test_what_cannot_be_put_on_disk_is_not_done(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        before = dict(world.switch.of(EntityKind.OUTBOUND_LIST))

        def full(*_: object) -> None:
            raise SpdStoreError("no space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("sluice.policy.spdstore.SpdStore.save", full)
            with pytest.raises(BadRequestError, match=r"no space left.*stay, also over a restart"):
                await world.commit(COMMIT)
        assert world.switch.of(EntityKind.OUTBOUND_LIST) == before
        await world.commit(COMMIT)

    run_scenario(scenario)


@pytest.mark.parametrize("target", ["sluice-switch", "bmv2"])
def test_a_refused_commit_leaves_the_old_policy(run_scenario: RunScenario, target: str) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        refusals = iter([13])
        world.switch.refuse = lambda _, kind, __: (
            next(refusals, 0) if kind is EntityKind.OUTBOUND_LIST else 0
        )
        both = COMMIT.replace("name: all-in, action: bypass", "name: all-in, action: discard")
        with pytest.raises(BadRequestError, match="the switch refused the change"):
            await world.commit(both)
        for direction, kind in (
            (INBOUND, EntityKind.INBOUND_LIST),
            (OUTBOUND, EntityKind.OUTBOUND_LIST),
        ):
            state = world.state("corp", direction)
            if target == "bmv2":
                assert world.switch.of(kind)[state.list_id] == ListState(*state.version)
        world.miss(tcp(80))
        (sent,) = await world.sent()
        assert sent["verdict"] == BYPASS
        await world.commit(both)
        state = world.state("corp", INBOUND)
        assert world.switch.of(EntityKind.INBOUND_LIST)[state.list_id] == ListState(*state.version)

    run_scenario(scenario, target=target)


def test_a_restart_goes_on_with_what_was_committed(
    run_scenario: RunScenario, caplog: pytest.LogCaptureFixture
) -> None:
    switch = FakeSwitch(CODEC)

    async def commit(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT)
        world.miss(tcp(80))
        await world.until(switch.live)

    async def restart(world: PolicyWorld) -> None:
        before = switch.live()
        await world.began()
        assert switch.live() == before
        exported = await world.ask("spd export", spd="corp")
        assert [rule["name"] for rule in exported["outbound"]] == ["web"]
        (changes,) = await world.ask("spd diff", configured=["corp"])
        told = [(one["change"], one["name"]) for one in changes["lists"]["outbound"]]
        assert told == [("added", "secret"), ("changed", "web"), ("added", "dns")]
        await world.ask("spd commit", configured=["corp"])
        (changes,) = await world.ask("spd diff", configured=["corp"])
        assert changes["lists"] == {"inbound": [], "outbound": []}

    run_scenario(commit, switch)
    assert "committed last are in force" not in caplog.text
    run_scenario(restart, switch)
    assert "the configuration differs (outbound)" in caplog.text


def test_an_spd_that_was_taken_out_starts_anew(run_scenario: RunScenario, tmp_path: Path) -> None:
    async def commit(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(COMMIT)

    async def without(world: PolicyWorld) -> None:
        await world.began()

    async def again(world: PolicyWorld) -> None:
        await world.began()
        names = [rule["name"] for rule in (await world.ask("spd export", spd="corp"))["outbound"]]
        assert names == ["secret", "web", "dns"]

    run_scenario(commit)
    text = (tmp_path / "r1.yaml").read_text()
    edge_alone = text[: text.index("engines:")] + "spds:\n" + text[text.index("  - name: edge") :]
    run_scenario(without, text=edge_alone.replace("spd: corp", "spd: none"))
    run_scenario(again)


def test_configured_rules_are_those_in_the_file_now(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    text = CONFIG.format(target="sluice-switch", size=100, idle=60, state=tmp_path)
    head, _, tail = text.partition("    inbound: [{name: all-in")
    text = head + "    file: corp.yaml\n" + tail[tail.index("  - name: edge") :]
    file = tmp_path / "corp.yaml"
    file.write_text(COMMIT)

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        file.write_text(COMMIT.replace("name: web", "name: http"))
        (changes,) = await world.ask("spd diff", configured=["corp"])
        told = [(one["change"], one["name"]) for one in changes["lists"]["outbound"]]
        assert told == [("removed", "web"), ("added", "http")]
        for text, problem in (
            (
                COMMIT.replace("spd: corp", "spd: edge"),
                "has rules of the SPD 'edge', not of 'corp'",
            ),
            ("spd: corp\nno: rules\n", r"corp.yaml:2: no: unknown key"),
        ):
            file.write_text(text)
            with pytest.raises(BadRequestError, match=problem):
                await world.ask("spd commit", configured=["corp"])
        with pytest.raises(BadRequestError, match="files and configured: give only one of them"):
            await world.ask("spd commit", configured=["corp"], files=[{"name": "", "text": ""}])
        with pytest.raises(BadRequestError, match="there is no SPD 'x'"):
            await world.ask("spd diff", configured=["x"])

    run_scenario(scenario, text=text)


def test_a_commit_that_failed_is_not_made_by_a_restart(run_scenario: RunScenario) -> None:
    async def refused(world: PolicyWorld) -> None:
        await world.began()
        world.switch.refuse = lambda _, kind, __: 13 if kind is EntityKind.OUTBOUND_LIST else 0
        with pytest.raises(BadRequestError, match="the switch refused the change"):
            await world.commit(COMMIT)

    async def later(world: PolicyWorld) -> None:
        await world.began()
        names = [rule["name"] for rule in (await world.ask("spd export", spd="corp"))["outbound"]]
        assert names == ["secret", "web", "dns"]

    run_scenario(refused)
    run_scenario(later)


def test_a_full_disk_says_what_a_restart_would_do(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Checks the error of a refused commit whose record cannot be removed from disk.

    The commit is on disk before the switch refuses it. Because the disk is full, the record cannot
    be removed. So the error must say that a restart would put the commit into force.
    """
    monkeypatch.setattr("sluice.policy.record.DISK_RETRY", 0.01)
    fsync, full = os.fsync, False

    def sync(descriptor: int) -> None:
        if full:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    async def scenario(world: PolicyWorld) -> None:
        nonlocal full
        await world.began()
        path = world.policy.record.path

        def refuse(_: object, kind: EntityKind, __: object) -> int:
            nonlocal full
            full = kind is EntityKind.OUTBOUND_LIST
            return 13 if full else 0

        with monkeypatch.context() as patch:
            patch.setattr(os, "fsync", sync)
            world.switch.refuse = refuse
            with pytest.raises(BadRequestError, match=r"refused the change.*a restart makes it"):
                await world.commit(COMMIT)
            assert "a restart makes it" in caplog.text
            assert rules_in(path) == ["web"]
            full = False
            await world.until(lambda: rules_in(path) == ["secret", "web", "dns"])

    run_scenario(scenario)


def rules_in(path: Path) -> list[str]:
    """Returns the names of corp's outbound rules on disk, as a restart would read them."""
    (found,) = (one for one in SpdStore(path.parent).load().lists if one[1:3] == ("corp", OUTBOUND))
    return [rule.name for rule in found.rules or ()]


def test_across_spds_only_where_it_is_atomic(run_scenario: RunScenario, tmp_path: Path) -> None:
    edge = "spd: edge\ninbound: [{name: a, action: bypass}]\noutbound: []\n"

    async def one_by_one(world: PolicyWorld) -> None:
        await world.began()
        with pytest.raises(BadRequestError, match="corp, edge: this target cannot change several"):
            await world.commit(COMMIT, edge)
        await world.commit(COMMIT)
        await world.commit(edge)

    async def together(world: PolicyWorld) -> None:
        await world.began()
        requests = len(world.client.requests)
        answer = await world.commit(COMMIT, edge)
        assert {one["spd"] for one in answer["changed"]} == {"corp", "edge"}
        written = [r for r in world.client.requests[requests:] if r.atomicity == 2]
        assert [len(request.updates) for request in written] == [2]

    run_scenario(one_by_one, target="bmv2")
    (tmp_path / "spd.json").unlink()
    run_scenario(together)


def test_numbers_of_new_rules_count_from_zero(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.switch.counters_reset.clear()
        await world.commit(COMMIT)
        fresh = world.state("corp", OUTBOUND).rule_ids[-1]
        assert set(world.switch.counters_reset) == {fresh}

    run_scenario(scenario)


def test_a_commit_does_not_wait_for_routes(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.routes.put(
            *(route(f"20.{n >> 8}.{n & 255}.0/24", gateway("10.0.1.9", 1)) for n in range(5000))
        )
        desired = world.controller.reconciler.desired[EntityKind.ROUTE]
        await world.until(lambda: slot("20.0.0.0/24") in desired)
        routes: list[int] = []
        log = world.policy.on_changed

        def in_force(*change: Any) -> None:
            routes.append(len(world.switch.of(EntityKind.ROUTE)))
            log(*change)

        world.policy.on_changed = in_force
        await world.commit(COMMIT)
        assert len(routes) == 1
        assert routes[0] < 5000

    run_scenario(scenario)


NEW_ADDRESS = parse_address("10.0.1.200")


def waiting_changes(world: PolicyWorld) -> int:
    """Returns the number of changes of policy that wait for the running change to end."""
    return len(world.policy._lock._waiters or ())


def operators_rules(world: PolicyWorld) -> list[str]:
    """Returns the names of the operator's outbound rules in force of the SPD corp."""
    return [rule.name for rule in world.state("corp", OUTBOUND).rules if not rule.generated]


def test_a_new_address_does_not_revert_a_commit_that_waits(run_scenario: RunScenario) -> None:
    """Adds an address of the router while a commit waits for another change to end."""

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.policy._lock.acquire()  # as if another change were running
        commit = asyncio.create_task(world.commit(COMMIT))
        await world.until(lambda: waiting_changes(world) == 1)
        world.kernel.put(address(1, "10.0.1.200/24"))
        await world.until(lambda: waiting_changes(world) == 2)
        world.policy._lock.release()
        await commit
        await world.until(lambda: NEW_ADDRESS in world.policy._named["corp"])
        assert operators_rules(world) == ["web"]

    run_scenario(scenario)


def test_a_new_address_does_not_bring_refused_rules_into_force(
    run_scenario: RunScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Adds an address of the router while the switch has not answered a commit yet. The switch then
    refuses the commit."""

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        emit, held = world.client._emit, list[Any]()

        def hold(event: Any) -> None:
            (held.append if event[0] == "write_done" else emit)(event)

        monkeypatch.setattr(world.client, "_emit", hold)
        refusals = iter([13])
        world.switch.refuse = lambda _, kind, __: (
            next(refusals, 0) if kind is EntityKind.OUTBOUND_LIST else 0
        )
        commit = asyncio.create_task(world.commit(COMMIT))
        await world.until(lambda: held)
        exported = await world.ask("spd export", spd="corp")
        assert [rule["name"] for rule in exported["outbound"]] == ["secret", "web", "dns"]
        world.kernel.put(address(1, "10.0.1.200/24"))
        await world.until(lambda: waiting_changes(world) == 1)
        monkeypatch.setattr(world.client, "_emit", emit)
        for event in held:
            emit(event)
        with pytest.raises(BadRequestError, match="the switch refused"):
            await commit
        await world.until(lambda: NEW_ADDRESS in world.policy._named["corp"])
        assert operators_rules(world) == ["secret", "web", "dns"]

    run_scenario(scenario)


def test_every_change_is_in_the_audit_log(run_scenario: RunScenario, tmp_path: Path) -> None:
    def events() -> list[dict[str, Any]]:
        return [json.loads(line) for line in (tmp_path / "audit.log").read_text().splitlines()]

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        (start,) = events()
        assert (start["event"], start["change"], start["asked_by"]) == (
            *("policy changed", "start"),
            "router",
        )
        assert len(start["lists"]) == 4
        before = world.state("corp", OUTBOUND).digest
        token = REQUESTED_BY.set(Requester(1000, 4711))
        await world.commit(COMMIT)
        await world.commit(COMMIT)  # changes nothing, so the audit log has no entry
        for action in ("off", "on", "clear"):
            await world.ask(f"flow-cache {action}", spd="corp")
        REQUESTED_BY.reset(token)
        with pytest.raises(BadRequestError):
            await world.commit("spd: corp\noutbound: [{name: a}]\n")
        commit, *caches = events()[1:]
        assert (commit["change"], commit["spds"]) == ("commit", ["corp"])
        assert commit["asked_by"] == {"uid": 1000, "pid": 4711}
        (changed,) = commit["lists"]
        assert changed["digest_before"] == before
        assert changed["digest"] == world.state("corp", OUTBOUND).digest
        assert (changed["list"], changed["added"], changed["removed"]) == ("outbound", 1, 3)
        assert [one["change"] for one in caches] == [
            "flow cache off",
            "flow cache on",
            "flow cache cleared",
        ]
        assert all(one["asked_by"] == commit["asked_by"] for one in caches)
        counters = await world.ask("show", what="counters")
        assert counters["controller"]["audit"] == {"written: policy changed": 5}

    run_scenario(scenario)


def test_a_commit_that_fails_is_no_change_in_the_audit_log(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        lists = (EntityKind.INBOUND_LIST, EntityKind.OUTBOUND_LIST)
        world.switch.refuse = lambda operation, kind, key: 13 if kind in lists else 0
        with pytest.raises(BadRequestError):
            await world.commit(COMMIT)
        (only,) = (tmp_path / "audit.log").read_text().splitlines()
        assert json.loads(only)["change"] == "start"

    run_scenario(scenario)


def test_bad_rules_are_told_with_every_problem(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        bad = "spd: corp\noutbound: [{name: a, action: protect, bundle: nobody}, {name: b}]\n"
        for command in ("spd check", "spd diff", "spd commit"):
            with pytest.raises(BadRequestError) as error:
                await world.ask(command, files=[{"name": "corp.yaml", "text": bad}])
            assert "no bundle 'nobody'" in str(error.value)
            assert "rule 2 'b'" in str(error.value)
        with pytest.raises(BadRequestError, match="there is no SPD 'other'"):
            await world.commit("spd: other\n")

    run_scenario(scenario)


def test_check_warns_and_diff_tells(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        files = [{"name": "corp.yaml", "text": COMMIT}]
        (checked,) = await world.ask("spd check", files=files)
        assert checked["warnings"] == ["corp: the outbound list discards everything"]
        assert checked["sessions_unchecked"] == "give FRR's configuration with --frr"
        assert {one["direction"] for one in checked["fragments"]} == {"inbound", "outbound"}
        frr = [{"name": "frr.conf", "text": "router bgp 1\n neighbor 192.0.2.1 remote-as 2\n"}]
        (checked,) = await world.ask("spd check", files=files, frr=frr)
        assert any("BGP" in warning for warning in checked["warnings"])
        (changes,) = await world.ask("spd diff", files=files)
        told = [(one["change"], one["name"]) for one in changes["lists"]["outbound"]]
        assert told == [("removed", "secret"), ("removed", "dns"), ("changed", "web")]
        assert changes["lists"]["inbound"] == []

    run_scenario(scenario)

# SPDX-License-Identifier: Apache-2.0
"""Tests rules with `from_packet` on a router whose SAs come, go, and come back after restarts.

Each pair of hosts needs its own SAs. The tests try to make a packet use an SA of another pair, or
leave in clear.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch
from packets import ethernet, ipv4
from policy_world import CODEC, CONFIG, INBOUND, OUTBOUND, PROTECT, PolicyWorld, filled
from scenes import gateway, neighbor, route, slot
from sluice import associations
from sluice.config import load_config
from sluice.entities import (
    BundleInVrf,
    Decrypt,
    Encrypt,
    EntityKind,
    InboundSpi,
    RuleEntry,
    RuleVerdict,
)
from sluice.model import parse_address
from sluice.p4runtime.messages import UpdateType
from sluice.policy.bundle_instances import BundleInstances, WithInstances
from sluice.policy.check import Checker
from sluice.policy.populated import Instance, Populated
from sluice.policy.spdfile import parse_spd
from sluice.policy.spdstore import FILE_NAME
from sluice.state.bundle_numbers import FIRST, LAST, BundleNumbers
from test_associations import PlayedEngine
from test_punts import punt

TEXT = """\
router: r1
state_dir: {state}
interfaces:
  - {{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}}
spds:
  - name: corp
    mode: {mode}
    outbound:
      - {{name: web, action: bypass, protocol: tcp, destination_ports: [80]}}
      - {{name: pairs, action: protect, bundle: branch, source: 10.1.0.0/16,
         destination: 10.2.0.0/16, from_packet: [source, destination]}}
      - {{name: rest, action: protect, bundle: branch, destination: 10.3.0.0/16}}
    inbound:
      - {{name: pairs, action: protect, bundle: branch, source: 10.2.0.0/16,
         destination: 10.1.0.0/16, from_packet: [source, destination]}}
engines: [{{id: 1, port: 9, admin: /run/one.sock}}]
bundles: [{{name: branch, id: 5, spd: corp{more}}}]
"""
KEYS = {"a": "11", "b": "22", "c": "33", "d": "44", "whole": "55", "back": "66"}
PAIR_A, PAIR_B, PAIR_C = (
    ("10.1.0.1", "10.2.0.1"),
    ("10.1.0.2", "10.2.0.2"),
    ("10.1.0.3", "10.2.0.3"),
)
Scenario = Callable[[PolicyWorld], Awaitable[None]]
RunPairs = Callable[..., None]


@pytest.fixture
def run_pairs(
    run_scenario: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> RunPairs:
    """Returns a function that runs a scenario on a router whose engine 1 keeps its SAs."""
    for name in ("POLL", "RECONNECT"):
        monkeypatch.setattr(associations, name, 0.02)
    monkeypatch.setattr(associations, "SETTLE", 2.0)
    for name, digits in KEYS.items():
        path = tmp_path / name
        path.touch(mode=0o600)
        path.write_text(digits * 20)
    engine = PlayedEngine()

    class PairsWorld(PolicyWorld):
        engines = {1: engine}  # noqa: RUF012 - one for each test

    def run(
        scenario: Scenario,
        switch: FakeSwitch | None = None,
        more: str = "",
        mode: str = "cache",
    ) -> None:
        async def begun(world: PolicyWorld) -> None:
            world.directory = tmp_path  # type: ignore[attr-defined]
            await world.began()
            await scenario(world)

        text = TEXT.format(state=tmp_path, more=more, mode=mode)
        run_scenario(begun, switch, world=PairsWorld, text=text)

    return run


def udp(pair: tuple[str, str], port: int = 7000) -> bytes:
    payload = (5000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(16)
    return ethernet(ipv4(*pair, payload, 17))


async def add(world: PolicyWorld, name: str, pair: tuple[str, str] | None, spi: int = 0x100) -> Any:
    """Adds an outbound SA for a pair of hosts, or for the whole bundle."""
    sa = f"{{name: {name}, bundle: branch, direction: outbound, spi: {spi}, key_file: {name}," \
         " algorithm: aes-128-gcm, local: 10.0.0.1, remote: 10.0.0.2"  # fmt: skip
    return await _add(world, sa, pair)


async def add_inbound(world: PolicyWorld, name: str, pair: tuple[str, str], spi: int) -> Any:
    sa = f"{{name: {name}, bundle: branch, direction: inbound, spi: {spi}, key_file: {name}," \
         " algorithm: aes-128-gcm"  # fmt: skip
    return await _add(world, sa, pair)


async def _add(world: PolicyWorld, sa: str, pair: tuple[str, str] | None) -> Any:
    if pair is not None:
        sa += f", traffic: {{source: {pair[0]}, destination: {pair[1]}}}"
    text = f"security_associations:\n  - {sa}}}\n"
    directory = str(world.directory)  # type: ignore[attr-defined]
    return await world.ask("sa add", text=text, name="x.yaml", directory=directory)


def instance(pair: tuple[str, str]) -> Instance:
    source, destination = map(parse_address, pair)
    return Instance("branch", Populated(source, destination))


def number(world: PolicyWorld, pair: tuple[str, str]) -> int:
    found: int = world.policy.numbers.by_name[instance(pair).name]
    return found


def without_sa(world: PolicyWorld) -> int:
    found: int = world.policy.numbers.by_name["branch (no SA)"]
    return found


async def answered(world: PolicyWorld, frame: bytes, *args: Any, **known: int) -> dict[str, int]:
    """Punts a first packet. Returns the metadata with which it is re-injected."""
    before = len(world.client.sent)
    world.miss(frame, *args, **known)
    return (await world.sent(before + 1))[before]


async def cached(world: PolicyWorld, pair: tuple[str, str]) -> int:
    """Caches a flow of a pair. Returns the number of its bundle."""
    got = await answered(world, udp(pair))
    assert got["verdict"] == PROTECT
    destination = parse_address(pair[1])
    await world.until(lambda: destination in {s.key.destination for s in world.switch.live()})
    return got["sa_bundle"]


def live(world: PolicyWorld) -> dict[bytes, int]:
    """Returns the bundle of each live flow by its destination."""
    return {slot.key.destination: one.bundle for slot, one in world.switch.live().items()}


def sas(switch: FakeSwitch) -> dict[int, int]:
    """Returns the number of the outbound SA of each bundle in the switch."""
    return {
        key.bundle: value.sa
        for key, value in switch.of(EntityKind.OUTBOUND_SA).items()
        if isinstance(key, BundleInVrf) and isinstance(value, Encrypt)
    }


def test_each_pair_gets_its_own_sa_and_others_get_none(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        (row,) = await add(world, "b", PAIR_B, 0x200)
        assert (row["bundle"], row["traffic"]) == ("branch", "10.1.0.2 > 10.2.0.2")
        assert row["state"] == "in use"
        await add(world, "whole", None, 0x300)
        a, b = number(world, PAIR_A), number(world, PAIR_B)
        assert set(sas(world.switch)) == {a, b, 5}
        assert len(set(sas(world.switch).values())) == 3
        assert (await cached(world, PAIR_A), await cached(world, PAIR_B)) == (a, b)
        # An SA without `traffic` serves only the rule without `from_packet`.
        assert await cached(world, PAIR_C) == without_sa(world)
        assert without_sa(world) not in sas(world.switch)
        assert await cached(world, ("10.1.0.3", "10.3.0.1")) == 5
        rows = await world.ask("show", what="sas", bundle="branch")
        assert len(rows) == 3

    run_pairs(scenario)


def test_a_cached_flow_without_sa_goes_before_the_rules_change(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        for pair in (PAIR_A, PAIR_B, PAIR_C, *((f"10.1.1.{n}", "10.2.1.1") for n in range(9))):
            await cached(world, pair)
        before = world.state("corp", OUTBOUND)
        seen: list[set[bytes]] = []

        def look(_: UpdateType, kind: EntityKind, __: object) -> int:
            if kind is EntityKind.OUTBOUND_LIST:
                seen.append({slot.key.source for slot in world.switch.live()})
            return 0

        world.switch.refuse = look
        await add(world, "b", PAIR_B, 0x200)
        source = parse_address(PAIR_B[0])
        assert [source in one for one in seen] == [False]
        assert len(seen[0]) == 11, "the other flows stay"
        assert world.state("corp", OUTBOUND).version.epoch == before.version.epoch
        assert await cached(world, PAIR_B) == number(world, PAIR_B)
        # A packet for which the old rules were searched has the old generation, so it is dropped.
        assert world.state("corp", OUTBOUND).version.generation > before.version.generation

    run_pairs(scenario)


def test_an_sa_that_is_deleted_under_a_live_flow(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        await add(world, "b", PAIR_B, 0x200)
        a, b = await cached(world, PAIR_A), await cached(world, PAIR_B)
        await world.ask("sa del", name="a")
        await world.until(lambda: a not in sas(world.switch))
        await world.until(lambda: instance(PAIR_A) not in world.policy.instances.in_force)
        assert set(sas(world.switch)) == {b}
        assert live(world).get(parse_address(PAIR_A[1])) is None
        assert await cached(world, PAIR_A) == without_sa(world)
        # The number of PAIR_A's instance is not given to the next pair.
        await add(world, "c", PAIR_C, 0x300)
        assert number(world, PAIR_C) not in (a, b)
        assert await cached(world, PAIR_C) == number(world, PAIR_C)
        assert await cached(world, PAIR_A) == without_sa(world)

    run_pairs(scenario)


def test_numbers_of_the_switch_are_not_released(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        a = number(world, PAIR_A)

        def refuse(operation: UpdateType, kind: EntityKind, _: object) -> int:
            is_it = kind is EntityKind.OUTBOUND_SA and operation is UpdateType.DELETE
            return 13 if is_it else 0

        world.switch.refuse = refuse
        await world.ask("sa del", name="a")
        await world.until(lambda: instance(PAIR_A) not in world.policy.instances.in_force)
        assert a in sas(world.switch), "the switch has refused to delete it"
        assert number(world, PAIR_A) == a
        assert await cached(world, PAIR_A) == without_sa(world)

    run_pairs(scenario)


def test_inbound_packets_must_have_the_values_of_their_sa(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        await add(world, "b", PAIR_B, 0x200)
        # The SA's own packets go from the peer's host to ours.
        await add_inbound(world, "back", PAIR_A[::-1], 0x1000)
        a, b = number(world, PAIR_A), number(world, PAIR_B)
        decrypt = world.switch.of(EntityKind.INBOUND_SA)[InboundSpi(0, 0x1000)]
        assert isinstance(decrypt, Decrypt)
        assert decrypt.bundle == a, "both directions of a pair have one bundle"
        for carrier, pair, expected in (
            (a, PAIR_A, a),
            (a, PAIR_B, b),  # carried by another pair's SA: the switch compares the bundles
            (a, PAIR_C, without_sa(world)),
            (b, PAIR_A, a),
            (5, PAIR_A, a),
        ):
            got = await answered(world, udp(pair[::-1]), INBOUND, bundle=carrier)
            assert (got["verdict"], got["sa_bundle"]) == (PROTECT, expected)

    run_pairs(scenario)


def test_a_packet_without_sa_is_reported_with_its_values(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        await cached(world, PAIR_C)
        state = world.state("corp", OUTBOUND)
        (rule,) = [
            one
            for one, each in zip(state.rule_ids, state.rules, strict=True)
            if each.bundle == "branch (no SA)"
        ]
        drops = world.controller.packets.drop_reasons
        (no_sa,) = [reason for reason, name in drops.items() if name == "NO_SA"]
        assert any(
            key == "NO_SA" for kind, key in world.switch.entities if kind is EntityKind.COPIED_DROP
        )

        def drop(bundle: int, rule_id: int, pair: tuple[str, str]) -> None:
            known = {"drop_reason": no_sa, "sa_bundle": bundle, "rule": rule_id}
            packet = punt(udp(pair), "ACQUIRE", list_id=state.list_id, verdict=PROTECT, **known)
            world.client.punt((packet.frame, tuple(packet[1:])))

        for _ in range(3):
            drop(without_sa(world), rule, PAIR_C)
        drop(5, rule, PAIR_B)  # its rule populates nothing
        drop(number(world, PAIR_A), 0, PAIR_A)  # has an instance, but its SA has expired
        counters = world.controller.acquires.counters
        await world.until(lambda: counters["SAs wanted"] == 2)
        assert counters["SAs wanted: held back"] == 2
        lines = [line for line in world.audit_lines() if line["event"] == "sa wanted"]
        assert [line["traffic"] for line in lines] == [
            {"source": "10.1.0.3", "destination": "10.2.0.3"},
            {"source": "10.1.0.1", "destination": "10.2.0.1"},
        ]
        assert (lines[0]["to"], lines[0]["rule"], lines[0]["spd"]) == ("branch", "pairs", "corp")
        assert (lines[0]["source_port"], lines[0]["destination_port"]) == (5000, 7000)

    run_pairs(scenario)


def test_a_commit_that_fails_is_tried_again(
    run_pairs: RunPairs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.policy.enforcement.ADDRESS_RETRY", 0.05)

    async def scenario(world: PolicyWorld) -> None:
        refused: list[EntityKind] = []

        def refuse(_: UpdateType, kind: EntityKind, __: object) -> int:
            if kind is EntityKind.OUTBOUND_LIST and len(refused) < 2:
                refused.append(kind)
                return 13
            return 0

        world.switch.refuse = refuse
        await add(world, "a", PAIR_A)
        assert len(refused) == 2
        assert await cached(world, PAIR_A) == number(world, PAIR_A)

    run_pairs(scenario)


@pytest.mark.parametrize("seed", range(4))
def test_in_no_state_of_the_switch_a_flow_has_the_sa_of_another_pair(
    run_pairs: RunPairs, tmp_path: Path, seed: int
) -> None:
    """SAs are added and deleted at random while packets arrive. After each write, every valid flow
    is compared with the SA that the switch would use for it. Then the controller restarts, twice,
    the second time without its record."""
    chance = random.Random(seed)
    switch = FakeSwitch(CODEC)
    pairs = [(f"10.1.0.{n}", f"10.2.0.{n}") for n in range(1, 5)]
    names: dict[int, int] = {}
    """Maps SPIs to the index of their pair."""
    compared: Counter[str] = Counter()

    def check(world: PolicyWorld) -> None:
        engine = world.engines[1]
        assert isinstance(engine, PlayedEngine)
        spi_of = {one.number: one.settings.spi for one in engine.held.values()}
        serving = sas(switch)
        for flow_slot, flow in switch.live().items():
            assert flow.action == PROTECT, "no packet of these pairs may leave in clear"
            number = serving.get(flow.bundle)
            compared["with SA" if number else "without SA"] += 1
            if number is not None:
                pair = pairs[names[spi_of[number]]]
                assert flow_slot.key.destination == parse_address(pair[1])

    async def scenario(world: PolicyWorld) -> None:
        switch.watch = lambda: check(world)
        for _ in range(12):
            at = chance.randrange(len(pairs))
            present = {one.name for one in world.controller.associations.table.wanted}
            name = f"sa-{at}"
            if chance.random() < 0.5:
                await answered(world, udp(pairs[chance.randrange(len(pairs))]))
            elif name in present:
                await world.ask("sa del", name=name)
            else:
                spi = 0x1000 + len(names)
                names[spi] = at
                path = tmp_path / f"key-{spi}"
                path.touch(mode=0o600)
                path.write_text(f"{spi:040x}")
                sa = (
                    f"{{name: {name}, bundle: branch, direction: outbound, spi: {spi},"
                    f" key_file: {path}, algorithm: aes-128-gcm, local: 10.0.0.1, remote: 10.0.0.2"
                )
                await _add(world, sa, pairs[at])
            await answered(world, udp(pairs[at]))
        check(world)
        switch.watch = lambda: None

    run_pairs(scenario, switch)
    run_pairs(scenario, switch)
    (tmp_path / FILE_NAME).unlink()
    run_pairs(scenario, switch)
    assert compared["with SA"] > 10
    assert compared["without SA"] > 10


@pytest.mark.parametrize("has_record", [True, False])
def test_after_a_restart_no_flow_names_another_instance(
    run_pairs: RunPairs, tmp_path: Path, has_record: bool
) -> None:
    switch = FakeSwitch(CODEC)
    numbers: dict[str, int] = {}

    async def before(world: PolicyWorld) -> None:
        for name, pair, spi in (("a", PAIR_A, 0x100), ("b", PAIR_B, 0x200), ("c", PAIR_C, 0x300)):
            await add(world, name, pair, spi)
        for pair in (PAIR_A, PAIR_B, PAIR_C):
            await cached(world, pair)
        # Without the record, a restart assigns numbers anew, and the first remaining pair would get
        # the first number.
        await world.ask("sa del", name="a")
        await world.until(lambda: instance(PAIR_A) not in world.policy.instances.in_force)
        await cached(world, PAIR_A)
        numbers.update(world.policy.numbers.by_name)

    run_pairs(before, switch)
    flows = {slot.key.destination: one.bundle for slot, one in switch.live().items()}
    if not has_record:
        (tmp_path / FILE_NAME).unlink()

    async def after(world: PolicyWorld) -> None:
        by_name = world.policy.numbers.by_name
        left = {instance(PAIR_B), instance(PAIR_C)}
        await world.until(lambda: world.policy.instances.in_force == left)
        if has_record:
            assert {name: by_name[name] for name in by_name} == {
                name: numbers[name] for name in by_name
            }
            assert live(world) == flows, "all flows are still valid"
        else:
            assert live(world) == {}, "no flow is valid"
        await world.until(lambda: len(sas(world.switch)) == 2)
        serving = sas(world.switch)
        held = {one.number: one.settings.spi for one in world.engines[1].held.values()}  # type: ignore[attr-defined]
        for pair, spi in ((PAIR_B, 0x200), (PAIR_C, 0x300)):
            bundle = await cached(world, pair)
            assert bundle == by_name[instance(pair).name]
            assert held[serving[bundle]] == spi
        assert await cached(world, PAIR_A) not in serving

    run_pairs(after, switch)


def test_a_rekey_keeps_the_instance(run_pairs: RunPairs, tmp_path: Path) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        a, first = await cached(world, PAIR_A), sas(world.switch)
        key_file = str(tmp_path / "d")
        await world.ask("sa rekey", name="a", spi=0x101, key_file=key_file)
        await world.until(lambda: sas(world.switch) != first)
        assert set(sas(world.switch)) == {a}
        assert live(world)[parse_address(PAIR_A[1])] == a

    run_pairs(scenario)


def test_a_bundle_without_later_fragments_has_none_in_its_instances(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        later = ethernet(ipv4(*PAIR_A, bytes(24), 17, fragment_offset=8))
        world.miss(later)
        await world.counted("dropped: later fragment, its bundle carries none")

    run_pairs(scenario, more=", later_fragments: false")


def test_instances_are_in_the_rule_tables(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        def tables() -> dict[int, set[int]]:
            """Returns the bundles in each rule set of the outbound table."""
            sets: dict[int, set[int]] = {}
            for key, value in world.switch.of(EntityKind.OUTBOUND_RULE).items():
                if isinstance(value, RuleVerdict) and isinstance(key, RuleEntry) and value.bundle:
                    sets.setdefault(key.rule_set, set()).add(value.bundle)
            return sets

        await add(world, "a", PAIR_A)
        await world.until(
            lambda: [*tables().values()] == [{number(world, PAIR_A), without_sa(world), 5}]
        )
        await add(world, "b", PAIR_B, 0x200)
        await world.ask("sa del", name="a")
        await world.until(
            lambda: [*tables().values()] == [{number(world, PAIR_B), without_sa(world), 5}]
        )

    run_pairs(scenario, mode="cache+rules")


def test_commits_keep_the_instances(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        a = await cached(world, PAIR_A)
        rule = "{name: first, action: discard, protocol: tcp, destination_ports: [81]}"
        at = {"spd": "corp", "direction": "outbound"}
        await world.ask("spd add", rule=rule, at="first", **at)
        assert await cached(world, PAIR_A) == a
        await world.ask("spd delete", name="pairs", **at)
        # The inbound list still names the instance. In the outbound list, no rule uses it.
        assert instance(PAIR_A).name not in {
            one.bundle for one in world.state("corp", OUTBOUND).rules
        }
        assert (await world.ask("spd rollback", commit=1))["changed"]
        assert await cached(world, PAIR_A) == a

    run_pairs(scenario)


def test_a_reload_of_sas_changes_the_instances(run_pairs: RunPairs, tmp_path: Path) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        (stored,) = world.controller.associations._stored
        await world.ask("sa del", name="a")
        await world.until(lambda: not world.policy.instances.in_force)
        world.controller.associations.set_configured([stored.sa])
        await world.until(lambda: world.policy.instances.in_force == {instance(PAIR_A)})
        assert await cached(world, PAIR_A) == number(world, PAIR_A)

    run_pairs(scenario)


def test_what_is_explained(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        world.routes.put(route("10.2.0.0/16", gateway("10.0.1.9", 1)))
        world.kernel.put(neighbor(1, "10.0.1.9", 4))
        await world.until(lambda: slot("10.2.0.0/16") in world.switch.of(EntityKind.ROUTE))
        await add(world, "a", PAIR_A)
        expected = {
            PAIR_A: ("protected", "bundle branch (10.1.0.1 > 10.2.0.1)"),
            PAIR_B: ("dropped", "NO_SA"),
        }
        for pair, outcome in expected.items():
            found = await world.ask("explain", text=f"udp {pair[0]}:5 > {pair[1]}:7")
            assert tuple(found["outcome"].values()) == outcome
            (outbound,) = found["outbound"]
            assert outbound["matches"][-1]["name"] == "pairs"

    run_pairs(scenario)


def test_flows_of_a_bundle_are_those_of_its_instances(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        for pair in (PAIR_A, PAIR_B):
            await cached(world, pair)
        for bundle, expected in (("branch", 2), (instance(PAIR_A).name, 1)):
            flows = await world.ask("show", what="flows", bundle=bundle)
            rows = flows["flows"] if isinstance(flows, dict) else flows
            assert len(rows) == expected, bundle

    run_pairs(scenario)


def test_a_bundle_whose_sas_are_installed_by_hand_is_warned_of(tmp_path: Path) -> None:
    by_hand = "{name: pairs, action: protect, bundle: branch, from_packet: source}"
    path = tmp_path / "r1.yaml"
    path.write_text(filled(CONFIG, tmp_path))
    texts = {"corp": parse_spd(f"spd: corp\noutbound: [{by_hand}]\n", "x", lambda _: None)}
    (report,) = Checker(load_config(path)).report(texts)
    assert [one for one in report["warnings"] if "by hand" in one] == [
        "corp: the outbound rule 'pairs' with `from_packet` can have no SA: the SAs of the bundle"
        " are installed by hand"
    ]


def test_what_is_shown_and_exported(run_pairs: RunPairs) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await add(world, "a", PAIR_A)
        (shown,) = [
            one for one in await world.ask("show", what="spd") if one["direction"] == "outbound"
        ]
        rules = [(one["position"], one["name"]) for one in shown["rules"] if not one["generated"]]
        assert rules == [(1, "web"), (None, "pairs:10.1.0.1 > 10.2.0.1"), (2, "pairs"), (3, "rest")]
        texts = [one["text"] for one in shown["rules"] if one["name"].startswith("pairs")]
        assert texts == [
            "protect(branch (10.1.0.1 > 10.2.0.1)) 10.1.0.1 -> 10.2.0.1",
            "protect(branch (no SA)) 10.1.0.0/16 -> 10.2.0.0/16 from-packet source,destination",
        ]
        exported = await world.ask("spd export", spd="corp")
        assert [rule["name"] for rule in exported["outbound"]] == ["web", "pairs", "rest"]
        assert exported["outbound"][1]["bundle"] == "branch"
        assert exported["outbound"][1]["from_packet"] == ["source", "destination"]

    run_pairs(scenario)


# -- the numbers of instances


def test_an_instance_keeps_its_number_while_an_sa_or_a_list_names_it() -> None:
    numbers = BundleNumbers({"branch": 5}, {})
    instances = BundleInstances(numbers)
    a, b = instance(PAIR_A), instance(PAIR_B)
    instances.want([a])
    assert (instances.number_of(a), instances.named(FIRST)) == (FIRST, a)
    assert numbers.configured_number(FIRST) == 5
    assert numbers.name_of(FIRST) == a.name
    assert not instances.is_in_force(FIRST)
    instances.listed = instances.in_force = instances.wanted
    assert instances.is_in_force(FIRST)
    instances.want([b])
    assert numbers.retain(instances.names()) == []
    instances.listed = instances.in_force = instances.wanted
    assert numbers.retain(instances.names()) == [(a.name, FIRST)]
    assert (numbers.name_of(FIRST), numbers.configured_number(FIRST)) == (None, FIRST)
    instances.want([a, b])
    assert instances.number_of(a) == FIRST + 2, "a number is reused as late as possible"


def test_instances_without_a_number_are_not_wanted() -> None:
    known = {f"other-{number}": number for number in range(FIRST, LAST)}
    instances = BundleInstances(BundleNumbers({"branch": 5} | known, {}))
    a, b = instance(PAIR_A), instance(PAIR_B)
    instances.want([a, b])
    assert instances.wanted == {a}
    assert (instances.number_of(a), instances.number_of(b)) == (LAST, None)


def test_a_set_of_bundles_contains_their_instances() -> None:
    numbers = BundleNumbers({"branch": 5, "other": 6}, {})
    numbers.add([instance(PAIR_A).name, "branch (no SA)", "other (no SA)"])
    bundles = WithInstances({5}, numbers)
    assert [number in bundles for number in (5, 6, FIRST, FIRST + 1, FIRST + 2)] == [
        *(True, False),
        *(True, True, False),
    ]

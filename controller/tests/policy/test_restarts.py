# SPDX-License-Identifier: Apache-2.0
"""Tests where packets could go at each moment of a restart with another configuration.

After each update that the switch applies (each write, if writes are atomic), the test follows all
paths through the pipeline. A path begins at an attachment (a port and VLAN). It passes the inbound
list, the route, the next hop's interface and the outbound list, and ends at a port.

Each path must belong as a whole to the old configuration or to the new one. It must not combine
lists of both configurations. It must not combine a route of one with an interface number of the
other.
"""

from __future__ import annotations

import asyncio
import os
import random
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from fake_switch import FakeSwitch
from policy_world import CODEC, STAGE_OUTBOUND, PolicyWorld, RunScenario, tcp
from scenes import address, gateway, neighbor, route, slot
from sluice.entities import (
    Attachment,
    Egress,
    EntityKey,
    EntityKind,
    EntityValue,
    L3Interface,
    ListBinding,
    ListState,
    Nexthop,
    PortRole,
    RouteTarget,
    RouteTargetKind,
)
from sluice.policy.spdstore import SpdStore
from test_punts import punt

NAMES = ("eth1", "eth2", "eth3")
RESTARTS = 12
SEEDS = int(os.environ.get("SLUICE_RESTART_SEEDS", "4"))
PREFIXES = {f"20.0.{n}.0/24": n for n in (1, 2, 3)}
"""Maps each routed prefix to the number in the name of its egress interface (1 is eth1)."""
RawList = tuple[int, int]  # the list's number and its epoch


class PacketPath(NamedTuple):
    """Describes a path of packets: attachment, inbound list, prefix, outbound list, attachment.

    List 0 means that the interface has no policy.
    """

    came: Attachment
    inbound: RawList | int
    prefix: str
    outbound: RawList | int
    leaves: Attachment


@dataclass(frozen=True)
class PolicySetting:
    """Holds the part of a configuration that an operator changes between two runs."""

    order: tuple[str, ...]
    ports: dict[str, int]
    guards: dict[str, str]
    vrfs: dict[str, str]
    rules: dict[str, tuple[str, str]]
    """Names of the inbound and the outbound rule, by SPD."""

    def text(self, state: Path, target: str) -> str:
        lines = [f"router: r1\nstate_dir: {state}\nswitch: {{target: {target}}}\n"]
        lines.append("vrfs: {red: {table: 100}}\ninterfaces:\n")
        lines += [
            f"  - {{name: {name}, port: {self.ports[name]}, spd: {self.guards[name]},"
            f' vrf: {self.vrfs[name]}, mac: "02:00:00:00:01:0{name[-1]}"}}\n'
            for name in self.order
        ]
        lines.append("engines: [{id: 1, port: 9}]\nspds:\n")
        lines += [
            f"  - name: {spd}\n    flow_cache: {{size: 100, idle_timeout: 60}}\n"
            f"    inbound: [{{name: {inbound}, action: bypass}}]\n"
            f"    outbound: [{{name: {outbound}, action: bypass}}]\n"
            for spd, (inbound, outbound) in self.rules.items()
        ]
        return "".join(lines)

    def paths(self) -> set[tuple[Attachment, str, str, str, Attachment]]:
        """Returns all paths of this configuration, with names of rules in place of lists."""
        found = set()
        for came in NAMES:
            for prefix, n in PREFIXES.items():
                leaves = f"eth{n}"
                if self.vrfs[came] == self.vrfs[leaves] == "default":
                    rules = self._rules(came, 0), self._rules(leaves, 1)
                    found.add((self._at(came), rules[0], prefix, rules[1], self._at(leaves)))
        return found

    def _at(self, name: str) -> Attachment:
        return Attachment(self.ports[name], 0)

    def _rules(self, name: str, direction: int) -> str:
        guard = self.guards[name]
        return "none" if guard == "none" else self.rules[guard][direction]


def draw(dice: random.Random, before: PolicySetting | None) -> PolicySetting:
    """Returns a random configuration. Parts of the configuration may be taken from `before`."""
    spds = dice.sample(["corp", "edge", "rim", "hub"], 3)
    drawn = {spd: (f"i{dice.randrange(3)}", f"o{dice.randrange(3)}") for spd in spds}
    setting = PolicySetting(
        order=tuple(dice.sample(NAMES, 3)),
        ports=dict(zip(NAMES, dice.sample([1, 2, 3, 4], 3), strict=True)),
        guards={name: dice.choice([*spds, "none"]) for name in NAMES},
        vrfs={name: dice.choice(["default", "default", "red"]) for name in NAMES},
        rules=drawn,
    )
    if before is None:
        return setting
    known = {spd: before.rules[spd] for spd in spds if spd in before.rules if dice.random() < 0.5}
    guards = {name: old for name, old in before.guards.items() if old in (*spds, "none")}
    return PolicySetting(
        order=setting.order if dice.random() < 0.5 else before.order,
        ports=setting.ports if dice.random() < 0.3 else before.ports,
        guards=setting.guards if dice.random() < 0.3 else setting.guards | guards,
        vrfs=setting.vrfs if dice.random() < 0.3 else before.vrfs,
        rules=drawn | known,
    )


class Observer:
    """Records all paths through the switch after each of its changes."""

    def __init__(self, switch: FakeSwitch) -> None:
        self._switch = switch
        self.seen: set[PacketPath] = set()
        self.names: dict[tuple[str, RawList], str] = {}

    def look(self) -> None:
        self.seen |= self.now()

    def now(self) -> set[PacketPath]:
        of = self._switch.of
        return {
            way
            for came, interface in of(EntityKind.L3_INTERFACE).items()
            if isinstance(came, Attachment) and isinstance(interface, L3Interface)
            if interface.role is PortRole.ROUTER
            for prefix in PREFIXES
            if (way := self._follow(came, interface, prefix)) is not None
        }

    def _follow(self, came: Attachment, interface: L3Interface, prefix: str) -> PacketPath | None:
        inbound = self._asked(EntityKind.INBOUND_BINDING, EntityKind.INBOUND_LIST, interface.l3_if)
        target = self._switch.of(EntityKind.ROUTE).get(slot(prefix)._replace(vrf=interface.vrf))
        if inbound is None or not isinstance(target, RouteTarget):
            return None
        assert target.kind is RouteTargetKind.NEXTHOP
        nexthop = self._switch.of(EntityKind.NEXTHOP).get(target.id)
        if not isinstance(nexthop, Nexthop) or not nexthop.up:
            return None
        outbound = self._asked(EntityKind.OUTBOUND_BINDING, EntityKind.OUTBOUND_LIST, nexthop.l3_if)
        egress = self._switch.of(EntityKind.EGRESS_INTERFACE).get(nexthop.l3_if)
        if outbound is None or not isinstance(egress, Egress):
            return None
        return PacketPath(came, inbound, prefix, outbound, Attachment(egress.port, egress.vlan))

    def _asked(self, binding: EntityKind, lists: EntityKind, l3_if: int) -> RawList | int | None:
        """Returns the number of the list that applies to an interface, or 0 if no list applies.

        Returns None if the switch drops the interface's packets.
        """
        bound = self._get(binding, l3_if)
        if not isinstance(bound, ListBinding):
            return None
        if not bound.list_id:
            return 0
        state = self._get(lists, bound.list_id)
        if not isinstance(state, ListState) or not state.epoch:
            return None
        return bound.list_id, state.epoch

    def _get(self, kind: EntityKind, key: EntityKey) -> EntityValue | None:
        return self._switch.of(kind).get(key)

    def learn(self, world: PolicyWorld) -> None:
        """Records which rule each list has in its current epoch."""
        for state in world.policy.table.lists.values():
            names = [rule.name for rule in state.rules if not rule.generated]
            self.names[state.direction.value, (state.list_id, state.version.epoch)] = names[0]

    def expected(self, paths: set[PacketPath]) -> set[tuple[Attachment, str, str, str, Attachment]]:
        return {
            (
                way.came,
                self._expected("inbound", way.inbound),
                way.prefix,
                self._expected("outbound", way.outbound),
                way.leaves,
            )
            for way in paths
        }

    def _expected(self, direction: str, raw: RawList | int) -> str:
        return self.names[direction, raw] if isinstance(raw, tuple) else "none"


async def routed(world: PolicyWorld) -> None:
    """Announces neighbours and routes, and waits until the switch has all entries."""
    for n in (1, 2, 3):
        world.kernel.put(neighbor(n, f"10.0.{n}.9", n))
        prefix = next(prefix for prefix, by in PREFIXES.items() if by == n)
        world.routes.put(route(prefix, gateway(f"10.0.{n}.9", n)))
    await asyncio.wait_for(world.ready.wait(), 5)
    await world.synced()


class Router:
    """Runs controllers with one switch, one after the other."""

    def __init__(self, run_scenario: RunScenario, state: Path, target: str) -> None:
        self._play, self._state, self._target = run_scenario, state, target
        self._switch = FakeSwitch(CODEC)
        self._observer = Observer(self._switch)
        self._before: PolicySetting | None = None

    def run(self, setting: PolicySetting) -> None:
        """Starts a controller with this configuration, and checks the paths through the switch.

        At the end, all paths must belong to this configuration. Before, each may belong to this
        configuration or to the previous one.
        """
        observer = self._observer

        async def scenario(world: PolicyWorld) -> None:
            # The reconciler writes all entries that do not depend on policy.
            reconciler = world.controller.reconciler
            await world.until(lambda: reconciler.compared and not reconciler.pending)
            for n in (1, 2, 3):
                world.kernel.put(address(n, f"10.0.{n}.1/24"))
            world.links()
            await routed(world)
            observer.learn(world)
            assert observer.expected(observer.now()) == setting.paths()

        self._switch.watch = observer.look
        observer.seen.clear()
        SpdStore(self._state).forget_committed()
        text = setting.text(self._state, self._target)
        self._play(scenario, self._switch, text=text, numbered=True)
        allowed = setting.paths() | (self._before.paths() if self._before else set())
        assert observer.expected(observer.seen) - allowed == set()
        self._before = setting


TARGETS = pytest.mark.parametrize("target", ["sluice-switch", "bmv2"])


@TARGETS
@pytest.mark.parametrize("seed", range(SEEDS))
def test_no_packet_meets_a_mix(
    run_scenario: RunScenario, tmp_path: Path, seed: int, target: str
) -> None:
    dice = random.Random(seed)
    router = Router(run_scenario, tmp_path, target)
    setting: PolicySetting | None = None
    for _ in range(RESTARTS):
        setting = draw(dice, setting)
        router.run(setting)
        if dice.random() < 0.2:
            (tmp_path / "interfaces.json").unlink()


SAME = dict.fromkeys(NAMES, "corp")
PLAIN = PolicySetting(
    order=NAMES,
    ports={"eth1": 1, "eth2": 2, "eth3": 3},
    guards=SAME,
    vrfs=dict.fromkeys(NAMES, "default"),
    rules={"corp": ("i0", "o0"), "edge": ("i1", "o1")},
)


@TARGETS
@pytest.mark.parametrize(
    "change",
    [
        {"ports": {"eth1": 4, "eth2": 2, "eth3": 3}},
        {"ports": {"eth1": 2, "eth2": 1, "eth3": 3}},
        {"guards": SAME | {"eth1": "none", "eth2": "edge"}},
        {"vrfs": dict.fromkeys(NAMES, "default") | {"eth1": "red"}},
        {"order": NAMES[::-1]},
        {"order": NAMES[::-1], "ports": {"eth1": 3, "eth2": 2, "eth3": 1}},
    ],
    ids=["a port moves", "two ports change places", "guards", "a vrf", "order", "names"],
)
def test_with_other_rules_at_the_same_time(
    run_scenario: RunScenario, tmp_path: Path, change: dict[str, Any], target: str
) -> None:
    """Checks the paths during a change of interfaces and rules, during the reverse change, and
    during the first change again when the file of interface numbers is missing."""
    router = Router(run_scenario, tmp_path, target)
    changed = replace(PLAIN, rules={"corp": ("i2", "o2"), "edge": ("i1", "o1")}, **change)
    for setting in (PLAIN, changed, PLAIN):
        router.run(setting)
    (tmp_path / "interfaces.json").unlink()
    router.run(changed)


def test_a_packet_that_overtakes_the_acknowledgement_of_its_list_is_sent_on(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    """Checks that the controller handles a packet of a new list whose write is not acknowledged
    yet.

    An interface gets another SPD. The switch already uses the new list for a packet and punts it,
    but the controller has not read the acknowledgement yet. The packet must get its verdict.
    """
    switch = FakeSwitch(CODEC)
    settings = (
        replace(PLAIN, rules={"corp": PLAIN.rules["corp"]}),
        replace(PLAIN, guards=SAME | {"eth2": "edge"}),
    )
    asked: list[int] = []

    async def first(world: PolicyWorld) -> None:
        await world.began()

    async def second(world: PolicyWorld) -> None:
        before = switch.of(EntityKind.OUTBOUND_BINDING)[2]

        def look() -> None:
            now = switch.of(EntityKind.OUTBOUND_BINDING).get(2)
            if not asked and isinstance(now, ListBinding) and now != before:
                state = switch.of(EntityKind.OUTBOUND_LIST)[now.list_id]
                assert isinstance(state, ListState)
                asked.append(now.list_id)
                packet = punt(
                    tcp(80),
                    "OUTBOUND_MISS",
                    stage=STAGE_OUTBOUND,
                    list_id=now.list_id,
                    generation=state.generation,
                )
                world.client.punt((packet.frame, tuple(packet[1:])))

        world.switch.watch = look
        await world.began()
        (sent,) = await world.sent()
        assert sent["list_id"] == asked[0]
        counted = world.policy.searched
        assert [number for (list_id, _), number in counted.items() if list_id == asked[0]] == [1]

    for setting, scenario in zip(settings, (first, second), strict=True):
        run_scenario(scenario, switch, text=setting.text(tmp_path, "sluice-switch"))

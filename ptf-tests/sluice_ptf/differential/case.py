# SPDX-License-Identifier: Apache-2.0
"""Holds a differential case: table entries and packets, as data that a file can hold.

Entries use names instead of ids (schema.py). So a case stays valid if ids are renumbered, and its
file reads like a configuration.

Invariant: no route and no other group uses the next hops of a group's members. canonical.py relies
on this.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from p4.v1 import p4runtime_pb2

from sluice_ptf.network import Interface, Member, Nexthop
from sluice_ptf.probe import FromCpu, FromPort, Probe, ProbeOutcome, Send
from sluice_ptf.router import Router
from sluice_ptf.runtime import Count, RuntimeClient
from sluice_ptf.schema import Match, Value

GROUP_IDS = 1000  # ids of groups' next hops and interfaces start here
RULE_IDS = (0, 1, 2, 3, 4, 65535, 65536, 1048575)  # rule ids whose counters are compared
COUNTED = ("l3_interface", "nexthop", "engine")  # compared direct counters, with flow tables
_NOWHERE = Interface(id=0, port=0, mac="00:00:00:00:00:00")


@dataclass(frozen=True)
class TableEntry:
    """Holds a table entry, with all parts by name. Only entries of rule tables have a priority."""

    table: str
    match: Mapping[str, Match]
    action: str
    params: Mapping[str, Value] = field(default_factory=dict)
    priority: int = 0

    @property
    def key(self) -> str:
        """Returns the entry's identity: its table, its match fields and its priority."""
        priority = f" {self.priority}" if self.priority else ""
        return f"{self.table} {sorted(self.match.items())}{priority}"

    def on(self, router: Router) -> p4runtime_pb2.TableEntry:
        """Returns the entry as a P4Runtime message."""
        entry = router.entry(self.table, self.match, self.action, **self.params)
        entry.priority = self.priority
        return entry


@dataclass(frozen=True)
class SelectorGroup:
    """Holds a next-hop group. `members` maps a next hop to its weight."""

    id: int
    members: Mapping[int, int]


@dataclass(frozen=True)
class TableState:
    """Holds all table entries and groups that are written before the packets are sent."""

    entries: Sequence[TableEntry] = ()
    groups: Sequence[SelectorGroup] = ()

    def install(self, router: Router) -> None:
        """Writes all entries and groups. The router's `undo` deletes them."""
        router.insert(*(entry.on(router) for entry in self.entries))
        for group in self.groups:
            router.group(group.id, _members(group))

    def change_to(self, other: TableState, router: Router) -> None:
        """Changes the tables in the switch from this state to `other`: deletes, modifies, then
        inserts entries.
        """
        before = {entry.key: entry for entry in self.entries}
        after = {entry.key: entry for entry in other.entries}
        kept = before.keys() & after.keys()
        groups = {group.id: group for group in other.groups}
        for group in self.groups:
            if group.id in groups:
                _change_group(router, group, groups.pop(group.id))
            else:
                router.delete_group(group.id, _members(group))
        router.delete(*(before[key].on(router) for key in sorted(before.keys() - kept)))
        router.modify(*(after[key].on(router) for key in kept if before[key] != after[key]))
        router.insert(*(after[key].on(router) for key in sorted(after.keys() - kept)))
        for group in groups.values():
            router.group(group.id, _members(group))

    def of(self, table: str) -> list[TableEntry]:
        """Returns the entries of one table."""
        return [entry for entry in self.entries if entry.table == table]


def _members(group: SelectorGroup) -> list[Member]:
    return [
        Member(Nexthop(nexthop, _NOWHERE, ""), weight) for nexthop, weight in group.members.items()
    ]


def _change_group(router: Router, before: SelectorGroup, after: SelectorGroup) -> None:
    gone = [one for one in _members(before) if one.nexthop.id not in after.members]
    new = [one for one in _members(after) if one.nexthop.id not in before.members]
    router.insert(*(router.member(member) for member in new))
    router.modify(router.group_of(after.id, _members(after)))
    router.delete(*(router.member(member) for member in gone))


@dataclass(frozen=True)
class DifferentialCase:
    """Holds a case: tables and packets.

    The tables go through the states `earlier`, in order, before they reach `state`. Then the
    packets are sent.
    """

    description: str
    state: TableState
    packets: Sequence[Send]
    earlier: Sequence[TableState] = ()


Counts = Mapping[str, Count]


class SwitchUnderTest:
    """Runs cases on one of the two targets that are compared."""

    def __init__(self, name: str, client: RuntimeClient, probe: Probe):
        self.name = name
        self._client = client
        self._probe = probe

    def run(self, case: DifferentialCase) -> tuple[ProbeOutcome, Counts]:
        """Sends all packets in one run. Returns their outcome, and the increments of the counters
        of table entries.
        """
        with self._installed(case) as router:
            before = self._counts(router, case.state)
            outcome = self._probe.exchange(case.packets)
            after = self._counts(router, case.state)
            return outcome, {key: count - before[key] for key, count in after.items()}

    def run_each(self, case: DifferentialCase) -> list[ProbeOutcome]:
        """Sends the packets one by one. Returns their outcomes, in order."""
        with self._installed(case):
            return [self._probe.exchange([packet]) for packet in case.packets]

    @contextlib.contextmanager
    def _installed(self, case: DifferentialCase) -> Iterator[Router]:
        router = Router(self._client, self._probe)
        states = [*case.earlier, case.state]
        try:
            states[0].install(router)
            for before, after in itertools.pairwise(states):
                before.change_to(after, router)
            if case.state.of("inbound.list_state") or case.state.of("outbound.list_state"):
                self._probe.rules = RULE_IDS
            yield router
        finally:
            router.undo()

    def _counts(self, router: Router, state: TableState) -> Counts:
        """Reads the counters of table entries.

        The next hops of group members and their interfaces are left out, because the target chooses
        among them.
        """
        entries = [
            entry
            for entry in state.entries
            if (entry.table in COUNTED or entry.table.endswith("_flow"))
            and int(str(entry.match.get("nexthop_id", 0))) < GROUP_IDS
        ]
        leaving = [int(str(entry.match["l3_if"])) for entry in state.of("egress_interface")]
        cells = [l3_if for l3_if in leaving if l3_if < GROUP_IDS]
        left = self._client.counter_cells("egress_interface_counter", cells)
        key = self._client.schema.entry
        return {one.key: router.count(key(one.table, one.match)) for one in entries} | {
            f"egress_interface {l3_if}": count for l3_if, count in left.items()
        }


def case_to_json(case: DifferentialCase) -> dict[str, Any]:
    """Returns the case as JSON data. Frames are in hexadecimal."""
    packets: list[dict[str, Any]] = []
    for packet in case.packets:
        if isinstance(packet, FromPort):
            packets.append({"port": packet.port, "frame": packet.frame.hex()})
        else:
            packets.append({"packet_out": dict(packet.metadata), "frame": packet.frame.hex()})
    return {
        "description": case.description,
        "earlier": [_state_to_json(state) for state in case.earlier],
        **_state_to_json(case.state),
        "packets": packets,
    }


def _state_to_json(state: TableState) -> dict[str, Any]:
    groups = [
        {"id": group.id, "members": {str(key): weight for key, weight in group.members.items()}}
        for group in state.groups
    ]
    return {"entries": [_entry_to_json(entry) for entry in state.entries], "groups": groups}


def _entry_to_json(entry: TableEntry) -> dict[str, Any]:
    row = asdict(entry)
    if not entry.priority:
        del row["priority"]
    return row


def _entry_from_json(row: Mapping[str, Any]) -> TableEntry:
    """Returns the entry of a row. JSON has lists in place of the tuples of masks and ranges."""
    match = {
        name: tuple(value) if isinstance(value, list) else value
        for name, value in row["match"].items()
    }
    return TableEntry(**{**row, "match": match})


def _state_from_json(data: Mapping[str, Any]) -> TableState:
    groups = [
        SelectorGroup(group["id"], {int(key): weight for key, weight in group["members"].items()})
        for group in data["groups"]
    ]
    return TableState([_entry_from_json(row) for row in data["entries"]], groups)


def case_from_json(data: Mapping[str, Any]) -> DifferentialCase:
    """Returns the case that `case_to_json` has converted to `data`."""
    packets: list[Send] = []
    for packet in data["packets"]:
        frame = bytes.fromhex(packet["frame"])
        if "port" in packet:
            packets.append(FromPort(packet["port"], frame))
        else:
            packets.append(FromCpu(frame, packet["packet_out"]))
    earlier = [_state_from_json(state) for state in data["earlier"]]
    return DifferentialCase(data["description"], _state_from_json(data), packets, earlier)

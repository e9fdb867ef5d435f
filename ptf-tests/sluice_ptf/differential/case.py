# SPDX-License-Identifier: Apache-2.0
"""A case: a table state and packets, as data that a file can hold.

Entries are by name (schema.py), so that a case outlives renumbered ids and
reads like the configuration it is. A group's members are next hops that no
route and no other group uses: canonical.py relies on it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from sluice_ptf.network import Interface, Member, Nexthop
from sluice_ptf.probe import FromCpu, FromPort, Outcome, Probe, Send
from sluice_ptf.router import Router
from sluice_ptf.runtime import Count, RuntimeClient
from sluice_ptf.schema import Match, Value

_NOWHERE = Interface(id=0, port=0, mac="00:00:00:00:00:00")


@dataclass(frozen=True)
class Entry:
    """A table entry by name."""

    table: str
    match: Mapping[str, Match]
    action: str
    params: Mapping[str, Value] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """A next-hop group: next hop to weight."""

    id: int
    members: Mapping[int, int]


@dataclass(frozen=True)
class State:
    """Everything that is written before the packets come."""

    entries: Sequence[Entry] = ()
    groups: Sequence[Group] = ()

    def install(self, router: Router) -> None:
        """Write it; the router's `undo` takes it back."""
        router.insert(
            *(router.entry(one.table, one.match, one.action, **one.params) for one in self.entries)
        )
        for group in self.groups:
            members = [
                Member(Nexthop(nexthop, _NOWHERE, ""), weight)
                for nexthop, weight in group.members.items()
            ]
            router.group(group.id, members)

    def of(self, table: str) -> list[Entry]:
        """Its entries of one table."""
        return [entry for entry in self.entries if entry.table == table]


@dataclass(frozen=True)
class Case:
    """A state, packets, and why they are together."""

    description: str
    state: State
    packets: Sequence[Send]


Counts = Mapping[str, Count]


class Subject:
    """One target under comparison."""

    def __init__(self, name: str, client: RuntimeClient, probe: Probe):
        self.name = name
        self._client = client
        self._probe = probe

    def run(self, case: Case) -> tuple[Outcome, Counts]:
        """All packets at once, and what entries counted."""
        with self._installed(case.state) as router:
            return self._probe.exchange(case.packets), self._counts(router, case.state)

    def run_each(self, case: Case) -> list[Outcome]:
        """What came of each packet, one after the other."""
        with self._installed(case.state):
            return [self._probe.exchange([packet]) for packet in case.packets]

    @contextlib.contextmanager
    def _installed(self, state: State) -> Iterator[Router]:
        router = Router(self._client, self._probe)
        try:
            state.install(router)
            yield router
        finally:
            router.undo()

    def _counts(self, router: Router, state: State) -> Counts:
        """Direct counters, but for those of group members, which are the selector's choice."""
        chosen = {nexthop for group in state.groups for nexthop in group.members}
        return {
            f"{entry.table} {dict(entry.match)}": router.count(
                self._client.schema.entry(entry.table, entry.match)
            )
            for entry in (*state.of("l3_interface"), *state.of("nexthop"))
            if entry.match.get("nexthop_id") not in chosen
        }


def case_to_json(case: Case) -> dict[str, Any]:
    """The form that files hold; frames in hexadecimal."""
    packets: list[dict[str, Any]] = []
    for packet in case.packets:
        if isinstance(packet, FromPort):
            packets.append({"port": packet.port, "frame": packet.frame.hex()})
        else:
            packets.append({"packet_out": dict(packet.metadata), "frame": packet.frame.hex()})
    groups = [
        {"id": group.id, "members": {str(key): weight for key, weight in group.members.items()}}
        for group in case.state.groups
    ]
    return {
        "description": case.description,
        "entries": [asdict(entry) for entry in case.state.entries],
        "groups": groups,
        "packets": packets,
    }


def case_from_json(data: Mapping[str, Any]) -> Case:
    """The case that `case_to_json` wrote."""
    packets: list[Send] = []
    for packet in data["packets"]:
        frame = bytes.fromhex(packet["frame"])
        if "port" in packet:
            packets.append(FromPort(packet["port"], frame))
        else:
            packets.append(FromCpu(frame, packet["packet_out"]))
    groups = [
        Group(group["id"], {int(key): weight for key, weight in group["members"].items()})
        for group in data["groups"]
    ]
    entries = [Entry(**entry) for entry in data["entries"]]
    return Case(data["description"], State(entries, groups), packets)

# SPDX-License-Identifier: Apache-2.0
"""Reduces the outcome of packets to the part that the P4 program determines. The rest is the
target's choice, and is not compared.

A target may choose any member of a next-hop group. So a packet that was sent to a member is shown
as sent to the group, without port, MAC addresses and tag, which differ between members. This is
enough, because in the compared tables all members of a group behave alike: all are resolved or
none, all have the same MTU, and no other group or route uses their next hops.

The program does not determine the order of packets either, so the lines are sorted.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from sluice_ptf.differential.case import TableState
from sluice_ptf.frames import mac_bytes, untagged
from sluice_ptf.probe import ProbeOutcome


@dataclass(frozen=True)
class Canonical:
    """Holds an outcome as sorted lines of text, which are compared."""

    lines: tuple[str, ...]

    def difference(self, other: Canonical) -> str:
        """Returns the lines that only one outcome has, as a diff. Empty if both are equal."""
        ours, theirs = Counter(self.lines), Counter(other.lines)
        text = [f"- {line}" for line in (ours - theirs).elements()]
        text += [f"+ {line}" for line in (theirs - ours).elements()]
        return "\n".join(text)


def canonical(outcome: ProbeOutcome, state: TableState) -> Canonical:
    """Returns the canonical form of an outcome of packets, sent through these tables."""
    group_of = {nexthop: group.id for group in state.groups for nexthop in group.members}
    group_by_mac = {
        mac_bytes(str(entry.params["dst_mac"])): group_of[int(entry.match["nexthop_id"])]
        for entry in state.of("nexthop")
        if entry.match["nexthop_id"] in group_of and entry.action == "set_neighbor"
    }
    lines = []
    for port, frame in outcome.out:
        group = group_by_mac.get(frame[:6])
        if group is None:
            lines.append(f"port {port}: {frame.hex()}")
        else:
            lines.append(f"group {group}: {untagged(frame)[12:].hex()}")
    for punt in outcome.punts:
        shown: dict[str, object] = {key: value for key, value in punt.metadata.items() if value}
        group = group_of.get(punt.metadata["nexthop_id"])
        if group is not None:
            shown |= {"nexthop_id": f"group {group}"}
            shown.pop("egress_l3_if", None)
        header = " ".join(f"{key}={value}" for key, value in shown.items())
        lines.append(f"punt {header}: {punt.frame.hex()}")
    for label in ("drops", "punted", "metered", "rules"):
        lines += [f"{label} {key}: {count}" for key, count in getattr(outcome, label).items()]
    return Canonical(tuple(sorted(lines)))

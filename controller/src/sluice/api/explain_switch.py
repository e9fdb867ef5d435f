# SPDX-License-Identifier: Apache-2.0
"""Traces a packet through the switch by dry runs, which send nothing, for `explain`.

If the switch would punt the packet to the controller for a verdict, `judge` supplies the verdict.
A further dry run re-injects the packet with this verdict, as the controller does. Depends on p4,
p4runtime and switch_path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sluice.model import PuntedPacket
from sluice.p4.packets import PacketSchema, PolicyAnswer, PuntReason
from sluice.p4runtime.session import Session
from sluice.policy.model import Action, Direction, Verdict
from sluice.switch_path import ListPass, SwitchPath, read_path

MOST_RUNS = 4
"""Largest number of dry runs of a packet. A packet can miss in two lists, which takes three runs. A
fourth run shows that the switch punts the packet again in spite of the verdict, by a bug."""

Judge = Callable[[int], Verdict | None]
"""Returns the verdict of the list with this number, or None if the controller would not answer
with a verdict."""

_MISSES = {PuntReason.INBOUND_MISS: Direction.INBOUND, PuntReason.OUTBOUND_MISS: Direction.OUTBOUND}
_LIST_PUNTS = frozenset({*_MISSES, PuntReason.FRAGMENT, PuntReason.EXTENSION_HEADERS})


class Ingress(NamedTuple):
    """Holds the port, interface and VRF by which a packet enters the switch.

    `port` and `l3_if` are 0 for a packet that this router sends.
    """

    port: int
    l3_if: int
    vrf: int


class SwitchAccount(NamedTuple):
    """Holds the dry runs of a packet, in order.

    `asked` has the directions of the lists for which the switch would punt the packet to get a
    verdict.
    """

    runs: list[SwitchPath]
    asked: list[Direction]

    @property
    def last(self) -> SwitchPath:
        """The last run, which ends with the packet's outcome."""
        return self.runs[-1]

    def list_pass(self, direction: Direction) -> ListPass | None:
        """Returns the packet's first lookup in the list of a direction, or None if there was none.

        Only the first run with this lookup counts: in later dry runs, the packet carries the
        controller's verdict.
        """
        passes = (run.lists.get(direction) for run in self.runs)
        return next((one for one in passes if one is not None), None)


class SwitchRunner:
    """Performs dry runs of packets. `cpu_port` is the switch's CPU port."""

    def __init__(self, session: Session, packets: PacketSchema, cpu_port: int) -> None:
        self._session = session
        self._packets = packets
        self._cpu_port = cpu_port

    async def run(self, frame: bytes, ingress: Ingress, judge: Judge) -> SwitchAccount | None:
        """Traces a frame that arrives on a port. Returns None if the target has no dry runs.

        Raises P4RuntimeError.
        """
        return await self._run(ingress.port, frame, frame, ingress, judge)

    async def run_own(self, frame: bytes, vrf: int, judge: Judge) -> SwitchAccount | None:
        """Traces an IP packet that this router sends, in the form of `wire.packet.local_frame`.

        Returns None and raises the same errors as `run`.
        """
        metadata = self._packets.local_origin(egress_l3_if=0, vrf=vrf)
        first = self._packets.to_bytes(metadata) + frame
        return await self._run(self._cpu_port, first, frame, Ingress(0, 0, vrf), judge)

    async def _run(
        self, port: int, first: bytes, frame: bytes, ingress: Ingress, judge: Judge
    ) -> SwitchAccount | None:
        account = SwitchAccount([], [])
        is_own = port == self._cpu_port
        while len(account.runs) < MOST_RUNS:
            steps = await self._session.dry_run(port, first)
            if steps is None:
                return None
            path = read_path(steps)
            account.runs.append(path)
            direction = self._asks_for(path)
            passed = None if direction is None else path.lists.get(direction)
            if direction is None or passed is None:
                break
            account.asked.append(direction)
            verdict = judge(passed.list_id)
            if verdict is None or verdict.action is Action.DISCARD:
                break
            punted = self._punted(frame, ingress, account, direction, is_own=is_own)
            answer = PolicyAnswer(
                passed.list_id,
                passed.generation or 0,
                int(verdict.action),
                verdict.bundle,
                verdict.rule_id,
            )
            header = self._packets.to_bytes(self._packets.reinject_with(punted, answer))
            port, first = self._cpu_port, header + frame
        return account

    def _asks_for(self, path: SwitchPath) -> Direction | None:
        """Returns the direction of the list for which the switch punts the packet to get a verdict.

        Returns None if the switch does not punt the packet for a verdict.
        """
        reasons = [self._packets.reasons.get(number) for number in path.punt_reasons]
        reason = next((one for one in reasons if one in _LIST_PUNTS), None)
        if not path.is_punted or reason is None:
            return None
        if reason in _MISSES:
            return _MISSES[reason]
        return Direction.OUTBOUND if Direction.OUTBOUND in path.lists else Direction.INBOUND

    def _punted(
        self,
        frame: bytes,
        ingress: Ingress,
        account: SwitchAccount,
        direction: Direction,
        *,
        is_own: bool,
    ) -> PuntedPacket:
        """Returns the packet-in that the switch would send at the end of the last run."""
        path, packets = account.last, self._packets
        outbound = direction is Direction.OUTBOUND
        inbound = account.list_pass(Direction.INBOUND) if outbound else None
        values = dict.fromkeys(PuntedPacket._fields[1:], 0) | {
            "ingress_port": ingress.port,
            "ingress_l3_if": ingress.l3_if,
            "vrf": ingress.vrf,
            "egress_l3_if": (path.egress_l3_if or 0) if outbound else 0,
            "nexthop_id": (path.nexthop or 0) if outbound else 0,
            "stage": packets.stage_outbound if outbound else packets.stage_inbound,
            "origin": packets.origin_local if is_own else 0,
            "inbound_list_id": inbound.list_id if inbound else 0,
            "inbound_generation": (inbound.generation or 0) if inbound else 0,
        }
        return PuntedPacket(frame, **values)

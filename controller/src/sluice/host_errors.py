# SPDX-License-Identifier: Apache-2.0
"""ICMP errors that this router's host stack makes about packets that a bundle carried.

They quote plaintext, so they leave by the bundle that carried the packet, or not at all (RFC 4301,
section 6). How the packets came that the host got last is remembered. While the host may still
answer one that was forgotten for want of room, errors about unknown packets are dropped: the rules
may have changed since. After that, of a packet from before this controller's start for example, the
inbound lists tell: what one of them wants protected came protected, or it would have been refused.
Where two bundles could have carried it, where the rules that a quoted fragment could meet disagree,
and where the quoted packet cannot be read, the error is dropped.

Depends on state.spd, policy_config and wire.selectors.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from sluice.config import Config
from sluice.model import PuntedPacket
from sluice.policy_model import Action, Direction, FragmentClass, Verdict
from sluice.state.spd import ListState
from sluice.wire.errors import WireError
from sluice.wire.selectors import Quoted, packet_identity, quoted_packet, turned

REMEMBERED = 16_384
"""Packets delivered to the host last."""
LATEST_ERROR = 65.0
"""Seconds: the kernel gives up a fragmented IPv6 packet after 60."""
IN_CLEAR = 0
"""Stands for no bundle: the error is an ordinary packet of this router."""


class _Delivered(NamedTuple):
    """The bundles that a packet came by, IN_CLEAR among them, and when it came last."""

    carriers: frozenset[int]
    time: float


class HostErrors:
    """`list_of(spd, direction)` finds a list, None where it has not started."""

    def __init__(
        self,
        config: Config,
        list_of: Callable[[str, Direction], ListState | None],
        clock: Callable[[], float],
    ) -> None:
        self._list_of = list_of
        self._clock = clock
        self._forgetful_until = 0.0
        vrfs = {vrf.name: vrf.id for vrf in config.vrfs}
        self._spds: Mapping[int, tuple[str, ...]] = {
            number: tuple(
                sorted({one.spd for one in config.policy.bundles if vrfs[one.vrf] == number})
            )
            for number in vrfs.values()
        }
        self._delivered: OrderedDict[tuple[int, bytes], _Delivered] = OrderedDict()
        self.counters: Counter[str] = Counter()

    def delivered(self, packet: PuntedPacket) -> None:
        """The host gets this packet now, and may answer it with an error."""
        if not self._spds.get(packet.vrf):
            return
        try:
            identity = packet_identity(packet.frame)
        except WireError:
            return  # the host drops it, or its answer is judged by the lists
        if identity is None:
            return
        key = packet.vrf, identity
        before = self._delivered.pop(key, None)
        carriers = frozenset() if before is None else before.carriers
        self._delivered[key] = _Delivered(carriers | {packet.bundle}, self._clock())
        if len(self._delivered) > REMEMBERED:
            _, oldest = self._delivered.popitem(last=False)
            self._forgetful_until = oldest.time + LATEST_ERROR

    def bundle_for(self, frame: bytes, vrf: int) -> int | None:
        """The bundle that a frame of the host's must leave by: IN_CLEAR for all but errors about
        what a bundle carried; None where the frame must not leave at all."""
        spds = self._spds.get(vrf, ())
        if not spds or not _may_be_icmp(frame):
            return IN_CLEAR
        try:
            quoted = quoted_packet(frame, is_own=True)
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return None
        if quoted is None:
            return IN_CLEAR
        carriers = self._carriers(quoted, vrf, spds)
        if len(carriers) != 1:
            self.counters["dropped: an error about what may have come protected"] += 1
            return None
        (bundle,) = carriers
        if bundle != IN_CLEAR:
            self.counters["errors sent by the bundle that carried their packet"] += 1
        return bundle

    def _carriers(self, quoted: Quoted, vrf: int, spds: Iterable[str]) -> frozenset[int]:
        """The bundles that the quoted packet may have come by, IN_CLEAR among them; none: it is
        not known."""
        if quoted.identity is not None:
            known = self._delivered.get((vrf, quoted.identity))
            if known is not None:
                return known.carriers
        if self._clock() < self._forgetful_until:
            return frozenset()
        bundles: set[int] = set()
        for spd in spds:
            state = self._list_of(spd, Direction.INBOUND)
            verdict = None if state is None else _verdict_of(state, quoted)
            if verdict is None:
                return frozenset()
            if verdict.action is Action.PROTECT:
                bundles.add(verdict.bundle)
        return frozenset(bundles or {IN_CLEAR})


def _verdict_of(state: ListState, quoted: Quoted) -> Verdict | None:
    """What the inbound list said of the packet that an error quotes."""
    packet = turned(quoted.selectors)
    if quoted.fragment_class is FragmentClass.LATER:
        return state.search_fragment(packet, None)
    return state.search(packet)


def _may_be_icmp(frame: bytes) -> bool:
    """Whether an untagged frame of the host's may be ICMP: IPv6 may hide it behind a chain."""
    if frame[12:14] == b"\x08\x00":
        return frame[23:24] in (b"\x01", b"\x3a")
    return frame[12:14] == b"\x86\xdd" and frame[20:21] not in (b"\x06", b"\x11")

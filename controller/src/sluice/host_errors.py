# SPDX-License-Identifier: Apache-2.0
"""Finds the bundle that must protect an ICMP error of this router's host stack.

An ICMP error quotes the packet that caused it. If the quoted packet came decrypted from a bundle,
the error must leave by the same bundle, or not at all (RFC 4301, section 6). The **carrier** of a
packet is the bundle from which it came, or IN_CLEAR. The carrier of the quoted packet is determined
in this order:

1. The last `REMEMBERED` packets delivered to the host are recorded with their carriers.
2. Without a record, the record may have been lost. This is possible for `LATEST_ERROR` seconds
   after a start, and after the delivery of a packet whose record was evicted. Then the error is
   dropped.
3. Otherwise the inbound lists decide. If a list requires protection for the quoted packet, the
   packet came by the bundle of the matching rule. Any other packet came in clear.

An error is also dropped if several carriers are possible, if the rules that a quoted fragment may
match disagree, or if the quote cannot be parsed.

Depends on config, model, policy.model, state.spd and wire.selectors.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import NamedTuple

from sluice.config import Config
from sluice.model import PuntedPacket
from sluice.policy.model import Action, Direction, FragmentClass, Verdict
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import Quoted, packet_identity, quoted_packet, turned

REMEMBERED = 16_384
"""Maximum number of recorded packets delivered to the host."""
LATEST_ERROR = 65.0
"""Longest time from a packet's delivery to the host's error about it, in seconds. The kernel gives
up reassembly of an IPv6 packet after 60 s."""
IN_CLEAR = 0
"""No bundle: the error is an ordinary packet of this router."""


class Carrier(NamedTuple):
    """Identifies the carrier of a packet: a bundle of a VRF, or IN_CLEAR."""

    vrf: int
    bundle: int


class _Delivered(NamedTuple):
    """Holds all carriers that have delivered the same packet, and the time of the last delivery."""

    carriers: frozenset[Carrier]
    time: float


class HostErrors:
    """Finds the bundle that must carry an ICMP error of the host.

    `list_of(spd, direction)` returns a list, or None if the list is not active yet. `had_bundles`:
    before this start, packets may have been delivered that bundles carried. `configured_number`
    returns the number of the configured bundle that an instance belongs to.
    """

    def __init__(
        self,
        config: Config,
        list_of: Callable[[str, Direction], PolicyList | None],
        clock: Callable[[], float],
        *,
        had_bundles: bool = False,
        configured_number: Callable[[int], int] = lambda number: number,
    ) -> None:
        self._list_of = list_of
        self._clock = clock
        self._configured_number = configured_number
        vrfs = {vrf.name: vrf.id for vrf in config.vrfs}
        self._vrf_of = {bundle.id: vrfs[bundle.vrf] for bundle in config.policy.bundles}
        # The bundles of a mirrored SPD come and go. All of them are in the SPD's VRF.
        mirrored = {spd.name for spd in config.policy.spds if spd.is_mirrored}
        self._vrf_of_spd = {one.spd: one.vrf.id for one in config.interfaces if one.spd in mirrored}
        self._spds = sorted({bundle.spd for bundle in config.policy.bundles} | mirrored)
        # The records of packets delivered before this start are lost.
        self._forgetful_until = clock() + LATEST_ERROR if self._spds or had_bundles else clock()
        self._delivered: OrderedDict[bytes, _Delivered] = OrderedDict()
        self.counters: Counter[str] = Counter()

    def delivered(self, packet: PuntedPacket) -> None:
        """Records the carrier of a packet delivered to the host.

        The host may answer the packet with an ICMP error.
        """
        if not self._spds:
            return
        try:
            identity = packet_identity(packet.frame)
        except WireError:
            return  # the host drops it; an error about it is not expected
        if identity is None:
            return
        before = self._delivered.pop(identity, None)
        carriers = frozenset() if before is None else before.carriers
        carrier = Carrier(packet.vrf if packet.bundle else 0, packet.bundle)
        self._delivered[identity] = _Delivered(carriers | {carrier}, self._clock())
        if len(self._delivered) > REMEMBERED:
            _, oldest = self._delivered.popitem(last=False)
            self._forgetful_until = max(self._forgetful_until, oldest.time + LATEST_ERROR)

    def carrier_for(self, frame: bytes) -> Carrier | None:
        """Returns the carrier by which a frame of the host must leave, or None to drop the frame.

        The carrier is IN_CLEAR for all frames except errors about packets that a bundle carried. It
        does not depend on the interface that the host has chosen, because the host may have used a
        route of another VRF.
        """
        is_forgetful = self._clock() < self._forgetful_until
        if not (self._spds or is_forgetful) or not _may_be_icmp(frame):
            return _CLEAR
        try:
            quoted = quoted_packet(frame, is_own=True)
        except WireError as error:
            self.counters[f"dropped: {error.name}"] += 1
            return None
        if quoted is None:
            return _CLEAR
        carriers = self._carriers(quoted, is_forgetful)
        if len(carriers) != 1:
            self.counters["dropped: an error about what may have come protected"] += 1
            return None
        (carrier,) = carriers
        if carrier != _CLEAR:
            self.counters["errors sent by the bundle that carried their packet"] += 1
        return carrier

    def _carriers(self, quoted: Quoted, is_forgetful: bool) -> frozenset[Carrier]:
        """Returns the possible carriers of the quoted packet. Empty if they are unknown."""
        if quoted.identity is not None:
            known = self._delivered.get(quoted.identity)
            if known is not None:
                return known.carriers
        if is_forgetful:
            return frozenset()
        carriers: set[Carrier] = set()
        for spd in self._spds:
            state = self._list_of(spd, Direction.INBOUND)
            verdict = None if state is None else _verdict_of(state, quoted)
            if verdict is None:
                return frozenset()
            if verdict.action is Action.PROTECT:
                bundle = self._configured_number(verdict.bundle)
                vrf = self._vrf_of.get(bundle, self._vrf_of_spd.get(spd, 0))
                carriers.add(Carrier(vrf, verdict.bundle))
        return frozenset(carriers or {_CLEAR})


_CLEAR = Carrier(0, IN_CLEAR)


def _verdict_of(state: PolicyList, quoted: Quoted) -> Verdict | None:
    """Returns the inbound list's verdict on the quoted packet, or None if rules disagree."""
    packet = turned(quoted.selectors)
    if quoted.fragment_class is FragmentClass.LATER:
        return state.search_fragment(packet, None)
    return state.search(packet)


def _may_be_icmp(frame: bytes) -> bool:
    """Returns whether an untagged frame of the host may contain an ICMP message.

    In IPv6, ICMP may follow extension headers, which are not parsed here.
    """
    if frame[12:14] == b"\x08\x00":
        return frame[23:24] in (b"\x01", b"\x3a")
    return frame[12:14] == b"\x86\xdd" and frame[20:21] not in (b"\x06", b"\x11")

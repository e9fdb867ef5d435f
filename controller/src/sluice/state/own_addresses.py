# SPDX-License-Identifier: Apache-2.0
"""The addresses of this host's interfaces, and what they make local in which VRF.

An address that counts in a VRF is delivered to the host there (`Kind.LOCAL_PREFIX`), and nobody
else may send from it (`Kind.OWN_SOURCE`). IPv6 link-local addresses are no such sources: another
link's host may have the same. Several interfaces may have one address: it counts as long as one of
them has it. Depends on model and entities.
"""

from __future__ import annotations

from sluice.entities import LOCAL, MARTIAN, Changes, Kind, OwnAddress, RouteSlot
from sluice.model import InterfaceAddress, Prefix, is_link_local
from sluice.namespaces import namespace_of

DEFAULT_VRF = 0
LOOPBACK6 = bytes(15) + b"\x01"


class Holder:
    """The addresses of one kernel interface. `vrf` is where they count; None: nowhere."""

    __slots__ = ("addresses", "vrf")

    def __init__(self, vrf: int = DEFAULT_VRF) -> None:
        self.addresses: set[InterfaceAddress] = set()
        self.vrf: int | None = vrf

    def sorted(self) -> list[InterfaceAddress]:
        """The addresses that count, in a fixed order."""
        return [] if self.vrf is None else sorted(self.addresses)


class OwnAddresses:
    """All addresses of this host, by the kernel's index of their interface."""

    def __init__(self) -> None:
        self.holders: dict[int, Holder] = {}
        self._uses: dict[RouteSlot, int] = {}

    def holder(self, ifindex: int) -> Holder:
        """An interface's addresses; for an unknown interface empty ones, of the default VRF or of
        the VRF whose network namespace it is in."""
        known = self.holders.get(ifindex)
        if known is None:
            known = self.holders[ifindex] = Holder(namespace_of(ifindex))
        return known

    def add(self, ifindex: int, address: InterfaceAddress, changes: Changes) -> None:
        """An interface has one more address."""
        holder = self.holder(ifindex)
        if address not in holder.addresses:
            holder.addresses.add(address)
            self._claim(holder.vrf, address, changes)

    def remove(self, ifindex: int, address: InterfaceAddress, changes: Changes) -> None:
        """An interface has one address less."""
        holder = self.holder(ifindex)
        if address in holder.addresses:
            holder.addresses.remove(address)
            self._release(holder.vrf, address, changes)

    def place(self, ifindex: int, vrf: int | None, changes: Changes) -> None:
        """An interface's addresses count in this VRF from now on, or nowhere."""
        holder = self.holder(ifindex)
        if holder.vrf == vrf:
            return
        before, holder.vrf = holder.vrf, vrf
        for address in holder.addresses:
            self._claim(vrf, address, changes)
            self._release(before, address, changes)

    def forget(self, ifindex: int, changes: Changes) -> None:
        """An interface is gone, and its addresses with it."""
        holder = self.holders.pop(ifindex, None)
        if holder is not None:
            for address in holder.addresses:
                self._release(holder.vrf, address, changes)

    def _claim(self, vrf: int | None, address: InterfaceAddress, changes: Changes) -> None:
        for slot in () if vrf is None else local_slots(vrf, address):
            self._uses[slot] = self._uses.get(slot, 0) + 1
            changes.set(Kind.LOCAL_PREFIX, slot, LOCAL)
            changes.set(Kind.OWN_SOURCE, OwnAddress(slot.vrf, slot.prefix.address), MARTIAN)

    def _release(self, vrf: int | None, address: InterfaceAddress, changes: Changes) -> None:
        for slot in () if vrf is None else local_slots(vrf, address):
            self._uses[slot] -= 1
            if not self._uses[slot]:
                del self._uses[slot]
                changes.set(Kind.LOCAL_PREFIX, slot, None)
                changes.set(Kind.OWN_SOURCE, OwnAddress(slot.vrf, slot.prefix.address), None)


def local_slots(vrf: int, own: InterfaceAddress) -> list[RouteSlot]:
    """What an own address makes local: itself and, for IPv4, its subnet's broadcast (RFC 2644).

    Nothing for loopback (never on a wire) and IPv6 link-local (in `interfaces.ALWAYS_LOCAL`).
    """
    address, length = own
    if len(address) == 16:
        if address == LOOPBACK6 or is_link_local(address):
            return []
        return [RouteSlot(vrf, Prefix.host(address))]
    if address[0] == 127:
        return []
    slots = [RouteSlot(vrf, Prefix.host(address))]
    if length <= 30:
        host_bits = (1 << (32 - length)) - 1
        broadcast = (int.from_bytes(address, "big") | host_bits).to_bytes(4, "big")
        slots.append(RouteSlot(vrf, Prefix.host(broadcast)))
    return slots

# SPDX-License-Identifier: Apache-2.0
"""Tracks the addresses of this host's interfaces. Derives the local prefixes of each VRF: the
destinations whose packets are delivered to the host.

An address is valid in a VRF while an interface of the VRF has the address. Packets to a valid
address are delivered to the host (`EntityKind.LOCAL_PREFIX`). Received packets must not have a
valid address as source (`EntityKind.OWN_SOURCE`). IPv6 link-local addresses get no entity of either
kind. Packets to any link-local address are delivered to the host anyway
(`interfaces.ALWAYS_LOCAL`). And a link-local source that equals an own address may belong to a host
on another link. Depends on model and entities.
"""

from __future__ import annotations

from sluice.entities import LOCAL, MARTIAN, EntityChanges, EntityKind, OwnAddress, RouteSlot
from sluice.model import InterfaceAddress, Prefix, is_link_local
from sluice.namespaces import namespace_of

DEFAULT_VRF = 0
LOOPBACK6 = bytes(15) + b"\x01"


class InterfaceAddresses:
    """Holds the addresses of one kernel interface. They are valid in VRF `vrf`, or in no VRF if it
    is None."""

    __slots__ = ("addresses", "vrf")

    def __init__(self, vrf: int = DEFAULT_VRF) -> None:
        self.addresses: set[InterfaceAddress] = set()
        self.vrf: int | None = vrf

    def sorted(self) -> list[InterfaceAddress]:
        """Returns the valid addresses, sorted."""
        return [] if self.vrf is None else sorted(self.addresses)


class OwnAddresses:
    """Holds all addresses of this host, by kernel interface index."""

    def __init__(self) -> None:
        self.by_ifindex: dict[int, InterfaceAddresses] = {}
        self._uses: dict[RouteSlot, int] = {}

    def of_interface(self, ifindex: int) -> InterfaceAddresses:
        """Returns an interface's addresses. A new interface starts without addresses, in the
        default VRF or in the VRF of its network namespace."""
        known = self.by_ifindex.get(ifindex)
        if known is None:
            known = self.by_ifindex[ifindex] = InterfaceAddresses(namespace_of(ifindex))
        return known

    def add(self, ifindex: int, address: InterfaceAddress, changes: EntityChanges) -> None:
        """Adds an address to an interface."""
        interface = self.of_interface(ifindex)
        if address not in interface.addresses:
            interface.addresses.add(address)
            self._claim(interface.vrf, address, changes)

    def remove(self, ifindex: int, address: InterfaceAddress, changes: EntityChanges) -> None:
        """Removes an address from an interface."""
        interface = self.of_interface(ifindex)
        if address in interface.addresses:
            interface.addresses.remove(address)
            self._release(interface.vrf, address, changes)

    def set_vrf(self, ifindex: int, vrf: int | None, changes: EntityChanges) -> None:
        """Makes an interface's addresses valid in another VRF, or in no VRF if `vrf` is None."""
        interface = self.of_interface(ifindex)
        if interface.vrf == vrf:
            return
        before, interface.vrf = interface.vrf, vrf
        for address in interface.addresses:
            self._claim(vrf, address, changes)
            self._release(before, address, changes)

    def forget(self, ifindex: int, changes: EntityChanges) -> None:
        """Deletes an interface and its addresses."""
        interface = self.by_ifindex.pop(ifindex, None)
        if interface is not None:
            for address in interface.addresses:
                self._release(interface.vrf, address, changes)

    def _claim(self, vrf: int | None, address: InterfaceAddress, changes: EntityChanges) -> None:
        for slot in () if vrf is None else local_slots(vrf, address):
            self._uses[slot] = self._uses.get(slot, 0) + 1
            changes.set(EntityKind.LOCAL_PREFIX, slot, LOCAL)
            changes.set(EntityKind.OWN_SOURCE, OwnAddress(slot.vrf, slot.prefix.address), MARTIAN)

    def _release(self, vrf: int | None, address: InterfaceAddress, changes: EntityChanges) -> None:
        for slot in () if vrf is None else local_slots(vrf, address):
            self._uses[slot] -= 1
            if not self._uses[slot]:
                del self._uses[slot]
                changes.set(EntityKind.LOCAL_PREFIX, slot, None)
                changes.set(EntityKind.OWN_SOURCE, OwnAddress(slot.vrf, slot.prefix.address), None)


def local_slots(vrf: int, own: InterfaceAddress) -> list[RouteSlot]:
    """Returns the local prefixes of one of the router's addresses: the address itself and, for
    IPv4, the directed broadcast address of its subnet (RFC 2644).

    Returns nothing for loopback addresses, which must never be on a wire, and for IPv6 link-local
    addresses, which `interfaces.ALWAYS_LOCAL` covers.
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

# SPDX-License-Identifier: Apache-2.0
"""The router's layer-3 interfaces: as configured, with the links and addresses the kernel has.

Gives: the entities of an interface (attachment, router MAC, egress), the local prefixes (the
router's own addresses and what every router listens to), the addresses that nobody else may send
from, the connected prefixes, and which kernel interface is which of ours. IPv6 link-local addresses
are no such sources: another link's host may have the same. Depends on model and entities.

An interface is up when its TAP is administratively up and, where the port's own device is known
(`device`), that has carrier. Addresses of any kernel interface of the host are the router's
(the weak host model, as in Linux); only those of ours make connected prefixes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sluice.entities import (
    ADMIT,
    LOCAL,
    MARTIAN,
    Attachment,
    Changes,
    Egress,
    Kind,
    L3Interface,
    OwnAddress,
    RouterMac,
    RouteSlot,
)
from sluice.model import (
    Address,
    AddressAdded,
    AddressRemoved,
    InterfaceAddress,
    InterfaceSpec,
    LinkChanged,
    LinkRemoved,
    Mac,
    Prefix,
    is_link_local,
)

DEFAULT_VRF = 0
LOOPBACK6 = bytes(15) + b"\x01"

ALWAYS_LOCAL = tuple(
    Prefix.parse(text)
    for text in ("224.0.0.0/24", "255.255.255.255/32", "fe80::/10", "ff01::/16", "ff02::/16")
)
"""Delivered to the host in every VRF: link-local multicast and broadcast, IPv6 link-local."""


class Connected(NamedTuple):
    """A connected prefix and the interface it is on."""

    slot: RouteSlot
    l3_if: int


class InterfaceState:
    """One configured interface."""

    __slots__ = ("addresses", "carrier", "device_carrier", "ifindex", "mac", "mtu", "spec", "up")

    def __init__(self, spec: InterfaceSpec) -> None:
        self.spec = spec
        self.ifindex: int | None = None
        self.up = True  # until the kernel says otherwise: a restart must not disturb what forwards
        self.carrier = False
        self.device_carrier = True
        self.mac: Mac = spec.mac
        self.mtu = spec.mtu
        self.addresses: set[InterfaceAddress] = set()

    @property
    def usable(self) -> bool:
        """Whether packets can leave by it."""
        return self.up and self.device_carrier


class InterfaceTable:
    """All interfaces, and which kernel interface stands for which."""

    def __init__(self, specs: Iterable[InterfaceSpec]) -> None:
        self.by_l3_if = {spec.l3_if: InterfaceState(spec) for spec in specs}
        self._by_name = {state.spec.name: state for state in self.by_l3_if.values()}
        self._by_device: dict[str, list[InterfaceState]] = {}
        for state in self.by_l3_if.values():
            if state.spec.device is not None:
                self._by_device.setdefault(state.spec.device, []).append(state)
        self._by_ifindex: dict[int, InterfaceState] = {}
        self._names: dict[int, str] = {}
        self._other_addresses: dict[int, set[InterfaceAddress]] = {}
        self._vrfs = {state.spec.vrf for state in self.by_l3_if.values()} | {DEFAULT_VRF}
        self._local: dict[RouteSlot, int] = {}

    def start(self, changes: Changes) -> None:
        """The entities that follow from the configuration alone."""
        for vrf in self._vrfs:
            for prefix in ALWAYS_LOCAL:
                changes.set(Kind.LOCAL_PREFIX, RouteSlot(vrf, prefix), LOCAL)
        for state in self.by_l3_if.values():
            self._write_egress(state, changes)
            self._write_admission(state, True, changes)

    # -- look-ups

    def l3_if_of(self, ifindex: int) -> int | None:
        """The layer-3 interface that a kernel interface is the host's end of."""
        state = self._by_ifindex.get(ifindex)
        return None if state is None else state.spec.l3_if

    def vrf_of(self, l3_if: int) -> int:
        """The VRF of a layer-3 interface."""
        state = self.by_l3_if.get(l3_if)
        return DEFAULT_VRF if state is None else state.spec.vrf

    def ifindex_of(self, l3_if: int) -> int | None:
        """The kernel interface of a layer-3 interface."""
        state = self.by_l3_if.get(l3_if)
        return None if state is None else state.ifindex

    def name_of(self, ifindex: int) -> str:
        """A kernel interface's name, as far as it is known."""
        return self._names.get(ifindex, f"if{ifindex}")

    def l3_if_covering(self, address: Address) -> int | None:
        """The interface of the default VRF on whose link an address is, by connected prefix."""
        best: tuple[int, int] | None = None
        for connected in self.connected():
            prefix = connected.slot.prefix
            if connected.slot.vrf == DEFAULT_VRF and prefix.covers(address):
                best = max(best or (-1, 0), (prefix.length, connected.l3_if))
        return None if best is None else best[1]

    def connected(self) -> list[Connected]:
        """The connected prefixes of interfaces that are up."""
        return [
            Connected(RouteSlot(state.spec.vrf, address.prefix), state.spec.l3_if)
            for state in self.by_l3_if.values()
            if state.usable
            for address in sorted(state.addresses)
            if address.length < len(address.address) * 8 and not why_not_routed(address.prefix)
        ]

    def local_addresses(self, vrf: int) -> list[Address]:
        """The router's own addresses in a VRF, those of the switch's interfaces first."""
        own = [
            address.address
            for state in self.by_l3_if.values()
            if state.spec.vrf == vrf
            for address in sorted(state.addresses)
        ]
        if vrf == DEFAULT_VRF:
            own += [a.address for others in self._other_addresses.values() for a in sorted(others)]
        return own

    def answer_address(self, l3_if: int, vrf: int, size: int) -> Address | None:
        """An own address of `size` octets to send errors from: of the interface if it has one,
        else of the VRF; global ones before link-local ones."""
        state = self.by_l3_if.get(l3_if)
        own = [] if state is None else [a.address for a in sorted(state.addresses)]
        candidates = [a for a in own + self.local_addresses(vrf) if len(a) == size]
        usable = [a for a in candidates if a[0] != 127 and a != LOOPBACK6]
        return min(usable, key=is_link_local, default=None)

    def broadcasts(self) -> set[Address]:
        """The directed broadcast addresses of the router's links."""
        return {
            slots[1].prefix.address
            for state in self.by_l3_if.values()
            for address in state.addresses
            if len(slots := local_slots(state.spec.vrf, address)) == 2
        }

    # -- events

    def link_changed(self, event: LinkChanged, changes: Changes) -> bool:
        """Returns whether kernel interfaces and ours correspond differently now."""
        for device in self._by_device.get(event.name, ()):
            device.device_carrier = event.up and event.carrier
        state = self._by_name.get(event.name)
        known = self._by_ifindex.get(event.ifindex)
        remapped = known is not state
        if remapped and known is not None:  # renamed
            self._detach(known, changes)
        self._names[event.ifindex] = event.name
        if state is None:
            return remapped
        if remapped:
            if state.ifindex is not None:  # made anew under the same name
                self._detach(state, changes)
            self._attach(state, event.ifindex, changes)
        if state.up != event.up:
            state.up = event.up
            self._write_admission(state, event.up, changes)
        state.carrier = event.carrier
        self._set_link_properties(state, event, changes)
        return remapped

    def link_removed(self, event: LinkRemoved, changes: Changes) -> bool:
        """Returns whether kernel interfaces and ours correspond differently now."""
        name = self._names.pop(event.ifindex, "")
        for device in self._by_device.get(name, ()):
            device.device_carrier = False
        for address in self._other_addresses.pop(event.ifindex, set()):
            self._release_local(DEFAULT_VRF, address, changes)
        state = self._by_ifindex.get(event.ifindex)
        if state is None:
            return False
        self._detach(state, changes)
        if state.up:
            state.up = False
            self._write_admission(state, False, changes)
        return True

    def _attach(self, state: InterfaceState, ifindex: int, changes: Changes) -> None:
        early = self._other_addresses.pop(ifindex, set())
        for address in early:
            self._release_local(DEFAULT_VRF, address, changes)
        state.ifindex = ifindex
        self._by_ifindex[ifindex] = state
        for address in early:
            self.address_added(AddressAdded(ifindex, address), changes)

    def _detach(self, state: InterfaceState, changes: Changes) -> None:
        for address in state.addresses:
            self._release_local(state.spec.vrf, address, changes)
        state.addresses.clear()
        if state.ifindex is not None:
            del self._by_ifindex[state.ifindex]
        state.ifindex, state.carrier = None, False

    def address_added(self, event: AddressAdded, changes: Changes) -> None:
        """The router has one more address."""
        addresses, vrf = self._addresses_of(event.ifindex)
        if event.address not in addresses:
            addresses.add(event.address)
            for slot in local_slots(vrf, event.address):
                self._local[slot] = self._local.get(slot, 0) + 1
                changes.set(Kind.LOCAL_PREFIX, slot, LOCAL)
                changes.set(Kind.OWN_SOURCE, OwnAddress(vrf, slot.prefix.address), MARTIAN)

    def address_removed(self, event: AddressRemoved, changes: Changes) -> None:
        """The router has one address less."""
        addresses, vrf = self._addresses_of(event.ifindex)
        if event.address in addresses:
            addresses.remove(event.address)
            self._release_local(vrf, event.address, changes)

    def _addresses_of(self, ifindex: int) -> tuple[set[InterfaceAddress], int]:
        state = self._by_ifindex.get(ifindex)
        if state is not None:
            return state.addresses, state.spec.vrf
        return self._other_addresses.setdefault(ifindex, set()), DEFAULT_VRF

    def _release_local(self, vrf: int, address: InterfaceAddress, changes: Changes) -> None:
        for slot in local_slots(vrf, address):
            self._local[slot] -= 1
            if not self._local[slot]:
                del self._local[slot]
                changes.set(Kind.LOCAL_PREFIX, slot, None)
                changes.set(Kind.OWN_SOURCE, OwnAddress(vrf, slot.prefix.address), None)

    # -- entities

    def _set_link_properties(
        self, state: InterfaceState, event: LinkChanged, changes: Changes
    ) -> None:
        if (state.mac, state.mtu) == (event.mac, event.mtu):
            return
        old_mac, state.mac, state.mtu = state.mac, event.mac, event.mtu
        self._write_egress(state, changes)
        if old_mac != event.mac and state.up:
            changes.set(Kind.ROUTER_MAC, RouterMac(state.spec.l3_if, old_mac), None)
            changes.set(Kind.ROUTER_MAC, RouterMac(state.spec.l3_if, event.mac), ADMIT)

    def _write_egress(self, state: InterfaceState, changes: Changes) -> None:
        spec = state.spec
        egress = Egress(spec.port, spec.vlan, state.mac, state.mtu)
        changes.set(Kind.EGRESS_INTERFACE, spec.l3_if, egress)

    def _write_admission(self, state: InterfaceState, up: bool, changes: Changes) -> None:
        spec = state.spec
        interface = L3Interface(spec.l3_if, spec.vrf)
        attachment = Attachment(spec.port, spec.vlan)
        changes.set(Kind.L3_INTERFACE, attachment, interface if up else None)
        mac = RouterMac(spec.l3_if, state.mac)
        changes.set(Kind.ROUTER_MAC, mac, ADMIT if up else None)


MULTICAST = "multicast: not routed"
LINK_LOCAL = {
    4: "link-local: never forwarded (RFC 3927)",
    16: "link-local: never forwarded (RFC 4291)",
}


def why_not_routed(prefix: Prefix) -> str:
    """Why the pipeline routes to no address of a prefix; empty where it does."""
    first, length = prefix.address, prefix.length
    if len(first) == 4:
        multicast = length >= 4 and first[0] >> 4 == 0xE
        link_local = length >= 16 and is_link_local(first)
    else:
        multicast = length >= 8 and first[0] == 0xFF
        link_local = length >= 10 and is_link_local(first)
    if multicast:
        return MULTICAST
    return LINK_LOCAL[len(first)] if link_local else ""


def local_slots(vrf: int, own: InterfaceAddress) -> list[RouteSlot]:
    """What an own address makes local: itself and, for IPv4, its subnet's broadcast (RFC 2644).

    Nothing for loopback (never on a wire) and IPv6 link-local (in ALWAYS_LOCAL).
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

# SPDX-License-Identifier: Apache-2.0
"""The router's layer-3 interfaces: as configured, with the links and addresses the kernel has.

Gives: the entities of an interface (attachment, router MACs, egress), the local prefixes (the
router's own addresses and what every router listens to), the connected prefixes, and which kernel
interface is which of ours. Depends on model, entities, kernel_vrfs and own_addresses.

An interface is up when its TAP is administratively up and, where the port's own device is known
(`device`), that has carrier. Addresses of any kernel interface of the host are the router's
in the VRF that the kernel has the interface in (the weak host model, as in Linux); only those of
ours make connected prefixes.

A macvlan device on a TAP gives the interface another MAC address and further addresses, as VRRP
has them: while it works they are the interface's own, and at other times nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluice.entities import (
    ADMIT,
    LOCAL,
    Attachment,
    Changes,
    Egress,
    Kind,
    L3Interface,
    RouterMac,
    RouteSlot,
)
from sluice.kernel_vrfs import KernelVrfs
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
from sluice.namespaces import HOME, namespace_of
from sluice.state.own_addresses import (
    DEFAULT_VRF,
    LOOPBACK6,
    Holder,
    OwnAddresses,
    local_slots,
)

NO_MAC = bytes(6)

ALWAYS_LOCAL = tuple(
    Prefix.parse(text)
    for text in ("224.0.0.0/24", "255.255.255.255/32", "fe80::/10", "ff01::/16", "ff02::/16")
)
"""Delivered to the host in every VRF: link-local multicast and broadcast, IPv6 link-local."""


class Connected(NamedTuple):
    """A connected prefix and the interface it is on."""

    slot: RouteSlot
    l3_if: int


class _Macvlan(NamedTuple):
    """A macvlan device on a TAP."""

    link: LinkChanged
    holder: Holder


class InterfaceState:
    """One configured interface."""

    __slots__ = (
        *("admitted", "carrier", "device_carrier", "holder", "ifindex", "mac", "macvlans", "mtu"),
        *("spec", "up"),
    )

    def __init__(self, spec: InterfaceSpec) -> None:
        self.spec = spec
        self.ifindex: int | None = None
        self.up = True  # until the kernel says otherwise: a restart must not disturb what forwards
        self.carrier = False
        self.device_carrier = True
        self.mac: Mac = spec.mac
        self.mtu = spec.mtu
        self.holder = Holder()
        self.macvlans: dict[int, _Macvlan] = {}
        self.admitted: set[Mac] = set()

    @property
    def addresses(self) -> list[InterfaceAddress]:
        """Its addresses: the TAP's, then those of macvlan devices that work."""
        holders = (self.holder, *(each.holder for each in self.macvlans.values()))
        return [address for holder in holders for address in holder.sorted()]

    @property
    def macs(self) -> list[Mac]:
        """The MAC addresses at which it answers: the TAP's, then those of macvlan devices."""
        virtual = (each.link.mac for each in self.macvlans.values() if each.link.works)
        return [self.mac, *(mac for mac in virtual if mac != NO_MAC)]

    @property
    def usable(self) -> bool:
        """Whether packets can leave by it."""
        return self.up and self.device_carrier


class InterfaceTable:
    """All interfaces, and which kernel interface stands for which."""

    def __init__(
        self, specs: Iterable[InterfaceSpec], tables: Mapping[int, int] | None = None
    ) -> None:
        """`tables` maps kernel routing tables to VRFs."""
        self._kernel_vrfs = KernelVrfs(tables or {})
        self.by_l3_if = {spec.l3_if: InterfaceState(spec) for spec in specs}
        self._by_name = {
            (state.spec.namespace, state.spec.name): state for state in self.by_l3_if.values()
        }
        self._by_device: dict[str, list[InterfaceState]] = {}
        for state in self.by_l3_if.values():
            if state.spec.device is not None:
                self._by_device.setdefault(state.spec.device, []).append(state)
        self._by_ifindex: dict[int, InterfaceState] = {}
        self._names: dict[int, str] = {}
        self._own = OwnAddresses()
        self._macvlan_links: dict[int, LinkChanged] = {}
        self._vrfs = {state.spec.vrf for state in self.by_l3_if.values()} | {DEFAULT_VRF}

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

    def l3_if_by(self, ifindex: int) -> int | None:
        """The layer-3 interface by which the packets leave that the kernel sends on an interface:
        a TAP's, or that of the TAP below a macvlan device."""
        state = self._by_ifindex.get(ifindex) or self._below(ifindex)
        return None if state is None else state.spec.l3_if

    def vrf_of(self, l3_if: int) -> int:
        """The VRF of a layer-3 interface."""
        state = self.by_l3_if.get(l3_if)
        return DEFAULT_VRF if state is None else state.spec.vrf

    def mtu_of(self, l3_if: int) -> int | None:
        """The MTU of a layer-3 interface, in bytes of IP packet."""
        state = self.by_l3_if.get(l3_if)
        return None if state is None else state.mtu

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
            for address in state.addresses
            if address.length < len(address.address) * 8 and not why_not_routed(address.prefix)
        ]

    def local_addresses(self, vrf: int) -> list[Address]:
        """The router's own addresses in a VRF, those of the switch's interfaces first."""
        own = [
            address.address
            for state in self.by_l3_if.values()
            if state.spec.vrf == vrf
            for address in state.addresses
        ]
        own += [
            address.address
            for ifindex, holder in self._own.holders.items()
            if holder.vrf == vrf and self.l3_if_by(ifindex) is None
            for address in holder.sorted()
        ]
        return own

    def answer_address(self, l3_if: int, vrf: int, size: int) -> Address | None:
        """An own address of `size` octets to send errors from: of the interface if it has one,
        else of the VRF; global ones before link-local ones."""
        state = self.by_l3_if.get(l3_if)
        own = [] if state is None else [a.address for a in state.addresses]
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
        moved = self._kernel_vrfs.apply(event)
        remapped = self._link_changed(event, changes)
        self._place_others(moved, changes)
        return remapped

    def _link_changed(self, event: LinkChanged, changes: Changes) -> bool:
        namespace = namespace_of(event.ifindex)
        for device in self._by_device.get(event.name, ()) if namespace == HOME else ():
            device.device_carrier = event.up and event.carrier
        state = self._by_name.get((namespace, event.name))
        known = self._by_ifindex.get(event.ifindex)
        remapped = known is not state
        if remapped and known is not None:  # renamed
            self._detach(known, changes)
        self._names[event.ifindex] = event.name
        if event.macvlan_on is not None or event.ifindex in self._macvlan_links:
            remapped |= self._macvlan_changed(event, changes)
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
        if namespace_of(event.ifindex) == HOME:
            for device in self._by_device.get(name, ()):
                device.device_carrier = False
        below = self._below(event.ifindex)
        if self._macvlan_links.pop(event.ifindex, None) is not None:
            self._follow_macvlans(below, changes)
        state = self._by_ifindex.get(event.ifindex)
        if state is not None:
            self._detach(state, changes)
        self._own.forget(event.ifindex, changes)
        self._place_others(self._kernel_vrfs.apply(event), changes)
        if state is None:
            return below is not None
        if state.up:
            state.up = False
            self._write_admission(state, False, changes)
        return True

    def _attach(self, state: InterfaceState, ifindex: int, changes: Changes) -> None:
        state.ifindex, state.holder = ifindex, self._own.holder(ifindex)
        self._by_ifindex[ifindex] = state
        self._own.place(ifindex, state.spec.vrf, changes)
        self._follow_macvlans(state, changes)

    def _detach(self, state: InterfaceState, changes: Changes) -> None:
        if state.ifindex is not None:
            del self._by_ifindex[state.ifindex]
            self._own.place(state.ifindex, self._kernel_vrfs.vrf_of(state.ifindex), changes)
        above = list(state.macvlans)
        state.ifindex, state.carrier, state.holder = None, False, Holder()
        self._follow_macvlans(state, changes)
        for ifindex in above:
            self._own.place(ifindex, self._kernel_vrfs.vrf_of(ifindex), changes)

    def _place_others(self, moved: Iterable[int], changes: Changes) -> None:
        """The addresses of interfaces that are not ours count where the kernel has them."""
        for ifindex in moved:
            if self.l3_if_by(ifindex) is None:
                self._own.place(ifindex, self._kernel_vrfs.vrf_of(ifindex), changes)

    # -- macvlan devices

    def _below(self, ifindex: int) -> InterfaceState | None:
        """The interface whose TAP a macvlan device is on."""
        link = self._macvlan_links.get(ifindex)
        if link is None or link.macvlan_on is None:
            return None
        return self._by_ifindex.get(link.macvlan_on)

    def _macvlan_changed(self, event: LinkChanged, changes: Changes) -> bool:
        """Returns whether a kernel interface leads out by another of ours now."""
        before = self._below(event.ifindex)
        if event.macvlan_on is None:  # its index was given to a device of another kind
            del self._macvlan_links[event.ifindex]
        else:
            self._macvlan_links[event.ifindex] = event
        after = self._below(event.ifindex)
        if before is not after:
            self._follow_macvlans(before, changes)
        if after is None:
            self._own.place(event.ifindex, self._kernel_vrfs.vrf_of(event.ifindex), changes)
        self._follow_macvlans(after, changes)
        return before is not after

    def _follow_macvlans(self, state: InterfaceState | None, changes: Changes) -> None:
        """The macvlan devices on an interface's TAP have changed, or the TAP has."""
        if state is None:
            return
        state.macvlans = {
            ifindex: _Macvlan(link, self._own.holder(ifindex))
            for ifindex, link in sorted(self._macvlan_links.items())
            if link.macvlan_on == state.ifindex
        }
        for ifindex, (link, _) in state.macvlans.items():
            self._own.place(ifindex, state.spec.vrf if link.works else None, changes)
        self._write_macs(state, changes)

    # -- addresses

    def address_added(self, event: AddressAdded, changes: Changes) -> None:
        """The router has one more address."""
        self._own.add(event.ifindex, event.address, changes)

    def address_removed(self, event: AddressRemoved, changes: Changes) -> None:
        """The router has one address less."""
        self._own.remove(event.ifindex, event.address, changes)

    # -- entities

    def _set_link_properties(
        self, state: InterfaceState, event: LinkChanged, changes: Changes
    ) -> None:
        if (state.mac, state.mtu) == (event.mac, event.mtu):
            return
        state.mac, state.mtu = event.mac, event.mtu
        self._write_egress(state, changes)
        self._write_macs(state, changes)

    def _write_egress(self, state: InterfaceState, changes: Changes) -> None:
        spec = state.spec
        egress = Egress(spec.port, spec.vlan, state.mac, state.mtu)
        changes.set(Kind.EGRESS_INTERFACE, spec.l3_if, egress)

    def _write_admission(self, state: InterfaceState, up: bool, changes: Changes) -> None:
        spec = state.spec
        interface = L3Interface(spec.l3_if, spec.vrf)
        attachment = Attachment(spec.port, spec.vlan)
        changes.set(Kind.L3_INTERFACE, attachment, interface if up else None)
        self._write_macs(state, changes)

    def _write_macs(self, state: InterfaceState, changes: Changes) -> None:
        wanted = set(state.macs) if state.up else set()
        for mac in state.admitted - wanted:
            changes.set(Kind.ROUTER_MAC, RouterMac(state.spec.l3_if, mac), None)
        for mac in wanted - state.admitted:
            changes.set(Kind.ROUTER_MAC, RouterMac(state.spec.l3_if, mac), ADMIT)
        state.admitted = wanted


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

# SPDX-License-Identifier: Apache-2.0
"""Tracks the router's layer-3 interfaces: their configuration, and the kernel's links and
addresses.

Provides the entities of an interface (attachment, router MACs, egress) and its connected prefixes.
Provides the prefixes that are delivered to the host: the router's own addresses, and the groups and
link-local prefixes that every router accepts. Maps kernel interfaces to layer-3 interfaces. Depends
on model, entities, kernel_vrfs and own_addresses.

An interface is up when its TAP is administratively up and its port's network device (`device`), if
known, has carrier. As in Linux (weak host model), the address of any kernel interface is an address
of the router. It belongs to the VRF to which the kernel assigns the interface. Only layer-3
interfaces have connected prefixes.

A macvlan device on a TAP, as VRRP uses it, adds its MAC and IP addresses to the interface. The
addresses are removed from the interface while the device is down.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluice.entities import (
    ADMIT,
    LOCAL,
    Attachment,
    Egress,
    EntityChanges,
    EntityKind,
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
from sluice.namespaces import OWN_NAMESPACE, namespace_of
from sluice.state.own_addresses import (
    DEFAULT_VRF,
    LOOPBACK6,
    InterfaceAddresses,
    OwnAddresses,
    local_slots,
)

NO_MAC = bytes(6)

ALWAYS_LOCAL = tuple(
    Prefix.parse(text)
    for text in ("224.0.0.0/24", "255.255.255.255/32", "fe80::/10", "ff01::/16", "ff02::/16")
)
"""Prefixes whose packets every VRF delivers to the host: link-local multicast, broadcast, IPv6
link-local."""


class Connected(NamedTuple):
    """Holds a connected prefix and its interface."""

    slot: RouteSlot
    l3_if: int


class _Macvlan(NamedTuple):
    """Holds a macvlan device on a TAP, and its addresses."""

    link: LinkChanged
    addresses: InterfaceAddresses


class InterfaceState:
    """Holds the state of one configured interface."""

    __slots__ = (
        *("admitted", "carrier", "device_carrier", "ifindex", "mac", "macvlans", "mtu"),
        *("spec", "tap_addresses", "up"),
    )

    def __init__(self, spec: InterfaceSpec) -> None:
        self.spec = spec
        self.ifindex: int | None = None
        self.up = True  # until the kernel reports it: a restart must not stop forwarding
        self.carrier = False
        self.device_carrier = True
        self.mac: Mac = spec.mac
        self.mtu = spec.mtu
        self.tap_addresses = InterfaceAddresses()
        self.macvlans: dict[int, _Macvlan] = {}
        self.admitted: set[Mac] = set()

    @property
    def addresses(self) -> list[InterfaceAddress]:
        """Addresses of the interface: the TAP's, then those of working macvlan devices."""
        held = (self.tap_addresses, *(each.addresses for each in self.macvlans.values()))
        return [address for each in held for address in each.sorted()]

    @property
    def macs(self) -> list[Mac]:
        """Router MACs of the interface: the TAP's, then those of working macvlan devices."""
        virtual = (each.link.mac for each in self.macvlans.values() if each.link.works)
        return [self.mac, *(mac for mac in virtual if mac != NO_MAC)]

    @property
    def usable(self) -> bool:
        """Whether packets can leave through this interface."""
        return self.up and self.device_carrier


class InterfaceTable:
    """Holds all layer-3 interfaces, and the kernel interface of each."""

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

    def start(self, changes: EntityChanges) -> None:
        """Sets the entities that follow from the configuration alone."""
        for vrf in self._vrfs:
            for prefix in ALWAYS_LOCAL:
                changes.set(EntityKind.LOCAL_PREFIX, RouteSlot(vrf, prefix), LOCAL)
        for state in self.by_l3_if.values():
            self._write_egress(state, changes)
            self._write_admission(state, True, changes)

    # -- look-ups

    def l3_if_of(self, ifindex: int) -> int | None:
        """Returns the layer-3 interface whose TAP is this kernel interface, or None."""
        state = self._by_ifindex.get(ifindex)
        return None if state is None else state.spec.l3_if

    def egress_l3_if(self, ifindex: int) -> int | None:
        """Returns the layer-3 interface of a TAP, or of the TAP below a macvlan device.

        The kernel's packets on this TAP or device leave through that layer-3 interface. Returns
        None for any other kernel interface.
        """
        state = self._by_ifindex.get(ifindex) or self._lower_interface(ifindex)
        return None if state is None else state.spec.l3_if

    def vrf_of(self, l3_if: int) -> int:
        """Returns the VRF of a layer-3 interface."""
        state = self.by_l3_if.get(l3_if)
        return DEFAULT_VRF if state is None else state.spec.vrf

    def mtu_of(self, l3_if: int) -> int | None:
        """Returns the MTU of a layer-3 interface, in bytes of IP packet."""
        state = self.by_l3_if.get(l3_if)
        return None if state is None else state.mtu

    def ifindex_of(self, l3_if: int) -> int | None:
        """Returns the kernel interface of a layer-3 interface, or None."""
        state = self.by_l3_if.get(l3_if)
        return None if state is None else state.ifindex

    def name_of(self, ifindex: int) -> str:
        """Returns a kernel interface's name, or `if<index>` while it is unknown."""
        return self._names.get(ifindex, f"if{ifindex}")

    def l3_if_covering(self, address: Address) -> int | None:
        """Returns the interface that reaches an address of the default VRF: the one whose connected
        prefix is the longest match."""
        best: tuple[int, int] | None = None
        for connected in self.connected():
            prefix = connected.slot.prefix
            if connected.slot.vrf == DEFAULT_VRF and prefix.covers(address):
                best = max(best or (-1, 0), (prefix.length, connected.l3_if))
        return None if best is None else best[1]

    def l3_if_towards(self, ifindex: int | None, address: Address | None) -> int | None:
        """Returns the layer-3 interface towards a next hop, or None if there is none.

        `ifindex` is the kernel interface of the next hop. If it is None, returns the interface
        whose connected prefix covers the address.
        """
        if ifindex is not None:
            return self.egress_l3_if(ifindex)
        return None if address is None else self.l3_if_covering(address)

    def connected(self) -> list[Connected]:
        """Returns the connected prefixes of interfaces that are up."""
        return [
            Connected(RouteSlot(state.spec.vrf, address.prefix), state.spec.l3_if)
            for state in self.by_l3_if.values()
            if state.usable
            for address in state.addresses
            if address.length < len(address.address) * 8 and not why_not_routed(address.prefix)
        ]

    def local_addresses(self, vrf: int) -> list[Address]:
        """Returns the router's own addresses in a VRF. Addresses of layer-3 interfaces come
        first."""
        own = [
            address.address
            for state in self.by_l3_if.values()
            if state.spec.vrf == vrf
            for address in state.addresses
        ]
        own += [
            address.address
            for ifindex, each in self._own.by_ifindex.items()
            if each.vrf == vrf and self.egress_l3_if(ifindex) is None
            for address in each.sorted()
        ]
        return own

    def icmp_source(self, l3_if: int, vrf: int, size: int) -> Address | None:
        """Returns a source address of `size` octets for ICMP errors, or None.

        Prefers global to link-local addresses, and then the interface's own addresses to other
        addresses of the VRF.
        """
        state = self.by_l3_if.get(l3_if)
        own = [] if state is None else [a.address for a in state.addresses]
        candidates = [a for a in own + self.local_addresses(vrf) if len(a) == size]
        usable = [a for a in candidates if a[0] != 127 and a != LOOPBACK6]
        return min(usable, key=is_link_local, default=None)

    def broadcasts(self) -> set[Address]:
        """Returns the directed broadcast addresses of the router's links."""
        return {
            slots[1].prefix.address
            for state in self.by_l3_if.values()
            for address in state.addresses
            if len(slots := local_slots(state.spec.vrf, address)) == 2
        }

    # -- events

    def link_changed(self, event: LinkChanged, changes: EntityChanges) -> bool:
        """Applies a link event. Returns whether the mapping of kernel to layer-3 interfaces
        changed."""
        moved = self._kernel_vrfs.apply(event)
        remapped = self._link_changed(event, changes)
        self._assign_vrfs(moved, changes)
        return remapped

    def _link_changed(self, event: LinkChanged, changes: EntityChanges) -> bool:
        namespace = namespace_of(event.ifindex)
        for device in self._by_device.get(event.name, ()) if namespace == OWN_NAMESPACE else ():
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
            if state.ifindex is not None:  # a new device of this name
                self._detach(state, changes)
            self._attach(state, event.ifindex, changes)
        if state.up != event.up:
            state.up = event.up
            self._write_admission(state, event.up, changes)
        state.carrier = event.carrier
        self._set_link_properties(state, event, changes)
        return remapped

    def link_removed(self, event: LinkRemoved, changes: EntityChanges) -> bool:
        """Applies a link's removal. Returns whether the mapping of kernel to layer-3 interfaces
        changed."""
        name = self._names.pop(event.ifindex, "")
        if namespace_of(event.ifindex) == OWN_NAMESPACE:
            for device in self._by_device.get(name, ()):
                device.device_carrier = False
        lower = self._lower_interface(event.ifindex)
        if self._macvlan_links.pop(event.ifindex, None) is not None:
            self._update_macvlans(lower, changes)
        state = self._by_ifindex.get(event.ifindex)
        if state is not None:
            self._detach(state, changes)
        self._own.forget(event.ifindex, changes)
        self._assign_vrfs(self._kernel_vrfs.apply(event), changes)
        if state is None:
            return lower is not None
        if state.up:
            state.up = False
            self._write_admission(state, False, changes)
        return True

    def _attach(self, state: InterfaceState, ifindex: int, changes: EntityChanges) -> None:
        state.ifindex, state.tap_addresses = ifindex, self._own.of_interface(ifindex)
        self._by_ifindex[ifindex] = state
        self._own.set_vrf(ifindex, state.spec.vrf, changes)
        self._update_macvlans(state, changes)

    def _detach(self, state: InterfaceState, changes: EntityChanges) -> None:
        if state.ifindex is not None:
            del self._by_ifindex[state.ifindex]
            self._own.set_vrf(state.ifindex, self._kernel_vrfs.vrf_of(state.ifindex), changes)
        above = list(state.macvlans)
        state.ifindex, state.carrier, state.tap_addresses = None, False, InterfaceAddresses()
        self._update_macvlans(state, changes)
        for ifindex in above:
            self._own.set_vrf(ifindex, self._kernel_vrfs.vrf_of(ifindex), changes)

    def _assign_vrfs(self, moved: Iterable[int], changes: EntityChanges) -> None:
        """Assigns the addresses of kernel interfaces to the VRFs of these interfaces. Skips TAPs
        and macvlan devices on TAPs."""
        for ifindex in moved:
            if self.egress_l3_if(ifindex) is None:
                self._own.set_vrf(ifindex, self._kernel_vrfs.vrf_of(ifindex), changes)

    # -- macvlan devices

    def _lower_interface(self, ifindex: int) -> InterfaceState | None:
        """Returns the interface whose TAP carries a macvlan device."""
        link = self._macvlan_links.get(ifindex)
        if link is None or link.macvlan_on is None:
            return None
        return self._by_ifindex.get(link.macvlan_on)

    def _macvlan_changed(self, event: LinkChanged, changes: EntityChanges) -> bool:
        """Applies a macvlan event. Returns whether the device moved to another layer-3
        interface."""
        before = self._lower_interface(event.ifindex)
        if event.macvlan_on is None:  # Reused for a device of another type.
            del self._macvlan_links[event.ifindex]
        else:
            self._macvlan_links[event.ifindex] = event
        after = self._lower_interface(event.ifindex)
        if before is not after:
            self._update_macvlans(before, changes)
        if after is None:
            self._own.set_vrf(event.ifindex, self._kernel_vrfs.vrf_of(event.ifindex), changes)
        self._update_macvlans(after, changes)
        return before is not after

    def _update_macvlans(self, state: InterfaceState | None, changes: EntityChanges) -> None:
        """Updates an interface after its TAP or the macvlan devices on it have changed."""
        if state is None:
            return
        state.macvlans = {
            ifindex: _Macvlan(link, self._own.of_interface(ifindex))
            for ifindex, link in sorted(self._macvlan_links.items())
            if link.macvlan_on == state.ifindex
        }
        for ifindex, (link, _) in state.macvlans.items():
            self._own.set_vrf(ifindex, state.spec.vrf if link.works else None, changes)
        self._write_macs(state, changes)

    # -- addresses

    def address_added(self, event: AddressAdded, changes: EntityChanges) -> None:
        """Adds an address of the router."""
        self._own.add(event.ifindex, event.address, changes)

    def address_removed(self, event: AddressRemoved, changes: EntityChanges) -> None:
        """Removes an address of the router."""
        self._own.remove(event.ifindex, event.address, changes)

    # -- entities

    def _set_link_properties(
        self, state: InterfaceState, event: LinkChanged, changes: EntityChanges
    ) -> None:
        if (state.mac, state.mtu) == (event.mac, event.mtu):
            return
        state.mac, state.mtu = event.mac, event.mtu
        self._write_egress(state, changes)
        self._write_macs(state, changes)

    def _write_egress(self, state: InterfaceState, changes: EntityChanges) -> None:
        spec = state.spec
        egress = Egress(spec.port, spec.vlan, state.mac, state.mtu)
        changes.set(EntityKind.EGRESS_INTERFACE, spec.l3_if, egress)

    def _write_admission(self, state: InterfaceState, up: bool, changes: EntityChanges) -> None:
        spec = state.spec
        interface = L3Interface(spec.l3_if, spec.vrf)
        attachment = Attachment(spec.port, spec.vlan)
        changes.set(EntityKind.L3_INTERFACE, attachment, interface if up else None)
        self._write_macs(state, changes)

    def _write_macs(self, state: InterfaceState, changes: EntityChanges) -> None:
        wanted = set(state.macs) if state.up else set()
        for mac in state.admitted - wanted:
            changes.set(EntityKind.ROUTER_MAC, RouterMac(state.spec.l3_if, mac), None)
        for mac in wanted - state.admitted:
            changes.set(EntityKind.ROUTER_MAC, RouterMac(state.spec.l3_if, mac), ADMIT)
        state.admitted = wanted


MULTICAST = "multicast: not routed"
LINK_LOCAL = {
    4: "link-local: never forwarded (RFC 3927)",
    16: "link-local: never forwarded (RFC 4291)",
}


def why_not_routed(prefix: Prefix) -> str:
    """Returns the reason why the pipeline does not route a prefix, or "" if it does route it."""
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

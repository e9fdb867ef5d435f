# SPDX-License-Identifier: Apache-2.0
"""Manages the host interfaces: one TAP for each layer-3 interface.

FRR and the kernel use the switch through the TAPs. A TAP has the addresses of its interface. Its
carrier follows the carrier of the port's device. Packets that the pipeline punts to the host are
written to the TAP. Frames that the host sends are read from the TAP as HostFrame.

Invariant: the kernel never forwards. Kernel forwarding is off on each TAP (interface_settings), but
another program might turn it on. So a frame from the host is dropped and counted unless its IP
source is an own address of this router in the interface's VRF.

Own addresses come from the kernel's events (`apply`). An address of an interface without a TAP
belongs to the VRF that the kernel assigns to that interface. The address of a macvlan device on a
TAP (VRRP's virtual router) is an own address only while the device works. Otherwise another router
may have this address. A macvlan device has the same kernel settings and the same VRF as the TAP
below it.

A TAP is **separated** when the kernel itself keeps its VRF apart from the other VRFs. This is so in
two cases: the TAP and all macvlan devices on it belong to the VRF's VRF device, or the TAP is in
the VRF's network namespace. For all other TAPs, and until the kernel has reported its links, the
rules of `shared_stack` keep the VRFs apart. Neighbour probes (sources.neighbor_probe) only trigger
the kernel's neighbour resolution, so they are dropped here.

Depends on `sluice._native.TapSet` (or an object with its methods) and on the kernel monitor's
requests.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol

from sluice.config import InterfaceConfig
from sluice.kernel_vrfs import DEFAULT_VRF, KernelVrfs
from sluice.model import (
    Address,
    AddressAdded,
    AddressRemoved,
    HostFrame,
    InterfaceAddress,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    Mac,
    format_mac,
)
from sluice.namespaces import OWN_NAMESPACE, base, namespace_of
from sluice.sources.device import Devices
from sluice.sources.kernel_esp import KernelEsp
from sluice.sources.shared_stack import (
    answers_from_its_destination,
    is_answered_in_its_vrf,
    is_of_its_vrf,
    stays_on_link,
)
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    ETHERTYPE_ARP,
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_LLDP,
    ETHERTYPE_MINIMUM,
    ISIS_LLC,
    has_source_route,
    is_unspecified,
    parse_ethernet,
    parse_ipv4,
    parse_ipv6,
    without_vlan,
)

log = logging.getLogger(__name__)


class Taps(Protocol):
    """Describes the methods of `sluice._native.TapSet` that are used."""

    def add(
        self,
        name: str,
        mtu: int,
        mac: str,
        *,
        persist: bool = False,
        base: int = 0,
        queue: int | None = None,
    ) -> int:
        """Creates a TAP that is down, or uses the TAP of an open `queue`. Returns the TAP's ifindex
        plus `base`."""

    def remove(self, index: int) -> None:
        """Removes a TAP from the set."""

    def set_up(self, index: int, up: bool) -> None:
        """Sets IFF_UP."""

    def set_carrier(self, index: int, up: bool) -> None:
        """Sets the carrier."""

    def fileno(self) -> int:
        """Returns a descriptor that is readable while `read` has frames."""

    def read(self, max_frames: int) -> list[tuple[int, bytes]]:
        """Returns (ifindex, frame) pairs in order of arrival."""

    def write(self, frames: list[tuple[int, bytes]]) -> int:
        """Sends frames to the host. Returns the number of accepted frames."""


class Addresses(Protocol):
    """Describes the methods of the kernel monitor that are used."""

    def add_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Adds an address to an interface."""

    def remove_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Removes an address from an interface."""


class FrameFilterTap(NamedTuple):
    """Describes a TAP, and the source MAC addresses that IP frames of the host may have on this
    TAP."""

    ifindex: int
    l3_if: int
    vrf: int
    macs: frozenset[Mac]


class TapNamespace(NamedTuple):
    """Describes a network namespace that contains TAPs. `inside` calls a function in the
    namespace."""

    inside: Callable[[Callable[[], Any]], Any]
    devices: Devices
    guard: Callable[[str], None]


class FrameFilter(NamedTuple):
    """Holds the state that decides whether a frame of the host passes.

    `sources` maps each VRF to its own addresses. An address that two VRFs of the same host stack
    have is left out.
    """

    taps: list[FrameFilterTap]
    sources: dict[int, set[Address]]


class HostInterfaces:
    """Manages the TAPs of all layer-3 interfaces."""

    def __init__(
        self,
        taps: Taps,
        kernel: Addresses,
        devices: Devices | None = None,
        *,
        is_probe: Callable[[int, bytes], bool] = lambda _, __: False,
        guard: Callable[[str], None] = lambda _: None,
        join: Callable[[str, int], None] = lambda _, __: None,
        tables: Mapping[int, int] | None = None,
        on_change: Callable[[FrameFilter], None] | None = None,
        vrf_namespaces: Mapping[int, TapNamespace] | None = None,
    ) -> None:
        """Creates no TAP yet.

        - `devices` and `guard` are those of the process's own network namespace. `vrf_namespaces`
          has those of the other namespaces.
        - `guard` is called with the name of each TAP before a frame can be read from the TAP.
        - `join` is called with a TAP's name and VRF before the TAP is up.
        - `publish` calls `on_change` with the new `FrameFilter`.
        - `is_probe` tests each frame that the host sends; its first argument is the TAP's index.
        - `tables` maps kernel routing tables to VRFs.
        """
        self._taps = taps
        self._kernel = kernel
        self._is_probe = is_probe
        self._join = join
        self._on_change = on_change
        self._is_published = False
        self._devices = devices if devices is not None else Devices()
        self._vrf_namespaces = {
            OWN_NAMESPACE: TapNamespace(lambda act: act(), self._devices, guard),
            **(vrf_namespaces or {}),
        }
        self._ifindex: dict[int, int] = {}
        self._l3_if: dict[int, int] = {}
        # VRF of each TAP, and of each macvlan device on a TAP, by interface index. `_kernel_vrfs`
        # has the VRFs of all other interfaces.
        self._vrf: dict[int, int] = {}
        self._kernel_vrfs = KernelVrfs(tables or {})
        # Separated TAPs: the kernel keeps their VRF apart from the other VRFs.
        self._separated: set[int] = set()
        # MAC addresses of TAPs and of macvlan devices on them.
        self._macs: dict[int, Mac] = {}
        # Configured addresses, by the TAP's ifindex.
        self._configured: dict[int, frozenset[InterfaceAddress]] = {}
        # `_followers`: by the name of a port's device, the TAPs whose carrier follows that device.
        # `_device_names`: the names of these devices, by ifindex.
        self._followers: dict[str, list[int]] = {}
        self._device_names: dict[int, str] = {}
        # Own addresses, each with the interfaces that have it.
        self._own: dict[Address, set[int]] = {}
        # `_macvlans`: the TAP below each macvlan device. `_resting`: the macvlan devices that do
        # not work.
        self._macvlans: dict[int, int] = {}
        self._resting: set[int] = set()
        # Macvlan devices that could not be configured.
        self._loud: set[int] = set()
        self._kernel_esp = KernelEsp()
        self.counters: Counter[str] = Counter()

    # --- set-up ----------------------------------------------------------------------------------

    def add(self, interface: InterfaceConfig) -> int:
        """Creates the TAP of an interface, configures it, sets it up and adds its addresses.

        Returns the TAP's ifindex. Raises OSError with the failed step if the kernel refuses.
        """
        ifindex = self._make(interface)
        self._ifindex[interface.l3_if] = ifindex
        self._l3_if[ifindex] = interface.l3_if
        self._vrf[ifindex] = interface.vrf.id
        self._macs[ifindex] = interface.mac
        self._configured[ifindex] = frozenset(interface.addresses)
        self._is_published = False
        if interface.device is not None:
            # A TAP left by the last controller must not flap, so its carrier is set before it is
            # up.
            self._followers.setdefault(interface.device, []).append(ifindex)
            self._taps.set_carrier(ifindex, self._devices.has_carrier(interface.device))
        self._taps.set_up(ifindex, True)
        for address in interface.addresses:
            self._kernel.add_address(ifindex, address)
        return ifindex

    def _make(self, interface: InterfaceConfig) -> int:
        """Claims, creates and configures the TAP, which stays down. Undoes all this if a step
        fails."""
        place = self._vrf_namespaces[interface.vrf.namespace_number]
        ifindex: int = place.inside(lambda: self._make_inside(interface, place))
        return ifindex

    def _make_inside(self, interface: InterfaceConfig, place: TapNamespace) -> int:
        name, devices, namespace = interface.name, place.devices, interface.vrf.namespace_number
        devices.claim(name)
        try:
            with devices.reserved(name) as queue:
                place.guard(name)
                mac = format_mac(interface.mac)
                ifindex = self._taps.add(
                    name, interface.mtu, mac, base=base(namespace), queue=queue
                )
            try:
                if namespace_of(ifindex) != namespace:
                    raise OSError(
                        f"the kernel's index {ifindex - base(namespace)} of {name} is too large;"
                        " delete its network namespace and create it again"
                    )
                devices.configure_interface(name)
                if namespace == OWN_NAMESPACE:
                    self._join(name, interface.vrf.id)
            except OSError:
                self._taps.remove(ifindex)
                raise
        except OSError:
            devices.release(name)
            raise
        return ifindex

    def close(self) -> None:
        """Releases the claims on the interfaces. The TAPs themselves belong to the `TapSet`."""
        for place in self._vrf_namespaces.values():
            place.devices.close()

    def ifindex(self, l3_if: int) -> int | None:
        """Returns the ifindex of a layer-3 interface's TAP."""
        return self._ifindex.get(l3_if)

    def l3_if(self, ifindex: int) -> int | None:
        """Returns the layer-3 interface of the TAP with this ifindex."""
        return self._l3_if.get(ifindex)

    def is_own(self, address: Address) -> bool:
        """Returns whether an interface of this host has the address. Ignores macvlan devices that
        do not work."""
        return bool(self._holders(address))

    def _holders(self, address: Address) -> set[int]:
        return self._own.get(address, set()) - self._resting

    # --- the kernel's events ---------------------------------------------------------------------

    def apply(self, event: KernelEvent) -> None:
        """Applies a kernel event: tracks own addresses, carriers, VRFs and macvlan devices."""
        match event:
            case AddressAdded(ifindex, address, ours):
                self._is_published = False
                self._own.setdefault(address.address, set()).add(ifindex)
                if ours and address not in self._configured.get(ifindex, {address}):
                    # The address was configured by an earlier controller, which left the TAP.
                    self._kernel.remove_address(ifindex, address)
            case AddressRemoved(ifindex, address):
                self._remove_own_address(address.address, ifindex)
            case LinkChanged(ifindex, name, up, carrier):
                self._is_published &= not self._kernel_vrfs.apply(event)
                self._device_changed(ifindex, name, up and carrier)
                self._macvlan_changed(event)
                if ifindex in self._macs:
                    self._is_published &= self._macs[ifindex] == event.mac
                    self._macs[ifindex] = event.mac
                self._separate()
            case LinkRemoved(ifindex):
                self._is_published &= not self._kernel_vrfs.apply(event)
                self._forget_macvlan(ifindex)
                self._separate()
                for own in list(self._own):
                    self._remove_own_address(own, ifindex)
                self._device_changed(ifindex, None, False)

    def _separate(self) -> None:
        """Finds the TAPs whose VRF the kernel keeps apart from the other VRFs."""
        self._separated = {
            tap
            for tap in self._l3_if
            if self._vrf[tap] != DEFAULT_VRF
            and self._kernel_vrfs.vrf_of(tap) == self._vrf[tap]
            and all(
                self._kernel_vrfs.vrf_of(macvlan) == self._vrf[tap]
                for macvlan, below in self._macvlans.items()
                if below == tap
            )
        }

    @property
    def vrf_devices(self) -> Mapping[int, str | None]:
        """The kernel's VRF device of each VRF that has TAPs, except the default VRF.

        The value is None if the VRF has no VRF device, or if one of the VRF's TAPs does not belong
        to it.
        """
        devices: dict[int, str | None] = {}
        for tap in self._l3_if:
            vrf = self._vrf[tap]
            if vrf != DEFAULT_VRF:
                device = self._kernel_vrfs.device_of(tap) if tap in self._separated else None
                devices[vrf] = device if devices.get(vrf, device) == device else None
        return devices

    def publish(self) -> None:
        """Passes the current `FrameFilter` to `on_change` if it has changed. Call it after
        `apply`."""
        if self._is_published or self._on_change is None:
            return
        self._on_change(FrameFilter(self._filter_taps(), self._sources()))
        self._is_published = True

    def _filter_taps(self) -> list[FrameFilterTap]:
        return [
            FrameFilterTap(ifindex, l3_if, self._vrf[ifindex], frozenset(self._own_macs(ifindex)))
            for ifindex, l3_if in self._l3_if.items()
        ]

    def _sources(self) -> dict[int, set[Address]]:
        apart = {self._vrf[tap] for tap in self._separated}
        apart -= {self._vrf[tap] for tap in self._l3_if if tap not in self._separated}
        sources: dict[int, set[Address]] = {}
        for address in self._own:
            holders = self._holders(address)
            sharing = {self._vrf_of(holder) for holder in holders if not self._is_isolated(holder)}
            for vrf in map(self._vrf_of, holders):
                if vrf is not None and (vrf in apart or sharing <= {vrf}):
                    sources.setdefault(vrf, set()).add(address)
        return sources

    def _remove_own_address(self, address: Address, ifindex: int) -> None:
        self._is_published = False
        holders = self._own.get(address)
        if holders is not None:
            holders.discard(ifindex)
            if not holders:
                del self._own[address]

    def _macvlan_changed(self, event: LinkChanged) -> None:
        """Configures a macvlan device that is new on a TAP, and records whether the device
        works."""
        ifindex, below = event.ifindex, event.macvlan_on
        if below is None or below not in self._l3_if:
            self._forget_macvlan(ifindex)
            return
        self._is_published = False
        self._vrf[ifindex], self._macs[ifindex] = self._vrf[below], event.mac
        is_new = ifindex not in self._macvlans
        self._macvlans[ifindex] = below
        if is_new or ifindex in self._loud:
            self._configure_macvlan(ifindex, event.name)
        if event.works and ifindex not in self._loud:
            self._resting.discard(ifindex)
        else:
            self._resting.add(ifindex)

    def _configure_macvlan(self, ifindex: int, name: str) -> None:
        """Configures a macvlan device like a TAP.

        If that fails, the device does not count as working. The next change of the device tries
        again.
        """
        place = self._vrf_namespaces[namespace_of(ifindex)]
        try:
            place.inside(lambda: place.devices.configure_interface(name))
        except OSError as error:  # the device was removed or renamed meanwhile
            self._loud.add(ifindex)
            self.counters["macvlan_not_silenced"] += 1
            log.warning("macvlan device %s: %s", name, error)
        else:
            self._loud.discard(ifindex)

    def _forget_macvlan(self, ifindex: int) -> None:
        if ifindex in self._macvlans:
            self._is_published = False
            self._resting.discard(ifindex)
            self._loud.discard(ifindex)
            for known in (self._macvlans, self._vrf, self._macs):
                del known[ifindex]

    def _device_changed(self, ifindex: int, name: str | None, carrier: bool) -> None:
        if namespace_of(ifindex) != OWN_NAMESPACE:
            return
        before = self._device_names.pop(ifindex, None)
        if before is not None and before != name:  # removed or renamed
            self._set_carrier_of(before, False)
        if name in self._followers:
            self._device_names[ifindex] = name
            self._set_carrier_of(name, carrier)

    def _set_carrier_of(self, device: str, carrier: bool) -> None:
        for tap in self._followers[device]:
            self._taps.set_carrier(tap, carrier)

    # --- packets ---------------------------------------------------------------------------------

    def deliver(self, frames: Iterable[tuple[int, bytes]]) -> int:
        """Sends frames to the host. Each is given as its layer-3 interface and the frame as the
        port received it.

        Removes the VLAN tag that selected the interface. If the host might answer a frame in
        another VRF, drops and counts the frame. Returns the number of frames that the host
        accepted.
        """
        batch: list[tuple[int, bytes]] = []
        for l3_if, frame in frames:
            ifindex = self._ifindex.get(l3_if)
            if ifindex is None:
                self.counters["to_host_without_interface"] += 1
            elif self._is_shared(ifindex) and not answers_from_its_destination(frame):
                self.counters["to_host_of_a_service_without_vrfs"] += 1
            elif self._has_vrf_device(ifindex) and not is_answered_in_its_vrf(frame):
                self.counters["to_host_of_a_protocol_without_vrfs"] += 1
            else:
                batch.append((ifindex, without_vlan(frame)))
        taken = self._taps.write(batch) if batch else 0
        self.counters["to_host"] += taken
        self.counters["to_host_refused"] += len(batch) - taken
        return taken

    def _has_vrf_device(self, tap: int) -> bool:
        return tap in self._separated and namespace_of(tap) == OWN_NAMESPACE

    def _is_shared(self, tap: int) -> bool:
        """Returns whether a TAP of a VRF other than the default VRF uses the host stack of the
        default VRF."""
        return self._vrf.get(tap, DEFAULT_VRF) != DEFAULT_VRF and tap not in self._separated

    def fileno(self) -> int:
        """Returns a descriptor that is readable while frames of the host wait.

        Then call `poll` until it returns an empty list.
        """
        return self._taps.fileno()

    def poll(self, limit: int) -> list[HostFrame]:
        """Returns at most `limit` frames of the host that may leave. The list is empty if no such
        frame waits."""
        while frames := self._taps.read(limit):
            passed: list[HostFrame] = []
            for ifindex, frame in frames:
                reason = self._refuse(ifindex, frame)
                l3_if = self._l3_if.get(ifindex)
                if reason is None and l3_if is not None:
                    passed.append(HostFrame(l3_if, frame))
                else:
                    self.counters[f"from_host_{reason or 'without_interface'}"] += 1
            self.counters["from_host"] += len(passed)
            if passed:
                return passed
        return []

    def _refuse(self, ifindex: int, frame: bytes) -> str | None:
        """Returns the reason why a frame of the host must not leave, as a counter's name. None if
        the frame may leave."""
        if self._is_probe(ifindex, frame):
            return "neighbor_probe"
        try:
            header = parse_ethernet(frame)
            if header.vlan is not None:
                return "tagged"
            packet = frame[header.payload_offset :]
            is_ip = header.ethertype in (ETHERTYPE_IPV4, ETHERTYPE_IPV6)
            if is_ip and header.source not in self._own_macs(ifindex):
                # The frame is from a macvlan device that was moved to another namespace.
                return "foreign_ethernet_source"
            if is_ip and self._kernel_esp.covers(packet):
                return "esp_of_the_kernel"
            if header.ethertype == ETHERTYPE_IPV4:
                ipv4 = parse_ipv4(packet)
                if ipv4.options and has_source_route(ipv4.options):
                    return "source_route"
                return self._refuse_source(ifindex, frame, ipv4.source, ipv4.destination)
            if header.ethertype == ETHERTYPE_IPV6:
                ipv6 = parse_ipv6(packet)
                return self._refuse_source(ifindex, frame, ipv6.source, ipv6.destination)
        except WireError as error:
            return error.name
        return None if is_link_protocol(header.ethertype, frame) else "other_protocol"

    def _own_macs(self, ifindex: int) -> set[Mac]:
        """Returns the MAC addresses of a TAP and of the macvlan devices on it."""
        above = (macvlan for macvlan, below in self._macvlans.items() if below == ifindex)
        return {self._macs[one] for one in (ifindex, *above) if one in self._macs}

    def _refuse_source(
        self, ifindex: int, frame: bytes, source: Address, destination: Address
    ) -> str | None:
        if is_unspecified(source):
            # Duplicate address detection, DHCP and IGMP send from the unspecified address. The
            # kernel never forwards such a packet.
            return None
        holders = self._holders(source)
        if not holders:
            return "foreign_source"
        vrf = self._vrf.get(ifindex, DEFAULT_VRF)
        if vrf not in map(self._vrf_of, holders):
            return "source_of_another_vrf"
        if ifindex in self._separated:
            return None
        if vrf != DEFAULT_VRF and not is_of_its_vrf(frame):
            return "of_a_service_without_vrfs"
        sharing = {self._vrf_of(holder) for holder in holders if not self._is_isolated(holder)}
        if len(sharing) > 1 and not stays_on_link(frame, destination):
            return "source_of_several_vrfs"
        return None

    def _vrf_of(self, ifindex: int) -> int | None:
        """Returns the VRF to which the addresses of an interface belong."""
        vrf = self._vrf.get(ifindex)
        return self._kernel_vrfs.vrf_of(ifindex) if vrf is None else vrf

    def _is_isolated(self, ifindex: int) -> bool:
        """Returns whether an interface's addresses are in a host stack that no other VRF uses."""
        tap = self._macvlans.get(ifindex, ifindex)
        if tap in self._l3_if:
            return tap in self._separated
        return self._kernel_vrfs.vrf_of(ifindex) != DEFAULT_VRF


def is_link_protocol(ethertype: int, frame: bytes) -> bool:
    """Returns whether a frame belongs to a non-IP protocol that a router uses: ARP, LLDP or
    IS-IS."""
    if ethertype < ETHERTYPE_MINIMUM:
        return frame[14:17] == ISIS_LLC
    return ethertype in (ETHERTYPE_ARP, ETHERTYPE_LLDP)

# SPDX-License-Identifier: Apache-2.0
"""Tracks the VRF of each kernel interface.

The kernel separates VRFs by VRF devices (Documentation/networking/vrf.rst). An interface belongs to
the VRF device that is its master, or to the default VRF if it has no such master. A VRF device is
identified by its routing table, not by its name. In the network namespace of a VRF, all interfaces
are in this VRF, except those that belong to a VRF device there. Depends on model and namespaces.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from sluice.model import KernelEvent, LinkChanged, LinkRemoved
from sluice.namespaces import OWN_NAMESPACE, namespace_of

DEFAULT_VRF = 0

T = TypeVar("T")


class KernelVrfs:
    """Tracks the VRF of each interface, from the kernel's link events.

    `vrf_of_table` maps routing tables to the pipeline's VRF numbers.
    """

    def __init__(self, vrf_of_table: Mapping[int, int]) -> None:
        self._vrf_of_table = vrf_of_table
        # Table and name of each VRF device, and master of each interface, by ifindex.
        self._devices: dict[int, tuple[int, str]] = {}
        self._masters: dict[int, int] = {}

    def apply(self, event: KernelEvent) -> set[int]:
        """Applies a link event. Returns the interfaces whose VRF may have changed."""
        match event:
            case LinkChanged(ifindex, name, master=master, vrf_table=table):
                before = self._masters.get(ifindex), self._devices.get(ifindex)
                device = None if table is None else (table, name)
                _keep(self._masters, ifindex, master)
                _keep(self._devices, ifindex, device)
                if before == (master, device):
                    return set()
                is_device = before[1] is not None or device is not None
                return {ifindex, *(self._members(ifindex) if is_device else ())}
            case LinkRemoved(ifindex):
                self._masters.pop(ifindex, None)
                if self._devices.pop(ifindex, None) is not None:
                    return set(self._members(ifindex))
        return set()

    def _members(self, device: int) -> Iterable[int]:
        return [ifindex for ifindex, master in self._masters.items() if master == device]

    def vrf_of(self, ifindex: int) -> int | None:
        """Returns the VRF of an interface or of a VRF device, or None if this VRF is not
        configured."""
        device, namespace = self._device_of(ifindex), namespace_of(ifindex)
        if device is None:
            return namespace  # a VRF's namespace has the VRF's number
        return self._vrf_of_table.get(device[0]) if namespace == OWN_NAMESPACE else None

    def device_of(self, ifindex: int) -> str | None:
        """Returns the name of the VRF device that an interface belongs to, or None."""
        device = self._device_of(ifindex)
        return None if device is None else device[1]

    def _device_of(self, ifindex: int) -> tuple[int, str] | None:
        return self._devices.get(ifindex) or self._devices.get(self._masters.get(ifindex, 0))


def _keep(known: dict[int, T], ifindex: int, value: T | None) -> None:
    if value is None:
        known.pop(ifindex, None)
    else:
        known[ifindex] = value

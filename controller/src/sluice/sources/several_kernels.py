# SPDX-License-Identifier: Apache-2.0
"""Combines the `KernelMonitor`s of several network namespaces into one.

Interfaces have unique indexes (`sluice.namespaces`). Depends on sources.kernel.
"""

from __future__ import annotations

import select
from collections import Counter
from collections.abc import Mapping

from sluice.model import Address, InterfaceAddress, KernelEvent
from sluice.namespaces import from_namespace, local, namespace_of
from sluice.sources.kernel import KernelMonitor
from sluice.sources.neighbor_probe import NeighborProbe


class SeveralKernels:
    """Combines the monitors and neighbour probes of all namespaces, by number of the namespace."""

    def __init__(self, monitors: Mapping[int, tuple[KernelMonitor, NeighborProbe]]) -> None:
        self._monitors = {number: monitor for number, (monitor, _) in monitors.items()}
        self._probes = {number: probe for number, (_, probe) in monitors.items()}
        self._epoll = select.epoll()
        for monitor in self._monitors.values():
            self._epoll.register(monitor.fileno(), select.EPOLLIN)

    @property
    def counters(self) -> Counter[str]:
        """Sums of the counters of all namespaces."""
        return sum((monitor.counters for monitor in self._monitors.values()), Counter())

    @property
    def synced(self) -> bool:
        """Whether the monitors of all namespaces are synced."""
        return all(monitor.synced for monitor in self._monitors.values())

    def fileno(self) -> int:
        """Returns a descriptor that is readable while messages wait in any monitor."""
        return self._epoll.fileno()

    def start(self) -> None:
        """Requests all dumps in all namespaces."""
        for monitor in self._monitors.values():
            monitor.start()

    def poll(self, limit: int) -> list[KernelEvent]:
        """Returns about `limit` events of each namespace. The events of a namespace are in
        order."""
        events: list[KernelEvent] = []
        for number, monitor in self._monitors.items():
            events += (from_namespace(event, number) for event in monitor.poll(limit))
        return events

    def use_neighbor(self, ifindex: int, address: Address) -> None:
        """Behaves like `KernelMonitor.use_neighbor`."""
        self._monitors[namespace_of(ifindex)].use_neighbor(local(ifindex), address)

    def add_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Behaves like `KernelMonitor.add_address`."""
        self._monitors[namespace_of(ifindex)].add_address(local(ifindex), address)

    def remove_address(self, ifindex: int, address: InterfaceAddress) -> None:
        """Behaves like `KernelMonitor.remove_address`."""
        self._monitors[namespace_of(ifindex)].remove_address(local(ifindex), address)

    def is_probe(self, ifindex: int, frame: bytes) -> bool:
        """Returns whether a frame that the host sent on an interface is a probe of its
        namespace."""
        return self._probes[namespace_of(ifindex)].is_probe(frame)

    def close(self) -> None:
        """Closes all monitors."""
        self._epoll.close()
        for monitor in self._monitors.values():
            monitor.close()

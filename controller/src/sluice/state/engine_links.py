# SPDX-License-Identifier: Apache-2.0
"""Tracks whether ESP engines are reachable. An engine is reachable if its switch port is up, its
network device is up, and it answers on its admin socket.

Each of these three states may be unknown: not every switch reports its ports, an engine may have no
device on this host, and an engine with manual SAs is not polled. An unknown state counts as up,
because a restart must not disturb forwarding. For the same reason, every device counts as up until
the kernel's link dump is complete. Pure; depends on model and entities.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from sluice.entities import ENGINE_DOWN, EnginePort, EntityChanges, EntityKind
from sluice.model import KernelEvent, LinkChanged, LinkRemoved


class EngineSpec(NamedTuple):
    """Describes a configured engine: its number, its switch port, and the port's network device if
    known."""

    id: int
    port: int
    device: str | None


class EngineLinks:
    """Tracks the engines, and whether packets can reach them."""

    def __init__(self, specs: Iterable[EngineSpec]) -> None:
        self._specs = tuple(specs)
        self._up = {spec.device: True for spec in self._specs if spec.device is not None}
        self._names: dict[int, str] = {}
        self._ports: Mapping[int, bool] | None = None
        self._answering: dict[int, bool] = {}

    def start(self) -> EntityChanges:
        """Returns the entities of all engines."""
        changes = EntityChanges()
        for spec in self._specs:
            self._write(spec, changes)
        return changes

    def complete_link_dump(self) -> EntityChanges:
        """Records that the kernel's link dump is complete: devices that the dump did not report are
        down. Returns the entities of the engines on these devices."""
        changes = EntityChanges()
        for device in self._up.keys() - set(self._names.values()):
            self._set(device, False, changes)
        return changes

    def apply(self, events: Iterable[KernelEvent]) -> EntityChanges:
        """Applies link events. Returns the entities of the engines that changed."""
        changes = EntityChanges()
        for event in events:
            if isinstance(event, LinkChanged):
                self._names[event.ifindex] = event.name
                self._set(event.name, event.up and event.carrier, changes)
            elif isinstance(event, LinkRemoved):
                self._set(self._names.pop(event.ifindex, ""), False, changes)
        return changes

    def ports_changed(self, ports: Mapping[int, bool] | None) -> EntityChanges:
        """Updates the states of the switch ports. Returns the entities of the engines that became
        reachable or unreachable.

        `ports` maps switch port numbers to whether the link is up. None: the switch does not report
        its ports.
        """
        before = {spec.id: self._is_reachable(spec) for spec in self._specs}
        self._ports = ports
        changes = EntityChanges()
        for spec in self._specs:
            if self._is_reachable(spec) != before[spec.id]:
                self._write(spec, changes)
        return changes

    def set_answering(self, engine: int, answers: bool) -> EntityChanges:
        """Records whether an engine answers on its admin socket. Returns the engine's entity if
        this is a change."""
        changes = EntityChanges()
        if self._answering.get(engine, True) != answers:
            self._answering[engine] = answers
            for spec in self._specs:
                if spec.id == engine:
                    self._write(spec, changes)
        return changes

    def _set(self, device: str, up: bool, changes: EntityChanges) -> None:
        if self._up.get(device, up) == up:
            return
        self._up[device] = up
        for spec in self._specs:
            if spec.device == device:
                self._write(spec, changes)

    def _is_reachable(self, spec: EngineSpec) -> bool:
        attached = self._ports is None or self._ports.get(spec.port, False)
        attached = attached and self._answering.get(spec.id, True)
        return attached and (spec.device is None or self._up[spec.device])

    def _write(self, spec: EngineSpec, changes: EntityChanges) -> None:
        value = EnginePort(spec.port) if self._is_reachable(spec) else ENGINE_DOWN
        changes.set(EntityKind.ENGINE, spec.id, value)

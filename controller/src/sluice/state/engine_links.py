# SPDX-License-Identifier: Apache-2.0
"""Which ESP engines are there: by the links of their ports' devices, where these are known.

An engine without a device is taken for being there, and so is every engine until the kernel has
told of all links: a restart must not disturb what works. Pure; depends on model and entities.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from sluice.entities import ENGINE_DOWN, Changes, EnginePort, Kind
from sluice.model import KernelEvent, LinkChanged, LinkRemoved


class EngineSpec(NamedTuple):
    """An engine as configured: its number, its switch port, and that port's device if known."""

    id: int
    port: int
    device: str | None


class EngineLinks:
    """The engines, and whether packets can reach them."""

    def __init__(self, specs: Iterable[EngineSpec]) -> None:
        self._specs = tuple(specs)
        self._up = {spec.device: True for spec in self._specs if spec.device is not None}
        self._names: dict[int, str] = {}

    def start(self) -> Changes:
        """Returns the entities of all engines."""
        changes = Changes()
        for spec in self._specs:
            self._write(spec, changes)
        return changes

    def settle(self) -> Changes:
        """The kernel has told of all links: returns the engines whose device is not among them."""
        changes = Changes()
        for device in self._up.keys() - set(self._names.values()):
            self._set(device, False, changes)
        return changes

    def apply(self, events: Iterable[KernelEvent]) -> Changes:
        """The engines that are up or down since."""
        changes = Changes()
        for event in events:
            if isinstance(event, LinkChanged):
                self._names[event.ifindex] = event.name
                self._set(event.name, event.up and event.carrier, changes)
            elif isinstance(event, LinkRemoved):
                self._set(self._names.pop(event.ifindex, ""), False, changes)
        return changes

    def _set(self, device: str, up: bool, changes: Changes) -> None:
        if self._up.get(device, up) == up:
            return
        self._up[device] = up
        for spec in self._specs:
            if spec.device == device:
                self._write(spec, changes)

    def _reaches(self, spec: EngineSpec) -> bool:
        return spec.device is None or self._up[spec.device]

    def _write(self, spec: EngineSpec, changes: Changes) -> None:
        value = EnginePort(spec.port) if self._reaches(spec) else ENGINE_DOWN
        changes.set(Kind.ENGINE, spec.id, value)

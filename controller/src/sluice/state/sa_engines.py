# SPDX-License-Identifier: Apache-2.0
"""Records the SAs that an ESP engine is known to hold. Pure; depends on sa_model and entities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from sluice.entities import (
    BundleInVrf,
    Decrypt,
    Encrypt,
    EntityKey,
    EntityKind,
    EntityValue,
    InboundSpi,
)
from sluice.policy.model import Direction
from sluice.sa_model import HeldKey, HeldSa, SaSettings

EntitiesByKind: TypeAlias = Mapping[EntityKind, Mapping[EntityKey, EntityValue]]
ExclusiveResource: TypeAlias = tuple[object, ...]


@dataclass(slots=True)
class EngineState:
    """Holds the state of one engine.

    `reachable` is None until the engine was tried. `idle_since` is for SAs that are no longer
    wanted: it maps each SA's key to the time since which no entry of the switch refers to the SA.
    """

    reachable: bool | None = None
    held: dict[HeldKey, HeldSa] = field(default_factory=dict)
    by_settings: dict[SaSettings, HeldSa] = field(default_factory=dict)
    idle_since: dict[HeldKey, float] = field(default_factory=dict)

    def replace(self, held: Iterable[HeldSa]) -> None:
        """Replaces the recorded SAs with the SAs that the engine reports."""
        self.held = {one.key: one for one in held}
        self.by_settings = {one.settings: one for one in self.held.values()}
        self.idle_since = {key: at for key, at in self.idle_since.items() if key in self.held}

    def add(self, held: HeldSa) -> None:
        """Records an added SA."""
        self.held[held.key] = self.by_settings[held.settings] = held

    def remove(self, held: HeldSa) -> None:
        """Records a deleted SA."""
        self.held.pop(held.key, None)
        self.by_settings.pop(held.settings, None)
        self.idle_since.pop(held.key, None)

    def resources_in_use(self) -> set[ExclusiveResource]:
        """Returns the exclusive resources of all held SAs. The engine refuses any new SA that needs
        one of them."""
        return {
            resource
            for one in self.held.values()
            for resource in exclusive_resources(one.settings, held=True)
        }


def is_referred_to(installed: EntitiesByKind, engine: int, held: HeldSa) -> bool:
    """Returns whether an entry of the switch sends packets for this SA to the engine."""
    settings = held.settings
    if settings.direction is Direction.OUTBOUND:
        value = installed[EntityKind.OUTBOUND_SA].get(BundleInVrf(settings.vrf, settings.bundle))
        return isinstance(value, Encrypt) and (value.engine, value.sa) == (engine, held.number)
    value = installed[EntityKind.INBOUND_SA].get(InboundSpi(settings.vrf, settings.spi))
    return isinstance(value, Decrypt) and value.engine == engine


def is_key(resource: ExclusiveResource) -> bool:
    """Returns whether an exclusive resource is a key."""
    return resource[0] != "spi"


def exclusive_resources(settings: SaSettings, *, held: bool) -> Iterator[ExclusiveResource]:
    """Yields the resources that an engine gives to only one SA: a key that encrypts, or an SPI in a
    VRF.

    A held outbound SA excludes every new SA with the same key. A held inbound SA excludes a new
    outbound SA with the same key.
    """
    is_outbound = settings.direction is Direction.OUTBOUND
    if not is_outbound:
        yield "spi", settings.vrf, settings.spi
    if held:
        yield "encrypts" if is_outbound else "decrypts", settings.fingerprint
    else:
        yield "encrypts", settings.fingerprint
        if is_outbound:
            yield "decrypts", settings.fingerprint

# SPDX-License-Identifier: Apache-2.0
"""Translates the policy configuration into entities of the switch.

Every layer-3 interface has a binding in both directions, since packets of an unbound interface are
dropped. The binding is "none" for an interface that no SPD guards. An interface that an SPD guards
is bound only once the SPD's lists are in the switch (`bindings`). Pure; depends on config and
entities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sluice.config import Config
from sluice.entities import (
    OF_BUNDLE,
    Attachment,
    BundleInVrf,
    Decrypt,
    Encrypt,
    EntityChanges,
    EntityKey,
    EntityKind,
    EntityValue,
    EspSource,
    InboundSpi,
    L3Interface,
    ListBinding,
    PortRole,
    ReassemblyEngine,
)
from sluice.policy.config import BundleConfig
from sluice.policy.model import Direction

BINDING_KINDS = (
    *(EntityKind.ENGINE, EntityKind.REASSEMBLY_ENGINE),
    *(EntityKind.ESP_SOURCE, EntityKind.OUTBOUND_SA),
    *(EntityKind.INBOUND_LIST, EntityKind.OUTBOUND_LIST),
    EntityKind.BUNDLE_BINDING,
    EntityKind.INBOUND_SA,
    *(EntityKind.INBOUND_BINDING, EntityKind.OUTBOUND_BINDING),
)
"""Kinds of entities that only this module and commits write."""
INTERFACE_BINDINGS = frozenset({EntityKind.INBOUND_BINDING, EntityKind.OUTBOUND_BINDING})
_BINDINGS = (
    (EntityKind.INBOUND_BINDING, Direction.INBOUND),
    (EntityKind.OUTBOUND_BINDING, Direction.OUTBOUND),
)
LIST_KINDS = {
    Direction.INBOUND: EntityKind.INBOUND_LIST,
    Direction.OUTBOUND: EntityKind.OUTBOUND_LIST,
}


def without_lists(config: Config) -> EntityChanges:
    """Returns the entities that need no list: the engine ports. Without any SPD, also the
    bindings."""
    changes = EntityChanges()
    for engine in config.policy.engines:
        # The engine's port belongs to no VRF: each decrypted packet names its own ingress
        # interface.
        interface = L3Interface(engine.l3_if, 0, PortRole.ENGINE)
        changes.set(EntityKind.L3_INTERFACE, Attachment(engine.port, 0), interface)
    if not config.policy.spds:
        _bind_interfaces(config, lambda *_: None, changes)
    return changes


def bindings(
    config: Config,
    list_id: Callable[[str, Direction], int | None],
    associations: Mapping[EntityKind, Mapping[EntityKey, EntityValue]],
) -> EntityChanges:
    """Returns the entities that are valid only once the lists are in the switch.

    - Bindings of interfaces. Bindings to no list are included, since a packet passes the policies
      of its ingress and its egress interface.
    - Bindings of bundles, and SAs. Outbound SAs are included, since flows name bundles by number:
      earlier, a flow's number could still stand for another bundle.

    Omits entities of a list without a number (`list_id` returns None). `associations` holds the
    entities of the SAs that the controller gives to engines.
    """
    changes = EntityChanges()
    _bind_interfaces(config, list_id, changes)
    for bundle in config.policy.bundles:
        _bind_bundle(config, bundle, list_id(bundle.spd, Direction.INBOUND), changes)
    for kind, entries in associations.items():
        changes.of(kind).update(entries)
    return changes


def _bind_interfaces(
    config: Config, list_id: Callable[[str, Direction], int | None], changes: EntityChanges
) -> None:
    for interface in config.interfaces:
        for kind, direction in _BINDINGS:
            number = 0 if interface.spd is None else list_id(interface.spd, direction)
            if number is not None:
                changes.set(kind, interface.l3_if, ListBinding(number))


def _bind_bundle(
    config: Config, bundle: BundleConfig, list_id: int | None, changes: EntityChanges
) -> None:
    vrf = next(vrf.id for vrf in config.vrfs if vrf.name == bundle.vrf)
    in_vrf = BundleInVrf(vrf, bundle.id)
    if list_id is not None:
        changes.set(EntityKind.BUNDLE_BINDING, in_vrf, ListBinding(list_id))
    if (out := bundle.outbound) is not None:
        encrypt = Encrypt(out.engine, out.sa, out.path_mtu, out.overhead)
        changes.set(EntityKind.OUTBOUND_SA, in_vrf, encrypt)
        changes.set(EntityKind.ESP_SOURCE, EspSource(vrf, bundle.id, out.local), OF_BUNDLE)
    for sa in bundle.inbound:
        changes.set(
            EntityKind.INBOUND_SA, InboundSpi(vrf, sa.spi), Decrypt(bundle.id, sa.engine, sa.sa)
        )
        # All fragments of a VRF go to one engine: the first configured one.
        if changes.of(EntityKind.REASSEMBLY_ENGINE).get(vrf) is None:
            changes.set(EntityKind.REASSEMBLY_ENGINE, vrf, ReassemblyEngine(sa.engine))


def vrf_of(config: Config, spd: str) -> int:
    """Returns the VRF of the interfaces that an SPD guards. All of them must be in one VRF."""
    return next(one.vrf.id for one in config.interfaces if one.spd == spd)


def moved_bundles(numbers: Mapping[str, int], bundle_names: Mapping[int, str]) -> frozenset[int]:
    """Returns the bundle numbers that stand for another bundle in the switch.

    `bundle_names` maps the numbers in the switch to names of bundles.
    """
    return frozenset(number for name, number in numbers.items() if bundle_names.get(number) != name)

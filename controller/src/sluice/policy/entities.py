# SPDX-License-Identifier: Apache-2.0
"""Translates the policy configuration into entities of the switch.

The switch drops packets of an interface without a binding. So every layer-3 interface gets a
binding in both directions. The binding of an interface without SPD names no list. An interface with
an SPD is bound only once the SPD's lists are in the switch (`bindings`). Pure; depends on config
and entities.
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
    *(EntityKind.INBOUND_RULE, EntityKind.OUTBOUND_RULE),
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
RULE_KINDS = {
    Direction.INBOUND: EntityKind.INBOUND_RULE,
    Direction.OUTBOUND: EntityKind.OUTBOUND_RULE,
}


def without_lists(config: Config) -> EntityChanges:
    """Returns the entities of the engines' ports, which need no list in the switch.

    If there is no SPD, also returns the bindings of all interfaces to no list.
    """
    changes = EntityChanges()
    for engine in config.policy.engines:
        # The engine's port belongs to no VRF. Each decrypted packet has a header that names its
        # ingress interface.
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
    """Returns the entities to install only after the lists are in the switch.

    - Bindings of interfaces, including bindings to no list. A packet passes the lists of both its
      ingress and its egress interface. If one of them is bound to no list before the other has its
      list, the packet could pass too early.
    - Bindings of bundles, and SAs. This includes outbound SAs: flows name bundles by number, and
      before the lists are written, a flow's number could mean another bundle.

    Omits bindings to a list that has no number yet (`list_id` returns None). `associations` holds
    the entities of the SAs that the controller installs in engines.
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
        # Sends all ESP fragments of a VRF to one engine: that of the first configured inbound SA.
        if changes.of(EntityKind.REASSEMBLY_ENGINE).get(vrf) is None:
            changes.set(EntityKind.REASSEMBLY_ENGINE, vrf, ReassemblyEngine(sa.engine))


def vrfs_of_bundles(config: Config) -> dict[str, int]:
    """Returns the VRF of each configured bundle, by the bundle's name."""
    vrfs = {vrf.name: vrf.id for vrf in config.vrfs}
    return {bundle.name: vrfs[bundle.vrf] for bundle in config.policy.bundles}


def vrf_of(config: Config, spd: str) -> int:
    """Returns the VRF of the interfaces that an SPD guards.

    Precondition: all interfaces of an SPD are in the same VRF.
    """
    return next(one.vrf.id for one in config.interfaces if one.spd == spd)


def moved_bundles(numbers: Mapping[str, int], bundle_names: Mapping[int, str]) -> frozenset[int]:
    """Returns the bundle numbers whose meaning in the switch differs from the configuration.

    `numbers` has the configured number of each bundle. `bundle_names` maps each number in the
    switch to the name of the bundle that it means.
    """
    return frozenset(number for name, number in numbers.items() if bundle_names.get(number) != name)

# SPDX-License-Identifier: Apache-2.0
"""What the configuration says of policy, as entities of the switch.

Every layer-3 interface has a binding in both directions, "none" where no SPD guards it: what is not
bound, drops. An interface of an SPD is bound only once its lists are in the switch (`bindings`).
Pure; depends on config and entities.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from sluice.config import Config
from sluice.entities import (
    NO_POLICY,
    OF_BUNDLE,
    Attachment,
    Binding,
    BundleInVrf,
    Changes,
    Decrypt,
    Egress,
    Encrypt,
    EspSource,
    Key,
    Kind,
    L3Interface,
    ReassemblyEngine,
    Role,
    Spi,
    Value,
)
from sluice.policy_config import BundleConfig
from sluice.policy_model import Direction

BINDING_KINDS = (
    *(Kind.ENGINE, Kind.REASSEMBLY_ENGINE),
    *(Kind.ESP_SOURCE, Kind.OUTBOUND_SA),
    *(Kind.INBOUND_LIST, Kind.OUTBOUND_LIST),
    Kind.BUNDLE_BINDING,
    Kind.INBOUND_SA,
    *(Kind.INBOUND_BINDING, Kind.OUTBOUND_BINDING),
)
"""The kinds that this module and the commits decide about alone."""
LIST_KINDS = {
    Direction.INBOUND: Kind.INBOUND_LIST,
    Direction.OUTBOUND: Kind.OUTBOUND_LIST,
}


def without_lists(config: Config) -> Changes:
    """What does not need any list: ports of engines, interfaces without SPD."""
    changes = Changes()
    for engine in config.policy.engines:
        # What an engine decrypted says itself where it came in; it is of no VRF of its own.
        interface = L3Interface(engine.l3_if, 0, Role.ENGINE)
        changes.set(Kind.L3_INTERFACE, Attachment(engine.port, 0), interface)
    for interface_config in config.interfaces:
        if interface_config.spd is None:
            for kind in (Kind.INBOUND_BINDING, Kind.OUTBOUND_BINDING):
                changes.set(kind, interface_config.l3_if, NO_POLICY)
    return changes


def bindings(config: Config, list_id: Callable[[str, Direction], int]) -> Changes:
    """What refers to lists, which are in the switch: interfaces, bundles, SAs.

    Outbound SAs too: flows name bundles by number, and only now no flow is left that means another
    bundle by it.
    """
    changes = Changes()
    for interface in config.interfaces:
        if interface.spd is not None:
            inbound = Binding(list_id(interface.spd, Direction.INBOUND))
            outbound = Binding(list_id(interface.spd, Direction.OUTBOUND))
            changes.set(Kind.INBOUND_BINDING, interface.l3_if, inbound)
            changes.set(Kind.OUTBOUND_BINDING, interface.l3_if, outbound)
    for bundle in config.policy.bundles:
        _bind(changes, config, bundle, list_id(bundle.spd, Direction.INBOUND))
    return changes


def _bind(changes: Changes, config: Config, bundle: BundleConfig, list_id: int) -> None:
    vrf = next(vrf.id for vrf in config.vrfs if vrf.name == bundle.vrf)
    in_vrf = BundleInVrf(vrf, bundle.id)
    changes.set(Kind.BUNDLE_BINDING, in_vrf, Binding(list_id))
    if (out := bundle.outbound) is not None:
        encrypt = Encrypt(out.engine, out.sa, out.path_mtu, out.overhead)
        changes.set(Kind.OUTBOUND_SA, in_vrf, encrypt)
        changes.set(Kind.ESP_SOURCE, EspSource(vrf, bundle.id, out.local), OF_BUNDLE)
    for sa in bundle.inbound:
        changes.set(Kind.INBOUND_SA, Spi(vrf, sa.spi), Decrypt(bundle.id, sa.engine, sa.sa))
        # All fragments of a VRF go to one engine; the first that is configured is as good as any.
        if changes.of(Kind.REASSEMBLY_ENGINE).get(vrf) is None:
            changes.set(Kind.REASSEMBLY_ENGINE, vrf, ReassemblyEngine(sa.engine))


def misplaced(
    config: Config,
    installed: Mapping[Kind, Mapping[Key, Value]],
    bundle_names: Mapping[int, str],
) -> list[tuple[Kind, Key]]:
    """What the switch holds of numbers that are other interfaces' or bundles' by now.

    All of it is to go before anything is written, the bindings first: what is not bound, or not
    there, drops. `bundle_names` are the bundles as the switch has them.
    """
    return [
        *_of_other_interfaces(config, installed),
        *_of_other_bundles(config, installed, bundle_names),
    ]


def _of_other_bundles(
    config: Config,
    installed: Mapping[Kind, Mapping[Key, Value]],
    bundle_names: Mapping[int, str],
) -> list[tuple[Kind, Key]]:
    """SAs and bindings under a number that meant another bundle, or one that is not known.

    Flows say "protect by bundle 7": until their list is retired, such a flow would be encrypted to
    the peer of the bundle that is number 7 now, and what the old peer sends would be let in as the
    new one's.
    """
    moved = {one.id for one in config.policy.bundles if bundle_names.get(one.id) != one.name}
    found: list[tuple[Kind, Key]] = [
        (Kind.INBOUND_SA, key)
        for key, value in installed[Kind.INBOUND_SA].items()
        if isinstance(value, Decrypt) and value.bundle in moved
    ]
    for kind in (Kind.BUNDLE_BINDING, Kind.OUTBOUND_SA, Kind.ESP_SOURCE):
        found += [
            (kind, key)
            for key in installed[kind]
            if isinstance(key, BundleInVrf | EspSource) and key.bundle in moved
        ]
    return found


def _of_other_interfaces(
    config: Config, installed: Mapping[Kind, Mapping[Key, Value]]
) -> list[tuple[Kind, Key]]:
    """Interfaces under other numbers than the configuration gives them now, and their bindings.

    Bindings are by number, and the numbers are the places in the configuration: where these have
    changed since, each interface would for a moment have another's policy.
    """
    places = {one.l3_if: (Attachment(one.port, one.vlan), Role.ROUTER) for one in config.interfaces}
    places |= {one.l3_if: (Attachment(one.port, 0), Role.ENGINE) for one in config.policy.engines}
    found: dict[tuple[Kind, Key], int] = {}
    for key, value in installed[Kind.EGRESS_INTERFACE].items():
        if isinstance(key, int) and isinstance(value, Egress):
            place = (Attachment(value.port, value.vlan), Role.ROUTER)
            if places.get(key, place) != place:
                found[Kind.EGRESS_INTERFACE, key] = key
    for key, value in installed[Kind.L3_INTERFACE].items():
        if isinstance(key, Attachment) and isinstance(value, L3Interface):
            place = (key, value.role)
            if places.get(value.l3_if, place) != place:
                found[Kind.L3_INTERFACE, key] = value.l3_if
    bound = [
        (kind, l3_if)
        for kind in (Kind.INBOUND_BINDING, Kind.OUTBOUND_BINDING)
        for l3_if in sorted(set(found.values()))
        if l3_if in installed[kind]
    ]
    return [*bound, *found]

# SPDX-License-Identifier: Apache-2.0
"""Defines the switch's entities without P4 names, for state, reconciler and p4.

An entity is (kind, key, value). `state` computes the desired entities, `reconciler` compares them
with the installed ones, and `p4` encodes them as P4Runtime entities. The members of `EntityKind`
are in dependency order: an entity refers only to entities of smaller kinds (`references`). So
installing in ascending order and deleting in descending order never leaves a dangling reference.

Depends on model only. All keys and values are hashable tuples. To save memory, all routes with the
same target share one `RouteTarget` object.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from sluice.model import Address, Mac, Prefix

if TYPE_CHECKING:
    from sluice._native import RouteBlock


class EntityKind(IntEnum):
    """Kinds of entities, in the order in which they are installed."""

    PUNT_METER = 0  # reason name -> PuntLimit; always present, only modified
    HASH_SEED = 1  # HASH_SEED_KEY -> HashSeed; always present, only modified
    COPIED_DROP = 2  # drop reason's name -> DropCopy
    ENGINE = 3  # engine id -> EnginePort, or ENGINE_DOWN
    REASSEMBLY_ENGINE = 4  # vrf -> ReassemblyEngine
    ESP_SOURCE = 5  # EspSource -> OF_BUNDLE
    OUTBOUND_SA = 6  # BundleInVrf -> Encrypt
    INBOUND_RULE = 7  # RuleEntry -> RuleVerdict, or LEAVE_TO_CPU
    OUTBOUND_RULE = 8  # RuleEntry -> RuleVerdict, or LEAVE_TO_CPU
    INBOUND_LIST = 9  # list id -> ListState; written by commits only
    OUTBOUND_LIST = 10  # list id -> ListState; written by commits only
    BUNDLE_BINDING = 11  # BundleInVrf -> ListBinding to an inbound list
    INBOUND_SA = 12  # InboundSpi -> Decrypt
    INBOUND_BINDING = 13  # l3_if -> ListBinding
    OUTBOUND_BINDING = 14  # l3_if -> ListBinding
    EGRESS_INTERFACE = 15  # l3_if -> Egress
    NEXTHOP = 16  # nexthop id -> Nexthop
    GROUP_MEMBER = 17  # nexthop id -> MEMBER
    GROUP = 18  # group id -> NexthopGroup
    GROUP_ENTRY = 19  # group id -> GROUP_OF_SAME_ID
    OWN_SOURCE = 20  # OwnAddress -> MARTIAN
    LOCAL_PREFIX = 21  # RouteSlot -> LOCAL
    ROUTER_MAC = 22  # RouterMac -> ADMIT
    L3_INTERFACE = 23  # Attachment -> L3Interface
    # RouteSlot -> RouteTarget. In an empty switch, on-link routes are installed before OWN_SOURCE
    # (Reconciler.near).
    ROUTE = 24


MODIFY_ONLY = frozenset({EntityKind.PUNT_METER, EntityKind.HASH_SEED})
"""Kinds whose entities always exist in the pipeline, and are modified, never inserted or
deleted."""
COMMITTED = frozenset({EntityKind.INBOUND_LIST, EntityKind.OUTBOUND_LIST})
"""Kinds written by policy commits (`Reconciler.commit`). The reconciler itself never corrects them.
Order: a list's state must be on disk before it is written to the switch."""
OPENING = frozenset({EntityKind.EGRESS_INTERFACE, EntityKind.ROUTER_MAC, EntityKind.L3_INTERFACE})
"""Kinds of entities without which no packet enters or leaves, under any policy."""
DROPS_WITHOUT = OPENING | {
    *(
        EntityKind.ENGINE,
        EntityKind.REASSEMBLY_ENGINE,
        EntityKind.ESP_SOURCE,
        EntityKind.OUTBOUND_SA,
    ),
    *(
        EntityKind.BUNDLE_BINDING,
        EntityKind.INBOUND_SA,
        EntityKind.INBOUND_BINDING,
        EntityKind.OUTBOUND_BINDING,
    ),
}
"""Kinds whose packets are dropped if the entity is missing. So deleting such an entity lets no
packet pass that was dropped before."""


class RouteSlot(NamedTuple):
    """Identifies a prefix of one VRF."""

    vrf: int
    prefix: Prefix


class OwnAddress(NamedTuple):
    """Identifies a unicast address of this router in one VRF.

    A packet from outside with this address as source is a martian.
    """

    vrf: int
    address: Address


class Attachment(NamedTuple):
    """Identifies a switch port and VLAN (0: untagged)."""

    port: int
    vlan: int


class PortRole(IntEnum):
    """Selects what is attached to a port: a link or an engine. The values are those of the
    pipeline."""

    ROUTER = 0
    ENGINE = 1


class L3Interface(NamedTuple):
    """Describes the layer-3 interface that a port and VLAN belong to."""

    l3_if: int
    vrf: int
    role: PortRole = PortRole.ROUTER


class RouterMac(NamedTuple):
    """Identifies a MAC address of the router on an interface."""

    l3_if: int
    mac: Mac


class Egress(NamedTuple):
    """Holds what the pipeline needs to send a frame on an interface."""

    port: int
    vlan: int
    mac: Mac
    mtu: int


class Nexthop(NamedTuple):
    """Describes a next hop.

    `address` is the neighbour's address. None: the packet's destination address is the neighbour
    (glean). `mac` is the neighbour's MAC address. If it is None, packets are punted to resolve the
    neighbour. `up` is False if the link is down. Then packets are dropped, and `mac` is None.
    """

    l3_if: int
    address: Address | None
    mac: Mac | None
    up: bool


MAX_GROUP_WEIGHT = 64 * 256
"""Largest sum of a next-hop group's weights, unless the pipeline sets a lower limit: 64 members of
FRR's largest weight, 256."""


class NexthopGroup(NamedTuple):
    """Holds the members of a next-hop group as pairs (nexthop id, weight), ascending by id."""

    members: tuple[tuple[int, int], ...]


class RouteTargetKind(IntEnum):
    """The action of a route."""

    NEXTHOP = 16
    GROUP = 18
    BLACKHOLE = 2
    UNREACHABLE = 3
    PROHIBITED = 4


class RouteTarget(NamedTuple):
    """Holds a route's action. `id` is the id of the next hop or group; 0 for other actions."""

    kind: RouteTargetKind
    id: int = 0


class PuntLimit(NamedTuple):
    """Limits the punts of one reason: `rate` in packets a second, `burst` in packets."""

    rate: int
    burst: int


class HashSeed(NamedTuple):
    """Holds the ECMP hash seed. Routers with different seeds hash the same flows differently."""

    seed: int


class EnginePort(NamedTuple):
    """Holds the switch port of an ESP engine."""

    port: int


class ReassemblyEngine(NamedTuple):
    """Names the engine that reassembles ESP fragments, for all SAs of a VRF."""

    engine: int


class BundleInVrf(NamedTuple):
    """Identifies a bundle. A bundle serves packets of its own VRF only."""

    vrf: int
    bundle: int


class EspSource(NamedTuple):
    """Identifies a source address of the ESP packets that a bundle's outbound SA makes."""

    vrf: int
    bundle: int
    address: Address


class Encrypt(NamedTuple):
    """Describes the outbound SA of a bundle.

    `path_mtu` limits the length of the ESP packets, outer IP header included. `overhead` is the
    largest number of bytes that encryption adds to an IP packet.
    """

    engine: int
    sa: int
    path_mtu: int
    overhead: int


class InboundSpi(NamedTuple):
    """Identifies an inbound SA of this router by the SPI in its packets."""

    vrf: int
    spi: int


class Decrypt(NamedTuple):
    """Describes the inbound SA of an SPI: its bundle, its engine, and its number in the engine."""

    bundle: int
    engine: int
    sa: int


class RuleMatch(NamedTuple):
    """Describes the packets that an entry of a rule table matches. A field that is None matches any
    value.

    `size` is the size of the addresses in bytes, 4 or 16. `destination_port` is type << 8 | code
    for ICMP, and the message type for mobility. `is_own`: see `Selectors.is_own`.
    """

    size: int
    source: Prefix | None = None
    destination: Prefix | None = None
    protocol: int | None = None
    source_port: tuple[int, int] | None = None
    destination_port: tuple[int, int] | None = None
    is_own: bool | None = None


class ForeignMatch(NamedTuple):
    """Holds the match of an entry of a rule table that no controller of this version has written.

    `encoded` is a P4Runtime TableEntry with the match fields only.
    """

    size: int
    encoded: bytes


class RuleEntry(NamedTuple):
    """Identifies an entry of a rule table: its rule set, its priority, and what it matches.

    Of the matching entries of a rule set, the one with the highest priority decides.
    """

    rule_set: int
    priority: int
    match: RuleMatch | ForeignMatch


class RuleVerdict(NamedTuple):
    """Holds the verdict of a rule: its number, its action (verdict_t), and its bundle or 0."""

    rule: int
    verdict: int
    bundle: int


class ListState(NamedTuple):
    """Holds the current epoch and generation of an SPD's list. Both numbers are at least 1.

    `rule_set` is the number of the list's rule set, that is, of its entries in the rule tables. 0:
    it has none.
    """

    epoch: int
    generation: int
    rule_set: int = 0


class DropCopy(NamedTuple):
    """Makes the switch send the CPU a copy of each packet that it drops for a certain reason.

    `punt_reason` is the punt reason of the copies. It has a meter of its own.
    """

    punt_reason: str


AUDITED = DropCopy("AUDIT")
"""The copy goes to the audit log."""
WANTS_SA = DropCopy("ACQUIRE")
"""The packet's bundle has no SA, so the copy makes the kernel request one."""


class ListBinding(NamedTuple):
    """Names the list that the pipeline looks up. List id 0: no policy applies (NO_POLICY)."""

    list_id: int


class Presence(NamedTuple):
    """Value of an entity whose presence alone matters."""

    name: str


MEMBER = Presence("member")
GROUP_OF_SAME_ID = Presence("group of same id")
LOCAL = Presence("local")
MARTIAN = Presence("martian")
OF_BUNDLE = Presence("of bundle")
ENGINE_DOWN = Presence("engine down")
LEAVE_TO_CPU = Presence("leave to CPU")
"""Value of an entry of a rule table whose packets the controller decides about."""
ADMIT = Presence("admit")
UNKNOWN = Presence("unknown")
"""Value of an installed entry that the controller did not write."""

NO_POLICY = ListBinding(0)
RETIRED = Nexthop(0, None, None, up=False)
"""Value of a next hop of an earlier configuration. The next hop drops packets, refers to no
interface, and keeps its number."""

HASH_SEED_KEY = "hash_seed"

BLACKHOLE = RouteTarget(RouteTargetKind.BLACKHOLE)
UNREACHABLE = RouteTarget(RouteTargetKind.UNREACHABLE)
PROHIBITED = RouteTarget(RouteTargetKind.PROHIBITED)

EntityKey: TypeAlias = (
    int
    | str
    | RouteSlot
    | OwnAddress
    | Attachment
    | RouterMac
    | InboundSpi
    | BundleInVrf
    | EspSource
    | RuleEntry
)
EntityValue: TypeAlias = (
    L3Interface
    | Egress
    | Nexthop
    | NexthopGroup
    | RouteTarget
    | PuntLimit
    | HashSeed
    | EnginePort
    | ReassemblyEngine
    | Encrypt
    | Decrypt
    | ListState
    | RuleVerdict
    | DropCopy
    | ListBinding
    | Presence
)
EntityReference: TypeAlias = tuple[EntityKind, EntityKey]

_NONE: tuple[EntityReference, ...] = ()


def references(kind: EntityKind, key: EntityKey, value: EntityValue) -> tuple[EntityReference, ...]:
    """Returns the entities that must be installed before this one and deleted after it."""
    if kind is EntityKind.ROUTE:
        if isinstance(value, RouteTarget):
            if value.kind is RouteTargetKind.NEXTHOP:
                return ((EntityKind.NEXTHOP, value.id),)
            if value.kind is RouteTargetKind.GROUP:
                return ((EntityKind.GROUP_ENTRY, value.id),)
    elif kind is EntityKind.GROUP:
        if isinstance(value, NexthopGroup):
            return tuple((EntityKind.GROUP_MEMBER, member) for member, _ in value.members)
    elif kind in _SAME_NUMBER and isinstance(key, int):
        return ((_SAME_NUMBER[kind], key),)
    elif kind is EntityKind.NEXTHOP and isinstance(value, Nexthop) and value != RETIRED:
        return ((EntityKind.EGRESS_INTERFACE, value.l3_if),)
    elif kind in _POLICY_KINDS:
        return _policy_references(kind, key, value)
    return _NONE


_SAME_NUMBER = {
    EntityKind.GROUP_MEMBER: EntityKind.NEXTHOP,
    EntityKind.GROUP_ENTRY: EntityKind.GROUP,
}
"""Maps a kind to the kind of the entity that it refers to. Both entities have the same number."""
_LISTS_OF = {
    EntityKind.INBOUND_BINDING: EntityKind.INBOUND_LIST,
    EntityKind.BUNDLE_BINDING: EntityKind.INBOUND_LIST,
    EntityKind.OUTBOUND_BINDING: EntityKind.OUTBOUND_LIST,
}
_POLICY_KINDS = frozenset(
    {*_LISTS_OF, EntityKind.REASSEMBLY_ENGINE, EntityKind.OUTBOUND_SA, EntityKind.INBOUND_SA}
)


def _policy_references(
    kind: EntityKind, key: EntityKey, value: EntityValue
) -> tuple[EntityReference, ...]:
    if isinstance(value, ListBinding) and value.list_id and kind in _LISTS_OF:
        return ((_LISTS_OF[kind], value.list_id),)
    if isinstance(value, Encrypt | ReassemblyEngine):
        return ((EntityKind.ENGINE, value.engine),)
    if isinstance(value, Decrypt) and isinstance(key, InboundSpi):
        bundle = BundleInVrf(key.vrf, value.bundle)
        return ((EntityKind.ENGINE, value.engine), (EntityKind.BUNDLE_BINDING, bundle))
    return _NONE


class EntityChanges:
    """Holds changes of entities by kind and key. A value of None removes the entity.

    If a key is changed more than once, the last change applies. `blocks` are route changes to apply
    in order, before the changes in `by_kind`. `resolve` has the neighbours (l3_if, address) to
    resolve now.
    """

    __slots__ = ("blocks", "by_kind", "resolve")

    def __init__(self) -> None:
        self.by_kind: dict[EntityKind, dict[EntityKey, EntityValue | None]] = {}
        self.blocks: list[RouteBlock | dict[EntityKey, EntityValue | None]] = []
        self.resolve: dict[tuple[int, Address], None] = {}

    def __bool__(self) -> bool:
        return bool(self.by_kind or self.blocks)

    def add_block(self, block: RouteBlock) -> None:
        """Adds changes of many routes at once."""
        before = self.by_kind.pop(EntityKind.ROUTE, None)
        if before:
            self.blocks.append(before)
        self.blocks.append(block)

    def of(self, kind: EntityKind) -> dict[EntityKey, EntityValue | None]:
        """Returns the changes of one kind. Callers may add changes to the returned dictionary,
        which is faster than `set`."""
        changes = self.by_kind.get(kind)
        if changes is None:
            changes = self.by_kind[kind] = {}
        return changes

    def set(self, kind: EntityKind, key: EntityKey, value: EntityValue | None) -> None:
        """Adds one change."""
        self.of(kind)[key] = value

# SPDX-License-Identifier: Apache-2.0
"""Defines the controller's basic types: addresses, routes, next hops, and events about them.

Depends only on the standard library, and every module may import it. The types are immutable and
only hold and format values. So they can be dictionary keys and be passed between threads.

Addresses are ``bytes`` in network order (4 for IPv4, 16 for IPv6), and MAC addresses are 6
``bytes``. Types with one object per route (`Prefix`, `NexthopSpec`, `RouteKey`, `Route`,
`RouteUpdated`, `RouteDeleted`) are named tuples. C code builds and hashes these in a third of the
time that a frozen dataclass takes. This matters when zebra sends 70,000 routes a second. All other
types are frozen dataclasses.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple, TypeAlias

Address: TypeAlias = bytes
Mac: TypeAlias = bytes

MAIN_TABLE = 254
"""The kernel's RT_TABLE_MAIN: the routing table of the default VRF."""


# --- addresses -----------------------------------------------------------------------------------


def parse_address(text: str) -> Address:
    """Parses an IPv4 or IPv6 address. Raises ValueError."""
    family = socket.AF_INET6 if ":" in text else socket.AF_INET
    try:
        return socket.inet_pton(family, text)
    except OSError:
        raise ValueError(f"{text!r} is not an IPv4 or IPv6 address") from None


def format_address(address: Address) -> str:
    """Formats an address (RFC 5952 for IPv6)."""
    return socket.inet_ntop(socket.AF_INET if len(address) == 4 else socket.AF_INET6, address)


def parse_mac(text: str) -> Mac:
    """Parses a MAC address of six colon-separated octets. Raises ValueError."""
    octets = text.split(":")
    try:
        if len(octets) != 6 or any(len(octet) != 2 for octet in octets):
            raise ValueError
        return bytes(int(octet, 16) for octet in octets)
    except ValueError:
        raise ValueError(f"{text!r} is not a MAC address (like 02:00:00:00:01:01)") from None


def format_mac(mac: Mac) -> str:
    """Formats a MAC address as six colon-separated lower-case octets."""
    return mac.hex(":")


def is_link_local(address: Address) -> bool:
    """Returns whether an address is link-local (169.254.0.0/16, fe80::/10)."""
    if len(address) == 4:
        return address[:2] == b"\xa9\xfe"
    return address[0] == 0xFE and address[1] & 0xC0 == 0x80


def mask_address(address: Address, length: int) -> Address:
    """Returns `address` with all bits after the first `length` bits cleared."""
    bits = len(address) * 8
    keep = ((1 << length) - 1) << (bits - length)
    return (int.from_bytes(address, "big") & keep).to_bytes(len(address), "big")


class Prefix(NamedTuple):
    """Holds an address prefix. Bits after `length` are zero. `address` determines the family."""

    address: Address
    length: int

    def __str__(self) -> str:
        return f"{format_address(self.address)}/{self.length}"

    @classmethod
    def of(cls, address: Address, length: int) -> Prefix:
        """Returns the prefix of `length` bits that contains `address`."""
        return cls(mask_address(address, length), length)

    @classmethod
    def host(cls, address: Address) -> Prefix:
        """Returns the host prefix of an address."""
        return cls(address, len(address) * 8)

    @classmethod
    def parse(cls, text: str) -> Prefix:
        """Parses ``10.0.0.0/8``; host bits must be zero. Raises ValueError."""
        interface = InterfaceAddress.parse(text)
        prefix = interface.prefix
        if prefix.address != interface.address:
            raise ValueError(f"{text!r} has bits set after its length; write {prefix}")
        return prefix

    def covers(self, address: Address) -> bool:
        """Returns whether this prefix contains `address`."""
        return (
            len(address) == len(self.address) and mask_address(address, self.length) == self.address
        )


class InterfaceAddress(NamedTuple):
    """Holds an address of an interface, and the length of its connected prefix."""

    address: Address
    length: int

    def __str__(self) -> str:
        return f"{format_address(self.address)}/{self.length}"

    @property
    def prefix(self) -> Prefix:
        """The connected prefix."""
        return Prefix.of(self.address, self.length)

    @classmethod
    def parse(cls, text: str) -> InterfaceAddress:
        """Parses ``10.1.1.1/24``. Raises ValueError."""
        head, slash, tail = text.partition("/")
        address = parse_address(head)
        if not slash or not tail.isascii() or not tail.isdigit():
            raise ValueError(f"{text!r} lacks its prefix length (like {head}/24)")
        length = int(tail)
        if length > len(address) * 8:
            raise ValueError(f"{text!r}: prefix length is at most {len(address) * 8}")
        return cls(address, length)


@dataclass(frozen=True, slots=True)
class InterfaceSpec:
    """Describes a layer-3 interface: a switch port, or a VLAN of a port. Its TAP on the host is
    called `name`.

    `l3_if` and `vrf` are the pipeline's numbers. `device` names the port's network device, if this
    host has it. Then the interface is down while the device is down. `namespace` is the network
    namespace of the TAP (`sluice.namespaces`).
    """

    name: str
    l3_if: int
    port: int
    vlan: int
    vrf: int
    mac: Mac
    mtu: int
    device: str | None = None
    namespace: int = 0


# --- routes and next hops ------------------------------------------------------------------------


class NexthopKind(IntEnum):
    """Types of next hops. The type decides what happens to a packet."""

    GATEWAY = 0  # to `address` on `ifindex`
    CONNECTED = 1  # to the packet's own destination, on `ifindex`
    BLACKHOLE = 2  # dropped silently (RTN_BLACKHOLE)
    UNREACHABLE = 3  # dropped with ICMP host unreachable (RTN_UNREACHABLE)
    PROHIBIT = 4  # dropped with ICMP administratively prohibited (RTN_PROHIBIT)


class NexthopSpec(NamedTuple):
    """Describes one next hop, as received from the routing daemon.

    - `address` is set for GATEWAY. Its family may differ from that of the route: an IPv4 route may
      have an IPv6 next hop (RFC 5549).
    - `ifindex`, a kernel interface index, is set for CONNECTED and normally for GATEWAY.
    - `weight` is 1..256; netlink's "minus one" is already undone.
    """

    address: Address | None
    ifindex: int | None
    weight: int = 1
    kind: NexthopKind = NexthopKind.GATEWAY


class RouteKey(NamedTuple):
    """Identifies a route. The routing daemon sends only the best route for a prefix of a table."""

    table: int
    prefix: Prefix


class Route(NamedTuple):
    """Holds a route. Its next hops are `nexthops`. If this tuple is empty, they are those of the
    next-hop object `nexthop_id`.

    `table` is the kernel's table number (MAIN_TABLE for the default VRF), `protocol` is RTPROT_*.
    Blackhole, unreachable and prohibit routes have one next hop of that kind.
    """

    key: RouteKey
    protocol: int
    metric: int
    nexthops: tuple[NexthopSpec, ...]
    nexthop_id: int | None = None


# --- events: routes (from FPM or the kernel) -----------------------------------------------------


class RouteUpdated(NamedTuple):
    """A route is new or replaced."""

    route: Route


class RouteDeleted(NamedTuple):
    """A route is deleted."""

    key: RouteKey


@dataclass(frozen=True, slots=True)
class NexthopObjectUpdated:
    """A next-hop object is new or replaced (RTM_NEWNEXTHOP).

    The object has one `nexthop`, or a `group` of (object id, weight).
    """

    id: int
    nexthop: NexthopSpec | None
    group: tuple[tuple[int, int], ...] = ()
    namespace: int = 0


@dataclass(frozen=True, slots=True)
class NexthopObjectDeleted:
    """A next-hop object is deleted."""

    id: int
    namespace: int = 0


@dataclass(frozen=True, slots=True)
class FpmSessionOpened:
    """A routing daemon has connected, and will now replay all its routes and next-hop objects.

    The following events belong to this session until the session closes or another session opens.
    `namespace` is the network namespace of the daemon. Each namespace has its own daemon.
    """

    peer: str
    namespace: int = 0


@dataclass(frozen=True, slots=True)
class FpmSessionClosed:
    """The routing daemon has disconnected. Its routes stay until a new session has replaced
    them."""

    reason: str
    namespace: int = 0


@dataclass(frozen=True, slots=True)
class StaleRoutesGone:
    """The replay is over, and these routes are neither in the replay nor in the kernel.

    Receivers delete those routes that are still stale.
    """

    keys: tuple[RouteKey, ...]


# --- events: links, addresses, neighbours (from the kernel) --------------------------------------


@dataclass(frozen=True, slots=True)
class LinkChanged:
    """A kernel interface is new or changed.

    - `up`: administratively up (IFF_UP). `carrier`: IFF_LOWER_UP.
    - `macvlan_on`: the lower interface, if this is a macvlan device.
    - `held_down`: a protocol keeps this interface down (IFLA_PROTO_DOWN), as VRRP does on a backup
      router.
    - `master`: the interface of which this one is a member, for example a VRF device.
    - `vrf_table`: the routing table, if this is a VRF device.
    """

    ifindex: int
    name: str
    up: bool
    carrier: bool
    mtu: int
    mac: Mac
    macvlan_on: int | None = None
    held_down: bool = False
    master: int | None = None
    vrf_table: int | None = None

    @property
    def works(self) -> bool:
        """Whether the interface carries packets.

        The carrier alone does not show this. A macvlan device has the carrier of its lower
        interface even while a protocol holds the device down.
        """
        return self.up and self.carrier and not self.held_down


@dataclass(frozen=True, slots=True)
class LinkRemoved:
    """A kernel interface is gone, and so are its addresses and neighbours."""

    ifindex: int


@dataclass(frozen=True, slots=True)
class AddressAdded:
    """An interface has an address. The event may repeat for an address that is already known.

    `ours`: this controller set the address, now or in an earlier run.
    """

    ifindex: int
    address: InterfaceAddress
    ours: bool = False


@dataclass(frozen=True, slots=True)
class AddressRemoved:
    """An interface lost an address."""

    ifindex: int
    address: InterfaceAddress


class NeighborState(IntEnum):
    """The kernel's NUD_* states. NONE also means that the entry was removed."""

    NONE = 0x00
    INCOMPLETE = 0x01
    REACHABLE = 0x02
    STALE = 0x04
    DELAY = 0x08
    PROBE = 0x10
    FAILED = 0x20
    NOARP = 0x40
    PERMANENT = 0x80


@dataclass(frozen=True, slots=True)
class NeighborChanged:
    """A neighbour entry of the kernel changed. `mac` is None if the state has no valid MAC address.

    `foreign`: another program maintains the entry (NTF_EXT_LEARNED), or the kernel itself does
    (NTF_EXT_MANAGED, NTF_EXT_VALIDATED).
    """

    ifindex: int
    address: Address
    mac: Mac | None
    state: NeighborState
    foreign: bool = False


# --- events: packets -----------------------------------------------------------------------------


class PuntedPacket(NamedTuple):
    """Holds a packet-in: the frame as the port received it (with its VLAN tag), and the metadata.

    - The fields after `frame` have the order of P4Info's packet_in metadata.
    - `reason`, `stage`, `origin` and `verdict` are values of the pipeline's enums (named in
      `sluice.p4.schema`).
    - `drop_reason` is 0 except for a copy of a dropped packet (reasons AUDIT and ACQUIRE).
    - `verdict`, `sa_bundle` and `rule` are the result of the outbound list, if the pipeline has
      already looked it up for the packet.
    - `list_id` and `generation` identify the list of the stage that punted the packet. `inbound_*`
      identify the inbound list that the packet passed earlier.
    - `bundle` is the bundle that decrypted the packet.
    """

    frame: bytes
    ingress_port: int
    ingress_l3_if: int
    vrf: int
    egress_l3_if: int
    nexthop_id: int
    reason: int
    stage: int
    origin: int
    drop_reason: int
    is_local: int
    bundle: int
    verdict: int
    sa_bundle: int
    rule: int
    list_id: int
    generation: int
    inbound_list_id: int
    inbound_generation: int


class HostFrame(NamedTuple):
    """Holds an Ethernet frame that the host's network stack sent on the TAP of `l3_if`."""

    l3_if: int
    frame: bytes


RouteEvent: TypeAlias = (
    RouteUpdated
    | RouteDeleted
    | NexthopObjectUpdated
    | NexthopObjectDeleted
    | FpmSessionOpened
    | FpmSessionClosed
    | StaleRoutesGone
)
KernelEvent: TypeAlias = LinkChanged | LinkRemoved | AddressAdded | AddressRemoved | NeighborChanged
Event: TypeAlias = RouteEvent | KernelEvent

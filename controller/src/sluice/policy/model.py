# SPDX-License-Identifier: Apache-2.0
"""Defines the types of IPsec policy: rules, packet selectors and verdicts (RFC 4301, 4.4.1).

All types are immutable. Addresses are bytes in network order. Depends on sluice.model only.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Final, NamedTuple, TypeAlias

from sluice.model import Address, Prefix, format_address

ICMP, TCP, UDP, AH, ICMPV6, SCTP, MOBILITY = 1, 6, 17, 51, 58, 132, 135
PROTOCOLS = {"icmp": 1, "igmp": 2, "tcp": 6, "udp": 17, "gre": 47, "esp": 50, "ah": 51,
             "icmpv6": 58, "ospf": 89, "pim": 103, "vrrp": 112, "sctp": 132,
             "mobility": 135}  # fmt: skip
"""Protocol numbers by the names that rules may use."""
PORT_PROTOCOLS = frozenset({TCP, UDP, SCTP})
ICMP_PROTOCOLS = frozenset({ICMP, ICMPV6})
MOBILITY_PROTOCOLS = frozenset({MOBILITY})


class Action(IntEnum):
    """Actions of a rule. The values are those of the pipeline's type `verdict_t`."""

    BYPASS = 1
    DISCARD = 2
    PROTECT = 3


class Direction(Enum):
    """Selects one of an SPD's two lists."""

    __hash__ = object.__hash__  # Enum's own hash is slower, and each first packet needs one
    INBOUND = "inbound"
    OUTBOUND = "outbound"


class Scope(Enum):
    """Packets to which a rule applies: this router's own packets, transit packets, or both."""

    ANY = "any"
    OWN = "own"
    TRANSIT = "transit"


class AddressRange(NamedTuple):
    """All addresses of one family from `low` to `high`, both included."""

    low: Address
    high: Address

    def __str__(self) -> str:
        if self.low == self.high:
            return format_address(self.low)
        return f"{format_address(self.low)}-{format_address(self.high)}"


def prefix_range(prefix: Prefix) -> AddressRange:
    """Returns the range of all addresses of a prefix."""
    size = len(prefix.address)
    host_bits = (1 << (size * 8 - prefix.length)) - 1
    last = int.from_bytes(prefix.address, "big") | host_bits
    return AddressRange(prefix.address, last.to_bytes(size, "big"))


def range_text(addresses: AddressRange) -> str:
    """Formats a range as an address, as a prefix or as `LOW-HIGH`, in this order of preference."""
    bits = len(addresses.low) * 8
    low, high = int.from_bytes(addresses.low, "big"), int.from_bytes(addresses.high, "big")
    size = high - low + 1
    if size == 1 or size & (size - 1) or low % size:
        return str(addresses)
    return str(Prefix(addresses.low, bits - size.bit_length() + 1))


def icmp_text(numbers: NumberRange) -> str:
    """Formats ICMP types and codes: `8`, `5-7`, `3/4`, `3/0-4`."""
    (first, low), (last, high) = divmod(numbers.low, 256), divmod(numbers.high, 256)
    if (low, high) == (0, 0xFF):
        return str(NumberRange(first, last))
    if first == last:
        return f"{first}/{NumberRange(low, high)}"
    return f"{first}/{low}-{last}/{high}"  # files cannot have such ranges


class NumberRange(NamedTuple):
    """Range of ports, of mobility types, or of ICMP types and codes as type << 8 | code. Both ends
    are included."""

    low: int
    high: int

    def __str__(self) -> str:
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


class Opaque(Enum):
    """Selector value OPAQUE: matches packets in which the field is not visible, such as the ports
    of later fragments."""

    OPAQUE = "opaque"


OPAQUE: Final = Opaque.OPAQUE
Numbers: TypeAlias = tuple[NumberRange, ...] | Opaque | None
"""Ranges, OPAQUE or None. OPAQUE matches only packets without such numbers. None is ANY, which
includes OPAQUE."""
Protocols: TypeAlias = tuple[int, ...] | Opaque | None
"""Protocol numbers, OPAQUE or None. OPAQUE matches only packets without a visible protocol. None is
ANY."""


class Selectors(NamedTuple):
    """Holds the selectors of a packet (RFC 4301, 4.4.1.1).

    - `source_port` and `destination_port` are None for a later fragment, and for a protocol without
      ports.
    - `icmp` is type << 8 | code, or None for a later fragment and for protocols other than ICMP.
    - `mobility_type` is the type of a mobility message (RFC 6275, 6.1.1), or None for a later
      fragment and for other protocols.
    - `protocol` is the protocol after the extension headers that RFC 4301 skips. For a later
      fragment of IPv6 it is None, because only the first fragment's headers count (RFC 8200, 4.5).
    - `is_own`: the packet is addressed to this router (inbound) or sent by this router (outbound).
    """

    source: Address
    destination: Address
    protocol: int | None
    source_port: int | None
    destination_port: int | None
    icmp: int | None
    is_own: bool = False
    mobility_type: int | None = None


class FragmentClass(IntEnum):
    """Distinguishes whole packets, first fragments and later fragments. The values are those of the
    pipeline's type `fragment_t`."""

    WHOLE = 0
    FIRST = 1
    LATER = 2


class FlowKey(NamedTuple):
    """The key of a flow in the pipeline's flow tables, without the list id.

    The key holds all fields that a rule may test, so a verdict may be cached under it.

    - Ports are zero where `Selectors` has None. For ICMP, the destination port is type << 8 | code;
      for a mobility message, it is the message's type.
    - `protocol` is the value in the headers, even for a later IPv6 fragment.
    - `is_local` is `Selectors.is_own`.
    - `bundle` is the number of the bundle whose SA decrypted an inbound packet, or zero.
    """

    source: Address
    destination: Address
    protocol: int
    source_port: int
    destination_port: int
    fragment: FragmentClass = FragmentClass.WHOLE
    is_local: bool = False
    bundle: int = 0

    def selectors(self) -> Selectors | None:
        """Returns the selectors of the packets with this key.

        Returns None for fragments, because their key does not contain all their selectors.
        """
        if self.fragment is not FragmentClass.WHOLE:
            return None
        ports = self.protocol in PORT_PROTOCOLS
        return Selectors(
            self.source,
            self.destination,
            self.protocol,
            self.source_port if ports else None,
            self.destination_port if ports else None,
            self.destination_port if self.protocol in ICMP_PROTOCOLS else None,
            self.is_local,
            self.destination_port if self.protocol == MOBILITY else None,
        )


class Rule(NamedTuple):
    """One rule of an ordered list. A selector that is None matches any value.

    - `protocol`: OPAQUE matches only packets without a visible protocol.
    - `audit`: packets that the rule discards go to the audit log.
    - `reject`: the senders of packets that the rule discards get an ICMP error.
    - `scope`: limits the rule to this router's own packets or to transit packets. Generated rules
      match own packets only.
    - `is_default`: a kernel's default, for packets that none of the kernel's policies match.
    - `from_packet`: the selectors that SAs take from packets (`policy.populated`).
    - `is_instance`: the controller has made this rule for an instance of a rule with `from_packet`.

    Order: new fields go to the end and have a default. Otherwise the fingerprints of old rules on
    disk would change (`state.spd.fingerprint`).
    """

    name: str
    action: Action
    bundle: str | None = None
    source: tuple[AddressRange, ...] | None = None
    destination: tuple[AddressRange, ...] | None = None
    protocol: Protocols = None
    source_port: Numbers = None
    destination_port: Numbers = None
    icmp: Numbers = None
    generated: bool = False
    audit: bool = False
    scope: Scope = Scope.ANY
    is_default: bool = False
    reject: bool = False
    mobility_type: Numbers = None
    from_packet: tuple[str, ...] = ()
    is_instance: bool = False

    def looks_at(self, *, is_own: bool) -> bool:
        """Returns whether the rule applies to this router's own packets (`is_own`) or to transit
        packets."""
        if is_own:
            return self.scope is not Scope.TRANSIT
        return not self.generated and self.scope is not Scope.OWN


class Verdict(NamedTuple):
    """Result of a search: id and action of the rule that matches.

    If no rule matches, the id is the list's `final_id`. If the action is PROTECT, `bundle` is the
    number of the bundle that protects the packet, else 0.
    """

    rule_id: int
    action: Action
    bundle: int

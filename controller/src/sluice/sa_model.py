# SPDX-License-Identifier: Apache-2.0
"""The vocabulary of security associations: algorithms, lifetimes, keys, SAs (RFC 4301, 4.4.2).

An SA has one direction and belongs to a bundle, which rules name. Its selectors are those of the
rules that name the bundle: its packets must match one of them first (RFC 4301, 5.2 step 4), and
the pipeline checks that. Keys are known by a fingerprint; a `KeySource` gives them, for as long as
an engine is being told. Depends on model and policy_model. Everything but key material is
immutable.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from sluice.model import Address
from sluice.policy.model import Direction

NAT_TRAVERSAL = 4500
"""The port of ESP in UDP (RFC 3948)."""
MAX_REPLAY_WINDOW = 4096
SPI_AND_SEQUENCE, TRAILER, UDP_HEADER = 8, 2, 8
IP_HEADER = {4: 20, 16: 40}
"""Bytes of the outer header, by those of its addresses."""
FINGERPRINT_OF = b"sluice-esp sequence numbers 1"


class Mode(Enum):
    """Payload of ESP: an IP packet, or the packet's own upper layer."""

    TUNNEL = "tunnel"
    TRANSPORT = "transport"


class DontFragment(Enum):
    """DF of an outer IPv4 header; `COPY` as the packet inside has it, set for IPv6."""

    SET = "set"
    CLEAR = "clear"
    COPY = "copy"


class Fragmentation(Enum):
    """When a packet is fragmented that ESP makes too long (RFC 4301, sections 7 and 8)."""

    BEFORE = "before"
    AFTER = "after"


class Algorithm(NamedTuple):
    """Encryption with integrity; sizes in bytes. An AEAD's key ends with its salt (RFC 4106)."""

    name: str
    key: int
    integrity_key: int
    iv: int
    block: int
    icv: int = 16

    def overhead(self, mode: Mode, address: Address, *, in_udp: bool = False) -> int:
        """Bytes that ESP adds to an IP packet, at most, between addresses of this family."""
        padding = self.block - 1
        added = SPI_AND_SEQUENCE + self.iv + padding + TRAILER + self.icv
        outer = IP_HEADER[len(address)] if mode is Mode.TUNNEL else 0
        return added + outer + (UDP_HEADER if in_udp else 0)


ALGORITHMS = {
    one.name: one
    for one in (
        Algorithm("aes-128-gcm", 20, 0, 8, 4),
        Algorithm("aes-256-gcm", 36, 0, 8, 4),
        Algorithm("chacha20-poly1305", 36, 0, 8, 4),
        Algorithm("aes-128-cbc-hmac-sha-256-128", 16, 32, 16, 16),
        Algorithm("aes-256-cbc-hmac-sha-256-128", 32, 32, 16, 16),
        Algorithm("null-hmac-sha-256-128", 0, 32, 0, 4),
    )
}
"""Algorithms of the engine that protect (docs/esp.md)."""


class Lifetime(NamedTuple):
    """Limits of an SA, None for none: bytes in clear, packets, seconds since it was given."""

    bytes: int | None = None
    packets: int | None = None
    seconds: int | None = None

    def is_reached(self, size: int, packets: int, seconds: float) -> bool:
        """Whether one of the limits is."""
        used = (self.bytes, size), (self.packets, packets), (self.seconds, seconds)
        return any(limit is not None and value >= limit for limit, value in used)


UNLIMITED = Lifetime()


class UdpPorts(NamedTuple):
    """UDP ports of ESP in UDP (RFC 3948)."""

    local: int = NAT_TRAVERSAL
    remote: int = NAT_TRAVERSAL


class SaSettings(NamedTuple):
    """Parameters of an SA that router and engine share, without its number and keys.

    `bundle` and `vrf` are the pipeline's numbers. `local`, `remote`, `ttl`, `dscp`, `df`,
    `tfc_pad_to` and `ports` are of an outbound SA, `replay_window` and `in_udp` of an inbound one.
    """

    direction: Direction
    spi: int
    bundle: int
    vrf: int
    algorithm: str
    fingerprint: str
    mode: Mode = Mode.TUNNEL
    esn: bool = False
    replay_window: int = 0
    local: Address | None = None
    remote: Address | None = None
    ports: UdpPorts | None = None
    in_udp: bool = False
    ttl: int | None = None
    dscp: int | None = None
    df: DontFragment = DontFragment.SET
    ecn: bool = True
    tfc_pad_to: int = 0
    soft: Lifetime = UNLIMITED
    hard: Lifetime = UNLIMITED

    @property
    def overhead(self) -> int:
        """Bytes that an outbound SA adds to an IP packet, at most; 0 for an inbound one."""
        if self.local is None:
            return 0
        algorithm = ALGORITHMS[self.algorithm]
        return algorithm.overhead(self.mode, self.local, in_udp=self.ports is not None)


HeldKey: TypeAlias = tuple[Direction, int, int]


class LifetimeState(Enum):
    """Lifetime state of an SA: a soft limit asks for a rekey, a hard one has ended it."""

    FRESH = "fresh"
    SOFT = "soft"
    HARD = "hard"


class HeldSa(NamedTuple):
    """An SA that an engine holds, and what it tells of it."""

    settings: SaSettings
    number: int
    age: LifetimeState = LifetimeState.FRESH
    sequence: int = 0
    packets: int = 0
    bytes: int = 0
    drops: Mapping[str, int] = {}

    @property
    def key(self) -> HeldKey:
        """Returns its identity in an engine: numbers outbound, SPIs of a VRF inbound."""
        one = self.settings
        if one.direction is Direction.OUTBOUND:
            return one.direction, 0, self.number
        return one.direction, one.vrf, one.spi


class KeyMaterial:
    """Keys in hexadecimal digits, in buffers that `erase` overwrites."""

    __slots__ = ("integrity_key", "key")

    def __init__(self, key: bytearray, integrity_key: bytearray) -> None:
        self.key = key
        self.integrity_key = integrity_key

    def __repr__(self) -> str:
        return f"KeyMaterial({len(self.key) // 2} and {len(self.integrity_key) // 2} bytes)"

    def erase(self) -> None:
        """Overwrites both."""
        for buffer in (self.key, self.integrity_key):
            buffer[:] = bytes(len(buffer))

    def fingerprint(self) -> str:
        """Returns a digest of the keys that does not reveal them, equal to the engine's."""
        key, integrity_key = _octets(self.key), _octets(self.integrity_key)
        digest = hmac.new(FINGERPRINT_OF, bytes([len(key)]), "sha256")
        for octets in (key, integrity_key):
            digest.update(octets)
            octets[:] = bytes(len(octets))
        return digest.hexdigest()[:32]


class KeySource(Protocol):
    """Gives an SA's keys when an engine is to be told."""

    def read(self) -> KeyMaterial:
        """Returns the keys, for the caller to erase. Raises KeyUnavailableError."""


class KeyUnavailableError(Exception):
    """Keys that cannot be had, and why."""


class EngineUnreachableError(Exception):
    """The engine does not answer, or its answer violates the protocol."""


class EngineRefusalError(Exception):
    """The engine answers that it will not; says why."""


class Origin(Enum):
    """Where an SA comes from."""

    CONFIGURATION = "configuration"
    COMMAND = "command"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class SecurityAssociation:
    """An SA that is wanted. `engine`: the only engine that may serve it, None for its bundle's.

    `name` says what it is for, and its successor takes it over: with the SPI it identifies the SA.
    `is_retiring`: its successor serves, and it stays for what is still under way. `is_coming`: its
    peer may not have it yet, so that its predecessor serves while there is one. `fragmentation`
    is the router's part of an outbound SA, of which its engine knows nothing.
    """

    name: str
    settings: SaSettings
    origin: Origin
    keys: KeySource = field(compare=False, repr=False)
    engine: int | None = None
    is_retiring: bool = False
    is_coming: bool = False
    fragmentation: Fragmentation = Fragmentation.BEFORE

    @property
    def is_outbound(self) -> bool:
        """Whether it encrypts."""
        return self.settings.direction is Direction.OUTBOUND


def _octets(digits: bytearray) -> bytearray:
    """The octets of hexadecimal digits, without a copy that could not be erased."""
    octets = bytearray(len(digits) // 2)
    for at in range(len(octets)):
        octets[at] = _nibble(digits[2 * at]) << 4 | _nibble(digits[2 * at + 1])
    return octets


def _nibble(digit: int) -> int:
    lower = digit | 0x20
    return digit - 0x30 if digit < 0x3A else lower - 0x57

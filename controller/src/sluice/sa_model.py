# SPDX-License-Identifier: Apache-2.0
"""Defines the types of security associations (SAs): algorithms, lifetimes, keys (RFC 4301, 4.4.2).

An SA has one direction and belongs to a bundle, and rules name bundles. The selectors of an SA are
those of the rules that name its bundle. An SA with `traffic` belongs to an instance of its bundle
(`policy.populated`), and carries only packets with these values. The pipeline checks that the first
rule that matches a packet of the SA is one of these rules (RFC 4301, 5.2 step 4). A fingerprint
identifies the keys. A `KeySource` reads the keys only when an engine is to receive them. All types
except key material are immutable. Depends on model, policy.model and policy.populated.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from sluice.model import Address
from sluice.policy.model import Direction
from sluice.policy.populated import Populated

NAT_TRAVERSAL = 4500
"""The port of ESP in UDP (RFC 3948)."""
MAX_REPLAY_WINDOW = 4096
SPI_AND_SEQUENCE, TRAILER, UDP_HEADER = 8, 2, 8
IP_HEADER = {4: 20, 16: 40}
"""Size of the outer IP header by the size of an address, in bytes."""
FINGERPRINT_OF = b"sluice-esp sequence numbers 1"


class Mode(Enum):
    """ESP mode. Tunnel mode carries a whole IP packet, transport mode only its upper layer."""

    TUNNEL = "tunnel"
    TRANSPORT = "transport"


class DontFragment(Enum):
    """DF bit of an outer IPv4 header. COPY copies the bit of an inner IPv4 header, and sets the bit
    for inner IPv6."""

    SET = "set"
    CLEAR = "clear"
    COPY = "copy"


class Fragmentation(Enum):
    """Selects whether packets that ESP makes too long are fragmented before or after encryption
    (RFC 4301, sections 7, 8)."""

    BEFORE = "before"
    AFTER = "after"


class Algorithm(NamedTuple):
    """Describes an encryption algorithm with integrity protection. Sizes are in bytes.

    An AEAD's key ends with its salt (RFC 4106).
    """

    name: str
    key: int
    integrity_key: int
    iv: int
    block: int
    icv: int = 16

    def overhead(self, mode: Mode, address: Address, *, in_udp: bool = False) -> int:
        """Returns the largest number of bytes that ESP adds to an IP packet.

        The address family of the outer header is that of `address`.
        """
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
"""The engine's algorithms that protect packets, by name (docs/esp.md)."""


class Lifetime(NamedTuple):
    """Holds lifetime limits of an SA: plaintext bytes, packets, and seconds since an engine
    received it.

    None: no limit.
    """

    bytes: int | None = None
    packets: int | None = None
    seconds: int | None = None

    def is_reached(self, size: int, packets: int, seconds: float) -> bool:
        """Returns whether one of the limits is reached."""
        used = (self.bytes, size), (self.packets, packets), (self.seconds, seconds)
        return any(limit is not None and value >= limit for limit, value in used)


UNLIMITED = Lifetime()


class UdpPorts(NamedTuple):
    """Holds the UDP ports of ESP in UDP (RFC 3948)."""

    local: int = NAT_TRAVERSAL
    remote: int = NAT_TRAVERSAL


class SaSettings(NamedTuple):
    """Holds the parameters of an SA that both router and engine need, except its number and keys.

    `bundle` and `vrf` are the pipeline's numbers. `local`, `remote`, `ttl`, `dscp`, `df`,
    `tfc_pad_to` and `ports` apply to an outbound SA. `replay_window` and `in_udp` apply to an
    inbound SA.
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
        """Largest number of bytes that an outbound SA adds to an IP packet. 0 for an inbound SA."""
        if self.local is None:
            return 0
        algorithm = ALGORITHMS[self.algorithm]
        return algorithm.overhead(self.mode, self.local, in_udp=self.ports is not None)


HeldKey: TypeAlias = tuple[Direction, int, int]


class LifetimeState(Enum):
    """Lifetime state of an SA. A reached soft limit requests a rekey; a hard limit ends the SA."""

    FRESH = "fresh"
    SOFT = "soft"
    HARD = "hard"


class HeldSa(NamedTuple):
    """Describes an SA in an engine, with the state and counters that the engine reports."""

    settings: SaSettings
    number: int
    age: LifetimeState = LifetimeState.FRESH
    sequence: int = 0
    packets: int = 0
    bytes: int = 0
    drops: Mapping[str, int] = {}

    @property
    def key(self) -> HeldKey:
        """Identity of the SA in an engine: its number if outbound, its VRF and SPI if inbound."""
        one = self.settings
        if one.direction is Direction.OUTBOUND:
            return one.direction, 0, self.number
        return one.direction, one.vrf, one.spi


class KeyMaterial:
    """Holds keys as hexadecimal digits, in buffers that `erase` overwrites."""

    __slots__ = ("integrity_key", "key")

    def __init__(self, key: bytearray, integrity_key: bytearray) -> None:
        self.key = key
        self.integrity_key = integrity_key

    def __repr__(self) -> str:
        return f"KeyMaterial({len(self.key) // 2} and {len(self.integrity_key) // 2} bytes)"

    def erase(self) -> None:
        """Overwrites both keys with zeros."""
        for buffer in (self.key, self.integrity_key):
            buffer[:] = bytes(len(buffer))

    def fingerprint(self) -> str:
        """Returns a digest that does not reveal the keys. The engine computes the same digest."""
        key, integrity_key = _octets(self.key), _octets(self.integrity_key)
        digest = hmac.new(FINGERPRINT_OF, bytes([len(key)]), "sha256")
        for octets in (key, integrity_key):
            digest.update(octets)
            octets[:] = bytes(len(octets))
        return digest.hexdigest()[:32]


class KeySource(Protocol):
    """Reads an SA's keys when an engine needs them."""

    def read(self) -> KeyMaterial:
        """Returns the keys. The caller must erase them. Raises KeyUnavailableError."""


class KeyUnavailableError(Exception):
    """Reports why keys cannot be read."""


class EngineUnreachableError(Exception):
    """Reports that the engine does not answer, or that its answer violates the protocol."""


class EngineRefusalError(Exception):
    """Reports that the engine refused a request, with the engine's reason."""


class Origin(Enum):
    """Origin of an SA: the configuration, a command or the kernel."""

    CONFIGURATION = "configuration"
    COMMAND = "command"
    KERNEL = "kernel"


@dataclass(frozen=True, slots=True)
class SecurityAssociation:
    """Describes an SA that the controller is to install in an engine.

    - `engine`: the only engine that may have the SA. None: any engine of its bundle.
    - `name`: a successor of the SA has the same name, so name and SPI together identify an SA.
    - `is_retiring`: the SA's successor is in use, and the SA stays only for packets in flight.
    - `is_coming`: the peer may not have the SA yet. So the SA's predecessor, if any, stays in use.
    - `fragmentation`: applies to an outbound SA. Only the router uses this setting, not the engine.
    - `traffic`: the values of the packets that the SA carries. None: the SA carries the packets of
      rules without `from_packet`.
    """

    name: str
    settings: SaSettings
    origin: Origin
    keys: KeySource = field(compare=False, repr=False)
    engine: int | None = None
    is_retiring: bool = False
    is_coming: bool = False
    fragmentation: Fragmentation = Fragmentation.BEFORE
    traffic: Populated | None = None

    @property
    def is_outbound(self) -> bool:
        """Whether the SA encrypts."""
        return self.settings.direction is Direction.OUTBOUND


def _octets(digits: bytearray) -> bytearray:
    """Decodes hexadecimal digits. The caller can erase all copies of them."""
    octets = bytearray(len(digits) // 2)
    for at in range(len(octets)):
        octets[at] = _nibble(digits[2 * at]) << 4 | _nibble(digits[2 * at + 1])
    return octets


def _nibble(digit: int) -> int:
    lower = digit | 0x20
    return digit - 0x30 if digit < 0x3A else lower - 0x57

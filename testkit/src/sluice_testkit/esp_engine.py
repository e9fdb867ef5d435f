# SPDX-License-Identifier: Apache-2.0
"""Acts as the ESP engine at the engine port of a router under test (a test double).

The double implements the shim protocol (p4src/headers.p4). Its packets have the format of RFC 4303
in tunnel mode: outer header, SPI, sequence number, trailer, integrity check value. Two routers
protect traffic end to end if each of their engines knows the SAs of the other.

The double does not really encrypt: its key stream is computed from SPI and sequence number. Tests
can still distinguish ciphertext from cleartext.

    ENCRYPT to the engine, with the number of an SA -> ENCRYPTED, with the outer ESP packet
    DECRYPT to the engine, with an ESP packet       -> DECRYPTED, with the inner packet and
                                                       the bundle of its SA

The double drops packets that it cannot process and counts them in `refused`. Depends on namespaces
and packet.
"""

import errno
import hashlib
import ipaddress
import select
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Self

from sluice_testkit.namespaces import Namespace
from sluice_testkit.packet import ETHERTYPE_IPV4, ETHERTYPE_IPV6, UDP, Frame, parse

ETHERTYPE_SHIM = 0x88B5
ENCRYPT, ENCRYPTED, DECRYPT, DECRYPTED = 1, 2, 3, 4
ESP = 50
IPV4_IN_ESP, IPV6_IN_ESP = 4, 41  # Next Header values in the ESP trailer
OUTER_TTL = 64
DONT_FRAGMENT, MORE_FRAGMENTS = 0x4000, 0x2000
NAT_TRAVERSAL = struct.pack("!H", 4500)
ICV = 16
TRAILER = 2
ALIGNMENT = 4
ENGINE_MTU = 2000
"""MTU of an engine port's link: enough for a shim and the longest packet from any other link."""

_SHIM = struct.Struct("!BBHIHHH")
_ESP = struct.Struct("!II")
_ETHERNET = 14


class EspError(ValueError):
    """The bytes are not a valid ESP packet of this double."""


@dataclass(frozen=True)
class Shim:
    """Represents the shim header (p4src/headers.p4), which lies between the Ethernet and the IP
    header on the link between router and engine.
    """

    kind: int
    engine: int = 1
    bundle: int = 0
    sa: int = 0
    ingress_l3_if: int = 0
    vrf: int = 0
    ether_type: int = ETHERTYPE_IPV4

    def pack(self) -> bytes:
        """Returns the header's 14 bytes."""
        fields = self.kind, self.engine, self.bundle, self.sa
        return _SHIM.pack(*fields, self.ingress_l3_if, self.vrf, self.ether_type)

    def frame(self, packet: bytes, macs: bytes = bytes(12)) -> bytes:
        """Returns an Ethernet frame with this shim and the IP packet `packet`. `packet` must be of
        the shim's `ether_type`.
        """
        return macs + struct.pack("!H", ETHERTYPE_SHIM) + self.pack() + packet


@dataclass(frozen=True)
class OutboundSa:
    """Describes an outbound SA: the peer's SPI and the tunnel's end points, which must have the
    same address family.
    """

    spi: int
    source: str
    destination: str

    def overhead(self) -> int:
        """Returns the largest number of bytes that the SA adds to a packet."""
        outer = 40 if ":" in self.source else 20
        return outer + _ESP.size + (ALIGNMENT - 1) + TRAILER + ICV


def seal(sa: OutboundSa, sequence: int, inner: bytes) -> bytes:
    """Encrypts the IP packet `inner`. Returns the outer IP packet, which contains the ESP
    packet.
    """
    padding = -(len(inner) + TRAILER) % ALIGNMENT
    next_header = IPV4_IN_ESP if inner[0] >> 4 == 4 else IPV6_IN_ESP
    clear = inner + bytes(range(1, padding + 1)) + bytes((padding, next_header))
    body = _ESP.pack(sa.spi, sequence) + _masked(sa.spi, sequence, clear)
    return _outer(sa, body + _check_value(body))


def open_sealed(esp: bytes) -> bytes:
    """Decrypts an ESP packet without outer header. Returns the inner IP packet. Raises EspError."""
    if len(esp) < _ESP.size + TRAILER + ICV:
        raise EspError(f"{len(esp)} bytes are too few")
    body, check_value = esp[:-ICV], esp[-ICV:]
    if _check_value(body) != check_value:
        raise EspError("integrity check failed")
    spi, sequence = _ESP.unpack_from(body)
    clear = _masked(spi, sequence, body[_ESP.size :])
    return clear[: len(clear) - TRAILER - clear[-2]]


def esp_of(packet: bytes) -> bytes:
    """Returns the ESP packet that follows the IP header or a UDP header with port 4500 (RFC 3948).

    Returns no bytes if the packet contains no ESP. IPv6 extension headers are not supported.
    """
    if packet[0] >> 4 == 4:
        protocol, payload = packet[9], packet[(packet[0] & 0xF) * 4 :]
    else:
        protocol, payload = packet[6], packet[40:]
    if protocol == UDP and payload[2:4] == NAT_TRAVERSAL:
        return payload[8:]
    return payload if protocol == ESP else b""


class Reassembly:
    """Reassembles IPv4 packets (RFC 791). Fragments may come in any order but must not overlap."""

    def __init__(self) -> None:
        self._parts: dict[bytes, dict[int, bytes]] = {}
        self._lengths: dict[bytes, int] = {}

    def whole(self, packet: bytes) -> bytes | None:
        """Adds a packet. Returns the reassembled packet if the added one was the last missing
        fragment, otherwise None.

        A packet that is not a fragment is returned as it is.
        """
        if packet[0] >> 4 != 4:
            return packet
        header = (packet[0] & 0xF) * 4
        (field,) = struct.unpack_from("!H", packet, 6)
        offset, is_last = (field & 0x1FFF) * 8, not field & MORE_FRAGMENTS
        if not offset and is_last:
            return packet
        key = packet[4:6] + packet[9:10] + packet[12:20]
        parts = self._parts.setdefault(key, {})
        parts[offset] = packet[header:]
        if is_last:
            self._lengths[key] = offset + len(packet) - header
        if sum(map(len, parts.values())) != self._lengths.get(key):
            return None
        payload = b"".join(parts[offset] for offset in sorted(parts))
        del self._parts[key], self._lengths[key]
        return packet[:2] + struct.pack("!H", header + len(payload)) + packet[4:header] + payload


def _masked(spi: int, sequence: int, data: bytes) -> bytes:
    stream = hashlib.shake_128(_ESP.pack(spi, sequence)).digest(len(data))
    masked = int.from_bytes(data, "big") ^ int.from_bytes(stream, "big")
    return masked.to_bytes(len(data), "big")


def _check_value(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=ICV).digest()


def _outer(sa: OutboundSa, payload: bytes) -> bytes:
    source, destination = (ipaddress.ip_address(end) for end in (sa.source, sa.destination))
    addresses = source.packed + destination.packed
    if source.version == 6:
        fixed = struct.pack("!IHBB", 6 << 28, len(payload), ESP, OUTER_TTL)
        return fixed + addresses + payload
    length = 20 + len(payload)
    fixed = struct.pack("!BBHHHBBH", 0x45, 0, length, 0, DONT_FRAGMENT, OUTER_TTL, ESP, 0)
    total = sum(struct.unpack("!10H", fixed + addresses))
    total = (total & 0xFFFF) + (total >> 16)
    total = (total & 0xFFFF) + (total >> 16)
    return fixed[:10] + struct.pack("!H", ~total & 0xFFFF) + addresses + payload


class EspEngine:
    """Runs the double on `interface`, its link to the router, from construction until `stop`.

    `outbound` maps the SA number in the shim to the SA. `inbound` maps an SPI to the bundle of its
    SA.
    """

    def __init__(
        self,
        namespace: Namespace,
        interface: str,
        outbound: Mapping[int, OutboundSa],
        inbound: Mapping[int, int],
    ):
        self.encrypted: list[Frame] = []
        """Inner packets that the router has sent for encryption, in order."""
        self.decrypted: list[Frame] = []
        """Inner packets that the double has decrypted, in order."""
        self.refused: Counter[str] = Counter()
        self._outbound = dict(outbound)
        self._inbound = dict(inbound)
        self._sequence: Counter[int] = Counter()
        self._reassembly = Reassembly()
        self._dead = False
        self._socket = namespace.inside(lambda: _open(interface))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name=f"esp-{interface}")
        self._thread.start()

    def __str__(self) -> str:
        done = f"encrypted {len(self.encrypted)}, decrypted {len(self.decrypted)}"
        return f"{done}, refused {dict(self.refused)}"

    def clear(self) -> None:
        """Discards the recorded packets and the counters."""
        self.encrypted.clear()
        self.decrypted.clear()
        self.refused.clear()

    @contextmanager
    def dead(self) -> Iterator[None]:
        """Drops all packets while the context is open, like an engine that hangs."""
        self._dead = True
        try:
            yield
        finally:
            self._dead = False

    def stop(self) -> None:
        """Stops the engine."""
        self._stop.set()
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while not self._stop.is_set():
            ready, _, _ = select.select([self._socket], [], [], 0.05)
            if not ready:
                continue
            try:
                answer = self._answer(self._socket.recv(65535))
                if answer is not None:
                    self._socket.send(answer)
            except OSError as error:
                if error.errno != errno.ENETDOWN:  # the link may come up again
                    raise

    def _answer(self, frame: bytes) -> bytes | None:
        if self._dead:
            self.refused["dead"] += 1
            return None
        if len(frame) < _ETHERNET + _SHIM.size + 20:
            self.refused["too short"] += 1
            return None
        shim = Shim(*_SHIM.unpack_from(frame, _ETHERNET))
        packet = _without_padding(frame[_ETHERNET + _SHIM.size :])
        serve = {ENCRYPT: self._encrypt, DECRYPT: self._decrypt}.get(shim.kind)
        if serve is None:
            self.refused["not asked for anything"] += 1
            return None
        return serve(shim, packet, frame[:12])

    def _encrypt(self, shim: Shim, packet: bytes, macs: bytes) -> bytes | None:
        sa = self._outbound.get(shim.sa)
        if sa is None:
            self.refused["no such outbound SA"] += 1
            return None
        self._sequence[shim.sa] += 1
        self.encrypted.append(_seen(packet))
        outer = seal(sa, self._sequence[shim.sa], packet)
        return replace(shim, kind=ENCRYPTED, ether_type=_ether_type(outer)).frame(outer, macs)

    def _decrypt(self, shim: Shim, packet: bytes, macs: bytes) -> bytes | None:
        whole = self._reassembly.whole(packet)
        if whole is None:
            return None
        try:
            esp = esp_of(whole)
            inner = open_sealed(esp)
        except EspError as error:
            self.refused[str(error)] += 1
            return None
        bundle = self._inbound.get(_ESP.unpack_from(esp)[0])
        if bundle is None:
            self.refused["no such inbound SA"] += 1
            return None
        self.decrypted.append(_seen(inner))
        kind = replace(shim, kind=DECRYPTED, bundle=bundle, ether_type=_ether_type(inner))
        return kind.frame(inner, macs)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def _open(interface: str) -> socket.socket:
    """Opens a packet socket for the shim's EtherType.

    To a socket bound to one EtherType, the kernel delivers only received frames, and none that the
    host sends.
    """
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
    opened.bind((interface, ETHERTYPE_SHIM))
    return opened


def _ether_type(packet: bytes) -> int:
    return ETHERTYPE_IPV4 if packet[0] >> 4 == 4 else ETHERTYPE_IPV6


def _without_padding(packet: bytes) -> bytes:
    """Returns the IP packet without Ethernet padding: cut to the length in its IP header."""
    if packet[0] >> 4 == 4:
        return packet[: struct.unpack_from("!H", packet, 2)[0]]
    return packet[: 40 + struct.unpack_from("!H", packet, 4)[0]]


def _seen(packet: bytes) -> Frame:
    """Returns the IP packet as a `Frame` with an Ethernet header, as a capture would."""
    return parse(bytes(12) + struct.pack("!H", _ether_type(packet)) + packet, time.time())

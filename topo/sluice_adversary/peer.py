# SPDX-License-Identifier: Apache-2.0
"""Acts as the far end of the router's bundles, for a router with a real ESP engine.

The router's engine is inside its switch, so no capture sees what the switch gives it. The peer has
the other half of each SA. A frame on a link counts as ciphertext only if all of it is authentic ESP
of one of these SAs. The checker then gets the decrypted packet in the form in which a double of the
engine would receive it. Every other frame is checked as cleartext.

In the other direction, the peer encrypts packets and sends them to the router on a link. Some
packets are fragmented, some follow an altered copy, and some are sent twice. If the router accepts
an altered packet, or accepts a packet twice, this is a finding.

ESP is implemented here from RFC 4303 and RFC 4106, with a different library than the engine's.
"""

import hashlib
import struct
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from . import plan
from .datagrams import DECRYPTED, ENCRYPT, SHIM_LENGTH, Datagram, Shim, mac, read_shim
from .drafts import Draft
from .listeners import Listener
from .lists import TO_DECRYPT
from .plan import packed
from .reference import Expectation, Reference
from .wire import ESP, ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_SHIM, read_piece

FROM_ROUTER = 0x5100
"""Base of SPIs: the router's outbound SA for bundle n has the SPI FROM_ROUTER + n."""
INBOUND = 100
"""Base of SA numbers: the router's inbound SA for bundle n has the number INBOUND + n."""
NEEDS_A_DOUBLE = frozenset({"engine's ESP", "engine lies", "engine confused"})
"""Shapes whose frames come from the engine, so that only a double of it can send them."""
HOSTILE = {"altered": "integrity_failed", "replayed": "replayed"}
"""Kinds of ESP that the router's engine must drop, with the reason that it must count."""
REPLAY_WINDOW = 4096
KEY_LENGTH, SALT_LENGTH = 16, 4
HEADER, IV, ICV = 8, 8, 16
INNER = {4: 4, 41: 6}
"""IP version of the inner packet, by Next Header."""


class WithEngine(Reference):
    """Computes the permitted outcomes for a router whose real engine is inside the switch, so that
    the engine's input cannot be captured.
    """

    def expect(self, datagram: Datagram) -> Expectation:
        """Returns the permitted outcomes of a datagram.

        A datagram that goes to the engine for decryption may be lost, because the engine drops ESP
        that the peer has not encrypted.
        """
        found = super().expect(datagram)
        if any(TO_DECRYPT in outcomes for outcomes in found.allowed):
            return replace(found, must=False, excuse=found.excuse or "dropped by the engine")
        return found


def _key(sender: str, bundle: int) -> bytes:
    seed = f"{sender} {bundle}".encode()
    return hashlib.shake_128(seed).digest(KEY_LENGTH + SALT_LENGTH)


def _ends(bundle: plan.Bundle) -> tuple[str, str]:
    """Returns the tunnel addresses of a bundle: the router's, then the peer's."""
    link = plan.BY_SPD[bundle.spd]
    local = bundle.local or link.own(4)
    return local, link.next_hop(6 if ":" in local else 4)


def router_sas() -> list[dict[str, Any]]:
    """Returns the SAs for the router's engine, in the format that its command line reads."""
    found = []
    for bundle in plan.BUNDLES.values():
        number, (local, remote) = bundle.number, _ends(bundle)
        common = {"bundle": number, "mode": "tunnel", "algorithm": "aes-128-gcm", "esn": True}
        inbound = {"direction": "in", "sa": INBOUND + number, "spi": bundle.spi}
        inbound |= {"key": _key("peer", number).hex(), "replay_window": REPLAY_WINDOW}
        found.append(common | inbound)
        if bundle.local is not None:
            outbound = {"direction": "out", "sa": number, "spi": FROM_ROUTER + number}
            outbound |= {"key": _key("router", number).hex(), "local": local, "remote": remote}
            found.append(common | outbound)
    return found


@dataclass
class Sealer:
    """Encrypts with an outbound SA of the peer: AES-GCM, with extended sequence numbers that stay
    below 2^32.
    """

    spi: int
    key: bytes
    sequence: int = 0

    def seal(self, packet: bytes) -> bytes:
        """Encrypts a packet. Returns the ESP packet (tunnel mode) without outer header."""
        self.sequence += 1
        padding = -(len(packet) + 2) % 4
        following = 4 if packet[0] >> 4 == 4 else 41
        clear = packet + bytes(range(1, padding + 1)) + bytes((padding, following))
        iv = struct.pack("!Q", self.sequence)
        header = struct.pack("!II", self.spi, self.sequence)
        sealed = _cipher(self.key).encrypt(self.key[KEY_LENGTH:] + iv, clear, _aad(header))
        return header + iv + sealed


@dataclass
class Opener:
    """Decrypts with an inbound SA of the peer. Refuses repeated sequence numbers and IVs."""

    spi: int
    key: bytes
    seen: set[bytes] = field(default_factory=set)

    def open(self, esp: bytes) -> bytes | None:
        """Decrypts an ESP packet. Returns None if it is not authentic, is malformed, or repeats a
        sequence number or IV.
        """
        if len(esp) < HEADER + IV + ICV + 2:
            return None
        header, iv = esp[:HEADER], esp[HEADER : HEADER + IV]
        nonce = self.key[KEY_LENGTH:] + iv
        try:
            clear = _cipher(self.key).decrypt(nonce, esp[HEADER + IV :], _aad(header))
        except InvalidTag:
            return None
        if iv in self.seen or header in self.seen:
            return None
        self.seen |= {iv, header}
        padding, following = clear[-2:]
        packet = clear[: len(clear) - 2 - padding]
        is_padded = clear[len(packet) : -2] == bytes(range(1, padding + 1))
        is_inner = bool(packet) and INNER.get(following) == packet[0] >> 4
        return packet if is_padded and is_inner else None


@cache
def _cipher(key: bytes) -> AESGCM:
    return AESGCM(key[:KEY_LENGTH])


def _aad(header: bytes) -> bytes:
    """Returns the additional authenticated data: SPI and 64-bit sequence number (RFC 4106, 5)."""
    return header[:4] + bytes(4) + header[4:]


class EspPeer:
    """Acts as the far end of all bundles. Replaces the capture at the engine port.

    `watched` wraps the socket of a link. The wrapped socket returns all frames except the router's
    authentic ESP.
    """

    def __init__(self) -> None:
        self._links: dict[int, Listener] = {}
        self._opened: deque[bytes] = deque()
        self._sealers = {
            one.number: Sealer(one.spi, _key("peer", one.number)) for one in plan.BUNDLES.values()
        }
        self._openers = {
            one.number: Opener(FROM_ROUTER + one.number, _key("router", one.number))
            for one in plan.BUNDLES.values()
            if one.local is not None
        }
        self.hostile = dict.fromkeys(HOSTILE, 0)
        """Number of hostile packets sent, by kind."""
        self.opened = 0
        """Number of the router's packets that the peer has decrypted."""

    @property
    def sealed(self) -> int:
        """Number of packets that the peer has encrypted for the router."""
        return sum(sealer.sequence for sealer in self._sealers.values())

    def watched(self, link: plan.Link, listener: Listener) -> "Watched":
        """Wraps the socket of a link. The wrapped socket omits the router's authentic ESP."""
        self._links[link.number] = listener
        return Watched(link, listener, self)

    # -- packets that the router has encrypted

    def takes(self, link: plan.Link, frame: bytes) -> bool:
        """Decrypts a frame that left the router on a link, if it is ESP of a bundle. Returns
        whether it is.

        Only a plain IP header may precede the ESP packet, and nothing may follow it.
        """
        packet = frame[14:]
        piece = read_piece(packet)
        if piece is None or piece.broken or piece.is_fragment or piece.start != ESP:
            return False
        esp, header = piece.payload, 20 if piece.version == 4 else 40
        if len(packet) != header + len(esp):
            return False
        bundle = self._bundle(link, piece.source, piece.destination, esp)
        opened = None if bundle is None else self._openers[bundle].open(esp)
        if bundle is None or opened is None:
            return False
        self.opened += 1
        shim = Shim(ENCRYPT, bundle).pack(opened)
        self._opened.append(bytes(12) + ETHERTYPE_SHIM.to_bytes(2, "big") + shim + opened)
        return True

    def _bundle(self, link: plan.Link, source: bytes, destination: bytes, esp: bytes) -> int | None:
        """Returns the bundle to which the SPI belongs, or None. Link and addresses must also be
        those of the bundle.
        """
        number = int.from_bytes(esp[:4], "big") - FROM_ROUTER
        if number not in self._openers:
            return None
        bundle = plan.BUNDLES[number]
        ends = source, destination
        is_its = bundle.spd == link.spd and ends == tuple(map(packed, _ends(bundle)))
        return number if is_its else None

    def heard(self) -> Iterator[bytes]:
        """Yields the packets that the router has encrypted, in the form in which a double of the
        engine would receive them.
        """
        while self._opened:
            yield self._opened.popleft()

    # -- packets to the router

    def send(self, frame: bytes) -> None:
        """Encrypts the packet in `frame` and sends it to the router.

        `frame` has the form in which a double of the engine would send a decrypted packet.
        """
        shim = read_shim(frame[14:])
        assert shim is not None, frame
        assert shim.kind == DECRYPTED, frame
        packet = frame[14 + SHIM_LENGTH :]
        bundle, sealer = plan.BUNDLES[shim.bundle], self._sealers[shim.bundle]
        esp = sealer.seal(packet)
        remote, local = map(packed, _ends(bundle))
        outer = Draft(4 if len(local) == 4 else 6, local, remote, ESP, esp, sealer.sequence)
        turn = sealer.sequence % 16
        if turn == 3:
            at = HEADER + sealer.sequence * 7 % (len(esp) - HEADER)
            altered = esp[:at] + bytes((esp[at] ^ 1 << at % 8,)) + esp[at + 1 :]
            self._inject(shim.ingress_l3_if, replace(outer, payload=altered).whole())
            self.hostile["altered"] += 1
        for one in outer.cut(32) if turn == 7 else [outer.whole()]:
            self._inject(shim.ingress_l3_if, one)
        if turn == 11:
            self._inject(shim.ingress_l3_if, outer.whole())
            self.hostile["replayed"] += 1

    def _inject(self, number: int, packet: bytes) -> None:
        link = next(link for link in plan.LINKS.values() if link.number == number)
        kind = ETHERTYPE_IPV4 if packet[0] >> 4 == 4 else ETHERTYPE_IPV6
        macs = mac(link.router_mac) + mac(link.host_mac)
        self._links[number].send(macs + kind.to_bytes(2, "big") + packet)

    # -- the router's engine, by its own counters

    def wrongly_accepted(self, status: Mapping[str, Any]) -> list[str]:
        """Describes wrong behaviour of the engine: it has decrypted more packets than the peer
        encrypted, or has not dropped all hostile packets.
        """
        served, drops = _inbound(status)
        found = []
        if served > self.sealed:
            found.append(
                f"the engine decrypted {served} packets, but the peer encrypted {self.sealed}"
            )
        for kind, reason in HOSTILE.items():
            if drops[reason] < self.hostile[kind]:
                found.append(
                    f"{self.hostile[kind]} sent {kind}, {drops[reason]} dropped as {reason}"
                )
        return found

    def summary(self, status: Mapping[str, Any]) -> str:
        """Returns a summary of the ESP in both directions, as text."""
        served, drops = _inbound(status)
        hostile = ", ".join(f"{count:,} {kind}" for kind, count in self.hostile.items())
        others = status["others"]["drops"]
        counted = sorted((drops + Counter(others)).items())
        named = ", ".join(f"{name} {count:,}" for name, count in counted)
        return "\n".join(
            [
                f"ESP: the router encrypted {self.opened:,} packets, all authentic and new; "
                f"the peer encrypted {self.sealed:,}, of which the router decrypted {served:,}",
                f"ESP: the peer also sent hostile packets: {hostile}; the engine dropped: {named}",
            ]
        )

    # -- interface of a capture

    def lost(self) -> int:
        """Returns 0, because the links' sockets count dropped frames."""
        return 0

    def close(self) -> None:
        """Does nothing, since the peer has no socket of its own."""


def _inbound(status: Mapping[str, Any]) -> tuple[int, Counter[str]]:
    """Returns the number of packets that an engine has decrypted, and its drops on inbound SAs by
    reason.
    """
    counted = [sa["counters"] for sa in status["sas"] if sa["spec"]["direction"] == "in"]
    drops: Counter[str] = Counter()
    for counters in counted:
        drops.update(counters["drops"])
    return sum(counters["packets"] for counters in counted), drops


class Watched:
    """Wraps a link's socket. Gives the router's ESP to the peer and omits it."""

    def __init__(self, link: plan.Link, listener: Listener, peer: EspPeer):
        self._link, self._ear, self._peer = link, listener, peer

    def heard(self) -> Iterator[bytes]:
        """Yields all waiting frames that the peer does not recognize as ESP."""
        return (frame for frame in self._ear.heard() if not self._peer.takes(self._link, frame))

    def send(self, frame: bytes) -> None:
        """Sends a frame unchanged."""
        self._ear.send(frame)

    def lost(self) -> int:
        """Returns the number of frames dropped since the last call, because the buffer was full."""
        return self._ear.lost()

    def close(self) -> None:
        """Closes the socket."""
        self._ear.close()

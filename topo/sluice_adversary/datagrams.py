# SPDX-License-Identifier: Apache-2.0
"""Defines a datagram of the adversary: where it enters the router, and its IP packets in sending
order.
"""

import struct
from dataclasses import dataclass, field
from typing import NamedTuple

from . import plan
from .wire import ETHERTYPE_IPV4, ETHERTYPE_IPV6, ETHERTYPE_SHIM, ETHERTYPE_VLAN, Piece, read_piece

ENCRYPT, ENCRYPTED, DECRYPT, DECRYPTED = 1, 2, 3, 4
_SHIM = struct.Struct("!BBHIHHH")


class Shim(NamedTuple):
    """Represents the shim header of frames between switch and engine (p4src/headers.p4)."""

    kind: int
    bundle: int = 0
    engine: int = 1
    sa: int = 0
    ingress_l3_if: int = 0
    vrf: int = 0
    ether_type: int | None = None

    def pack(self, packet: bytes) -> bytes:
        """Returns the header as bytes, for a frame in which `packet` follows."""
        kind = ETHERTYPE_IPV4 if packet[0] >> 4 == 4 else ETHERTYPE_IPV6
        if self.ether_type is not None:
            kind = self.ether_type
        fields = self.kind, self.engine, self.bundle, self.sa, self.ingress_l3_if, self.vrf
        return _SHIM.pack(*fields, kind)


SHIM_LENGTH = _SHIM.size


def read_shim(data: bytes) -> Shim | None:
    """Returns the shim at the start of `data`, or None if `data` is too short."""
    if len(data) < SHIM_LENGTH:
        return None
    kind, engine, bundle, sa, ingress_l3_if, vrf, ether_type = _SHIM.unpack_from(data)
    return Shim(kind, bundle, engine, sa, ingress_l3_if, vrf, ether_type)


class EntryPoint(NamedTuple):
    """Names the link or engine port by which a datagram enters the router. Holds the shim, if its
    frames have one.
    """

    port: str
    shim: Shim | None = None

    @property
    def carrier(self) -> int:
        """The bundle that has decrypted the packet, according to the shim. 0 if the packet arrives
        in clear.
        """
        if self.port != plan.ENGINE or self.shim is None or self.shim.kind != DECRYPTED:
            return 0
        return self.shim.bundle


@dataclass
class Datagram:
    """Holds one datagram, as one IP packet or in fragments.

    `trailer` is Ethernet padding behind each IP packet. `to_mac` is the destination MAC address, if
    it is not the router's. `vlan` is the VLAN of an 802.1Q tag, if the frames have one.
    """

    number: int
    shape: str
    entry: EntryPoint
    packets: list[bytes]
    trailer: bytes = b""
    to_mac: str | None = None
    vlan: int | None = None
    pieces: list[Piece | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.pieces = [read_piece(packet) for packet in self.packets]

    def frames(self) -> list[bytes]:
        """Returns one Ethernet frame for each packet, in sending order."""
        return [self._frame(packet) for packet in self.packets]

    def _link(self) -> plan.Link:
        """Returns the link by which the packet entered the router. For a decrypted packet, the shim
        names the link.
        """
        if self.entry.port != plan.ENGINE:
            return plan.LINKS[self.entry.port]
        number = 0 if self.entry.shim is None else self.entry.shim.ingress_l3_if
        return next(
            (link for link in plan.LINKS.values() if link.number == number), plan.LINKS["a"]
        )

    def _frame(self, packet: bytes) -> bytes:
        link = self._link()
        macs = mac(self.to_mac or link.router_mac) + mac(link.host_mac)
        if self.vlan is not None:
            macs += struct.pack("!HH", ETHERTYPE_VLAN, self.vlan)
        if self.entry.shim is not None:
            inner = self.entry.shim.pack(packet) + packet
            return macs + struct.pack("!H", ETHERTYPE_SHIM) + inner + self.trailer
        ether_type = ETHERTYPE_IPV4 if packet[0] >> 4 == 4 else ETHERTYPE_IPV6
        frame = macs + struct.pack("!H", ether_type) + packet + self.trailer
        return frame + bytes(max(0, 60 - len(frame)))


def mac(text: str) -> bytes:
    """Returns a MAC address as bytes."""
    return bytes.fromhex(text.replace(":", ""))

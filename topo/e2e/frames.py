# SPDX-License-Identifier: Apache-2.0
"""Builds Ethernet frames and sends them. `packets` builds the IP packets inside."""

import ipaddress
import socket
import struct

from sluice_testkit.namespaces import Namespace


def checksum(data: bytes) -> int:
    """Returns the Internet checksum (RFC 1071)."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def arp_request(mac: str, source: str, wanted: str) -> bytes:
    """Returns an ARP request: `mac` at address `source` asks for the MAC address of `wanted`."""
    sender = _mac(mac) + ipaddress.ip_address(source).packed
    head = struct.pack("!HHBBH", 1, 0x0800, 6, 4, 1)
    return head + sender + bytes(6) + ipaddress.ip_address(wanted).packed


def ethernet(to: str, mac: str, ethertype: int, payload: bytes, vlan: int | None = None) -> bytes:
    """Returns an Ethernet frame, with an 802.1Q tag if `vlan` is given."""
    tag = b"" if vlan is None else struct.pack("!HH", 0x8100, vlan)
    return _mac(to) + _mac(mac) + tag + struct.pack("!H", ethertype) + payload


def _mac(text: str) -> bytes:
    return bytes.fromhex(text.replace(":", ""))


def inject(place: Namespace, interface: str, frame: bytes, count: int = 1) -> None:
    """Sends a frame unchanged on an interface, `count` times."""
    with place.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
        place.inside(lambda: sender.bind((interface, 0)))
        for _ in range(count):
            sender.send(frame)

# SPDX-License-Identifier: Apache-2.0
"""Simulates the switch and the neighbour for test_fast_path.py, in a separate process.

The process listens at the given address and prints a line when it is ready. It reads one command
per line. A command makes the neighbour send a packet to the router; the switch delivers it as a
packet-in. When the router's answer has arrived as a packet-out, the process prints a line.
"""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable

from finsy.proto import p4r

import packets
from native.fake_switch import FakeSwitch
from sluice.model import parse_address, parse_mac
from sluice.p4.packets import PACKET_IN
from sluice.wire import packet as wire
from test_punts import REASONS, SCHEMA

OWN, OWN6, PEER, PEER6 = "10.0.1.1", "2001:db8:1::1", "10.0.1.9", "2001:db8:1::9"
ROUTER_MAC = parse_mac("02:00:00:00:01:01")
BFD_PORT, SENDER_PORT, CLOSED_PORT = 3784, 49152, 7777
SECONDS = 15
ARBITRATIONS = {"primary": 0, "not primary": 6}


def say(**what: object) -> None:
    print(json.dumps(what), flush=True)


def packet_in(frame: bytes, reason: str, bundle: int = 0) -> p4r.StreamMessageResponse:
    values = {"reason": REASONS[reason], "ingress_l3_if": 1, "ingress_port": 1, "bundle": bundle}
    message = p4r.StreamMessageResponse(packet=p4r.PacketIn(payload=frame))
    for name, (number, _) in zip(PACKET_IN, SCHEMA.packet_in, strict=True):
        value = values.get(name, 0)
        length = max(1, (value.bit_length() + 7) // 8)
        message.packet.metadata.add(metadata_id=number, value=value.to_bytes(length, "big"))
    return message


def checksummed(protocol: int, message: bytes, addresses: bytes) -> bytes:
    """Returns an ICMPv6 or UDP message over IPv6 with its checksum filled in."""
    at = 2 if protocol == wire.ICMPV6 else 6
    pseudo = wire.pseudo_header(addresses[:16], addresses[16:], len(message), protocol)
    checksum = wire.internet_checksum(pseudo + message).to_bytes(2, "big")
    return message[:at] + checksum + message[at + 2 :]


def ipv6(protocol: int, message: bytes) -> bytes:
    addresses = parse_address(PEER6) + parse_address(OWN6)
    return packets.ipv6(PEER6, OWN6, checksummed(protocol, message, addresses), protocol, 255)


def udp(port: int) -> bytes:
    ports = SENDER_PORT.to_bytes(2, "big") + port.to_bytes(2, "big")
    return ports + (8 + 24).to_bytes(2, "big") + bytes(2) + b"n" * 24


def echo() -> bytes:
    message = b"\x08\0\0\0\0\7\0\1"
    checksum = wire.internet_checksum(message)
    return message[:2] + checksum.to_bytes(2, "big") + message[4:]


def question() -> bytes:
    sender = packets.HOST_MAC + parse_address(PEER)
    body = b"\0\1\x08\0\6\4\0\1" + sender + bytes(6) + parse_address(OWN)
    return b"\xff" * 6 + packets.HOST_MAC + b"\x08\x06" + body


class FarEnd:
    """Simulates the switch and the neighbour. Also holds the sockets of the router's BFD
    daemons."""

    def __init__(self, switch: FakeSwitch) -> None:
        self.switch = switch
        self.daemons = {4: daemon(socket.AF_INET, OWN), 6: daemon(socket.AF_INET6, OWN6)}

    def arbitrate(self, code: int) -> None:
        """Sends an arbitration update; code 0 makes the client primary."""
        message = p4r.StreamMessageResponse()
        message.arbitration.status.code = code
        self.switch.responses.put(message)

    def play(self, what: str) -> None:
        if what in ARBITRATIONS:
            self.arbitrate(ARBITRATIONS[what])
            return
        if what == "anything":
            self.packet_out(lambda _: True)
            return
        if what == "no session":
            assert self.switch.requests.empty()
            return
        version = 6 if what.endswith("6") else 4
        packet, protocol = {
            "ping": (packets.ipv4(PEER, OWN, echo(), wire.ICMP), wire.ICMP),
            "ping6": (ipv6(wire.ICMPV6, b"\x80\0\0\0\0\7\0\1"), wire.ICMPV6),
            "bfd": (packets.ipv4(PEER, OWN, udp(BFD_PORT), ttl=255), wire.UDP),
            "bfd6": (ipv6(wire.UDP, udp(BFD_PORT)), wire.UDP),
            "closed port": (packets.ipv4(PEER, OWN, udp(CLOSED_PORT)), wire.ICMP),
            "arp": (b"", 0),
        }[what]
        if what == "arp":
            self.switch.responses.put(packet_in(question(), "ARP"))
            self.packet_out(lambda frame: frame[12:14] == b"\x08\x06" and frame[21] == 2)
            return
        frame = packets.ethernet(packet, destination=ROUTER_MAC)
        reason = "ROUTING_PROTOCOL" if "bfd" in what else "LOCAL"
        self.switch.responses.put(packet_in(frame, reason, 7 if what == "closed port" else 0))
        if what == "closed port":
            return
        if "bfd" in what:
            _, peer = self.daemons[version].recvfrom(100)
            self.daemons[version].sendto(b"a" * 24, (peer[0], BFD_PORT))
        at = 23 if version == 4 else 20
        answers = (0,) if version == 4 else (129,)
        first = 34 if version == 4 else 54
        self.packet_out(
            lambda frame: (
                frame[at] == protocol and (protocol == wire.UDP or frame[first] in answers)
            )
        )

    def packet_out(self, wanted: Callable[[bytes], bool]) -> None:
        """Waits until a packet-out arrives whose payload `wanted` accepts."""
        while True:
            request = self.switch.requests.get(timeout=SECONDS)
            if request.HasField("packet") and wanted(request.packet.payload):
                return


def daemon(family: socket.AddressFamily, address: str) -> socket.socket:
    opened = socket.socket(family, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    opened.bind((address, BFD_PORT))
    opened.settimeout(SECONDS)
    return opened


def main() -> None:
    with FakeSwitch(sys.argv[1]) as switch:
        far_end = FarEnd(switch)
        say(listens=sys.argv[1])
        for line in sys.stdin:
            what = line.strip()
            far_end.play(what)
            say(passed=what)


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Generates random packets for given tables. Some of the packets are then damaged.

A packet uses addresses of the interfaces and routes in the tables, so that most packets pass many
stages of the pipeline. It may get options, extension headers or fragmentation. It may also be
damaged: wrong lengths and checksums, flipped bytes, a cut-off end. Each kind of packet has a name,
so that the packets of a golden can all be of one kind.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable
from random import Random

from sluice_ptf import raw
from sluice_ptf.differential.case import TableState
from sluice_ptf.differential.states import PLACES4, PLACES6, PORTS
from sluice_ptf.frames import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ETHERTYPE_VLAN,
    internet_checksum,
    mac_bytes,
    tagged,
)
from sluice_ptf.network import HOST_MAC
from sluice_ptf.probe import SENTINEL_VLAN, FromCpu, FromPort, Send
from sluice_ptf.schema import Value

ODD4 = (
    "0.0.0.0",
    "127.0.0.1",
    "169.254.1.1",
    "224.0.0.5",
    "224.0.1.1",
    "239.1.1.1",
    "240.0.0.1",
    "255.255.255.255",
)
ODD6 = ("::", "::1", "::ffff:10.0.0.1", "fe80::1", "ff00::1", "ff01::1", "ff02::1", "ff0e::1")
GROUP_MACS = (
    "ff:ff:ff:ff:ff:ff",
    "01:00:5e:00:00:05",
    "33:33:00:00:00:01",
    "01:80:c2:00:00:0e",
    "01:80:c2:00:00:14",
    "01:80:c2:00:00:15",
    "09:00:2b:00:00:05",
)
ETHER_TYPES = (0x0806, 0x88CC, 0x88B5, 0x8847, 0x8100, 0x0026, 0x05DC, 0x0600, 0x0000, 0xFFFF)
PORTS_OF_PROTOCOLS = (179, 646, 520, 521, 500, 4500, 3784, 4784, 7000, 0, 65535)
PROTOCOLS = (6, 6, 17, 17, 17, 1, 58, 132, 135, 50, 89, 0, 43, 44, 51, 59, 60, 253)
EXTENSIONS = (0, 43, 44, 60, 60)
TTLS = (0, 1, 2, *(64,) * 10, 255, 255, 255)
OPTIONS = (
    b"\0",
    b"\1",
    b"\1\1\1\1",
    b"\x94\x04\0\0",
    b"\x07\x0b\x04" + bytes(8),
    b"\x44\x08\x05\0" + bytes(4),
    b"\x83\x07\x04\x0a\0\0\1",
    b"\x89\x03\x04",
    b"\xde\x02",
    b"\xde\x00",
    b"\xde\x30",
)
STAGES = (0, 1, 2, 3, 4, 4, 4, 5, 6, 6, 6, 9)


class Generator:
    """Generates packets for the tables of one `TableState`."""

    def __init__(self, draw: Random, state: TableState):
        self._draw = draw
        self._prefixes: dict[bool, list[str]] = {False: [], True: []}
        for table in ("ipv4_fib", "ipv6_fib", "local_ipv4", "local_ipv6"):
            prefixes = [str(entry.match["dst_addr"]) for entry in state.of(table)]
            self._prefixes["ipv6" in table] += prefixes
        macs = {
            entry.match["l3_if"]: str(entry.match["dst_mac"]) for entry in state.of("router_mac")
        }
        self._often: list[Callable[[], Send]] = []
        every = state.of("l3_interface")
        doors = [entry for entry in every if entry.params["role"] == "ROUTER"]
        self._doors = [
            (
                int(str(entry.match["ingress_port"])),
                int(str(entry.match["vlan_id"])),
                macs.get(entry.params["l3_if"], "02:de:ad:00:00:01"),
            )
            for entry in doors or every
        ]
        self.kinds: dict[str, Callable[[], Send]] = {
            "plain": self._plain,
            "options": self._options,
            "extensions": self._extensions,
            "fragments": self._fragments,
            "lengths": self._lengths,
            "sizes": self._sizes,
            "link": self._link,
            "bent": self._corrupted,
            "noise": self._noise,
            "packet_outs": self._packet_out,
        }

    def add_kinds(self, **kinds: Callable[[], Send]) -> None:
        """Adds kinds of packets from other modules.

        `any` draws these kinds more often than others.
        """
        self.kinds.update(kinds)
        self._often = list(kinds.values())

    def any(self, count: int) -> list[Send]:
        """Returns packets of all kinds, sorted by ingress port. Packet-outs come first."""
        kinds = [*self.kinds.values(), *self._often, *self._often]
        packets = [self._draw.choice(kinds)() for _ in range(count)]
        packets = [one for one in packets if _can_be_sent(one)]
        return sorted(packets, key=lambda one: one.port if isinstance(one, FromPort) else 0)

    def of_kind(self, kind: str, count: int) -> list[Send]:
        """Returns packets of one kind."""
        packets = [self.kinds[kind]() for _ in range(count)]
        return [one for one in packets if _can_be_sent(one)]

    # --- kinds of packets -----------------------------------------------------

    def _plain(self) -> Send:
        return self._arrives(self._ip(self._draw.random() < 0.5))

    def _options(self) -> Send:
        options = b"".join(self._draw.choice(OPTIONS) for _ in range(self._draw.randint(1, 6)))
        if self._draw.random() < 0.2:
            options = b"\1" * self._draw.randint(1, 40)
        options = (options + bytes(-len(options) % 4))[:40]
        return self._arrives(self._ipv4(options=options))

    def _extensions(self) -> Send:
        next_header, payload = self._transport()
        for _ in range(self._draw.choice((1, 1, 2, 3, 5, 6, 7, 9))):
            kind = self._draw.choice(EXTENSIONS)
            if kind == 44:
                offset = self._draw.choice((0, 0, 0, 1, 50))
                header = raw.fragment_header(next_header, offset, self._draw.random() < 0.3)
            else:
                body = self._draw.choice((6, 6, 14, 30, 254))
                start = bytes([self._draw.choice((0, 0, 2, 4)), self._draw.choice((0, 0, 1, 255))])
                length = None if self._draw.random() < 0.95 else self._draw.randint(0, 255)
                header = raw.extension(next_header, start + bytes(body - 2), length)
            payload, next_header = header + payload, kind
        return self._arrives(self._ipv6(payload=payload, next_header=next_header))

    def _fragments(self) -> Send:
        payload = self._draw.choice((b"", b"\0\xb3", bytes(3), bytes(4), bytes(8), bytes(64)))
        protocol = self._draw.choice(PROTOCOLS)
        offset, more = self._draw.choice((0, 0, 1, 185, 8191)), self._draw.random() < 0.6
        padding = bytes(self._draw.choice((0, 0, 40)))
        if self._draw.random() < 0.5:
            flags = self._draw.choice((0, 0x4000, 0x8000)) | (raw.MORE_FRAGMENTS if more else 0)
            packet = self._ipv4(payload=payload, protocol=protocol, fragment=flags | offset)
        else:
            payload = raw.fragment_header(protocol, offset, more) + payload
            packet = self._ipv6(payload=payload, next_header=44)
        return self._arrives(packet + padding)

    def _lengths(self) -> Send:
        """Returns a packet with a wrong version, length or checksum."""
        packet = bytearray(self._ip(self._draw.random() < 0.5))
        ipv4 = packet[0] >> 4 == 4
        for _ in range(self._draw.choice((1, 1, 2))):
            at = self._draw.choice((0, 2, 3, 10) if ipv4 else (0, 4, 5, 6))
            packet[at] = self._draw.choice((0, 1, packet[at] ^ 1, packet[at] + 1 & 255, 255, 0x46))
        if ipv4 and self._draw.random() < 0.8:
            _fix_checksum(packet)
        return self._arrives(bytes(packet), ipv6_type=not ipv4)

    def _sizes(self) -> Send:
        size = self._draw.choice((0, 40, 548, 549, 1252, 1253, 1472, 1473, 1500, 3000, 8800))
        size += self._draw.randint(-1, 1)
        padding = bytes(self._draw.choice((0, 0, 1, 60)))
        payload = raw.datagram(max(0, size))
        ipv6 = self._draw.random() < 0.5
        packet = self._ipv6(payload=payload) if ipv6 else self._ipv4(payload=payload, protocol=17)
        return self._arrives(packet + padding)

    def _link(self) -> Send:
        """Returns a frame whose EtherType, VLAN, port or MAC address may not fit the interface."""
        port, vlan, mac = self._draw.choice(self._doors)
        mac = self._draw.choice((mac, mac, *GROUP_MACS, "02:de:ad:00:00:02"))
        port, vlan = self._draw.choice((port, *PORTS)), self._draw.choice((vlan, vlan, 0, 1, 4095))
        frame = mac_bytes(mac) + mac_bytes(HOST_MAC)
        kind = self._draw.random()
        if kind < 0.3:
            packet = self._ip(self._draw.random() < 0.5)
            frame += (ETHERTYPE_IPV6 if packet[0] >> 4 == 6 else ETHERTYPE_IPV4) + packet
        else:
            ether_type = self._draw.choice((*ETHER_TYPES, self._draw.getrandbits(16)))
            frame += ether_type.to_bytes(2, "big") + self._draw.randbytes(self._draw.randint(0, 60))
        return FromPort(port, tagged(frame, vlan, self._draw.choice((0, 0, 7))))

    def _corrupted(self) -> Send:
        """Returns a packet of another kind with bytes flipped, inserted, removed or cut off."""
        kinds = (self._plain, self._options, self._extensions, self._fragments, self._link)
        sent = self._draw.choice(kinds)()
        assert isinstance(sent, FromPort)
        frame = bytearray(sent.frame)
        for _ in range(self._draw.choice((1, 1, 2, 4))):
            at = self._draw.randrange(12, min(len(frame), 120)) if len(frame) > 12 else 0
            how = self._draw.random()
            if how < 0.4:
                del frame[at:]
            elif how < 0.7:
                frame[at : at + 1] = self._draw.randbytes(1)
            elif how < 0.85:
                frame[at:at] = self._draw.randbytes(self._draw.randint(1, 8))
            else:
                del frame[at : at + self._draw.randint(1, 8)]
        return FromPort(sent.port, bytes(frame))

    def _noise(self) -> Send:
        """Returns random bytes, with an EtherType of IP."""
        first = self._draw.choice((b"", b"\x45\0", b"\x46\0", b"\x4f\0", b"\x60\0", b"\x60\0"))
        noise = first + self._draw.randbytes(self._draw.randint(1, 120))
        return self._arrives(noise, ipv6_type=self._draw.random() < 0.5)

    def _packet_out(self) -> Send:
        kinds = (
            self._plain,
            self._options,
            self._extensions,
            self._sizes,
            self._link,
            self._corrupted,
        )
        sent = self._draw.choice(kinds)()
        metadata: dict[str, Value] = {
            "kind": self._draw.choice((0, 1, 1, 2, 2, 2, 3, 3, 3, 4, 255)),
            "stage": self._draw.choice(STAGES),
            "origin": self._draw.choice((0, 0, 1, 2)),
            "egress_port": self._draw.choice((*PORTS, 0, 9, 509, 510, 511, 512, 513, 65535)),
            "egress_l3_if": self._draw.choice((0, 0, 1, 2, 3, 99)),
            "ingress_port": self._draw.choice((0, 1, 4, 510, 600)),
            "ingress_l3_if": self._draw.choice((0, 1, 2)),
            "vrf": self._draw.choice((0, 0, 0, 1, 300, 9)),
            "nexthop_id": self._draw.choice((0, 1, 2, 3, 4, 5, 999)),
        }
        return FromCpu(sent.frame, metadata)

    # --- parts of packets -----------------------------------------------------

    def _ip(self, ipv6: bool) -> bytes:
        return self._ipv6() if ipv6 else self._ipv4()

    def _ipv4(
        self,
        *,
        options: bytes = b"",
        payload: bytes | None = None,
        protocol: int | None = None,
        fragment: int = 0,
    ) -> bytes:
        drawn_protocol, drawn_payload = self._transport()
        return raw.ipv4(
            self._address(False),
            drawn_payload if payload is None else payload,
            src=self._address(False, routed=0.3),
            options=options,
            protocol=drawn_protocol if protocol is None else protocol,
            ttl=self._draw.choice(TTLS),
            fragment=fragment,
            checksum=None if self._draw.random() < 0.98 else self._draw.getrandbits(16),
        )

    def _ipv6(self, *, payload: bytes | None = None, next_header: int | None = None) -> bytes:
        drawn_protocol, drawn_payload = self._transport()
        if payload is None:
            payload, next_header = drawn_payload, drawn_protocol
        return raw.ipv6(
            self._address(True),
            payload,
            src=self._address(True, routed=0.3),
            next_header=raw.UDP if next_header is None else next_header,
            hop_limit=self._draw.choice(TTLS),
        )

    def _transport(self) -> tuple[int, bytes]:
        protocol = self._draw.choice(PROTOCOLS)
        ports = b"".join(self._draw.choice(PORTS_OF_PROTOCOLS).to_bytes(2, "big") for _ in range(2))
        if protocol in (1, 58):
            ports = bytes([self._draw.choice((128, 133, 134, 135, 136, 137, 138, 8)), 0, 0, 0])
        if protocol == raw.MOBILITY:
            ports = bytes([59, 0, self._draw.choice((0, 1, 5, 6, 255)), 0])
        long = (b"\0\x20\0\0" + bytes(24), bytes(16))
        rest = self._draw.choice((b"", b"\0\x14\0\0", *long, *long, *long))
        return protocol, ports + rest

    def _address(self, ipv6: bool, routed: float = 0.8) -> str:
        kind = self._draw.random()
        if kind < routed and self._prefixes[ipv6]:
            network = ipaddress.ip_network(self._draw.choice(self._prefixes[ipv6]))
            if network.prefixlen > 3:
                host = self._draw.getrandbits(network.max_prefixlen) & int(network.hostmask)
                base = network.network_address
                return str(base.__class__(int(base) | host))
        if kind < routed + 0.05:
            return self._draw.choice(ODD6 if ipv6 else ODD4)
        place = ipaddress.ip_address(self._draw.choice(PLACES6 if ipv6 else PLACES4))
        return str(place + self._draw.randint(1, 255))

    def _arrives(self, packet: bytes, ipv6_type: bool | None = None) -> FromPort:
        """Returns a frame that carries the packet to a random interface of the router.

        The frame of a multicast packet has a group MAC address.
        """
        port, vlan, mac = self._draw.choice(self._doors)
        is_ipv6 = packet[0] >> 4 == 6 if ipv6_type is None else ipv6_type
        if is_ipv6 and packet[24:25] == b"\xff":
            mac = "33:33:00:00:00:01"
        elif not is_ipv6 and packet[16:17] >= b"\xe0":
            mac = "01:00:5e:00:00:05"
        frame = mac_bytes(mac) + mac_bytes(HOST_MAC)
        frame += (ETHERTYPE_IPV6 if is_ipv6 else ETHERTYPE_IPV4) + packet
        return FromPort(port, tagged(frame, vlan, self._draw.choice((0, 0, 0, 5))))


def _fix_checksum(packet: bytearray) -> None:
    end = (packet[0] & 15) * 4
    if 20 <= end <= len(packet):
        packet[10:12] = b"\0\0"
        packet[10:12] = internet_checksum(bytes(packet[:end])).to_bytes(2, "big")


def _can_be_sent(sent: Send) -> bool:
    """Returns whether the frame can be sent.

    Linux sends no frame without a whole Ethernet header or with an incomplete VLAN tag. A frame in
    the sentinels' VLAN would be mistaken for a sentinel.
    """
    frame = sent.frame
    if frame[12:14] != ETHERTYPE_VLAN:
        return len(frame) >= 15
    return len(frame) >= 20 and int.from_bytes(frame[14:16], "big") & 0xFFF != SENTINEL_VLAN

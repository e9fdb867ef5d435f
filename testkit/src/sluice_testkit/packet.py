# SPDX-License-Identifier: Apache-2.0
"""Parses the parts of a captured frame that tests check.

Pure: takes bytes, returns a `Frame`. A capture has to accept every frame. So no frame is refused,
and fields that cannot be parsed keep their default values.
"""

import contextlib
import ipaddress
import struct
from dataclasses import dataclass

ETHERTYPE_IPV4, ETHERTYPE_ARP, ETHERTYPE_VLAN, ETHERTYPE_IPV6 = 0x0800, 0x0806, 0x8100, 0x86DD
ICMP, TCP, UDP, ICMPV6, OSPF = 1, 6, 17, 58, 89
_IPV6_EXTENSIONS = {0, 43, 44, 60}
_FRAGMENT = 44


@dataclass(frozen=True, slots=True)
class Frame:
    """Holds the parsed headers of one frame, with the frame's bytes as on the wire, including a
    VLAN tag.
    """

    time: float
    outgoing: bool
    data: bytes
    ethertype: int = 0
    vlan: int | None = None
    source: str = ""
    destination: str = ""
    protocol: int | None = None
    ttl: int | None = None
    source_port: int | None = None
    destination_port: int | None = None
    icmp_type: int | None = None
    icmp_code: int | None = None
    fragment_offset: int = 0
    more_fragments: bool = False

    @property
    def is_fragment(self) -> bool:
        """Returns whether the packet is a fragment."""
        return self.more_fragments or self.fragment_offset > 0

    @property
    def flow(self) -> tuple[str, str, int | None, int | None, int | None]:
        """Returns source, destination, protocol and both ports."""
        ports = self.source_port, self.destination_port
        return (self.source, self.destination, self.protocol, *ports)


def parse(data: bytes, time: float = 0.0, outgoing: bool = False) -> Frame:
    """Parses a frame up to the first header that is cut off or malformed."""
    found: dict[str, object] = {}
    with contextlib.suppress(struct.error, IndexError, ValueError):
        _ethernet(data, found)
    return Frame(time, outgoing, data, **found)  # type: ignore[arg-type]


def _ethernet(data: bytes, found: dict[str, object]) -> None:
    (ethertype,) = struct.unpack_from("!H", data, 12)
    offset = 14
    if ethertype == ETHERTYPE_VLAN:
        tag, ethertype = struct.unpack_from("!HH", data, 14)
        found["vlan"] = tag & 0xFFF
        offset = 18
    found["ethertype"] = ethertype
    if ethertype == ETHERTYPE_IPV4:
        _ipv4(data[offset:], found)
    elif ethertype == ETHERTYPE_IPV6:
        _ipv6(data[offset:], found)


def _ipv4(data: bytes, found: dict[str, object]) -> None:
    fragment, ttl, protocol = struct.unpack_from("!HBB", data, 6)
    found["source"] = str(ipaddress.IPv4Address(data[12:16]))
    found["destination"] = str(ipaddress.IPv4Address(data[16:20]))
    found["ttl"], found["protocol"] = ttl, protocol
    found["fragment_offset"] = (fragment & 0x1FFF) * 8
    found["more_fragments"] = bool(fragment & 0x2000)
    if not fragment & 0x1FFF:
        _transport(protocol, data[(data[0] & 0xF) * 4 :], found)


def _ipv6(data: bytes, found: dict[str, object]) -> None:
    following, hop_limit = struct.unpack_from("!BB", data, 6)
    found["source"] = str(ipaddress.IPv6Address(data[8:24]))
    found["destination"] = str(ipaddress.IPv6Address(data[24:40]))
    found["ttl"] = hop_limit
    offset = 40
    while following in _IPV6_EXTENSIONS:
        if following == _FRAGMENT:
            following, _, fragment = struct.unpack_from("!BBH", data, offset)
            found["fragment_offset"] = fragment & 0xFFF8
            found["more_fragments"] = bool(fragment & 1)
            offset += 8
            if fragment & 0xFFF8:
                found["protocol"] = following
                return
        else:
            following, length = struct.unpack_from("!BB", data, offset)
            offset += 8 * (length + 1)
    found["protocol"] = following
    _transport(following, data[offset:], found)


def _transport(protocol: int, data: bytes, found: dict[str, object]) -> None:
    if protocol in (TCP, UDP):
        found["source_port"], found["destination_port"] = struct.unpack_from("!HH", data, 0)
    elif protocol in (ICMP, ICMPV6):
        found["icmp_type"], found["icmp_code"] = struct.unpack_from("!BB", data, 0)

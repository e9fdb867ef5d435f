# SPDX-License-Identifier: Apache-2.0
"""Reads the description of a packet, such as `udp 10.1.0.10:5000 > 10.2.0.9:7000 in eth1`.

    PROTOCOL SOURCE[:PORT] > DESTINATION[:PORT] [KEYWORD VALUE]...

- PROTOCOL is a name (tcp, udp, icmp, ...) or a number from 0 to 255.
- An IPv6 address with a port is in brackets: `[2001:db8::1]:443`.
- `in IFACE` is the interface on which the packet arrives. Without `in`, the packet is sent by this
  router itself.
- `vrf NAME` is the VRF of a packet that this router sends.
- `type TYPE` or `type TYPE/CODE` gives the ICMP type and code; the default is an echo request. For
  mobility, `type TYPE` gives the message type; the default is 0.
- `ttl N` is the TTL or hop limit (default 64), `label N` the IPv6 flow label.

Depends on flow_trace, which builds the packet.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.flow_trace import TTL, Flow, FlowError, IcmpType, packet_of
from sluice.model import Address, parse_address
from sluice.policy.model import ICMP_PROTOCOLS, MOBILITY, PORT_PROTOCOLS, PROTOCOLS

FORM = "PROTOCOL SOURCE[:PORT] > DESTINATION[:PORT] [in IFACE] [vrf NAME] [type T/C] [ttl N]"
_KEYWORDS = ("in", "vrf", "type", "ttl", "label")


class PacketTextError(ValueError):
    """Reports an error in the description of a packet."""


@dataclass(frozen=True, slots=True)
class DescribedPacket:
    """Holds a packet, and the interface or VRF by which it enters the router.

    `packet` is the IP packet. `interface` is None for a packet that this router sends. `vrf` is the
    VRF's name, or None for the default.
    """

    packet: bytes
    interface: str | None
    vrf: str | None


def parse_packet(text: str) -> DescribedPacket:
    """Parses a description and builds the packet. Raises PacketTextError."""
    words = text.replace(">", " > ").split()
    if len(words) < 4 or words[2] != ">":
        raise PacketTextError(f"{text!r} is no packet: write {FORM}")
    options = _options(words[4:])
    protocol = _protocol(words[0])
    with_ports = protocol in PORT_PROTOCOLS
    source, source_port = _end(words[1], with_ports=with_ports)
    destination, destination_port = _end(words[3], with_ports=with_ports)
    ports = None
    if source_port is not None and destination_port is not None:
        ports = source_port, destination_port
    if "vrf" in options and "in" in options:
        raise PacketTextError("vrf: the interface decides the VRF; leave out one of `in` and `vrf`")
    icmp, mobility_type = None, 0
    if "type" in options:
        if protocol in ICMP_PROTOCOLS:
            icmp = _icmp(options["type"])
        elif protocol == MOBILITY:
            mobility_type = _number("type", options["type"], 255)
        else:
            raise PacketTextError("type: only icmp, icmpv6 and mobility have a type")
    label = _number("label", options.get("label", "0"), (1 << 20) - 1)
    try:
        flow = Flow(source, destination, protocol, ports, label)
    except FlowError as error:
        raise PacketTextError(str(error)) from None
    ttl = _number("ttl", options.get("ttl", str(TTL)), 255)
    packet = packet_of(flow, ttl, icmp, mobility_type)
    return DescribedPacket(packet, options.get("in"), options.get("vrf"))


def _options(words: list[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for at in range(0, len(words), 2):
        keyword = words[at]
        if keyword not in _KEYWORDS:
            raise PacketTextError(f"{keyword!r} is no keyword; there is: {', '.join(_KEYWORDS)}")
        if keyword in options:
            raise PacketTextError(f"{keyword}: is written twice")
        if at + 1 == len(words):
            raise PacketTextError(f"{keyword}: a value is missing")
        options[keyword] = words[at + 1]
    return options


def _protocol(text: str) -> int:
    known = PROTOCOLS.get(text.lower())
    if known is not None:
        return known
    if text.isascii() and text.isdigit():
        return _number("protocol", text, 255)
    raise PacketTextError(f"{text!r} is no protocol: a number, or one of {', '.join(PROTOCOLS)}")


def _end(text: str, *, with_ports: bool) -> tuple[Address, int | None]:
    """Parses an address, with a port if the protocol has ports."""
    host, port = text, None
    if with_ports:
        host, colon, port = text.rpartition(":")
        bare_ipv6 = ":" in host and not (host.startswith("[") and host.endswith("]"))
        if not colon or bare_ipv6:
            example = "[2001:db8::1]:443" if ":" in text else "10.1.0.10:443"
            raise PacketTextError(f"{text!r}: this protocol has ports; write it like {example}")
    try:
        address = parse_address(host.removeprefix("[").removesuffix("]"))
    except ValueError:
        raise PacketTextError(f"{host!r} is no IPv4 or IPv6 address") from None
    return address, None if port is None else _number("port", port, 0xFFFF)


def _icmp(text: str) -> IcmpType:
    kind, slash, code = text.partition("/")
    return IcmpType(_number("type", kind, 255), _number("code", code, 255) if slash else 0)


def _number(name: str, text: str, most: int) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10) or int(text) > most:
        raise PacketTextError(f"{name}: {text!r} is no number from 0 to {most}")
    return int(text)

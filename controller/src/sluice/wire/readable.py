# SPDX-License-Identifier: Apache-2.0
"""Describes a frame for operators, as far as it can be decoded. Never raises an error.

For logs only. Policy uses `selectors`, which refuses inconsistent frames.
Depends on packet.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeAlias

from sluice.model import format_address, format_mac
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    ETHERTYPE_IPV4,
    ETHERTYPE_IPV6,
    ICMP,
    ICMPV6,
    IPV4_HEADER,
    IPV6_HEADER,
    MOBILITY,
    TCP,
    UDP,
    ipv6_upper_layer,
    parse_ethernet,
    parse_ipv4,
    parse_ipv6,
)

Fields: TypeAlias = dict[str, str | int]

ETHERTYPE_SHIM = 0x88B5
SHIM_HEADER = 14
"""Size of the engine's shim after the Ethernet header. Its last two bytes are the next
EtherType."""
ESP, AH, SCTP = 50, 51, 132
NAT_T_PORT = 4500

_U16, _U32, _PORTS = Struct("!H"), Struct("!I"), Struct("!HH")


def readable(frame: bytes) -> Fields:
    """Returns the fields of a frame that could be decoded.

    The fields are `source_mac`, `ethertype` (if not IP), `source`, `destination`, `protocol`,
    `spi`, `source_port`, `destination_port`, `icmp`, `mobility_type` and `fragment_offset` (bytes).
    `unreadable` names the error that stopped the decoding.
    """
    shown: Fields = {}
    try:
        _read_frame(frame, shown)
    except WireError as error:
        shown["unreadable"] = error.name
    return shown


def _read_frame(frame: bytes, shown: Fields) -> None:
    header = parse_ethernet(frame)
    shown["source_mac"] = format_mac(header.source)
    ethertype, packet = header.ethertype, frame[header.payload_offset :]
    if ethertype == ETHERTYPE_SHIM:
        if len(packet) < SHIM_HEADER:
            raise WireError("shim_truncated", header.payload_offset, f"{len(packet)} bytes of 14")
        (ethertype,) = _U16.unpack_from(packet, SHIM_HEADER - 2)
        packet = packet[SHIM_HEADER:]
    if ethertype == ETHERTYPE_IPV4:
        _read_ipv4(packet, shown)
    elif ethertype == ETHERTYPE_IPV6:
        _read_ipv6(packet, shown)
    else:
        shown["ethertype"] = f"0x{ethertype:04x}"


def _read_ipv4(packet: bytes, shown: Fields) -> None:
    if len(packet) >= IPV4_HEADER:
        shown["source"] = format_address(packet[12:16])
        shown["destination"] = format_address(packet[16:20])
        shown["protocol"] = packet[9]
    header = parse_ipv4(packet)
    if header.fragment_offset:
        shown["fragment_offset"] = header.fragment_offset
    else:
        payload = packet[header.header_length : header.total_length]
        _read_transport(header.protocol, payload, shown)


def _read_ipv6(packet: bytes, shown: Fields) -> None:
    if len(packet) >= IPV6_HEADER:
        shown["source"] = format_address(packet[8:24])
        shown["destination"] = format_address(packet[24:40])
    header = parse_ipv6(packet)
    upper = ipv6_upper_layer(packet, skip_mobility=False)
    shown["protocol"] = upper.protocol
    if upper.fragment_offset:
        shown["fragment_offset"] = upper.fragment_offset
    else:
        payload = packet[upper.offset : IPV6_HEADER + header.payload_length]
        _read_transport(upper.protocol, payload, shown)


def _read_transport(protocol: int, payload: bytes, shown: Fields) -> None:
    if len(payload) < 4:
        return
    if protocol in (TCP, UDP, SCTP):
        ports = _PORTS.unpack_from(payload)
        shown["source_port"], shown["destination_port"] = ports
        if protocol == UDP and NAT_T_PORT in ports and len(payload) >= 12:
            _read_spi(payload[8:], shown)
    elif protocol in (ICMP, ICMPV6):
        shown["icmp"] = f"{payload[0]}/{payload[1]}"
    elif protocol == MOBILITY:
        shown["mobility_type"] = payload[2]
    elif protocol == ESP:
        _read_spi(payload, shown)
    elif protocol == AH and len(payload) >= 8:
        _read_spi(payload[4:], shown)


def _read_spi(payload: bytes, shown: Fields) -> None:
    (spi,) = _U32.unpack_from(payload)
    if spi:  # zero is not an SPI; on port 4500 it marks IKE (RFC 3948)
        shown["spi"] = spi

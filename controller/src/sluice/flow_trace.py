# SPDX-License-Identifier: Apache-2.0
"""Finds the route, group and next hop of a flow by a dry run of one packet in the switch.

The switch runs its own program on its own tables, so it selects the same group member as for a real
packet. In a dry run, it sends and counts nothing. The packet enters the pipeline like a packet that
this router sends. So neither admission nor inbound policy applies to it, but it is routed like any
other packet. Only sluice-switch supports dry runs. Depends on model, policy.model, p4, p4runtime
and wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sluice.model import Address
from sluice.p4.packets import PacketSchema
from sluice.p4runtime.session import Session, TraceStep
from sluice.policy.model import MOBILITY, PORT_PROTOCOLS
from sluice.wire.packet import (
    ICMP,
    ICMPV6,
    TCP,
    UDP,
    IPv4,
    IPv6,
    build_ipv4,
    build_ipv6,
    internet_checksum,
    local_frame,
    pseudo_header,
)

TTL = 64
ECHO_REQUEST = {ICMP: 8, ICMPV6: 128}
NO_NEXT_HEADER = 59
TCP_HEADER, PORT_HEADER = 20, 8
"""Sizes in bytes. PORT_HEADER is the size of a UDP header; it also suffices for other headers that
begin with ports."""


class FlowError(ValueError):
    """Reports invalid fields of a flow."""


@dataclass(frozen=True)
class Flow:
    """Holds the header fields that identify a flow. Raises FlowError."""

    source: Address
    destination: Address
    protocol: int
    ports: tuple[int, int] | None = None
    """Source and destination port if the protocol has ports, else None."""
    flow_label: int = 0
    """IPv6 flow label."""

    def __post_init__(self) -> None:
        if len(self.source) != len(self.destination):
            raise FlowError("source and destination must be of the same IP version")
        if not 0 <= self.protocol <= 255:
            raise FlowError(f"protocol {self.protocol} is not between 0 and 255")
        with_ports = self.protocol in PORT_PROTOCOLS
        if with_ports and self.ports is None:
            raise FlowError("this protocol has ports; give a source port and a destination port")
        if self.ports is not None and not with_ports:
            raise FlowError("this protocol has no ports; leave them out")
        if self.ports is not None and not all(0 <= port <= 0xFFFF for port in self.ports):
            raise FlowError("ports are between 0 and 65535")
        if not 0 <= self.flow_label < 1 << 20:
            raise FlowError("flow labels are between 0 and 1048575")
        if self.flow_label and len(self.source) == 4:
            raise FlowError("IPv4 has no flow labels; leave the flow label out")


class IcmpType(NamedTuple):
    """Type and code of an ICMP or ICMPv6 message."""

    type: int
    code: int


class TracedPath(NamedTuple):
    """Describes the path of a packet through the switch.

    `group` is None if the packet used no group. `nexthop` is None if the packet used no next hop.
    """

    matched: bool
    """Whether a route matched."""
    group: int | None
    nexthop: int | None


def packet_of(
    flow: Flow, ttl: int = TTL, icmp: IcmpType | None = None, mobility_type: int = 0
) -> bytes:
    """Returns an IP packet of the flow. Without `icmp`, an ICMP packet is an echo request.

    `mobility_type` is the type of a mobility message.
    """
    payload = _mobility(flow, mobility_type) if flow.protocol == MOBILITY else _payload(flow, icmp)
    if len(flow.source) == 16:
        six = IPv6(0, flow.flow_label, 0, flow.protocol, ttl, flow.source, flow.destination)
        return build_ipv6(six, payload)
    four = IPv4(
        header_length=20,
        tos=0,
        total_length=20 + len(payload),
        identification=0,
        dont_fragment=False,
        more_fragments=False,
        fragment_offset=0,
        ttl=ttl,
        protocol=flow.protocol,
        source=flow.source,
        destination=flow.destination,
        options=b"",
    )
    return build_ipv4(four, payload)


def _mobility(flow: Flow, kind: int) -> bytes:
    """Returns a mobility message without data (RFC 6275, 6.1.1)."""
    message = bytes([NO_NEXT_HEADER, 0, kind, 0, 0, 0, 0, 0])
    head = b""
    if len(flow.source) == 16:
        head = pseudo_header(flow.source, flow.destination, len(message), MOBILITY)
    return message[:4] + internet_checksum(head + message).to_bytes(2, "big") + message[6:]


def _payload(flow: Flow, icmp: IcmpType | None) -> bytes:
    kind = ECHO_REQUEST.get(flow.protocol)
    if kind is not None:
        message = icmp or IcmpType(kind, 0)
        echo = bytes([*message, 0, 0, 0, 0, 0, 0])
        head = b""
        if flow.protocol == ICMPV6 and len(flow.source) == 16:
            head = pseudo_header(flow.source, flow.destination, len(echo), ICMPV6)
        return echo[:2] + internet_checksum(head + echo).to_bytes(2, "big") + echo[4:]
    if flow.ports is None:
        return bytes(PORT_HEADER)
    ports = b"".join(port.to_bytes(2, "big") for port in flow.ports)
    if flow.protocol == TCP:  # a SYN
        return ports + bytes(8) + b"\x50\x02" + bytes(TCP_HEADER - 14)
    length = PORT_HEADER if flow.protocol == UDP else 0
    return ports + length.to_bytes(2, "big") + bytes(2)


async def trace(
    session: Session, packets: PacketSchema, cpu_port: int, vrf: int, flow: Flow
) -> TracedPath | None:
    """Returns the path of a packet of `flow` in a VRF, given by its number.

    Returns None if the target does not support dry runs. Raises P4RuntimeError.
    """
    metadata = packets.local_origin(egress_l3_if=0, vrf=vrf)
    packet = packets.to_bytes(metadata) + local_frame(packet_of(flow))
    steps = await session.dry_run(cpu_port, packet)
    return None if steps is None else path_in(steps)


def path_in(steps: list[TraceStep]) -> TracedPath:
    """Extracts the path from the steps that the switch reports."""
    matched, group, nexthop = False, None, None
    for step in steps:
        if step.kind != "table":
            continue
        table = step.name.rpartition(".")[2]
        if table in ("ipv4_fib", "ipv6_fib"):
            matched = step.details.get("result") == "hit"
        elif table == "nexthop_group":
            group = _number(step, "group")
        elif table == "nexthop":
            nexthop = _number(step, "key.nexthop_id")
    return TracedPath(matched, group, nexthop or None)


def _number(step: TraceStep, name: str) -> int | None:
    text = step.details.get(name)
    return None if text is None else int(text, 0)

# SPDX-License-Identifier: Apache-2.0
"""Tests the packet that a dry run sends through the switch to find the path of a flow.

Also tests how the path is read from the switch's trace.
"""

from __future__ import annotations

import pytest

from fake_switch import PIPELINE
from sluice.flow_trace import Flow, FlowError, TracedPath, packet_of, path_in
from sluice.model import parse_address
from sluice.p4.packets import PACKET_OUT, PacketSchema
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4runtime.session import TraceStep
from sluice.wire.packet import (
    ICMP,
    ICMPV6,
    TCP,
    UDP,
    internet_checksum,
    parse_ipv4,
    parse_ipv6,
    pseudo_header,
)

FOUR = (parse_address("10.0.0.1"), parse_address("192.0.2.1"))
SIX = (parse_address("2001:db8::1"), parse_address("2001:db8:2::1"))


@pytest.mark.parametrize("ends", [FOUR, SIX])
@pytest.mark.parametrize(
    ("protocol", "ports"),
    [
        (TCP, (40000, 443)),
        (UDP, (0, 65535)),
        (132, (1, 2)),
        (ICMP, None),
        (ICMPV6, None),
        (47, None),
    ],
)
def test_a_packet_is_of_its_flow(
    ends: tuple[bytes, bytes], protocol: int, ports: tuple[int, int] | None
) -> None:
    label = 0xABCDE if len(ends[0]) == 16 else 0
    packet = packet_of(Flow(*ends, protocol, ports, label))
    if len(ends[0]) == 4:
        header = parse_ipv4(packet)
        assert internet_checksum(packet[:20]) == 0
        assert (header.source, header.destination, header.protocol) == (*ends, protocol)
        payload = packet[20:]
    else:
        six = parse_ipv6(packet)
        assert (six.source, six.destination, six.next_header) == (*ends, protocol)
        assert six.flow_label == label
        payload = packet[40:]
    if ports is not None:
        assert payload[:4] == b"".join(port.to_bytes(2, "big") for port in ports)
    if protocol == ICMP:
        assert payload[0] == 8
        assert internet_checksum(payload) == 0
    if protocol == ICMPV6 and len(ends[0]) == 16:
        head = pseudo_header(*ends, len(payload), ICMPV6)
        assert payload[0] == 128
        assert internet_checksum(head + payload) == 0


@pytest.mark.parametrize(
    ("flow", "why"),
    [
        ((FOUR[0], SIX[1], TCP, (1, 2)), "same IP version"),
        ((*FOUR, 256), "between 0 and 255"),
        ((*FOUR, TCP), "has ports"),
        ((*FOUR, ICMP, (1, 2)), "no ports"),
        ((*FOUR, UDP, (1, 65536)), "0 and 65535"),
        ((*SIX, UDP, (1, 2), 1 << 20), "flow labels"),
        ((*FOUR, UDP, (1, 2), 1), "IPv4 has no flow labels"),
    ],
)
def test_no_such_flow(flow: tuple[object, ...], why: str) -> None:
    with pytest.raises(FlowError, match=why):
        Flow(*flow)  # type: ignore[arg-type]


def test_metadata_become_the_header_that_the_pipeline_reads() -> None:
    packets = PacketSchema(Schema(load_pipeline(PIPELINE).p4info))
    metadata = packets.local_origin(egress_l3_if=0, vrf=0x1234)
    header = packets.to_bytes(metadata)
    widths = [width for _, width in packets.packet_out]
    assert len(header) * 8 == sum(widths)
    value = int.from_bytes(header, "big")
    fields = []
    for width in reversed(widths):
        fields.append(value & (1 << width) - 1)
        value >>= width
    assert tuple(reversed(fields)) == metadata
    assert dict(zip(PACKET_OUT, metadata, strict=True))["vrf"] == 0x1234


def table(name: str, **details: str) -> TraceStep:
    return TraceStep("table", f"v1model_ingress.router.{name}", details)


def test_the_way_is_read_from_the_steps() -> None:
    group = table("routing.multipath.nexthop_group", group="7", nexthop_id="0x1f")
    nexthop = TraceStep("table", "v1model_ingress.router.r.nexthop", {"key.nexthop_id": "0x1f"})
    hit, miss = (
        table("routing.fib.ipv4_fib", result="hit"),
        table("routing.fib.ipv6_fib", result="miss"),
    )
    other = TraceStep("extern", "hash", {"value": "0x9"})
    assert path_in([hit, other, group, nexthop]) == TracedPath(True, 7, 31)
    assert path_in([hit, nexthop]) == TracedPath(True, None, 31)
    assert path_in([miss]) == TracedPath(False, None, None)
    dead = TraceStep("table", "v1model_ingress.router.r.nexthop", {"key.nexthop_id": "0x0"})
    assert path_in([hit, group, dead]) == TracedPath(True, 7, None)
    assert path_in([]) == TracedPath(False, None, None)

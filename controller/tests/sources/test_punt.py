# SPDX-License-Identifier: Apache-2.0
"""Tests that the queue of punted packets is bounded, and fair between ports, punt reasons and
flows.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from packets import ethernet, ipv4, ipv6
from sluice.sources.punt import LANES, METADATA_FIELDS, PuntQueue, flow_of

ARP, LOCAL = 1, 6


def punt(frame: bytes, port: int, reason: int) -> tuple[bytes, tuple[int, ...]]:
    metadata = [0] * METADATA_FIELDS
    metadata[0], metadata[5] = port, reason
    return frame, tuple(metadata)


def test_a_packet_comes_out_as_it_went_in() -> None:
    queue = PuntQueue(10)
    queue.offer([(b"frame", tuple(range(1, METADATA_FIELDS + 1)))])
    (packet,) = queue.take(10)
    assert packet.frame == b"frame"
    assert (packet.ingress_port, packet.reason, packet.inbound_generation) == (
        1,
        6,
        METADATA_FIELDS,
    )
    assert len(queue) == 0


def test_ports_and_reasons_take_turns() -> None:
    queue = PuntQueue(400)
    queue.offer([punt(b"flood", 1, LOCAL)] * 10 + [punt(b"arp", 1, ARP), punt(b"other", 2, LOCAL)])
    assert [packet.frame for packet in queue.take(4)] == [b"flood", b"arp", b"other", b"flood"]
    assert [packet.frame for packet in queue.take(100)] == [b"flood"] * 8


def test_order_within_a_port_and_reason_is_kept() -> None:
    queue = PuntQueue(400)
    queue.offer([punt(bytes([i]), 1, LOCAL) for i in range(10)])
    assert [packet.frame[0] for packet in queue.take(100)] == list(range(10))


def test_a_flood_fills_its_own_share_only() -> None:
    queue = PuntQueue(limit=160, limit_each=40)
    offered = queue.offer([punt(udp(port), 1, LOCAL) for port in range(500)])
    assert offered == 40
    assert queue.offer([punt(b"arp", 1, ARP)]) == 1
    assert queue.dropped == {LOCAL: 460}


def udp(source_port: int, vlan: int | None = None, version: int = 4, ident: int = 0) -> bytes:
    payload = source_port.to_bytes(2, "big") + bytes(10)
    if version == 6:
        return ethernet(ipv6("2001:db8::1", "2001:db8::2", payload), vlan)
    packet = ipv4("10.0.0.1", "10.0.0.2", payload)
    return ethernet(packet[:4] + ident.to_bytes(2, "big") + packet[6:], vlan)


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("vlan", [None, 5])
def test_a_flow_is_what_has_the_same_addresses_and_ports(version: int, vlan: int | None) -> None:
    flow = flow_of(udp(7, vlan, version))
    assert flow == flow_of(udp(7, vlan, version, ident=99))
    assert flow != flow_of(udp(8, vlan, version))
    assert len(flow) == {4: 12, 6: 36}[version]
    assert flow_of(b"\0" * 14) == flow_of(b"") == b""


def test_a_flow_that_floods_leaves_the_other_lanes_alone() -> None:
    flood, others = udp(0), [udp(port) for port in range(1, 200)]
    lane = hash(flow_of(flood)) % LANES
    other = next(one for one in others if hash(flow_of(one)) % LANES != lane)
    queue = PuntQueue(limit=1000, limit_each=40)
    assert queue.offer([punt(flood, 1, LOCAL)] * 100) == 10
    assert queue.offer([punt(other, 1, LOCAL)] * 2) == 2
    assert [packet.frame for packet in queue.take(4)] == [flood, other, flood, other]
    assert queue.dropped == {LOCAL: 90}


def test_many_flows_of_one_interface_are_not_many_turns() -> None:
    queue = PuntQueue(1000)
    queue.offer([punt(udp(port), 1, LOCAL) for port in range(40)])
    queue.offer([punt(b"other", 2, LOCAL)] * 2)
    assert [packet.frame == b"other" for packet in queue.take(4)] == [False, True, False, True]


def test_a_flow_keeps_its_order() -> None:
    queue = PuntQueue(1000)
    queue.offer([punt(udp(7, ident=i), 1, LOCAL) for i in range(9)])
    assert [packet.frame for packet in queue.take(9)] == [udp(7, ident=i) for i in range(9)]


def test_the_whole_is_bounded() -> None:
    queue = PuntQueue(limit=4, limit_each=4)
    assert queue.offer([punt(b"x", port, ARP) for port in range(10)]) == 4
    assert queue.dropped == {ARP: 6}


def test_metadata_of_another_pipeline_is_refused() -> None:
    queue = PuntQueue(4)
    assert queue.offer([(b"frame", (1, 2, 3))]) == 0
    assert queue.counters == {"punt_metadata_mismatch": 1}


@given(
    st.lists(
        st.one_of(
            st.lists(st.tuples(st.integers(1, 4), st.sampled_from([ARP, LOCAL])), max_size=20),
            st.integers(1, 10),
        )
    )
)
def test_nothing_is_lost_without_being_counted(steps: list[list[tuple[int, int]] | int]) -> None:
    queue = PuntQueue(limit=8, limit_each=3)
    offered = taken = 0
    for step in steps:
        if isinstance(step, int):
            taken += len(queue.take(step))
        else:
            offered += len(step)
            queue.offer([punt(b"x", port, reason) for port, reason in step])
        assert len(queue) <= 8
        assert offered == taken + len(queue) + queue.dropped.total()

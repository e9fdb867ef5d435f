# SPDX-License-Identifier: Apache-2.0
"""Tests that the queue of punted packets is bounded, and fair between ports, punt reasons, sources
and flows.

The tests run with the specification in Python and with the queue in native code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fake_switch import PIPELINE
from packets import ethernet, ipv4, ipv6
from sluice.model import PuntedPacket
from sluice.native_punts import NativePunts
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Schema, load_pipeline
from sluice.sources.punt import METADATA_FIELDS, PuntQueue, flow_of, source_of

SCHEMA = PacketSchema(Schema(load_pipeline(PIPELINE).p4info))
REASONS = {reason.value: number for number, reason in SCHEMA.reasons.items()}
ARP, LOCAL = REASONS["ARP"], REASONS["LOCAL"]
Make = Callable[..., PuntQueue | NativePunts]


def native(limit: int, limit_each: int | None = None) -> NativePunts:
    return NativePunts(SCHEMA, limit, limit_each)


@pytest.fixture(params=[PuntQueue, native], ids=["Python", "native"])
def make(request: pytest.FixtureRequest) -> Make:
    made: Make = request.param
    return made


def punt(frame: bytes, port: int, reason: int) -> tuple[bytes, tuple[int, ...]]:
    metadata = [0] * METADATA_FIELDS
    metadata[0], metadata[5] = port, reason
    return frame, tuple(metadata)


def udp(
    source_port: int, vlan: int | None = None, version: int = 4, ident: int = 0, host: int = 1
) -> bytes:
    payload = source_port.to_bytes(2, "big") + bytes(10)
    if version == 6:
        return ethernet(ipv6(f"2001:db8::{host}", "2001:db8::99", payload), vlan)
    packet = ipv4(f"10.0.0.{host}", "10.0.0.99", payload)
    return ethernet(packet[:4] + ident.to_bytes(2, "big") + packet[6:], vlan)


def frames(queue: PuntQueue | NativePunts, limit: int = 1000) -> list[bytes]:
    taken: Sequence[Any] = queue.take(limit)
    assert all(type(packet) is PuntedPacket for packet in taken)
    return [packet.frame for packet in taken]


def test_a_packet_comes_out_as_it_went_in(make: Make) -> None:
    queue = make(10)
    queue.offer([(b"frame", tuple(range(101, METADATA_FIELDS + 101)))])
    (packet,) = queue.take(10)
    assert packet == PuntedPacket(b"frame", *range(101, METADATA_FIELDS + 101))
    assert len(queue) == 0


def test_ports_and_reasons_take_turns(make: Make) -> None:
    queue = make(400)
    queue.offer([punt(b"flood", 1, LOCAL)] * 10 + [punt(b"arp", 1, ARP), punt(b"other", 2, LOCAL)])
    assert frames(queue, 4) == [b"flood", b"arp", b"other", b"flood"]
    assert frames(queue) == [b"flood"] * 8


def test_order_within_a_port_and_reason_is_kept(make: Make) -> None:
    queue = make(400)
    queue.offer([punt(bytes([i]), 1, LOCAL) for i in range(10)])
    assert [frame[0] for frame in frames(queue)] == list(range(10))


def test_a_flood_fills_its_own_share_only(make: Make) -> None:
    queue = make(limit=160, limit_each=40)
    offered = queue.offer([punt(udp(port), 1, LOCAL) for port in range(500)])
    assert offered == 40
    assert queue.offer([punt(b"arp", 1, ARP)]) == 1
    assert queue.dropped == {LOCAL: 460}


@pytest.mark.parametrize("version", [4, 6])
@pytest.mark.parametrize("vlan", [None, 5])
def test_a_flow_is_what_has_the_same_addresses_and_ports(version: int, vlan: int | None) -> None:
    flow = flow_of(udp(7, vlan, version))
    assert flow == flow_of(udp(7, vlan, version, ident=99))
    assert flow != flow_of(udp(8, vlan, version))
    assert source_of(flow) == source_of(flow_of(udp(8, vlan, version)))
    assert source_of(flow) != source_of(flow_of(udp(7, vlan, version, host=2)))
    assert len(flow) == {4: 12, 6: 36}[version]
    assert len(source_of(flow)) == {4: 4, 6: 16}[version]
    assert flow_of(b"\0" * 14) == flow_of(b"") == b""


@pytest.mark.parametrize("version", [4, 6])
def test_a_host_that_opens_many_flows_delays_no_other_host(make: Make, version: int) -> None:
    queue = make(limit=8000, limit_each=40)
    queue.offer([punt(udp(port, version=version), 1, LOCAL) for port in range(3000)])
    others = [udp(1, version=version, host=host) for host in range(2, 22)]
    assert queue.offer([punt(frame, 1, LOCAL) for frame in others]) == len(others)
    assert len(queue) == 40
    assert set(frames(queue, 21)) == {udp(0, version=version), *others}
    assert queue.dropped == {LOCAL: 3000 - 20}


def test_a_flow_that_floods_delays_no_other_flow_of_its_host(make: Make) -> None:
    queue = make(limit=1000, limit_each=40)
    assert queue.offer([punt(udp(0), 1, LOCAL)] * 100) == 40
    assert queue.offer([punt(udp(1), 1, LOCAL)] * 2) == 2
    assert frames(queue, 4) == [udp(0), udp(1), udp(0), udp(1)]
    assert queue.dropped == {LOCAL: 62}


def test_many_flows_of_one_interface_are_not_many_turns(make: Make) -> None:
    queue = make(1000)
    queue.offer([punt(udp(port), 1, LOCAL) for port in range(40)])
    queue.offer([punt(b"other", 2, LOCAL)] * 2)
    assert [frame == b"other" for frame in frames(queue, 4)] == [False, True, False, True]


def test_a_flow_keeps_its_order(make: Make) -> None:
    queue = make(1000)
    queue.offer([punt(udp(7, ident=i), 1, LOCAL) for i in range(9)])
    assert frames(queue, 9) == [udp(7, ident=i) for i in range(9)]


def test_the_whole_is_bounded(make: Make) -> None:
    queue = make(limit=4, limit_each=4)
    assert queue.offer([punt(b"x", port, ARP) for port in range(10)]) == 4
    assert queue.dropped == {ARP: 6}


def test_in_a_full_queue_the_longest_share_makes_room(make: Make) -> None:
    queue = make(limit=4, limit_each=4)
    queue.offer([punt(b"x", 1, ARP)] * 4)
    assert queue.offer([punt(b"y", 2, LOCAL)]) == 1
    assert frames(queue) == [b"x", b"y", b"x", b"x"]
    assert queue.dropped == {ARP: 1}


def test_lower_limits_apply_from_the_next_packet_on(make: Make) -> None:
    queue = make(limit=8, limit_each=8)
    queue.offer([punt(b"x", 1, ARP)] * 8)
    queue.set_limit(4, 4)
    assert len(queue) == 8
    assert queue.offer([punt(b"x", 1, ARP)]) == 0


def test_metadata_of_another_pipeline_is_refused(make: Make) -> None:
    queue = make(4)
    assert queue.offer([(b"frame", (1, 2, 3))]) == 0
    assert len(queue) == 0


steps = st.lists(
    st.one_of(
        st.lists(
            st.tuples(
                st.integers(1, 3),
                st.sampled_from([ARP, LOCAL]),
                st.integers(1, 3),
                st.integers(0, 2),
            ),
            max_size=20,
        ),
        st.integers(1, 10),
    )
)


@given(steps)
def test_nothing_is_lost_without_being_counted_and_both_queues_agree(
    steps: list[list[tuple[int, int, int, int]] | int],
) -> None:
    python, native = PuntQueue(limit=8, limit_each=4), NativePunts(SCHEMA, 8, 4)
    offered = taken = number = 0
    for step in steps:
        if isinstance(step, int):
            found = python.take(step)
            assert native.take(step) == found
            taken += len(found)
        else:
            for port, reason, host, flow in step:
                number += 1
                packet = punt(udp(flow, ident=number, host=host), port, reason)
                assert python.offer([packet]) == native.offer([packet])
            offered += len(step)
        assert len(python) == len(native) <= 8
        assert python.dropped == native.dropped
        assert offered == taken + len(python) + python.dropped.total()
    assert native.take(100) == python.take(100)

# SPDX-License-Identifier: Apache-2.0
"""The punt queue: bounded, and fair between ports and reasons."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.sources.punt import METADATA_FIELDS, PuntQueue

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
    assert (packet.ingress_port, packet.reason, packet.inbound_generation) == (1, 6, 13)
    assert len(queue) == 0


def test_ports_and_reasons_take_turns() -> None:
    queue = PuntQueue(100)
    queue.offer([punt(b"flood", 1, LOCAL)] * 10 + [punt(b"arp", 1, ARP), punt(b"other", 2, LOCAL)])
    assert [packet.frame for packet in queue.take(4)] == [b"flood", b"arp", b"other", b"flood"]
    assert [packet.frame for packet in queue.take(100)] == [b"flood"] * 8


def test_order_within_a_port_and_reason_is_kept() -> None:
    queue = PuntQueue(100)
    queue.offer([punt(bytes([i]), 1, LOCAL) for i in range(10)])
    assert [packet.frame[0] for packet in queue.take(100)] == list(range(10))


def test_a_flood_fills_its_own_share_only() -> None:
    queue = PuntQueue(limit=16, limit_each=4)
    assert queue.offer([punt(b"flood", 1, LOCAL)] * 10) == 4
    assert queue.offer([punt(b"arp", 1, ARP)]) == 1
    assert queue.dropped == {LOCAL: 6}


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

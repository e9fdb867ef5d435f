# SPDX-License-Identifier: Apache-2.0
"""Tests packets that are held until a neighbour is resolved. Their number is limited per neighbour
and in total, and each held packet is returned once."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.held_packets import HeldPackets
from sluice.model import PuntedPacket
from sluice.state.nexthops import Path

A, B, C = (Path(1, bytes([10, 0, 0, n])) for n in (1, 2, 3))


def packet(number: int) -> PuntedPacket:
    return PuntedPacket(bytes([number]), *([0] * (len(PuntedPacket._fields) - 1)))


def test_few_for_each_and_bounded_in_all() -> None:
    held = HeldPackets(per_neighbor=2, total=3, seconds=3)
    assert held.hold(A, packet(1), 0)
    assert held.hold(A, packet(2), 0)
    assert not held.hold(A, packet(3), 0)
    assert held.hold(B, packet(4), 0)
    assert not held.hold(C, packet(5), 0)
    assert C not in held
    assert held.release(A) == [packet(1), packet(2)]
    assert held.release(A) == []
    assert held.hold(C, packet(6), 0)
    assert held.counters["dropped: too many for one neighbour"] == 1
    assert held.counters["dropped: too many in all"] == 1


def test_who_waits_too_long_is_given_back() -> None:
    held = HeldPackets(per_neighbor=5, total=10, seconds=3)
    held.hold(A, packet(1), 0)
    held.hold(B, packet(2), 1)
    held.hold(A, packet(3), 2)
    deadlines = [held.next_deadline]
    assert held.expired(2.9) == {}
    assert held.expired(3) == {A: [packet(1), packet(3)]}
    deadlines.append(held.next_deadline)
    assert held.fail(B) == [packet(2)]
    deadlines.append(held.next_deadline)
    assert deadlines == [3, 4, None]
    assert len(held) == 0


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hold", "release", "fail", "expire"]), st.sampled_from([A, B, C])
        )
    )
)
def test_every_packet_leaves_exactly_once(steps: list[tuple[str, Path]]) -> None:
    held = HeldPackets(per_neighbor=2, total=4, seconds=5)
    inside: list[PuntedPacket] = []
    for now, (step, path) in enumerate(steps):
        left: list[PuntedPacket] = []
        if step == "hold":
            new = packet(now % 256)
            if held.hold(path, new, now):
                inside.append(new)
        elif step == "release":
            left = held.release(path)
        elif step == "fail":
            left = held.fail(path)
        else:
            left = [gone for packets in held.expired(now).values() for gone in packets]
        for gone in left:
            inside.remove(gone)
        assert len(held) == len(inside) <= 4

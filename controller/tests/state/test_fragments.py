# SPDX-License-Identifier: Apache-2.0
"""Tests the table of incomplete datagrams. Their fragments wait, pass or are refused, and the table
is bounded.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.model import PuntedPacket, parse_address
from sluice.policy.model import UDP, Selectors
from sluice.state.fragments import (
    MAX_FRAGMENTS,
    MAX_WAITING,
    Arrival,
    DatagramKey,
    FragmentRange,
    FragmentRefusal,
    FragmentTable,
)

SOURCE, DESTINATION = parse_address("10.0.0.1"), parse_address("10.0.0.2")
FIRST = Selectors(SOURCE, DESTINATION, UDP, 4000, 7000, None)
OTHER_PORTS = FIRST._replace(destination_port=7001)
KEY = DatagramKey(3, False, 0, SOURCE, DESTINATION, UDP, 77)
START, MIDDLE, END = (
    FragmentRange(0, 800, True),
    FragmentRange(800, 1600, True),
    FragmentRange(1600, 1700, False),
)
IN_VAIN = "dropped: fragment whose first did not come"


def packet(number: int) -> PuntedPacket:
    return PuntedPacket(b"%d" % number, *[0] * (len(PuntedPacket._fields) - 1))


class Scene:
    """Holds a table with a settable clock. `arrive` passes a fragment to the table."""

    def __init__(self, datagrams: int = 4, waiting: int = 100, seconds: float = 5.0) -> None:
        self.table = FragmentTable(datagrams, waiting, seconds)
        self.number = 0
        self.now = 0.0

    def arrive(
        self, piece: FragmentRange, first: Selectors | None = None, key: DatagramKey = KEY
    ) -> Arrival:
        self.number += 1
        subject = first or (FIRST if piece.start == 0 else None)
        return self.table.arrive(key, piece, packet(self.number), subject, self.now)

    def released(self, arrival: Arrival) -> list[int]:
        return [int(each.frame) for each in arrival.released]


def test_later_fragments_are_what_the_first_one_is() -> None:
    scene = Scene()
    for piece in (START, MIDDLE, END):
        assert scene.arrive(piece) == Arrival(FIRST)
    assert len(scene.table) == 0  # the datagram is complete, so its entry is gone


def test_later_fragments_that_come_first_wait_and_go_in_their_order() -> None:
    scene = Scene()
    assert scene.arrive(END) == Arrival()
    assert scene.arrive(MIDDLE) == Arrival()
    assert scene.table.waiting == 2
    arrival = scene.arrive(START)
    assert (arrival.first, scene.released(arrival)) == (FIRST, [1, 2])
    assert (scene.table.waiting, len(scene.table)) == (0, 0)


@pytest.mark.parametrize(
    "other",
    [
        KEY._replace(list_id=4),
        KEY._replace(is_own=True),
        KEY._replace(bundle=1),
        KEY._replace(source=DESTINATION),
        KEY._replace(destination=SOURCE),
        KEY._replace(protocol=6),
        KEY._replace(identification=78),
    ],
)
def test_datagrams_are_told_apart_by_everything_in_the_key(other: DatagramKey) -> None:
    scene = Scene()
    scene.arrive(START)
    assert scene.arrive(MIDDLE, key=other) == Arrival()


@pytest.mark.parametrize(
    ("pieces", "refused"),
    [
        ([START, FragmentRange(792, 1592, True)], FragmentRefusal.OVERLAP),
        ([START, FragmentRange(8, 16, True)], FragmentRefusal.OVERLAP),
        ([MIDDLE, FragmentRange(0, 808, True)], FragmentRefusal.OVERLAP),
        ([MIDDLE, FragmentRange(0, 1600, True)], FragmentRefusal.OVERLAP),
        ([START, FragmentRange(0, 8, True)], FragmentRefusal.OVERLAP),
        ([START, FragmentRange(0, 808, True)], FragmentRefusal.OVERLAP),
        # Contradictions: a fragment behind the end of the datagram; two different ends; the last
        # fragment again, but shorter and with the flag "more fragments"; an end before a fragment
        # that has arrived.
        ([END, FragmentRange(1704, 1800, True)], FragmentRefusal.OVERLAP),
        ([END, FragmentRange(1600, 1708, False)], FragmentRefusal.OVERLAP),
        ([END, FragmentRange(1600, 1696, True)], FragmentRefusal.OVERLAP),
        ([MIDDLE, FragmentRange(400, 800, False)], FragmentRefusal.OVERLAP),
        # Invalid lengths.
        ([FragmentRange(800, 1601, True)], FragmentRefusal.LENGTH),
        ([FragmentRange(800, 800, True)], FragmentRefusal.LENGTH),
        ([FragmentRange(65528, 65536, True)], FragmentRefusal.LENGTH),
    ],
)
def test_contradictions_refuse_the_whole_rest_of_a_datagram(
    pieces: list[FragmentRange], refused: FragmentRefusal
) -> None:
    scene = Scene()
    for piece in pieces[:-1]:
        assert scene.arrive(piece).refusal is None
    assert scene.arrive(pieces[-1]).refusal is refused
    for piece in (START, MIDDLE, END):
        assert scene.arrive(piece).refusal is refused
    assert scene.table.waiting == 0


def test_two_first_fragments_with_different_ports_refuse_the_datagram() -> None:
    scene = Scene()
    scene.arrive(START)
    assert scene.arrive(START, OTHER_PORTS).refusal is FragmentRefusal.OVERLAP
    assert scene.arrive(MIDDLE).refusal is FragmentRefusal.OVERLAP


def test_duplicates_pass() -> None:
    """Checks that duplicates of fragments pass, although overlapping fragments are refused.

    The network may duplicate packets. RFC 5722 permits a router to tell duplicates from overlaps.
    """
    scene = Scene()
    for piece in (START, START, MIDDLE, MIDDLE, MIDDLE):
        assert scene.arrive(piece) == Arrival(FIRST)
    assert scene.arrive(END) == Arrival(FIRST)


def test_what_waited_for_nothing_is_dropped_by_name() -> None:
    scene = Scene(seconds=5.0)
    scene.arrive(MIDDLE)
    scene.arrive(END)
    assert scene.table.next_deadline == 5.0
    scene.table.expire(4.9)
    assert scene.table.waiting == 2
    scene.table.expire(5.0)
    assert (scene.table.waiting, len(scene.table)) == (0, 0)
    assert scene.table.counters == {IN_VAIN: 2}


def test_a_datagram_that_is_late_begins_anew() -> None:
    scene = Scene(seconds=5.0)
    scene.arrive(START)
    scene.now = 5.0
    assert scene.arrive(MIDDLE) == Arrival()


def test_the_oldest_datagram_makes_room() -> None:
    scene = Scene(datagrams=2)
    keys = [KEY._replace(identification=number) for number in range(3)]
    for key in keys:
        scene.arrive(MIDDLE, key=key)
    assert (len(scene.table), scene.table.waiting) == (2, 2)
    assert scene.table.counters["datagrams forgotten: no room"] == 1
    assert scene.table.counters["dropped: fragment, no room for its datagram"] == 1
    assert scene.released(scene.arrive(START, key=keys[0])) == []
    assert scene.released(scene.arrive(START, key=keys[2])) == [3]


def test_fragments_that_wait_are_bounded_for_each_datagram_and_together() -> None:
    scene = Scene()
    pieces = [FragmentRange(8 * at, 8 * at + 8, True) for at in range(1, MAX_WAITING + 2)]
    *fit, last = [scene.arrive(piece) for piece in pieces]
    assert set(fit) == {Arrival()}
    assert last.refusal is FragmentRefusal.NO_ROOM
    scene = Scene(waiting=2)
    arrivals = [
        scene.arrive(MIDDLE, key=KEY._replace(identification=number)) for number in range(3)
    ]
    assert [each.refusal for each in arrivals] == [None, None, FragmentRefusal.NO_ROOM]


def test_fragments_of_a_datagram_are_bounded() -> None:
    scene = Scene()
    arrivals = [
        scene.arrive(FragmentRange(8 * at, 8 * at + 8, True)) for at in range(MAX_FRAGMENTS + 1)
    ]
    assert {each.refusal for each in arrivals[:-1]} == {None}
    assert arrivals[-1].refusal is FragmentRefusal.TOO_MANY


@given(st.data())
def test_in_any_order_with_duplicates_every_fragment_passes_once_each(data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, 40), min_size=1, max_size=8)))
    bounds = [0, *(8 * cut for cut in cuts), 8 * cuts[-1] + 5]
    pieces = [FragmentRange(start, end, end != bounds[-1]) for start, end in pairwise(bounds)]
    order = data.draw(st.permutations(pieces))
    scene = Scene()
    passed = 0
    for piece in order:
        arrival = scene.arrive(piece)
        assert arrival.refusal is None
        if arrival.first is not None:
            passed += 1 + len(arrival.released)
    assert passed == len(pieces)
    assert (len(scene.table), scene.table.waiting) == (0, 0)


pieces = st.builds(
    lambda start, length, more: FragmentRange(8 * start, 8 * start + length, more),
    st.integers(0, 6),
    st.integers(0, 32),
    st.booleans(),
)


@given(st.lists(pieces, max_size=40))
def test_what_passes_of_one_datagram_never_overlaps(arriving: list[FragmentRange]) -> None:
    scene = Scene()
    passed: set[FragmentRange] = set()
    for number, piece in enumerate(arriving, 1):
        arrival = scene.arrive(piece)
        if arrival.first is None:
            continue
        for each in (number, *scene.released(arrival)):
            new = arriving[each - 1]
            assert all(new == old or new.end <= old.start or old.end <= new.start for old in passed)
            passed.add(new)
        # The datagram is complete. Later fragments with the same key belong to another datagram.
        if not len(scene.table):
            passed.clear()

# SPDX-License-Identifier: Apache-2.0
"""Tests that native code records flows like its specification, `state.flow_cache.FlowCache`.

Random operations are applied to both. After each operation, both must have returned the same writes
in the same order, and must hold the same flows in the same order of eviction.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from fake_switch import PIPELINE
from packets import ethernet, ipv4
from sluice._native import FirstPacket, FlowBatch
from sluice.native_punts import NativePunts
from sluice.p4.flows import FlowCodec
from sluice.p4.packets import PACKET_IN, PacketSchema, PuntReason
from sluice.p4.schema import Schema, load_pipeline
from sluice.policy.model import Action, Direction, FlowKey, FragmentClass
from sluice.state.flow_cache import (
    FlowCache,
    FlowVerdict,
    FlowWrite,
    FlowWriteResult,
    OfferResult,
)
from sluice.state.native_flows import NativeFlowCache, flow_queue

CAPACITY = 5
LISTS = (3, 4)
KEYS = [
    FlowKey(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 17, 1, 2),
    FlowKey(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 6, 1, 2),
    FlowKey(bytes([10, 0, 0, 2]), bytes([10, 0, 0, 1]), 17, 1, 2),
    FlowKey(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 17, 2, 1),
    FlowKey(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 17, 1, 2, FragmentClass.LATER),
    FlowKey(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 17, 1, 2, FragmentClass.WHOLE, True),
    FlowKey(bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2]), 17, 1, 2, FragmentClass.WHOLE, False, 9),
    FlowKey(bytes(15) + b"\1", bytes(15) + b"\2", 132, 0xFFFF, 0xFFFE, FragmentClass.FIRST, True),
    FlowKey(bytes(16), bytes(16), 255, 0, 0),
    FlowKey(bytes(4), bytes(4), 0, 0, 0),
]
"""Keys of which each differs from another one in one field."""

keys = st.sampled_from(KEYS)
seconds = st.sampled_from([0.0, 0.5, 2.0])
results = st.sampled_from([FlowWriteResult.DONE] * 3 + list(FlowWriteResult))


@st.composite
def verdicts(draw: st.DrawFn, epochs: st.SearchStrategy[int]) -> FlowVerdict:
    rule_id = draw(st.sampled_from([1, 2, 0xFFFFFFFF]))
    bundle = draw(st.sampled_from([0, 0xFFFF]))
    return FlowVerdict(draw(epochs), rule_id, draw(st.sampled_from(Action)), bundle)


class SameCaches(RuleBasedStateMachine):
    """Applies all operations of a cache to the specification and to native code."""

    def __init__(self) -> None:
        super().__init__()
        self.caches = (FlowCache(CAPACITY, 2), NativeFlowCache(CAPACITY, 2))
        self.now = 100.0
        self.pending: deque[FlowWrite] = deque()

    def same(self, apply: Callable[[FlowCache | NativeFlowCache], object]) -> object:
        """Applies an operation to both caches, compares the results, and returns them."""
        specification, native = self.caches
        expected, found = apply(specification), apply(native)
        assert found == expected
        return expected

    def same_writes(self, apply: Callable[[FlowCache | NativeFlowCache], list[FlowWrite]]) -> None:
        writes = self.same(apply)
        assert isinstance(writes, list)
        self.pending += writes

    @property
    def epoch(self) -> int:
        return self.caches[0].epoch

    @initialize(
        found=st.lists(st.tuples(keys, verdicts(st.integers(0, 2))), max_size=CAPACITY),
        enabled=st.sampled_from([True, True, True, False]),
    )
    def read_back(self, found: list[tuple[FlowKey, FlowVerdict]], enabled: bool) -> None:
        for cache in self.caches:
            cache.enabled = enabled
        for key, verdict in found:
            self.same(lambda cache, k=key, v=verdict: cache.found(k, v, self.now))  # type: ignore[misc]

    @rule(key=keys, verdict=verdicts(st.integers(0, 1)), later=seconds)
    def offer(self, key: FlowKey, verdict: FlowVerdict, later: float) -> None:
        self.now += later
        # Mostly the current epoch.
        of_epoch = verdict._replace(epoch=self.epoch + (verdict.epoch and verdict.rule_id == 2))
        outcome, writes = self.caches[0].offer(key, of_epoch, self.now)
        assert self.caches[1].offer(key, of_epoch, self.now) == (outcome, writes)
        self.pending += writes

    @precondition(lambda self: self.pending)
    @rule(result=results, later=seconds)
    def answer(self, result: FlowWriteResult, later: float) -> None:
        self.now += later
        write = self.pending.popleft()
        self.same_writes(lambda cache: cache.written(write, result, self.now))

    @rule(key=keys, verdict=verdicts(st.integers(0, 9)), result=results)
    def answer_again(self, key: FlowKey, verdict: FlowVerdict, result: FlowWriteResult) -> None:
        """Reports the result of a write that the cache has not requested."""
        if not any(write.key == key for write in self.pending):
            for operation in {write.operation for write in self.pending}:
                write = FlowWrite(operation, key, verdict)
                self.same_writes(lambda cache, w=write: cache.written(w, result, self.now))  # type: ignore[misc]

    @rule()
    def commit(self) -> None:
        epoch = self.epoch + 1
        self.same(lambda cache: cache.retire(epoch))

    @rule(enabled=st.booleans())
    def switch(self, enabled: bool) -> None:
        for cache in self.caches:
            cache.enabled = enabled

    @rule(key=keys, found=st.none() | verdicts(st.integers(0, 9)))
    def audit(self, key: FlowKey, found: FlowVerdict | None) -> None:
        if not self.same(lambda cache: cache.agrees(key, found)):
            self.same_writes(lambda cache: cache.correct(key, found, self.now))

    @rule(key=keys)
    def audit_the_recorded_verdict(self, key: FlowKey) -> None:
        verdict = self.caches[0].verdict_of(key)
        self.audit(key, verdict)

    @rule(key=keys)
    def discard(self, key: FlowKey) -> None:
        self.same_writes(lambda cache: cache.discard(key))

    @rule(key=keys, packets=st.integers(0, 3), later=seconds)
    def count(self, key: FlowKey, packets: int, later: float) -> None:
        self.now += later
        self.same(lambda cache: cache.counted(key, packets, self.now))

    @rule(key=keys, later=seconds)
    def hit(self, key: FlowKey, later: float) -> None:
        self.now += later
        self.same(lambda cache: cache.used(key, self.now))

    @rule(key=keys, ago=seconds)
    def expire(self, key: FlowKey, ago: float) -> None:
        self.same_writes(lambda cache: cache.expire(key, self.now - ago))

    @invariant()
    def the_flows_are_the_same(self) -> None:
        self.same(lambda cache: list(cache.flows()))
        self.same(lambda cache: dict(cache.live_flows()))
        self.same(lambda cache: set(cache.keys()))
        self.same(lambda cache: [cache.verdict_of(key) for key in KEYS])
        self.same(len)
        self.same(lambda cache: (cache.capacity, cache.epoch, cache.enabled, cache.is_exact))

    @invariant()
    def the_order_is_the_same(self) -> None:
        self.same(lambda cache: cache.ranked(KEYS))
        for limit in (0, 2, 99):
            self.same(lambda cache, n=limit: list(cache.eviction_order(n)))  # type: ignore[misc]
        for ago in (-1.0, 0.0, 1.0, 2.5):
            before = self.now - ago
            self.same(lambda cache, at=before: list(cache.idle_since(at)))  # type: ignore[misc]
            self.same(lambda cache, at=before: list(cache.coldest_live(at, 2)))  # type: ignore[misc]
            self.same(lambda cache, at=before: set(cache.keys_unused_since(at)))  # type: ignore[misc]

    @invariant()
    def the_counts_are_the_same(self) -> None:
        self.same(lambda cache: (cache.count_live(), cache.count_stale(), cache.is_nearly_full()))


TestSameCaches = SameCaches.TestCase
TestSameCaches.settings = settings(max_examples=150, stateful_step_count=50, deadline=None)


# -- the queue of writes

SCHEMA = PacketSchema(Schema(load_pipeline(PIPELINE).p4info))
CODEC = FlowCodec(Schema(load_pipeline(PIPELINE).p4info))
REASONS = {reason: number for number, reason in SCHEMA.reasons.items()}


def first_packets(flows: list[tuple[int, int]]) -> list[FirstPacket]:
    """Returns a plain first packet for each list and source port, in order."""
    packets = []
    for list_id, port in flows:
        known = {"reason": REASONS[PuntReason.OUTBOUND_MISS], "stage": SCHEMA.stage_outbound}
        values = dict.fromkeys(PACKET_IN, 0) | known | {"list_id": list_id}
        udp = port.to_bytes(2, "big") + bytes(6)
        frame = ethernet(ipv4("10.0.0.1", "10.0.0.2", udp, protocol=17))
        queue = NativePunts(SCHEMA)
        queue.offer([(frame, tuple(values[name] for name in PACKET_IN))])
        (packet,) = queue.take(1)
        assert type(packet) is FirstPacket
        packets.append(packet)
    return packets


PACKETS = {
    (list_id, port): packet
    for list_id in (*LISTS, 5)
    for port, packet in enumerate(first_packets([(list_id, port) for port in range(6)]))
}
flows = st.tuples(st.sampled_from((*LISTS, LISTS[0], 5)), st.integers(0, 5))


class SameQueue(RuleBasedStateMachine):
    """Applies offers of first packets, pushes and answers to a queue, and to a model of it.

    The model has a cache of the specification for each list, and a list of writes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.now = 100.0
        self.model = {list_id: FlowCache(4, 1) for list_id in LISTS}
        self.native = {list_id: NativeFlowCache(4, 1) for list_id in LISTS}
        self.queue = flow_queue(self.native)
        self.waiting: list[tuple[int, FlowWrite]] = []
        self.in_flight: deque[tuple[FlowBatch, list[tuple[int, FlowWrite]]]] = deque()

    @rule(
        offered=st.lists(st.tuples(flows, st.integers(1, 2)), max_size=8),
        held=st.sets(st.sampled_from(LISTS), max_size=1),
        later=seconds,
    )
    def offer(
        self, offered: list[tuple[tuple[int, int], int]], held: set[int], later: float
    ) -> None:
        self.now += later
        verdicts = [FlowVerdict(1, number, Action.BYPASS) for number in range(3)]
        offers = [(PACKETS[flow], verdicts[rule_id]) for flow, rule_id in offered]
        expected: Counter[tuple[int, OfferResult]] = Counter()
        evicted: Counter[tuple[int, OfferResult]] = Counter()
        for packet, verdict in offers:
            cache = self.model.get(packet.list_id)
            outcome, writes = OfferResult.UNREAD, list[FlowWrite]()
            if cache is not None and packet.list_id in held:
                outcome = OfferResult.HELD
            elif cache is not None:
                outcome, writes = cache.offer(packet.key(), verdict, self.now)
            kind = packet.list_id, outcome
            expected[kind] += 1
            evicted[kind] += len(writes) - 1 if outcome is OfferResult.INSTALLED else 0
            self.waiting += [(packet.list_id, write) for write in writes]
        found = self.queue.offer(offers, held, self.now)
        assert {(one, outcome): number for one, outcome, number, _ in found} == expected
        assert {(one, outcome): number for one, outcome, _, number in found} == evicted

    @rule(list_id=st.sampled_from(LISTS), port=st.integers(0, 5))
    def discard(self, list_id: int, port: int) -> None:
        key = PACKETS[list_id, port].key()
        writes = self.model[list_id].discard(key)
        self.queue.push(list_id, self.native[list_id].discard(key))
        self.waiting += [(list_id, write) for write in writes]

    @rule(limit=st.integers(1, 4))
    def send(self, limit: int) -> None:
        batch = self.queue.first(limit)
        assert batch.writes() == self.waiting[:limit]
        assert batch.list_ids() == {list_id for list_id, _ in self.waiting[:limit]}
        self.queue.sent(batch)
        self.in_flight.append((batch, self.waiting[:limit]))
        del self.waiting[:limit]

    @precondition(lambda self: self.in_flight)
    @rule(some=st.lists(results, min_size=4, max_size=4), are_done=st.booleans())
    def answer(self, some: list[FlowWriteResult], are_done: bool) -> None:
        batch, writes = self.in_flight.popleft()
        done = [FlowWriteResult.DONE] * len(writes) if are_done else some[: len(writes)]
        for (list_id, write), result in zip(writes, done, strict=True):
            next_writes = self.model[list_id].written(write, result, self.now)
            self.waiting += [(list_id, one) for one in next_writes]
        found = self.queue.written(batch, [] if are_done else done, self.now)
        expected = Counter(
            (write.operation, one) for (_, write), one in zip(writes, done, strict=True)
        )
        assert {(operation, result): number for operation, result, number in found} == expected

    @invariant()
    def writes_wait_in_order(self) -> None:
        assert len(self.queue) == len(self.waiting)
        assert self.queue.first(1000).writes() == self.waiting
        for list_id in LISTS:
            sent = [write for _, writes in self.in_flight for write in writes]
            unanswered = sum(1 for one, _ in self.waiting + sent if one == list_id)
            assert self.queue.unanswered(list_id) == unanswered

    @invariant()
    def writes_are_encoded_one_like_the_other(self) -> None:
        batch = self.queue.first(3)
        directions = dict.fromkeys(LISTS, Direction.OUTBOUND)
        assert CODEC.updates(batch, directions) == [
            CODEC.update(Direction.OUTBOUND, list_id, write) for list_id, write in batch.writes()
        ]

    @invariant()
    def caches_are_the_same(self) -> None:
        for list_id in LISTS:
            assert list(self.native[list_id].flows()) == self.model[list_id].flows()


TestSameQueue = SameQueue.TestCase
TestSameQueue.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


def test_answers_must_not_be_fewer_than_the_writes() -> None:
    cache = NativeFlowCache(4, 1)
    queue = flow_queue({3: cache})
    for key in KEYS[:2]:
        queue.push(3, cache.offer(key, FlowVerdict(1, 1, Action.BYPASS), 0.0)[1])
    batch = queue.first(2)
    with pytest.raises(ValueError, match="fewer results"):
        queue.written(batch, [FlowWriteResult.DONE], 0.0)
    assert queue.unanswered(3) == 2


# -- sequences


def test_sequences_have_python_tuples_at_each_index() -> None:
    cache = NativeFlowCache(100, 1)
    verdict = FlowVerdict(1, 7, Action.PROTECT, 5)
    for key in KEYS:
        cache.found(key, verdict, 0.0)
    found, flows = cache.eviction_order(99), cache.flows()
    assert list(found) == KEYS
    assert [type(key) for key in found] == [FlowKey] * len(KEYS)
    assert [type(key.fragment) for key in found] == [FragmentClass] * len(KEYS)
    assert (found[0], found[-1]) == (KEYS[0], KEYS[-1])
    for part in (slice(2, 5), slice(None, None, -1), slice(-3, None), slice(8, 99), slice(5, 2)):
        assert found[part] == KEYS[part]
        assert flows[part] == [(key, verdict) for key in KEYS[part]]
    assert type(flows[3][1]) is FlowVerdict
    assert type(flows[3][1].action) is Action
    for index in (len(KEYS), -len(KEYS) - 1):
        with pytest.raises(IndexError):
            found[index]


def test_sequences_are_of_the_time_when_they_were_made() -> None:
    cache = NativeFlowCache(100, 1)
    for key in KEYS:
        cache.found(key, FlowVerdict(1, 7, Action.BYPASS), 0.0)
    found = cache.keys()
    for key in KEYS:
        cache.correct(key, None, 1.0)
    assert len(cache) == 0
    assert set(found) == set(KEYS)


# -- limits


@pytest.mark.parametrize(
    ("changed", "error"),
    [
        ({"source": bytes(16)}, ValueError),
        ({"source": bytes(5), "destination": bytes(5)}, ValueError),
        ({"protocol": 256}, OverflowError),
        ({"source_port": -1}, OverflowError),
        ({"destination_port": 0x10000}, OverflowError),
        ({"bundle": 0x10000}, OverflowError),
        ({"fragment": 3}, ValueError),
    ],
)
def test_no_key_is_cut_off(changed: dict[str, object], error: type[Exception]) -> None:
    cache = NativeFlowCache(4, 1)
    key = KEYS[0]._replace(**changed)  # type: ignore[arg-type]
    with pytest.raises(error):
        cache.offer(key, FlowVerdict(1, 1, Action.BYPASS), 0.0)
    assert len(cache) == 0


def test_many_flows_are_found_in_the_order_of_their_installation() -> None:
    """Checks an index that has grown several times, and chunks of records that are used again."""
    number = 20_000
    cache, verdict = NativeFlowCache(number, 1), FlowVerdict(1, 1, Action.BYPASS)
    many = [KEYS[0]._replace(source=one.to_bytes(4, "big")) for one in range(3 * number)]
    for key in many:
        for write in cache.offer(key, verdict, 0.0)[1]:
            assert cache.written(write, FlowWriteResult.DONE, 0.0) == []
    assert list(cache.eviction_order(number)) == many[-number:]
    assert [cache.verdict_of(key) for key in many[-number - 1 :]] == [None] + [verdict] * number

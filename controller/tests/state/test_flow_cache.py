# SPDX-License-Identifier: Apache-2.0
"""Tests the controller's record of the flows in the switch.

Covers the cases of VPP's flow-cache tests. After random events, the record must equal a simulated
flow table of the switch.
"""

from __future__ import annotations

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from sluice.model import parse_address
from sluice.policy.model import Action, FlowKey
from sluice.state.flow_cache import (
    LATE_SECONDS,
    FlowCache,
    FlowOperation,
    FlowVerdict,
    FlowWrite,
    FlowWriteResult,
    OfferResult,
)

SOURCE, DESTINATION = parse_address("10.0.0.1"), parse_address("10.0.0.2")
NOW_IDLE = 1e9
BYPASS = FlowVerdict(1, 1, Action.BYPASS)


def key(number: int) -> FlowKey:
    return FlowKey(SOURCE, DESTINATION, 17, number, 4000)


class SwitchTable:
    """Simulates a P4Runtime table of fixed size.

    Refuses an INSERT of an existing entry and a MODIFY of a missing entry.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.entries: dict[FlowKey, FlowVerdict] = {}

    def write(self, write: FlowWrite) -> FlowWriteResult:
        present = write.key in self.entries
        if write.operation is FlowOperation.INSERT and present:
            return FlowWriteResult.EXISTS
        if write.operation is not FlowOperation.INSERT and not present:
            return FlowWriteResult.ABSENT
        if write.operation is FlowOperation.INSERT and len(self.entries) >= self.size:
            return FlowWriteResult.FAILED
        if write.verdict is None:
            del self.entries[write.key]
        else:
            self.entries[write.key] = write.verdict
        return FlowWriteResult.DONE


class Scene:
    """Connects a FlowCache with a simulated table, which answers each write at once."""

    def __init__(self, capacity: int = 3, size: int = 3) -> None:
        self.cache = FlowCache(capacity, epoch=1)
        self.table = SwitchTable(size)
        self.now = 0.0

    def run(self, writes: list[FlowWrite]) -> list[FlowOperation]:
        pending, done = deque(writes), []
        while pending:
            write = pending.popleft()
            done.append(write.operation)
            pending += self.cache.written(write, self.table.write(write), self.now)
        return done

    def offer(self, number: int, rule: int = 1) -> tuple[OfferResult, list[FlowOperation]]:
        self.now += LATE_SECONDS
        verdict = FlowVerdict(self.cache.epoch, rule, Action.BYPASS)
        outcome, writes = self.cache.offer(key(number), verdict, self.now)
        return outcome, self.run(writes)

    def keys(self) -> list[int]:
        return sorted(one.source_port for one in self.table.entries)


def test_add() -> None:
    scene = Scene()
    assert scene.offer(1) == (OfferResult.INSTALLED, [FlowOperation.INSERT])
    assert scene.table.entries == {key(1): BYPASS}
    assert len(scene.cache) == 1


def test_remove_and_add_again() -> None:
    scene = Scene()
    scene.offer(1)
    assert scene.run(scene.cache.expire(key(1), NOW_IDLE)) == [FlowOperation.DELETE]
    assert (scene.keys(), len(scene.cache)) == ([], 0)
    assert scene.offer(1) == (OfferResult.INSTALLED, [FlowOperation.INSERT])


def test_a_stale_flow_is_overwritten_in_place() -> None:
    scene = Scene()
    scene.offer(1)
    scene.cache.retire(2)
    assert scene.cache.count_stale() == 1
    assert scene.offer(1, rule=9) == (OfferResult.INSTALLED, [FlowOperation.MODIFY])
    assert scene.table.entries == {key(1): FlowVerdict(2, 9, Action.BYPASS)}
    assert (len(scene.cache), scene.cache.count_stale()) == (1, 0)


def test_a_full_cache_evicts_the_coldest() -> None:
    scene = Scene()
    for number in (1, 2, 3):
        scene.offer(number)
    scene.cache.used(key(1), scene.now)
    assert scene.offer(4) == (OfferResult.INSTALLED, [FlowOperation.DELETE, FlowOperation.INSERT])
    assert scene.keys() == [1, 3, 4]


def test_a_flow_that_was_used_meanwhile_does_not_expire() -> None:
    scene = Scene()
    scene.offer(1)
    assert scene.cache.expire(key(1), before=scene.now) == []
    assert scene.run(scene.cache.expire(key(1), before=scene.now + 0.1)) == [FlowOperation.DELETE]


def test_who_would_have_to_go_next() -> None:
    scene = Scene(capacity=4)
    for number in (1, 2, 3):
        assert not scene.cache.is_nearly_full()
        scene.offer(number)
    assert scene.cache.is_nearly_full()
    scene.cache.used(key(1), scene.now)
    assert scene.cache.coldest_live(scene.now + 1, 2) == [key(2), key(3)]
    assert scene.cache.coldest_live(scene.now, 2) == [key(2)]
    scene.cache.retire(2)
    assert scene.cache.coldest_live(scene.now + 1, 2) == []  # stale flows are not listed


def test_stale_flows_go_before_cold_ones_the_oldest_epoch_first() -> None:
    scene = Scene()
    scene.offer(1)
    scene.cache.retire(2)
    scene.offer(2)
    scene.cache.retire(3)
    scene.offer(3)
    scene.cache.used(key(1), scene.now)  # a hit does not protect a stale flow from eviction
    scene.offer(4)
    assert scene.keys() == [2, 3, 4]
    scene.offer(5)
    assert scene.keys() == [3, 4, 5]
    scene.offer(6)
    assert scene.keys() == [4, 5, 6]


def test_ranks_are_in_the_order_of_eviction() -> None:
    scene = Scene(capacity=9)
    for number in (1, 2, 3):
        scene.offer(number)
    scene.cache.retire(2)
    for number in (4, 2, 5):
        scene.offer(number)
        scene.now += 1
    scene.cache.used(key(4), scene.now)
    scene.cache.used(key(1), scene.now + 1)
    keys = [*scene.cache.keys(), key(8)]
    found = sorted(scene.cache.ranked(keys))
    assert [one.key for one in found] == scene.cache.eviction_order(9)
    assert {one.key: one.verdict for one in found} == dict(scene.cache.flows())


def test_a_table_full_of_stale_flows_does_not_block_new_ones() -> None:
    scene = Scene()
    for number in (1, 2, 3):
        scene.offer(number)
    scene.cache.retire(2)
    for number in (3, 4, 5):
        assert scene.offer(number)[0] is OfferResult.INSTALLED
    assert scene.keys() == [3, 4, 5]
    assert scene.cache.count_stale() == 0


def test_a_verdict_of_another_epoch_is_not_installed() -> None:
    cache = FlowCache(3, epoch=2)
    assert cache.offer(key(1), BYPASS, 0.0) == (OfferResult.STALE, [])


def test_a_cache_that_is_off_installs_nothing() -> None:
    cache = FlowCache(3, epoch=1, enabled=False)
    assert cache.offer(key(1), BYPASS, 0.0) == (OfferResult.OFF, [])


def test_one_write_of_a_flow_at_a_time() -> None:
    cache = FlowCache(3, epoch=1)
    _, writes = cache.offer(key(1), BYPASS, 0.0)
    assert cache.offer(key(1), BYPASS, 0.0) == (OfferResult.UNDER_WAY, [])
    assert cache.expire(key(1), NOW_IDLE) == []
    cache.written(writes[0], FlowWriteResult.DONE, 0.0)
    deletion = cache.expire(key(1), NOW_IDLE)
    assert cache.offer(key(1), BYPASS, 5.0) == (OfferResult.UNDER_WAY, [])
    cache.written(deletion[0], FlowWriteResult.DONE, 5.0)
    assert cache.offer(key(1), BYPASS, 5.0)[0] is OfferResult.INSTALLED


def test_a_late_packet_writes_nothing_and_a_miss_long_after_mends() -> None:
    scene = Scene()
    scene.offer(1)
    scene.table.entries.clear()  # the switch lost the flow and did not report this
    assert scene.cache.offer(key(1), BYPASS, scene.now + 0.5) == (OfferResult.KNOWN, [])
    assert scene.offer(1) == (OfferResult.INSTALLED, [FlowOperation.MODIFY, FlowOperation.INSERT])
    assert scene.keys() == [1]


def test_flows_are_unused_since_a_time_after_their_last_packet_and_write() -> None:
    scene = Scene()
    scene.offer(1)
    scene.offer(2)
    assert scene.cache.keys_unused_since(scene.now) == [key(1)]
    assert scene.cache.keys_unused_since(scene.now + 1) == [key(1), key(2)]
    scene.cache.used(key(1), scene.now + 1)
    assert scene.cache.keys_unused_since(scene.now + 1) == [key(2)]


def test_an_entry_that_nobody_knew_of_is_overwritten() -> None:
    scene = Scene()
    scene.table.entries[key(1)] = FlowVerdict(1, 7, Action.DISCARD)
    assert scene.offer(1) == (OfferResult.INSTALLED, [FlowOperation.INSERT, FlowOperation.MODIFY])
    assert scene.table.entries == {key(1): BYPASS}


def test_writes_under_way_are_never_evicted() -> None:
    cache = FlowCache(2, epoch=1)
    for number in (1, 2):
        cache.offer(key(number), BYPASS, 0.0)
    assert cache.offer(key(3), BYPASS, 0.0) == (OfferResult.FULL, [])


def test_a_table_smaller_than_the_cache_thinks() -> None:
    scene = Scene(capacity=3, size=2)
    for number in (1, 2, 3):
        scene.offer(number)
    assert (scene.keys(), len(scene.cache)) == ([1, 2], 2)
    # The table refuses the flow again. The other flows stay.
    assert scene.offer(3)[1] == [FlowOperation.INSERT]


def test_a_delete_that_failed_leaves_the_flow_for_eviction() -> None:
    cache = FlowCache(3, epoch=1)
    _, writes = cache.offer(key(1), BYPASS, 0.0)
    cache.written(writes[0], FlowWriteResult.DONE, 0.0)
    cache.written(cache.expire(key(1), NOW_IDLE)[0], FlowWriteResult.FAILED, 0.0)
    assert (len(cache), cache.count_stale()) == (1, 1)
    assert cache.offer(key(1), BYPASS, 9.0)[1][0].operation is FlowOperation.MODIFY


def test_an_unknown_entry_whose_deletion_failed_can_be_overwritten_and_evicted() -> None:
    cache = FlowCache(1, epoch=1)
    (deletion,) = cache.correct(key(1), BYPASS, 0.0)
    cache.written(deletion, FlowWriteResult.FAILED, 0.0)
    assert cache.idle_since(NOW_IDLE) == [key(1)]
    _, writes = cache.offer(key(2), BYPASS, 0.0)
    assert [write.operation for write in writes] == [FlowOperation.DELETE, FlowOperation.INSERT]


def test_a_flow_is_in_use_while_its_packet_count_grows() -> None:
    scene = Scene()
    scene.offer(1)
    assert scene.cache.counted(key(1), 5, scene.now + 1)
    assert not scene.cache.counted(key(1), 5, scene.now + 2)
    assert scene.cache.keys_unused_since(scene.now + 2) == [key(1)]
    assert not scene.cache.counted(key(2), 5, scene.now)
    scene.offer(1, rule=2)  # a MODIFY keeps the entry's counter
    assert not scene.cache.counted(key(1), 5, scene.now)
    scene.table.entries.clear()
    scene.offer(1)  # after an INSERT the counter starts at 0
    assert scene.cache.counted(key(1), 1, scene.now)


def test_a_write_that_was_overtaken_by_a_commit_stays_stale() -> None:
    cache = FlowCache(3, epoch=1)
    _, writes = cache.offer(key(1), BYPASS, 0.0)
    cache.retire(2)
    cache.written(writes[0], FlowWriteResult.DONE, 0.0)
    assert (len(cache), cache.count_stale()) == (1, 1)
    # A second answer to the same write must change nothing.
    assert cache.written(writes[0], FlowWriteResult.EXISTS, 0.0) == []


def test_what_is_read_back_is_live_or_stale() -> None:
    cache = FlowCache(3, epoch=2)
    cache.found(key(1), BYPASS._replace(epoch=2), 0.0)
    cache.found(key(2), BYPASS, 0.0)
    assert (len(cache), cache.count_stale()) == (2, 1)
    assert [flow.source_port for flow, _ in cache.flows()] == [2, 1]


def test_idle_flows_are_named_coldest_first() -> None:
    scene = Scene()
    for number in (1, 2, 3):
        scene.offer(number)
    scene.cache.used(key(1), scene.now + 10)
    assert [one.source_port for one in scene.cache.idle_since(scene.now)] == [2]
    assert [one.source_port for one in scene.cache.idle_since(scene.now + 1)] == [2, 3]


class AnyOrder(RuleBasedStateMachine):
    """Checks the record after packets, commits, writes, answers and idle flows in random order.

    The simulated switch applies the writes in the order in which the cache returned them.
    """

    CAPACITY = 4

    def __init__(self) -> None:
        super().__init__()
        self.cache = FlowCache(self.CAPACITY, epoch=1)
        self.table = SwitchTable(self.CAPACITY)
        self.writes: deque[FlowWrite] = deque()
        self.answers: deque[tuple[FlowWrite, FlowWriteResult]] = deque()
        self.verdicts: dict[tuple[int, FlowKey], int] = {}
        self.now = 0.0

    @rule(number=st.integers(0, 7), rule_id=st.integers(1, 3), seconds=st.sampled_from([0.0, 2.0]))
    def packet(self, number: int, rule_id: int, seconds: float) -> None:
        self.now += seconds
        epoch = self.cache.epoch
        rule_id = self.verdicts.setdefault((epoch, key(number)), rule_id)
        verdict = FlowVerdict(epoch, rule_id, Action.BYPASS)
        outcome, writes = self.cache.offer(key(number), verdict, self.now)
        assert (outcome is OfferResult.INSTALLED) == any(w.key == key(number) for w in writes)
        self.writes += writes

    @rule()
    def commit(self) -> None:
        self.cache.retire(self.cache.epoch + 1)

    @precondition(lambda self: self.writes)
    @rule()
    def write(self) -> None:
        write = self.writes.popleft()
        result = self.table.write(write)
        assert result is FlowWriteResult.DONE
        self.answers.append((write, result))

    @precondition(lambda self: self.answers)
    @rule()
    def answer(self) -> None:
        write, result = self.answers.popleft()
        self.writes += self.cache.written(write, result, self.now)

    @rule(number=st.integers(0, 7))
    def idle(self, number: int) -> None:
        self.writes += self.cache.expire(key(number), self.now + 1)

    @rule(number=st.integers(0, 7))
    def hit(self, number: int) -> None:
        self.cache.used(key(number), self.now)

    @invariant()
    def capacity_holds(self) -> None:
        assert len(self.cache) <= self.CAPACITY
        assert len(self.cache.flows()) == len(self.cache)
        assert 0 <= self.cache.count_stale() <= len(self.cache)

    @invariant()
    def entries_are_true_in_their_epoch(self) -> None:
        for flow, verdict in self.table.entries.items():
            assert self.verdicts[verdict.epoch, flow] == verdict.rule_id

    @invariant()
    def record_is_right_when_all_is_quiet(self) -> None:
        if not self.writes and not self.answers:
            assert dict(self.cache.flows()) == self.table.entries


TestAnyOrder = AnyOrder.TestCase
TestAnyOrder.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["lose", "forge", "commit", ""]))),
    st.integers(2, 4),
)
def test_the_record_finds_its_way_back_after_losses(
    steps: list[tuple[int, str]], size: int
) -> None:
    scene = Scene(capacity=4, size=size)
    for number, accident in steps:
        if accident == "lose":
            scene.table.entries.pop(key(number), None)
        elif accident == "forge" and len(scene.table.entries) < size:
            scene.table.entries[key(number)] = FlowVerdict(0, 3, Action.BYPASS)
        elif accident == "commit":
            scene.cache.retire(scene.cache.epoch + 1)
        outcome, _ = scene.offer(number)
        if (
            outcome is OfferResult.INSTALLED
            and size == 4
            and not any(a == "forge" for _, a in steps)
        ):
            assert scene.table.entries[key(number)].epoch == scene.cache.epoch
    assert len(scene.table.entries) <= size

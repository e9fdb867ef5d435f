# SPDX-License-Identifier: Apache-2.0
"""Records the flows installed in the switch, with one cache for each list of an SPD.

This record is the controller's only knowledge of the installed flows. The reconciler does not
handle flows: a flow is installed when its first packet arrives, and deleted when it is idle.
`FlowCache` is pure: it returns the writes to make, and the caller reports their results
(`written`).

`FlowCache` is the specification. The daemon uses `native_flows.NativeFlowCache`, which has the same
methods and takes less time and memory (tests/state/test_native_flows.py compares the two).

A flow carries the epoch in which it was installed. A commit with a new epoch makes all flows stale
at once, without a write for each flow. When a packet of a stale flow arrives, the flow's entry is
modified in place. Stale flows are evicted first. A commit that changes the verdicts of only a few
flows keeps the epoch and deletes those flows (`state.invalidation`). Depends on policy.model only.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from itertools import chain, islice
from typing import NamedTuple, TypeAlias

from sluice.policy.model import Action, FlowKey

LATE_SECONDS = 1.0
"""Time after a write in which packets punted before the write may still arrive, in seconds."""

NEARLY_FULL = 0.75
"""Fraction of its capacity from which a cache counts as nearly full."""


class FlowVerdict(NamedTuple):
    """Holds the verdict on a flow's packets, and the epoch in which the verdict is valid."""

    epoch: int
    rule_id: int
    action: Action
    bundle: int = 0


class FlowOperation(Enum):
    """Operation on a flow's entry in the switch."""

    __hash__ = object.__hash__  # Enum's own hash is slower, and each flow needs one
    INSERT = "insert"
    MODIFY = "modify"
    DELETE = "delete"


class FlowWrite(NamedTuple):
    """Describes one write. `verdict` is None for a DELETE."""

    operation: FlowOperation
    key: FlowKey
    verdict: FlowVerdict | None


class OfferResult(Enum):
    """Result of offering a flow to the cache. HELD and UNREAD are results of `FlowTables` only."""

    INSTALLED = "installed"
    KNOWN = "installed already, the packet is older than that"
    UNDER_WAY = "a write of the same flow is under way"
    OFF = "the flow cache is off"
    STALE = "the verdict is of another epoch"
    FULL = "the flow cache is full of writes under way"
    HELD = "a commit is under way"
    UNREAD = "the switch is being read"


class FlowWriteResult(Enum):
    """The switch's answer to a write."""

    __hash__ = object.__hash__  # Enum's own hash is slower
    DONE = "done"
    EXISTS = "already exists"
    ABSENT = "not found"
    FAILED = "failed"  # any other answer; the entry is unchanged


@dataclass(slots=True, eq=False)
class _Flow:
    verdict: FlowVerdict
    pool: _Pool
    used: float  # time of the last packet or write
    in_flight: FlowOperation | None = None
    packets: int = 0  # the switch's packet count when it was last read


_Pool: TypeAlias = OrderedDict[FlowKey, _Flow]
"""Flows of one epoch, coldest first."""


class RankedFlow(NamedTuple):
    """A recorded flow. Flows with lower `rank` are evicted first."""

    rank: tuple[int, float]
    key: FlowKey
    verdict: FlowVerdict


def _unused(pool: _Pool, before: float) -> Iterator[FlowKey]:
    """Yields the flows not used since `before`, coldest first. Skips flows that are being
    written."""
    for key, flow in pool.items():
        if flow.used >= before:
            return
        if flow.in_flight is None:
            yield key


class FlowCache:
    """Records the flows of one list. `capacity` counts all entries, including stale ones.

    Invariants:

    - At most one write of a key is in flight.
    - Every written verdict is of the list's current epoch.
    - The switch never holds more than `capacity` entries, if it applies the writes in order.
    """

    def __init__(self, capacity: int, epoch: int, *, enabled: bool = True) -> None:
        self.capacity = capacity
        self.epoch = epoch
        self.enabled = enabled
        self.is_exact = True
        """Whether the record has every flow of this epoch that the switch may hold. False after a
        refused write, until the next epoch."""
        self._flows: dict[FlowKey, _Flow] = {}
        self._deleting: dict[FlowKey, _Flow] = {}  # flows with a DELETE in flight
        # The eviction order: one pool for each epoch that has flows left, oldest epoch first. In
        # each pool, the coldest flow is first.
        self._live: _Pool = OrderedDict()
        self._pools: deque[_Pool] = deque([self._live])

    def __len__(self) -> int:
        return len(self._flows)

    def eviction_order(self, limit: int) -> list[FlowKey]:
        """Returns the first `limit` flows in the order in which they would be evicted."""
        return list(islice(chain.from_iterable(self._pools), limit))

    def ranked(self, keys: Iterable[FlowKey]) -> list[RankedFlow]:
        """Returns the flows of `keys` that are still recorded, with their ranks."""
        numbers = {id(pool): number for number, pool in enumerate(self._pools)}
        found = ((key, self._flows.get(key)) for key in keys)
        return [
            RankedFlow((numbers[id(flow.pool)], flow.used), key, flow.verdict)
            for key, flow in found
            if flow is not None
        ]

    def flows(self) -> list[tuple[FlowKey, FlowVerdict]]:
        """Returns all flows that the switch may hold, in eviction order."""
        return [(key, flow.verdict) for pool in self._pools for key, flow in pool.items()]

    def live_flows(self) -> list[tuple[FlowKey, FlowVerdict]]:
        """Returns the flows of the current epoch, in no particular order."""
        return [(key, flow.verdict) for key, flow in self._live.items()]

    def count_live(self) -> int:
        """Returns the number of flows of the current epoch."""
        return len(self._live)

    def verdict_of(self, key: FlowKey) -> FlowVerdict | None:
        """Returns the verdict recorded for a flow, or None."""
        flow = self._flows.get(key)
        return None if flow is None else flow.verdict

    def count_stale(self) -> int:
        """Returns the number of stale flows: they are recorded, but no longer apply to packets."""
        return len(self._flows) - len(self._live)

    # -- packets

    def offer(
        self, key: FlowKey, verdict: FlowVerdict, now: float
    ) -> tuple[OfferResult, list[FlowWrite]]:
        """Returns the writes that install a flow. `verdict` is the result of searching the rules
        for a packet of the flow."""
        if not self.enabled:
            return OfferResult.OFF, []
        if verdict.epoch != self.epoch:
            return OfferResult.STALE, []
        known = self._flows.get(key)
        if key in self._deleting or (known is not None and known.in_flight is not None):
            return OfferResult.UNDER_WAY, []
        if known is None:
            return self._insert(key, verdict, now)
        if known.verdict == verdict and now - known.used < LATE_SECONDS:
            return OfferResult.KNOWN, []
        return OfferResult.INSTALLED, [self._write(FlowOperation.MODIFY, key, verdict, now)]

    def _insert(
        self, key: FlowKey, verdict: FlowVerdict, now: float
    ) -> tuple[OfferResult, list[FlowWrite]]:
        writes: list[FlowWrite] = []
        while len(self._flows) >= self.capacity:
            victim = self._victim()
            if victim is None:
                return OfferResult.FULL, writes
            writes.append(self._delete(victim))
        writes.append(self._write(FlowOperation.INSERT, key, verdict, now))
        return OfferResult.INSTALLED, writes

    def retire(self, epoch: int) -> None:
        """Sets a new epoch. All flows become stale. Takes constant time, because no flow is
        visited."""
        self.epoch = epoch
        self.is_exact = True
        self._live = OrderedDict()
        self._pools = deque(pool for pool in self._pools if pool)
        self._pools.append(self._live)

    # -- answers of the switch

    def written(self, write: FlowWrite, result: FlowWriteResult, now: float) -> list[FlowWrite]:
        """Records the result of a write. If the switch's entry was not as recorded, returns the
        writes that correct it."""
        if write.operation is FlowOperation.DELETE:
            flow = self._deleting.pop(write.key, None)
            if flow is not None and result is FlowWriteResult.FAILED:
                flow.packets = 0
                self._keep_as_unknown(write.key, flow)
            return []
        flow = self._flows.get(write.key)
        if flow is None or flow.in_flight is not write.operation:
            return []
        flow.in_flight = None
        match write.operation, result:
            case _, FlowWriteResult.DONE:
                self.used(write.key, now)
            case FlowOperation.INSERT, FlowWriteResult.EXISTS:
                return self._correct(FlowOperation.MODIFY, write.key, flow, now)
            case FlowOperation.MODIFY, FlowWriteResult.ABSENT:
                return self._correct(FlowOperation.INSERT, write.key, flow, now)
            case FlowOperation.MODIFY, _:
                self._remove(write.key)
                self._keep_as_unknown(write.key, flow)
            case _:
                self._remove(write.key)
        return []

    def _correct(
        self, operation: FlowOperation, key: FlowKey, flow: _Flow, now: float
    ) -> list[FlowWrite]:
        """Handles the failure of an INSERT because the entry existed, or of a MODIFY because it did
        not. Returns the opposite operation if the flow is not stale."""
        if flow.verdict.epoch == self.epoch:
            return [self._write(operation, key, flow.verdict, now)]
        if operation is FlowOperation.INSERT:  # the flow is stale, and the switch does not hold it
            self._remove(key)
        return []

    # -- reading back

    def found(self, key: FlowKey, verdict: FlowVerdict, now: float) -> None:
        """Records a flow that was read back from the switch, before any `offer`."""
        if key in self._flows:
            self._remove(key)
        flow = _Flow(verdict, self._live, now)
        if verdict.epoch == self.epoch:
            self._flows[key] = self._live[key] = flow
        else:
            self._keep_as_stale(key, flow)

    # -- comparing with the switch

    def agrees(self, key: FlowKey, found: FlowVerdict | None) -> bool:
        """Returns whether the switch may hold this verdict (None: no entry) for a flow.

        For a flow that is being written, the switch may hold any verdict or none. For a stale flow,
        it may hold any verdict of an earlier epoch.
        """
        flow = self._flows.get(key)
        if key in self._deleting or (flow is not None and flow.in_flight is not None):
            return True
        if flow is None or found is None:
            return flow is None and found is None
        if flow.pool is self._live:
            return found == flow.verdict
        return found.epoch < self.epoch

    def correct(self, key: FlowKey, found: FlowVerdict | None, now: float) -> list[FlowWrite]:
        """Returns the writes that correct an entry for which `agrees` is false."""
        flow = self._flows.get(key)
        if found is None:
            if flow is not None:
                self._remove(key)  # The flow's next packet is punted, and installs the flow.
            return []
        if flow is None:
            self._deleting[key] = _Flow(found, self._live, now)
            return [FlowWrite(FlowOperation.DELETE, key, None)]
        if flow.pool is self._live:
            return [self._write(FlowOperation.MODIFY, key, flow.verdict, now)]
        return [self._delete(key)]

    def discard(self, key: FlowKey) -> list[FlowWrite]:
        """Returns the write that deletes a flow, unless a write of it is in flight."""
        flow = self._flows.get(key)
        return [] if flow is None or flow.in_flight is not None else [self._delete(key)]

    def keys(self) -> list[FlowKey]:
        """Returns the keys of all flows that the switch may hold."""
        return list(self._flows)

    def keys_unused_since(self, before: float) -> list[FlowKey]:
        """Returns the keys of all recorded flows without a packet or write since `before`."""
        return [key for key, flow in self._flows.items() if flow.used < before]

    # -- ageing

    def used(self, key: FlowKey, now: float) -> None:
        """Records that the switch found the flow for a packet at `now`."""
        flow = self._flows.get(key)
        if flow is not None:
            flow.used = now
            flow.pool.move_to_end(key)

    def counted(self, key: FlowKey, packets: int, now: float) -> bool:
        """Records the packet count that was read from the switch for a flow.

        If the count has grown, the flow counts as used at `now`. Returns whether it has grown.
        """
        flow = self._flows.get(key)
        if flow is None or packets <= flow.packets:
            return False
        flow.packets = packets
        self.used(key, now)
        return True

    def expire(self, key: FlowKey, before: float) -> list[FlowWrite]:
        """Returns the write that deletes a flow not used since `before`."""
        flow = self._flows.get(key)
        if flow is None or flow.in_flight is not None or flow.used >= before:
            return []
        return [self._delete(key)]

    def idle_since(self, before: float) -> list[FlowKey]:
        """Returns the flows not used since `before`, coldest first. Skips flows that are being
        written."""
        return [key for pool in self._pools for key in _unused(pool, before)]

    def coldest_live(self, before: float, limit: int) -> list[FlowKey]:
        """Returns the `limit` coldest flows of the current epoch that were not used since `before`.

        Skips flows that are being written.
        """
        return list(islice(_unused(self._live, before), limit))

    def is_nearly_full(self) -> bool:
        """Returns whether the cache may soon have to evict flows."""
        return len(self._flows) >= self.capacity * NEARLY_FULL

    # -- bookkeeping

    def _write(
        self, operation: FlowOperation, key: FlowKey, verdict: FlowVerdict, now: float
    ) -> FlowWrite:
        known = self._remove(key) if key in self._flows else None
        flow = _Flow(verdict, self._live, now, operation)
        if known is not None and operation is FlowOperation.MODIFY:
            flow.packets = known.packets
        self._flows[key] = self._live[key] = flow
        return FlowWrite(operation, key, verdict)

    def _delete(self, key: FlowKey) -> FlowWrite:
        self._deleting[key] = self._remove(key)
        return FlowWrite(FlowOperation.DELETE, key, None)

    def _remove(self, key: FlowKey) -> _Flow:
        flow = self._flows.pop(key)
        del flow.pool[key]
        return flow

    def _keep_as_unknown(self, key: FlowKey, flow: _Flow) -> None:
        """Keeps a flow whose write failed. The switch may still have the entry with its earlier
        verdict."""
        self.is_exact = False
        self._keep_as_stale(key, flow)

    def _keep_as_stale(self, key: FlowKey, flow: _Flow) -> None:
        """Moves a flow to those that are evicted first: its verdict is unknown or of an earlier
        epoch."""
        if self._pools[0] is self._live:
            self._pools.appendleft(OrderedDict())
        flow.pool = self._pools[0]
        self._flows[key] = flow.pool[key] = flow

    def _victim(self) -> FlowKey | None:
        """Returns the flow to evict: a stale flow, else the coldest flow. Skips flows that are
        being written."""
        while self._pools[0] is not self._live and not self._pools[0]:
            self._pools.popleft()
        for pool in self._pools:
            for key, flow in pool.items():
                if flow.in_flight is None:
                    return key
        return None

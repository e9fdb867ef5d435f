# SPDX-License-Identifier: Apache-2.0
"""Searches recorded flows, and measures them by the switch's counters.

`scanned` searches a list in slices. `FlowSurvey` reads the counters of the flows found, in slices,
and returns the largest flows or sums. It holds the counters of at most `COMPARED` flows. Depends on
controller, flow_filter, flow_rows and largest.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sluice.api.flow_filter import FlowFilter
from sluice.api.flow_rows import FlowRows, ShownList
from sluice.api.largest import Largest
from sluice.api.rows import WaitForTurn, sliced
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.model import format_address
from sluice.p4.counters import Count
from sluice.p4.flows import FlowSlot
from sluice.p4runtime.session import P4RuntimeError
from sluice.policy.flow_counts import read_counts
from sluice.policy.model import FlowKey
from sluice.state.flow_cache import RankedFlow

SCANNED = 512
"""Number of flows that are searched before a yield to the loop: about a millisecond."""
COMPARED = 65_536
"""Number of flows whose counters are held at a time, from a first read to a second one."""
BREATH = 5.0
"""Longest time without a slice, in seconds. It must be shorter than a client's timeout."""

Rows: TypeAlias = AsyncGenerator[list[dict[str, Any]], None]
"""Slices of rows. Some are empty, between slices of work."""


async def scanned(
    shown: ShownList, only: FlowFilter, turn: WaitForTurn
) -> AsyncGenerator[list[RankedFlow], None]:
    """Yields the flows of a list that pass a filter, in no particular order.

    Yields one list for each slice of flows searched; it may be empty. A flow is tested in its state
    at that time. Flows that are added during the search are missed. All keys are copied at the
    start in one step, which takes about 20 ms for a million flows.
    """
    for part in sliced(shown.cache.keys(), SCANNED):
        await shown.refresh()
        yield only.selected(shown.cache.ranked(part), shown.epoch, shown.names)
        await turn()


class FlowCounters:
    """Reads the counters of flows from the switch that is connected."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    async def read(self, slots: Sequence[FlowSlot]) -> dict[FlowSlot, Count] | None:
        """Returns the counts of the flows that the switch holds. None without a switch."""
        connection = self._controller.connection
        session = connection.primary
        if session is None or not slots:
            return None if session is None else {}
        try:
            return await read_counts(
                session,
                self._controller.flow_codec,
                slots,
                lambda: connection.primary is not session,
            )
        except P4RuntimeError as error:
            self._controller.counters[f"counters not read: {error}"] += 1
            return None


class _Counted(NamedTuple):
    """A flow and its counters."""

    flow: RankedFlow
    counters: Count


class _Reading(NamedTuple):
    """Counters of some flows of one list, and the time at which they were read."""

    shown: ShownList
    at: float
    flows: list[_Counted]


class _Measured(NamedTuple):
    """A flow's counters, and its packets and bytes a second if these are wanted."""

    shown: ShownList
    flow: RankedFlow
    counters: Count
    rates: tuple[float, float] | None

    @property
    def rank(self) -> tuple[float, ...]:
        return self.counters if self.rates is None else self.rates


@dataclass(slots=True)
class _Sum:
    """Sums over flows with one value of a field."""

    flows: int = 0
    packets: int = 0
    bytes: int = 0
    packets_per_second: float = 0.0
    bytes_per_second: float = 0.0

    def add(self, one: _Measured) -> None:
        self.flows += 1
        self.packets += one.counters.packets
        self.bytes += one.counters.bytes
        if one.rates is not None:
            self.packets_per_second += one.rates[0]
            self.bytes_per_second += one.rates[1]


class FlowSurvey:
    """Measures the flows of some lists that pass a filter.

    `seconds` is the time between two reads of a flow's counters, from which rates follow. None: the
    counters are read once, and there are no rates.
    """

    def __init__(
        self,
        controller: Controller,
        lists: Sequence[ShownList],
        only: FlowFilter,
        seconds: float | None,
    ) -> None:
        self._lists = lists
        self._only = only
        self._seconds = seconds
        self._counters = FlowCounters(controller)
        self._rows = FlowRows(controller)
        self._turn: WaitForTurn = controller.views.next
        self._clock = asyncio.get_running_loop().time

    # -- results

    async def top(self, number: int) -> Rows:
        """Yields the flows with most packets, or with most packets a second."""
        best: Largest[_Measured] = Largest(number)
        async for part in self._measured():
            for one in part:
                best.add(one.rank, one)
            yield []
        async for part in best.slices(self._turn):
            yield [
                self._rows.row(one.shown.state, one.flow.key, one.flow.verdict, one.shown.names)
                | one.counters._asdict()
                | _rates(one.rates)
                for one in part
            ]

    async def sums(self, field: str, number: int) -> Rows:
        """Yields the `number` largest sums of the flows by a field, one of `FIELDS`."""
        value_of, label = FIELDS[field]
        sums: dict[Any, _Sum] = {}
        async for part in self._measured():
            for one in part:
                sums.setdefault(value_of(one.shown, one.flow), _Sum()).add(one)
            yield []
        best: Largest[tuple[Any, _Sum]] = Largest(number)
        while sums:  # Removed in slices: to free them at once would block the event loop.
            for _ in range(min(SCANNED, len(sums))):
                value, total = sums.popitem()
                best.add(self._rank(total), (value, total))
            await self._turn()
        async for largest in best.slices(self._turn):
            yield [
                label(value)
                | {"flows": total.flows, "packets": total.packets, "bytes": total.bytes}
                | _rates(self._rates_of(total))
                for value, total in largest
            ]

    def _rank(self, total: _Sum) -> tuple[float, ...]:
        return self._rates_of(total) or (total.packets, total.bytes, total.flows)

    def _rates_of(self, total: _Sum) -> tuple[float, float] | None:
        if self._seconds is None:
            return None
        return total.packets_per_second, total.bytes_per_second

    # -- measuring

    async def _measured(self) -> AsyncGenerator[list[_Measured], None]:
        """Yields each flow found once, with its counters."""
        first: deque[_Reading] = deque()
        held = 0
        async for shown, keys in self._found():
            reading = await self._read(shown, keys)
            if self._seconds is None:
                yield [_Measured(shown, one.flow, one.counters, None) for one in reading.flows]
                continue
            if reading.flows:
                first.append(reading)
                held += len(reading.flows)
            yield []
            if held >= COMPARED:
                held = 0
                async for part in self._compared(first, self._seconds):
                    yield part
        if self._seconds is not None:
            async for part in self._compared(first, self._seconds):
                yield part

    async def _found(self) -> AsyncGenerator[tuple[ShownList, list[FlowKey]], None]:
        """Yields the keys of flows that pass the filter, in slices."""
        for shown in self._lists:
            async for flows in scanned(shown, self._only, self._turn):
                if not flows:
                    yield shown, []
                for part in sliced(flows):
                    yield shown, [flow.key for flow in part]
                    await self._turn()

    async def _read(self, shown: ShownList, keys: list[FlowKey]) -> _Reading:
        """Reads the counters of flows. Leaves out flows that are gone or no longer pass the
        filter."""
        counts = await self._counters.read([shown.slot(key) for key in keys])
        if counts is None:
            raise BadRequestError(
                "the switch is not connected, so that no counters can be read; `sluice show"
                " status` says more"
            )
        at = self._clock()
        await shown.refresh()
        flows = self._only.selected(shown.cache.ranked(keys), shown.epoch, shown.names)
        found = ((flow, counts.get(shown.slot(flow.key))) for flow in flows)
        return _Reading(
            shown, at, [_Counted(flow, count) for flow, count in found if count is not None]
        )

    async def _compared(
        self, first: deque[_Reading], seconds: float
    ) -> AsyncGenerator[list[_Measured], None]:
        """Reads the counters of flows again, and yields their rates. Empties `first`."""
        while first:
            before = first.popleft()
            while (rest := before.at + seconds - self._clock()) > 0:
                await asyncio.sleep(min(rest, BREATH))
                yield []
            after = await self._read(before.shown, [one.flow.key for one in before.flows])
            yield _differences(before, after)
            await self._turn()


def _differences(before: _Reading, after: _Reading) -> list[_Measured]:
    """Returns the rates of the flows that are in both readings.

    A flow with smaller counters was deleted and installed again, and is left out.
    """
    seconds = after.at - before.at
    counts = {one.flow.key: one.counters for one in before.flows}
    measured = []
    for flow, count in after.flows:
        earlier = counts[flow.key]
        packets, size = count.packets - earlier.packets, count.bytes - earlier.bytes
        if packets >= 0 and size >= 0:
            rates = packets / seconds, size / seconds
            measured.append(_Measured(after.shown, flow, count, rates))
    return measured


def _rates(rates: tuple[float, float] | None) -> dict[str, float]:
    if rates is None:
        return {}
    packets, size = (round(rate, 3) for rate in rates)
    return {"packets_per_second": packets, "bytes_per_second": size}


# --- fields of sums ------------------------------------------------------------------------------


def _rule(shown: ShownList, flow: RankedFlow) -> tuple[str, str, str | None]:
    return shown.state.spd, shown.state.direction.value, shown.rule_of(flow.verdict)


FIELDS: dict[
    str, tuple[Callable[[ShownList, RankedFlow], Any], Callable[[Any], dict[str, Any]]]
] = {
    "source": (
        lambda _, flow: flow.key.source,
        lambda address: {"source": format_address(address)},
    ),
    "destination": (
        lambda _, flow: flow.key.destination,
        lambda address: {"destination": format_address(address)},
    ),
    "rule": (_rule, lambda rule: dict(zip(("spd", "direction", "rule"), rule, strict=True))),
    "protocol": (lambda _, flow: flow.key.protocol, lambda number: {"protocol": number}),
}
"""Fields by which flows are summed: the value of a flow, and the value as keys of a row."""

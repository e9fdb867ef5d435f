# SPDX-License-Identifier: Apache-2.0
"""Makes the view `flows`: the flows in the switch that pass filters, the largest of them, or sums.

The controller's record is searched, and only counters are read from the switch. Both are done in
slices. `views` uses this module. Depends on controller, flow_filter and flow_survey.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.api.flow_filter import FlowFilter, bad_value, number_of, one_of
from sluice.api.flow_rows import FlowRows, ShownList
from sluice.api.flow_survey import FIELDS, FlowCounters, FlowSurvey, scanned
from sluice.api.flow_survey import Rows as RowSlices
from sluice.api.largest import Largest
from sluice.api.rows import Rows, sliced
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.policy.config import LookupMode
from sluice.policy.coverage import quoted_names
from sluice.policy.enforcement import Policy
from sluice.policy.model import FlowKey
from sluice.state.spd import FINAL_DISCARD, PolicyList

DEFAULT_LIMIT = 1000
AT_ONCE = 4096
"""Number of flows whose order of eviction is found in one step."""
DEFAULT_SUMS = 20
MOST_RANKED = 10_000
"""Highest `top`."""
SECONDS = (0.1, 30.0)
"""Shortest and longest time between two reads of counters."""


@dataclass(frozen=True)
class _Order:
    """Holds the request: which flows or sums are wanted, and how many."""

    limit: int
    top: int | None
    by: str | None
    seconds: float | None

    @classmethod
    def of(cls, request: Mapping[str, Any]) -> _Order:
        """Reads the keys of a request. Raises BadRequestError."""
        limit, top, by, rate = (request.get(key) for key in ("limit", "top", "by", "rate"))
        shown = DEFAULT_LIMIT
        if limit is not None:
            shown = number_of("limit", limit, range(1 << 31)) or DEFAULT_LIMIT
        if top is not None:
            top = number_of("top", top, range(1, MOST_RANKED + 1))
        if by is not None:
            by = one_of("by", by, list(FIELDS))
        if rate is not None:
            rate = _seconds(rate)
        if limit is not None and (top is not None or by is not None):
            raise BadRequestError("limit: not allowed with top or by; top is also a limit")
        if rate is not None and top is None and by is None:
            raise BadRequestError("rate: needs top or by")
        return cls(shown, top, by, rate)


def _seconds(value: object) -> float:
    least, most = SECONDS
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise bad_value("rate", value, f"a number of seconds from {least:g} to {most:g}")
    return float(value)


def _why_uncached(policy: Policy, state: PolicyList) -> str:
    """Returns the reason why the flow cache has no flows of a list, or few. Returns "" if it has
    all flows."""
    if policy.spds[state.spd].mode is LookupMode.RULES:
        return "no flow cache (mode: rules)"
    if not policy.is_cache_on(state.spd):
        return "the flow cache is off"
    held = policy.rule_sets.of_list(state)
    if held is not None and held.is_complete:
        return (
            "all rules are in the rule tables, so only packets that these leave to the controller"
            " are cached"
        )
    return ""


class FlowView:
    """Answers `show flows`. `lists` returns the lists of the SPD that a request names, or all."""

    def __init__(
        self, controller: Controller, lists: Callable[[dict[str, Any]], list[PolicyList]]
    ) -> None:
        self._controller = controller
        self._lists = lists
        self._turn = controller.views.next
        self._counters = FlowCounters(controller)
        self._rows = FlowRows(controller)

    async def answer(self, request: dict[str, Any]) -> Rows:
        """Returns flows list by list in the order of eviction, or the largest flows or sums.

        The answer's field `uncached` names the lists whose flows are not all in the cache.
        """
        policy = self._controller.policy
        only = FlowFilter.of(request, policy.numbers.by_name)
        order = _Order.of(request)
        states = [one for one in self._lists(request) if only.direction in (None, one.direction)]
        if only.rule is not None:
            await self._check_rule(only.rule, states)
        lists = [
            ShownList(self._controller, state, policy.flows.caches[state.list_id].cache)
            for state in states
            if state.list_id in policy.flows.caches
        ]
        uncached = [
            {"spd": one.spd, "direction": one.direction.value, "why": why}
            for one in states
            if (why := _why_uncached(policy, one))
        ]
        return Rows(self._slices(lists, only, order), {"uncached": uncached})

    def _slices(self, lists: list[ShownList], only: FlowFilter, order: _Order) -> RowSlices:
        if order.top is None and order.by is None:
            return self._flows(lists, only, order.limit)
        survey = FlowSurvey(self._controller, lists, only, order.seconds)
        if order.by is not None:
            return survey.sums(order.by, order.top or DEFAULT_SUMS)
        return survey.top(order.top or 0)

    async def _check_rule(self, rule: str, states: list[PolicyList]) -> None:
        """Raises BadRequestError if none of the lists has a rule of this name."""
        names: dict[str, None] = {}
        for state in states:
            for part in sliced(state.rules):
                names |= {one.name: None for one in part if not one.generated}
                if any(one.name == rule for one in part):
                    return
                await self._turn()
        names[FINAL_DISCARD] = None
        if rule not in names:
            raise BadRequestError(
                f"rule: there is no rule {rule!r} in these lists; there is:"
                f" {quoted_names(list(names))}"
            )

    async def _flows(self, lists: list[ShownList], only: FlowFilter, limit: int) -> RowSlices:
        """Yields at most `limit` flows. Each has its state at the time its slice is made."""
        for shown in lists:
            async for keys in self._first(shown, only, limit):
                rows = await self._shown(shown, keys, only) if keys else []
                limit -= len(rows)
                yield rows
                if keys:
                    await self._turn()
            if limit <= 0:
                return

    async def _first(
        self, shown: ShownList, only: FlowFilter, limit: int
    ) -> AsyncGenerator[list[FlowKey], None]:
        """Yields the first `limit` flows that pass, in the order of eviction. Slices may be
        empty."""
        if only.is_empty and limit <= AT_ONCE:
            for keys in sliced(shown.cache.eviction_order(limit)):
                yield keys
            return
        first: Largest[FlowKey] = Largest(limit)
        async for flows in scanned(shown, only, self._turn):
            for (pool, used), key, _ in flows:
                first.add((-pool, -used), key)
            yield []
        async for keys in first.slices(self._turn):
            yield keys

    async def _shown(
        self, shown: ShownList, keys: list[FlowKey], only: FlowFilter
    ) -> list[dict[str, Any]]:
        """Returns the rows of flows. Leaves out flows that are gone or no longer pass the
        filter."""
        counts = await self._counters.read([shown.slot(key) for key in keys])
        await shown.refresh()
        rows = []
        for flow in only.selected(shown.cache.ranked(keys), shown.epoch, shown.names):
            count = None if counts is None else counts.get(shown.slot(flow.key))
            volume = {"packets": None, "bytes": None} if count is None else count._asdict()
            rows.append(self._rows.row(shown.state, flow.key, flow.verdict, shown.names) | volume)
        return rows

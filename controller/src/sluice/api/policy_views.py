# SPDX-License-Identifier: Apache-2.0
"""Makes the views of IPsec policy: SPDs with their rules and counts, flow caches.

A list holds the rules of one SPD in one direction. `views` uses this module. `flow_view` makes the
view of flows. Depends on controller and flow_rows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from itertools import count
from typing import Any, TypeAlias

from sluice.api.flow_rows import FlowRows
from sluice.api.rows import sliced
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.p4.counters import Request
from sluice.policy.enforcement import Policy
from sluice.policy.model import Direction, Rule
from sluice.policy.review import describe
from sluice.policy.start import PolicyError
from sluice.policy.table_use import Choice
from sluice.state.rule_tables import CompiledList
from sluice.state.spd import FINAL_DISCARD, PolicyList

View: TypeAlias = Callable[[dict[str, Any]], Awaitable[Any]]
Reader: TypeAlias = Callable[[list[Request], Callable[..., Any]], Awaitable[Any]]
"""Reads counters from the switch and decodes them. Returns None if no switch is connected."""


class PolicyViews:
    """Answers `show spd` and `show flow-cache`; finds the flows for `spd diff`."""

    def __init__(self, controller: Controller, read: Reader) -> None:
        self._controller = controller
        self._read = read
        self._rows = FlowRows(controller)
        self._turn = controller.views.next

    def once_started(self, view: View) -> View:
        """Wraps a view so that requests for it fail until the SPDs are active.

        Before, the lists do not exist, and the view would be empty as if there were no rules.
        """

        async def answer(request: dict[str, Any]) -> Any:
            policy = self._controller.policy
            if not policy.started:
                raise BadRequestError(
                    f"{', '.join(policy.spds)}: not started: the switch is not connected, or its"
                    " entries are being read; `sluice show status` says which. Until then, guarded"
                    " interfaces drop every packet without a flow in the switch's flow cache"
                )
            return await view(request)

        return answer

    def lists(self, request: dict[str, Any]) -> list[PolicyList]:
        """Returns the lists of the SPD that a request names, or all lists."""
        policy = self._controller.policy
        wanted = request.get("spd")
        if wanted is not None:
            try:
                policy.checked_spd_name(str(wanted))
            except PolicyError as error:
                raise BadRequestError(str(error)) from None
        states = (
            policy.table.list_of(name, direction)
            for name in policy.spds
            for direction in Direction
            if wanted in (None, name)
        )
        return [state for state in states if state is not None]

    async def spd(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Answers `show spd`: returns one item for each list, with its rules."""
        return [await self._list(state, _rule) for state in self.lists(request)]

    async def counts(self) -> list[dict[str, Any]]:
        """Returns one item for each list, with only the names and counts of its rules."""
        return [await self._list(state, _rule_name) for state in self.lists({})]

    async def _list(
        self, state: PolicyList, show: Callable[[int | None, int, Rule], dict[str, Any]]
    ) -> dict[str, Any]:
        searched = self._controller.policy.searched
        rules: list[dict[str, Any]] = []
        numbered = zip(
            _positions(state.rules), zip(state.rules, state.rule_ids, strict=True), strict=True
        )
        for part in sliced(numbered):
            hits = await self._hits(state, [rule_id for _, (_, rule_id) in part])
            rules += [
                show(position, rule_id, rule)
                | {
                    "hits": None if hits is None else hits.get(rule_id, (0, 0))[0],
                    "searched": searched[state.list_id, rule_id],
                }
                for position, (rule, rule_id) in part
            ]
            await self._turn()
        hits = await self._hits(state, [state.final_id])
        return self._summary(state) | {
            "digest": state.digest,
            "rules": rules,
            "final_discard": {
                "hits": None if hits is None else hits.get(state.final_id, (0, 0))[0],
                "searched": searched[state.list_id, state.final_id],
            },
        }

    async def _hits(
        self, state: PolicyList, rule_ids: list[int]
    ) -> dict[int, tuple[int, int]] | None:
        """Returns the packets and bytes that the switch counted for each rule.

        Returns None if no switch is connected.
        """
        codec = self._controller.flow_codec
        requests = codec.rule_requests(state.direction, rule_ids)
        read: dict[int, tuple[int, int]] | None = await self._read(
            requests, lambda entities: codec.rule_counts(state.direction, entities)
        )
        return read

    def _summary(self, state: PolicyList) -> dict[str, Any]:
        policy = self._controller.policy
        config = policy.spds[state.spd]
        known = policy.flows.caches.get(state.list_id)
        return {
            "spd": state.spd,
            "direction": state.direction.value,
            "file": None if config.file is None else str(config.file),
            "list_id": state.list_id,
            "epoch": state.version.epoch,
            "generation": state.version.generation,
            "cache": policy.is_cache_on(state.spd),
            "capacity": config.flow_cache.size,
            "idle_timeout": config.flow_cache.idle_timeout,
            "flows": None if known is None else len(known.cache),
            "stale_flows": None if known is None else known.cache.count_stale(),
            "mode": config.mode.value,
            "rule_tables": in_rule_tables(policy, state),
        }

    async def expansion(
        self, spd: str, direction: Direction, rules: Sequence[Rule]
    ) -> dict[str, Any] | None:
        """Returns the part of a list with these rules that the rule tables would hold.

        `rules` are the operator's rules, without the generated ones. Returns None if the SPD's mode
        uses no rule tables, or if the list is not in force yet.
        """
        policy = self._controller.policy
        before = policy.table.list_of(spd, direction)
        use = policy.rule_sets.use
        if before is None or not use.is_used(spd):
            return None
        wanted = policy.rules.with_generated(spd, direction, rules)
        new = await asyncio.to_thread(policy.table.unnumbered, before.name, wanted)
        after = policy.table.preview(before, new)
        compiled = await asyncio.to_thread(policy.rule_sets.compile, after)
        held = use.is_worthwhile(spd, compiled)
        choice = use.choice(after, compiled, held=held)
        return _table_use(policy, after, compiled, choice)

    async def flow_cache(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Answers `show flow-cache`: returns one item for each list, without its rules."""
        return [self._summary(state) for state in self.lists(request)]

    async def flow_changes(
        self, spd: str, direction: Direction, rules: Sequence[Rule], limit: int
    ) -> dict[str, Any]:
        """Finds the cached flows of a list whose verdict would change under these rules.

        `rules` are the operator's rules, without the generated ones. Returns the number of live
        flows, the number of changed flows, and the first `limit` changed flows. Raises PolicyError,
        TooManyRulesError.
        """
        policy = self._controller.policy
        before = policy.table.list_of(spd, direction)
        known = None if before is None else policy.flows.caches.get(before.list_id)
        if before is None or known is None:
            return {"live": None, "changed": None, "first": []}
        wanted = policy.rules.with_generated(spd, direction, rules)
        new = await asyncio.to_thread(policy.table.unnumbered, before.name, wanted)
        after = policy.table.preview(before, new)
        changes = await policy.invalidation.changes(before, after)
        return {
            "live": known.cache.count_live(),
            "changed": None if changes is None else len(changes),
            "first": [
                self._rows.row(before, one.key, one.before, _names(before))
                | {"after": one.after and self._rows.outcome(one.after, _names(after))}
                for one in (changes or ())[:limit]
            ],
        }


def in_rule_tables(policy: Policy, state: PolicyList) -> dict[str, Any]:
    """Returns the part of a list in force that the rule tables hold, and the reason for it."""
    sets = policy.rule_sets
    return _table_use(policy, state, sets.of_list(state), sets.choice(state))


def _table_use(
    policy: Policy, state: PolicyList, compiled: CompiledList | None, choice: Choice
) -> dict[str, Any]:
    """Describes the part of a list that the rule tables hold, and the list's share of the tables in
    entries.

    `compiled` is None if the tables hold no part of the list. Then `entries` in the result is None.
    """
    return {
        "mode": policy.spds[state.spd].mode.value,
        "chosen": choice.mode.value,
        "why": choice.why,
        "rules": 0 if compiled is None else compiled.rules,
        "of": len(state.rules),
        "is_complete": compiled is not None and compiled.is_complete,
        "entries": None if compiled is None else compiled.used._asdict(),
        "room": policy.rule_sets.use.capacity(state.spd, state.direction)._asdict(),
    }


def _names(state: PolicyList) -> dict[int, str]:
    """Returns the names of a list's rules by rule id."""
    names = {i: rule.name for i, rule in zip(state.rule_ids, state.rules, strict=True)}
    return names | {state.final_id: FINAL_DISCARD}


def _positions(rules: Iterable[Rule]) -> Iterator[int | None]:
    """Yields each rule's position in the operator's file. The position is None for a rule that the
    controller has made."""
    operators = count(1)
    return (None if rule.generated or rule.is_instance else next(operators) for rule in rules)


def _rule(position: int | None, rule_id: int, rule: Rule) -> dict[str, Any]:
    return {
        "position": position,
        "id": rule_id,
        "name": rule.name,
        "action": rule.action.name.lower(),
        "bundle": rule.bundle,
        "text": describe(rule),
        "generated": rule.generated,
        "instance": rule.is_instance,
    }


def _rule_name(position: int | None, rule_id: int, rule: Rule) -> dict[str, Any]:
    return {"name": rule.name}

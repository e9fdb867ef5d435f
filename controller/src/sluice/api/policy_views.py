# SPDX-License-Identifier: Apache-2.0
"""Makes the views of IPsec policy: SPDs with their rules and counts, flows, flow caches.

A list holds the rules of one SPD in one direction. The module `views` uses this module. Depends on
controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from itertools import count
from typing import Any, TypeAlias

from sluice.api.rows import Rows, sliced
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.model import format_address
from sluice.p4.counters import Request
from sluice.p4.flows import FlowSlot
from sluice.policy.model import ICMP_PROTOCOLS, Action, Direction, FlowKey, FragmentClass, Rule
from sluice.policy.review import describe
from sluice.policy.start import PolicyError
from sluice.state.flow_cache import FlowVerdict
from sluice.state.spd import FINAL_DISCARD, PolicyList

DEFAULT_FLOW_LIMIT = 1000

View: TypeAlias = Callable[[dict[str, Any]], Awaitable[Any]]
Reader: TypeAlias = Callable[[list[Request], Callable[..., Any]], Awaitable[Any]]
"""Reads counters from the switch and decodes them. Returns None if no switch is connected."""


class PolicyViews:
    """Answers `show spd`, `show flows` and `show flow-cache`.

    Also finds the flows that a commit would change, for `spd diff`.
    """

    def __init__(self, controller: Controller, read: Reader) -> None:
        self._controller = controller
        self._read = read
        self._turn = controller.views.next

    def once_started(self, view: View) -> View:
        """Wraps a view so that requests fail until the SPDs are active.

        Without the wrapper, the view would be empty, as if there were no rules.
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
        }

    async def flow_cache(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Answers `show flow-cache`: returns one item for each list, without its rules."""
        return [self._summary(state) for state in self.lists(request)]

    async def flows(self, request: dict[str, Any]) -> Rows:
        """Answers `show flows`: returns the switch's flows by list, in the order of eviction."""
        limit = request.get("limit") or DEFAULT_FLOW_LIMIT
        if not isinstance(limit, int) or limit < 0:
            raise BadRequestError("limit must be a whole number")
        return Rows(self._flow_slices(self.lists(request), limit), {})

    async def _flow_slices(
        self, states: list[PolicyList], limit: int
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yields slices of the flows, list by list, in the order of eviction.

        The order within a list is fixed before the list's first slice is made. The state of each
        flow is read when the flow's slice is made.
        """
        codec = self._controller.flow_codec
        for state in states:
            known = self._controller.policy.flows.caches.get(state.list_id)
            if known is None:
                continue
            names = {state.final_id: FINAL_DISCARD}
            for rules in sliced(zip(state.rule_ids, state.rules, strict=True)):
                names |= {rule_id: rule.name for rule_id, rule in rules}
                await self._turn()
            for keys in sliced(known.cache.eviction_order(limit)):
                limit -= len(keys)
                slots = [FlowSlot(state.direction, state.list_id, key) for key in keys]
                requests = [codec.count_request(slot) for slot in slots]
                counts = await self._read(requests, codec.counts)
                verdicts = [(slot, known.cache.verdict_of(slot.key)) for slot in slots]
                yield [
                    self._flow(state, slot.key, verdict, names)
                    | {"packets": None if counts is None else counts.get(slot)}
                    for slot, verdict in verdicts
                    if verdict is not None
                ]
                await self._turn()

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
                self._flow(before, one.key, one.before, _names(before))
                | {"after": one.after and self._outcome(one.after, _names(after))}
                for one in (changes or ())[:limit]
            ],
        }

    def _flow(
        self, state: PolicyList, key: FlowKey, verdict: FlowVerdict, rules: Mapping[int, str]
    ) -> dict[str, Any]:
        stale = verdict.epoch != state.version.epoch
        is_later = key.fragment is FragmentClass.LATER
        is_icmp = key.protocol in ICMP_PROTOCOLS and not is_later
        return {
            "spd": state.spd,
            "direction": state.direction.value,
            "source": format_address(key.source),
            "destination": format_address(key.destination),
            "protocol": key.protocol,
            "source_port": key.source_port or None,
            "destination_port": None if is_icmp else key.destination_port or None,
            "icmp": f"{key.destination_port >> 8}/{key.destination_port & 0xFF}"
            if is_icmp
            else None,
            "later_fragments": is_later,
            "fragment": key.fragment.name.lower(),
            "local": key.is_local,
            "carried_by": self._bundle_names().get(key.bundle),
            # No rule is shown for a stale flow: the rule may be deleted, and its id may now belong
            # to another rule.
            **self._outcome(verdict, {} if stale else rules),
            "stale": stale,
        }

    def _outcome(self, verdict: FlowVerdict, rules: Mapping[int, str]) -> dict[str, Any]:
        """Returns a verdict's action, bundle and rule in the form of the API's answer."""
        protects = verdict.action is Action.PROTECT
        return {
            "action": verdict.action.name.lower(),
            "bundle": self._bundle_names().get(verdict.bundle) if protects else None,
            "rule": rules.get(verdict.rule_id),
        }

    def _bundle_names(self) -> dict[int, str]:
        ids = self._controller.policy.numbers.by_name
        return {number: name for name, number in ids.items()}


def _names(state: PolicyList) -> dict[int, str]:
    """Returns the names of a list's rules by rule id."""
    names = {i: rule.name for i, rule in zip(state.rule_ids, state.rules, strict=True)}
    return names | {state.final_id: FINAL_DISCARD}


def _positions(rules: Iterable[Rule]) -> Iterator[int | None]:
    """Yields each rule's position in the operator's file, or None for a generated rule."""
    operators = count(1)
    return (None if rule.generated else next(operators) for rule in rules)


def _rule(position: int | None, rule_id: int, rule: Rule) -> dict[str, Any]:
    return {
        "position": position,
        "id": rule_id,
        "name": rule.name,
        "action": rule.action.name.lower(),
        "bundle": rule.bundle,
        "text": describe(rule),
        "generated": rule.generated,
    }


def _rule_name(position: int | None, rule_id: int, rule: Rule) -> dict[str, Any]:
    return {"name": rule.name}

# SPDX-License-Identifier: Apache-2.0
"""Computes from the controller's state what the router does with a packet, for `explain`.

Tests the rules one by one in their order (`state.rule_search.matches`), without the search index.
So an error in the index would be noticed. Special treatment of ICMP errors and fragments comes from
`policy.decisions`, as for real packets. Depends on controller and route_lookup.
"""

from __future__ import annotations

import asyncio
from itertools import islice
from typing import Any, NamedTuple

from sluice.api.route_lookup import RouteLookup
from sluice.api.server import BadRequestError
from sluice.config import InterfaceConfig
from sluice.controller import Controller
from sluice.entities import BundleInVrf, EntityKind
from sluice.model import format_address
from sluice.policy.decisions import Decision
from sluice.policy.model import Action, Direction, FragmentClass, Verdict
from sluice.policy.review import describe
from sluice.state.rule_search import matches
from sluice.state.spd import FINAL_DISCARD, PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import SeenPacket

SHOWN_MATCHES = 20
"""Largest number of matching rules in the answer. The first one decides."""
IN_CLEAR = 0
"""Bundle number of the packets that are explained: no bundle carried them."""


class Question(NamedTuple):
    """Holds the packet to explain.

    `frame` is the frame that arrives on the interface's port. If `interface` is None, this router
    itself sends the packet, and the frame's MAC addresses are 0.
    """

    frame: bytes
    interface: InterfaceConfig | None
    vrf: int
    seen: SeenPacket


class Outcome(NamedTuple):
    """Describes what finally happens to a packet.

    `result` is `forwarded`, `protected`, `to this router`, `to the controller`, `dropped` or
    `unknown`. `reason` is a drop or punt reason, or a detail of the result: an output port, a
    bundle, or why the result is unknown.
    """

    result: str
    reason: str | None = None


class ListAccount(NamedTuple):
    """Holds the result of searching one list for a packet.

    `matching` has the list indexes of the first matching rules. `total` is the number of all
    matching rules. `verdict` is None if the list alone does not decide, and `note` then has the
    reason. With a verdict, `note` explains why it differs from the verdict of the first matching
    rule. `cache` describes the packet's flow in the controller's record of the switch's flow cache.
    """

    state: PolicyList
    matching: list[int]
    total: int
    verdict: Verdict | None
    note: str | None
    cache: str


class ModelAccount(NamedTuple):
    """Holds the model's account of a packet.

    `lists` is keyed by list id, in the order in which the packet passes the lists. `route` is None
    if the packet is not routed.
    """

    lists: dict[int, ListAccount]
    route: dict[str, Any] | None
    outcome: Outcome


class ModelExplainer:
    """Computes the model's account of a packet."""

    def __init__(self, controller: Controller, routes: RouteLookup) -> None:
        self._controller = controller
        self._policy = controller.policy
        self._routes = routes

    async def explain(self, question: Question) -> ModelAccount:
        """Returns the model's account of a packet.

        Raises BadRequestError if the lists of a needed SPD are not active yet.
        """
        lists: dict[int, ListAccount] = {}
        inbound = await self._list(Direction.INBOUND, question, question.interface)
        if inbound is not None:
            lists[inbound.state.list_id] = inbound
        outcome = _after_inbound(question, inbound)
        if outcome is not None:
            return ModelAccount(lists, None, outcome)
        route = await self._route(question)
        outbound = []
        for name in dict.fromkeys(leg["interface"] for leg in route["legs"]):
            interface = interface_named(self._controller, name)
            account = await self._list(Direction.OUTBOUND, question, interface)
            if account is not None:
                lists[account.state.list_id] = account
            outbound.append(account)
        return ModelAccount(lists, route, self._after_routing(question.vrf, route, outbound))

    async def _list(
        self, direction: Direction, question: Question, interface: InterfaceConfig | None
    ) -> ListAccount | None:
        """Searches the list that guards an interface. Returns None if no list guards it."""
        if interface is None or interface.spd is None:
            return None
        state = self._policy.table.list_of(interface.spd, direction)
        if state is None:
            raise BadRequestError(f"{interface.spd}: is not started; see `sluice show status`")
        seen = question.seen
        if direction is Direction.OUTBOUND and question.interface is not None:
            seen = seen._replace(selectors=seen.selectors._replace(is_own=False))

        def search() -> tuple[list[int], int]:
            found = (at for at, rule in enumerate(state.rules) if matches(rule, seen.selectors))
            first = [*islice(found, SHOWN_MATCHES)]
            return first, len(first) + sum(1 for _ in found)

        # Searched in a thread. Otherwise the search of a long list would block the event loop.
        matching, total = await asyncio.to_thread(search)
        verdict, note = self._verdict_and_note(state, question, seen, matching)
        return ListAccount(state, matching, total, verdict, note, self._cache(state, seen))

    def _verdict_and_note(
        self, state: PolicyList, question: Question, seen: SeenPacket, matching: list[int]
    ) -> tuple[Verdict | None, str | None]:
        """Returns the list's verdict and a note.

        The verdict is None if the list alone does not decide.
        """
        try:
            decision = self._decide(state, question, seen, matching)
        except WireError as error:
            return state.final(), f"the controller drops the packet: {error.name}: {error.detail}"
        if decision is None:
            return (
                None,
                "rules that could match this datagram disagree, or it may be an ICMP error: its"
                " first fragment decides",
            )
        if decision.is_by_quote:
            return (
                decision.verdict,
                "no rule matches: the packet that the ICMP error quotes decides",
            )
        if decision.refused_error is not None:
            return decision.verdict, f"the ICMP error is refused: {decision.refused_error}"
        return decision.verdict, None

    def _decide(
        self, state: PolicyList, question: Question, seen: SeenPacket, matching: list[int]
    ) -> Decision | None:
        """Decides about the packet as for a real packet. Raises WireError."""
        decisions = self._controller.first_packets.decisions
        if seen.fragment is None:
            at = matching[0] if matching else None
            verdict = (
                state.final()
                if at is None
                else Verdict(state.rule_ids[at], state.rules[at].action, state.bundle_ids[at])
            )
            return decisions.of_packet(state, question.frame, seen, verdict, IN_CLEAR)
        decision = decisions.of_fragment(state, seen)
        if decision is None and seen.fragment_class is FragmentClass.FIRST:
            return decisions.of_datagram(state, seen.selectors, None)
        return decision

    def _cache(self, state: PolicyList, seen: SeenPacket) -> str:
        known = self._policy.flows.caches.get(state.list_id)
        key = seen.key()
        if known is None or not known.cache.enabled:
            return "off"
        if key is None:
            return "not cacheable"
        flow = known.cache.verdict_of(key)
        if flow is None:
            return "no flow"
        return "flow" if flow.epoch == state.version.epoch else "retired flow"

    async def _route(self, question: Question) -> dict[str, Any]:
        address = format_address(question.seen.selectors.destination)
        names = {vrf.id: vrf.name for vrf in self._controller.config.vrfs}
        return await self._routes.answer({"address": address, "vrf": names[question.vrf]})

    def _after_routing(
        self, vrf: int, route: dict[str, Any], outbound: list[ListAccount | None]
    ) -> Outcome:
        if route["own"]:
            return Outcome("to this router")
        if route["route"] is None:
            return Outcome("dropped", "NO_ROUTE")
        if not route["legs"]:
            return Outcome("dropped", str(route["route"]["action"]).upper())
        outcomes = {self._after_outbound(vrf, account) for account in outbound}
        if len(outcomes) > 1:
            return Outcome("unknown", "the next hop decides")
        return outcomes.pop()

    def _after_outbound(self, vrf: int, account: ListAccount | None) -> Outcome:
        if account is None:
            return Outcome("forwarded")
        if account.verdict is None:
            return Outcome("unknown", account.note)
        if account.verdict.action is Action.PROTECT:
            name = self.bundle_name(account.verdict.bundle)
            in_vrf = BundleInVrf(vrf, account.verdict.bundle)
            if in_vrf not in self._controller.reconciler.desired[EntityKind.OUTBOUND_SA]:
                return Outcome("dropped", "NO_SA")
            return Outcome("protected", f"bundle {name}")
        if account.verdict.action is Action.BYPASS:
            return Outcome("forwarded")
        return Outcome("dropped", "OUTBOUND_DISCARD")

    # -- conversion to the API's answer

    def bundle_name(self, number: int) -> str | None:
        """Returns the name of a bundle, or None for number 0, which means no bundle."""
        return (self._policy.numbers.name_of(number) or str(number)) if number else None

    def shown(self, account: ListAccount) -> dict[str, Any]:
        """Returns the result of a list's search in the form of the API's answer."""
        state = account.state
        positions = _positions(state)
        return {
            "spd": state.spd,
            "direction": state.direction.value,
            "epoch": state.version.epoch,
            "generation": state.version.generation,
            "matches": [
                {
                    "position": positions[at],
                    "name": state.rules[at].name,
                    "text": describe(state.rules[at]),
                }
                for at in account.matching
            ],
            "matching": account.total,
            "verdict": None if account.verdict is None else self._verdict(state, account.verdict),
            "note": account.note,
            "cache": account.cache,
        }

    def _verdict(self, state: PolicyList, verdict: Verdict) -> dict[str, Any]:
        rule = FINAL_DISCARD
        if verdict.rule_id in state.rule_ids:
            rule = state.rules[state.rule_ids.index(verdict.rule_id)].name
        return {
            "action": verdict.action.name.lower(),
            "bundle": self.bundle_name(verdict.bundle),
            "rule": rule,
        }


def interface_named(controller: Controller, name: Any) -> InterfaceConfig:
    """Returns the interface with this name. Raises BadRequestError."""
    interfaces = controller.config.interfaces
    for interface in interfaces:
        if interface.name == name:
            return interface
    names = ", ".join(one.name for one in interfaces) or "none"
    raise BadRequestError(f"there is no interface {name!r}; this router has: {names}")


def _after_inbound(question: Question, inbound: ListAccount | None) -> Outcome | None:
    """Returns the outcome if the inbound list or local delivery ends the packet's processing.

    Otherwise returns None: the packet is routed next.
    """
    if inbound is not None:
        if inbound.verdict is None:
            return Outcome("unknown", inbound.note)
        if inbound.verdict.action is Action.DISCARD:
            return Outcome("dropped", "INBOUND_DISCARD")
        if inbound.verdict.action is Action.PROTECT:
            return Outcome("dropped", "INBOUND_CLEARTEXT")
    if question.interface is not None and question.seen.selectors.is_own:
        return Outcome("to this router")
    return None


def _positions(state: PolicyList) -> list[int | None]:
    """Returns each rule's position among the operator's rules. The position is None for a rule that
    the controller has made."""
    positions: list[int | None] = []
    last = 0
    for rule in state.rules:
        is_operators = not rule.generated and not rule.is_instance
        last += is_operators
        positions.append(last if is_operators else None)
    return positions

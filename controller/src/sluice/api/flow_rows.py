# SPDX-License-Identifier: Apache-2.0
"""Makes the rows of flows: a recorded flow with its verdict, as plain data.

`ShownList` also holds the names of a list's rules for its flows. Depends on controller.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.api.rows import WaitForTurn, sliced
from sluice.controller import Controller
from sluice.model import format_address
from sluice.p4.flows import FlowSlot
from sluice.policy.model import ICMP_PROTOCOLS, MOBILITY, Action, FlowKey, FragmentClass
from sluice.state.flow_cache import FlowVerdict
from sluice.state.native_flows import NativeFlowCache
from sluice.state.spd import FINAL_DISCARD, PolicyList


class ShownList:
    """Holds a list, the cache of its flows, and the names of its rules by id.

    Await `refresh` before each slice of flows, because a commit may have changed the rules.
    """

    def __init__(self, controller: Controller, state: PolicyList, cache: NativeFlowCache) -> None:
        self._controller = controller
        self._turn: WaitForTurn = controller.views.next
        self.state = state
        self.cache = cache
        self.names: dict[int, str] = {}

    @property
    def epoch(self) -> int:
        """The epoch of the list's current flows."""
        return self.state.version.epoch

    async def refresh(self) -> None:
        """Updates the list and the names to the rules in force."""
        in_force = self._controller.policy.table.lists
        state = in_force.get(self.state.list_id, self.state)
        while not self.names or state is not self.state:
            self.state = state
            names = {state.final_id: FINAL_DISCARD}
            for rules in sliced(zip(state.rule_ids, state.rules, strict=True)):
                names |= {rule_id: rule.name for rule_id, rule in rules}
                await self._turn()
            self.names = names
            state = in_force.get(state.list_id, state)

    def slot(self, key: FlowKey) -> FlowSlot:
        """Returns the identity of a flow of this list."""
        return FlowSlot(self.state.direction, self.state.list_id, key)

    def rule_of(self, verdict: FlowVerdict) -> str | None:
        """Returns the name of the rule that decides a flow. None for a stale flow."""
        return None if verdict.epoch != self.epoch else self.names.get(verdict.rule_id)


class FlowRows:
    """Makes rows of flows."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller

    def row(
        self, state: PolicyList, key: FlowKey, verdict: FlowVerdict, rules: Mapping[int, str]
    ) -> dict[str, Any]:
        """Returns a flow of a list. `rules` has the names of the list's rules by id."""
        stale = verdict.epoch != state.version.epoch
        is_later = key.fragment is FragmentClass.LATER
        is_icmp = key.protocol in ICMP_PROTOCOLS and not is_later
        is_mobility = key.protocol == MOBILITY and not is_later
        has_port = not is_icmp and not is_mobility
        return {
            "spd": state.spd,
            "direction": state.direction.value,
            "source": format_address(key.source),
            "destination": format_address(key.destination),
            "protocol": key.protocol,
            "source_port": key.source_port or None,
            "destination_port": key.destination_port or None if has_port else None,
            "icmp": f"{key.destination_port >> 8}/{key.destination_port & 0xFF}"
            if is_icmp
            else None,
            "mobility_type": key.destination_port if is_mobility else None,
            "later_fragments": is_later,
            "fragment": key.fragment.name.lower(),
            "local": key.is_local,
            "carried_by": self._bundle_names().get(key.bundle),
            # The rule of a stale flow may be deleted, and its id may belong to another rule now.
            **self.outcome(verdict, {} if stale else rules),
            "stale": stale,
        }

    def outcome(self, verdict: FlowVerdict, rules: Mapping[int, str]) -> dict[str, Any]:
        """Returns the action on a flow, and the rule that decides it."""
        protects = verdict.action is Action.PROTECT
        return {
            "action": verdict.action.name.lower(),
            "bundle": self._bundle_names().get(verdict.bundle) if protects else None,
            "rule": rules.get(verdict.rule_id),
        }

    def _bundle_names(self) -> dict[int, str]:
        names: dict[int, str] = self._controller.policy.numbers.names
        return names

# SPDX-License-Identifier: Apache-2.0
"""Handles all requests of the API: `show`, and requests that check and change policy.

`Requests(controller).answer(request)` is the server's handler. A request contains the text of rule
files, not their paths. So the client reads the files, with its user's permissions. Depends on views
and controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from sluice.api.commit_requests import CommitRequests
from sluice.api.rule_texts import RuleTexts
from sluice.api.sa_requests import SaRequests
from sluice.api.server import BadRequestError
from sluice.api.views import Views
from sluice.controller import Controller
from sluice.policy.model import Direction
from sluice.policy.review import RuleChange, describe, diff
from sluice.policy.spdtext import spd_document
from sluice.policy.start import PolicyError
from sluice.state.rule_ids import TooManyRulesError
from sluice.yamlreader import ConfigError

DEFAULT_CHANGED_FLOWS = 10
"""Number of flows of each list that `spd diff` lists one by one."""


class Requests:
    """Dispatches and answers all requests."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._policy = controller.policy
        self._views = Views(controller)
        self._sas = SaRequests(controller)
        self._texts = RuleTexts(controller)
        self._commands: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "show": self._views.answer,
            "clear counters": self._views.clear_counters,
            "explain": self._views.explain,
            "spd check": self._check,
            "spd diff": self._diff,
            "spd export": self._export,
            "flow-cache on": self._cache_on,
            "flow-cache off": self._cache_off,
            "flow-cache clear": self._cache_clear,
            **CommitRequests(controller, self._texts).commands,
            **self._sas.commands,
        }

    async def answer(self, request: dict[str, Any]) -> Any:
        """Returns the answer to a request. Raises BadRequestError."""
        command = self._commands.get(str(request.get("command")))
        if command is None:
            known = ", ".join(self._commands)
            raise BadRequestError(f"unknown command {request.get('command')!r}; there is: {known}")
        try:
            return await command(request)
        except (PolicyError, ConfigError, TooManyRulesError) as error:
            raise BadRequestError(str(error)) from error

    # -- rules

    async def _check(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        texts = await self._texts.read(request)
        checker = self._texts.checker(await self._texts.routing(request))
        # Checked in a thread. Otherwise the check of a long list would block the event loop and
        # delay packets.
        report = await asyncio.to_thread(checker.report, texts)
        for item in report:
            expansions = {
                direction.value: await self._views.policy.expansion(item["spd"], direction, rules)
                for direction, rules in texts[item["spd"]].rules.items()
            }
            item["rule_tables"] = {one: held for one, held in expansions.items() if held}
        return report

    async def _diff(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        pairs = [
            (name, direction, self._policy.rules.by_list[name, direction], text.rules[direction])
            for name, text in (await self._texts.read(request)).items()
            for direction in Direction
        ]

        def compared() -> list[dict[str, Any]]:
            lists: dict[str, dict[str, Any]] = {}
            for name, direction, before, after in pairs:
                changes = [*map(_change, diff(before, after))]
                lists.setdefault(name, {})[direction.value] = changes
            return [{"spd": name, "lists": changes} for name, changes in lists.items()]

        found = await asyncio.to_thread(compared)  # takes long for long lists
        limit = request.get("flows", DEFAULT_CHANGED_FLOWS)
        if not isinstance(limit, int) or limit < 0:
            raise BadRequestError("flows must be a whole number")
        for one in found:
            one["flows"] = {}
        by_name = {one["spd"]: one["flows"] for one in found}
        for name, direction, before, after in pairs:
            if before != after:
                views = self._views.policy
                changes = await views.flow_changes(name, direction, after, limit)
                changes["rule_tables"] = await views.expansion(name, direction, after)
                by_name[name][direction.value] = changes
        return found

    async def _export(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the rules in force as a document for `spd commit`."""
        name = self._policy.checked_spd_name(str(request.get("spd"))).name
        rules = {direction: self._policy.rules.by_list[name, direction] for direction in Direction}
        return spd_document(name, rules)

    # -- flow caches

    def _named(self, request: dict[str, Any]) -> list[str]:
        """Returns the SPD that a request names, or all SPDs."""
        name = request.get("spd")
        return list(self._policy.spds) if name is None else [str(name)]

    async def _cache_on(self, request: dict[str, Any]) -> Any:
        await self._policy.set_cache(self._named(request), enabled=True)
        return await self._shown(request)

    async def _cache_off(self, request: dict[str, Any]) -> Any:
        await self._policy.set_cache(self._named(request), enabled=False)
        return await self._shown(request)

    async def _cache_clear(self, request: dict[str, Any]) -> Any:
        await self._policy.clear_cache(self._named(request))
        return await self._shown(request)

    async def _shown(self, request: dict[str, Any]) -> Any:
        show = {"command": "show", "what": "flow-cache", "spd": request.get("spd")}
        return await self._views.answer(show)


def _change(change: RuleChange) -> dict[str, Any]:
    return {
        "change": change.change.value,
        "name": change.name,
        "position_before": change.position_before,
        "position_after": change.position_after,
        "before": change.before and describe(change.before),
        "after": change.after and describe(change.after),
    }

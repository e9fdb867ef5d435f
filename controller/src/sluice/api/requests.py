# SPDX-License-Identifier: Apache-2.0
"""Handles all requests of the API: `show`, and requests that check and change policy.

`Requests(controller).answer(request)` is the server's handler. A request contains the text of rule
files. The client has read the files with the permissions of its user. Depends on views and
controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from sluice.api.sa_requests import SaRequests
from sluice.api.server import BadRequestError
from sluice.api.views import Views
from sluice.controller import Controller
from sluice.frr import Routing, read_frr
from sluice.policy.check import Checker
from sluice.policy.model import Direction
from sluice.policy.review import RuleChange, describe, diff
from sluice.policy.spdfile import SpdText, load_spd
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
        self._commands: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "show": self._views.answer,
            "clear counters": self._views.clear_counters,
            "spd check": self._check,
            "spd diff": self._diff,
            "spd commit": self._commit,
            "spd export": self._export,
            "flow-cache on": self._cache_on,
            "flow-cache off": self._cache_off,
            "flow-cache clear": self._cache_clear,
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

    async def _texts(self, request: dict[str, Any]) -> dict[str, SpdText]:
        """Returns the rules of each SPD that a request contains or names.

        An error lists every problem of every file.
        """
        if request.get("configured") is not None:
            return await self._configured(request)
        files = request.get("files")
        if not isinstance(files, list) or not files:
            raise BadRequestError(
                "the request needs `files`: a list of {name, text}, one for each SPD; or"
                " `configured`: a list of SPD names"
            )
        # Parsing a long list takes long, and must not delay packets.
        return await asyncio.to_thread(self._checker(request).read, [*map(_file, files)])

    def _checker(self, request: dict[str, Any]) -> Checker:
        """Returns a checker, which also uses FRR's configuration if the request contains it."""
        routing = None
        if isinstance(frr := request.get("frr"), list):
            routing = Routing()
            for name, text in map(_file, frr):
                read_frr(text, name, routing)
        # Evaluated here, on the loop's thread, since the checker runs on another thread.
        own = self._policy.rules.named_by(self._policy.spds)
        return Checker(self._controller.config, lambda spd: own.get(spd, ()), routing)

    async def _configured(self, request: dict[str, Any]) -> dict[str, SpdText]:
        """Returns the rules of the SPDs that a request names.

        Reads the files that the configuration names for these SPDs. Rules in the configuration
        itself are not read again.
        """
        names = request["configured"]
        if not isinstance(names, list) or not names or request.get("files"):
            raise BadRequestError(
                "`configured` must be a list of SPD names, in a request without `files`"
            )
        texts: dict[str, SpdText] = {}
        problems: list[str] = []
        for name in map(str, names):
            spd = self._policy.checked_spd_name(name)
            if spd.is_mirrored:
                problems.append(
                    f"{name}: this SPD's rules are the kernel's IPsec policies; no file has them"
                )
                continue
            bundles = self._controller.config.policy.bundle_names(name)
            try:
                text = SpdText(name, spd.rules)
                if spd.file is not None:
                    text = await asyncio.to_thread(load_spd, spd.file, bundles)
            except ConfigError as error:
                problems += error.problems
                continue
            if text.name != name:
                problems.append(f"{spd.file} has rules of the SPD {text.name!r}, not of {name!r}")
            texts[name] = text
        if problems:
            raise BadRequestError(str(ConfigError(problems)))
        return texts

    async def _check(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        # Checking a long list takes long, and must not delay packets.
        return await asyncio.to_thread(self._checker(request).report, await self._texts(request))

    async def _diff(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        pairs = [
            (name, direction, self._policy.rules.by_list[name, direction], text.rules[direction])
            for name, text in (await self._texts(request)).items()
            for direction in Direction
        ]

        def compared() -> list[dict[str, Any]]:
            lists: dict[str, dict[str, Any]] = {}
            for name, direction, before, after in pairs:
                changes = [*map(_change, diff(before, after))]
                lists.setdefault(name, {})[direction.value] = changes
            return [{"spd": name, "lists": changes} for name, changes in lists.items()]

        found = await asyncio.to_thread(compared)  # comparing long lists takes long
        limit = request.get("flows", DEFAULT_CHANGED_FLOWS)
        if not isinstance(limit, int) or limit < 0:
            raise BadRequestError("flows must be a whole number")
        for one in found:
            one["flows"] = {}
        by_name = {one["spd"]: one["flows"] for one in found}
        for name, direction, before, after in pairs:
            if before != after:
                changes = await self._views.policy.flow_changes(name, direction, after, limit)
                by_name[name][direction.value] = changes
        return found

    async def _commit(self, request: dict[str, Any]) -> dict[str, Any]:
        texts, checker = await self._texts(request), self._checker(request)
        clock = asyncio.get_running_loop().time
        start = clock()
        changed = await self._policy.commit({name: text.rules for name, text in texts.items()})
        seconds = round(clock() - start, 6)
        return {
            "spds": list(texts),
            "changed": [
                {
                    "spd": state.spd,
                    "direction": state.direction.value,
                    "epoch": state.version.epoch,
                    "generation": state.version.generation,
                    "rules": len(state.rules),
                }
                for state in changed
            ],
            "warnings": await asyncio.to_thread(
                lambda: [one for text in texts.values() for one in checker.warnings(text)]
            ),
            "seconds": seconds,
        }

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


def _file(file: object) -> tuple[str, str]:
    if isinstance(file, Mapping):
        name, text = file.get("name"), file.get("text")
        if isinstance(name, str) and isinstance(text, str):
            return name, text
    raise BadRequestError("each item of `files` and of `frr` must have a `name` and a `text`")


def _change(change: RuleChange) -> dict[str, Any]:
    return {
        "change": change.change.value,
        "name": change.name,
        "position_before": change.position_before,
        "position_after": change.position_after,
        "before": change.before and describe(change.before),
        "after": change.after and describe(change.after),
    }

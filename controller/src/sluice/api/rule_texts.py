# SPDX-License-Identifier: Apache-2.0
"""Reads the rules of a request. A request either contains rule files, or names configured rules or
those of an earlier commit.

Depends on controller, policy.check and policy.history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.frr import Routing, read_frr
from sluice.policy.change_steps import ChangeStep
from sluice.policy.check import Checker
from sluice.policy.plain_spd import load
from sluice.policy.spdfile import SpdText
from sluice.yamlreader import ConfigError

_SOURCES = ("files", "configured", "commit")
"""Keys of a request that give rules."""


COUNTED_AT_ONCE = 1 << 20
"""Characters of a text in which rules are counted before other threads may run."""


class RuleTexts:
    """Reads the rules of requests, and makes checkers that validate them."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._policy = controller.policy

    async def read(self, request: dict[str, Any]) -> dict[str, SpdText]:
        """Returns the rules of each SPD that a request contains or names.

        An error lists every problem of every file.
        """
        given = [key for key in _SOURCES if request.get(key) is not None]
        if len(given) > 1:
            raise BadRequestError(f"{' and '.join(given)}: give only one of them")
        if request.get("configured") is not None:
            return await self._configured(request)
        if request.get("commit") is not None:
            return await self._committed(request)
        files = request.pop("files", None)  # frees long texts
        if not isinstance(files, list) or not files:
            raise BadRequestError(
                "the request needs `files`: a list of {name, text}, one for each SPD; or"
                " `configured`: a list of SPD names; or `commit`: a number of `spd log`"
            )
        _frr_files(request)
        # Parsed in a thread. Otherwise parsing a long list would block the event loop and delay
        # packets.
        texts = [*map(_file, files)]
        del files
        return await asyncio.to_thread(self._parse, texts, self.checker())

    def _parse(self, files: list[tuple[str, str]], checker: Checker) -> dict[str, SpdText]:
        """Parses files and reports the progress."""
        steps = self._policy.steps
        rules = sum(_count_rules(text) for _, text in files)
        with steps.during(ChangeStep.READING, rules):
            return replace(checker, progress=steps.report).read(files)

    async def routing(self, request: dict[str, Any]) -> Routing | None:
        """Returns the sessions in FRR's configuration, or None if the request does not contain it.

        Parses in a thread: the configuration may be long.
        """
        frr = _frr_files(request)
        return None if frr is None else await asyncio.to_thread(_read_routing, frr)

    def checker(self, routing: Routing | None = None) -> Checker:
        """Returns a checker of rules.

        With `routing`, the checker also warns of rules that block FRR's sessions.
        """
        # Read here, in the event loop's thread, which changes the rules. The checker runs in
        # another thread.
        own = self._policy.rules.named_by(self._policy.spds)
        return Checker(self._controller.config, lambda spd: own.get(spd, ()), routing)

    async def _configured(self, request: dict[str, Any]) -> dict[str, SpdText]:
        """Returns the configured rules of the SPDs that a request names.

        Reads again the rule files that the configuration names. Rules in the configuration itself
        are not read again.
        """
        names = request["configured"]
        if not isinstance(names, list) or not names or request.get("files"):
            raise BadRequestError(
                "`configured` must be a list of SPD names, in a request without `files`"
            )
        texts: dict[str, SpdText] = {}
        problems: list[str] = []
        for name in dict.fromkeys(map(str, names)):  # ignores repeated names
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
                    text = await asyncio.to_thread(load, spd.file, bundles)
            except ConfigError as error:
                problems += error.problems
                continue
            if text.name != name:
                problems.append(f"{spd.file} has rules of the SPD {text.name!r}, not of {name!r}")
            texts[name] = text
        if problems:
            raise BadRequestError(str(ConfigError(problems)))
        return texts

    async def _committed(self, request: dict[str, Any]) -> dict[str, SpdText]:
        """Returns the rules that were in force right after an earlier commit.

        Restricts them to the SPDs that the request names, if it names any.
        """
        number, spds = commit_number(request), request.get("spds", [])
        if not isinstance(spds, list):
            raise BadRequestError("spds: must be a list of names of SPDs")
        names = [*dict.fromkeys(map(str, spds))]  # ignores repeated names
        for spd in names:
            self._policy.checked_spd_name(spd)
        rules = await self._policy.rules_after(number, names)
        problems = [
            f"commit {number}, {spd}: the {direction.value} rule {rule.name!r} names the bundle"
            f" {rule.bundle!r}, which is not configured"
            for spd, lists in rules.items()
            for direction, listed in lists.items()
            for rule in listed
            if rule.bundle not in {None, *self._controller.config.policy.bundle_names(spd)}
        ]
        if problems:
            raise BadRequestError(str(ConfigError(problems)))
        return {spd: SpdText(spd, lists) for spd, lists in rules.items()}


def _count_rules(text: str) -> int:
    """Estimates the number of rules in a text. Lets other threads run meanwhile."""
    key = "name:"
    return sum(
        text.count(key, start, start + COUNTED_AT_ONCE + len(key) - 1)
        for start in range(0, len(text), COUNTED_AT_ONCE)
    )


def commit_number(request: dict[str, Any]) -> int:
    """Returns the number of the earlier commit that a request names. Raises BadRequestError."""
    number = request.get("commit")
    if not isinstance(number, int) or isinstance(number, bool):
        raise BadRequestError("commit: must be a number of `spd log`")
    return number


def _frr_files(request: dict[str, Any]) -> list[tuple[str, str]] | None:
    """Returns the files of FRR's configuration in a request, as (name, text)."""
    frr = request.get("frr")
    return [*map(_file, frr)] if isinstance(frr, list) else None


def _read_routing(files: list[tuple[str, str]]) -> Routing:
    routing = Routing()
    for name, text in files:
        read_frr(text, name, routing)
    return routing


def _file(file: object) -> tuple[str, str]:
    if isinstance(file, Mapping):
        name, text = file.get("name"), file.get("text")
        if isinstance(name, str) and isinstance(text, str):
            return name, text
    raise BadRequestError("each item of `files` and of `frr` must have a `name` and a `text`")

# SPDX-License-Identifier: Apache-2.0
"""Handles the API's requests that change rules, and the request for the list of earlier commits.

A request changes all rules of an SPD (`spd commit`) or a single rule (`spd add`, `spd delete`, `spd
move`), or restores the rules of an earlier commit (`spd rollback`). `policy.enforcement` commits
each change. Depends on rule_texts and controller.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

from sluice.api.policy_views import in_rule_tables
from sluice.api.rule_texts import RuleTexts, commit_number
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.garbage_collection import paused_if
from sluice.policy import rule_edits
from sluice.policy.change_steps import ChangeStep
from sluice.policy.check import Checker
from sluice.policy.encoded_rules import is_long
from sluice.policy.history import CommitEntry
from sluice.policy.model import Direction, Rule
from sluice.policy.rule_edits import InsertAt, InsertionPoint
from sluice.policy.spdfile import SpdText, parse_rule
from sluice.state.spd import ListName, PolicyList

MESSAGE_LENGTH = 1000
"""Largest length of a commit's message, in characters."""
RULE_BYTES = 64 << 10
"""Largest length of the rule of `spd add`, in bytes of UTF-8. Longer rules need a file."""


class CommitRequests:
    """Handles the commands that change rules, `spd log` and `spd progress`."""

    def __init__(self, controller: Controller, texts: RuleTexts) -> None:
        self._controller = controller
        self._policy = controller.policy
        self._texts = texts
        self.commands: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "spd commit": self._commit,
            "spd add": self._add,
            "spd delete": self._delete,
            "spd move": self._move,
            "spd rollback": self._rollback,
            "spd log": self._log,
            "spd progress": self._progress,
        }

    async def _commit(self, request: dict[str, Any]) -> dict[str, Any]:
        return await self._commit_texts(request, "commit")

    async def _rollback(self, request: dict[str, Any]) -> dict[str, Any]:
        number = commit_number(request)
        only = {"commit": number, "spds": request.get("spds", []), "message": _message(request)}
        return await self._commit_texts(only, f"rollback to {number}")

    async def _commit_texts(self, request: dict[str, Any], change: str) -> dict[str, Any]:
        texts, message = await self._texts.read(request), _message(request)
        rules = {name: text.rules for name, text in texts.items()}
        commit = partial(self._policy.commit, rules, change, message)
        return await self._answer([*texts], commit, texts)

    async def _add(self, request: dict[str, Any]) -> dict[str, Any]:
        spd, direction = self._list(request)
        bundles = self._controller.config.policy.bundle_names(spd)
        # Parsed in a thread. Otherwise parsing a long rule would block the event loop and delay
        # packets.
        rule = await asyncio.to_thread(
            parse_rule, _rule_text(request), "the rule", direction, bundles
        )
        edit = partial(rule_edits.add, rule=rule, to=_insertion_point(request))
        return await self._edit((spd, direction), edit, f"add {rule.name}", request)

    async def _delete(self, request: dict[str, Any]) -> dict[str, Any]:
        name = str(request.get("name"))
        edit = partial(rule_edits.delete, name=name)
        return await self._edit(self._list(request), edit, f"delete {name}", request)

    async def _move(self, request: dict[str, Any]) -> dict[str, Any]:
        name = str(request.get("name"))
        edit = partial(rule_edits.move, name=name, to=_insertion_point(request))
        return await self._edit(self._list(request), edit, f"move {name}", request)

    async def _edit(
        self,
        name: ListName,
        edit: Callable[[Sequence[Rule]], tuple[Rule, ...]],
        change: str,
        request: dict[str, Any],
    ) -> dict[str, Any]:
        """Applies `edit` to the rules of one list and commits them. Returns the API's answer."""
        spd, _ = name
        by_list = self._policy.rules.by_list
        texts: dict[str, SpdText] = {}

        async def commit() -> list[PolicyList]:
            changed = await self._policy.edit(name, edit, change, _message(request))
            rules = {one: by_list[spd, one] for one in Direction}
            if not any(map(is_long, rules.values())):
                texts[spd] = SpdText(spd, rules)
            return changed

        return await self._answer([spd], commit, texts)

    async def _answer(
        self,
        spds: Sequence[str],
        commit: Callable[[], Awaitable[list[PolicyList]]],
        texts: Mapping[str, SpdText],
    ) -> dict[str, Any]:
        """Calls `commit`, which changes these SPDs. Returns the API's answer: changed lists,
        duration and warnings.

        The warnings are about `texts`, which are read after the commit. If a single rule of a long
        list has changed, the list is not among them, because its analysis would take much longer
        than the change.
        """
        checker = self._texts.checker()
        start = asyncio.get_running_loop().time()
        changed = await commit()
        return {
            "spds": list(spds),
            "changed": [
                {
                    "spd": state.spd,
                    "direction": state.direction.value,
                    "epoch": state.version.epoch,
                    "generation": state.version.generation,
                    "rules": len(state.rules),
                    "rule_tables": in_rule_tables(self._policy, state),
                }
                for state in changed
            ],
            "warnings": await asyncio.to_thread(self._warnings, checker, texts.values()),
            "unchecked": [spd for spd in spds if spd not in texts],
            "seconds": round(self._policy.in_force_at - start, 6),
        }

    def _warnings(self, checker: Checker, texts: Collection[SpdText]) -> list[str]:
        is_any_long = any(is_long(rules) for text in texts for rules in text.rules.values())
        with self._policy.steps.during(ChangeStep.WARNINGS), paused_if(is_any_long):
            return [one for text in texts for one in checker.warnings(text)]

    def _list(self, request: dict[str, Any]) -> ListName:
        """Returns the SPD and direction that a request names.

        Raises BadRequestError or PolicyError.
        """
        try:
            direction = Direction(request.get("direction"))
        except ValueError:
            names = " or ".join(one.value for one in Direction)
            raise BadRequestError(f"direction: must be {names}") from None
        return self._policy.checked_spd_name(str(request.get("spd"))).name, direction

    async def _progress(self, _: dict[str, Any]) -> dict[str, Any] | None:
        """Returns the progress of the change of rules that is running, or None if there is none."""
        now = self._policy.steps.now
        return None if now is None else now._asdict()

    async def _log(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        """Returns the commits in the history, the newest first."""
        spd = request.get("spd")
        if spd is not None:
            self._policy.checked_spd_name(str(spd))
        return [
            _shown(entry)
            for entry in reversed(self._policy.history.entries)
            if spd is None or spd in entry.changed or (not entry.changed and spd in entry.digests)
        ]


def _rule_text(request: dict[str, Any]) -> str:
    text = str(request.get("rule"))
    size = len(text.encode("utf-8", "surrogatepass"))
    if size > RULE_BYTES:
        raise BadRequestError(
            f"rule: has {size:,} bytes, over the limit of {RULE_BYTES:,}; write it into the SPD's"
            " file and use `spd commit`"
        )
    return text


def _message(request: dict[str, Any]) -> str | None:
    message = request.get("message")
    if message is None:
        return None
    if not isinstance(message, str) or len(message) > MESSAGE_LENGTH:
        raise BadRequestError(f"message: must be text of at most {MESSAGE_LENGTH} characters")
    refused = next((one for one in message if not one.isprintable()), None)
    if refused is not None:
        raise BadRequestError(
            f"message: has {refused!a}, which is not printable; write one line of printable text"
        )
    return message


def _insertion_point(request: dict[str, Any]) -> InsertionPoint:
    """Returns the insertion point that a request names. The default is the end of the list."""
    try:
        at = InsertAt(request.get("at", InsertAt.LAST.value))
    except ValueError:
        names = ", ".join(one.value for one in InsertAt)
        raise BadRequestError(f"at: must be one of {names}") from None
    name = request.get("next_to")
    if (at in (InsertAt.BEFORE, InsertAt.AFTER)) != isinstance(name, str):
        raise BadRequestError("next_to: the name of a rule, with `at` before or after only")
    return InsertionPoint(at, name or "")


def _shown(entry: CommitEntry) -> dict[str, Any]:
    at = datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="seconds")
    return {
        "number": entry.number,
        "time": at.replace("+00:00", "Z"),
        "change": entry.change,
        "message": entry.message,
        "author": entry.author and entry.author._asdict(),
        "changed": {
            spd: {direction.value: counts._asdict() for direction, counts in lists.items()}
            for spd, lists in entry.changed.items()
        },
        "spds": [*entry.digests],
    }

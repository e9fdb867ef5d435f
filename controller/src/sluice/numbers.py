# SPDX-License-Identifier: Apache-2.0
"""Assigns the pipeline's numbers to interfaces, by name. A file preserves them over restarts.

New names get numbers in the order of the configuration. A removed name keeps its number while
unused numbers are left, so a number is rarely reassigned. A number is `moved` if it is reassigned.
Without the file, every assigned number is `moved`, because the switch may use it for another
interface. The controller first closes the entities of a moved number in the switch, so that they
drop packets. Then it calls `settled`, and the number belongs to the new interface.

Engines' ports are numbered like interfaces. The file is JSON, replaced as a whole. Depends on
config and durable.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from sluice.config import MAX_INTERFACES, Config
from sluice.durable import replace_json
from sluice.policy.config import EngineConfig

FILE_NAME = "interfaces.json"
VERSION = 1


class NumbersError(Exception):
    """Reports that the file cannot be read or written, or that its content is damaged."""


class InterfaceNumbers:
    """Holds the numbers of one router. Raises NumbersError."""

    def __init__(self, directory: Path) -> None:
        self.path = directory / FILE_NAME
        self._numbers: dict[str, int] = {}
        self.moved: frozenset[int] = frozenset()
        """Numbers whose entities in the switch may belong to another interface."""

    def assign(self, config: Config) -> Config:
        """Returns the configuration with the numbers of its interfaces and engines. On return the
        numbers are on disk."""
        names = [one.name for one in config.interfaces] + list(map(_name, config.policy.engines))
        known = self.path.exists()
        numbers, pending = self._load() if known else ({}, frozenset())
        self._numbers, moved = _numbered(names, numbers)
        given = frozenset(self._numbers[name] for name in names)
        self.moved = given & (pending | moved) if known else given
        self._save()
        interfaces = tuple(replace(one, l3_if=self._numbers[one.name]) for one in config.interfaces)
        engines = tuple(
            replace(one, l3_if=self._numbers[_name(one)]) for one in config.policy.engines
        )
        policy = replace(config.policy, engines=engines)
        return replace(config, interfaces=interfaces, policy=policy)

    def settled(self) -> None:
        """Clears `moved`. Called when no entity in the switch uses a moved number in its earlier
        meaning."""
        if self.moved:
            self.moved = frozenset()
            self._save()

    def _load(self) -> tuple[dict[str, int], frozenset[int]]:
        try:
            document = json.loads(self.path.read_bytes())
            if document["version"] != VERSION:
                raise ValueError(f"its version is {document['version']}, not {VERSION}")
            numbers = {str(name): _number(one) for name, one in document["numbers"].items()}
            if len(set(numbers.values())) != len(numbers):
                raise ValueError("two interfaces have the same number")
            return numbers, frozenset(map(_number, document["moved"]))
        except OSError as error:
            raise NumbersError(f"{self.path}: {error.strerror}") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            raise NumbersError(
                f"{self.path}: damaged ({error}); remove the file and start again: the interfaces"
                " then drop packets for a moment, until they have new numbers"
            ) from None

    def _save(self) -> None:
        document = {"version": VERSION, "numbers": self._numbers, "moved": sorted(self.moved)}
        try:
            replace_json(self.path, document)
        except OSError as error:
            raise NumbersError(f"{self.path}: {error.strerror}") from None


def _numbered(names: Iterable[str], known: dict[str, int]) -> tuple[dict[str, int], frozenset[int]]:
    """Returns the numbers of all names, known and new, and which of these numbers were
    reassigned."""
    numbers = dict(known)
    new = [name for name in names if name not in known]
    taken = set(known.values())
    free = [one for one in range(1, MAX_INTERFACES + 1) if one not in taken]
    if len(free) < len(new):
        wanted = set(names)
        free += sorted(numbers.pop(name) for name in known if name not in wanted)
    if len(free) < len(new):
        raise NumbersError(f"at most {MAX_INTERFACES} interfaces and engines together are possible")
    given = dict(zip(new, free, strict=False))
    return numbers | given, frozenset(given.values()) & taken


def _name(engine: EngineConfig) -> str:
    """Returns the name of an engine's port. Its colon distinguishes it from names of interfaces."""
    return f"engine:{engine.id}"


def _number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_INTERFACES:
        raise ValueError(f"{value!r} is not the number of an interface")
    return value

# SPDX-License-Identifier: Apache-2.0
"""Resolves names of a compiled program: tables, keys, actions and counters.

Depends on P4Info's protobuf. STF scripts use short names. A table, action or counter is found by
its full name, or else by an ending that only one full name has. A key is found by its name in BMv2
JSON, where `x$1` stands for `x[1]` and `valid` for `$valid$`. A name that matches none or several
raises UnknownName.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeVar

from google.protobuf import text_format
from p4.config.v1 import p4info_pb2

from sluice_conformance import derived


class UnknownName(Exception):
    """A script uses a name that the program does not have, or has several times."""


@dataclass(frozen=True)
class Key:
    """A field of a table's key. `kind` is P4Info's match type in lower case."""

    id: int
    name: str
    width: int
    kind: str


@dataclass(frozen=True)
class Action:
    """An action: its id and name, and (id, name, width) of each parameter."""

    id: int
    name: str
    parameters: tuple[tuple[int, str, int], ...]


@dataclass(frozen=True)
class Table:
    """A table that the control plane can write."""

    id: int
    name: str
    keys: tuple[Key, ...]
    actions: tuple[Action, ...]

    @property
    def has_priority(self) -> bool:
        """Returns whether entries need a priority (P4Runtime 1.5, section 9.1.1)."""
        return any(key.kind in ("ternary", "range", "optional") for key in self.keys)

    def key(self, name: str) -> Key:
        """Returns the key field that a script calls `name`. Raises UnknownName."""
        plain = re.sub(r"\$(\d+)", r"[\1]", name)
        exact = (plain, f"{plain}$", f"{plain}.$valid$", re.sub(r"\.valid$", ".$valid$", plain))
        for candidates in (exact, (f".{plain}", f".{plain}$", f".{plain}.$valid$")):
            for key in self.keys:
                if key.name in candidates if candidates is exact else key.name.endswith(candidates):
                    return key
        if plain == "valid":
            for key in self.keys:
                if key.name.endswith("$valid$"):
                    return key
        names = ", ".join(key.name for key in self.keys)
        raise UnknownName(f"table {self.name} has no key {name!r}; it has {names or 'none'}")

    def action(self, name: str) -> Action:
        """Returns the action that a script calls `name`. Raises UnknownName."""
        return by_ending(self.actions, name, f"action of table {self.name}")


@dataclass(frozen=True)
class Counter:
    """A counter. `table_id` is the table of a direct counter, and 0 for an indirect counter."""

    id: int
    name: str
    table_id: int


class Program:
    """The tables and counters of a program."""

    def __init__(self, p4info: Any, key_names: dict[str, list[str]]):
        self.p4info = p4info
        actions = {info.preamble.id: _action(info) for info in p4info.actions}
        self.tables = [_table(info, actions, key_names) for info in p4info.tables]
        self.counters = [
            Counter(info.preamble.id, info.preamble.name, 0) for info in p4info.counters
        ]
        self.counters += [
            Counter(info.preamble.id, info.preamble.name, info.direct_table_id)
            for info in p4info.direct_counters
        ]

    @classmethod
    def load(cls, json_path: Path, p4info_path: Path) -> Program:
        """Reads p4c's output. P4Info is derived from the JSON if p4c has written none."""
        bmv2 = json.loads(json_path.read_text(encoding="utf-8"))
        if p4info_path.exists():
            p4info = p4info_pb2.P4Info()
            text_format.Parse(p4info_path.read_text(encoding="utf-8"), p4info)
        else:
            p4info = derived.p4info(bmv2)
        names = {
            table["name"]: [_json_key_name(key) for key in table["key"]]
            for pipeline in bmv2["pipelines"]
            for table in pipeline["tables"]
        }
        return cls(p4info, names)

    def table(self, name: str) -> Table:
        """Returns the table that a script calls `name`. Raises UnknownName."""
        return by_ending(self.tables, name, "table")

    def counter(self, name: str) -> Counter:
        """Returns the counter that a script calls `name`. Raises UnknownName."""
        return by_ending(self.counters, name, "counter")


class Named(Protocol):
    """An object that a script refers to by name."""

    @property
    def name(self) -> str:
        """Full name of the object."""


Thing = TypeVar("Thing", bound=Named)


def by_ending(things: Iterable[Thing], name: str, what: str) -> Thing:
    """Returns the object with this full name, else the only one whose name ends with it.

    Raises UnknownName.
    """
    known = list(things)
    found = [thing for thing in known if thing.name == name]
    found = found or [thing for thing in known if thing.name.endswith(name)]
    if len(found) == 1:
        return found[0]
    problem = "several things are the" if found else "no"
    names = ", ".join(sorted(thing.name for thing in (found or known)))
    raise UnknownName(f"{problem} {what} {name!r}: {names or 'there is none'}")


def _json_key_name(key: dict[str, Any]) -> str:
    if "name" in key:
        return str(key["name"])
    target = key["target"]
    return target if isinstance(target, str) else ".".join(target)


def _action(info: Any) -> Action:
    parameters = tuple((param.id, param.name, param.bitwidth) for param in info.params)
    return Action(info.preamble.id, info.preamble.name, parameters)


def _table(info: Any, actions: dict[int, Action], key_names: dict[str, list[str]]) -> Table:
    fields: Sequence[Any] = info.match_fields
    names = key_names.get(info.preamble.name, [])
    if len(names) != len(fields):
        names = [field.name for field in fields]
    keys = tuple(
        Key(
            field.id,
            name,
            field.bitwidth,
            p4info_pb2.MatchField.MatchType.Name(field.match_type).lower(),
        )
        for field, name in zip(fields, names, strict=True)
    )
    refs = tuple(actions[ref.id] for ref in info.action_refs)
    return Table(info.preamble.id, info.preamble.name, keys, refs)

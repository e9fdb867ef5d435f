# SPDX-License-Identifier: Apache-2.0
"""Parses STF, the language of p4c's test scripts.

Needs only the standard library. A line has one statement, `#` begins a comment, and keywords are
case-insensitive. Names may be quoted. Names and numbers are returned as written; `control` converts
them with the names of the program. A line that is not a statement raises StfError with its number.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass


class StfError(Exception):
    """A line that is not STF, or a statement that v1model targets do not support."""


@dataclass(frozen=True)
class Call:
    """An action with its arguments: pairs of name and value, as written."""

    action: str
    arguments: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Add:
    """Adds a table entry. The entry with the higher priority wins. Keys are pairs of name and
    value, as written.
    """

    table: str
    priority: int | None
    keys: tuple[tuple[str, str], ...]
    call: Call
    label: str | None = None


@dataclass(frozen=True)
class SetDefault:
    """Sets the default action of a table."""

    table: str
    call: Call


@dataclass(frozen=True)
class CheckCounter:
    """Checks a counter's cell, which is named by index or by an entry's label.

    Without `unit`, checks only that the cell exists.
    """

    counter: str
    cell: int | str
    unit: str | None
    relation: str
    value: int


@dataclass(frozen=True)
class Packet:
    """A packet that the switch receives."""

    port: int
    data: bytes


@dataclass(frozen=True)
class Expect:
    """The next packet that must leave by a port.

    `pattern` is hexadecimal, with `*` for any digit; None matches any packet. Unless `whole`, more
    bytes may follow.
    """

    port: int
    pattern: str | None
    whole: bool


@dataclass(frozen=True)
class MirrorTo:
    """Adds a clone session with one port."""

    session: int
    port: int


@dataclass(frozen=True)
class MirrorToGroup:
    """Adds a clone session with the replicas of a multicast group."""

    session: int
    group: int


@dataclass(frozen=True)
class CreateGroup:
    """Adds a multicast group without replicas."""

    group: int


@dataclass(frozen=True)
class CreateNode:
    """Adds a multicast node: ports with one replication id.

    Nodes are numbered from 0 in this order.
    """

    replication_id: int
    ports: tuple[int, ...]


@dataclass(frozen=True)
class Associate:
    """Adds a node to a multicast group."""

    group: int
    node: int


@dataclass(frozen=True)
class Wait:
    """Waits until the packets sent so far have left."""


Statement = (
    Add
    | SetDefault
    | CheckCounter
    | Packet
    | Expect
    | MirrorTo
    | MirrorToGroup
    | CreateGroup
    | CreateNode
    | Associate
    | Wait
)

_WORD = r'(?:"[^"]+"|[A-Za-z_$][\w$]*(?:\[\d+\])?(?:\.[A-Za-z_$][\w$]*(?:\[\d+\])?)*)'
_VALUE = r"[0-9][\w*]*(?:/\d+|(?:->|\.\.)[0-9]\w*)?"
_ARGUMENT = re.compile(rf"({_WORD})\s*:\s*({_VALUE})")
_CALL = re.compile(rf"({_WORD})\s*\(([^()]*)\)")
_ADD = re.compile(
    rf"({_WORD})\s+(?:(\d+)\s+)?((?:{_WORD}\s*:\s*{_VALUE}\s*)*)({_WORD}\s*\([^()]*\))"
    rf"\s*(?:=\s*({_WORD}))?"
)
_COUNTER = re.compile(
    rf"({_WORD})\s*\(\s*(\d+|{_WORD})\s*\)\s*(?:(packets|bytes)\s*(==|!=|<=|>=|<|>)\s*(\d+))?",
    re.IGNORECASE,
)


def parse(text: str) -> list[tuple[int, Statement]]:
    """Returns all statements with their line numbers, in order. Raises StfError."""
    statements = []
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.split("#")[0].strip()
        if not stripped:
            continue
        keyword, _, rest = stripped.partition(" ")
        make = _STATEMENTS.get(keyword.lower())
        if make is None:
            raise StfError(f"line {number}: {keyword!r} is not a statement of v1model STF")
        try:
            statements.append((number, make(rest.strip())))
        except ValueError as error:
            raise StfError(f"line {number}: {error}: {stripped}") from None
    return statements


def number(text: str) -> int:
    """Parses an unsigned number: decimal, 0x, 0b or 0o. Raises ValueError."""
    return int(text, 0) if text[:1] == "0" and len(text) > 1 and text[1].isalpha() else int(text)


def _name(text: str) -> str:
    return text.strip('"')


def _whole(pattern: re.Pattern[str], text: str, what: str) -> re.Match[str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise ValueError(f"not {what}")
    return found


def _pairs(text: str, separator: str) -> tuple[tuple[str, str], ...]:
    """Parses pairs NAME:VALUE. Only the separator may stand between two pairs."""
    found = _ARGUMENT.findall(text)
    if _ARGUMENT.sub("", text).replace(separator, "").strip():
        raise ValueError("not a list of NAME:VALUE")
    return tuple((_name(name), value) for name, value in found)


def _call(text: str) -> Call:
    found = _whole(_CALL, text, "ACTION(NAME:VALUE, ...)")
    return Call(_name(found[1]), _pairs(found[2], ","))


def _add(rest: str) -> Statement:
    found = _whole(_ADD, rest, "add TABLE [PRIORITY] KEY:VALUE... ACTION(...) [= LABEL]")
    priority = None if found[2] is None else int(found[2])
    keys = _pairs(found[3], " ")
    return Add(_name(found[1]), priority, keys, _call(found[4]), found[5])


def _set_default(rest: str) -> Statement:
    table, _, call = rest.partition(" ")
    return SetDefault(_name(table), _call(call.strip()))


def _check_counter(rest: str) -> Statement:
    found = _whole(_COUNTER, rest, "check_counter COUNTER(CELL) [packets|bytes == N]")
    cell: int | str = int(found[2]) if found[2].isdigit() else _name(found[2])
    if found[3] is None:
        return CheckCounter(_name(found[1]), cell, None, "==", 0)
    return CheckCounter(_name(found[1]), cell, found[3].lower(), found[4], int(found[5]))


def _packet(rest: str) -> Statement:
    port, _, data = rest.partition(" ")
    return Packet(int(port), bytes.fromhex(data.replace(" ", "")))


def _expect(rest: str) -> Statement:
    port, _, data = rest.partition(" ")
    pattern = re.sub(r"\s", "", data).lower()
    whole = pattern.endswith("$")
    pattern = pattern.removesuffix("$")
    if re.fullmatch(r"[0-9a-f*]*", pattern) is None:
        raise ValueError("not hexadecimal digits and *")
    return Expect(int(port), pattern or None, whole)


def _numbers(count: int, make: Callable[..., Statement]) -> Callable[[str], Statement]:
    def parse_numbers(rest: str) -> Statement:
        numbers = [number(word) for word in rest.split()]
        if len(numbers) != count:
            raise ValueError(f"needs {count} numbers")
        return make(*numbers)

    return parse_numbers


def _node(rest: str) -> Statement:
    replication_id, *ports = (number(word) for word in rest.split())
    return CreateNode(replication_id, tuple(ports))


_STATEMENTS: dict[str, Callable[[str], Statement]] = {
    "add": _add,
    "setdefault": _set_default,
    "check_counter": _check_counter,
    "packet": _packet,
    "expect": _expect,
    "mirroring_add": _numbers(2, MirrorTo),
    "mirroring_add_mc": _numbers(2, MirrorToGroup),
    "mc_mgrp_create": _numbers(1, CreateGroup),
    "mc_node_create": _node,
    "mc_node_associate": _numbers(2, Associate),
    "wait": lambda rest: Wait(),
}

# SPDX-License-Identifier: Apache-2.0
"""Reads SPD files in a simple subset of YAML, without a general YAML parser.

PyYAML takes a third of a millisecond per rule, and five minutes for a million rules. `read_plain`
takes some 15 µs per rule, but reads a subset of YAML only: each rule is a flow mapping on one line
or more (`- {name: ...}`), or a block mapping of scalars and flow lists, as `sluice spd export`
writes them. Scalars consist of letters, digits and `_./:-`, and may be in quotes. Whole lines may
be comments.

Invariant: `read_plain` returns what `spdfile` returns for the same text, or None. It returns None
for every text with a problem, so that `spdfile` reports all problems. Depends on spdfile.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from sluice.garbage_collection import paused_if
from sluice.policy.model import (
    OPAQUE,
    Action,
    AddressRange,
    Direction,
    NumberRange,
    Opaque,
    Rule,
)
from sluice.policy.spdfile import (
    ANY_NAMES,
    OPAQUE_NAMES,
    Bundles,
    SpdText,
    load_spd,
    misplaced_selectors,
    parse_spd,
    to_action,
    to_address_range,
    to_from_packet,
    to_icmp,
    to_mobility_types,
    to_ports,
    to_protocol,
)
from sluice.yamlreader import read_text

T = TypeVar("T")
MAXIMUM_BYTES = 256 << 20
"""Limit of a plain text, in bytes. The general parser has a lower limit (`yamlnodes`)."""
LONG_TEXT = 1 << 20
"""Length of a text from which on there are no garbage collections meanwhile."""
SEARCHED_AT_ONCE = 1 << 18
"""Characters that are searched before other threads may run."""
REPORTED_EVERY = 10_000
"""Rules between two reports of progress."""

_SCALAR = r"""(?:[A-Za-z0-9][\w./:-]*(?<!:)|'[\w./:-]+'|"[\w./:-]+")"""
_BREAK = r"(?: |\n {6,})*"
_VALUE = rf"(?:{_SCALAR}|\[{_BREAK}{_SCALAR}{_BREAK}(?:,{_BREAK}{_SCALAR}{_BREAK})*\])"
_PAIR = rf"[a-z_]+: +{_VALUE}"
_FLAGS = re.ASCII | re.MULTILINE
_FLOW = re.compile(rf" *\{{{_BREAK}{_PAIR}{_BREAK}(?:,{_BREAK}{_PAIR}{_BREAK})*\}}\s*", _FLAGS)
_PAIRS = re.compile(rf"([a-z_]+): +({_VALUE})", _FLAGS)
_CONTROL = re.compile(r"[^\n\x20-\x7e]")
_COMMENTS = re.compile(r"^ *#.*\n", re.MULTILINE)
_SECTION = re.compile(r"(spd|inbound|outbound):(?: +([\w.-]+|\[\]))? *\n", _FLAGS)
_SECTION_START = re.compile(r"^[a-z]", re.MULTILINE)
_NAME = re.compile(r"[A-Za-z][\w.-]{0,63}", re.ASCII)
_RESERVED = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
"""Words that YAML 1.1 does not read as text, in lower case."""
_IPV4 = re.compile(r"\d+\.\d+\.\d+\.\d+(?:[/-][\d./]+)?", re.ASCII)
_IPV6 = re.compile(r"[0-9a-f][0-9a-f:]*(?:[a-f]|::)[0-9a-f:]*(?:[/-][0-9a-f:]+)?")
_NUMBER = r"(?:0|[1-9]\d{0,4})"
_NUMBERS = re.compile(rf"{_NUMBER}(?:-{_NUMBER})?(?:/{_NUMBER}(?:-{_NUMBER})?)?", re.ASCII)
_KEYS = frozenset(
    {
        *("name", "action", "bundle", "source", "destination", "protocol", "source_ports"),
        *("destination_ports", "icmp", "mobility_types", "from_packet"),
        *("audit", "reject"),
    }
)
"""The keys that `_rule` reads. A rule with any other key is left to the general parser, so that a
selector that this module does not know can never be ignored."""


class _UnusualError(Exception):
    """Raised for a text that the general parser must read."""


def load(path: Path, bundles: Bundles) -> SpdText:
    """Reads an SPD from a file, like `spdfile.load_spd`."""
    return read_plain(read_text(path, MAXIMUM_BYTES), lambda _: bundles) or load_spd(path, bundles)


def parse(
    text: str,
    name: str,
    bundles: Callable[[str], Bundles],
    progress: Callable[[int], None] = lambda _: None,
) -> SpdText:
    """Reads an SPD from a text, like `spdfile.parse_spd`.

    Calls `progress` with the number of rules read so far.
    """
    return read_plain(text, bundles, progress) or parse_spd(text, name, bundles)


def read_plain(
    text: str,
    bundles: Callable[[str], Bundles],
    progress: Callable[[int], None] = lambda _: None,
) -> SpdText | None:
    """Reads an SPD from a text. Returns None if the general parser must read the text."""
    try:
        with paused_if(len(text) > LONG_TEXT):
            return _read(text, bundles, progress)
    except (_UnusualError, ValueError):
        return None


def _read(text: str, bundles: Callable[[str], Bundles], progress: Callable[[int], None]) -> SpdText:
    if len(text) > MAXIMUM_BYTES or any(_CONTROL.search(text, *span) for span in _spans(text)):
        raise _UnusualError
    if "#" in text:
        text = _without_comments(text)
    if not text.endswith("\n"):
        text += "\n"
    lists: dict[str, tuple[int, int]] = {}
    name = ""
    at = 0
    while at < len(text):
        section = _SECTION.match(text, at)
        if section is None or section[1] in lists:
            raise _UnusualError
        at = section.end()
        if section[1] == "spd":
            name = _text(section[2] or "")
            lists["spd"] = at, at
        elif section[2] == "[]":
            lists[section[1]] = at, at
        elif section[2] is None:
            start, at = at, _end_of_section(text, at)
            lists[section[1]] = start, at
        else:
            raise _UnusualError
    if not name:
        raise _UnusualError
    reader = _RuleReader(bundles(name), progress)
    rules = {
        direction: tuple(reader.read(text, *lists.get(direction.value, (0, 0)), direction))
        for direction in Direction
    }
    return SpdText(name, rules)


def _without_comments(text: str) -> str:
    """Returns a text without its comment lines."""
    parts, start = [], 0
    while start < len(text):
        end = text.find("\n", start + SEARCHED_AT_ONCE) + 1 or len(text)
        parts.append(_COMMENTS.sub("", text[start:end]))
        start = end
    return "".join(parts)


def _end_of_section(text: str, at: int) -> int:
    """Returns the position of the next line that begins with a letter, or the end."""
    for span in _spans(text, at):
        found = _SECTION_START.search(text, *span)
        if found is not None:
            return found.start()
    return len(text)


def _spans(text: str, at: int = 0) -> Iterator[tuple[int, int]]:
    """Divides a text from `at` on into adjacent parts. Yields the start and end of each part.

    A caller searches a long text part by part. Each search takes a few milliseconds. A search of
    the whole text would block all other threads.
    """
    for start in range(at, len(text), SEARCHED_AT_ONCE):
        yield start, start + SEARCHED_AT_ONCE


class _RuleReader:
    """Reads the rules of an SPD's lists."""

    def __init__(self, bundles: Bundles, progress: Callable[[int], None]) -> None:
        self._bundles = bundles
        self._progress = progress
        self._done = 0

    def read(self, text: str, start: int, end: int, direction: Direction) -> Iterator[Rule]:
        """Reads the list between two positions of a text."""
        if start == end:
            return
        indent = re.compile(r" {0,3}(?=- )").match(text, start, end)
        if indent is None:
            raise _UnusualError
        mark = f"{indent[0]}- "
        separator = f"\n{mark}"
        block = re.compile(rf"{_PAIR} *\n(?: {{{len(mark)}}}{_PAIR} *\n)*\s*", _FLAGS)
        names: set[str] = set()
        at = start + len(mark)
        while at < end:
            next_mark = text.find(separator, at, end)
            stop = end if next_mark < 0 else next_mark + 1
            if not (_FLOW.fullmatch(text, at, stop) or block.fullmatch(text, at, stop)):
                raise _UnusualError
            rule = self._rule(_PAIRS.findall(text, at, stop), direction)
            if rule.name in names:
                raise _UnusualError
            names.add(rule.name)
            yield rule
            self._done += 1
            if self._done % REPORTED_EVERY == 0:
                self._progress(self._done)
            at = stop + len(mark)

    def _rule(self, pairs: list[tuple[str, str]], direction: Direction) -> Rule:
        written = dict(pairs)
        if len(written) != len(pairs) or not written.keys() <= _KEYS:
            raise _UnusualError
        action = to_action(written.get("action"))
        bundle = _bundle(written["bundle"]) if "bundle" in written else None
        if (action is Action.PROTECT) != (bundle is not None):
            raise _UnusualError
        if bundle is not None and self._bundles is not None and bundle not in self._bundles:
            raise _UnusualError
        audit = _flag(written.get("audit", "false"))
        reject = _flag(written.get("reject", "false"))
        may_reject = action is Action.DISCARD and direction is Direction.OUTBOUND
        if (audit and action is not Action.DISCARD) or (reject and not may_reject):
            raise _UnusualError
        rule = Rule(
            name=_text(written.get("name", "")),
            action=action,
            bundle=bundle,
            source=_addresses(written.get("source", "any")),
            destination=_addresses(written.get("destination", "any")),
            protocol=_protocols(written.get("protocol", "any")),
            source_port=_ports(written.get("source_ports", "any")),
            destination_port=_ports(written.get("destination_ports", "any")),
            icmp=_icmp(written.get("icmp", "any")),
            audit=audit,
            reject=reject,
            mobility_type=_mobility_types(written.get("mobility_types", "any")),
            from_packet=_from_packet(written["from_packet"]) if "from_packet" in written else (),
        )
        if (rule.from_packet and action is not Action.PROTECT) or any(misplaced_selectors(rule)):
            raise _UnusualError
        return rule


# -- values. These functions are cached, so that equal values of many rules share their memory.


def _elements(value: str) -> list[str]:
    """Returns the elements of a list without quotes. A scalar counts as a list with one element."""
    if value[0] != "[":
        return [_unquoted(value)]
    return [_unquoted(one.strip()) for one in value[1:-1].split(",")]


def _unquoted(scalar: str) -> str:
    return scalar[1:-1] if scalar[0] in "'\"" else scalar


def _text(value: str) -> str:
    if not _NAME.fullmatch(value) or value.lower() in _RESERVED:
        raise _UnusualError
    return value


@lru_cache(maxsize=1024)
def _bundle(value: str) -> str:
    return _text(value)


def _flag(value: str) -> bool:
    if value not in ("true", "false"):
        raise _UnusualError
    return value == "true"


@lru_cache(maxsize=65_536)
def _addresses(value: str) -> tuple[AddressRange, ...] | None:
    return None if value in ANY_NAMES else tuple(map(_address_range, _elements(value)))


def _address_range(text: str) -> AddressRange:
    if not (_IPV4.fullmatch(text) or _IPV6.fullmatch(text)):
        raise _UnusualError
    return to_address_range(text)


@lru_cache(maxsize=4096)
def _protocols(value: str) -> tuple[int, ...] | Opaque | None:
    return _converted(value, to_protocol)


@lru_cache(maxsize=65_536)
def _ports(value: str) -> tuple[NumberRange, ...] | Opaque | None:
    return _converted(value, _numbers(to_ports))


@lru_cache(maxsize=4096)
def _icmp(value: str) -> tuple[NumberRange, ...] | Opaque | None:
    return _converted(value, _numbers(to_icmp))


@lru_cache(maxsize=4096)
def _mobility_types(value: str) -> tuple[NumberRange, ...] | Opaque | None:
    return _converted(value, _numbers(to_mobility_types))


@lru_cache(maxsize=1024)
def _from_packet(value: str) -> tuple[str, ...]:
    return to_from_packet(_elements(value))


def _converted(value: str, convert: Callable[[object], T]) -> tuple[T, ...] | Opaque | None:
    if value in ANY_NAMES:
        return None
    return OPAQUE if value in OPAQUE_NAMES else tuple(map(convert, _elements(value)))


def _numbers(convert: Callable[[object], T]) -> Callable[[object], T]:
    """Wraps a converter so that it accepts only plain decimal numbers."""

    def converted(text: object) -> T:
        if not _NUMBERS.fullmatch(str(text)):
            raise _UnusualError
        return convert(text)

    return converted

# SPDX-License-Identifier: Apache-2.0
"""Reads a YAML document piece by piece, and collects every problem with its line.

`YamlReader` holds the problems. `YamlMapping` and `YamlValue` are views into the document. The
views never raise an error because of the file's content: they record a problem and return a
default. So one pass finds all problems. `YamlReader.finish()` raises ConfigError if there was any.
Duplicate keys, unknown keys and anchors that repeat a mapping's keys are problems. Depends on
PyYAML, config_keys and, for its limits, yamlnodes.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import yaml

from sluice.config_keys import ConfigKey, DefaultKey, ListKey, PartKey, ScalarKey
from sluice.yamlnodes import MAXIMUM_BYTES, LimitError, compose

T = TypeVar("T")
D = TypeVar("D")


SHOWN = 20
"""Limit of problems in an error's text."""


class ConfigError(Exception):
    """Reports an invalid configuration. `problems` are complete sentences with file and line.

    The error's text has the first `SHOWN` problems.
    """

    def __init__(self, problems: list[str]) -> None:
        shown = problems[:SHOWN]
        if len(problems) > SHOWN:
            shown.append(f"and {len(problems) - SHOWN:,} more problems")
        super().__init__("\n".join(shown))
        self.problems = problems


def _is_tab(text: str, mark: yaml.Mark | None) -> bool:
    lines = text.splitlines()
    return (
        mark is not None
        and mark.line < len(lines)
        and lines[mark.line][mark.column :].startswith("\t")
    )


def _check_decimal(written: str, value: object) -> None:
    """Raises ValueError for a number with a leading 0 or with colons. YAML 1.1 reads 0400 as octal
    and 1:30 in base 60, which authors rarely mean."""
    if not isinstance(value, int | float) or isinstance(value, bool):
        return
    if ":" in written:
        raise ValueError(
            f"YAML takes {written} for the number {value}; write {value}, or put it in quotes"
        )
    digits = written.lstrip("+-")
    if digits.isdigit() and digits[0] == "0" and len(digits) > 1:
        meant = f"{value} or {written.lstrip('0') or '0'}"
        raise ValueError(f"YAML takes {written} for the number {value}; write {meant}")


def read_text(path: Path, maximum: int = MAXIMUM_BYTES) -> str:
    """Returns the text of a file, or a text that is longer than `maximum` bytes.

    Raises ConfigError if the file is unreadable or world-writable.
    """
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            if stat.S_ISREG(mode) and mode & stat.S_IWOTH:
                raise ConfigError(
                    [f"{path}: every user can write it and change the policy; chmod o-w {path}"]
                )
            return file.read(maximum + 1).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "is not UTF-8 text"
        raise ConfigError([f"{path}: {reason}"]) from None


class YamlReader:
    """Holds one document and the problems found in it so far."""

    def __init__(self, text: str, name: str) -> None:
        self._name = name
        self._problems: list[tuple[int, str]] = []
        self._node: yaml.Node | None = None
        self.constructor = yaml.constructor.SafeConstructor()
        try:
            self._node = compose(text)
        except yaml.MarkedYAMLError as error:
            line = error.problem_mark.line + 1 if error.problem_mark else 1
            what = f"not YAML: {error.problem}"
            if isinstance(error, LimitError):
                what = error.problem or ""
            if _is_tab(text, error.problem_mark):
                what += ": a tab; indent by spaces"
            self._problems.append((line, f"{name}:{line}: {what}"))
            self.finish()
        except yaml.YAMLError as error:
            self._problems.append((1, f"{name}: not YAML: {error}"))
            self.finish()

    @classmethod
    def from_file(cls, path: Path) -> YamlReader:
        """Reads a file. Raises ConfigError if it is unreadable, not YAML, or world-writable."""
        return cls(read_text(path), str(path))

    def root(self) -> YamlMapping:
        """Returns the document, which must be a mapping."""
        return YamlValue(self, self._node, "").mapping()

    def problem(self, node: yaml.Node | None, where: str, message: str) -> None:
        """Records one problem at a node."""
        line = node.start_mark.line + 1 if node is not None else 1
        at = f"{where}: " if where else ""
        self._problems.append((line, f"{self._name}:{line}: {at}{message}"))

    def include(self, node: yaml.Node | None, problems: list[str]) -> None:
        """Records the problems of another file unchanged, at the line of the node that names it."""
        line = node.start_mark.line + 1 if node is not None else 1
        self._problems += [(line, problem) for problem in problems]

    def finish(self) -> None:
        """Raises ConfigError with all problems, in the order of their lines, if there are any."""
        if self._problems:
            raise ConfigError(
                [text for _, text in sorted(self._problems, key=lambda item: item[0])]
            )


class YamlValue:
    """Represents one value and its position."""

    def __init__(self, reader: YamlReader, node: yaml.Node | None, where: str) -> None:
        self._reader = reader
        self._node = node
        self._where = where

    def problem(self, message: str) -> None:
        """Records a problem with this value."""
        self._reader.problem(self._node, self._where, message)

    def convert(self, converter: Callable[[object], T]) -> T | None:
        """Converts a scalar. If `converter` refuses it, records a problem and returns None."""
        if not isinstance(self._node, yaml.ScalarNode):
            self.problem("a single value is expected here")
            return None
        try:
            value = self._reader.constructor.construct_object(self._node)
            _check_decimal(str(self._node.value), value)
            return converter(value)
        except (ValueError, yaml.YAMLError) as error:
            self.problem(str(error))
            return None

    def is_null(self) -> bool:
        """Returns whether the value is absent or null."""
        return self._node is None or (
            isinstance(self._node, yaml.ScalarNode) and self._node.tag == "tag:yaml.org,2002:null"
        )

    def is_sequence(self) -> bool:
        """Returns whether this is a list."""
        return isinstance(self._node, yaml.SequenceNode)

    def text(self) -> str | None:
        """Returns a scalar's text, or None for a list or a mapping. Records no problems."""
        return str(self._node.value) if isinstance(self._node, yaml.ScalarNode) else None

    def named(self, where: str) -> YamlValue:
        """Returns the same value with another name, `where`, for texts of problems."""
        return YamlValue(self._reader, self._node, where)

    def peek(self, key: str) -> str | None:
        """Returns the text of the scalar under `key`, or None if there is no such scalar.

        Records no problems.
        """
        if isinstance(self._node, yaml.MappingNode):
            for key_node, value_node in self._node.value:
                if key_node.value == key and isinstance(value_node, yaml.ScalarNode):
                    return str(value_node.value)
        return None

    def include(self, error: ConfigError) -> None:
        """Records the problems of another file, which this value names."""
        self._reader.include(self._node, error.problems)

    def mapping(self) -> YamlMapping:
        """Returns the value as a mapping. If it is not a mapping, records a problem and returns an
        empty mapping."""
        pairs: dict[str, tuple[yaml.Node, YamlValue]] = {}
        if isinstance(self._node, yaml.MappingNode):
            for key_node, value_node in self._node.value:
                key = str(key_node.value)
                where = f"{self._where}.{key}" if self._where else key
                if key in pairs:
                    self._reader.problem(key_node, where, "given twice; remove one")
                else:
                    pairs[key] = (key_node, YamlValue(self._reader, value_node, where))
        elif not self.is_null():
            self.problem("`key: value` pairs are expected here")
        return YamlMapping(self._reader, self._node, self._where, pairs)

    def sequence(self) -> list[YamlValue]:
        """Returns the elements of a list. If the value is not a list, records a problem and returns
        an empty list."""
        if isinstance(self._node, yaml.SequenceNode):
            return [
                YamlValue(self._reader, node, f"{self._where}[{index}]")
                for index, node in enumerate(self._node.value)
            ]
        if not self.is_null():
            self.problem("a list is expected here (`- ...` or `[...]`)")
        return []


class YamlMapping:
    """Reads a mapping key by key. `close` reports the keys that were not read."""

    def __init__(
        self,
        reader: YamlReader,
        node: yaml.Node | None,
        where: str,
        pairs: dict[str, tuple[yaml.Node, YamlValue]],
    ) -> None:
        self._reader = reader
        self._node = node
        self._where = where
        self._pairs = pairs
        self._taken: set[str] = set()
        self._sections: dict[str, YamlMapping] = {}

    def problem(self, key: ConfigKey, message: str) -> None:
        """Records a problem with one key."""
        self._problem(key.name, message)

    def _problem(self, key: str, message: str) -> None:
        node = self._pairs[key][0] if key in self._pairs else self._node
        self._reader.problem(node, self._path(key), message)

    def required(
        self, key: ScalarKey[T], converter: Callable[[object], T] | None = None
    ) -> T | None:
        """Returns the converted value. Records a problem and returns None if absent or invalid.

        `converter` replaces the key's own converter if the accepted values depend on the file.
        """
        value = self._take(key.name)
        if value is None or value.is_null():
            self.problem(key, f"is missing: {key.missing}")
            return None
        return value.convert(converter or key.convert)

    def optional(
        self, key: ScalarKey[T], default: D, converter: Callable[[object], T] | None = None
    ) -> T | D:
        """Returns the converted value, or `default` if it is absent or invalid.

        Records a problem if the value is invalid.
        """
        value = self._take(key.name)
        if value is None or value.is_null():
            return default
        converted = value.convert(converter or key.convert)
        return default if converted is None else converted

    def defaulted(self, key: DefaultKey[T]) -> T:
        """Returns the converted value, or the key's own default; see `optional`."""
        return self.optional(key, key.value)

    def section(self, key: PartKey) -> YamlMapping:
        """Returns the mapping under `key`, empty if absent. Each call returns the same view."""
        if key.name not in self._sections:
            value = self._take(key.name) or YamlValue(self._reader, None, self._path(key.name))
            self._sections[key.name] = value.mapping()
        return self._sections[key.name]

    def value(self, key: ConfigKey) -> YamlValue | None:
        """Returns the value under `key`, or None if absent."""
        return self._take(key.name)

    def sequence(self, key: ConfigKey) -> list[YamlValue]:
        """Returns the list under `key`. Empty if absent."""
        value = self._take(key.name)
        return [] if value is None else value.sequence()

    def converted(self, key: ListKey[T]) -> tuple[T, ...]:
        """Returns the converted list under `key`, without invalid elements."""
        found = (value.convert(key.convert) for value in self.sequence(key))
        return tuple(one for one in found if one is not None)

    def ignore(self, *keys: ConfigKey) -> None:
        """Marks keys as read. Used for keys that cannot be checked because another key is
        invalid."""
        self._taken.update(key.name for key in keys)

    def items(self) -> list[tuple[str, YamlValue]]:
        """Returns all pairs and marks them as read. For mappings whose keys are names."""
        self._taken.update(self._pairs)
        return [(key, value) for key, (_, value) in self._pairs.items()]

    def close(self) -> None:
        """Records every key that was not read as a problem."""
        for key in self._pairs.keys() - self._taken:
            known = ", ".join(sorted(self._taken))
            self._problem(key, f"unknown key; known here: {known}")

    def _take(self, key: str) -> YamlValue | None:
        self._taken.add(key)
        pair = self._pairs.get(key)
        return None if pair is None else pair[1]

    def _path(self, key: str) -> str:
        return f"{self._where}.{key}" if self._where else key

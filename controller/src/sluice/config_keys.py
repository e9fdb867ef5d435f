# SPDX-License-Identifier: Apache-2.0
"""Provides the classes for the configuration file's schema: keys, grouped in sections.

    class EngineKeys(ConfigSection, title="engines"):
        id = required(scalars.integer(1, 255), "The engine's number.")
        device = optional(scalars.interface_name, "The port's own device.")

A key is declared once, beside the code that reads it with `yamlreader.YamlMapping`.
`config_reference` generates the tables of docs/reference/configuration.md from the keys. A key's
`meaning` is Markdown. If the key is missing in a file, the error quotes the first sentence. Depends
on scalars.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from enum import Enum
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from sluice.scalars import Scalar, readable

T = TypeVar("T")


class ConfigKey:
    """Describes a key: its name, and texts for its possible values, its default and its meaning."""

    name: str

    def __init__(self, values: str, meaning: str, default: str) -> None:
        self.values = values
        self.meaning = meaning
        self.default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @property
    def missing(self) -> str:
        """Returns the first sentence of `meaning`, in a form that can follow a colon."""
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", self.meaning)
        first = re.split(r"[.;](?: |$)", plain)[0]
        return first if first[:2].isupper() else first[:1].lower() + first[1:]


class ScalarKey(ConfigKey, Generic[T]):
    """Describes a key with one value."""

    def __init__(self, kind: Scalar[T], meaning: str, default: str) -> None:
        super().__init__(kind.values, meaning, default)
        self.convert: Callable[[object], T] = kind


class DefaultKey(ScalarKey[T]):
    """Describes a key with a fixed default."""

    def __init__(self, kind: Scalar[T], default: T, meaning: str) -> None:
        super().__init__(kind, meaning, shown(default))
        self.value = default


class ListKey(ConfigKey, Generic[T]):
    """Describes a key with a list of values. `convert` validates and converts each value."""

    def __init__(self, kind: Scalar[T], values: str, meaning: str, default: str) -> None:
        super().__init__(values, meaning, default)
        self.convert: Callable[[object], T] = kind


class PartKey(ConfigKey):
    """Describes a key whose value is a section, a list of sections, or a mapping of sections."""

    def __init__(self, keys: type[ConfigSection], values: str, meaning: str, default: str) -> None:
        super().__init__(values, meaning, default)
        self.keys = keys


class ConfigSection:
    """Declares the keys of one section of the file. A subclass has the keys as attributes.

    `title` is the section's heading in the reference.
    """

    title: ClassVar[str]

    def __init_subclass__(cls, title: str) -> None:
        cls.title = title

    @classmethod
    def all_keys(cls) -> Iterator[ConfigKey]:
        """Returns the keys in the order of their declaration."""
        return (value for value in vars(cls).values() if isinstance(value, ConfigKey))

    @classmethod
    def tree(cls) -> Iterator[type[ConfigSection]]:
        """Yields this section and all sections that it contains, at any depth."""
        yield cls
        for key in cls.all_keys():
            if isinstance(key, PartKey):
                yield from key.keys.tree()


REQUIRED = "required"


def required(kind: Scalar[T], meaning: str, when: str = REQUIRED) -> ScalarKey[T]:
    """Returns a key that a file must have. `when` is a text for the reference: the case in which
    the key is required."""
    return ScalarKey(kind, meaning, when)


def optional(kind: Scalar[T], meaning: str, default: str = "none") -> ScalarKey[T]:
    """Returns a key that may be missing and has no fixed default.

    `default` is a text for the reference: what applies without the key.
    """
    return ScalarKey(kind, meaning, default)


def defaulted(kind: Scalar[T], default: T, meaning: str) -> DefaultKey[T]:
    """Returns a key that may be missing and then has the value `default`."""
    return DefaultKey(kind, default, meaning)


def list_of(kind: Scalar[T], values: str, meaning: str, default: object = "none") -> ListKey[T]:
    """Returns a key whose value is a list. `values` describes the list's elements."""
    text = default if isinstance(default, str) else shown(default)
    return ListKey(kind, f"list of {values}", meaning, text)


def section_of(keys: type[ConfigSection], meaning: str, default: str = "") -> PartKey:
    """Returns a key whose value is a section."""
    return PartKey(keys, "section", meaning, default)


def sections_of(keys: type[ConfigSection], meaning: str, default: str = "none") -> PartKey:
    """Returns a key whose value is a list of sections."""
    return PartKey(keys, "list", meaning, default)


def shown(value: object) -> str:
    """Returns the text of a default value for the reference."""
    match value:
        case bool():
            return f"`{str(value).lower()}`"
        case int() | float():
            return readable(value)
        case tuple() | list():
            return f"`[{', '.join(map(str, value))}]`"
        case Enum():
            return f"`{value.value}`"
        case str() | Path():
            return f"`{value}`"
    return f"`{value}`"

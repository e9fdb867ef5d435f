# SPDX-License-Identifier: Apache-2.0
"""The pipeline's numbers of bundles: configured ones, and those of a mirrored kernel's templates.

A number that a bundle gives back is given out again as late as possible. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

FIRST, LAST = 0x8000, 0xFFFF
"""Numbers of bundles that nobody configured."""


class TooManyBundlesError(Exception):
    """More bundles than there are numbers; nothing is changed."""


class BundleNumbers:
    """`configured` are numbers by name, `known` names by number, as an earlier life had them."""

    def __init__(self, configured: Mapping[str, int], known: Mapping[int, str]) -> None:
        self.by_name: dict[str, int] = dict(configured)
        """Live: who looks a name up later finds later bundles, too."""
        self._configured = frozenset(configured)
        self._remembered = {name: number for number, name in known.items() if number >= FIRST}
        self._last: int = max((number for number in known if number >= FIRST), default=FIRST - 1)

    @property
    def names(self) -> dict[int, str]:
        """The bundle of each number."""
        return {number: name for name, number in self.by_name.items()}

    @property
    def mirrored(self) -> list[str]:
        """The bundles that nobody configured."""
        return [name for name in self.by_name if name not in self._configured]

    def add(self, names: Iterable[str]) -> None:
        """Numbers bundles that have none yet. Raises TooManyBundlesError."""
        taken = set(self.by_name.values())
        for name in names:
            if name in self.by_name:
                continue
            number = self._remembered.pop(name, None)
            if number is None or number in taken:
                number = self._next(taken)
            taken.add(number)
            self.by_name[name] = number

    def keep(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Gives back the numbers of all bundles but these and the configured ones; returns them."""
        kept = self._configured | frozenset(names)
        gone = [(name, number) for name, number in self.by_name.items() if name not in kept]
        for name, _ in gone:
            del self.by_name[name]
        return gone

    def _next(self, taken: set[int]) -> int:
        for number in chain(range(self._last + 1, LAST + 1), range(FIRST, self._last + 1)):
            if number not in taken:
                self._last = number
                return number
        raise TooManyBundlesError(f"a kernel has more than {LAST - FIRST + 1} bundles")

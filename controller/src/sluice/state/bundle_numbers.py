# SPDX-License-Identifier: Apache-2.0
"""Assigns the pipeline's numbers to bundles: to configured ones, and to those that mirror a kernel.

A released number is reused as late as possible. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

FIRST, LAST = 0x8000, 0xFFFF
"""Range of numbers for mirrored bundles, which are not configured."""


class TooManyBundlesError(Exception):
    """Reports that there are more bundles than numbers. No bundle was added."""


class BundleNumbers:
    """Assigns numbers to bundles.

    `configured` maps names to numbers. `known` maps numbers to names, as an earlier process left
    them.
    """

    def __init__(self, configured: Mapping[str, int], known: Mapping[int, str]) -> None:
        self.by_name: dict[str, int] = dict(configured)
        """Number of each bundle. Other modules hold this dictionary, so it is changed in place."""
        self._configured = frozenset(configured)
        self._remembered = {name: number for number, name in known.items() if number >= FIRST}
        self._last: int = max((number for number in known if number >= FIRST), default=FIRST - 1)

    @property
    def names(self) -> dict[int, str]:
        """Bundle names by number."""
        return {number: name for name, number in self.by_name.items()}

    @property
    def mirrored(self) -> list[str]:
        """Names of the mirrored bundles, which are not configured."""
        return [name for name in self.by_name if name not in self._configured]

    def add(self, names: Iterable[str]) -> None:
        """Assigns numbers to all bundles that have none yet.

        Raises TooManyBundlesError. In this case no bundle has got a number.
        """
        taken = set(self.by_name.values())
        added: dict[str, int] = {}
        last = self._last
        for name in names:
            if name in self.by_name or name in added:
                continue
            number = self._remembered.get(name)
            if number is None or number in taken:
                number = last = _next_free(last, taken)
            taken.add(number)
            added[name] = number
        self.by_name.update(added)
        self._last = last
        for name in added:
            self._remembered.pop(name, None)

    def retain(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Releases all bundles except `names` and the configured ones. Returns the released
        bundles."""
        retained = self._configured | frozenset(names)
        released = [(name, number) for name, number in self.by_name.items() if name not in retained]
        for name, _ in released:
            del self.by_name[name]
        return released


def _next_free(last: int, taken: set[int]) -> int:
    for number in chain(range(last + 1, LAST + 1), range(FIRST, last + 1)):
        if number not in taken:
            return number
    raise TooManyBundlesError(f"the kernels' policies need more than {LAST - FIRST + 1} bundles")

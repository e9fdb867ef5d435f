# SPDX-License-Identifier: Apache-2.0
"""Assigns the bundle numbers that the pipeline uses. Numbers configured bundles, their instances,
and the bundles that mirror a kernel's policies.

A released number is reused as late as possible. Pure; depends on policy.populated.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain

from sluice.policy.populated import is_without_sa, named_bundle

FIRST, LAST = 0x8000, 0xFFFF
"""Range of numbers for bundles that are not configured."""


class TooManyBundlesError(Exception):
    """Reports that there are more bundles than numbers. No bundle was added."""


class BundleNumbers:
    """Assigns numbers to bundles.

    `configured` maps names to numbers. `known` maps numbers to names, as recorded by an earlier
    process. A bundle with a recorded name gets its earlier number again, if that is free.
    """

    def __init__(self, configured: Mapping[str, int], known: Mapping[int, str]) -> None:
        self.by_name: dict[str, int] = dict(configured)
        """Number of each bundle. Other modules hold this dictionary, so it is changed in place."""
        self._configured = frozenset(configured)
        self._remembered = {name: number for number, name in known.items() if number >= FIRST}
        self._last: int = max((number for number in known if number >= FIRST), default=FIRST - 1)
        self._names = {number: name for name, number in configured.items()}

    def name_of(self, number: int) -> str | None:
        """Returns the name of a bundle, or None if no bundle has this number."""
        return self._names.get(number)

    def configured_number(self, number: int) -> int:
        """Returns the number of the configured bundle that an instance belongs to. Returns the
        number of any other bundle unchanged."""
        name = self._names.get(number)
        if name is None:
            return number
        parent = named_bundle(name)
        return self.by_name.get(parent, number) if parent in self._configured else number

    @property
    def names(self) -> dict[int, str]:
        """Bundle names by number."""
        return {number: name for name, number in self.by_name.items()}

    @property
    def mirrored(self) -> list[str]:
        """Names of the mirrored bundles, which are not configured."""
        return [name for name in self.by_name if named_bundle(name) not in self._configured]

    def add(self, names: Iterable[str]) -> None:
        """Assigns numbers to all bundles that have none yet.

        Raises TooManyBundlesError. Then none of `names` has got a number.
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
        self._names.update((number, name) for name, number in added.items())
        self._last = last
        for name in added:
            self._remembered.pop(name, None)

    def retain(self, names: Iterable[str]) -> list[tuple[str, int]]:
        """Releases the numbers of all bundles that are not in `names`. Keeps configured bundles.
        Also keeps the bundles without SA that belong to configured bundles
        (`populated.is_without_sa`). Returns the released bundles."""
        retained = self._configured | frozenset(names)
        released = [
            (name, number)
            for name, number in self.by_name.items()
            if name not in retained
            and not (is_without_sa(name) and named_bundle(name) in self._configured)
        ]
        for name, number in released:
            del self.by_name[name]
            del self._names[number]
        return released


def _next_free(last: int, taken: set[int]) -> int:
    for number in chain(range(last + 1, LAST + 1), range(FIRST, last + 1)):
        if number not in taken:
            return number
    raise TooManyBundlesError(
        f"the kernels' policies and `from_packet` need more than {LAST - FIRST + 1} bundles"
    )

# SPDX-License-Identifier: Apache-2.0
"""Tracks the instances of bundles (`policy.populated`): those that have SAs, and those for which
lists have rules.

An instance exists as long as there are SAs for it (`want`). `policy.enforcement` then commits lists
that contain the rules of these instances. An instance keeps its bundle number as long as an SA, a
list or the switch names the instance. So a number never stands for two instances. Depends on
policy.populated and state.bundle_numbers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable
from itertools import chain

from sluice.policy.populated import Instance, named_bundle
from sluice.state.bundle_numbers import BundleNumbers, TooManyBundlesError

NONE: frozenset[Instance] = frozenset()


class BundleInstances:
    """Holds the instances of all bundles. `numbers` has their bundle numbers.

    - `wanted`: the instances that have SAs.
    - `listed`: the instances for which the desired lists have rules.
    - `in_force`: the instances for which the lists in force have rules.
    """

    def __init__(self, numbers: BundleNumbers) -> None:
        self._numbers = numbers
        self.wanted = self.listed = self.in_force = NONE
        self.changed = asyncio.Event()
        """Set when `wanted` changes."""
        self._named: tuple[tuple[frozenset[Instance], ...], dict[str, Instance]] = (), {}
        """The instances by name, with the sets from which they were collected."""
        self.on_in_force: Callable[[], None] = lambda: None
        """Called when `in_force` has changed."""

    def want(self, instances: Iterable[Instance]) -> None:
        """Sets the instances that have SAs, and gives each of them a number.

        If there are too few numbers, instances without a number are left out of `wanted`.
        """
        found = set(instances)
        if found == self.wanted:
            return
        try:
            self._numbers.add(sorted(one.name for one in found))
        except TooManyBundlesError:
            found = set(filter(self._add, sorted(found, key=lambda one: one.name)))
        self.wanted = frozenset(found)
        self.changed.set()

    def _add(self, instance: Instance) -> bool:
        try:
            self._numbers.add([instance.name])
        except TooManyBundlesError:
            return False
        return True

    def number_of(self, instance: Instance) -> int | None:
        """Returns the bundle number of a wanted instance, or None."""
        return self._numbers.by_name.get(instance.name)

    def named(self, number: int) -> Instance | None:
        """Returns the instance with this bundle number, or None."""
        name = self._numbers.name_of(number)
        if name is None or named_bundle(name) == name:
            return None
        sets = self.wanted, self.listed, self.in_force
        if self._named[0] != sets:
            self._named = sets, {one.name: one for one in chain(*sets)}
        return self._named[1].get(name)

    def is_in_force(self, number: int) -> bool:
        """Returns whether the lists in force have the rules of the instance with this number.
        Returns True for all other bundles."""
        instance = self.named(number)
        return instance is None or instance in self.in_force

    def names(self) -> set[str]:
        """Returns the names of all instances that an SA or a list may name."""
        return {one.name for one in self.wanted | self.listed | self.in_force}


class WithInstances(Container[int]):
    """A set of bundle numbers: those of some configured bundles, and those of all their
    instances."""

    def __init__(self, configured: Container[int], numbers: BundleNumbers) -> None:
        self._configured = configured
        self._numbers = numbers

    def __contains__(self, number: object) -> bool:
        return isinstance(number, int) and (
            self._numbers.configured_number(number) in self._configured
        )

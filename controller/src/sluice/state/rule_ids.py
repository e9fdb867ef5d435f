# SPDX-License-Identifier: Apache-2.0
"""Assigns numbers to rules. A rule's number is unique over all lists. It is also the index of the
rule's counters.

A rule that a commit does not change keeps its number, and so its counters. This also holds over a
restart. A rule is identified by its list and its fingerprint. Numbers are reused as late as
possible. Pure. `plan` only computes numbers, and `commit` puts them in force.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from sluice.state.common_ends import changed_part

MAXIMUM_RULE_ID = 0xFFFFF
"""Largest rule number that is assigned. The pipeline's counters may have fewer entries."""


SMALL_EDIT = 4096
"""Rules that an edit may replace or add without a new mapping of all numbers."""


class TooManyRulesError(Exception):
    """Reports that there are more rules than counters in the pipeline. No number was changed."""


@dataclass(frozen=True, slots=True)
class RuleIdPlan:
    """Holds planned numbers for the rules of some lists.

    `fresh` has the numbers for rules without a number, by list. The counters of these numbers may
    hold counts of an earlier rule. `released` has the numbers of rules that are no longer in the
    lists. `listed` has the rules of each list. `reused` counts the fresh numbers that were issued
    before, and `new` counts those that were not.
    """

    ids: dict[Hashable, dict[str, int] | EditedNumbers]
    fresh: dict[Hashable, tuple[int, ...]]
    released: tuple[int, ...]
    listed: dict[Hashable, tuple[str, ...]]
    reused: int = 0
    new: int = 0


NO_RULE_IDS = RuleIdPlan({}, {}, (), {})


class RuleIds:
    """Holds the numbers of all rules, from 1 to `maximum`. A list's name is any hashable key."""

    def __init__(self, maximum: int = MAXIMUM_RULE_ID) -> None:
        self.maximum = maximum
        self._ids: dict[Hashable, dict[str, int]] = {}
        self._listed: dict[Hashable, tuple[str, ...]] = {}
        """The rules of each list in order, unless the numbers were restored."""
        self._next = 1
        self._free: deque[int] = deque()

    def remember(self, name: Hashable, ids: Mapping[str, int]) -> None:
        """Restores a list's numbers from an earlier process. Must be called before `plan`."""
        self._ids[name] = dict(ids)
        self._listed.pop(name, None)
        used = {number for known in self._ids.values() for number in known.values()}
        self._next = max(used, default=0) + 1
        self._free = deque(sorted(set(range(1, min(self._next, self.maximum + 1))) - used))

    def keep(self, name: Hashable, listed: Sequence[str]) -> None:
        """Sets the order of a list's rules after `remember`. All these rules must have restored
        numbers.

        This makes plans for this list faster. `listed` must not contain the rules that `plan` gets
        as `last`.
        """
        self._listed[name] = tuple(listed)

    def plan(
        self, wanted: Mapping[Hashable, Sequence[str]], last: Sequence[str] = ()
    ) -> RuleIdPlan:
        """Plans numbers for the rules of these lists. Raises TooManyRulesError.

        `last` has further rules that end each list. Numbers that a plan releases are not reused in
        the same plan.
        """
        supply = _Supply(self._next, self.maximum, self._free)
        fresh: dict[Hashable, list[int]] = {name: [] for name in wanted}
        released: list[int] = []
        ids: dict[Hashable, dict[str, int] | EditedNumbers] = {}
        for name, fingerprints in wanted.items():
            known = self._ids.get(name, {})
            listed = tuple(fingerprints)
            before = self._listed.get(name, ())
            numbers: dict[str, int] = {}
            part = None
            # If the lengths differ, the order is not known (restored numbers), or the list has
            # equal rules.
            if len(before) + len(last) == len(known):
                part = changed_part(listed, before)
            # A large edit is replaced as a whole, because editing many numbers in `commit` takes
            # longer.
            if part is None or not part.is_within(SMALL_EDIT):
                old, new, ids[name] = list(known), (*listed, *last), numbers
            else:  # only the rules in the changed part get other numbers
                old, new = [*before[part.start : part.end_before]], listed[part.start : part.end]
                ids[name] = EditedNumbers(known, frozenset(old), numbers)
            for one in new:
                number = known.get(one)
                if number is None or number > self.maximum:
                    number = supply.take()
                    fresh[name].append(number)
                numbers[one] = number
            released += [known[one] for one in old if ids[name].get(one) != known[one]]
        return RuleIdPlan(
            ids,
            {name: tuple(numbers) for name, numbers in fresh.items() if numbers},
            tuple(released),
            {n: tuple(w) for n, w in wanted.items()},
            supply.reused,
            supply.new,
        )

    def commit(self, plan: RuleIdPlan) -> None:
        """Puts the numbers of a plan in force."""
        for name, ids in plan.ids.items():
            self._ids[name] = ids.applied() if isinstance(ids, EditedNumbers) else ids
        self._listed.update(plan.listed)
        self._next += plan.new
        if plan.reused:
            self._free = deque(islice(self._free, plan.reused, None))
        # Restored numbers may exceed the maximum, if an earlier pipeline had more counters.
        if max(plan.released, default=0) > self.maximum:
            self._free.extend(number for number in plan.released if number <= self.maximum)
        else:
            self._free.extend(plan.released)


class EditedNumbers(Mapping[str, int]):
    """Provides a view of a list's numbers without the rules `removed`, and with the numbers
    `added`.

    An edit of a long list thus needs no copy of all numbers.
    """

    def __init__(
        self, known: dict[str, int], removed: frozenset[str], added: Mapping[str, int]
    ) -> None:
        self._known, self._removed, self._added = known, removed, added

    def __getitem__(self, fingerprint: str) -> int:
        number = self._added.get(fingerprint)
        if number is not None:
            return number
        if fingerprint in self._removed:
            raise KeyError(fingerprint)
        return self._known[fingerprint]

    def __iter__(self) -> Iterator[str]:
        changed = self._removed | self._added.keys()
        yield from (one for one in self._known if one not in changed)
        yield from self._added

    def __len__(self) -> int:
        changed = self._removed | self._added.keys()
        return len(self._known) - sum(map(self._known.__contains__, changed)) + len(self._added)

    def applied(self) -> dict[str, int]:
        """Applies the edit to the known numbers in place, and returns them.

        This view shows the same numbers as before until the known numbers change again.
        """
        for one in self._removed:
            self._known.pop(one, None)
        self._known.update(self._added)
        return self._known


class _Supply:
    """Issues numbers: first those from `start` to `maximum`, then the numbers in `free`, in order.

    `new` counts the numbers issued from the range, and `reused` those from `free`.
    """

    def __init__(self, start: int, maximum: int, free: Iterable[int]) -> None:
        self.new, self.reused = 0, 0
        self._start, self._maximum = start, maximum
        self._free = free
        self._rest: Iterator[int] | None = None

    def take(self) -> int:
        """Issues a number. Raises TooManyRulesError."""
        if self._start + self.new <= self._maximum:
            self.new += 1
            return self._start + self.new - 1
        if self._rest is None:
            self._rest = iter(tuple(self._free))
        number = next(self._rest, None)
        if number is None:
            raise TooManyRulesError(
                f"all SPDs together have more than {self._maximum} rules, the most that the"
                " pipeline can count; generated rules and each list's final discard are included"
            )
        self.reused += 1
        return number

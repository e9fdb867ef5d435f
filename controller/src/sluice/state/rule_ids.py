# SPDX-License-Identifier: Apache-2.0
"""Assigns numbers to rules. A rule's number is unique over all lists, and the index of its
counters.

A rule that a commit does not change keeps its number, and so its counters, also across a restart. A
rule is identified by its list and its fingerprint. Numbers are reused as late as possible. Pure;
only `commit` changes the numbers, `plan` does not.
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

    `fresh` numbers, by list, go to rules without a number. The counters of these numbers may hold
    counts of an earlier rule. `released` numbers belong to rules that are no longer in the lists.
    `listed` has the rules of each list. `reused` counts the fresh numbers that were issued before,
    `new` counts those that were not.
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
        """Tells the order of a list's rules, all of which have numbers that were restored.

        Plans for this list then take less time. `listed` lacks the `last` rules of `plan`.
        """
        self._listed[name] = tuple(listed)

    def plan(
        self, wanted: Mapping[Hashable, Sequence[str]], last: Sequence[str] = ()
    ) -> RuleIdPlan:
        """Plans numbers for the rules of these lists. Raises TooManyRulesError.

        `last` are further rules at the end of each list. A plan does not reuse the numbers that it
        releases.
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
            # Otherwise the numbers were restored, or the list has equal rules.
            if len(before) + len(last) == len(known):
                part = changed_part(listed, before)
            # `commit` takes long if it has to edit many numbers.
            if part is None or not part.is_within(SMALL_EDIT):
                old, new, ids[name] = list(known), (*listed, *last), numbers
            else:  # the items at both ends keep their numbers
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
        # If the pipeline had more counters before, restored numbers may exceed this maximum.
        if max(plan.released, default=0) > self.maximum:
            self._free.extend(number for number in plan.released if number <= self.maximum)
        else:
            self._free.extend(plan.released)


class EditedNumbers(Mapping[str, int]):
    """Shows the numbers of a list without those of the rules `removed`, and with those of `added`.

    So an edit of a long list copies nothing.
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
        """Changes the known numbers in place and returns them.

        This view stays as it is until the known numbers change again.
        """
        for one in self._removed:
            self._known.pop(one, None)
        self._known.update(self._added)
        return self._known


class _Supply:
    """Issues numbers: first those from `start` to `maximum`, then the numbers in `free`, in order.

    `new` and `reused` count the numbers of both kinds that were issued.
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

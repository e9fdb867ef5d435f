# SPDX-License-Identifier: Apache-2.0
"""Assigns numbers to rules. A rule's number is unique over all lists, and the index of its
counters.

A rule that a commit does not change keeps its number, and so its counters, also across a restart. A
rule is identified by its list and its fingerprint. Numbers are reused as late as possible. Pure;
only `commit` changes the numbers, `plan` does not.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain

from sluice.state.common_ends import changed_part

MAXIMUM_RULE_ID = 0xFFFFF
"""Largest rule number that is assigned. The pipeline's counters may have fewer entries."""


class TooManyRulesError(Exception):
    """Reports that there are more rules than counters in the pipeline. No number was changed."""


@dataclass(frozen=True, slots=True)
class RuleIdPlan:
    """Holds planned numbers for the rules of some lists.

    `fresh` numbers go to rules without a number. The counters of these numbers may hold counts of
    an earlier rule. `released` numbers belong to rules that are no longer in the lists. `listed`
    has the rules of each list.
    """

    ids: dict[Hashable, dict[str, int]]
    fresh: tuple[int, ...]
    released: tuple[int, ...]
    listed: dict[Hashable, tuple[str, ...]]


NO_RULE_IDS = RuleIdPlan({}, (), (), {})


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

    def plan(self, wanted: Mapping[Hashable, Sequence[str]]) -> RuleIdPlan:
        """Plans numbers for the rules of these lists. Raises TooManyRulesError.

        A plan does not reuse the numbers that it releases.
        """
        # If the pipeline had more counters before, the restored numbers may exceed this maximum.
        reused = (number for number in tuple(self._free) if number <= self.maximum)
        supply = chain(range(self._next, self.maximum + 1), reused)
        fresh: list[int] = []
        released: list[int] = []
        ids: dict[Hashable, dict[str, int]] = {}
        for name, fingerprints in wanted.items():
            known = self._ids.get(name, {})
            listed = tuple(fingerprints)
            before = self._listed.get(name)
            if before is None or len(before) != len(known):  # restored, or with equal rules
                old, new, ids[name] = list(known), listed, {}
            else:  # the items at both ends keep their numbers
                start, end, end_before = changed_part(listed, before)
                old, new = [*before[start:end_before]], listed[start:end]
                ids[name] = dict(known)
                for one in old:
                    ids[name].pop(one, None)
            for one in new:
                number = known.get(one)
                if number is None or number > self.maximum:
                    number = self._take(supply, fresh)
                ids[name][one] = number
            released += [known[one] for one in old if ids[name].get(one) != known[one]]
        return RuleIdPlan(
            ids, tuple(fresh), tuple(released), {n: tuple(w) for n, w in wanted.items()}
        )

    def commit(self, plan: RuleIdPlan) -> None:
        """Puts the numbers of a plan in force."""
        self._ids.update(plan.ids)
        self._listed.update(plan.listed)
        for number in plan.fresh:
            if number >= self._next:
                self._next = number + 1
            else:
                self._free.remove(number)
        self._free.extend(plan.released)

    def _take(self, supply: Iterator[int], fresh: list[int]) -> int:
        try:
            fresh.append(next(supply))
        except StopIteration:
            raise TooManyRulesError(
                f"all SPDs together have more than {self.maximum} rules, the most that the pipeline"
                " can count; generated rules and each list's final discard are included"
            ) from None
        return fresh[-1]

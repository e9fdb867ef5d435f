# SPDX-License-Identifier: Apache-2.0
"""Security policy databases: named pairs of ordered lists, and the commits that change them.

An SPD's inbound and outbound list have an id, an **epoch** (which retires cached flows) and a
**generation** (which retires answers that are still travelling). A commit advances both for every
list whose rules changed, or the generation alone where the flows whose verdict changes are deleted
one by one (`state.invalidation`). It has three steps, because what it makes true must be on disk
before the switch hears of it: `plan_*` says what the lists will be, the caller has `record_with`
written and then the switch, and `apply` makes it so. A plan that fails is forgotten; its numbers
are never used again, so that it does not matter how far it came. What is on disk is also what is in
force after a restart: the rules as they were last committed, and which caches an operator has
turned off.

The nominal final discard of each list has a number of its own, like any rule, so that what it met
is counted for each list. The ordered search is the specification (`rule_search`); an index that
agrees with it serves it. Pure: no I/O, no clock. Depends on policy_model, rule_search and rule_ids.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from sluice.policy_model import Action, Direction, Rule, Scope, Selectors, Verdict
from sluice.state.rule_ids import MAXIMUM_RULE_ID, NO_RULE_IDS, RuleIdPlan, RuleIds
from sluice.state.rule_search import RuleIndex

MAXIMUM_COUNT = 0xFFFFFFFF
MAXIMUM_LIST_ID = 1023
"""The pipeline's list_state tables have 1024 entries, and list id 0 means none."""

ListName: TypeAlias = tuple[str, Direction]
"""The SPD's name, and which of its lists."""


FINAL_DISCARD = "(final)"
"""The fingerprint, and the name, of the nominal final entry of every list (RFC 4301, 4.4.1)."""


class TooManyListsError(Exception):
    """More lists than the pipeline has room for; nothing is changed."""


class Counts(NamedTuple):
    """A list's epoch and generation, both from 1: 0 is never current."""

    epoch: int
    generation: int


NO_COUNTS = Counts(0, 0)


class ListRecord(NamedTuple):
    """What is on disk about a list. `rule_ids` is by the rules' fingerprints.

    `rules` are the operator's, without the generated ones; None: they are to be taken from the
    configuration.
    """

    list_id: int
    spd: str
    direction: Direction
    counts: Counts
    digest: str
    rule_ids: dict[str, int]
    rules: tuple[Rule, ...] | None = None


class SpdRecord(NamedTuple):
    """What is on disk about all lists.

    `issued` are higher numbers than those of the lists: of plans that failed, and of list ids that
    no list has any more. `caches` says which SPDs' flow caches an operator turned on or off.
    `bundles` names the bundle that each number stands for in the switch.
    """

    lists: tuple[ListRecord, ...] = ()
    issued: dict[int, Counts] = {}  # noqa: RUF012 - never changed
    caches: dict[str, bool] = {}  # noqa: RUF012 - never changed
    bundles: dict[int, str] = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True, slots=True)
class ListState:
    """One list as it stands. `rule_ids` goes with `rules`, `final_id` is the final discard's."""

    list_id: int
    spd: str
    direction: Direction
    counts: Counts
    rules: tuple[Rule, ...]
    rule_ids: tuple[int, ...]
    final_id: int
    digest: str
    fingerprints: tuple[str, ...] = field(repr=False)
    bundle_ids: tuple[int, ...] = field(repr=False)
    index: RuleIndex = field(compare=False, repr=False)

    @property
    def name(self) -> ListName:
        """The SPD and the direction."""
        return self.spd, self.direction

    def search(self, packet: Selectors) -> Verdict:
        """The first match's verdict; the nominal final discard where nothing matches."""
        return self._verdict(self.index.first_match(packet))

    def search_fragment(self, later: Selectors, first: Selectors | None) -> Verdict | None:
        """The verdict of a later fragment, by its own selectors and its first fragment's.

        Without the first fragment: None where the rules that the fragment could meet disagree.
        """
        match = self.index.first_match_of_fragment(later, first)
        return None if match is None else self._verdict(match.at)

    def final(self) -> Verdict:
        """The nominal final discard."""
        return self._verdict(None)

    def _verdict(self, at: int | None) -> Verdict:
        if at is None:
            return Verdict(self.final_id, Action.DISCARD, 0)
        return Verdict(self.rule_ids[at], self.rules[at].action, self.bundle_ids[at])

    def record(self) -> ListRecord:
        """What goes to disk."""
        ids = dict(zip(self.fingerprints, self.rule_ids, strict=True))
        ids[FINAL_DISCARD] = self.final_id
        rules = tuple(rule for rule in self.rules if not rule.generated)
        return ListRecord(
            self.list_id, self.spd, self.direction, self.counts, self.digest, ids, rules
        )

    def numbered(self, list_id: int, counts: Counts, ids: Mapping[str, int]) -> ListState:
        """The same rules with these numbers; `ids` is by fingerprint."""
        return replace(
            self,
            list_id=list_id,
            counts=counts,
            rule_ids=tuple(ids[one] for one in self.fingerprints),
            final_id=ids[FINAL_DISCARD],
        )


@dataclass(frozen=True, slots=True)
class Commit:
    """What the changed lists will be, and the numbers of their rules.

    `rule_ids.fresh` are numbers whose counters start anew.
    """

    lists: tuple[ListState, ...]
    rule_ids: RuleIdPlan = NO_RULE_IDS

    @property
    def spds(self) -> tuple[str, ...]:
        """The SPDs that change, sorted; more than one needs a target with atomic writes."""
        return tuple(sorted({state.spd for state in self.lists}))


def fingerprint(rule: Rule) -> str:
    """What identifies a rule across commits and restarts: equal rules have equal ones.

    A rule without `audit` or `scope` has the fingerprint that it had before there were such fields.
    """
    text = repr(rule)
    if rule.scope is Scope.ANY:
        text = text.removesuffix(f", scope={Scope.ANY!r})") + ")"
        if not rule.audit:
            text = text.removesuffix(", audit=False)") + ")"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def rules_digest(fingerprints: Sequence[str], bundle_ids: Sequence[int]) -> str:
    """SHA-256 over rules and bundle numbers: equal digests give every packet equal verdicts."""
    text = "".join(
        f"{one} {number}\n" for one, number in zip(fingerprints, bundle_ids, strict=True)
    )
    return hashlib.sha256(text.encode()).hexdigest()


class SpdTable:
    """All SPDs. `bundles` has the pipeline's number of each bundle that rules name; others may come
    later. There is room for lists up to `maximum_list_id`, and there are counters for rules up to
    `maximum_rule_id`."""

    def __init__(
        self,
        bundles: Mapping[str, int],
        maximum_list_id: int = MAXIMUM_LIST_ID,
        maximum_rule_id: int = MAXIMUM_RULE_ID,
    ) -> None:
        self.lists: dict[int, ListState] = {}
        self._bundles = bundles
        self._by_name: dict[ListName, int] = {}
        self._issued: dict[int, Counts] = {}
        self._maximum_list_id = maximum_list_id
        self._ids = RuleIds(maximum_rule_id)
        self._records: dict[ListName, ListRecord] = {}

    # -- start

    def restore(self, record: SpdRecord, spds: Iterable[str]) -> None:
        """What an earlier life left on disk; `spds` are those that are configured now.

        To be called before anything else. Lists of other SPDs give their ids back.
        """
        configured = set(spds)
        for old in record.lists:
            self.observe(old.list_id, old.counts)
            if old.spd in configured:
                name = old.spd, old.direction
                self._records[name] = old
                self._by_name[name] = old.list_id
                self._ids.remember(name, old.rule_ids)
        for list_id, counts in record.issued.items():
            self.observe(list_id, counts)

    def observe(self, list_id: int, counts: Counts) -> None:
        """The switch, or the disk, holds these numbers: they are never given out again.

        To be told for every list_state entry and every flow's epoch that is read back, so that a
        lost or old record on disk can never bring a retired flow back to life.
        """
        known = self._issued.get(list_id, NO_COUNTS)
        self._issued[list_id] = Counts(*map(max, known, counts))

    def plan_start(
        self, wanted: Mapping[ListName, Sequence[Rule]], found: Mapping[int, Counts]
    ) -> Commit:
        """The commit that makes `wanted` true in a switch that was found to hold `found`.

        A list that rules, disk and switch agree on goes on as it was, flows and all, and is no
        part of the commit. Raises as `plan_commit` does.
        """
        for name, rules in wanted.items():
            record = self._records.get(name)
            if record is None or found.get(record.list_id) != record.counts:
                continue
            if max(record.rule_ids.values(), default=0) > self._ids.maximum:
                continue  # another pipeline, with fewer counters
            state = self.unnumbered(name, tuple(rules))
            if state.digest == record.digest and self._issued[record.list_id] == record.counts:
                self.lists[record.list_id] = state.numbered(
                    record.list_id, record.counts, record.rule_ids
                )
        return self.plan_commit(wanted)

    # -- what is

    def list_of(self, spd: str, direction: Direction) -> ListState | None:
        """One of an SPD's two lists."""
        list_id = self._by_name.get((spd, direction))
        return None if list_id is None else self.lists.get(list_id)

    def id_of(self, spd: str, direction: Direction) -> int | None:
        """The number that a list has, or will start with if it had one in an earlier life."""
        return self._by_name.get((spd, direction))

    def record_with(self, commit: Commit) -> SpdRecord:
        """What has to be on disk before the switch hears of `commit`."""
        lists = {**self.lists, **{state.list_id: state for state in commit.lists}}
        issued = {
            i: counts
            for i, counts in self._issued.items()
            if i not in lists or lists[i].counts != counts
        }
        return SpdRecord(tuple(lists[i].record() for i in sorted(lists)), issued)

    # -- commits

    def plan_commit(
        self,
        wanted: Mapping[ListName, Sequence[Rule]],
        keeps_epoch: Callable[[int], bool] = lambda list_id: False,
    ) -> Commit:
        """What these lists become with these rules; those that do not change are left out.

        `keeps_epoch` says of a list's id whether its epoch may stay: then it is for the caller to
        delete the flows whose verdict changes, or to give the list a `with_new_epochs`.

        Raises TooManyRulesError, TooManyListsError, and KeyError for a bundle that there is not
        (files are checked for that).
        """
        changed: list[ListState] = []
        for name, rules in wanted.items():
            before = self.list_of(*name)
            state = self.unnumbered(name, tuple(rules))
            if before is None or before.digest != state.digest:
                changed.append(state)
        plan = self._ids.plan(
            {state.name: (*state.fingerprints, FINAL_DISCARD) for state in changed}
        )
        taken = set(self._by_name.values())
        lists = []
        for state in changed:
            list_id = self._by_name.get(state.name) or self._unused(taken)
            taken.add(list_id)
            if list_id in self.lists and keeps_epoch(list_id):
                counts = self._advance_generation(list_id)
            else:
                counts = self._advance(list_id)
            lists.append(state.numbered(list_id, counts, plan.ids[state.name]))
        return Commit(tuple(lists), plan)

    def with_new_epochs(self, commit: Commit, list_ids: Container[int]) -> Commit:
        """The same commit with new epochs for these of its lists: every cached flow retires."""
        return replace(
            commit,
            lists=tuple(
                replace(
                    one,
                    counts=Counts(self._advance_epoch(one.list_id), one.counts.generation),
                )
                if one.list_id in list_ids
                else one
                for one in commit.lists
            ),
        )

    def preview(self, before: ListState, unnumbered: ListState) -> ListState:
        """Returns a list with other rules, their ids those that a commit would give them now.

        Nothing is issued: epoch and generation are those of `before`. Raises TooManyRulesError.
        """
        plan = self._ids.plan({before.name: (*unnumbered.fingerprints, FINAL_DISCARD)})
        return unnumbered.numbered(before.list_id, before.counts, plan.ids[before.name])

    def plan_bump(self, list_ids: Iterable[int]) -> Commit:
        """The same rules with a new epoch and generation: every flow and every answer retires."""
        return Commit(tuple(replace(self.lists[i], counts=self._advance(i)) for i in list_ids))

    def plan_clear(self, list_ids: Iterable[int]) -> Commit:
        """The same rules with a new epoch: every cached flow retires.

        Answers that are under way are as true as before, and their packets are not to be lost: the
        generation stays.
        """
        lists = (self.lists[i] for i in list_ids)
        return Commit(
            tuple(
                replace(
                    state,
                    counts=Counts(self._advance_epoch(state.list_id), state.counts.generation),
                )
                for state in lists
            )
        )

    def apply(self, commit: Commit) -> None:
        """The switch has acknowledged the commit."""
        for state in commit.lists:
            self.lists[state.list_id] = state
            self._by_name[state.name] = state.list_id
        self._ids.commit(commit.rule_ids)

    def _advance(self, list_id: int) -> Counts:
        epoch, generation = self._issued.get(list_id, NO_COUNTS)
        self._issued[list_id] = Counts(advance(epoch), advance(generation))
        return self._issued[list_id]

    def _advance_generation(self, list_id: int) -> Counts:
        """A new generation for a list whose epoch stays the one that is in force."""
        epoch, generation = self._issued.get(list_id, NO_COUNTS)
        self._issued[list_id] = Counts(epoch, advance(generation))
        return Counts(self.lists[list_id].counts.epoch, advance(generation))

    def _advance_epoch(self, list_id: int) -> int:
        epoch, generation = self._issued.get(list_id, NO_COUNTS)
        self._issued[list_id] = Counts(advance(epoch), generation)
        return self._issued[list_id].epoch

    def _unused(self, taken: set[int]) -> int:
        """A list id that nobody has; preferably one that nobody ever had, since interfaces stay
        bound to an earlier owner's until their bindings are written."""
        free = [i for i in range(1, self._maximum_list_id + 1) if i not in taken]
        if free:
            return min(free, key=lambda list_id: (list_id in self._issued, list_id))
        raise TooManyListsError(f"{self._maximum_list_id} lists over all SPDs are the most")

    def unnumbered(self, name: ListName, rules: tuple[Rule, ...]) -> ListState:
        """Returns a list with these rules, as yet without numbers; from any thread. Raises KeyError
        for a bundle that there is not (files are checked for that)."""
        bundle_ids = tuple(
            0 if rule.bundle is None else self._bundles[rule.bundle] for rule in rules
        )
        fingerprints = tuple(map(fingerprint, rules))
        return ListState(
            list_id=0,
            spd=name[0],
            direction=name[1],
            counts=NO_COUNTS,
            rules=rules,
            rule_ids=(),
            final_id=0,
            digest=rules_digest(fingerprints, bundle_ids),
            fingerprints=fingerprints,
            bundle_ids=bundle_ids,
            index=RuleIndex(rules),
        )


def advance(count: int) -> int:
    """The next epoch or generation: 32 bits, and never 0, which is never current."""
    return 1 if count >= MAXIMUM_COUNT else count + 1

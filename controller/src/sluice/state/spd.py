# SPDX-License-Identifier: Apache-2.0
"""Holds security policy databases (pairs of ordered lists), and plans commits that change them.

Each list of an SPD has an id, an **epoch** and a **generation**. A new epoch makes all cached flows
of the list stale. A new generation invalidates all verdicts that are still on their way to the
switch. A commit advances epoch and generation of every list whose rules changed. If the flows whose
verdict changes are deleted one by one (`state.invalidation`), the commit advances only the
generation.

A commit has three steps, because its effect must be on disk before the switch receives it:

1. `plan_*` computes the new lists.
2. The caller writes `record_with` to disk, then writes the switch.
3. `apply` puts the plan in force.

If a commit fails, its plan is dropped. The plan's numbers are never reused, because the switch may
have received some of them. A restart loads the record on disk: the rules of the last commit, and
the SPDs whose flow cache an operator has turned on or off.

The nominal final discard of each list has a rule number of its own, so that its hits are counted
per list. The ordered search (`rule_search`) is the specification. Lookups use an index, which gives
the same results. Pure: no I/O, no clock. Depends on policy.model, rule_search and rule_ids.
"""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from sluice.model import Address
from sluice.policy.model import Action, Direction, Rule, Scope, Selectors, Verdict
from sluice.policy.populated import as_written
from sluice.state.blocks import MEAN_LENGTH, Block, changed_blocks
from sluice.state.common_ends import ChangedPart, changed_part, convert_changed
from sluice.state.rule_ids import MAXIMUM_RULE_ID, NO_RULE_IDS, RuleIdPlan, RuleIds
from sluice.state.rule_search import RuleIndex

MAXIMUM_COUNT = 0xFFFFFFFF
MAXIMUM_LIST_ID = 1023
"""The pipeline's list_state tables have 1024 entries; list id 0 means none."""

ListName: TypeAlias = tuple[str, Direction]
"""(SPD name, direction): one of an SPD's two lists."""


FINAL_DISCARD = "(final)"
"""Fingerprint and name of the final discard of every list (RFC 4301, 4.4.1)."""


class TooManyListsError(Exception):
    """Reports that there are more lists than list ids; no list has changed."""


class ListVersion(NamedTuple):
    """Holds a list's epoch and generation. Both start at 1, and are never 0."""

    epoch: int
    generation: int


NO_VERSION = ListVersion(0, 0)


class RuleNumbers(NamedTuple):
    """Holds the numbers of a list's rules in a form that is quick to encode.

    `listed` has the numbers of the operator's rules, in their order. `others` has the remaining
    numbers by fingerprint: those of generated rules, of the rules of instances (`policy.populated`)
    and of the final discard.
    """

    listed: array[int]
    others: dict[str, int]


class ListRecord(NamedTuple):
    """Holds a list as stored on disk. `rule_ids` is keyed by rule fingerprint.

    `rules` has the operator's rules only, not those that the controller generates. None: the
    configured rules apply. `numbers` has the same numbers as `rule_ids` in another form, or is
    None.
    """

    list_id: int
    spd: str
    direction: Direction
    version: ListVersion
    digest: str
    rule_ids: Mapping[str, int]
    rules: tuple[Rule, ...] | None = None
    numbers: RuleNumbers | None = None


class SpdRecord(NamedTuple):
    """Holds all lists as stored on disk.

    `issued` has the versions, by list id, that were issued but that no list in force has. They were
    issued for failed plans, or their list id is no longer in use. `caches` has the SPDs whose flow
    cache an operator turned on or off. `bundles` maps each bundle number in the switch to its
    bundle's name.
    """

    lists: tuple[ListRecord, ...] = ()
    issued: dict[int, ListVersion] = {}  # noqa: RUF012 - never changed
    caches: dict[str, bool] = {}  # noqa: RUF012 - never changed
    bundles: dict[int, str] = {}  # noqa: RUF012 - never changed


@dataclass(frozen=True, slots=True)
class PolicyList:
    """Holds a list in force.

    - `rule_ids` holds the numbers of `rules`, in the same order. `final_id` is the number of the
      final discard. `numbers` has all these numbers by fingerprint.
    - `bundle_ids` holds the bundle numbers of `rules`. `bundles` has all bundle numbers by name.
    - `blocks` divides the rules into blocks. `digest` covers the digests of these blocks.
    - `rule_set` numbers the list's entries in the switch's rule tables; 0: it has none.
    - `populates`: some rules have `from_packet`, so the list may have rules of instances.

    All versions of a list with the same rules and bundle numbers have the same `content` object.
    `changed` has the `content` of the list from which this list was made, and the part that
    differs.
    """

    list_id: int
    spd: str
    direction: Direction
    version: ListVersion
    rules: tuple[Rule, ...]
    rule_ids: tuple[int, ...]
    final_id: int
    digest: str
    fingerprints: tuple[str, ...] = field(repr=False)
    bundle_ids: tuple[int, ...] = field(repr=False)
    index: RuleIndex = field(compare=False, repr=False)
    blocks: tuple[Block, ...] = field(compare=False, repr=False)
    numbers: Mapping[str, int] = field(compare=False, repr=False)
    bundles: Mapping[str | None, int] = field(compare=False, repr=False)
    rule_set: int = 0
    populates: bool = False
    changed: tuple[object, ChangedPart] | None = field(default=None, compare=False, repr=False)
    content: object = field(default_factory=object, compare=False, repr=False)

    @property
    def name(self) -> ListName:
        """The SPD and the direction."""
        return self.spd, self.direction

    def search(self, packet: Selectors) -> Verdict:
        """Returns the verdict of the first rule that matches, or the nominal final discard if none
        matches."""
        return self.verdict_at(self.index.first_match(packet))

    def search_fragment(self, later: Selectors, first: Selectors | None) -> Verdict | None:
        """Returns a later fragment's verdict, given its own selectors and those of its first
        fragment.

        Without the first fragment, returns None if the rules that may match disagree.
        """
        match = self.index.first_match_of_fragment(later, first)
        return None if match is None else self.verdict_at(match.at)

    def final(self) -> Verdict:
        """Returns the nominal final discard."""
        return self.verdict_at(None)

    def is_default(self, verdict: Verdict) -> bool:
        """Returns whether a verdict is the nominal final discard or a default of the kernel.

        The defaults are the last rules of a list that mirrors the kernel.
        """
        if verdict.rule_id == self.final_id:
            return True
        for rule, number in zip(reversed(self.rules), reversed(self.rule_ids), strict=True):
            if not rule.is_default:
                return False
            if number == verdict.rule_id:
                return True
        return False

    def restricts_to(self, destination: Address, *, is_own: bool) -> bool:
        """Returns whether a rule that protects or discards accepts this destination, from any
        source. Defaults of the kernel do not count."""
        return self.index.restricts_to(destination, is_own=is_own)

    def verdict_at(self, at: int | None) -> Verdict:
        """Returns the verdict of the rule at a position, or the nominal final discard for None."""
        if at is None:
            return Verdict(self.final_id, Action.DISCARD, 0)
        return Verdict(self.rule_ids[at], self.rules[at].action, self.bundle_ids[at])

    def record(self) -> ListRecord:
        """Returns the record to store on disk."""
        generated = sum(1 for _ in takewhile(_is_generated, self.rules))
        others = dict(zip(self.fingerprints[:generated], self.rule_ids, strict=False))
        others[FINAL_DISCARD] = self.final_id
        rules, listed = self.rules[generated:], self.rule_ids[generated:]
        if self.populates:
            others |= {
                one: number
                for rule, one, number in zip(
                    self.rules, self.fingerprints, self.rule_ids, strict=True
                )
                if rule.is_instance
            }
            written = [
                (as_written(rule), number)
                for rule, number in zip(rules, listed, strict=True)
                if not rule.is_instance
            ]
            rules, listed = (tuple(part) for part in zip(*written, strict=True))
        return ListRecord(
            self.list_id,
            self.spd,
            self.direction,
            self.version,
            self.digest,
            self.numbers,
            rules,
            RuleNumbers(array("I", listed), others),
        )

    def numbered(
        self,
        list_id: int,
        version: ListVersion,
        ids: Mapping[str, int],
        before: PolicyList | None = None,
    ) -> PolicyList:
        """Returns a copy of this list with its list id, version and rule numbers. `ids` is keyed by
        fingerprint.

        Copies the numbers of unchanged rules from the list `before`. So `ids` must have the same
        numbers for them.
        """
        if before is None:
            rule_ids = tuple(map(ids.__getitem__, self.fingerprints))
        else:
            rule_ids = convert_changed(
                ids.__getitem__,
                self.fingerprints,
                before.fingerprints,
                before.rule_ids,
                changed_since(before, self),
            )
        return replace(
            self,
            list_id=list_id,
            version=version,
            rule_ids=rule_ids,
            final_id=ids[FINAL_DISCARD],
            numbers=ids,
        )


_BUNDLE: Callable[[Rule], str | None] = itemgetter(Rule._fields.index("bundle"))
_FROM_PACKET: Callable[[Rule], tuple[str, ...]] = itemgetter(Rule._fields.index("from_packet"))


def _is_generated(rule: Rule) -> bool:
    return rule.generated


@dataclass(frozen=True, slots=True)
class Commit:
    """Holds the new state of the changed lists, and the numbers of their rules.

    `rule_ids.fresh` are the numbers whose counters start from zero.
    """

    lists: tuple[PolicyList, ...]
    rule_ids: RuleIdPlan = NO_RULE_IDS

    @property
    def spds(self) -> tuple[str, ...]:
        """The SPDs that change, sorted. A change of several SPDs needs a target with atomic
        writes."""
        return tuple(sorted({state.spd for state in self.lists}))


def changed_since(before: PolicyList, after: PolicyList) -> ChangedPart:
    """Returns the part of the list `after` in which rules or bundle numbers differ from `before`.

    Constant time if `after` was made from `before`.
    """
    if after.changed is not None and after.changed[0] is before.content:
        return after.changed[1]
    return changed_part(after.fingerprints, before.fingerprints).union(
        changed_part(after.bundle_ids, before.bundle_ids)
    )


def fingerprint(rule: Rule) -> str:
    """Returns an id of a rule. Equal rules have equal ids, across commits and restarts.

    The fields from `audit` on were added later. If a rule has their defaults, its fingerprint does
    not include them, so it is the same as before. A rule with `from_packet` has the same
    fingerprint in a list with instances as in the operator's rules.
    """
    text = repr(as_written(rule))
    defaults = (
        ", is_instance=False)",
        ", from_packet=())",
        ", mobility_type=None)",
        ", reject=False)",
        ", is_default=False)",
        f", scope={Scope.ANY!r})",
        ", audit=False)",
    )
    for default in defaults:
        if not text.endswith(default):
            break
        text = text.removesuffix(default) + ")"
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def rule_blocks(
    fingerprints: tuple[str, ...],
    bundle_ids: tuple[int, ...],
    without_later: Container[int] = frozenset(),
    before: Sequence[Block] = (),
    part: ChangedPart | None = None,
) -> tuple[Block, ...]:
    """Divides rules into blocks. Equal blocks have the same rules and bundle numbers.

    `without_later` has the bundles that carry no later fragments. Unchanged blocks are taken from
    `before`, the blocks of an earlier list. `part` is the part in which rules or bundle numbers
    differ from that list.
    """

    def digest(start: int, end: int) -> str:
        text = "".join(
            f"{one} {number}{' -later' if number in without_later else ''}\n"
            for one, number in zip(fingerprints[start:end], bundle_ids[start:end], strict=True)
        )
        return hashlib.sha256(text.encode()).hexdigest()

    size = len(fingerprints)
    return changed_blocks(
        part or ChangedPart(0, size, sum(block.length for block in before)),
        size,
        before,
        lambda at: fingerprints[at] < _LAST_OF_BLOCK,
        digest,
    )


_LAST_OF_BLOCK = f"{(1 << 32) // MEAN_LENGTH:08x}"
"""A rule whose fingerprint is less than this text ends a block."""


def rules_digest(blocks: Iterable[Block]) -> str:
    """Returns SHA-256 over rules and bundle numbers. If the digests of two lists are equal, so are
    their verdicts."""
    text = "".join(f"{block.length} {block.digest}\n" for block in blocks)
    return hashlib.sha256(text.encode()).hexdigest()


class SpdTable:
    """Holds all SPDs.

    `bundles` has the pipeline's number of each bundle that rules name. The caller may add bundles
    later. List ids go up to `maximum_list_id`, rule counters up to `maximum_rule_id`. For
    `without_later`, see `rule_blocks`.
    """

    def __init__(
        self,
        bundles: Mapping[str, int],
        maximum_list_id: int = MAXIMUM_LIST_ID,
        maximum_rule_id: int = MAXIMUM_RULE_ID,
        *,
        without_later: Container[int] = frozenset(),
    ) -> None:
        self.lists: dict[int, PolicyList] = {}
        self._bundles = bundles
        self._without_later = without_later
        self._by_name: dict[ListName, int] = {}
        self._issued: dict[int, ListVersion] = {}
        self._maximum_list_id = maximum_list_id
        self._ids = RuleIds(maximum_rule_id)
        self._records: dict[ListName, ListRecord] = {}
        self._kept_records: dict[int, tuple[PolicyList, ListRecord]] = {}
        """The last record of each list, by list id."""

    # -- start

    def restore(self, record: SpdRecord, spds: Iterable[str]) -> None:
        """Restores the record that an earlier process wrote. `spds` are the SPDs configured now.

        Must be called before any other method. The ids of lists whose SPD is not in `spds` become
        free.
        """
        configured = set(spds)
        for old in record.lists:
            self.observe(old.list_id, old.version)
            if old.spd in configured:
                name = old.spd, old.direction
                self._records[name] = old
                self._by_name[name] = old.list_id
                self._ids.remember(name, old.rule_ids)
        for list_id, version in record.issued.items():
            self.observe(list_id, version)

    def observe(self, list_id: int, version: ListVersion) -> None:
        """Ensures that an epoch and generation found in the switch or on disk are not issued again.

        Must be called for every list_state entry and every flow's epoch that is read back. Then a
        stale flow stays invalid even if the record on disk is lost or old.
        """
        known = self._issued.get(list_id, NO_VERSION)
        self._issued[list_id] = ListVersion(*map(max, known, version))

    def plan_start(
        self, wanted: Mapping[ListName, Sequence[Rule]], found: Mapping[int, ListVersion]
    ) -> Commit:
        """Plans the commit that puts `wanted` in force at start. `found` has the versions found in
        the switch.

        If the wanted rules, the record on disk and the switch agree on a list, the list keeps its
        numbers and flows, and the commit does not contain it. Raises the same errors as
        `plan_commit`.
        """
        for name, rules in wanted.items():
            record = self._records.get(name)
            if record is None or found.get(record.list_id) != record.version:
                continue
            if max(record.rule_ids.values(), default=0) > self._ids.maximum:
                continue  # an earlier pipeline had more counters
            state = self.unnumbered(name, tuple(rules))
            if state.digest == record.digest and self._issued[record.list_id] == record.version:
                self.lists[record.list_id] = state.numbered(
                    record.list_id, record.version, record.rule_ids
                )
                self._ids.keep(name, state.fingerprints)
        return self.plan_commit(wanted)

    # -- lists in force

    def list_of(self, spd: str, direction: Direction) -> PolicyList | None:
        """Returns one of an SPD's two lists, or None."""
        list_id = self._by_name.get((spd, direction))
        return None if list_id is None else self.lists.get(list_id)

    def id_of(self, spd: str, direction: Direction) -> int | None:
        """Returns a list's id, or None. The id may come from an earlier process."""
        return self._by_name.get((spd, direction))

    def record_with(self, commit: Commit) -> SpdRecord:
        """Returns the record that must be on disk before the switch receives `commit`."""
        lists = {**self.lists, **{state.list_id: state for state in commit.lists}}
        issued = {
            i: version
            for i, version in self._issued.items()
            if i not in lists or lists[i].version != version
        }
        return SpdRecord(tuple(self._record(lists[i]) for i in sorted(lists)), issued)

    def _record(self, state: PolicyList) -> ListRecord:
        """Returns the record of a list. Caches it, because the record of a long list takes long to
        make."""
        known = self._kept_records.get(state.list_id)
        if known is None or known[0] is not state:
            known = self._kept_records[state.list_id] = state, state.record()
        return known[1]

    # -- commits

    def plan_commit(
        self,
        wanted: Mapping[ListName, Sequence[Rule]],
        keeps_epoch: Callable[[int], bool] = lambda list_id: False,
    ) -> Commit:
        """Plans the commit that gives each of these lists its new rules. Unchanged lists are not
        part of it.

        `keeps_epoch` takes a list id, and returns whether this list may keep its epoch. For such a
        list, the caller must delete the flows whose verdict changes, or renew the epoch with
        `with_new_epochs`.

        Raises TooManyRulesError, TooManyListsError, and KeyError for an unknown bundle. (The caller
        has checked the bundles of rule files before.)
        """
        changed: list[PolicyList] = []
        for name, rules in wanted.items():
            before = self.list_of(*name)
            state = self.unnumbered(name, tuple(rules))
            if before is None or before.digest != state.digest:
                changed.append(state)
        plan = self._ids.plan(
            {state.name: state.fingerprints for state in changed}, [FINAL_DISCARD]
        )
        taken = set(self._by_name.values())
        lists = []
        for state in changed:
            list_id = self._by_name.get(state.name) or self._unused(taken)
            taken.add(list_id)
            if list_id in self.lists and keeps_epoch(list_id):
                version = self._advance_generation(list_id)
            else:
                version = self._advance(list_id)
            before = self.lists.get(list_id)
            lists.append(state.numbered(list_id, version, plan.ids[state.name], before))
        return Commit(tuple(lists), plan)

    def with_new_epochs(self, commit: Commit, list_ids: Container[int]) -> Commit:
        """Returns the same commit with new epochs for these lists, which makes their cached flows
        stale."""
        return replace(
            commit,
            lists=tuple(
                replace(
                    one,
                    version=ListVersion(self._advance_epoch(one.list_id), one.version.generation),
                )
                if one.list_id in list_ids
                else one
                for one in commit.lists
            ),
        )

    def preview(self, before: PolicyList, unnumbered: PolicyList) -> PolicyList:
        """Returns the list that a commit of `unnumbered` would put in force, with its rule numbers.

        Issues no numbers: epoch and generation are those of `before`. Raises TooManyRulesError.
        """
        plan = self._ids.plan({before.name: unnumbered.fingerprints}, [FINAL_DISCARD])
        return unnumbered.numbered(before.list_id, before.version, plan.ids[before.name], before)

    def plan_bump(self, list_ids: Iterable[int]) -> Commit:
        """Plans a new epoch and generation for unchanged rules.

        The new epoch makes all cached flows stale. The new generation invalidates all verdicts on
        their way to the switch.
        """
        return Commit(tuple(replace(self.lists[i], version=self._advance(i)) for i in list_ids))

    def plan_clear(self, list_ids: Iterable[int]) -> Commit:
        """Plans a new epoch for unchanged rules, which makes all cached flows stale.

        Keeps the generation: verdicts on their way to the switch are still valid, and their packets
        must not be lost.
        """
        lists = (self.lists[i] for i in list_ids)
        return Commit(
            tuple(
                replace(
                    state,
                    version=ListVersion(
                        self._advance_epoch(state.list_id), state.version.generation
                    ),
                )
                for state in lists
            )
        )

    def apply(self, commit: Commit) -> None:
        """Puts a commit in force, after the switch has acknowledged it."""
        for state in commit.lists:
            self.lists[state.list_id] = state
            self._by_name[state.name] = state.list_id
        self._ids.commit(commit.rule_ids)

    def _advance(self, list_id: int) -> ListVersion:
        epoch, generation = self._issued.get(list_id, NO_VERSION)
        self._issued[list_id] = ListVersion(advance(epoch), advance(generation))
        return self._issued[list_id]

    def _advance_generation(self, list_id: int) -> ListVersion:
        """Advances the generation of a list. Keeps the epoch that is in force."""
        epoch, generation = self._issued.get(list_id, NO_VERSION)
        self._issued[list_id] = ListVersion(epoch, advance(generation))
        return ListVersion(self.lists[list_id].version.epoch, advance(generation))

    def _advance_epoch(self, list_id: int) -> int:
        epoch, generation = self._issued.get(list_id, NO_VERSION)
        self._issued[list_id] = ListVersion(advance(epoch), generation)
        return self._issued[list_id].epoch

    def _unused(self, taken: set[int]) -> int:
        """Returns a free list id, preferably one that was never issued. Raises TooManyListsError.

        If an id was issued before, interfaces may still be bound to the id's earlier list. They
        would use the new list until their bindings are written.
        """
        free = [i for i in range(1, self._maximum_list_id + 1) if i not in taken]
        if free:
            return min(free, key=lambda list_id: (list_id in self._issued, list_id))
        raise TooManyListsError(f"all SPDs together have more than {self._maximum_list_id} lists")

    def unnumbered(self, name: ListName, rules: tuple[Rule, ...]) -> PolicyList:
        """Returns a list with these rules and without numbers. May be called from any thread.

        Raises KeyError for an unknown bundle. (The caller has checked the bundles of rule files.)
        """
        before = self.list_of(*name)
        numbers: dict[str | None, int] = {None: 0}
        numbers.update(self._bundles)
        known = _EMPTY if before is None else before
        of_rules = changed_part(rules, known.rules)
        fingerprints = convert_changed(
            fingerprint, rules, known.rules, known.fingerprints, of_rules
        )
        if known.bundles == numbers:
            part = of_rules
            bundle_ids = convert_changed(
                lambda rule: numbers[rule.bundle], rules, known.rules, known.bundle_ids, part
            )
        else:
            bundle_ids = tuple(map(numbers.__getitem__, map(_BUNDLE, rules)))
            part = of_rules.union(changed_part(bundle_ids, known.bundle_ids))
        blocks = rule_blocks(fingerprints, bundle_ids, self._without_later, known.blocks, part)
        return PolicyList(
            list_id=0,
            spd=name[0],
            direction=name[1],
            version=NO_VERSION,
            rules=rules,
            rule_ids=(),
            final_id=0,
            digest=rules_digest(blocks),
            fingerprints=fingerprints,
            bundle_ids=bundle_ids,
            index=RuleIndex(rules, known.index, of_rules),
            blocks=blocks,
            numbers={},
            populates=any(map(_FROM_PACKET, rules)),
            bundles=numbers,
            changed=(known.content, part),
        )


_EMPTY = PolicyList(
    list_id=0,
    spd="",
    direction=Direction.INBOUND,
    version=NO_VERSION,
    rules=(),
    rule_ids=(),
    final_id=0,
    digest="",
    fingerprints=(),
    bundle_ids=(),
    index=RuleIndex(()),
    blocks=(),
    numbers={},
    bundles={},
)
"""A list without rules."""


def advance(count: int) -> int:
    """Returns the next epoch or generation: 32 bits, never 0."""
    return 1 if count >= MAXIMUM_COUNT else count + 1

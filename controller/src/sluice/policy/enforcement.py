# SPDX-License-Identifier: Apache-2.0
"""Enforces the SPDs of a running router: starts them, commits rules, turns flow caches on and off.

`Policy._commit` plans a commit (`state.spd`), deletes the flows whose verdict the commit changes
(`flow_invalidation`) and applies the commit (module `commit`). Applying saves the commit on disk,
then writes it to the switch ahead of all other updates. The commit is in force once the switch has
acknowledged the write. If a commit fails, `Policy` repairs the switch. Changes wait in a queue and
run one at a time.

A session (`run`) begins once the kernel has reported this router's addresses, because the generated
rules name them. The session compares the switch with the desired state and corrects the switch. If
the configuration has changed over a restart, no packet is handled by a mix of both configurations:

- entities that differ are closed before anything is written (`plan_closing`): the switch drops
  their packets;
- the lists are replaced, either all in one write or while the lists are closed;
- only then are interfaces bound and opened (`Reconciler.open`).

An instance of a bundle (`policy.populated`) exists as long as it has SAs. When instances come or
go, `_commit_instances` commits the lists with the instances' rules, like any other change of rules.

The numbers of lists, epochs and rules are read from the record on disk. If the record is
unreadable, the program ends: with guessed numbers, a stale flow could become valid again. A restart
resumes with the last committed rules and the last on/off state of each cache (`start`).

Depends on state.spd, commit, record, start, operator_rules, reconciler, flow_tables and entities.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from functools import partial
from operator import ne
from typing import NamedTuple, TypeVar

from sluice.audit_log import REQUESTED_BY, ListChange, Requester
from sluice.config import Config
from sluice.entities import (
    OPENING,
    BundleInVrf,
    Decrypt,
    EntityChanges,
    EntityKey,
    EntityKind,
    EntityValue,
    ListBinding,
)
from sluice.entities import ListState as ListEntity
from sluice.garbage_collection import paused_if
from sluice.model import Address
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4runtime.session import P4RuntimeError, Session
from sluice.policy import entities as policy_entities
from sluice.policy.bundle_instances import BundleInstances, WithInstances
from sluice.policy.change_steps import ChangeStep, ChangeSteps
from sluice.policy.commit import CommitWriter, EntityEntry, entities_of, entity_of
from sluice.policy.config import LookupMode, SpdConfig
from sluice.policy.encoded_rules import EncodedRules, is_long
from sluice.policy.flow_invalidation import FlowInvalidation, highest_epochs
from sluice.policy.flow_tables import FlowTables, ListCache
from sluice.policy.history import CommitHistory, HistoryError, author_of
from sluice.policy.model import Direction, Rule
from sluice.policy.operator_rules import OperatorRules
from sluice.policy.populated import Instance, named_bundle, ordered
from sluice.policy.record import PolicyRecord
from sluice.policy.rule_edits import EditError
from sluice.policy.rule_sets import RuleSets, installed_sets
from sluice.policy.spdstore import SpdStore, SpdStoreError
from sluice.policy.start import Capacity, PolicyError, check_capacity, rules_at_start
from sluice.policy.table_use import TableUse
from sluice.reconciler import Reconciler
from sluice.state.bundle_numbers import BundleNumbers, TooManyBundlesError
from sluice.state.flow_cache import FlowVerdict
from sluice.state.invalidation import wrapped_lists
from sluice.state.native_flows import NativeFlowCache
from sluice.state.rule_ids import TooManyRulesError
from sluice.state.spd import (
    Commit,
    ListName,
    ListVersion,
    PolicyList,
    SpdTable,
    TooManyListsError,
)
from sluice.state.takeover import ClosingPlan, EntitiesByKind, ReassignedNumbers, plan_closing
from sluice.task_slices import call, run_until_one_ends
from sluice.wire.selectors import quotes_a_packet

T = TypeVar("T")
log = logging.getLogger(__name__)

ATOMIC_TARGETS = frozenset({"sluice-switch"})
"""Targets that apply a write of several lists atomically, between two packets."""
ADDRESS_RETRY = 1.0
"""Seconds until a failed commit of generated rules, or of the rules of instances, is retried."""

RuleLists = Mapping[Direction, Sequence[Rule]]
RuleTuples = Mapping[Direction, tuple[Rule, ...]]


class MirroredSpd(NamedTuple):
    """Holds the rules of a mirrored SPD, and the names of the bundles that these rules may use."""

    rules: RuleLists
    bundles: tuple[str, ...]


class Policy:
    """Manages all SPDs of a router.

    `own(vrf)` returns this router's addresses in a VRF. `mirrored` holds the initial rules of the
    mirrored SPDs, whose rules are the kernel's IPsec policies. Raises SpdStoreError and
    PolicyError.
    """

    in_force_at = 0.0
    """Time at which the switch acknowledged the last commit, by the event loop's clock."""
    _closed = False

    def __init__(
        self,
        config: Config,
        reconciler: Reconciler,
        flows: FlowTables,
        codec: FlowCodec,
        own: Callable[[int], Iterable[Address]],
        *,
        mirrored: Mapping[str, MirroredSpd] | None = None,
    ) -> None:
        self._config = config
        self._reconciler = reconciler
        self._codec = codec
        self.flows = flows
        self.invalidation = FlowInvalidation(flows)
        self.spds: dict[str, SpdConfig] = {spd.name: spd for spd in config.policy.spds}
        encoded = EncodedRules(config.state_dir)
        store = SpdStore(config.state_dir, encoded)
        # SPDs that are not configured lose their committed rules. If one is configured again later,
        # it starts with the configured rules.
        loaded = store.forget_committed(keep=self.spds)
        self.check_capacity(config)
        mirrored = mirrored or {}
        self.numbers = _bundle_numbers(config, loaded.bundles, mirrored.values())
        self._mirrored = {spd: one.bundles for spd, one in mirrored.items()}
        """The bundles of each mirrored SPD."""
        self.instances = BundleInstances(self.numbers)
        self.without_later = WithInstances(config.policy.without_later_fragments(), self.numbers)
        """The bundles that carry no later fragments."""
        rules = rules_at_start(config, loaded) | {
            (spd, direction): tuple(listed)
            for spd, one in mirrored.items()
            for direction, listed in one.rules.items()
        }
        self.rules = OperatorRules(config, rules, own, self.numbers.add)
        """The rules in force; during a commit, the proposed rules."""
        self.table = SpdTable(
            self.numbers.by_name,
            codec.lists,
            codec.rules,
            without_later=self.without_later,
        )
        self.table.restore(loaded, self.spds)
        self._had_lists = bool(loaded.lists)
        self._lock = asyncio.Lock()
        """Serializes changes."""
        self.record = PolicyRecord(store, self.table, loaded, self._lock.locked)
        self.history = CommitHistory(config.state_dir, encoded)
        self._atomic = config.switch.target in ATOMIC_TARGETS
        self.steps = ChangeSteps()
        """The progress of the change that is under way."""
        self.rule_sets = RuleSets(
            reconciler,
            TableUse(self.spds, codec.rule_entries, config.switch.target),
            codec.rule_entries,
            lambda state: state.direction is Direction.OUTBOUND and self.spds[state.spd].reject,
        )
        self._writer = CommitWriter(
            *(self.table, self.record, reconciler, flows, self.invalidation),
            rule_sets=self.rule_sets,
            codec=codec,
            atomic=self._atomic,
            steps=self.steps,
        )
        self.list_by_id = self._writer.list_by_id
        self.searched, self.counters = self._writer.searched, self._writer.counters
        self.started = not self.spds
        self.on_started: Callable[[], None] = lambda: None
        self.on_changed: Callable[[str, Iterable[str], Iterable[ListChange]], None]
        self.on_changed = lambda change, spds, lists: None
        """Called after each change has taken effect, with a description of the change, the changed
        SPDs, and their lists before and after."""
        self.associations: Callable[[], Mapping[EntityKind, Mapping[EntityKey, EntityValue]]] = dict
        """Returns the entities of the SAs that the controller installs in engines."""
        self._session: Session | None = None
        self.standing = asyncio.Event()
        """Set while the policy in the switch equals the desired policy."""
        self._addresses_known = asyncio.Event()
        self._addresses_changed = asyncio.Event()
        self._replaced: list[PolicyList | None] = []  # lists to free later
        self._named: dict[str, list[Address]] = {}  # addresses in the generated rules
        if self.spds:
            self._reconciler.hold(OPENING)

    def check_capacity(self, config: Config) -> None:
        """Raises PolicyError if a configuration needs more entries than the pipeline's tables
        have."""
        check_capacity(config, Capacity(self._codec.flows, self._codec.rules, self._codec.lists))

    def set_configured(self, config: Config) -> None:
        """Updates the configuration of the SPDs, including configured rules.

        Does not change the rules in force.
        """
        self.spds.update((spd.name, spd) for spd in config.policy.spds)

    def is_cache_on(self, spd: str) -> bool:
        """Returns whether an SPD's flow caches are on.

        The operator's last command decides. Without a command, the configuration decides. With
        `mode: rules` there are no caches.
        """
        if self.spds[spd].mode is LookupMode.RULES:
            return False
        return self.record.caches.get(spd, self.spds[spd].flow_cache.enabled)

    # -- a session

    def closing(
        self, installed: EntitiesByKind, moved_interfaces: Container[int] = ()
    ) -> ClosingPlan:
        """Returns the installed entities to close before the new configuration is written.

        `moved_interfaces` are interface numbers that may mean another interface in the switch than
        in the configuration.
        """
        self._warn_of_a_lost_record(installed)
        wanted: dict[EntityKind, Mapping[EntityKey, EntityValue]] = dict(self._reconciler.desired)
        for kind, entries in self._bindings().by_kind.items():
            wanted[kind] = {key: value for key, value in entries.items() if value is not None}
        bundles = policy_entities.moved_bundles(self.numbers.by_name, self.record.bundle_names)
        swapped = policy_entities.INTERFACE_BINDINGS if self._atomic else frozenset()
        return plan_closing(
            installed, wanted, ReassignedNumbers(moved_interfaces, bundles), swapped
        )

    def _warn_of_a_lost_record(self, installed: EntitiesByKind) -> None:
        """Logs a warning if the switch holds lists but there is no record of commits on disk."""
        if self.spds and not self._had_lists and installed[EntityKind.INBOUND_LIST]:
            log.warning(
                "policy: the switch holds lists of SPDs, but %s is missing: earlier commits are"
                " lost, and the configured rules are in force",
                self.record.path,
            )
        self._had_lists = True

    async def run(self, session: Session) -> None:
        """Starts the SPDs in a session, and then applies changes of addresses and instances to
        them.

        Runs until cancelled. Raises P4RuntimeError when the session ends, and SpdStoreError or
        PolicyError if the configured SPDs cannot be started.
        """
        await self._addresses_known.wait()
        self._addresses_changed.clear()
        if not self.spds:
            self._reconciler.release(policy_entities.BINDING_KINDS)
            self.standing.set()
            await asyncio.wait({session.closed})
            return
        try:
            async with self._lock:
                self._session = session
                self._list_instances()
                await self._synchronize(session)
                self.instances.in_force = self.instances.listed
                await self._write_lacking_rule_sets(session)
            serving = self.flows.run(session), self._follow_addresses(), self._follow_instances()
            await run_until_one_ends(serving)
        finally:
            self._session = None
            self._reconciler.hold(OPENING)
            self.standing.clear()
            self.flows.close()
            self.rule_sets.forget()

    async def _synchronize(self, session: Session) -> None:
        """Writes the desired lists, bindings and flow caches to the switch after a read-back."""
        flows = await self.flows.read(session)
        lists = self._installed()
        found = {key: ListVersion(one.epoch, one.generation) for key, one in lists.items()}
        for list_id, version in found.items():
            self.table.observe(list_id, version)
        epochs = highest_epochs(flows)
        for list_id, epoch in epochs.items():
            self.table.observe(list_id, ListVersion(epoch, 0))
        # Order: before the first await, so that the rules and `named` have the same addresses.
        generated, named = self.rules.generated(self.spds), self.rules.named_by(self.spds)
        in_thread = any(map(is_long, self.rules.by_list.values()))

        def plan() -> Commit:
            wanted = self.rules.wanted(self.spds, generated)
            if self.started:
                return self.table.plan_commit(wanted)
            return self.table.plan_start(wanted, found)

        try:
            await self._number_bundles_without_sa(self.spds, in_thread=in_thread)
            with paused_if(in_thread):
                commit = await call(plan, in_thread=in_thread)
        except (TooManyRulesError, TooManyListsError, TooManyBundlesError) as error:
            raise PolicyError(str(error)) from error
        await self._adopt_rule_sets()
        commit = self._with_lost(commit, self.spds, lists)
        flows = await self._without_wrapped(session, flows, commit)
        await self._writer.prepare(session, commit)
        await self._writer.apply(session, commit, self._changed_bindings(commit), together=True)
        self._named |= named
        retiring = self._retiring(epochs)
        flows = await self._without_wrapped(session, flows, retiring)
        await self._writer.apply(session, retiring)
        self._reconciler.keep(entities_of(self.table.lists.values()))
        self._name_bundles()
        self.flows.rebuild(self._make_caches(), flows)
        self._reconciler.submit(self._bindings())
        self._reconciler.release(policy_entities.BINDING_KINDS)
        self._reconciler.open()
        self.standing.set()
        if not self.started:
            self.started = True
            log.info("policy: %s", ", ".join(self.spds))
            all_lists = [ListChange.of(None, state) for state in self.table.lists.values()]
            self.on_changed("start", self.spds, all_lists)
            await asyncio.to_thread(self.history.begin, self._rules_by_spd(self._committed_spds()))
        self.on_started()

    async def _adopt_rule_sets(self) -> None:
        """Takes over the rule sets that the switch holds for the lists in force."""
        installed = installed_sets(self._reconciler.installed.by_kind)
        for state in await self.rule_sets.adopt(list(self.table.lists.values()), installed):
            self.table.lists[state.list_id] = state

    async def _write_lacking_rule_sets(self, session: Session) -> None:
        """Writes rule sets for the lists in force that have none, and then names these sets in the
        lists.

        If a rule set cannot be written or named, its list stays without one. Raises P4RuntimeError
        if the session ends.
        """
        lacking = tuple(state for state in self.table.lists.values() if not state.rule_set)
        for state in lacking:
            made = await self.rule_sets.prepare(session, Commit((state,)))
            if made.lists == (state,):
                continue
            try:
                await self._writer.apply(session, made)
            except (P4RuntimeError, SpdStoreError) as error:
                if isinstance(error, SpdStoreError):
                    await self.rule_sets.withdraw(made, self.table.lists)
                elif session.closed.done():
                    raise
                else:
                    await self._repair(session)
                self.record.save_again()
                log.warning(
                    "policy %s: the %s rules are not in the rule tables, so new flows are searched"
                    " for by the controller: %s",
                    *(state.spd, state.direction.value, error),
                )

    async def _without_wrapped(
        self, session: Session, flows: list[tuple[FlowSlot, FlowVerdict]], commit: Commit
    ) -> list[tuple[FlowSlot, FlowVerdict]]:
        """Deletes the flows of lists whose epoch number wraps around with this commit.

        Without this, flows of an old epoch would become valid again when its number recurs. Returns
        the other flows.
        """
        wrapped = wrapped_lists(commit, highest_epochs(flows))
        await self.flows.delete_found(
            session, [slot for slot, _ in flows if slot.list_id in wrapped]
        )
        return [flow for flow in flows if flow[0].list_id not in wrapped]

    def _changed_bindings(self, commit: Commit) -> list[EntityEntry]:
        """Returns the interface bindings to change in the same write as the lists.

        With an atomic write, an interface that gets another SPD need not be closed. For a target
        without atomic writes, returns no bindings, because the interface is closed first and bound
        later.
        """
        if not self._atomic:
            return []
        numbers = {state.name: state.list_id for state in commit.lists}

        def list_id(spd: str, direction: Direction) -> int | None:
            return numbers.get((spd, direction)) or self.table.id_of(spd, direction)

        wanted = policy_entities.bindings(self._config, list_id, {}).by_kind
        held = self._reconciler.installed.by_kind
        return [
            (kind, key, value)
            for kind in sorted(policy_entities.INTERFACE_BINDINGS)
            for key, value in wanted.get(kind, {}).items()
            if value is not None and key in held[kind] and held[kind][key] != value
        ]

    def _name_bundles(self) -> None:
        """Saves which bundle each bundle number means.

        Order: before SAs are written to the switch. From now on, the bundle numbers in all flows
        have the meaning that they have in the configuration. Raises SpdStoreError.
        """
        if self.record.bundle_names != self.numbers.names:
            self.record.bundle_names = self.numbers.names
            self.record.save()

    def _bindings(self) -> EntityChanges:
        """Returns the bindings of interfaces and bundles, and the SAs.

        Omits bindings to lists that have no number yet.
        """
        changes = policy_entities.bindings(self._config, self.table.id_of, self.associations())
        for spd, bundles in self._mirrored.items():
            self._bind_bundles(spd, bundles, changes)
        self._bind_instances(self.instances.wanted, changes)
        return changes

    def _bind_bundles(self, spd: str, bundles: Iterable[str], changes: EntityChanges) -> None:
        """Binds a mirrored SPD's bundles to the SPD's inbound list.

        The list then checks the packets that SAs of these bundles decrypt.
        """
        list_id = self.table.id_of(spd, Direction.INBOUND)
        vrf = policy_entities.vrf_of(self._config, spd)
        if list_id is not None:
            for name in bundles:
                in_vrf = BundleInVrf(vrf, self.numbers.by_name[name])
                changes.set(EntityKind.BUNDLE_BINDING, in_vrf, ListBinding(list_id))

    def _bind_instances(self, instances: Iterable[Instance], changes: EntityChanges) -> None:
        """Binds instances to the inbound lists of their bundles' SPDs."""
        spds = {bundle.name: bundle.spd for bundle in self._config.policy.bundles}
        vrfs = policy_entities.vrfs_of_bundles(self._config)
        for one in instances:
            list_id = self.table.id_of(spds[one.bundle], Direction.INBOUND)
            if list_id is not None:
                in_vrf = BundleInVrf(vrfs[one.bundle], self.numbers.by_name[one.name])
                changes.set(EntityKind.BUNDLE_BINDING, in_vrf, ListBinding(list_id))

    def _installed(self) -> dict[int, ListEntity]:
        """Returns the entities of the lists in the switch, by list id.

        Ignores entries that no controller of this version has written.
        """
        return {
            key: value
            for kind in policy_entities.LIST_KINDS.values()
            for key, value in self._reconciler.installed.by_kind[kind].items()
            if isinstance(key, int) and isinstance(value, ListEntity)
        }

    def _with_lost(
        self, commit: Commit, spds: Iterable[str], installed: Mapping[int, ListEntity]
    ) -> Commit:
        """Adds to a commit those lists of these SPDs that differ in the switch.

        The added lists get new version numbers.
        """
        known = {state.list_id for state in commit.lists}
        lost = [
            list_id
            for list_id, state in self.table.lists.items()
            if state.spd in spds
            and list_id not in known
            and installed.get(list_id) != entity_of(state)
        ]
        return Commit(commit.lists + self.table.plan_bump(lost).lists, commit.rule_ids)

    def _retiring(self, epochs: Mapping[int, int]) -> Commit:
        """Plans new version numbers for lists whose cache is off but whose flows in the switch are
        still valid.

        The new numbers make these flows stale. `epochs` has the highest epoch of each list's flows
        in the switch. Such flows remain if the cache was turned off in the configuration, or if the
        program ended while it turned the cache off.
        """
        return self.table.plan_bump(
            [
                list_id
                for list_id, state in self.table.lists.items()
                if not self.is_cache_on(state.spd) and epochs.get(list_id) == state.version.epoch
            ]
        )

    def _make_caches(self) -> dict[int, ListCache]:
        caches = {}
        for list_id, state in self.table.lists.items():
            limits = self.spds[state.spd].flow_cache
            enabled = self.is_cache_on(state.spd)
            cache = NativeFlowCache(limits.size, state.version.epoch, enabled=enabled)
            caches[list_id] = ListCache(state.direction, cache, limits.idle_timeout)
        return caches

    # -- commits

    async def commit(
        self, changes: Mapping[str, RuleLists], change: str = "commit", message: str | None = None
    ) -> list[PolicyList]:
        """Commits new rules for SPDs.

        `change` names the change in logs. `message` is the operator's reason for the change.
        Returns the changed lists once they are in force in the switch. Raises PolicyError.
        """
        for spd in changes:
            self._check_committable(spd)
        rules = {
            (spd, direction): tuple(lists[direction])
            for spd, lists in changes.items()
            for direction in Direction
        }
        is_any_long = any(map(is_long, rules.values()))
        with paused_if(is_any_long):
            return await self._exclusively(partial(self._commit_recorded, rules, change, message))

    async def edit(
        self,
        name: ListName,
        edit: Callable[[Sequence[Rule]], tuple[Rule, ...]],
        change: str,
        message: str | None = None,
    ) -> list[PolicyList]:
        """Applies `edit` to the operator's rules of one list, and commits the result.

        No other commit runs between reading the rules and committing them. `change` and `message`
        mean the same as in `commit`. Raises PolicyError, also if `edit` raises EditError.
        """
        spd, direction = name
        self._check_committable(spd)

        async def edited() -> list[PolicyList]:
            long_list = is_long(self.rules.by_list[name])
            with paused_if(long_list):
                try:
                    rules = await call(lambda: edit(self.rules.by_list[name]), in_thread=long_list)
                except EditError as error:
                    raise PolicyError(f"{spd} {direction.value}: {error}") from error
                return await self._commit_recorded({name: rules}, change, message)

        return await self._exclusively(edited)

    def _check_committable(self, spd: str) -> None:
        """Raises PolicyError if there is no such SPD, or if its rules come from the kernel."""
        if self.checked_spd_name(spd).is_mirrored:
            raise PolicyError(
                f"{spd}: its rules are the kernel's IPsec policies (`source: kernel` in the"
                " configuration); change the policies there (swanctl, `ip xfrm policy`)"
            )

    def _committed_spds(self) -> list[str]:
        """Returns the SPDs whose rules are committed, that is, all SPDs except mirrored ones."""
        return [name for name, spd in self.spds.items() if not spd.is_mirrored]

    def _rules_by_spd(self, spds: Iterable[str]) -> dict[str, dict[Direction, tuple[Rule, ...]]]:
        """Returns the operator's rules of these SPDs."""
        by_list = self.rules.by_list
        return {
            spd: {direction: by_list[spd, direction] for direction in Direction} for spd in spds
        }

    async def _commit_recorded(
        self, rules: Mapping[ListName, tuple[Rule, ...]], change: str, message: str | None
    ) -> list[PolicyList]:
        """Commits rules. If this changes rules of the operator, adds the commit to the history."""
        spds = self._committed_spds()
        before = self._rules_by_spd(spds)
        changed = await self._commit(rules, change)
        after = self._rules_by_spd(spds)
        if await call(partial(ne, before, after), in_thread=any(map(is_long, rules.values()))):
            # Order: after the switch's acknowledgement, because writing a long list and looking up
            # the user's name may take long.
            record = partial(self._record_commit, change, message, before, after)
            with self.steps.during(ChangeStep.HISTORY):
                await asyncio.to_thread(record, REQUESTED_BY.get())
        self._replaced.clear()
        return changed

    def _record_commit(
        self,
        change: str,
        message: str | None,
        before: dict[str, dict[Direction, tuple[Rule, ...]]],
        after: Mapping[str, RuleTuples],
        requester: Requester | None,
    ) -> None:
        """Adds a commit to the history. `before` and `after` have the rules of all SPDs.

        Empties `before` and frees the replaced lists. To free lists of a million rules takes long,
        so this thread does it, not the event loop's.
        """
        author = None if requester is None else author_of(requester.uid, requester.pid)
        self.history.append(change, after, before, message=message, author=author)
        before.clear()
        self._replaced.clear()

    async def rules_after(
        self, number: int, spds: Iterable[str]
    ) -> dict[str, dict[Direction, tuple[Rule, ...]]]:
        """Returns the rules of these SPDs that were in force right after a commit in the history.

        If `spds` is empty, returns the rules of all SPDs of that commit, except SPDs that are
        mirrored now or no longer configured. Raises PolicyError.
        """
        try:
            chosen = list(spds) or [
                spd
                for spd in self.history.spds_after(number)
                if spd in self.spds and not self.spds[spd].is_mirrored
            ]
            return await asyncio.to_thread(self.history.rules_after, number, chosen)
        except HistoryError as error:
            raise PolicyError(str(error)) from error

    async def _commit(
        self, rules: Mapping[ListName, tuple[Rule, ...]], change: str
    ) -> list[PolicyList]:
        """Commits rules. Returns the changed lists. `change` names the change in messages."""
        session = self._connected()
        spds = {spd for spd, _ in rules}
        with self.rules.proposed(rules):
            named = self.rules.named_by(spds)
            with self.steps.during(ChangeStep.PLANNING):
                commit = await self._plan(spds)
            self.record.bundle_names = self.numbers.names  # `apply` saves them
            with self.steps.during(ChangeStep.RULE_TABLES):
                commit = await self.rule_sets.prepare(session, commit)
            try:
                await self._writer.prepare(session, commit)
            except SpdStoreError:
                await self.rule_sets.withdraw(commit, self.table.lists)
                raise
            async with self.flows.held(one.list_id for one in commit.lists):
                with self.steps.during(ChangeStep.FLOWS):
                    commit = await self._delete_changed_flows(commit)
                with self.steps.during(ChangeStep.SWITCH):
                    await self._apply_or_repair(session, commit, change)
        self.in_force_at = asyncio.get_running_loop().time()
        self._named |= named
        self.counters["commits"] += bool(commit.lists)
        return list(commit.lists)

    async def _plan(self, spds: set[str]) -> Commit:
        """Plans a commit of the proposed rules: the changed lists with their new version numbers.

        Raises PolicyError if several SPDs change and the target has no atomic writes.
        """
        in_thread = any(map(is_long, self.rules.of(spds).values()))
        kept = frozenset(filter(self.invalidation.may_keep_epoch, self.table.lists))
        generated = self.rules.generated(spds)

        def plan() -> Commit:
            wanted = self.rules.wanted(spds, generated)
            return self.table.plan_commit(wanted, keeps_epoch=kept.__contains__)

        await self._number_bundles_without_sa(spds, in_thread=in_thread)
        try:
            commit = await call(plan, in_thread=in_thread)
        except KeyError as error:
            raise PolicyError(f"{', '.join(sorted(spds))}: there is no bundle {error}") from error
        if len(commit.spds) > 1 and not self._atomic:
            raise PolicyError(
                f"{', '.join(commit.spds)}: this target cannot change several SPDs in one write;"
                " commit them one by one"
            )
        return commit

    async def _number_bundles_without_sa(self, spds: Iterable[str], *, in_thread: bool) -> None:
        """Gives numbers to the bundles without SA (`populated.without_sa`). Raises
        TooManyBundlesError."""
        names = await call(partial(self.rules.bundles_without_sa, spds), in_thread=in_thread)
        self.numbers.add(names)

    async def _delete_changed_flows(self, commit: Commit) -> Commit:
        """Deletes the flows whose verdict a commit changes, in lists that keep their epoch.

        Returns the commit, in which lists have a new epoch if their flows could not be deleted.
        """
        before = self.table.lists
        retired = {
            one.list_id
            for one in commit.lists
            if one.list_id in before
            and one.version.epoch == before[one.list_id].version.epoch
            and not await self.invalidation.withdraw(before[one.list_id], one)
        }
        return self.table.with_new_epochs(commit, retired)

    async def _apply_or_repair(self, session: Session, commit: Commit, change: str) -> None:
        """Applies a commit. If that fails, repairs the switch and raises the error."""
        before = self.table.lists
        lists = [
            await call(
                partial(ListChange.of, before.get(one.list_id), one), in_thread=is_long(one.rules)
            )
            for one in commit.lists
        ]
        try:
            await self._writer.apply(session, commit)
        except (P4RuntimeError, SpdStoreError) as error:
            if isinstance(error, SpdStoreError):
                await self.rule_sets.withdraw(commit, before)
            elif not session.closed.done():
                await self._repair(session)
            self.record.save_again()
            raise
        self._replaced = [one.before for one in lists]
        if lists:
            self.on_changed(change, commit.spds, lists)

    async def repair(self, read: Callable[[], Awaitable[None]]) -> None:
        """Repairs lists in the switch that differ from the desired state.

        Runs exclusively. `read` reads the lists in the switch. Lists that differ get new version
        numbers, so that verdicts from before the repair do not apply. Raises PolicyError.
        """

        async def change() -> None:
            session = self._session
            if session is not None and self.started:
                await read()
                await self._repair(session)

        await self._exclusively(change)

    async def _repair(self, session: Session) -> None:
        """Writes lists that differ in the switch again, with unchanged rules and new version
        numbers.

        If the switch refuses an SPD's lists, the SPD's packets are dropped until its next commit.
        """
        for spd in self.spds:
            lost = self._with_lost(Commit(()), [spd], self._installed())
            try:
                await self._writer.apply(session, lost)
            except P4RuntimeError as error:
                log.error(
                    "policy %s: all packets are dropped until it is committed again: %s", spd, error
                )

    async def mirror(self, spd: str, mirrored: MirroredSpd) -> None:
        """Sets the rules and bundles of a mirrored SPD to those of the kernel.

        While no switch is connected, the change takes effect in the next session. Raises
        PolicyError.
        """
        await self._exclusively(partial(self._mirror, spd, mirrored))

    async def _mirror(self, spd: str, mirrored: MirroredSpd) -> None:
        rules = {(spd, direction): tuple(listed) for direction, listed in mirrored.rules.items()}
        try:
            self.numbers.add(mirrored.bundles)
        except TooManyBundlesError as error:
            raise PolicyError(str(error)) from error
        if self._session is None or not self.started:
            self.rules.by_list.update(rules)
        else:
            await self._commit(rules, "mirrored from the kernel")
            self._replaced.clear()
        self._mirrored[spd] = mirrored.bundles
        changes = EntityChanges()
        self._release_bundles(changes, policy_entities.vrf_of(self._config, spd))
        if self.standing.is_set():  # otherwise `_synchronize` binds them
            self._bind_bundles(spd, mirrored.bundles, changes)
        self._reconciler.submit(changes)

    def _release_bundles(self, changes: EntityChanges, mirrored_vrf: int = 0) -> None:
        """Releases the numbers of bundles that are no longer in use: no SA, no list and no SA entry
        of the switch names them. `mirrored_vrf` is the VRF of the mirrored bundles among these."""
        installed = self._reconciler.installed.by_kind
        vrfs = policy_entities.vrfs_of_bundles(self._config)
        in_switch = {
            key.bundle for key in installed[EntityKind.OUTBOUND_SA] if isinstance(key, BundleInVrf)
        }
        in_switch |= {
            value.bundle
            for value in installed[EntityKind.INBOUND_SA].values()
            if isinstance(value, Decrypt)
        }
        kept = self.instances.names()
        kept |= {
            name
            for name, number in self.numbers.by_name.items()
            if number in in_switch and named_bundle(name) in vrfs
        }
        for names in self._mirrored.values():
            kept.update(names)
        for name, number in self.numbers.retain(kept):
            vrf = vrfs.get(named_bundle(name), mirrored_vrf)
            changes.set(EntityKind.BUNDLE_BINDING, BundleInVrf(vrf, number), None)

    # -- instances of bundles

    def _list_instances(self) -> None:
        """Inserts the rules of the wanted instances into the desired lists.

        Order: only while no other change runs, so that all lists of a commit have the same
        instances.
        """
        self.instances.listed = self.instances.wanted
        self.rules.instances = ordered(self.instances.listed)

    async def _follow_instances(self) -> None:
        """Commits the rules of instances whenever the set of wanted instances has changed."""
        while True:
            await self.instances.changed.wait()
            self.instances.changed.clear()
            try:
                await self._exclusively(self._commit_instances)
            except PolicyError as error:
                log.warning("policy: the rules of instances are not up to date: %s", error)
                loop = asyncio.get_running_loop()
                loop.call_later(ADDRESS_RETRY, self.instances.changed.set)

    async def _commit_instances(self) -> None:
        """Commits the rules of the wanted instances. Then releases the numbers of instances that
        are gone.

        Order: the bindings may be written before the rules. Until the rules are in force, the lists
        refuse the packets of the instances' bundles.
        """
        changed = self.instances.wanted ^ self.instances.in_force
        if not changed:
            return
        self._list_instances()
        changes = EntityChanges()
        self._bind_instances(self.instances.listed, changes)
        self._reconciler.submit(changes)
        bundles = {one.bundle for one in changed}
        spds = {one.spd for one in self._config.policy.bundles if one.name in bundles}
        for spd in sorted(spds):
            await self._commit(self.rules.of([spd]), "instances of from_packet")
        self._name_bundles()
        self.instances.in_force = self.instances.listed
        changes = EntityChanges()
        self._release_bundles(changes)
        self._reconciler.submit(changes)
        self.instances.on_in_force()

    # -- flow caches

    async def set_cache(self, spds: Iterable[str], *, enabled: bool) -> None:
        """Turns the flow caches of these SPDs on or off.

        While a cache is off, the controller searches the rules for every packet that the rule
        tables leave to it. Raises PolicyError.
        """
        for spd in [*map(self.checked_spd_name, spds)]:
            await self._exclusively(partial(self._set_cache, spd.name, enabled))

    async def _set_cache(self, spd: str, enabled: bool) -> None:
        self._connected()
        if enabled and self.spds[spd].mode is LookupMode.RULES:
            raise PolicyError(f"{spd}: has `mode: rules`, which has no flow cache")
        before = dict(self.record.caches)
        self.record.caches[spd] = enabled
        try:
            self.record.save()
            self._enable_caches(spd)
            if not enabled:
                await self._clear(spd, "flow cache off")
        except BaseException:
            self.record.caches = before
            self._enable_caches(spd)
            self.record.save_again()
            raise
        if enabled:
            self.on_changed("flow cache on", [spd], ())

    def _enable_caches(self, spd: str) -> None:
        for list_id, known in self.flows.caches.items():
            if self.table.lists[list_id].spd == spd:
                known.cache.enabled = self.is_cache_on(spd)

    async def clear_cache(self, spds: Iterable[str]) -> None:
        """Makes all cached flows of these SPDs invalid, by new epochs. Raises PolicyError."""
        for spd in [*map(self.checked_spd_name, spds)]:
            await self._exclusively(partial(self._clear, spd.name, "flow cache cleared"))

    async def _clear(self, spd: str, change: str) -> None:
        session = self._connected()
        lists = [list_id for list_id, state in self.table.lists.items() if state.spd == spd]
        await self._apply_or_repair(session, self.table.plan_clear(lists), change)
        self.counters["flow caches cleared"] += 1

    # -- shared by all changes

    async def close(self) -> None:
        """Waits for the change that is under way, and refuses later changes.

        Order: before another controller loads the record. Otherwise a change that ends later would
        overwrite the record of that controller.
        """
        self._closed = True
        async with self._lock:
            self.record.close()

    def _connected(self) -> Session:
        if self._session is None or not self.started:
            raise PolicyError(
                "the switch is not connected, or its entries are being read; try again"
            )
        return self._session

    async def _exclusively(self, change: Callable[[], Awaitable[T]]) -> T:
        """Waits until no other change runs, then runs this change.

        Completes the change even if the caller is cancelled. Raises PolicyError.
        """

        async def locked() -> T:
            async with self._lock:
                if self._closed:
                    raise PolicyError("the controller was reloaded meanwhile; try again")
                return await change()

        task = asyncio.create_task(locked())
        task.add_done_callback(_retrieve)
        try:
            return await asyncio.shield(task)
        except P4RuntimeError as error:
            outlook = self.record.rules_after_restart()
            raise PolicyError(f"the switch refused the change: {error}; {outlook}") from error
        except SpdStoreError as error:
            outlook = self.record.rules_after_restart()
            raise PolicyError(
                f"the change is not made, since the disk cannot be written: {error}; {outlook}"
            ) from error
        except (TooManyRulesError, TooManyListsError, TooManyBundlesError) as error:
            raise PolicyError(str(error)) from error

    # -- views

    def verdict_of(self, slot: FlowSlot) -> FlowVerdict | None:
        """Returns the verdict that the rules give for a cached flow.

        Returns None if the flow's list is unknown, or if the verdict depends on more than the
        flow's key.
        """
        state = self.table.lists.get(slot.list_id)
        packet = slot.key.selectors()
        if state is None or packet is None:
            return None
        verdict = state.search(packet)
        if quotes_a_packet(packet) and state.is_default(verdict):
            return None  # its quote decides
        return FlowVerdict(state.version.epoch, *verdict)

    def bundles_of(self, spd: str) -> frozenset[int]:
        """Returns the pipeline's numbers of an SPD's bundles, with those of their instances."""
        names = self._mirrored.get(spd)
        configured = self._config.policy.bundle_names(spd)
        return frozenset(
            number
            for name, number in self.numbers.by_name.items()
            if (name in names if names else named_bundle(name) in configured)
        )

    def checked_spd_name(self, spd: str) -> SpdConfig:
        """Returns the configuration of the SPD with this name. Raises PolicyError if unknown."""
        if spd not in self.spds:
            names = ", ".join(self.spds) or "none"
            raise PolicyError(f"there is no SPD {spd!r}; this router has: {names}")
        return self.spds[spd]

    # -- this router's addresses

    def addresses_changed(self) -> None:
        """Called once the kernel has reported all addresses of this router, and at each change of
        addresses."""
        self._addresses_known.set()
        self._addresses_changed.set()

    async def _follow_addresses(self) -> None:
        """Commits new generated rules for an SPD whenever this router's addresses in its VRFs
        change."""
        while True:
            await self._addresses_changed.wait()
            self._addresses_changed.clear()
            for spd in self.spds:
                if self.rules.own_addresses(spd) == self._named.get(spd):
                    continue
                try:
                    await self._exclusively(partial(self._commit_addresses, spd))
                except PolicyError as error:
                    log.warning("policy %s: generated rules are not up to date: %s", spd, error)
                    loop = asyncio.get_running_loop()
                    loop.call_later(ADDRESS_RETRY, self._addresses_changed.set)

    async def _commit_addresses(self, spd: str) -> None:
        """Commits an SPD's operator rules unchanged, with new generated rules for the current
        addresses.

        Order: the rules are read here, while no other change runs. If they were read earlier, this
        commit could undo another commit made meanwhile.
        """
        await self._commit(self.rules.of([spd]), "addresses of this router")
        self._replaced.clear()


def _bundle_numbers(
    config: Config, known: Mapping[int, str], mirrored: Iterable[MirroredSpd]
) -> BundleNumbers:
    """Returns the numbers of all bundles at the start. `known` has the numbers that an earlier
    process recorded."""
    numbers = BundleNumbers(config.policy.bundle_ids(), known)
    for one in mirrored:
        numbers.add(one.bundles)
    return numbers


def _retrieve(task: asyncio.Future[T]) -> None:
    """Reads a task's exception.

    Nobody else reads the exception if the caller was cancelled. Then asyncio would log it as never
    retrieved.
    """
    if not task.cancelled():
        task.exception()

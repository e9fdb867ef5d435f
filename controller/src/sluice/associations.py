# SPDX-License-Identifier: Apache-2.0
"""Installs the security associations (SAs) of a running router in engines, then in the switch.

Desired SAs come from the configuration, from commands (`sa_store`) and from the kernel. An SA with
`traffic` belongs to an instance of its bundle, which has a bundle number of its own
(`policy.bundle_instances`). Engines and switch know only this number.

`state.sa_table` plans the commands for the engines, and this module sends them. Each engine has a
task. The task reads the engine's SAs every `POLL` seconds or less often. After each reading, and
after each change of the desired SAs, it executes the plan.

Order: an SA is installed in the engine first, then recorded on disk (`sa_uses`), then written to
the switch. So if the controller is interrupted at any point, packets are dropped or protected, but
never sent in clear.

An engine that does not answer counts as down: the switch drops its packets as NO_ENGINE. Depends on
state.sa_table, state.path_mtus, sa_store, sa_uses and the reconciler; engines come as
`EngineInput`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice

from sluice.config import Config
from sluice.entities import EntityChanges, EntityKey, EntityKind, EntityValue
from sluice.inputs import EngineInput
from sluice.model import Address
from sluice.policy.bundle_instances import BundleInstances
from sluice.policy.config import bundles_of_sas
from sluice.policy.populated import Instance
from sluice.reconciler import Reconciler
from sluice.sa_config import BundleOfSas, ValuesInUse
from sluice.sa_keys import KeyFiles, fingerprint
from sluice.sa_model import (
    EngineRefusalError,
    EngineUnreachableError,
    Fragmentation,
    HeldSa,
    KeyUnavailableError,
    LifetimeState,
    Origin,
    SaSettings,
    SecurityAssociation,
)
from sluice.sa_store import SaStore, StoredSa
from sluice.sa_uses import SaStoreError, SaUses, read_clocks
from sluice.state.bundle_numbers import BundleNumbers
from sluice.state.path_mtus import (
    MIN_INNER_MTU,
    PathMtu,
    PathMtus,
    Peer,
    ReportedMtu,
)
from sluice.state.sa_table import (
    Add,
    BundleSpec,
    Clocks,
    Command,
    Delete,
    SaId,
    SaReport,
    SaState,
    SaTable,
    identity,
)
from sluice.task_slices import run_until_one_ends

log = logging.getLogger(__name__)

POLL = 1.0
"""Minimum pause between two polls of an engine, in seconds. The pause is also at least ten times as
long as the poll."""
RECONNECT = 0.5
"""Pause between attempts to reach an engine that does not answer, in seconds."""
ENGINES_TIMEOUT = 2.0
"""Longest time that a start waits for the engines, in seconds. If an engine does not answer in that
time, its SAs in the switch are closed: the switch drops their packets."""
SETTLE = 5.0
"""Time that a command waits for its change to take effect, in seconds."""
OVERLAP = 1.0
"""Longest time, in seconds, that an outbound SA serves after the kernel has deleted it. The SA ends
earlier if its successor serves."""
SHOWN = 3
"""Maximum number of SAs that `problems` names for each kind of problem."""


class AssociationError(Exception):
    """Raised when a command about SAs fails. The command has then changed no SA."""


class Associations:
    """Manages all SAs.

    `engines` are the engines with an admin socket, by number. `path_mtus` computes the path MTUs to
    the SAs' peers. `instances` is informed of the instances that have SAs. `on_changed` is called
    at each change of the desired switch state. `on_engine` is called when an engine starts or stops
    answering. Raises SaStoreError.
    """

    def __init__(
        self,
        config: Config,
        engines: Mapping[int, EngineInput],
        reconciler: Reconciler,
        path_mtus: PathMtus,
        *,
        clock: Callable[[], float],
        clocks: Callable[[], Clocks] = read_clocks,
        instances: BundleInstances | None = None,
    ) -> None:
        self._instances = instances or BundleInstances(BundleNumbers({}, {}))
        self._path_mtus = path_mtus
        self.report_lifetime = config.limits.path_mtu_seconds
        """Seconds after which the path MTU of an ICMP error expires (RFC 1191, section 6.3)."""
        self._engines = dict(engines)
        self._reconciler = reconciler
        self._clock, self._clocks = clock, clocks
        vrfs = {vrf.name: vrf.id for vrf in config.vrfs}
        self.bundles: dict[str, BundleOfSas] = bundles_of_sas(config.policy, vrfs)
        self._by_hand = frozenset(
            vrfs[one.vrf] for one in config.policy.bundles if one.is_by_hand and one.inbound
        )
        self._uses = SaUses(config.state_dir)
        if engines:
            self._uses.open()
        specs = [
            BundleSpec(one.name, one.id, vrfs[one.vrf], one.engines, one.path_mtu)
            for one in config.policy.bundles
            if one.engines
        ]
        self.table = SaTable(specs, engines, self._uses.uses, self._path_mtu, clocks)
        self._specs = dict(self.table.bundles)
        self._kernel_bundles: tuple[BundleSpec, ...] = ()
        self._store = SaStore(config.state_dir, self.bundles)
        self._configured = config.policy.security_associations
        self._stored = self._still_valid(self._store.load(log.warning))
        self._kernel: tuple[SecurityAssociation, ...] = ()
        self._leaving: dict[SaId, SecurityAssociation] = {}
        """Outbound SAs that the kernel has deleted, and that protect packets until their successors
        do so."""
        self._unsettled: dict[SaId, SecurityAssociation] = {}
        """Kernel SAs not yet known to be in force."""
        self._lock = asyncio.Lock()
        self._wakeups = {engine: asyncio.Event() for engine in engines}
        self._first_status = {engine: asyncio.Event() for engine in engines}
        self._progress = asyncio.Event()
        self._submitted: dict[EntityKind, dict[EntityKey, EntityValue]] = {}
        self._warned: set[str] = set()
        self._refusals: dict[str, str] = {}
        """The last logged reason why an engine refused an SA, by the SA's name."""
        self.unreachable: dict[int, str] = {}
        """Errors of the engines that do not answer, by engine number."""
        self.disk_problem: str | None = None
        """Error of the last write of a record to disk, or None if it succeeded. After an error, new
        SAs wait until the record can be written."""
        self._without_number = 0
        """SAs that are not in the plan, since there are too few bundle numbers."""
        self.counters: Counter[str] = Counter()
        self.on_changed: Callable[[EntityChanges], None] = lambda _: None
        self.on_engine: Callable[[int, bool], None] = lambda engine, answers: None
        self._update_table()

    # -- tasks

    async def wait_for_engines(self) -> None:
        """Waits until each engine has reported its SAs or has failed to answer.

        Waits at most `ENGINES_TIMEOUT` seconds.
        """
        waiting = [asyncio.create_task(one.wait()) for one in self._first_status.values()]
        if waiting:
            _, late = await asyncio.wait(waiting, timeout=ENGINES_TIMEOUT)
            for task in late:
                task.cancel()

    async def run(self) -> None:
        """Runs the engines' tasks and the timers until cancelled."""
        try:
            await run_until_one_ends([*map(self._serve, self._engines), self._run_timers()])
        finally:
            for engine in self._engines.values():
                engine.close()
            self._uses.close()

    async def _run_timers(self) -> None:
        """Every `POLL` seconds, handles what has expired: path MTUs, and SAs at the end of their
        life."""
        while True:
            await asyncio.sleep(POLL)
            if self._review_path_mtus():
                self._changed()
            try:
                await self._end_expired()
                retired = [
                    one
                    for one in self.table.retired(self._clock())
                    if one.origin is not Origin.KERNEL  # the kernel deletes its own retired SAs
                ]
                if retired:
                    async with self._lock:
                        self._forget(retired)
                self.disk_problem = None
            except SaStoreError as error:
                self._disk_failed(error)
            self._warn_of_soft_limits()

    async def _end_expired(self) -> None:
        used_up, outlived, restored = self.table.review_lifetimes()
        for sa in used_up + outlived:
            log.warning(
                "SA %s has expired (%s): traffic that only this SA protects is dropped",
                _name(sa),
                self.table.why_expired(sa),
            )
        for sa in restored:
            log.warning("SA %s has not expired after all: the clock was set", _name(sa))
        self.counters["SAs expired"] += len(used_up) + len(outlived)
        try:
            if used_up or self._uses.has_unwritten:
                keys = [one.settings.fingerprint for one in used_up]
                await asyncio.to_thread(self._uses.expire, keys)
        finally:
            if used_up or outlived or restored:
                self._changed()

    def _disk_failed(self, error: SaStoreError) -> None:
        if self.disk_problem is None:
            log.error("%s", error)
        self.disk_problem = str(error)

    def _warn_of_soft_limits(self) -> None:
        soft = {
            _name(one.sa)
            for one in self.table.reports()
            if _is_soft(one) and one.sa.origin is not Origin.KERNEL
        }
        for name in sorted(soft - self._warned):
            log.warning("SA %s has reached a soft limit: rekey it", name)
        self._warned = soft

    # -- an engine

    async def _serve(self, number: int) -> None:
        engine = self._engines[number]
        while True:
            try:
                await self._follow_engine(number, engine)
            except EngineUnreachableError as error:
                lost = number not in self.unreachable
                try:  # perhaps only the connection failed
                    await self._read_status(number, engine)
                except EngineUnreachableError as again:
                    self.unreachable[number] = str(again)
                    if lost:
                        log.warning("engine %d does not answer: %s", number, error)
                        self.counters["engines lost"] += 1
                        self.table.engine_unreachable(number)
                        self.on_engine(number, False)
                        self._changed()
                    self._first_status[number].set()
                    await asyncio.sleep(RECONNECT)

    async def _follow_engine(self, number: int, engine: EngineInput) -> None:
        while True:
            started = self._clock()
            await self._read_status(number, engine)
            pause = max(POLL, 10 * (self._clock() - started))
            deadline = self._clock() + pause
            while (left := deadline - self._clock()) > 0:
                self._wakeups[number].clear()
                while commands := self.table.commands(number, self._installed(), self._clock()):
                    await self._execute(number, engine, commands)
                try:
                    async with asyncio.timeout(left):
                        await self._wakeups[number].wait()
                except TimeoutError:
                    break

    async def _read_status(self, number: int, engine: EngineInput) -> None:
        """Reads the SAs that an engine holds, and updates the plan.

        Order: before the plan, the record on disk is updated. It gets the wanted SAs that the
        engine holds and that it lacks, because the switch may use these SAs as soon as the plan
        knows of them.
        """
        held = await engine.status()
        wanted = {one.settings for one in self.table.wanted}
        unknown = [
            one
            for one in held
            if one.settings in wanted and one.settings.fingerprint not in self._uses.uses
        ]
        try:
            await self._record(number, [(one.settings, one.number) for one in unknown])
        except SaStoreError as error:
            self._disk_failed(error)
            held = [one for one in held if one not in unknown]
        self.table.engine_holds(number, held)
        if self.unreachable.pop(number, None) is not None:
            log.info("engine %d answers again", number)
        self.on_engine(number, True)
        self._first_status[number].set()
        self._changed()

    async def _record(self, number: int, given: Sequence[tuple[SaSettings, int]]) -> None:
        if given:
            keys = [
                (settings.fingerprint, sa if settings.local is not None else 0)
                for settings, sa in given
            ]
            await asyncio.to_thread(self._uses.record_use, number, keys, self._clocks())

    async def _execute(self, number: int, engine: EngineInput, commands: Sequence[Command]) -> None:
        """Sends an engine the commands of the plan."""
        taken: list[tuple[SecurityAssociation, int]] = []
        try:
            for command in commands:
                if isinstance(command, Delete):
                    await self._delete(number, engine, command.held)
                elif (sa := await self._add(engine, command)) is not None:
                    taken.append((command.sa, sa))
        finally:
            await self._record_added(number, taken)

    async def _record_added(
        self, number: int, taken: Sequence[tuple[SecurityAssociation, int]]
    ) -> None:
        """Records SAs that an engine has accepted: first on disk, then in the plan."""
        try:
            await self._record(number, [(one.settings, sa) for one, sa in taken])
            for one, sa in taken:
                self.table.added(number, one, sa)
        except SaStoreError as error:
            self._disk_failed(error)
            for one, _ in taken:
                self.table.refused(one, str(error), self._clock())
        self._changed()

    async def _add(self, engine: EngineInput, command: Add) -> int | None:
        """Installs an SA. Returns its number in the engine, or None if it was refused."""
        sa, settings = command.sa, command.sa.settings
        number = self._uses.number() if sa.is_outbound else settings.spi
        try:
            keys = sa.keys.read()
            try:
                if keys.fingerprint() != settings.fingerprint:
                    raise KeyUnavailableError(
                        "its key file has changed since it was read: rekey with another file, or"
                        " reload the configuration"
                    )
                await engine.add(settings, number, keys, resume=command.resume)
            finally:
                keys.erase()
        except (KeyUnavailableError, EngineRefusalError) as error:
            if self._refusals.get(_name(sa)) != str(error):  # log the first refusal, not each retry
                self._refusals[_name(sa)] = str(error)
                log.warning("SA %s is not installed: %s", _name(sa), error)
            self.counters["SAs refused"] += 1
            self.table.refused(sa, str(error), self._clock())
            return None
        self._refusals.pop(_name(sa), None)
        self.counters["SAs given to engines"] += 1
        log.info("SA %s: installed in the engine as number %d", _name(sa), number)
        return number

    async def _delete(self, number: int, engine: EngineInput, held: HeldSa) -> None:
        try:
            await engine.delete(held.settings, held.number)
        except EngineRefusalError as error:  # another client has deleted it
            log.info("engine %d, SPI %#x: %s", number, held.settings.spi, error)
        self.counters["SAs taken from engines"] += 1
        self.table.deleted(number, held)

    def _installed(self) -> Mapping[EntityKind, Mapping[EntityKey, EntityValue]] | None:
        """Returns the entities installed in the switch, or None while they are unknown."""
        known = self._reconciler.compared
        return self._reconciler.installed.by_kind if known else None

    # -- the switch

    def entities(self) -> Mapping[EntityKind, Mapping[EntityKey, EntityValue]]:
        """Returns the SA entities that the switch should hold."""
        return self._submitted

    def _changed(self) -> None:
        """Reports the changed switch entities by `on_changed`, and wakes the engines' tasks."""
        desired = self.table.desired()
        reassembly = desired[EntityKind.REASSEMBLY_ENGINE]
        for vrf in self._by_hand & reassembly.keys():
            del reassembly[vrf]
        changes = EntityChanges()
        for kind, entries in desired.items():
            before = self._submitted.get(kind, {})
            for key in before.keys() - entries.keys():
                changes.set(kind, key, None)
            for key, value in entries.items():
                if before.get(key) != value:
                    changes.set(kind, key, value)
        self._submitted = desired
        if changes:
            self.on_changed(changes)
        for poke in self._wakeups.values():
            poke.set()
        self._progress.set()

    def progressed(self) -> None:
        """Wakes commands that wait for the switch. Called when the switch has applied updates."""
        self._progress.set()

    # -- path MTUs

    def _path_mtu(self, bundle: BundleSpec, settings: SaSettings) -> int:
        peer = _peer(settings)
        if peer is None:
            return bundle.path_mtu
        return self._path_mtus.of(bundle.id, peer, bundle.path_mtu).mtu

    def path_mtu_of(self, sa: SecurityAssociation) -> PathMtu | None:
        """Returns the path MTU that limits the packets of an outbound SA.

        Returns None if the SA's packets are fragmented after encryption.
        """
        bundle, peer = self.table.bundles.get(sa.settings.bundle), _peer(sa.settings)
        if bundle is None or peer is None or sa.fragmentation is Fragmentation.AFTER:
            return None
        return self._path_mtus.of(bundle.id, peer, bundle.path_mtu)

    def links_changed(self) -> None:
        """Recomputes the path MTUs. Called when the MTU of a link changes, because links limit path
        MTUs."""
        self._review_path_mtus()
        self._changed()

    def _review_path_mtus(self) -> bool:
        """Updates the path MTUs from the routes to the peers, and forgets expired ICMP reports.

        Returns whether a path MTU has changed.
        """
        found = (_peer(sa.settings) for sa in self.table.wanted)
        peers = {one for one in found if one is not None}
        return self._path_mtus.review(peers, self._clock())

    def report_path_mtu(self, sa: SecurityAssociation, mtu: int, sender: Address) -> bool:
        """Records the path MTU, in bytes, that an authentic ICMP error reports for an outbound SA.

        Returns True if the report lowers the path MTU or confirms an earlier report. Ignores any
        other report and returns False.
        """
        bundle, peer = self.table.bundles.get(sa.settings.bundle), _peer(sa.settings)
        if bundle is None or peer is None:
            return False
        least = MIN_INNER_MTU + sa.settings.overhead
        reported = ReportedMtu(max(mtu, least), sender, self._clock() + self.report_lifetime)
        counts = self._path_mtus.report(bundle.id, peer, bundle.path_mtu, reported)
        if counts:
            self._changed()
        return counts

    # -- wanted SAs

    def set_configured(self, configured: Sequence[SecurityAssociation]) -> None:
        """Replaces the configured SAs after a reload. Raises SaStoreError.

        If a configured SA has another SPI and key than before, this is a rekey: the old SA stays
        until its successor is in use.
        """
        before = {one.name: one for one in self._wanted() if not one.is_retiring}
        unchanged = {one.name: one for one in self._configured}
        self._configured = tuple(configured)
        self._stored = self._still_valid(self._stored)
        for sa in configured:
            old = before.get(sa.name)
            if old is None or unchanged.get(sa.name) == sa or not _succeeds(sa, old):
                continue
            document = self._store.document(sa)
            self._stored += [
                StoredSa(replace(old, is_retiring=True), document),
                StoredSa(replace(sa, is_retiring=False), document),
            ]
        self._store.save(self._stored)
        self._update_wanted()

    def set_kernel_sas(
        self, sas: Sequence[SecurityAssociation], bundles: Iterable[BundleSpec]
    ) -> None:
        """Replaces all SAs and bundles that come from the kernel."""
        known = {identity(sa): sa for sa in self._kernel}
        named = {identity(sa): sa for sa in sas}
        new = {key: sa for key, sa in named.items() if key not in known or key in self._unsettled}
        self._keep_until_succeeded({key: sa for key, sa in known.items() if key not in named}, sas)
        self._kernel, self._unsettled = tuple(sas), new
        self._kernel_bundles = tuple(bundles)
        self._update_wanted()

    def _keep_until_succeeded(
        self, deleted: Mapping[SaId, SecurityAssociation], sas: Iterable[SecurityAssociation]
    ) -> None:
        """Keeps outbound SAs in use for up to `OVERLAP` seconds after the kernel has deleted them.

        An IKE daemon may delete an SA at the moment in which it creates the successor. Without the
        delay, packets would be dropped until an engine holds the successor.
        """
        coming = {sa.name for sa in sas if sa.is_outbound and not self.table.is_held(sa)}
        leaving = {
            key: replace(sa, is_retiring=True)
            for key, sa in deleted.items()
            if sa.is_outbound and sa.name in coming
        }
        if leaving:
            self._leaving |= leaving
            loop = asyncio.get_running_loop()
            loop.call_later(OVERLAP, self._remove_leaving, tuple(leaving))

    def _remove_leaving(self, keys: Iterable[SaId]) -> None:
        for key in keys:
            self._leaving.pop(key, None)
        self._update_wanted()

    async def wait_for_kernel_sas(self) -> None:
        """Waits until each new SA of the kernel is in force or refused, or its engine does not
        answer.

        Waits at most `SETTLE` seconds.
        """
        waiting = dict(self._unsettled)
        if waiting:
            await self._wait_until_decided(list(waiting.values()))
            for key in waiting:
                self._unsettled.pop(key, None)

    def _still_valid(self, stored: Iterable[StoredSa]) -> list[StoredSa]:
        """Returns the stored SAs that are still valid, and logs a warning for each conflict.

        - A stored SA that replaced a configured SA is valid while the configuration of that SA is
          unchanged.
        - A stored SA that a command added is valid while no configured SA has the same name.
        - A stored SA is not valid if the configuration gives its key or its inbound SPI to another
          SA.
        """
        document = {one.name: self._store.document(one) for one in self._configured}
        taken = ValuesInUse.by(self._configured)
        found = []
        for one in stored:
            if one.instead_of != document.get(one.sa.name):
                continue
            others = taken.holders(one.sa) - {one.sa.name}
            if others:
                log.warning(
                    "SA %s is not used: in the configuration, its key or inbound SPI now belongs"
                    " to %s",
                    _name(one.sa),
                    ", ".join(sorted(others)),
                )
            else:
                found.append(one)
        return found

    def _wanted(self) -> list[SecurityAssociation]:
        instead: dict[str, list[SecurityAssociation]] = {}
        commanded = []
        for stored in self._stored:
            if stored.instead_of is None:
                commanded.append(stored.sa)
            else:
                instead.setdefault(stored.sa.name, []).append(stored.sa)
        found: list[SecurityAssociation] = []
        for sa in self._configured:
            found += instead.get(sa.name, [sa])
        present = {identity(sa) for sa in self._kernel}
        kernels = {one.id for one in self._kernel_bundles}
        leaving = [
            sa
            for key, sa in self._leaving.items()
            if key not in present and sa.settings.bundle in kernels
        ]
        return [*found, *commanded, *leaving, *self._kernel]

    def _update_wanted(self) -> None:
        self._update_table()
        self._changed()

    def _update_table(self) -> None:
        """Passes the wanted SAs to the plan, with the numbers of their instances."""
        wanted = self._wanted()
        found = {identity(sa): self._instance_of(sa) for sa in wanted}
        self._instances.want(one for one in found.values() if one is not None)
        bundles = self._specs | {one.id: one for one in self._kernel_bundles}
        numbered = []
        for sa in wanted:
            instance = found[identity(sa)]
            if instance is None:
                numbered.append(sa)
            elif (number := self._instances.number_of(instance)) is not None:
                settings = sa.settings._replace(bundle=number)
                numbered.append(replace(sa, settings=settings))
                parent = self._specs[sa.settings.bundle]
                bundles[number] = parent._replace(name=instance.name, id=number)
        self._without_number = len(wanted) - len(numbered)
        self.table.bundles = bundles
        self.table.set_wanted(numbered)

    def _instance_of(self, sa: SecurityAssociation) -> Instance | None:
        """Returns the instance to which a wanted SA belongs. Returns None if the SA has no
        `traffic`, so that it belongs to the bundle itself."""
        if sa.traffic is None:
            return None
        values = sa.traffic if sa.is_outbound else sa.traffic.turned()
        return Instance(self._specs[sa.settings.bundle].name, values)

    def _forget(self, sas: Iterable[SecurityAssociation]) -> None:
        """Removes these retired or deleted SAs from the stored SAs. Raises SaStoreError."""
        deleted = {identity(sa) for sa in sas}
        configured = {one.name: one for one in self._configured}
        self._stored = [one for one in self._stored if identity(one.sa) not in deleted]
        left = Counter(one.sa.name for one in self._stored)
        self._stored = [
            one
            for one in self._stored
            if left[one.sa.name] > 1 or one.sa != configured.get(one.sa.name)
        ]
        self._store.save(self._stored)
        self._update_wanted()

    # -- commands

    def values_in_use(self) -> ValuesInUse:
        """Returns the names, keys and SPIs of all present SAs. A new SA must use other values."""
        return ValuesInUse.by(tuple(self._wanted()))

    async def add(self, sas: Sequence[SecurityAssociation]) -> list[SaReport]:
        """Adds the SAs of a command.

        Returns the SAs' reports once each SA is in force, or its engine does not answer. Raises
        AssociationError and SaStoreError; then no SA is added.
        """
        async with self._lock:
            for sa in filter(self.table.is_expired, sas):
                raise AssociationError(
                    f"SA {sa.name!r}: its key has reached a hard limit before; give it a new key"
                )
            added = [StoredSa(sa) for sa in sas]
            return await self._try([*self._stored, *added], sas)

    async def rekey(self, name: str, spi: int, key_file: KeyFiles) -> list[SaReport]:
        """Replaces an SA with a successor that has another SPI and key (make-before-break).

        Raises AssociationError and SaStoreError; then the SA stays as it was.
        """
        async with self._lock:
            old = self.serving_sa(name)
            new = self._successor(old, spi, key_file)
            document = next((one.instead_of for one in self._stored if one.sa == old), None)
            if old.origin is Origin.CONFIGURATION and document is None:
                document = self._store.document(old)
            others = [one for one in self._stored if one.sa != old]
            pair = [StoredSa(replace(old, is_retiring=True), document), StoredSa(new, document)]
            return await self._try(others + pair, [new])

    def serving_sa(self, name: str) -> SecurityAssociation:
        """Returns the SA with this name that is not retiring.

        Raises AssociationError if there is no such SA, or if it is an SA of the kernel.
        """
        found = [one for one in self._wanted() if one.name == name and not one.is_retiring]
        if not found:
            raise AssociationError(self._no_such_sa(name))
        if found[0].origin is Origin.KERNEL:
            raise AssociationError(
                f"SA {name!r} belongs to the kernel's IKE daemon: rekey it there"
            )
        return found[0]

    def _no_such_sa(self, name: str, spi: int | None = None) -> str:
        """Returns the text of an error about an unknown SA. The text names the existing SAs."""
        wanted = self._wanted()
        spis = [f"{one.settings.spi:#x}" for one in wanted if one.name == name]
        if spis and spi is not None:
            return f"SA {name!r} has no SPI {spi:#x}; it has: {', '.join(spis)}"
        names = ", ".join(sorted({one.name for one in wanted})) or "none"
        return f"there is no SA {name!r}; there is: {names}"

    def _successor(self, old: SecurityAssociation, spi: int, keys: KeyFiles) -> SecurityAssociation:
        taken = self.values_in_use()
        try:
            of_key = fingerprint(keys)
        except KeyUnavailableError as error:
            raise AssociationError(str(error)) from error
        if of_key in taken.keys:
            raise AssociationError(
                f"SA {taken.keys[of_key]!r} has this key, and a nonce could be used twice: a rekey"
                " needs a new key"
            )
        if of_key in self._uses.uses:
            raise AssociationError("this key has been used before: a rekey needs a new key")
        place = (old.settings.vrf, spi)
        if spi == old.settings.spi or (not old.is_outbound and place in taken.spis):
            raise AssociationError(f"SPI {spi:#x} is in use: a rekey needs a new SPI")
        if any((one.name, one.settings.spi) == (old.name, spi) for one in self._wanted()):
            raise AssociationError(
                f"SPI {spi:#x} was used by {old.name!r} before: give another SPI"
            )
        settings = old.settings._replace(spi=spi, fingerprint=of_key)
        return replace(old, settings=settings, keys=keys)

    async def delete(self, name: str, spi: int | None = None) -> list[SecurityAssociation]:
        """Deletes all SAs with this name, or only the one with this SPI. Returns the deleted SAs.

        Raises AssociationError and SaStoreError.
        """
        async with self._lock:
            found = [
                one
                for one in self._wanted()
                if one.name == name and spi in (None, one.settings.spi)
            ]
            if not found:
                raise AssociationError(self._no_such_sa(name, spi))
            for one in found:
                if one.origin is Origin.KERNEL:
                    raise AssociationError(
                        f"SA {name!r} belongs to the kernel's IKE daemon: delete it there"
                    )
                if one.origin is Origin.CONFIGURATION and not one.is_retiring:
                    raise AssociationError(
                        f"SA {name!r} is in the configuration: remove it there, and reload"
                    )
            self._forget(found)
            return found

    async def _try(
        self, stored: list[StoredSa], new: Sequence[SecurityAssociation]
    ) -> list[SaReport]:
        """Replaces the stored SAs by `stored`, and waits for the SAs `new`.

        If an engine refuses one of `new`, restores the earlier SAs and raises AssociationError.
        """
        before = self._stored
        self._store.save(stored)
        self._stored = stored
        self._update_wanted()
        reports = await self._wait_until_decided(new)
        refused = [one for one in reports if one.state in (SaState.REFUSED, SaState.REKEY_NEEDED)]
        if refused:
            self._store.save(before)
            self._stored = before
            self._update_wanted()
            raise AssociationError("; ".join(f"SA {one.sa.name}: {one.why}" for one in refused))
        return reports

    async def _wait_until_decided(self, sas: Sequence[SecurityAssociation]) -> list[SaReport]:
        """Returns the reports of these SAs once each is in force or refused, or its engine does not
        answer.

        Returns after `SETTLE` seconds in any case.
        """
        names = {identity(sa) for sa in sas}
        try:
            async with asyncio.timeout(SETTLE):
                while True:
                    self._progress.clear()
                    reports = [one for one in self.table.reports() if identity(one.sa) in names]
                    if all(map(self._is_decided, reports)):
                        return reports
                    await self._progress.wait()
        except TimeoutError:
            return [one for one in self.table.reports() if identity(one.sa) in names]

    def _is_decided(self, report: SaReport) -> bool:
        if report.state is SaState.WAITING:
            return report.engine is None or report.engine in self.unreachable
        if report.held is None:
            return True
        installed = self._installed()
        if installed is None:
            return True
        if not self._instances.is_in_force(report.sa.settings.bundle):
            return False
        return all(
            installed[kind].get(key) == value
            for kind, entries in self._submitted.items()
            for key, value in entries.items()
            if getattr(key, "bundle", None) == report.sa.settings.bundle
            or getattr(key, "spi", None) == report.sa.settings.spi
        )

    # -- reports

    def answering_engines(self) -> dict[int, bool]:
        """Returns, by engine number, whether the engine answers."""
        return {number: bool(self.table.is_reachable(number)) for number in self._engines}

    def problems(self) -> Iterator[str]:
        """Yields one sentence for each problem with engines and SAs."""
        if self._without_number:
            yield (
                f"{self._without_number:,} SAs with `traffic` are not installed: there are too many"
                " instances of bundles"
            )
        for number, why in self.unreachable.items():
            yield (
                f"engine {number} does not answer: {why}; packets that it should encrypt or decrypt"
                " are dropped as NO_ENGINE"
            )
        if self.disk_problem is not None:
            yield f"{self.disk_problem}: SAs wait until the file can be written"
        found: dict[str, list[str]] = {}
        for one in self.table.reports():
            if (problem := self._problem_of(one)) is not None:
                kind, sentence = problem
                found.setdefault(kind, []).append(sentence)
        for kind, sentences in found.items():
            yield from islice(sentences, SHOWN)
            if len(sentences) > SHOWN:
                yield f"{len(sentences) - SHOWN:,} more SAs: {kind}"

    def _problem_of(self, one: SaReport) -> tuple[str, str] | None:
        name, state = _name(one.sa), one.state.value
        is_kernels = one.sa.origin is Origin.KERNEL
        if one.state in (SaState.EXPIRED, SaState.REFUSED, SaState.REKEY_NEEDED):
            advice = (
                ""
                if one.state is SaState.REFUSED or is_kernels
                else "; sluice sa rekey gives it a successor"
            )
            return state, f"SA {name}: {state}: {one.why}{advice}"
        if one.state is SaState.WAITING and one.engine not in self.unreachable:
            return state, f"SA {name}: {one.why}"
        if _is_soft(one) and not is_kernels:  # the kernel notifies its IKE daemon instead
            return "soft limit", f"SA {name} has reached a soft limit: rekey it (sluice sa rekey)"
        return None


def _peer(settings: SaSettings) -> Peer | None:
    """Returns the peer of an outbound SA, or None for an inbound SA."""
    return None if settings.remote is None else Peer(settings.vrf, settings.remote)


def _name(sa: SecurityAssociation) -> str:
    return f"{sa.name} (SPI {sa.settings.spi:#x})"


def _is_soft(one: SaReport) -> bool:
    return one.held is not None and one.held.age is LifetimeState.SOFT and not one.sa.is_retiring


def _succeeds(new: SecurityAssociation, old: SecurityAssociation) -> bool:
    """Returns whether `new` can replace `old` in a rekey: it carries the same traffic, with another
    SPI and key."""
    one, other = new.settings, old.settings
    same = (one.direction, one.bundle) == (other.direction, other.bundle)
    same = same and new.traffic == old.traffic
    return same and one.spi != other.spi and one.fingerprint != other.fingerprint

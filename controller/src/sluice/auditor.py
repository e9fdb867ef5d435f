# SPDX-License-Identifier: Apache-2.0
"""Compares the switch's entries with the controller's record all the time, and repairs differences.

Other P4Runtime clients with write access may change entries without the controller's knowledge. So
during a session the auditor reads all entries back, in parts and at a limited rate:
- policy, interfaces and flows in frequent rounds, because a wrong entry could let packets bypass
  policy;
- routes, which may be many, in separate and less frequent rounds.

An entry that differs from the record is read a second time on its own, because an update may have
been in flight at the first reading. An entry that still differs is repaired, counted and logged. If
a flow was written after the round began, its absence counts only from the next round on. Otherwise
each new flow would be read a second time.

Flows found at the start of a session are checked once against the rules, because the controller
does not know who wrote them.

Between another client's write and the repair, packets may be treated wrongly. The `seconds` in the
report limit this time.

The reconciler and the flow tables write the repairs. If another client changed a list, a commit
gives the list new version numbers. If another client replaced the pipeline, the session restarts.

Depends on policy, reconciler, flow_tables and p4.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import NamedTuple, Protocol, TypeVar

from sluice.entities import COMMITTED, MODIFY_ONLY, EntityKey, EntityKind, EntityValue, RouteSlot
from sluice.entity_text import text_of
from sluice.p4.codec import Codec
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4.settings import SettingsCodec
from sluice.p4messages import p4r
from sluice.p4runtime.session import P4RuntimeError, Status
from sluice.policy.enforcement import Policy
from sluice.policy.start import PolicyError
from sluice.reconciler import Reconciler
from sluice.state.audit import AuditReport, Repair, TableComparison
from sluice.state.flow_cache import FlowVerdict

log = logging.getLogger(__name__)

SLICE = 64
"""Number of entries compared before yielding to the event loop."""
AGAIN = 64
"""Number of entries per request when differing entries are read a second time."""
ROUTE_SHARE = 4
"""Routes are read at `rate` divided by this number."""
ROUTE_ROUNDS_APART = 12
"""Interval between the starts of route rounds, as a multiple of the interval of policy rounds."""
BUSY = 8
"""While punted packets wait, entries are read at the rate divided by this number. Otherwise an
audit of many flows would take a quarter of the processor from first packets."""
LOGGED_PER_ROUND = 10
"""Number of repairs logged in full per round. The log counts the rest."""

T = TypeVar("T")


class AuditedSwitch(Protocol):
    """Declares the methods of `Session` that the auditor uses."""

    closed: asyncio.Future[P4RuntimeError]

    async def write(self, updates: list[bytes], *, atomic: bool = False) -> list[Status]:
        """Returns a status for each update, or [] if all updates were applied."""

    def read(self, entities: list[p4r.Entity]) -> AsyncIterator[Sequence[p4r.Entity]]:
        """Yields the requested entities, in the parts that the switch sends."""

    async def pipeline_cookie(self) -> int | None:
        """Returns the cookie of the switch's pipeline."""

    def close(self) -> None:
        """Ends the session."""


class Codecs(NamedTuple):
    """Holds the codecs of the switch's entities, flows and settings."""

    entities: Codec
    flows: FlowCodec
    settings: SettingsCodec


class Auditor:
    """Audits the switch of one router.

    `routes` iterates over the prefixes of all routes. `rate` is the largest reading rate, in
    entries a second. `interval` is the time in seconds from the start of one policy round to the
    start of the next. After a round that takes longer, the next round starts at once. `is_busy`
    returns whether punted packets wait for Python.
    """

    def __init__(
        self,
        codecs: Codecs,
        reconciler: Reconciler,
        policy: Policy,
        *,
        routes: Callable[[], Iterator[list[RouteSlot]]],
        rate: int,
        interval: float,
        clock: Callable[[], float],
        is_busy: Callable[[], bool] = lambda: False,
    ) -> None:
        self._is_busy = is_busy
        self._codecs = codecs
        self._reconciler = reconciler
        self._policy = policy
        self._routes = routes
        self.rate = rate
        self.interval = interval
        self._clock = clock
        self.reports = {"policy": AuditReport(), "routes": AuditReport()}
        self.on_repaired: Callable[[Repair], None] = lambda _: None
        self.measured: Callable[[str, Awaitable[None]], Awaitable[None]] = lambda _, work: work
        """Awaits the work and measures its time, under a name."""

    async def run(self, session: AuditedSwitch) -> None:
        """Audits until cancelled. Raises P4RuntimeError when the session ends."""
        await self._policy.standing.wait()
        requests = self._codecs.entities.read_requests()
        routes = [one for one in requests if self._codecs.entities.is_route(one)]
        others = [one for one in requests if one not in routes]
        rounds = [
            asyncio.create_task(
                self._rounds(
                    session,
                    self.reports["policy"],
                    1,
                    partial(self._audit_policy, session, others),
                )
            ),
            asyncio.create_task(
                self._rounds(
                    session,
                    self.reports["routes"],
                    ROUTE_ROUNDS_APART,
                    partial(self._audit_routes, session, routes),
                )
            ),
            asyncio.create_task(self._watch_pipeline(session)),
        ]
        try:
            await asyncio.gather(*rounds)
        finally:
            for one in rounds:
                one.cancel()
            await asyncio.gather(*rounds, return_exceptions=True)

    async def _rounds(
        self,
        session: AuditedSwitch,
        report: AuditReport,
        apart: float,
        audit: Callable[[_Round], Awaitable[None]],
    ) -> None:
        while True:
            began = self._clock()
            audited = _Round(report)
            try:
                await self.measured("auditor", audit(audited))
            except P4RuntimeError as error:
                if session.closed.done():
                    raise
                report.problem = str(error)  # the target does not support this read
            else:
                now = self._clock()
                report.completed(audited.comparison.compared, now - began, now)
            if audited.unsaid:
                log.warning("repaired: %d more entries in the same round", audited.unsaid)
            await asyncio.sleep(max(0.0, began + self.interval * apart - self._clock()))

    async def _watch_pipeline(self, session: AuditedSwitch) -> None:
        """Ends the session if another client replaces the pipeline.

        A new pipeline has no entries, so the controller must write all of them again.
        """
        try:
            ours = found = await session.pipeline_cookie()
            while found == ours:
                await asyncio.sleep(self.interval)
                found = await session.pipeline_cookie()
        except P4RuntimeError as error:
            if session.closed.done():
                raise
            self.reports["policy"].problem = f"the pipeline cannot be read: {error}"
            return
        repair = Repair(self._clock(), "pipeline", f"cookie {found}", f"cookie {ours}")
        self.reports["policy"].repaired("pipeline", repair)
        self.on_repaired(repair)
        log.warning("repaired: %s", repair)
        session.close()
        await asyncio.wait({session.closed})
        raise session.closed.result()

    # -- rounds

    async def _audit_policy(
        self, session: AuditedSwitch, requests: list[p4r.Entity], audited: _Round
    ) -> None:
        for request in self._codecs.settings.read_requests():
            await self._audit_settings(session, request, audited)
        await self._audit_entities(session, requests, audited, self.rate)
        await self._audit_flows(session, audited)

    async def _audit_routes(
        self, session: AuditedSwitch, requests: list[p4r.Entity], audited: _Round
    ) -> None:
        await self._audit_entities(session, requests, audited, max(1, self.rate // ROUTE_SHARE))

    async def _audit_entities(
        self, session: AuditedSwitch, requests: list[p4r.Entity], audited: _Round, rate: int
    ) -> None:
        """Audits the entities that the switch returns for `requests`.

        Also audits recorded entities that the switch did not return. If `requests` read routes,
        these are the routes. Otherwise they are the entities of all other kinds except settings.
        """
        decode = self._codecs.entities.decode
        for request in requests:
            async for part in self._read(session, request, rate):
                by_kind: dict[EntityKind, dict[EntityKey, EntityValue]] = {}
                for kind, key, value in filter(None, map(decode, part)):
                    by_kind.setdefault(kind, {})[key] = value
                for kind, entries in by_kind.items():
                    held = self._reconciler.installed.by_kind[kind]
                    differing = audited.comparison.differing(kind, entries, held)
                    await self._look_again(session, kind, differing, audited)
        audits_routes = any(map(self._codecs.entities.is_route, requests))
        for kind in set(EntityKind) - MODIFY_ONLY:
            if (kind is EntityKind.ROUTE) == audits_routes:
                for keys in self._keys(kind):
                    missing = audited.comparison.missing(kind, keys)
                    await self._look_again(session, kind, missing, audited)
                    await asyncio.sleep(0)

    def _keys(self, kind: EntityKind) -> Iterator[Sequence[EntityKey]]:
        """Yields, in slices, the recorded keys of an entity kind: those that the switch should
        hold.

        For routes, yields only the keys of desired routes, in prefix order. Listing all installed
        routes would take too long. A missing route that is not desired needs no repair.
        """
        held = self._reconciler.installed.by_kind[kind]
        if kind is not EntityKind.ROUTE:
            yield from _slices(list(held), SLICE)
            return
        for slots in self._routes():
            # Yields empty slices too, because the caller lets other tasks run after each slice.
            for some in _slices(slots, SLICE):
                yield [slot for slot in some if slot in held]

    async def _audit_flows(self, session: AuditedSwitch, audited: _Round) -> None:
        flows, decode = self._policy.flows, self._codecs.flows.decode
        began = self._clock()
        for request in self._codecs.flows.read_requests():
            async for part in self._read(session, request, self.rate):
                found = dict(filter(None, map(decode, part)))
                audited.comparison.add_found("flow", found)
                differing = [slot for slot in found if not flows.agrees(slot, found[slot])]
                await self._look_at_flows(session, differing, audited)
                self._verify(found, audited)
        for list_id, known in list(flows.caches.items()):
            for keys in _slices(known.cache.keys_unused_since(began), SLICE):
                slots = [FlowSlot(known.direction, list_id, key) for key in keys]
                missing = audited.comparison.missing("flow", slots)
                await self._look_at_flows(session, missing, audited)
                await asyncio.sleep(0)

    def _verify(self, found: Mapping[FlowSlot, FlowVerdict], audited: _Round) -> None:
        """Checks flows that were found at the start of the session against the rules.

        Another client may have written them while no controller was connected.
        """
        flows = self._policy.flows
        for slot in found.keys() & flows.unverified:
            if not flows.verify(slot, self._policy.verdict_of(slot)):
                what = f"{slot.direction.value}_flow"
                self._repaired(audited, what, slot, found[slot], None)

    async def _audit_settings(
        self, session: AuditedSwitch, request: p4r.Entity, audited: _Round
    ) -> None:
        """Audits settings (see `p4.settings`). Skips a setting that the target cannot read."""
        settings, reconciler = self._codecs.settings, self._reconciler
        before = {kind: dict(reconciler.installed.by_kind[kind]) for kind in MODIFY_ONLY}
        quiet = {
            (kind, key)
            for kind in MODIFY_ONLY
            for key in before[kind]
            if not reconciler.is_under_way(kind, key)
        }
        try:
            parts = [part async for part in session.read([request])]
        except P4RuntimeError:
            if session.closed.done():
                raise
            return
        found = [entity for part in parts for entity in part]
        for kind, key, value in filter(None, map(settings.decode, found)):
            audited.comparison.compared += 1
            thought = reconciler.installed.by_kind[kind].get(key)
            moved = thought != before[kind].get(key) or reconciler.is_under_way(kind, key)
            if (kind, key) in quiet and not moved and thought != value:
                reconciler.found(kind, key, value)
                self._repaired(audited, kind.name, key, value, thought)
        for name, removal in settings.copies(found):
            await session.write([removal])
            self._repaired(audited, name.partition(" ")[0], name.partition(" ")[2], name, None)

    async def _read(
        self, session: AuditedSwitch, request: p4r.Entity, rate: int
    ) -> AsyncIterator[Sequence[p4r.Entity]]:
        """Yields the requested entities in slices, at most `rate` entities a second."""
        async for part in session.read([request]):
            for piece in _slices(part, SLICE):
                yield piece
                await self._pause(len(piece), rate)

    async def _pause(self, entries: int, rate: int) -> None:
        """Pauses after it has read this number of entries."""
        await asyncio.sleep(entries / rate * (BUSY if self._is_busy() else 1))

    # -- what differs

    async def _look_again(
        self, session: AuditedSwitch, kind: EntityKind, keys: Sequence[EntityKey], audited: _Round
    ) -> None:
        """Reads entities of one kind again, because their state in the switch differed from the
        record.

        Repairs those that still differ and have no update in flight.
        """
        for some in _slices(keys, AGAIN):
            look = partial(self._repair_entities, session, kind, some, audited)
            if kind in COMMITTED:
                try:
                    await self._policy.repair(look)
                except PolicyError as error:
                    log.error("audit: %s cannot be repaired: %s", kind.name.lower(), error)
            else:
                await look()

    async def _repair_entities(
        self, session: AuditedSwitch, kind: EntityKind, keys: Sequence[EntityKey], audited: _Round
    ) -> None:
        reconciler = self._reconciler
        held = reconciler.installed.by_kind[kind]
        quiet = [key for key in keys if not reconciler.is_under_way(kind, key)]
        thought = {key: held.get(key) for key in quiet}
        requests = {key: self._codecs.entities.request(kind, key) for key in quiet}
        entities = await self._read_exactly(session, list(requests.values()))
        decoded = filter(None, map(self._codecs.entities.decode, entities))
        found = {key: value for found_kind, key, value in decoded if found_kind is kind}
        held = reconciler.installed.by_kind[kind]
        for key, before in thought.items():
            value = found.get(key)
            moved = held.get(key) != before or reconciler.is_under_way(kind, key)
            if not moved and value != before:
                put = reconciler.desired[kind].get(key)
                reconciler.found(kind, key, value)
                self._repaired(audited, kind.name, key, value, put)

    async def _look_at_flows(
        self, session: AuditedSwitch, slots: Sequence[FlowSlot], audited: _Round
    ) -> None:
        flows = self._policy.flows
        for some in _slices(slots, AGAIN):
            requests = [self._codecs.flows.request(slot) for slot in some]
            entities = await self._read_exactly(session, requests)
            found: dict[FlowSlot, FlowVerdict] = dict(
                filter(None, map(self._codecs.flows.decode, entities))
            )
            for slot in some:
                verdict = found.get(slot)
                if not flows.agrees(slot, verdict):
                    flows.correct(slot, verdict)
                    what = f"{slot.direction.value}_flow"
                    self._repaired(audited, what, slot, verdict, flows.recorded(slot))
            await self._pause(len(some), self.rate)

    async def _read_exactly(
        self, session: AuditedSwitch, requests: list[p4r.Entity]
    ) -> list[p4r.Entity]:
        """Returns those of the requested entities that the switch holds."""
        try:
            parts = [part async for part in session.read(requests)] if requests else []
        except P4RuntimeError:
            if session.closed.done():
                raise
            if len(requests) == 1:
                return []
            # Some targets refuse the whole request if one of the entries does not exist. So read
            # each alone.
            half = len(requests) // 2
            first = await self._read_exactly(session, requests[:half])
            return first + await self._read_exactly(session, requests[half:])
        return [entity for part in parts for entity in part]

    def _repaired(
        self, audited: _Round, kind: str, key: object, found: object, put: object
    ) -> None:
        name = kind.lower()
        repair = Repair(self._clock(), f"{name} {text_of(key)}", text_of(found), text_of(put))
        audited.report.repaired(name, repair)
        self.on_repaired(repair)
        if audited.logged < LOGGED_PER_ROUND:
            audited.logged += 1
            log.warning("repaired: %s", repair)
        else:
            audited.unsaid += 1


class _Round:
    """Holds the state of one audit round."""

    def __init__(self, report: AuditReport) -> None:
        self.report = report
        self.comparison = TableComparison()
        self.logged = 0
        self.unsaid = 0


def _slices(whole: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(whole), size):
        yield whole[start : start + size]

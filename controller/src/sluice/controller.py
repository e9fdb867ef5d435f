# SPDX-License-Identifier: Apache-2.0
"""Runs the controller: one event loop that connects sources, state, reconciler and packets.

Paths of events and packets (docs/ARCHITECTURE.md):
  a route       routes inlet -> Fib.apply -> Reconciler.submit -> Reconciler.run -> switch
  a neighbour   kernel inlet -> Fib.apply -> next hop modified -> held packets re-injected
  a punt        session -> punt queue -> punts inlet -> PuntHandler -> host, packet-out, or held
  a host frame  host inlet -> packet-out (to a port, or of local origin)
  BFD, BGP, ARP  native code passes them, unless a packet needs a decision (`fast_path`)
  a first packet  punts inlet -> FirstPackets.answer -> FlowTables.offer, then packet-out
  a view        API -> slices, one per turn -> API
  a commit      API -> Policy.commit -> SpdTable, disk, Reconciler.commit -> switch -> API

Each type of work has an **inlet**: a queue that the `scheduler` serves by priority. The inlets are,
in order of priority: timers, kernel (links, addresses, neighbours), punts, host frames, routes,
moved routes (`state.moved_routes`), the comparison with the kernel's routes, and unfinished views
(`turns`). Each turn of an inlet does a bounded amount of work. Policy commits do not wait for
inlets: a commit runs in its own task, and its write goes to the switch at once. While the
reconciler is far behind, routes are not read, and FPM's TCP connection passes this backpressure on
to zebra.

No event is applied before the entities of the switch are first read, because only then the
controller knows which ids are in use there. A large route table is read while other work continues.
Until it is read, no route is accepted from the routing daemons. Depends on state, reconciler,
punts; sources come as arguments (`Sources`).
"""

from __future__ import annotations

import asyncio
import logging
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import chain

from sluice._native import FirstPacket, RouteRun
from sluice.acquires import Acquires
from sluice.associations import Associations
from sluice.audit_log import DROPS, AuditLog, ListChange
from sluice.auditor import Auditor, Codecs
from sluice.config import Config, ControllerLimits
from sluice.connection import SwitchConnection
from sluice.daemons import Daemon, RoutingDaemons
from sluice.entities import (
    AUDITED,
    HASH_SEED_KEY,
    RETIRED,
    WANTS_SA,
    BundleInVrf,
    Encrypt,
    EntityChanges,
    EntityKey,
    EntityKind,
    HashSeed,
    Nexthop,
    NexthopGroup,
    PuntLimit,
)
from sluice.held_packets import HeldPackets
from sluice.host_errors import IN_CLEAR, HostErrors
from sluice.icmp import RateLimiter
from sluice.ike_order import IkeOrder
from sluice.inputs import Sources
from sluice.kernel_mirrors import KernelMirrors
from sluice.model import (
    AddressAdded,
    AddressRemoved,
    Event,
    FpmSessionClosed,
    FpmSessionOpened,
    LinkChanged,
    LinkRemoved,
    NeighborChanged,
    PuntedPacket,
)
from sluice.namespaces import OWN_NAMESPACE, namespace_of
from sluice.numbers import InterfaceNumbers
from sluice.p4.codec import Codec
from sluice.p4.counters import CounterSchema
from sluice.p4.flows import FlowCodec
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Pipeline, Schema
from sluice.p4.settings import SettingsCodec
from sluice.p4runtime.client import Client, Metadata
from sluice.p4runtime.election import ElectionId
from sluice.p4runtime.session import Session, SwitchPorts
from sluice.path_mtu_errors import PathMtuErrors
from sluice.policy import entities as policy_entities
from sluice.policy.decisions import EspSender
from sluice.policy.enforcement import Policy
from sluice.policy.first_packets import FirstPackets
from sluice.policy.flow_tables import FlowTables
from sluice.policy.rejections import Rejections
from sluice.port_watch import PortWatch
from sluice.primacy import Primacy
from sluice.progress import EventRate
from sluice.punts import PuntActions, PuntHandler, TunnelMtu
from sluice.reconciler import Reconciler
from sluice.reload import ReloadReport
from sluice.resolution import Resolution
from sluice.scheduler import Inlet, Scheduler
from sluice.stalls import Stalls
from sluice.state.audit import Repair
from sluice.state.engine_links import EngineLinks, EngineSpec
from sluice.state.fib import Fib
from sluice.state.fragments import FragmentTable
from sluice.state.nexthops import Path
from sluice.state.path_mtus import PathMtus
from sluice.state.takeover import ClosingPlan, EntitiesByKind
from sluice.task_slices import run_until_one_fails
from sluice.turns import Turns
from sluice.wire.packet import ETHERNET_HEADER, is_ike

log = logging.getLogger(__name__)

KERNEL_SLICE, PUNT_SLICE, HOST_SLICE, ROUTE_SLICE = 256, 64, 64, 256
ROUTES_BEHIND, ROUTES_CAUGHT_UP = 16384, 4096
"""Numbers of pending updates at which reading routes stops, and at which it resumes."""
NO_SA = "NO_SA"
"""Drop reason of packets whose bundle has no outbound SA."""
ETHERTYPES_IP = (b"\x08\x00", b"\x86\xdd")

ADDRESS_EVENTS = frozenset({AddressAdded, AddressRemoved, LinkChanged, LinkRemoved})
"""Events that may change this router's addresses. Addresses of a macvlan device count only while
the device works (`LinkChanged.works`)."""
KERNEL_KINDS = (
    EntityKind.COPIED_DROP,
    EntityKind.EGRESS_INTERFACE,
    EntityKind.OWN_SOURCE,
    EntityKind.LOCAL_PREFIX,
    EntityKind.ROUTER_MAC,
    EntityKind.L3_INTERFACE,
)
ROUTE_KINDS = (
    EntityKind.NEXTHOP,
    EntityKind.GROUP_MEMBER,
    EntityKind.GROUP,
    EntityKind.GROUP_ENTRY,
    EntityKind.ROUTE,
)


class Controller:
    """Runs one router.

    `connect` returns a P4Runtime client for an election id. `on_ready` is called once, as soon as
    the switch is programmed with the interfaces (`Reconciler.forwards`). `numbers` holds the
    interface numbers of the configuration. `stalls` records how long the event loop was busy.
    `primacy` is an election that this process has already won. Without it, the controller itself
    takes part in the election.
    """

    def __init__(
        self,
        config: Config,
        pipeline: Pipeline,
        sources: Sources,
        connect: Callable[[ElectionId], Client],
        on_ready: Callable[[], None] = lambda: None,
        *,
        numbers: InterfaceNumbers | None = None,
        stalls: Stalls | None = None,
        primacy: Primacy | None = None,
    ) -> None:
        self.config = config
        self.stalls = stalls or Stalls()
        self._numbers = numbers
        self.sources = sources
        self._on_ready = on_ready
        self._clock = asyncio.get_running_loop().time
        self.started_at = self._clock()
        self.reloads = ReloadReport(time.time())
        schema = Schema(pipeline.p4info)
        self.packets = PacketSchema(schema)
        self.counter_schema = CounterSchema(schema)
        codec = Codec(schema)
        self.fib = Fib(
            [interface.spec for interface in config.interfaces],
            {vrf.table: vrf.id for vrf in config.vrfs},
            config.next_hop_vrfs(),
            codec.group_size,
            {
                vrf.table: vrf.namespace_number
                for vrf in config.vrfs
                if vrf.namespace_number != OWN_NAMESPACE
            },
        )
        self.engines = EngineLinks(
            EngineSpec(engine.id, engine.port, engine.device) for engine in config.policy.engines
        )
        self.port_watch = PortWatch(config, self._ports_changed)
        self.reconciler = Reconciler(codec, self._entity_deleted, self._clock, self.fib.routes)
        self.reconciler.on_progress = self._progress
        self.reconciler.near = self.fib.on_link_routes
        limits = config.limits
        self.held = HeldPackets(
            limits.held_packets_per_neighbor, limits.held_packets, limits.held_seconds
        )
        self.counters: Counter[str] = Counter()
        self.resolution = Resolution(self.fib, self.held, sources.kernel, self.counters)
        self._limiter = RateLimiter(*_icmp_rates(limits))
        self.flow_codec = FlowCodec(schema)
        self.mirrors = KernelMirrors(
            config, sources.xfrm, self.fib.interfaces.local_addresses, self._clock
        )
        self.policy = self._make_policy()
        self.ike_order = IkeOrder(self.mirrors.caught_up, self._packets_out)
        self.host_errors = HostErrors(
            config,
            self.policy.table.list_of,
            self._clock,
            had_bundles=bool(self.policy.record.bundle_names),
            configured_number=self.policy.numbers.configured_number,
        )
        self.audit = self._make_audit()
        self.acquires = Acquires(self.policy, self.packets, self.audit)
        self.rejections = Rejections(config, self.fib.interfaces_to)
        self.first_packets = FirstPackets(
            self.policy,
            self.packets,
            FragmentTable(
                limits.fragment_datagrams, limits.fragments_waiting, limits.fragment_seconds
            ),
            self._is_esp_source,
            self.audit,
            rejections=self.rejections,
            without_later=self.policy.without_later,
        )
        self.auditor = self._make_auditor(Codecs(codec, self.flow_codec, SettingsCodec(schema)))
        self._tunnels = {
            bundle.id: TunnelMtu(bundle.outbound.path_mtu, bundle.outbound.overhead)
            for bundle in config.policy.bundles
            if bundle.outbound is not None
        }
        self.associations = self._make_associations()
        self.path_mtu_errors = PathMtuErrors(self.associations)
        self.punts = PuntHandler(
            self.fib,
            self.packets,
            self.held,
            self._limiter,
            self._when_ready,
            first_packets=self.first_packets,
            tunnels=self._tunnels,
            audit_drop=self._packet_dropped,
            delivering=self._delivering,
            rejections=self.rejections,
            without_later=self.policy.without_later,
        )
        self.on_routes: Callable[[int], None] = lambda _: None
        """Called with the number of routing events that were applied."""
        self.connection = SwitchConnection(
            config=config.switch,
            pipeline=pipeline,
            packets=self.packets,
            reconciler=self.reconciler,
            primacy=primacy or Primacy(config.switch, connect),
            on_packets=self._packets_in,
            closing=self._closing,
            on_read=self._adopt,
            session_tasks=self._session_tasks,
            measured=self.stalls.measured,
            stand_ins=sources.fast_path,
        )
        self.pace = EventRate()
        """Rate of the routing daemons' events."""
        self.ready = False
        self._adopted = self._table_adopted = False
        self._released_kernel_kinds = self._released_routes = False
        self._timer: asyncio.TimerHandle | None = None
        self.daemons = RoutingDaemons(sources.feeds, self.fib, self.reconciler)
        self.scheduler = Scheduler(self.stalls)
        self._make_inlets()
        for known in (
            self.fib.start(),
            self._settings(),
            policy_entities.without_lists(config),
            self.engines.start(),
        ):
            self.reconciler.submit(known)

    @property
    def settled(self) -> bool:
        """Whether the routing daemons have replayed all their routes."""
        return self.daemons.settled

    def _make_policy(self) -> Policy:
        made = Policy(
            self.config,
            self.reconciler,
            FlowTables(self.flow_codec, self._clock),
            self.flow_codec,
            self.fib.interfaces.local_addresses,
            mirrored=self.mirrors.mirrored,
        )
        made.on_started = self._progress
        made.on_changed = self._policy_changed
        return made

    def _make_auditor(self, codecs: Codecs) -> Auditor:
        made = Auditor(
            codecs,
            self.reconciler,
            self.policy,
            routes=self.fib.order.walk,
            rate=self.config.limits.auditor_per_second,
            interval=self.config.limits.auditor_seconds,
            clock=self._clock,
            is_busy=lambda: len(self.sources.punts) > 0,
        )
        made.on_repaired = self._switch_repaired
        made.measured = self.stalls.measured
        return made

    def _make_audit(self) -> AuditLog:
        made = AuditLog(self.config)
        made.lists = self.policy.list_by_id
        made.bundle_name = self.policy.numbers.name_of
        return made

    def _make_associations(self) -> Associations:
        path_mtus = PathMtus(self.fib.interfaces_to, self.fib.interfaces.mtu_of)
        made = Associations(
            self.config,
            self.sources.engines,
            self.reconciler,
            path_mtus,
            clock=self._clock,
            instances=self.policy.instances,
        )
        self.policy.instances.on_in_force = made.progressed
        made.on_changed = self._associations_changed
        made.on_engine = self._engine_answers
        self.mirrors.attach(self.policy, made)
        self.policy.associations = made.entities
        return made

    def _make_inlets(self) -> None:
        sources = self.sources
        self._timers = Inlet("timers", 0, self._drain_timers)
        self._kernel = Inlet("kernel", 1, self._drain_kernel, sources.kernel.fileno())
        self._punts = Inlet("punts", 2, self._drain_punts)
        if (punts := sources.punts.fileno()) is not None:
            asyncio.get_running_loop().add_reader(punts, self.scheduler.serve, self._punts)
        self._host = Inlet("host", 3, self._drain_host, sources.host.fileno())
        self._moved = Inlet("moved routes", 5, self._drain_moved)
        for inlet in (self._timers, self._kernel, self._punts, self._host, self._moved):
            self.scheduler.add(inlet)
        self.daemons.add_inlets(self.scheduler, self._drain_routes, self._drain_dump)
        if sources.fast_path is not None:
            fileno = sources.fast_path.fileno()
            self.scheduler.add(Inlet("delivered packets", 3, self._drain_delivered, fileno))
        for inlet in self.mirrors.inlets():
            self.scheduler.add(inlet)
        self.views = Turns(self.scheduler, "views", 7)
        self.scheduler.enable(self._kernel, False)
        self.daemons.enable(False)  # nothing is read until the switch's routes are known
        self.reconciler.on_table_read = self._table_read

    def _settings(self) -> EntityChanges:
        """Returns the entities that depend only on the configuration.

        These are the punt meters, the hash seed, and the drop reasons whose packets are copied.
        """
        changes = EntityChanges()
        for drop_reason in DROPS:
            changes.set(EntityKind.COPIED_DROP, drop_reason, AUDITED)
        if self.mirrors or any(bundle.engines for bundle in self.config.policy.bundles):
            changes.set(EntityKind.COPIED_DROP, NO_SA, WANTS_SA)
        for reason, rate in self.config.punt_rates.items():
            changes.set(EntityKind.PUNT_METER, reason, PuntLimit(rate.rate, rate.burst))
        seed = zlib.crc32(self.config.router.encode())
        changes.set(EntityKind.HASH_SEED, HASH_SEED_KEY, HashSeed(seed))
        return changes

    def set_limits(self, config: Config) -> None:
        """Applies the settings that a reload may change (`reload.SETTINGS`) from `config`."""
        self.config, limits = (
            replace(
                self.config,
                limits=config.limits,
                punt_rates=config.punt_rates,
                audit=replace(self.config.audit, rate=config.audit.rate),
                policy=replace(
                    self.config.policy,
                    spds=config.policy.spds,
                    security_associations=config.policy.security_associations,
                ),
            ),
            config.limits,
        )
        self._submit(self._settings())
        self.held.set_limits(
            limits.held_packets_per_neighbor, limits.held_packets, limits.held_seconds
        )
        self._limiter.set_rates(*_icmp_rates(limits))
        self.rejections.set_rate(limits.icmp_rejects_per_second)
        self.first_packets.fragments.set_limits(
            limits.fragment_datagrams, limits.fragments_waiting, limits.fragment_seconds
        )
        self.sources.punts.set_limit(limits.punt_queue)
        self.auditor.rate, self.auditor.interval = limits.auditor_per_second, limits.auditor_seconds
        self.audit.set_rate(config.audit.rate)
        self.policy.set_configured(config)
        self.associations.report_lifetime = limits.path_mtu_seconds
        self.associations.set_configured(config.policy.security_associations)

    # -- tasks

    async def run(self) -> None:
        """Runs until cancelled. After that, the switch keeps its entries and continues to forward.

        Raises DisplacedError when another controller has become primary.
        """
        serving = [
            self.scheduler.run(),
            self.stalls.measured("session", self._serve_switch()),
            self.stalls.measured("SAs", self.associations.run()),
            self.mirrors.run(),
            self.ike_order.run(),
        ]
        try:
            await run_until_one_fails(serving)
        finally:
            await self.policy.close()
            if (punts := self.sources.punts.fileno()) is not None:
                asyncio.get_running_loop().remove_reader(punts)
            if self._timer is not None:
                self._timer.cancel()
            self.audit.close()

    async def _serve_switch(self) -> None:
        """Maintains the connection to the switch.

        Order: the engines report their SAs first. Otherwise no entry of an SA would be desired yet,
        so the switch's entries for SAs would be closed, and it would drop their packets.
        """
        await self.associations.wait_for_engines()
        await self.connection.run()

    def _switch_repaired(self, repair: Repair) -> None:
        self.audit.repaired(repair.what, repair.found, repair.written, repair.at)

    async def _session_tasks(self, session: Session) -> None:
        """Runs the tasks that a session has besides the reconciler."""
        serving = (
            self.policy.run(session),
            self.auditor.run(session),
            self.port_watch.run(session),
        )
        tasks = [asyncio.create_task(each) for each in serving]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _ports_changed(self, ports: SwitchPorts | None) -> None:
        self._submit(self.engines.ports_changed(None if ports is None else ports.links))

    def _engine_answers(self, engine: int, answers: bool) -> None:
        self._submit(self.engines.set_answering(engine, answers))

    def _associations_changed(self, changes: EntityChanges) -> None:
        """Submits changes of SA entities to the reconciler.

        Submits nothing before the policy has started, because the start of the policy submits all
        SAs.
        """
        for key, value in changes.of(EntityKind.OUTBOUND_SA).items():
            if isinstance(key, BundleInVrf):
                self._tunnels.pop(key.bundle, None)
                if isinstance(value, Encrypt):
                    self._tunnels[key.bundle] = TunnelMtu(value.path_mtu, value.overhead)
        if self.policy.started:
            self._submit(changes)

    def _is_esp_source(self, spd: str, source: EspSender) -> bool:
        """Returns whether an outbound SA of this SPD uses this source address and SPI."""
        by_hand = (
            EspSender(bundle.outbound.local, bundle.outbound.spi)
            for bundle in self.config.policy.bundles
            if bundle.spd == spd and bundle.outbound is not None and bundle.outbound.spi is not None
        )
        bundles = self.policy.bundles_of(spd)
        of_engines = (
            EspSender(sa.settings.local, sa.settings.spi)
            for sa in self.associations.table.wanted
            if sa.settings.bundle in bundles and sa.settings.local is not None
        )
        return any(one == source for one in chain(by_hand, of_engines))

    def _closing(self, installed: EntitiesByKind) -> ClosingPlan:
        moved = () if self._numbers is None else self._numbers.moved
        return self.policy.closing(installed, moved)

    async def _adopt(self) -> None:
        """Adopts the switch's next-hop and group ids, and enables kernel events.

        Called after each read-back, but only the first call has this effect.
        """
        if self._numbers is not None:
            self._numbers.settled()
        if self._adopted:
            return
        found = self.reconciler.installed.by_kind
        self._adopted = True
        nexthops = {
            key: value if isinstance(value, Nexthop) and value != RETIRED else None
            for key, value in found[EntityKind.NEXTHOP].items()
            if isinstance(key, int)
        }
        groups = {
            key: value if isinstance(value, NexthopGroup) else None
            for key, value in found[EntityKind.GROUP].items()
            if isinstance(key, int)
        }
        self._submit(self.fib.adopt(nexthops, groups, self._clock()))
        self.scheduler.enable(self._kernel, True)

    async def _table_read(self) -> None:
        """Starts to read routes from the routing daemons, once all routes of the switch are read.

        Only the first call has an effect.
        """
        if self._table_adopted:
            return
        self._table_adopted = True
        self.daemons.enable(True)

    def _apply(self, events: Sequence[Event | RouteRun], now: float) -> EntityChanges:
        changes = self.fib.apply(events, now)
        if self.fib.has_moved_routes:
            self.scheduler.wake(self._moved)
        return changes

    def _submit(self, changes: EntityChanges) -> None:
        self.reconciler.submit(changes)
        if changes.resolve:
            now = self._clock()
            for l3_if, address in changes.resolve:
                self.resolution.want(Path(l3_if, address), now)
            self.scheduler.wake(self._timers)

    def _entity_deleted(self, kind: EntityKind, key: EntityKey) -> None:
        if isinstance(key, int):
            self.fib.confirm_deleted(kind, key)

    def _policy_changed(
        self, change: str, spds: Iterable[str], lists: Iterable[ListChange]
    ) -> None:
        self.audit.policy_changed(change, spds, lists, self._clock())

    def _progress(self) -> None:
        """Called when the switch has applied updates, or when the policy has started.

        Resumes reading routes once the reconciler has caught up. Sets `ready` and calls `on_ready`
        as soon as the policy is installed and the switch forwards.
        """
        self.associations.progressed()
        pending = self.reconciler.pending
        if not self.daemons.enabled and self._table_adopted and pending <= ROUTES_CAUGHT_UP:
            self.daemons.enable(True)
        started = self._released_kernel_kinds and self.policy.started
        if not self.ready and started and self.reconciler.forwards:
            self.ready = True
            self._on_ready()

    # -- inlets: each function does one slice of work and returns whether more may remain

    def _drain_kernel(self) -> bool:
        events = self.sources.kernel.poll(KERNEL_SLICE)
        now = self._clock()
        for event in events:
            self.sources.host.apply(event)
            if isinstance(event, LinkChanged):
                self.daemons.link_changed(event)
        self.sources.host.publish()
        self._submit(self._apply(events, now))
        self._submit(
            self.engines.apply(one for one in events if namespace_of(one.ifindex) == OWN_NAMESPACE)
        )
        outcome = PuntActions()
        for event in events:
            if isinstance(event, NeighborChanged):
                self._neighbor_changed(event, now, outcome)
        self._execute(outcome)
        first = self.sources.kernel.synced and not self._released_kernel_kinds
        if first:
            self._released_kernel_kinds = True
            self._submit(self.engines.complete_link_dump())
            self.reconciler.release(KERNEL_KINDS)
        if first or (
            self._released_kernel_kinds and any(type(event) in ADDRESS_EVENTS for event in events)
        ):
            self.mirrors.addresses_changed()
            self.policy.addresses_changed()
            self.associations.links_changed()
        return bool(events)

    def _neighbor_changed(self, event: NeighborChanged, now: float, outcome: PuntActions) -> None:
        l3_if = self.fib.interfaces.l3_if_of(event.ifindex)
        if l3_if is None:
            return
        path = Path(l3_if, event.address)
        self.resolution.changed(path, event, now)
        self.scheduler.wake(self._timers)
        self.punts.neighbor_changed(path, event.state, now, outcome)

    def _drain_punts(self) -> bool:
        now, outcome = self._clock(), PuntActions()
        packets = self.sources.punts.take(PUNT_SLICE)
        plain: list[FirstPacket] = []
        for packet in packets:
            if type(packet) is FirstPacket:
                plain.append(packet)
            else:
                self.punts.handle(packet, now, outcome)
        if plain:
            self.punts.handle_first(plain, now, outcome)
        self._execute(outcome)
        if outcome.resolve or self.first_packets.fragments.waiting:
            self.scheduler.wake(self._timers)
        return len(self.sources.punts) > 0

    def _drain_host(self) -> bool:
        frames = self.sources.host.poll(HOST_SLICE)
        self._drain_delivered()  # before `frames`, whose errors may quote these
        batch: list[tuple[bytes, Metadata]] = []
        for l3_if, frame in frames:
            is_ip = frame[12:14] in ETHERTYPES_IP
            if not is_ip:
                batch.append((frame, self.packets.to_port(l3_if)))
                continue
            carrier = self.host_errors.carrier_for(frame)
            if carrier is None:
                continue
            if carrier.bundle == IN_CLEAR:
                vrf = self.fib.interfaces.vrf_of(l3_if)
                metadata = self.packets.local_origin(l3_if, vrf)
            else:  # the pipeline routes the error, and its bundle protects it
                metadata = self.packets.local_origin(0, carrier.vrf, carrier.bundle)
            if self.mirrors and is_ike(frame[ETHERNET_HEADER:]):
                self.ike_order.submit(frame, metadata)
            else:
                batch.append((frame, metadata))
        self._packets_out(batch)
        return bool(frames)

    def _drain_delivered(self) -> bool:
        """Records packets that the fast path has delivered to the host."""
        if self.sources.fast_path is not None:
            for packet in self.sources.fast_path.delivered_packets():
                self._delivering(packet)
        return False

    def _drain_routes(self, daemon: Daemon) -> bool:
        if self.reconciler.pending > ROUTES_BEHIND:
            self.daemons.enable(False)
            return True
        events = daemon.feed.routes.poll(ROUTE_SLICE)
        if not events:
            return False
        now, count = self._clock(), 0
        for event in events:
            count += len(event) if type(event) is RouteRun else 1
            if type(event) in (FpmSessionOpened, FpmSessionClosed):
                log.info("FPM: %s", event)
                daemon.has_spoken = True
        daemon.comparison.note(events, now)
        self._submit(self._apply(events, now))
        self.on_routes(len(events))
        self.pace.note(count, now)
        self._set_timer()
        return True

    def _drain_moved(self) -> bool:
        """Submits one slice of the moved routes (`state.moved_routes`) to the reconciler."""
        self._submit(self.fib.publish_moved())
        self.on_routes(ROUTE_SLICE)
        return self.fib.has_moved_routes

    def _drain_dump(self, daemon: Daemon) -> bool:
        step = daemon.comparison.step(self._clock())
        if step.events:
            self._submit(self._apply(step.events, self._clock()))
            self.on_routes(step.routes)
        if step.settled:
            self.daemons.routes_complete(daemon, self._clock())
            self._settle()
        if not step.more:
            self._set_timer()
        return step.more

    def _settle(self) -> None:
        """Lets the reconciler delete routes in the switch that no daemon has replayed.

        Does so only when each daemon has replayed its routes or has failed to connect in time, and
        no kernel holds such a route any more.
        """
        self.daemons.settle(self._clock())
        if self.daemons.settled and not self._released_routes and not self.daemons.kept:
            self._released_routes = True
            self.reconciler.release(ROUTE_KINDS)

    def _drain_timers(self) -> bool:
        now, outcome = self._clock(), PuntActions()
        self.punts.expire(now, outcome)
        self._submit(self.fib.set_silent(outcome.unanswered))
        self.resolution.unanswered(outcome.unanswered, now)
        self._execute(outcome)
        self.resolution.ask_due(now)
        self.daemons.compare_due(now)
        self._settle()
        self._set_timer()
        return False

    def _set_timer(self) -> None:
        """Sets the timer that wakes the inlet `timers` at the next deadline."""
        fragments_due = self.first_packets.fragments.next_deadline
        routes_due = self.daemons.next_due(self._clock())
        dues = (self.held.next_deadline, self.resolution.next_due, routes_due, fragments_due)
        due = min((due for due in dues if due is not None), default=None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if due is not None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(due, self.scheduler.wake, self._timers)

    # -- packets

    def _packets_in(self, packets: list[tuple[bytes, Metadata]]) -> None:
        self.sources.punts.offer(packets)
        self.scheduler.serve(self._punts)

    def _delivering(self, packet: PuntedPacket) -> None:
        """Called for each IP packet delivered to the host.

        The packet may be an ICMP error about a path MTU, or may make the host send an ICMP error.
        """
        self.host_errors.delivered(packet)
        self.path_mtu_errors.delivered(packet)

    def _packet_dropped(self, reason: str, packet: PuntedPacket, now: float) -> None:
        """Called with the switch's copy of a dropped packet. Logs the packet, or requests an SA for
        it."""
        if reason != NO_SA:
            self.audit.packet_dropped(reason, packet, now)
        else:
            self.mirrors.acquire(packet, now)
            self.acquires.dropped(packet, now)

    def _packets_out(self, batch: list[tuple[bytes, Metadata]]) -> None:
        if batch:
            self._count_packets_out(len(batch), self.connection.packet_out(batch))

    def _count_packets_out(self, given: int, taken: int) -> None:
        self.counters["packets out"] += taken
        self.counters["packets out dropped: queue full or no switch"] += given - taken

    def _execute(self, outcome: PuntActions) -> None:
        if outcome.to_host:
            self.sources.host.deliver(outcome.to_host)
        self.policy.flows.flush()
        self._packets_out(outcome.packet_outs)
        if outcome.answered:
            taken = self.connection.answer(outcome.answered)
            self._count_packets_out(len(outcome.answered), taken)
        self.resolution.ask(outcome.resolve)

    def _when_ready(self, path: Path) -> None:
        """Releases the packets held for a neighbour that was resolved, once its next hop is in the
        switch."""
        identifier = self.fib.nexthops.id_of(path)
        if identifier is not None:
            self.reconciler.when_installed(
                EntityKind.NEXTHOP, identifier, lambda: self._release(path)
            )

    def _release(self, path: Path) -> None:
        outcome = PuntActions()
        self.punts.release(path, outcome)
        self._execute(outcome)


def _icmp_rates(limits: ControllerLimits) -> tuple[float, float, float, float]:
    """Returns the rate and burst for all ICMP errors together, then those for the errors to one
    host."""
    rate, burst = limits.icmp_errors_per_second, limits.icmp_errors_burst
    return rate, burst, max(1.0, rate / 10), max(1.0, burst / 2)

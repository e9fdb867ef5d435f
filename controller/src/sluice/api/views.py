# SPDX-License-Identifier: Apache-2.0
"""Makes the views of the API: the controller's state as plain data or `Rows`.

`Views(controller).answer(request)` answers `show`. Views that grow with the network are made in
slices, and after each slice the event loop serves other work. Each request reads the counters from
the switch. Counters are null while the switch is not connected. Depends on controller and its
parts.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import asdict
from heapq import merge
from itertools import islice
from typing import Any

from sluice import __version__
from sluice.api.cleared_counters import ClearedCounters
from sluice.api.explain import Explainer
from sluice.api.flow_view import FlowView
from sluice.api.health import problems
from sluice.api.policy_views import PolicyViews
from sluice.api.route_lookup import RouteLookup
from sluice.api.route_view import RouteView
from sluice.api.rows import Rows, made, sliced
from sluice.api.sa_requests import SaRequests
from sluice.api.server import BadRequestError
from sluice.api.standby import PRIMARY, STANDBY, WAITING
from sluice.controller import Controller
from sluice.entities import Attachment, EntityKind, RouteSlot, RouteTarget, RouteTargetKind
from sluice.metrics import lines
from sluice.model import format_address, format_mac
from sluice.namespaces import OWN_NAMESPACE
from sluice.p4.counters import Count, Request
from sluice.p4runtime.session import P4RuntimeError
from sluice.progress import Phase, PhaseInputs, phase_of
from sluice.state.interfaces import InterfaceState
from sluice.state.neighbors import Neighbor
from sluice.state.nexthops import Path

SHOWN_FAILURES = 20
LINES = 512
"""Number of metrics lines that are made before a yield to the loop."""


class Views:
    """Answers `show` requests."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._turn = controller.views.next
        self._cleared = ClearedCounters()
        self.policy = PolicyViews(controller, self._read)
        self._flows = FlowView(controller, self.policy.lists)
        self._sas = SaRequests(controller)
        self._paths = RouteView(controller, self._turn)
        self._lookup = RouteLookup(controller, self._paths)
        self.explain = Explainer(controller, self._lookup).answer
        self._views: dict[str, Callable[[dict[str, Any]], Awaitable[Any]]] = {
            "status": self._status,
            "interfaces": self._shown_interfaces,
            "routes": self._paths.answer,
            "route": self._lookup.answer,
            "nexthops": self._nexthops,
            "neighbors": self._neighbors,
            "punts": self._shown_punts,
            "counters": self._shown_counters,
            "metrics": self._metrics,
            "spd": self.policy.once_started(self.policy.spd),
            "flows": self.policy.once_started(self._flows.answer),
            "flow-cache": self.policy.once_started(self.policy.flow_cache),
            "sas": self._sas.show,
        }

    async def clear_counters(self, request: dict[str, Any]) -> dict[str, Any]:
        """Makes the counters in the views start from 0. The metrics keep their values."""
        self._cleared.clear(
            asyncio.get_running_loop().time(),
            counters=await self._counters({}),
            punts=await self._punts({}),
            interfaces=await self._interfaces({}),
        )
        return {}

    async def _shown_counters(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._cleared.counters(await self._counters(request))

    async def _shown_punts(self, request: dict[str, Any]) -> dict[str, Any]:
        return self._cleared.punts(await self._punts(request))

    async def _shown_interfaces(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        return self._cleared.interfaces(await self._interfaces(request))

    async def answer(self, request: dict[str, Any]) -> Any:
        """Returns the view that a request names. Raises BadRequestError."""
        if request.get("command") != "show":
            raise BadRequestError(f"unknown command {request.get('command')!r}; there is: show")
        view = self._views.get(str(request.get("what")))
        if view is None:
            known = ", ".join(self._views)
            raise BadRequestError(f"cannot show {request.get('what')!r}; there is: {known}")
        return await view(request)

    # -- status

    async def _status(self, request: dict[str, Any]) -> dict[str, Any]:
        controller, reconciler = self._controller, self._controller.reconciler
        connection, rib = controller.connection, controller.fib.rib
        failures = reconciler.failures
        now, cleared = asyncio.get_running_loop().time(), self._cleared.at
        devices = controller.sources.host.vrf_devices
        return {
            "version": __version__,
            "router": controller.config.router,
            "role": self._role(),
            "configuration": asdict(controller.reloads),
            "uptime": round(now - controller.started_at, 1),
            "counters_cleared": None if cleared is None else round(now - cleared, 1),
            "ready": controller.ready,
            "synced": bool(reconciler.synced and controller.sources.kernel.synced),
            "switch": {
                "target": controller.config.switch.target,
                "address": str(controller.config.switch.address),
                "transport": controller.config.switch.transport,
                "connected": connection.primary is not None,
                "arbitration": connection.arbitration,
                "last_error": connection.last_error,
                "installed": {
                    kind.name.lower(): len(held)
                    for kind, held in reconciler.installed.by_kind.items()
                },
            },
            "fpm": {
                "peer": " and ".join(controller.fib.sessions.values()) or None,
                "refused": _sum_of_feeds(controller)["connections_refused"],
                "routes": len(rib),
                "stale_routes": rib.stale,
                "kept_routes": controller.daemons.kept,
                "settled": controller.settled,
                "not_installed": dict(Counter(controller.fib.unrouted.values())),
                "waiting_for_objects": rib.waiting_objects(),
            },
            "progress": self._progress(),
            "reconciler": {
                "pending": reconciler.pending,
                "orphans": reconciler.orphans,
                "failed": len(failures),
                "failures": [
                    {"what": f"{kind.name.lower()} {describe(key)}", "error": str(failure)}
                    for (kind, key), failure in islice(failures.items(), SHOWN_FAILURES)
                ],
                **reconciler.counters,
            },
            "vrfs": [
                {
                    "name": vrf.name,
                    "table": vrf.table,
                    "device": devices.get(vrf.id),
                    "namespace": vrf.namespace if vrf.namespace_number != OWN_NAMESPACE else None,
                    "fpm": controller.fib.sessions.get(vrf.namespace_number),
                }
                for vrf in controller.config.vrfs
            ],
            "auditor": self._auditor(),
            "loop": {
                name: {"longest_stall": longest.ever, "last_minute": longest.last_minute}
                for name, longest in controller.stalls.longest().items()
            },
            "problems": list(problems(controller, self._phase())),
            "remarks": self._notices(),
        }

    def _role(self) -> str:
        connection = self._controller.connection
        if connection.primary is not None:
            return PRIMARY
        session = connection.session
        return STANDBY if session is not None and session.is_standby else WAITING

    def _notices(self) -> dict[str, int]:
        """Returns the number of events without effect and of repairs, by description."""
        fib, devices = self._controller.fib, self._controller.sources.vrf_devices
        repairs = {} if devices is None else dict(devices.repairs)
        return {**fib.problems, **fib.path_sets.problems(), **repairs}

    def _progress(self) -> dict[str, Any]:
        """Returns the controller's phase, the number of routes read back, and the route rate."""
        controller = self._controller
        reading = controller.reconciler.reading
        now = asyncio.get_running_loop().time()
        return {
            "phase": self._phase().value,
            "routes_read_back": None if reading is None else len(reading.by_kind[EntityKind.ROUTE]),
            "routes_per_second": round(controller.pace.per_second(now)),
        }

    def _phase(self) -> Phase:
        controller, reconciler = self._controller, self._controller.reconciler
        facts = PhaseInputs(
            connected=controller.connection.primary is not None,
            compared=reconciler.compared,
            pending=reconciler.pending,
            daemon=bool(controller.fib.sessions),
            settled=controller.settled,
        )
        return phase_of(facts)

    def _auditor(self) -> dict[str, Any]:
        """Returns the auditor's results for each part of the switch state: policy and routes."""
        now = asyncio.get_running_loop().time()
        reports = self._controller.auditor.reports
        return {
            part: {
                "rounds": report.rounds,
                "entries": report.compared,
                "seconds": report.seconds,
                "seconds_ago": None if report.completed_at is None else now - report.completed_at,
                "repaired": dict(report.repairs),
                "last_repairs": [str(repair) for repair in report.last],
                "problem": report.problem,
            }
            for part, report in reports.items()
        }

    # -- interfaces

    async def _interfaces(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        schema = self._controller.counter_schema
        states = self._selected(request)
        sent = await self._read(schema.egress_requests(states), schema.egress)
        # Reads only existing entries, because a target refuses the whole read if one entry does not
        # exist.
        admitted = self._controller.reconciler.installed.by_kind[EntityKind.L3_INTERFACE]
        wanted = {Attachment(one.spec.port, one.spec.vlan) for one in states.values()}
        attachments = [key for key in admitted if isinstance(key, Attachment) and key in wanted]
        received = await self._read(
            [schema.admission_request(key.port, key.vlan) for key in attachments], schema.direct
        )
        return [
            self._interface(
                state,
                None if received is None else received.get((state.spec.port, state.spec.vlan)),
                None if sent is None else sent.get(l3_if),
            )
            for l3_if, state in states.items()
        ]

    def _selected(self, request: dict[str, Any]) -> dict[int, InterfaceState]:
        """Returns the interfaces with the request's `name` or `vrf`, by interface number.

        If the request has neither `name` nor `vrf`, returns all interfaces.
        """
        states = dict(self._controller.fib.interfaces.by_l3_if)
        name, vrf = request.get("name"), request.get("vrf")
        if name is not None:
            states = {n: one for n, one in states.items() if one.spec.name == name}
            if not states:
                raise BadRequestError(
                    f"there is no interface {name!r}; `sluice show interfaces` has all"
                )
        if vrf is not None:
            ids = {one.name: one.id for one in self._controller.config.vrfs}
            if vrf not in ids:
                names = ", ".join(ids)
                raise BadRequestError(f"there is no VRF {vrf!r}; this router has: {names}")
            states = {n: one for n, one in states.items() if one.spec.vrf == ids[vrf]}
        return states

    def _interface(
        self, state: InterfaceState, received: Count | None, sent: Count | None
    ) -> dict[str, Any]:
        spec = state.spec
        vrfs = {vrf.id: vrf.name for vrf in self._controller.config.vrfs}
        return {
            "name": spec.name,
            "l3_if": spec.l3_if,
            "port": spec.port,
            "vlan": spec.vlan,
            "vrf": vrfs.get(spec.vrf, str(spec.vrf)),
            "device": spec.device,
            "up": state.up,
            "carrier": state.device_carrier,
            "switch_port": self._controller.port_watch.state_of(spec.port),
            "mac": format_mac(state.mac),
            "virtual_macs": [format_mac(mac) for mac in state.macs[1:]],
            "mtu": state.mtu,
            "addresses": [str(address) for address in state.addresses],
            "received": None if received is None else received._asdict(),
            "sent": None if sent is None else sent._asdict(),
        }

    # -- next hops and neighbours

    async def _nexthops(self, request: dict[str, Any]) -> dict[str, Any]:
        controller, table = self._controller, self._controller.fib.nexthops
        schema = controller.counter_schema
        known = sorted(table.identifiers())
        held = controller.reconciler.installed
        counts: dict[tuple[int, ...], Count] | None = {}
        for part in sliced([i for i in known if i in held.by_kind[EntityKind.NEXTHOP]]):
            read = await self._read([schema.nexthop_request(i) for i in part], schema.direct)
            counts = None if counts is None or read is None else counts | read
            await self._turn()

        def nexthop(identifier: int) -> dict[str, Any]:
            path = table.path_of(identifier)
            return ({} if path is None else self._paths.path(path)) | {
                "id": identifier,
                "used_by": held.uses((EntityKind.NEXTHOP, identifier)),
                "sent": _as_dict(None if counts is None else counts.get((identifier,))),
            }

        def group(identifier: int) -> dict[str, Any]:
            return {
                "id": identifier,
                "used_by": held.uses((EntityKind.GROUP_ENTRY, identifier)),
                "members": self._paths.legs(RouteTarget(RouteTargetKind.GROUP, identifier)),
            }

        return {
            "nexthops": [
                item for item in await made(known, nexthop, self._turn) if "interface" in item
            ],
            "groups": [
                item
                for item in await made(sorted(table.group_ids()), group, self._turn)
                if item["members"]
            ],
        }

    async def _neighbors(self, request: dict[str, Any]) -> Rows:
        return Rows(self._neighbor_slices(), {})

    async def _neighbor_slices(self) -> AsyncGenerator[list[dict[str, Any]], None]:
        """Yields slices of the neighbours, in order of interface and address.

        The state of a neighbour is read when the neighbour's slice is made.
        """
        controller = self._controller
        runs = []
        for part in sliced(controller.fib.neighbors.paths()):
            runs.append(sorted(part, key=_by_interface))
            await self._turn()
        clock = asyncio.get_running_loop().time
        for paths in sliced(merge(*runs, key=_by_interface)):
            found = map(controller.fib.neighbors.get, paths)
            yield [self._neighbor(one, clock()) for one in found if one is not None]
            await self._turn()

    def _neighbor(self, neighbor: Neighbor, now: float) -> dict[str, Any]:
        return self._paths.path(neighbor.path) | {
            "address": format_address(neighbor.path.address or b""),
            "state": neighbor.state.name.lower(),
            "age": round(now - neighbor.since, 1),
            "nexthop": self._controller.fib.nexthops.id_of(neighbor.path),
        }

    # -- counts

    async def _punts(self, request: dict[str, Any]) -> dict[str, Any]:
        controller = self._controller
        schema, punts = controller.counter_schema, controller.sources.punts
        counts = await self._read(schema.reason_requests(), schema.by_reason)
        names = controller.packets.reasons
        dropped = {
            names[n].value if n in names else str(n): count for n, count in punts.dropped.items()
        }
        fast_path = controller.sources.fast_path
        by_number = {} if fast_path is None else fast_path.handled()
        passed = {names[number].value: count for number, count in by_number.items()}
        reasons = {}
        for reason in names.values():
            name = reason.value
            rate = controller.config.punt_rates.get(name)
            reasons[name] = {
                "to_cpu": None if counts is None else counts["punts"][name].packets,
                "metered_away": None if counts is None else counts["punts_dropped"][name].packets,
                "queue_full": dropped.get(name, 0),
                "handled": controller.punts.by_reason[name] + passed.get(name, 0),
                "rate": None if rate is None else rate.rate,
            }
        return {
            "reasons": reasons,
            "waiting": len(punts),
            "held": len(controller.held),
            "results": dict(controller.punts.counters),
            "held_packets": dict(controller.held.counters),
        }

    async def _counters(self, request: dict[str, Any]) -> dict[str, Any]:
        schema = self._controller.counter_schema
        counts = await self._read(schema.reason_requests(), schema.by_reason)
        drops = None
        if counts is not None:
            drops = {name: count._asdict() for name, count in counts["drops"].items()}
        return {"switch_drops": drops, "controller": self._own_counters()}

    def _own_counters(self) -> dict[str, dict[str, int]]:
        controller, sources = self._controller, self._controller.sources
        groups: dict[str, Counter[str] | Any] = {
            "controller": controller.counters,
            "reconciler": controller.reconciler.counters,
            "punts": controller.punts.counters,
            "held_packets": controller.held.counters,
            "punt_queue": sources.punts.counters,
            "fpm": _sum_of_feeds(self._controller),
            "kernel": sources.kernel.counters,
            "host": sources.host.counters,
            "ike_ports": sources.ike_ports.counters if sources.ike_ports is not None else {},
            "ike_order": controller.ike_order.counters,
            "policy": controller.policy.counters,
            "first_packets": controller.first_packets.counters,
            "host_errors": controller.host_errors.counters,
            "fragments": controller.first_packets.fragments.counters,
            "flow_caches": controller.policy.flows.counters,
            "flow_invalidation": controller.policy.invalidation.counters,
            "audit": controller.audit.counters,
            "security_associations": controller.associations.counters,
            "acquires": controller.acquires.counters,
            "path_mtu_errors": controller.path_mtu_errors.counters,
            "kernel_policies": controller.mirrors.counters,
        }
        counts = {name: dict(counters) for name, counters in groups.items()}
        if sources.fast_path is not None:  # these count packets of the fast path too
            for name, passed in sources.fast_path.counters().items():
                group = counts.setdefault(name, {})
                for what, count in passed.items():
                    group[what] = group.get(what, 0) + count
        return counts

    async def _metrics(self, request: dict[str, Any]) -> str:
        """Returns the metrics text. Makes it in slices, because it has several lines for each
        rule."""
        text: list[str] = []
        made_of = lines(
            router=self._controller.config.router,
            status=await self._status(request),
            punts=await self._punts(request),
            counters=await self._counters(request),
            interfaces=await self._interfaces(request),
            policy=await self.policy.counts(),
            sas=await self._sas.show({}),
            engines=self._controller.associations.answering_engines(),
        )
        for part in sliced(made_of, LINES):
            text += part
            await self._turn()
        return "\n".join(text) + "\n"

    async def _read(self, requests: list[Request], decode: Callable[..., Any]) -> Any:
        """Reads and decodes counters of the switch. Returns None if no switch is connected."""
        session = self._controller.connection.primary
        if session is None:
            return None
        entities: list[Request] = []
        try:
            if requests:
                async for part in session.read(requests):
                    entities.extend(part)
        except P4RuntimeError as error:
            self._controller.counters[f"counters not read: {error}"] += 1
            return None
        return decode(entities)


def _sum_of_feeds(controller: Controller) -> Counter[str]:
    """Returns the counters of all routing daemons' sources, added up."""
    counts: Counter[str] = Counter()
    for feed in controller.sources.feeds:
        counts.update(feed.routes.counters)
    return counts


def describe(key: object) -> str:
    """Returns an entity's key as text for people."""
    if isinstance(key, RouteSlot):
        return f"{key.prefix} vrf {key.vrf}"
    return str(key)


def _by_interface(path: Path) -> tuple[int, bytes]:
    return path.l3_if, path.address or b""


def _as_dict(count: Count | None) -> dict[str, int] | None:
    return None if count is None else count._asdict()

# SPDX-License-Identifier: Apache-2.0
"""Makes the view `route`: the route by which the switch forwards packets to one address.

The module `views` uses this module. As in the switch, the longest installed prefix is selected. The
view also lists longer prefixes that the router knows but has not installed, each with the reason.
If the request describes a flow, the controller queries the switch for the flow's path. Depends on
controller, flow_trace and route_view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sluice.api.route_view import RouteView
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.entities import EntityKind, RouteSlot, RouteTarget, RouteTargetKind
from sluice.flow_trace import Flow, FlowError, TracedPath, trace
from sluice.model import Address, Prefix, parse_address
from sluice.p4runtime.session import P4RuntimeError
from sluice.state.nexthops import Path


class RouteLookup:
    """Answers `show route ADDRESS`."""

    def __init__(self, controller: Controller, routes: RouteView) -> None:
        self._controller = controller
        self._routes = routes

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Looks up `address` in the VRF named `vrf`. Raises BadRequestError."""
        address = _address(request.get("address"))
        vrf, name = self._vrf(request.get("vrf"))
        flow = _flow(request, address)
        way = None if flow is None else await self._trace(vrf, flow)
        installed = self._controller.reconciler.installed.by_kind
        slots = [RouteSlot(vrf, Prefix.of(address, n)) for n in range(8 * len(address), -1, -1)]
        match = next((slot for slot in slots if slot in installed[EntityKind.ROUTE]), None)
        return {
            "address": request["address"],
            "vrf": name,
            "own": slots[0] in installed[EntityKind.LOCAL_PREFIX],
            "route": None if match is None else self._routes.row(match),
            "legs": [
                leg | {"taken": None if way is None else way.nexthop == leg["nexthop"]}
                for leg in ([] if match is None else self._legs(installed[EntityKind.ROUTE][match]))
            ],
            "flow": None if way is None else way._asdict(),
            "not_installed": [
                self._routes.row(slot)
                for slot in slots[: None if match is None else slots.index(match)]
                if self._is_known(slot)
            ],
        }

    async def _trace(self, vrf: int, flow: Flow) -> TracedPath:
        """Queries the switch for a flow's path. Raises BadRequestError."""
        controller = self._controller
        session = controller.connection.primary
        if session is None:
            raise BadRequestError("the switch is not connected, so it cannot trace a flow")
        cpu_port = controller.config.switch.cpu_port
        try:
            way = await trace(session, controller.packets, cpu_port, vrf, flow)
        except P4RuntimeError as error:
            raise BadRequestError(f"the switch cannot trace the flow: {error}") from None
        if way is None:
            raise BadRequestError("this switch cannot trace a flow")
        return way

    def _vrf(self, wanted: Any) -> tuple[int, str]:
        vrfs = self._controller.config.vrfs
        for vrf in vrfs:
            if wanted in (None, vrf.name):
                return vrf.id, vrf.name
        names = ", ".join(vrf.name for vrf in vrfs)
        raise BadRequestError(f"there is no VRF {wanted!r}; this router has: {names}")

    def _is_known(self, slot: RouteSlot) -> bool:
        return (
            slot in self._controller.reconciler.desired[EntityKind.ROUTE]
            or slot in self._controller.fib.unrouted
        )

    def _legs(self, target: Any) -> Iterator[dict[str, Any]]:
        """Yields the next hops of a route's target. Each has the state of its interface, neighbour
        and port."""
        if not isinstance(target, RouteTarget):
            return
        nexthops = self._controller.fib.nexthops
        if target.kind is RouteTargetKind.NEXTHOP:
            path = nexthops.path_of(target.id)
            if path is not None:
                yield self._leg(path, 1.0)
        elif target.kind is RouteTargetKind.GROUP:
            members = list(nexthops.members_of(target.id))
            alive = sum(one.weight for one in members if self._is_alive(one.path))
            for one in members:
                share = one.weight / alive if self._is_alive(one.path) else 0.0
                yield self._leg(one.path, share)

    def _is_alive(self, path: Path) -> bool:
        leg = self._routes.path(path)
        return bool(leg["up"]) and not leg["silent"]

    def _leg(self, path: Path, share: float) -> dict[str, Any]:
        controller = self._controller
        interface = controller.fib.interfaces.by_l3_if.get(path.l3_if)
        neighbor = controller.fib.neighbors.get(path) if path.address is not None else None
        identifier = controller.fib.nexthops.id_of(path)
        held = controller.reconciler.installed.by_kind[EntityKind.NEXTHOP]
        failure = (
            None
            if identifier is None
            else controller.reconciler.failures.get(EntityKind.NEXTHOP, identifier)
        )
        port = None if interface is None else interface.spec.port
        return self._routes.path(path) | {
            "share": round(share, 4),
            "nexthop": identifier,
            "installed": identifier in held,
            "error": None if failure is None else str(failure),
            "neighbor": None if neighbor is None else neighbor.state.name.lower(),
            "port": port,
            "vlan": None if interface is None else interface.spec.vlan,
            "switch_port": None if port is None else controller.port_watch.state_of(port),
        }


def _address(text: Any) -> Address:
    try:
        return parse_address(str(text))
    except ValueError:
        raise BadRequestError(f"{text!r} is no IPv4 or IPv6 address") from None


def _flow(request: dict[str, Any], destination: Address) -> Flow | None:
    """Returns the flow that the request describes, or None. Raises BadRequestError."""
    found = request.get("flow")
    if found is None:
        return None
    if not isinstance(found, dict):
        raise BadRequestError("a flow must be an object: source, protocol, ports, flow_label")
    unknown = found.keys() - {"source", "protocol", "ports", "flow_label"}
    if unknown:
        raise BadRequestError(f"a flow has no field {min(unknown)!r}")
    protocol, label = _number(found, "protocol"), _number(found, "flow_label")
    ports = found.get("ports")
    if ports is not None:
        if not isinstance(ports, list) or len(ports) != 2 or not all(map(_is_number, ports)):
            raise BadRequestError("ports of a flow must be two whole numbers: source, destination")
        ports = ports[0], ports[1]
    try:
        return Flow(_address(found.get("source")), destination, protocol, ports, label)
    except FlowError as error:
        raise BadRequestError(str(error)) from None


def _number(flow: dict[str, Any], name: str) -> int:
    """Returns a numeric field of a flow. A missing flow label is 0. Raises BadRequestError."""
    value = flow.get(name, 0 if name == "flow_label" else None)
    if isinstance(value, int) and _is_number(value):
        return value
    raise BadRequestError(f"{name} of a flow must be a whole number")


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)

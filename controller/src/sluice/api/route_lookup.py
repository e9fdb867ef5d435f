# SPDX-License-Identifier: Apache-2.0
"""The view `route`: which route the packets to one address take in the switch, and why that one.

A part of `views`. The longest prefix that the switch holds decides, as in the switch; longer ones
that the router knows and that are not in the switch are told, with the reason. Depends on
controller and route_view.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sluice.api.route_view import RouteView
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.entities import Kind, RouteSlot, Target, TargetKind
from sluice.model import Address, Prefix, parse_address
from sluice.state.nexthops import Path


class RouteLookup:
    """The answer to `show route ADDRESS`."""

    def __init__(self, controller: Controller, routes: RouteView) -> None:
        self._controller = controller
        self._routes = routes

    async def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Returns the look-up of `address` in `vrf`, a name. Raises BadRequestError."""
        address = _address(request.get("address"))
        vrf, name = self._vrf(request.get("vrf"))
        installed = self._controller.reconciler.installed.by_kind
        slots = [RouteSlot(vrf, Prefix.of(address, n)) for n in range(8 * len(address), -1, -1)]
        match = next((slot for slot in slots if slot in installed[Kind.ROUTE]), None)
        return {
            "address": request["address"],
            "vrf": name,
            "own": slots[0] in installed[Kind.LOCAL_PREFIX],
            "route": None if match is None else self._routes.row(match),
            "legs": [] if match is None else list(self._legs(installed[Kind.ROUTE][match])),
            "not_installed": [
                self._routes.row(slot)
                for slot in slots[: None if match is None else slots.index(match)]
                if self._is_known(slot)
            ],
        }

    def _vrf(self, wanted: Any) -> tuple[int, str]:
        vrfs = self._controller.config.vrfs
        for vrf in vrfs:
            if wanted in (None, vrf.name):
                return vrf.id, vrf.name
        names = ", ".join(vrf.name for vrf in vrfs)
        raise BadRequestError(f"there is no VRF {wanted!r}; this router has: {names}")

    def _is_known(self, slot: RouteSlot) -> bool:
        return (
            slot in self._controller.reconciler.desired[Kind.ROUTE]
            or slot in self._controller.fib.unrouted
        )

    def _legs(self, target: Any) -> Iterator[dict[str, Any]]:
        """The ways out of what the switch holds, each with all that it takes."""
        if not isinstance(target, Target):
            return
        nexthops = self._controller.fib.nexthops
        if target.kind is TargetKind.NEXTHOP:
            path = nexthops.path_of(target.id)
            if path is not None:
                yield self._leg(path, 1.0)
        elif target.kind is TargetKind.GROUP:
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
        held = controller.reconciler.installed.by_kind[Kind.NEXTHOP]
        failure = (
            None
            if identifier is None
            else controller.reconciler.failures.get(Kind.NEXTHOP, identifier)
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

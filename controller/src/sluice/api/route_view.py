# SPDX-License-Identifier: Apache-2.0
"""Makes the view `routes`: the prefixes that the switch forwards, in slices and pages.

The module `views` uses this module. The prefixes are in order. The row of a route is made when its
slice is made, from the route's state at that time. A route that exists at that time appears exactly
once. Depends on controller.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from typing import Any, NamedTuple

from sluice.api.rows import Rows, WaitForTurn, sliced
from sluice.api.server import BadRequestError
from sluice.controller import Controller
from sluice.entities import EntityKind, EntityValue, RouteSlot, RouteTarget, RouteTargetKind
from sluice.model import Prefix, format_address, format_mac
from sluice.state.nexthops import Path
from sluice.state.rib import RibEntry

PROTOCOLS = {  # RTPROT_* numbers of the kernel and of FRR
    2: "kernel",
    3: "boot",
    4: "static",
    11: "zebra",
    186: "bgp",
    187: "isis",
    188: "ospf",
    189: "rip",
    190: "ripng",
    191: "nhrp",
    192: "eigrp",
    193: "ldp",
    194: "sharp",
    195: "pbr",
    196: "static",
    197: "openfabric",
    198: "srte",
}


class _Filter(NamedTuple):
    """Selects routes by VRF and protocol. None selects all."""

    vrf: int | None
    protocol: str | None


class RouteView:
    """Answers `show routes`."""

    def __init__(self, controller: Controller, turn: WaitForTurn) -> None:
        self._controller = controller
        self._turn = turn
        self._vrf_names = {vrf.id: vrf.name for vrf in controller.config.vrfs}

    async def answer(self, request: dict[str, Any]) -> Rows:
        """Returns at most `limit` routes, from the first one behind the prefix `after` on, or from
        the start.

        If the request names a VRF or a protocol, returns only routes of this VRF or protocol.
        Raises BadRequestError.
        """
        wanted, after = _prefix(request, "prefix"), _prefix(request, "after")
        limit, vrf = _number(request, "limit"), _number(request, "after_vrf")
        start = None if after is None else RouteSlot(vrf or 0, after)
        more: dict[str, Any] = {}
        only = _Filter(self._vrf(request.get("vrf")), request.get("protocol"))
        if wanted is None:
            slots = self._controller.fib.order.walk(start)
        else:
            found = (RouteSlot(vrf.id, wanted) for vrf in self._controller.config.vrfs)
            slots = iter(
                [[slot for slot in found if start is None or _sort_key(slot) > _sort_key(start)]]
            )
        return Rows(self._slices(slots, limit or None, more, only), more)

    def _vrf(self, name: Any) -> int | None:
        """Returns the number of the VRF with this name, or None if `name` is None."""
        if name is None:
            return None
        for number, known in self._vrf_names.items():
            if known == name:
                return number
        names = ", ".join(self._vrf_names.values())
        raise BadRequestError(f"there is no VRF {name!r}; this router has: {names}")

    def row(self, slot: RouteSlot) -> dict[str, Any]:
        """Returns one route in the form of `show routes`."""
        entry = self._entry(slot)
        target = self._target(slot, entry)
        legs = self.legs(target) if isinstance(target, RouteTarget) else []
        return self._route(slot, entry, target, legs)

    async def _slices(
        self,
        slots: Iterator[list[RouteSlot]],
        limit: int | None,
        more: dict[str, Any],
        only: _Filter,
    ) -> AsyncGenerator[list[dict[str, Any]], None]:
        shown, last = 0, None
        for block in slots:
            for part in sliced(block):
                rows: list[dict[str, Any]] = []
                # Next hops by target. Most routes of a slice share a few targets, so the next hops
                # of each target are computed once.
                legs: dict[EntityValue | None, list[dict[str, Any]]] = {}
                for slot in part:
                    if only.vrf not in (None, slot.vrf):
                        continue
                    entry = self._entry(slot)
                    if only.protocol not in (None, _protocol(slot, entry)):
                        continue
                    target = self._target(slot, entry)
                    if target is None and slot not in self._controller.fib.unrouted:
                        continue
                    if shown == limit and last is not None:  # another page follows
                        more["next"] = {"after": str(last.prefix), "after_vrf": last.vrf}
                        break
                    if target not in legs:
                        legs[target] = self.legs(target) if isinstance(target, RouteTarget) else []
                    rows.append(self._route(slot, entry, target, legs[target]))
                    shown, last = shown + 1, slot
                yield rows
                if more:
                    return
                await self._turn()

    def _entry(self, slot: RouteSlot) -> RibEntry | None:
        """Returns the route that the routing daemon sent, or None if it sent none."""
        entry: RibEntry | None = self._controller.fib.routes.entry(slot)
        return entry

    def _target(self, slot: RouteSlot, entry: RibEntry | None) -> EntityValue | None:
        """Returns the target that the route should have in the switch.

        For a prefix that the controller does not install, returns the target of the routing
        daemon's route.
        """
        desired = self._controller.reconciler.desired[EntityKind.ROUTE].get(slot)
        if desired is not None or slot not in self._controller.fib.unrouted:
            return desired
        paths = None if entry is None else entry.paths
        return None if paths is None else paths.target

    def _route(
        self,
        slot: RouteSlot,
        entry: RibEntry | None,
        target: EntityValue | None,
        legs: list[dict[str, Any]],
    ) -> dict[str, Any]:
        reconciler = self._controller.reconciler
        installed = reconciler.installed.by_kind[EntityKind.ROUTE].get(slot)
        failure = reconciler.failures.get(EntityKind.ROUTE, slot)
        return {
            "vrf": slot.vrf,
            "vrf_name": self._vrf_names.get(slot.vrf, str(slot.vrf)),
            "prefix": str(slot.prefix),
            "protocol": _protocol(slot, entry),
            "nexthops": [leg for leg in legs if is_alive(leg)],
            "dead_nexthops": [leg for leg in legs if not is_alive(leg)],
            "action": target.kind.name.lower() if isinstance(target, RouteTarget) else None,
            "id": target.id if isinstance(target, RouteTarget) else None,
            "installed": target is not None and installed == target,
            "unrouted": self._controller.fib.unrouted.get(slot),
            "error": None if failure is None else str(failure),
        }

    def legs(self, target: RouteTarget) -> list[dict[str, Any]]:
        """Returns a route target's next hops, with their weights."""
        nexthops = self._controller.fib.nexthops
        if target.kind is RouteTargetKind.NEXTHOP:
            path = nexthops.path_of(target.id)
            return [] if path is None else [self.path(path) | {"weight": 1}]
        if target.kind is RouteTargetKind.GROUP:
            return [
                self.path(member.path) | {"weight": member.weight}
                for member in nexthops.members_of(target.id)
            ]
        return []

    def path(self, path: Path) -> dict[str, Any]:
        """Returns one next hop: interface, gateway and MAC address, and whether it works."""
        interface = self._controller.fib.interfaces.by_l3_if.get(path.l3_if)
        mac = self._controller.fib.neighbors.mac_of(path)
        return {
            "interface": None if interface is None else interface.spec.name,
            "gateway": None if path.address is None else format_address(path.address),
            "mac": None if mac is None else format_mac(mac),
            "up": interface is not None and interface.usable,
            "silent": self._controller.fib.nexthops.is_silent(path),
        }


def is_alive(leg: dict[str, Any]) -> bool:
    """Returns whether a next hop's link is up and its neighbour is not known to be silent."""
    return bool(leg["up"]) and not leg["silent"]


def _protocol(slot: RouteSlot, entry: RibEntry | None) -> str:
    if entry is None:
        is_host = slot.prefix.length == len(slot.prefix.address) * 8
        return "neighbor" if is_host else "connected"
    return PROTOCOLS.get(entry.protocol, str(entry.protocol))


def _sort_key(slot: RouteSlot) -> tuple[int, int, Prefix]:
    """Returns a sort key that gives prefixes the order of `RouteOrder`."""
    return slot.vrf, len(slot.prefix.address), slot.prefix


def _prefix(request: dict[str, Any], name: str) -> Prefix | None:
    text = request.get(name)
    if text is None:
        return None
    try:
        return Prefix.parse(str(text))
    except ValueError as error:
        raise BadRequestError(str(error)) from None


def _number(request: dict[str, Any], name: str) -> int | None:
    number = request.get(name)
    if number is not None and (not isinstance(number, int) or number < 0):
        raise BadRequestError(f"{name} must be a whole number")
    return number

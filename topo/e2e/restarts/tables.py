# SPDX-License-Identifier: Apache-2.0
"""Compares a switch's tables with zebra's RIB and the kernel's neighbours, prefix by prefix.

Tables and RIB are converted to mappings from prefixes to targets. A target is a set of `Leg`s with
their shares of the traffic, or the name of a drop. None of the data come from the controller: vtysh
prints the RIB, the kernel lists its neighbours, and a separate P4Runtime client reads the switch
(`read_tables`).
"""

import json
import sys
from collections.abc import Mapping
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

from sluice_testkit import where
from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Namespace

READER = Path(__file__).with_name("read_tables.py")
BLACKHOLE = "blackhole"
UNRESOLVED, GLEAN = "unresolved", "the packet's own destination"
Prefix = IPv4Network | IPv6Network


class Leg(NamedTuple):
    """Holds one next hop: a port and the neighbour's MAC address. For a connected prefix, the MAC
    address is GLEAN.
    """

    port: int
    neighbor: str


RouteTarget = frozenset[tuple[Leg, int]] | str
"""Set of legs with their shares (without a common divisor), or the name of a drop."""


def route_target(shares: Mapping[Leg, int]) -> RouteTarget:
    """Returns the legs with their shares divided by the greatest common divisor."""
    whole = gcd(*shares.values())
    return frozenset((leg, share // whole) for leg, share in shares.items())


class Tables:
    """Reads the routes of one P4 router: those in the switch, and those that should be there.

    `ports` maps interface names to ports. The neighbours' MAC addresses are read from the kernel of
    `place`.
    """

    def __init__(self, place: Namespace, frr: Frr, address: str, ports: Mapping[str, int]) -> None:
        self._place = place
        self._frr = frr
        self._address = address
        self._ports = ports

    def differences(self) -> list[str]:
        """Returns a line for each prefix whose target in the switch differs from zebra's."""
        wanted, found = self.wanted(), self.found()
        return [
            f"{prefix}: zebra {show(wanted.get(prefix))}, switch {show(found.get(prefix))}"
            for prefix in sorted(wanted.keys() | found.keys(), key=str)
            if wanted.get(prefix) != found.get(prefix)
        ]

    def wanted(self) -> dict[Prefix, RouteTarget]:
        """Returns the routes that the switch should have: those that zebra has selected, and a host
        route for each neighbour on a connected prefix.
        """
        routes: dict[Prefix, RouteTarget] = {}
        macs = self._neighbors()
        connected: list[tuple[str, Prefix]] = []
        for family in ("ip", "ipv6"):
            rib = self._frr.json(f"show {family} route json")
            for prefix, entries in rib.items():
                network = ip_network(prefix)
                for entry in entries:
                    if entry.get("selected") and not network.is_link_local:
                        routes[network] = self._wanted(entry, macs)
                        if entry["protocol"] == "connected":
                            leg = entry["nexthops"][0]
                            connected.append((leg["interfaceName"], network))
        for interface, network in connected:
            for (device, address), mac in macs.items():
                if device == interface and ip_address(address) in network:
                    routes[ip_network(address)] = route_target({Leg(self._ports[device], mac): 1})
        return routes

    def _wanted(self, entry: dict[str, Any], macs: Mapping[tuple[str, str], str]) -> RouteTarget:
        shares: dict[Leg, int] = {}
        for leg in entry["nexthops"]:
            if "blackhole" in leg or leg.get("unreachable"):
                return BLACKHOLE
            if not leg.get("fib"):
                continue
            name = leg["interfaceName"]
            neighbor = macs.get((name, leg["ip"]), UNRESOLVED) if "ip" in leg else GLEAN
            shares[Leg(self._ports[name], neighbor)] = leg.get("weight", 1)
        return route_target(shares) if shares else "no leg"

    def _neighbors(self) -> dict[tuple[str, str], str]:
        """Returns the MAC addresses that the kernel has resolved, by device and IP address."""
        shown = json.loads(self._place.run("ip", "-json", "neigh", "show").stdout)
        return {
            (entry["dev"], entry["dst"]): entry["lladdr"].replace(":", "")
            for entry in shown
            if "lladdr" in entry and "FAILED" not in entry["state"]
        }

    def found(self) -> dict[Prefix, RouteTarget]:
        """Returns the routes that the switch has in the default VRF."""
        shown = self.read()
        ports = {
            number(entry["match"]["l3_if"]): number(entry["params"]["port"])
            for entry in shown["egress_interface"]
        }
        legs = {
            number(entry["match"]["nexthop_id"]): _leg(entry, ports) for entry in shown["nexthop"]
        }
        routes: dict[Prefix, RouteTarget] = {}
        for size, table in ((4, "ipv4_fib"), (16, "ipv6_fib")):
            for entry in shown[table]:
                routes[_prefix(entry, size)] = _found(entry, legs, shown["groups"])
        return routes

    def read(self) -> Any:
        """Returns the switch's tables as `read_tables` prints them."""
        done = self._place.run(
            *(sys.executable, str(READER), self._address),
            str(where.pipeline() / "router.p4info.txtpb"),
        )
        return json.loads(done.stdout)


def number(value: str) -> int:
    """Parses a number as `read_tables` prints it."""
    return int(value or "0", 16)


def _prefix(entry: dict[str, Any], size: int) -> Prefix:
    address = number(entry["match"].get("dst_addr", "")).to_bytes(size, "big")
    return ip_network((address, entry["length"] or 0))


def _leg(entry: dict[str, Any], ports: Mapping[int, int]) -> Leg | str:
    params = entry["params"]
    if entry["action"] == "discard_nexthop":
        return "discard"
    port = ports[number(params["l3_if"])]
    if entry["action"] == "resolve_neighbor":
        return Leg(port, GLEAN)
    return Leg(port, f"{number(params['dst_mac']):012x}")


def _found(entry: dict[str, Any], legs: Mapping[int, Leg | str], groups: Any) -> RouteTarget:
    if entry["action"] == "set_nexthop":
        leg = legs[number(entry["params"]["nexthop_id"])]
        return leg if isinstance(leg, str) else route_target({leg: 1})
    if entry["action"] == "set_nexthop_group":
        members = groups[f"{number(entry['params']['group_id']):x}"]
        shares: dict[Leg, int] = {}
        for member, weight in members.items():
            leg = legs[number(member)]
            if isinstance(leg, str):
                return f"a group with a leg that is: {leg}"
            shares[leg] = shares.get(leg, 0) + weight
        return route_target(shares)
    return BLACKHOLE


def show(one: RouteTarget | None) -> str:
    """Returns a target as text."""
    if one is None:
        return "nothing"
    if isinstance(one, str):
        return one
    return " + ".join(f"{share} x port{leg.port} {leg.neighbor}" for leg, share in sorted(one))

# SPDX-License-Identifier: Apache-2.0
"""Builds a hub and two spokes that protect each other's traffic, with doubles of the ESP engine.

           h2                            Wires, each between a router and t:
            |                              r1-2   from r1 towards spoke 2
    +--------------+                       r1-3   from r1 towards spoke 3
    | r2  (engine) |                       r2, r3 from the spokes
    +--------------+
            | eth3      everything between the sites is protected:
          +---+         h1 and h2 by r1 and r2, h1 and h3 by r1 and r3 (over IPv6),
          | t |---- r3 (engine) --- h3       h2 and h3 by both tunnels, through r1
          +---+ eth4
      eth1 | | eth2
    +--------------+
    | r1  (engine) |--- h1
    +--------------+

The routers' files are in hub_and_spoke/. All programs are real, except the engines. Depends on the
test kit and sluice_topo.
"""

import ipaddress
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import yaml

from sluice_testkit.esp_engine import ENGINE_MTU, EspEngine, OutboundSa
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.target import binary
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import Host, LinkEnd, Router, RouterKind, Topology
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routers import HostNode, P4Router

FILES = Path(__file__).resolve().parent / "hub_and_spoke"
ENGINE_PORT = 9
Engine = TypeVar("Engine")
GATEWAYS = {"r1-2": "10.0.12.1", "r1-3": "10.0.13.1", "r2": "10.0.20.1", "r3": "10.0.30.1"}
WIRES = {"r1-2": "eth1", "r1-3": "eth2", "r2": "eth3", "r3": "eth4"}
"""t's interface for each link to a router."""
SITES = ("10.1.0.0/24", "10.2.0.0/24", "10.3.0.0/24")
SITES_IPV6 = ("2001:db8:1::/64", "2001:db8:2::/64", "2001:db8:3::/64")
TUNNEL = {
    12: OutboundSa(0x1002, "10.0.12.1", "10.0.20.1"),
    21: OutboundSa(0x2001, "10.0.20.1", "10.0.12.1"),
    13: OutboundSa(0x1003, "2001:db8:0:13::1", "2001:db8:0:30::1"),
    31: OutboundSa(0x3001, "2001:db8:0:30::1", "2001:db8:0:13::1"),
}
"""The SAs by number. SA 12 is from r1 to r2."""
ROOM = {number: 1500 - sa.overhead() for number, sa in TUNNEL.items()}
"""Length of the largest packet that fits into each SA's tunnel."""
HUB = {4: "10.1.0.1", 6: "2001:db8:1::1"}
"""r1's addresses towards h1, which configured rules match. They match no address towards t."""
HUB_TO_SPOKE2 = {4: "10.0.12.1", 6: "2001:db8:0:12::1"}
R1_TO_H1, R1_TO_T, ELSEWHERE = "02:00:00:00:01:01", "02:00:00:00:01:02", "02:00:00:00:ff:01"
"""MAC addresses: r1's first two ports, and a simulated neighbour."""
SOON = ("-W", "0.5")
"""Options for pings that get no answer: ping waits only for a short time."""
INBOUND = {"r1": {0x2001: 2, 0x3001: 3}, "r2": {0x1002: 1}, "r3": {0x1003: 1}}
"""For each router: maps the SPI of an inbound SA to the SA's bundle."""


def hub_and_spoke() -> Topology:
    """Returns the topology that the module's docstring shows."""
    hosts = tuple(
        Host(
            f"h{number}",
            (f"10.{number}.0.2/24", f"2001:db8:{number}::2/64"),
            (f"10.{number}.0.1", f"2001:db8:{number}::1"),
        )
        for number in (1, 2, 3)
    )
    kinds = {"r1": RouterKind.P4, "r2": RouterKind.P4, "r3": RouterKind.P4, "t": RouterKind.LINUX}
    return Topology(
        hosts=hosts,
        routers=tuple(Router(name, kind, FILES / name) for name, kind in kinds.items()),
        links=(
            *((LinkEnd(f"h{n}", "eth0"), LinkEnd(f"r{n}", "port1")) for n in (1, 2, 3)),
            (LinkEnd("r1", "port2"), LinkEnd("t", "eth1")),
            (LinkEnd("r1", "port3"), LinkEnd("t", "eth2")),
            (LinkEnd("r2", "port2"), LinkEnd("t", "eth3")),
            (LinkEnd("r3", "port2"), LinkEnd("t", "eth4")),
        ),
    )


class ProtectedNetwork:
    """Holds the running network and its engines. Queries and changes the routers."""

    def __init__(
        self,
        network: Network,
        engines: Mapping[str, EspEngine],
        engine_places: Mapping[str, Namespace],
        directory: Path,
    ):
        self.network = network
        self.engines = engines
        self.engine_places = engine_places
        self.directory = directory

    @property
    def between(self) -> Namespace:
        """The namespace of t."""
        return self.network.routers["t"].namespace

    def host(self, name: str) -> HostNode:
        """Returns a host."""
        return self.network.hosts[name]

    def namespace(self, node: str) -> Namespace:
        """Returns the namespace of a host or a router."""
        if node in self.network.hosts:
            return self.host(node).namespace
        return self.place(node)

    def place(self, router: str) -> Namespace:
        """Returns a router's namespace, in which its host stack runs."""
        return self.network.routers[router].namespace

    def ping(
        self,
        place: Namespace,
        address: str,
        *,
        count: int = 5,
        size: int = 56,
        options: tuple[str, ...] = (),
    ) -> probes.Ping:
        """Pings with all requests sent at once.

        After the last request, ping waits only for the interval, or for twice the longest round
        trip. On a busy machine, answers take longer. So the interval is one second.
        """
        at_once = ("-l", str(count), *options)
        return probes.ping(place, address, count=count, interval=1.0, size=size, options=at_once)

    def sluice(self, router: str, *words: str) -> str:
        """Runs the `sluice` command for a router and returns its output."""
        controller = self.network.p4_router(router).controller
        return controller.command(*words, "--socket", str(controller.socket))

    def show(self, router: str, what: str) -> Any:
        """Returns the parsed output of `sluice show WHAT --json` for a router."""
        return self.network.p4_router(router).controller.ask(command="show", what=what)

    def switch_ctl(self, router: str, *words: str) -> None:
        """Runs `sluice-switch ctl` for a router's switch."""
        target = self.network.p4_router(router).target
        socket = f"unix:/run/sluice-switch/{target.pid}.sock"
        self.place(router).run(str(binary(target.name)), "ctl", "--admin", socket, *words)

    def drops(self, router: str, reason: str) -> int:
        """Returns the number of packets that the router's switch has dropped for this reason."""
        drops = self.show(router, "counters")["switch_drops"]
        return int(drops.get(reason, {"packets": 0})["packets"])

    def counted(self, router: str, group: str, name: str) -> int:
        """Returns a counter of the router's controller."""
        return int(self.show(router, "counters")["controller"][group].get(name, 0))

    def flows(self, router: str, **wanted: object) -> list[dict[str, Any]]:
        """Returns the valid flows of `sluice show flows` that have these values."""
        return [
            flow
            for flow in self.show(router, "flows")
            if not flow["stale"] and all(flow[name] == value for name, value in wanted.items())
        ]

    def rule(self, router: str, spd: str, direction: str, name: str) -> dict[str, Any]:
        """Returns a rule as in `sluice show spd`, with its counters."""
        (found,) = [
            rule
            for one in self.show(router, "spd")
            if (one["spd"], one["direction"]) == (spd, direction)
            for rule in one["rules"]
            if rule["name"] == name
        ]
        return dict(found)

    def where_lost(self, seen: probes.Ping) -> str:
        """Returns ping's output and the counters of routers and engines, for an error message."""
        lines = [seen.output]
        for name, engine in self.engines.items():
            counters = self.show(name, "counters")
            drops = {k: v["packets"] for k, v in counters["switch_drops"].items() if v["packets"]}
            groups = {k: v for k, v in counters["controller"].items() if v}
            lines.append(f"{name}: engine {engine}; the switch dropped {drops}; {groups}")
        return "\n".join(lines)

    def spd_file(
        self, router: str, spd: str, first: Mapping[str, list[str]], only: bool = False
    ) -> str:
        """Writes a file with an SPD and returns its path.

        Each list begins with the rules in `first`. The configured rules of the list follow, unless
        `only` is set.
        """
        config = self.network.p4_router(router).controller.config
        (configured,) = [one for one in config["spds"] if one["name"] == spd]
        lists = {
            direction: [
                *(yaml.safe_load(rule) for rule in first.get(direction, [])),
                *([] if only else configured[direction]),
            ]
            for direction in ("inbound", "outbound")
        }
        path = self.directory / f"{router}-{spd}.yaml"
        path.write_text(yaml.safe_dump({"spd": spd, **lists}), encoding="utf-8")
        return str(path)

    @contextmanager
    def amended(
        self, router: str, spd: str, first: Mapping[str, list[str]], only: bool = False
    ) -> Iterator[None]:
        """Commits an SPD with the rules in `first` before the configured rules (or alone) while the
        context is open.
        """
        self.sluice(router, "spd", "commit", self.spd_file(router, spd, first, only))
        try:
            yield
        finally:
            self.sluice(router, "spd", "commit", self.spd_file(router, spd, {}))


@contextmanager
def running(lab: Lab) -> Iterator[ProtectedNetwork]:
    """Starts the network with doubles of the ESP engines. Waits until all switches have the
    routes.
    """
    places: dict[str, Namespace] = {}

    def attach(router: P4Router) -> AbstractContextManager[EspEngine]:
        places[router.name] = place = engine_place(lab, router)
        return double(router, place)

    with started(lab, attach) as (network, engines):
        yield ProtectedNetwork(network, engines, places, lab.directory)


@contextmanager
def started(
    lab: Lab, attach: Callable[[P4Router], AbstractContextManager[Engine]]
) -> Iterator[tuple[Network, dict[str, Engine]]]:
    """Starts the network and its engines.

    `attach` is called for each router before it starts, and starts the router's engine.
    """
    network = build_in_lab(hub_and_spoke(), lab, os.environ.get("TARGET"))
    with ExitStack() as stack:
        engines = {name: stack.enter_context(attach(network.p4_router(name))) for name in INBOUND}
        network.start()
        for name in engines:
            for prefix in (*SITES, *SITES_IPV6):
                wait_until(partial(_has_route, network, name, prefix), 30, f"{prefix} in {name}")
        yield network, engines


def engine_place(lab: Lab, router: P4Router) -> Namespace:
    """Creates a namespace for a router's engine.

    The interface `engine` in this namespace is connected to the switch's engine port.
    """
    place = lab.namespace(f"{router.name}-engine")
    veth(router.namespace, "port9", place, "engine", mtu=ENGINE_MTU)
    place.silence("engine")
    router.target.ports[ENGINE_PORT] = "port9"
    return place


def double(router: P4Router, place: Namespace) -> EspEngine:
    """Starts a double of a router's ESP engine. The double knows the SAs in the router's
    configuration.
    """
    outbound = {}
    for bundle in router.controller.config["bundles"]:
        if "outbound" in bundle:
            sa = TUNNEL[bundle["outbound"]["sa"]]
            assert bundle["outbound"]["overhead"] == sa.overhead()
            assert bundle["outbound"]["local"] == sa.source
            outbound[bundle["outbound"]["sa"]] = sa
    return EspEngine(place, "engine", outbound, INBOUND[router.name])


def _has_route(network: Network, name: str, prefix: str) -> bool:
    """Returns whether the switch has a route that covers the prefix."""
    routes = network.p4_router(name).controller.ask(command="show", what="routes")
    return any(_covers(r["prefix"], prefix) for r in routes if r.get("installed", True))


def _covers(route: str, prefix: str) -> bool:
    one, two = ipaddress.ip_network(route), ipaddress.ip_network(prefix)
    if isinstance(one, ipaddress.IPv4Network):
        return isinstance(two, ipaddress.IPv4Network) and two.subnet_of(one)
    return isinstance(two, ipaddress.IPv6Network) and two.subnet_of(one)


def flush_path_mtu(place: Namespace) -> None:
    """Deletes the path MTUs that the kernel of a namespace has learned."""
    for family in ("-4", "-6"):
        place.run("ip", family, "route", "flush", "cache")

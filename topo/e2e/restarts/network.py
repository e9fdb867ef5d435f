# SPDX-License-Identifier: Apache-2.0
"""Builds a P4 router with some thousand BGP routes from two neighbours, and traffic on these
routes.

                   port2 +----+
              .----------| t1 |----------.
    h1 ----[ r1 ]        +----+          h2     h2 owns every address of the far ranges
              '----------| t2 |----------'
                   port3 +----+

r1, t1 and t2 and their files are those of the two-site topology. This module adds routes with many
prefix lengths. Each route is announced by t1, by t2, or by t1 and t2. A route from t1 and t2 has
two equal next hops. Some routes lie within the prefix of another route. BGP uses graceful restart.
zebra reaches the controller through a proxy (`fpm_cutter`).
"""

import os
import re
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from ipaddress import ip_network
from itertools import chain, islice
from typing import Any

from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.wait import wait_until
from sluice_topo.description import Host, Router, two_sites
from sluice_topo.network import unestablished
from sluice_topo.routers import HostNode, LinuxRouter, P4Router
from sluice_topo.traffic import UdpFlows

from .fpm_cutter import FpmCutter
from .tables import Prefix, Tables

RANGES = {4: "20.0.0.0/8", 6: "3fff::/20"}
LENGTHS = {4: (20, 24, 28, 32), 6: (48, 56, 64, 128)}
BLOCKS = {4: (20, 2400), 6: (48, 1000)}
"""Prefix length of a block of addresses, and the number of blocks. Each block has one route."""
CHANGING = {4: "21.0.0.0/8", 6: "3fff:1000::/20"}
CHANGES = 400
"""Number of routes that t1 adds and deletes, for each IP version. They carry no traffic."""
PORTS = {"eth1": 1, "eth2": 2, "eth3": 3}
CUTTER_PORT, CONTROLLER_PORT = 2621, 2620
KEPT_SECONDS = 20
"""zebra's option -K: how long a new zebra keeps the kernel's routes, in seconds."""
FLOWS = 32
RATE = 400.0
VERSIONS = (4, 6)
GRACEFUL = (" bgp graceful-restart", " bgp graceful-restart preserve-fw-state")
H2 = {
    "t1": ("10.0.3.2/30", "2001:db8:0:3::2/64"),
    "t2": ("10.0.4.2/30", "2001:db8:0:4::2/64"),
}
"""h2's addresses on its links."""
NEAR = {
    "t1": ("10.0.3.1/30", "2001:db8:0:3::1/64"),
    "t2": ("10.0.4.1/30", "2001:db8:0:4::1/64"),
}
"""The transit routers' addresses on the links to h2."""
FAR = {
    name: dict(zip(VERSIONS, (one.partition("/")[0] for one in own), strict=True))
    for name, own in H2.items()
}


@dataclass(frozen=True)
class Announced:
    """Holds a prefix and the names of the neighbours that announce it."""

    prefix: Prefix
    by: tuple[str, ...]


def subnets(network: Prefix, length: int) -> Iterator[Prefix]:
    """Yields the subnets of a network with this prefix length, in order."""
    yield from network.subnets(new_prefix=length)


def announced(version: int) -> Iterator[Announced]:
    """Yields the routes of one IP version, with their neighbours. About half of them have two
    neighbours.
    """
    length, count = BLOCKS[version]
    blocks = subnets(ip_network(RANGES[version]), length)
    for at, block in zip(range(count), blocks, strict=False):
        by = (("t1", "t2"), ("t1", "t2"), ("t1",), ("t2",))[at % 4]
        own = LENGTHS[version][at // 4 % 4]
        yield Announced(next(subnets(block, own)), by)
        if by == ("t1", "t2") and own == length:  # a more specific route with another next hop
            _, second, *_ = subnets(block, length + 6)
            yield Announced(second, ("t1",))


def changing(version: int) -> list[Prefix]:
    """Returns the prefixes of the routes that the tests add and delete."""
    length, _ = BLOCKS[version]
    return list(islice(subnets(ip_network(CHANGING[version]), length), CHANGES))


def destinations(version: int) -> list[str]:
    """Returns destination addresses for the traffic. They lie behind routes of every prefix length
    and next hop.
    """
    routes = list(announced(version))
    step = len(routes) // FLOWS | 1  # odd, so that all next hops and lengths occur
    chosen = [routes[at * step % len(routes)] for at in range(FLOWS)]
    return [str(one.prefix[min(1, one.prefix.num_addresses - 1)]) for one in chosen]


def transit_config(router: Router) -> str:
    """Returns a transit router's FRR configuration without its sessions with r2, because this
    network has no r2.
    """
    far = tuple(f"neighbor {address} " for address in FAR[router.name].values())
    lines = router.frr_config().splitlines()
    text = "\n".join((*(line for line in lines if not line.strip().startswith(far)), ""))
    return graceful(text).replace(
        "redistribute connected", "redistribute connected\n  redistribute kernel"
    )


def graceful(text: str) -> str:
    """Adds graceful restart to a BGP configuration. Then neighbours keep the routes of a bgpd that
    restarts.
    """
    return re.sub(r"^(router bgp .*)$", "\n".join((r"\1", *GRACEFUL)), text, flags=re.MULTILINE)


def age(entry: dict[str, Any]) -> float:
    """Returns the age of a route in zebra's RIB in seconds. From one day on, returns infinity."""
    hours, _, rest = entry["uptime"].partition(":")
    minutes, _, seconds = rest.partition(":")
    return 3600 * int(hours) + 60 * int(minutes) + int(seconds) if seconds else float("inf")


class Restarts:
    """Holds the running network."""

    def __init__(self, lab: Lab, stack: ExitStack) -> None:
        places = {name: lab.namespace(name) for name in ("h1", "h2", "r1", "t1", "t2")}
        for one, its, other, end in (
            ("h1", "eth0", "r1", "port1"),
            ("r1", "port2", "t1", "eth1"),
            ("r1", "port3", "t2", "eth1"),
            ("h2", "eth0", "t1", "eth2"),
            ("h2", "eth1", "t2", "eth2"),
        ):
            veth(places[one], its, places[other], end)
        topology = two_sites()
        h1 = next(host for host in topology.hosts if host.name == "h1")
        self.h1 = HostNode(h1, places["h1"])
        gateways = tuple(one.partition("/")[0] for one in NEAR["t1"])
        self.h2 = HostNode(Host("h2", H2["t1"], gateways), places["h2"])
        self.transit = {
            name: LinuxRouter(
                topology.router(name),
                places[name],
                lab.directory,
                lab.supervisor,
                frr_config=transit_config(topology.router(name)),
            )
            for name in FAR
        }
        r1 = topology.router("r1")
        text = graceful(r1.frr_config())
        text = text.replace(f"port {CONTROLLER_PORT}", f"port {CUTTER_PORT}")
        self.router = P4Router(
            r1,
            places["r1"],
            lab.directory,
            lab.supervisor,
            target=os.environ.get("TARGET"),
            config=r1.sluice_config() | {"fpm": {"quiet_seconds": 1.0}},
            frr_config=text,
            frr_options={"zebra": ("-K", str(KEPT_SECONDS))},
        )
        self.cutter = stack.enter_context(FpmCutter(places["r1"], CUTTER_PORT, CONTROLLER_PORT))
        self.controller = self.router.controller
        self.tables = Tables(places["r1"], self.router.frr, self.router.target.grpc, PORTS)

    def start(self) -> None:
        """Starts everything. Returns when zebra has all routes and the switch has the same routes
        as zebra.
        """
        self.h1.start()
        self.h2.start()
        h2 = self.h2.namespace
        h2.add_address("eth1", *H2["t2"])
        for version in VERSIONS:
            ranges = ["local", RANGES[version], "dev", "lo"]
            h2.run("ip", f"-{version}", "route", "add", *ranges)
        for name, router in self.transit.items():
            router.namespace.add_address("eth2", *NEAR[name])
            for version in VERSIONS:
                own = (one.prefix for one in announced(version) if name in one.by)
                self.change(name, version, "add", list(own))
            router.start()
        self.router.start()
        wait_until(lambda: not unestablished(self.router), 60, "all BGP sessions", interval=0.2)
        wait_until(self.complete, 60, "zebra to have all routes", interval=0.2)
        self.wait_until_equal()

    def change(self, name: str, version: int, verb: str, prefixes: list[Prefix]) -> None:
        """Adds or deletes kernel routes on a transit router, which announces them by BGP."""
        via = FAR[name][version]
        lines = [f"route {verb} {prefix} via {via}" for prefix in prefixes]
        self.transit[name].namespace.run(
            *("ip", f"-{version}", "-batch", "-"), stdin="\n".join((*lines, ""))
        )

    def complete(self, since: float = float("-inf")) -> bool:
        """Returns whether zebra has every route, with a next hop for each neighbour that announces
        it.

        Each route must be newer than `since` (monotonic clock). zebra's ages are in whole seconds.
        """
        at_most = time.monotonic() - since
        legs: dict[Prefix, int] = {}
        for family in ("ip", "ipv6"):
            for prefix, entries in self.router.frr.json(f"show {family} route json").items():
                for entry in entries:
                    if entry.get("selected") and age(entry) <= at_most:
                        legs[ip_network(prefix)] = sum(
                            bool(leg.get("fib")) for leg in entry["nexthops"]
                        )
        expected = chain.from_iterable(announced(version) for version in VERSIONS)
        return all(legs.get(one.prefix) == len(one.by) for one in expected)

    def start_daemon(self, daemon: str) -> None:
        """Starts a daemon of r1's FRR with the part of the configuration that is for this
        daemon.
        """
        frr = self.router.frr
        head, bgp, rest = frr.config.partition("router bgp")
        frr.start_daemon(daemon, head if daemon == "zebra" else bgp + rest)

    def restart_frr(self) -> None:
        """Kills r1's zebra and bgpd, and starts them again as watchfrr does, zebra first.

        bgpd 8.4.4 must be restarted too, because a running bgpd sends no routes to a new zebra.
        """
        for daemon in ("zebra", "bgpd"):
            self.router.frr.kill_daemon(daemon)
        for daemon in ("zebra", "bgpd"):
            self.start_daemon(daemon)

    def restart_neighbor(self, name: str) -> None:
        """Kills the bgpd of a transit router and starts it again."""
        frr = self.transit[name].frr
        frr.kill_daemon("bgpd")
        _, bgp, rest = frr.config.partition("router bgp")
        frr.start_daemon("bgpd", bgp + rest)

    def wait_changed(self, present: bool) -> None:
        """Waits until zebra has the added routes (`present`), or no longer has the deleted ones."""
        names = {str(prefix) for version in VERSIONS for prefix in changing(version)}

        def seen() -> bool:
            known = set(self.router.frr.json("show ip route json"))
            known |= set(self.router.frr.json("show ipv6 route json"))
            return names <= known if present else not names & known

        wait_until(
            seen, 30, "zebra to have the routes" if present else "zebra to delete the routes"
        )

    def wait_until_equal(self, deadline: float = 30.0) -> None:
        """Waits until the switch has the same routes as zebra, with the same next hops."""
        self.controller.wait_synced()

        def is_equal() -> bool:
            differences = self.tables.differences()
            assert not differences, f"{len(differences)} entries: {differences[:5]}"
            return True

        wait_until(is_equal, deadline, "the switch to equal the RIB", retry_on=(AssertionError,))

    def traffic(self) -> list[UdpFlows]:
        """Returns flows for each IP version. Their destinations lie behind routes of every prefix
        length and next hop.
        """
        make = partial(UdpFlows, self.h1, self.h2, flows=FLOWS, rate=RATE)
        return [make(version, destinations=destinations(version)) for version in VERSIONS]

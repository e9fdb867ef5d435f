# SPDX-License-Identifier: Apache-2.0
"""Runs the router, and opens sockets at all places where one of its packets can be captured.

One namespace holds the far ends of all links and of the engine port's link. Its kernel sends
nothing. In the router's namespace, captures run on the host interfaces. Raw sockets and a bound UDP
socket receive the packets that the kernel accepts as local, however they reached it. Depends on the
test kit, sluice_topo and plan.
"""

import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.sluice_esp import SwitchEsp
from sluice_testkit.wait import wait_until
from sluice_topo.description import Router, RouterKind
from sluice_topo.routers import P4Router

from . import plan
from .listeners import Listener, bound, on_link, raw
from .peer import NEEDS_A_DOUBLE, EspPeer, Watched, router_sas
from .policy import Policy
from .wire import ESP, GRE, ICMP, ICMPV6, SCTP, TCP, UDP

EVERYTHING = {"name": "everything", "action": "bypass"}
METERED = (
    *("ARP", "LINK_PROTOCOL", "NEIGHBOR_DISCOVERY", "ROUTING_PROTOCOL", "IKE", "LOCAL"),
    *("TTL_EXCEEDED", "MTU_EXCEEDED", "NEIGHBOR_UNRESOLVED", "NO_ROUTE", "UNREACHABLE"),
    *("PROHIBITED", "IP_OPTIONS", "EXTENSION_HEADERS", "INBOUND_MISS", "OUTBOUND_MISS"),
    "FRAGMENT",
)
UNMETERED = {"rate": 1_000_000, "burst": 1_000_000}
FRR = "\n".join(
    [
        *("frr defaults traditional", "hostname r", "no zebra nexthop kernel enable"),
        *("no fpm use-next-hop-groups", "fpm address 127.0.0.1 port 2620"),
        *(f"ip route {link.site(4)} {link.next_hop(4)}" for link in plan.LINKS.values()),
        *(f"ipv6 route {link.site(6)} {link.next_hop(6)}" for link in plan.LINKS.values()),
        "",
    ]
)
ENGINE_MTU = 2000
RAW_PROTOCOLS = (ICMP, TCP, UDP, SCTP, GRE, ESP, ICMPV6, 253, 89)


def configuration(mode: str) -> dict[str, Any]:
    """Returns the router's configuration. Its limits are higher than the adversary's traffic."""
    lists = {"inbound": [EVERYTHING], "outbound": [EVERYTHING]}
    cache = {"mode": mode, "flow_cache": {"size": 200_000, "idle_timeout": 60}}
    return {
        "router": "r",
        "switch": {"address": "127.0.0.1:9559", "device_id": 1},
        "fpm": {"quiet_seconds": 0.3},
        "engines": [{"id": 1, "port": plan.ENGINE_PORT}],
        "bundles": [_bundle(one) for one in plan.BUNDLES.values()],
        "spds": [{"name": name} | _errors(name) | cache | lists for name in plan.SPDS],
        "interfaces": [
            {
                "name": link.interface,
                "port": link.number,
                "device": f"port{link.number}",
                "mac": link.router_mac,
                "addresses": [f"{link.own(4)}/24", f"{link.own(6)}/64"],
                "spd": link.spd or "none",
            }
            for link in plan.LINKS.values()
        ],
        "limits": {
            "punt_queue": 1_000_000,
            "fragment_datagrams": 1_000_000,
            "fragments_waiting": 1_000_000,
            "icmp_errors_per_second": 1_000_000,
            "icmp_errors_burst": 1_000_000,
        },
        "punt_rates": dict.fromkeys(METERED, UNMETERED),
    }


def _errors(spd: str) -> dict[str, str]:
    return {"icmp_errors": "checked" if spd in plan.ERRORS_CHECKED else "off"}


def _bundle(one: plan.Bundle) -> dict[str, Any]:
    """Returns a bundle's configuration: the SPIs of inbound SAs, which the peer uses, and the
    outbound SA.
    """
    text: dict[str, Any] = {
        "name": one.name,
        "id": one.number,
        "spd": one.spd,
        "inbound": [{"spi": one.spi, "engine": 1, "sa": 100 + one.number}],
    }
    if one.local is not None:
        text["outbound"] = {
            "engine": 1,
            "sa": one.number,
            "path_mtu": one.path_mtu,
            "overhead": one.overhead,
            "local": one.local,
        }
    return text


class Arena:
    """Runs the router under attack.

    Without `engine`, the engine port's link is captured and no engine runs. With `engine`, an ESP
    engine runs inside the switch, and a peer acts as the far end of the bundles. `mode` is the mode
    of all SPDs.
    """

    def __init__(
        self, lab: Lab, target: str | None = None, engine: bool = False, mode: str = "cache"
    ):
        self._place = lab.namespace("r")
        self._world = lab.namespace("world")
        for link in plan.LINKS.values():
            # An ESP packet is longer than the clear packet inside, so the links need a larger MTU.
            mtu = ENGINE_MTU if engine else 1500
            veth(self._world, link.name, self._place, f"port{link.number}", mtu=mtu)
            self._world.silence(link.name)
            port = f"port{link.number}"
            self._place.run("ip", "link", "set", "dev", port, "address", link.port_mac)
        self.router = P4Router(
            Router("r", RouterKind.P4, Path()),
            self._place,
            lab.directory,
            lab.supervisor,
            target=target,
            config=configuration(mode),
            frr_config=FRR,
        )
        self.peer: EspPeer | None = None
        self.links: dict[str, Listener | EspPeer | Watched] = {}
        self.hosts: list[Listener] = []
        self.sockets: list[Listener] = []
        self._bounds_before: Mapping[str, int] = {}
        self._missed = 0
        if engine:
            router = self.router
            self._engine = SwitchEsp(
                "r-esp", router.target, plan.ENGINE_PORT, router.controller, lab.directory
            )
            self.peer = EspPeer()
        else:
            self._add_monitor()

    def _add_monitor(self) -> None:
        port = f"port{plan.ENGINE_PORT}"
        veth(self._world, plan.ENGINE, self._place, port, mtu=ENGINE_MTU)
        self._world.silence(plan.ENGINE)
        self.router.target.ports[plan.ENGINE_PORT] = port

    @property
    def without(self) -> frozenset[str]:
        """Names of the shapes that cannot be sent in this setup: with a real engine inside the
        switch, the adversary cannot send frames as the engine.
        """
        return frozenset() if self.peer is None else NEEDS_A_DOUBLE

    @property
    def burst(self) -> int:
        """Number of datagrams that may be sent at once. It is small for BMv2, whose queues drop
        packets when they are full.
        """
        return 40 if self.router.target.name == "bmv2" else 250

    def start(self) -> None:
        """Starts everything. Returns when the switch has all routes and neighbours."""
        # If packets reach the kernel through a port by mistake, its reverse path filter must not
        # hide them.
        self._place.sysctl(ipv4__conf__all__rp_filter=0, ipv4__conf__default__rp_filter=0)
        self._place.sysctl(ipv4__icmp_ratelimit=0, ipv4__icmp_msgs_per_sec=100_000)
        if self.router.target.name == "bmv2":
            self._close_ports()
        self.router.start()
        for link in plan.LINKS.values():
            for version in (4, 6):
                neighbor = link.next_hop(version), "lladdr", link.host_mac
                words = "neigh", "replace", *neighbor, "dev", link.interface, "nud", "permanent"
                self._place.run("ip", *words)
        wait_until(self._has_routes, 30, "routes to all sites")
        self.router.controller.wait_synced()
        self._listen_to_links()
        for link in plan.LINKS.values():
            self.hosts.append(Listener(self._place, on_link(link.interface)))
        for protocol in RAW_PROTOCOLS:
            families = (socket.AF_INET, socket.AF_INET6)
            self.sockets += [Listener(self._place, raw(family, protocol)) for family in families]
        self.sockets += [Listener(self._place, bound(f)) for f in (socket.AF_INET, socket.AF_INET6)]
        self._bounds_before = self._bounds()

    def _listen_to_links(self) -> None:
        for link in plan.LINKS.values():
            listener = Listener(self._world, on_link(link.name))
            self.links[link.name] = (
                listener if self.peer is None else self.peer.watched(link, listener)
            )
        if self.peer is None:
            self.links[plan.ENGINE] = Listener(self._world, on_link(plan.ENGINE))
        else:
            self._engine.add(router_sas())
            self.links[plan.ENGINE] = self.peer

    def _close_ports(self) -> None:
        """Closes the ports to the host stack.

        sluice-switch does this for its own ports, and BMv2 does not. For BMv2, a tc filter drops
        the frames after packet sockets have received them.
        """
        for port in self.router.target.ports.values():
            self._place.run("tc", "qdisc", "add", "dev", port, "clsact")
            drop = "bpf", "da", "bytecode", "1,6 0 0 2,"  # TC_ACT_SHOT
            self._place.run("tc", "filter", "add", "dev", port, "ingress", *drop)

    def _has_routes(self) -> bool:
        routes = self.router.controller.ask(command="show", what="routes")
        found = {route["prefix"] for route in routes if route.get("installed")}
        return all(link.site(v) in found for link in plan.LINKS.values() for v in (4, 6))

    def close(self) -> None:
        """Closes the captures. The programs are ended by the lab."""
        for listener in (*self.links.values(), *self.hosts, *self.sockets):
            listener.close()

    def commit(self, policy: Policy) -> None:
        """Runs `sluice spd commit`: one commit of all SPDs if the target supports that, otherwise
        one commit for each SPD.
        """
        files = [
            {"name": f"{name}.yaml", "text": yaml.safe_dump(spd.as_text(), sort_keys=False)}
            for name, spd in policy.spds.items()
        ]
        together = [files] if self.router.target.name == "sluice-switch" else [[f] for f in files]
        for some in together:
            self.router.controller.ask(command="spd commit", files=some)

    def invalidation(self) -> Mapping[str, int]:
        """Returns counters of the effect of commits: the lists whose flows a commit has kept or
        made stale, and the deleted flows.
        """
        counters = self.router.controller.ask(command="show", what="counters")
        found: dict[str, int] = counters["controller"]["flow_invalidation"]
        return found

    def bounds_hit(self) -> Mapping[str, int]:
        """Returns the number of drops since the start because a meter, queue or capture buffer was
        full.

        If there are any, the run proves nothing.
        """
        now = self._bounds()
        return {
            name: count - self._bounds_before.get(name, 0)
            for name, count in now.items()
            if count > self._bounds_before.get(name, 0)
        }

    def engine_status(self) -> Mapping[str, Any]:
        """Returns SAs and counters of the engine inside the switch."""
        return self._engine.status()

    def wrongly_accepted(self) -> list[str]:
        """Describes the hostile packets that the engine has accepted, according to its counters."""
        return [] if self.peer is None else self.peer.wrongly_accepted(self.engine_status())

    def _sealing_drops(self) -> Mapping[str, int]:
        """Returns the number of packets that the router's engine did not encrypt, by reason, and of
        frames that its port has lost.
        """
        status = self.engine_status()
        found: dict[str, int] = {}
        for sa in status["sas"]:
            if sa["spec"]["direction"] == "out":
                for name, count in sa["counters"]["drops"].items():
                    found[name] = found.get(name, 0) + count
        found["unknown_sa"] = status["others"]["drops"].get("unknown_sa", 0)
        found["lost"] = status["port"]["receive_dropped"] + status["port"]["send_dropped"]
        return found

    def _bounds(self) -> Mapping[str, int]:
        counters = self.router.controller.ask(command="show", what="counters")
        found = {"PUNT_METERED": int(counters["switch_drops"]["PUNT_METERED"]["packets"])}
        for group in counters["controller"].values():
            for name, count in group.items():
                if any(word in name for word in ("full", "too many", "rate_limited")):
                    found[name] = int(count)
        self._missed += sum(listener.lost() for listener in (*self.links.values(), *self.hosts))
        if self.peer is not None:
            found |= {f"the engine's drops: {name}": n for name, n in self._sealing_drops().items()}
        return found | {"frames that a monitor missed": self._missed}

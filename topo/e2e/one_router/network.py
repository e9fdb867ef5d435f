# SPDX-License-Identifier: Apache-2.0
"""Builds the network of the policy tests: one P4 router, four hosts, an interposer at the switch.

    a --- eth1 [ r ] eth2 --- b        SPDs: west guards eth1, east eth2, south eth3, north eth4
                 eth3 --- c            All but a have the site 10.9.0.0/24, 2001:db8:9::/64;
                 eth4 --- d            its routes go via b.

All SPDs let everything pass until a test commits another one. All messages between controller and
switch pass through an `Interposer`, so a test can decide when a message arrives. `walking` sends
the packets.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from sluice_testkit.controller import RequestRefused
from sluice_testkit.interposer import Interposer
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.target import p4runtime_address
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import Host, Router, RouterKind
from sluice_topo.routers import HostNode, P4Router

Rule = dict[str, Any]
EVERYTHING: Rule = {"name": "everything", "action": "bypass"}
SPDS = {"eth1": "west", "eth2": "east", "eth3": "south", "eth4": "north"}
NETWORKS = {4: "10.{}.0.{}/24", 6: "2001:db8:{}::{}/64"}
FlowCache = dict[str, Any]
ROOMY: FlowCache = {"size": 1000, "idle_timeout": 60}
HOSTS = "abcd"
MAC = "02:00:00:00:01:{:02x}"
SITE = {4: "10.9.0.1", 6: "2001:db8:9::1"}
ROUTES = {4: "ip route 10.9.0.0/24", 6: "ipv6 route 2001:db8:9::/64"}
FRR = f"""
frr defaults traditional
hostname r
no zebra nexthop kernel enable
no fpm use-next-hop-groups
fpm address 127.0.0.1 port 2620
{ROUTES[4]} 10.2.0.2
{ROUTES[6]} 2001:db8:2::2
"""
FIRST_PORT = 10000

VERSIONS = pytest.mark.parametrize("version", [4, 6])


def udp(name: str, action: str, *ports: int) -> Rule:
    """Returns a rule for UDP to these ports, or for all UDP if no port is given."""
    rule: Rule = {"name": name, "action": action, "protocol": "udp"}
    return rule | {"destination_ports": list(ports)} if ports else rule


def configuration(
    flow_caches: Mapping[str, FlowCache], versions: Sequence[int], mode: str
) -> dict[str, Any]:
    """Returns the configuration that r's operator would write."""
    lists = {"inbound": [EVERYTHING], "outbound": [EVERYTHING]}
    spds = [
        {"name": name, "mode": mode, "flow_cache": flow_caches.get(name, ROOMY)} | lists
        for name in SPDS.values()
    ]
    interfaces = [
        {
            "name": name,
            "port": number,
            "device": f"port{number}",
            "mac": MAC.format(number),
            "addresses": [NETWORKS[version].format(number, 1) for version in versions],
            "spd": spd,
        }
        for number, (name, spd) in enumerate(SPDS.items(), 1)
    ]
    return {
        "router": "r",
        "switch": {"device_id": 1},
        "fpm": {"quiet_seconds": 0.3},
        "spds": spds,
        "interfaces": interfaces,
    }


def _host(name: str, number: int, versions: Sequence[int]) -> Host:
    networks = [NETWORKS[version] for version in versions]
    gateways = [one.format(number, 1).partition("/")[0] for one in networks]
    return Host(name, tuple(one.format(number, 2) for one in networks), tuple(gateways))


class OneRouter:
    """Holds the running network."""

    def __init__(
        self,
        lab: Lab,
        flow_caches: Mapping[str, FlowCache] | None = None,
        versions: Sequence[int] = (4, 6),
        *,
        interposed: bool = True,
        mode: str = "cache",
    ) -> None:
        """`flow_caches` maps an SPD to its flow cache, if it differs from `ROOMY`.

        `versions`: IP versions in use. Without `interposed`, the controller is connected directly
        to the switch. `sluice explain` needs this, because the interposer does not forward dry
        runs. `mode` is that of all SPDs.
        """
        places = {name: lab.namespace(name) for name in ("r", *HOSTS)}
        if 6 not in versions:
            for place in places.values():
                place.sysctl(ipv6__conf__all__disable_ipv6=1, ipv6__conf__default__disable_ipv6=1)
        for number, name in enumerate(HOSTS, 1):
            veth(places[name], "eth0", places["r"], f"port{number}")
        self.hosts = {
            name: HostNode(_host(name, number, versions), places[name])
            for number, name in enumerate(HOSTS, 1)
        }
        config = configuration(flow_caches or {}, versions, mode)
        self.supervisor = lab.supervisor
        switch = p4runtime_address(os.environ.get("TARGET"), lab.directory, "r")
        self.interposer = Interposer(places["r"], switch, lab.directory, lab.supervisor)
        self._interposed = interposed
        config["switch"]["address"] = self.interposer.address if interposed else switch
        self.router = P4Router(
            Router("r", RouterKind.P4, Path()),
            places["r"],
            lab.directory,
            lab.supervisor,
            target=os.environ.get("TARGET"),
            config=config,
            frr_config=FRR,
            switch_address=switch,
        )
        self.controller = self.router.controller
        self._versions = versions
        self._changed: set[str] = set()
        self._ports = count(FIRST_PORT)

    def start(self) -> None:
        """Starts everything. Returns when a's packets reach all other hosts and the site."""
        for name, host in self.hosts.items():
            host.start()
            if name != "a":
                host.namespace.add_address("lo", *(SITE[version] for version in self._versions))
        if self._interposed:
            self.interposer.start()
        self.router.start()
        a = self.host("a")
        for version in self._versions:
            others = [self.address(name, version) for name in HOSTS if name != "a"]
            for address in (SITE[version], *others):
                wait_until(partial(_answers, a, address), 30, f"{address} to answer")
        self.controller.wait_synced()

    def wait_taken_over(self) -> None:
        """Waits until the controller, perhaps a new one, has reconciled the switch and its
        flows.
        """
        self.controller.wait_synced()
        wait_until(lambda: self.list_of("east")["flows"] is not None, 20, "flows taken over")

    def host(self, name: str) -> Namespace:
        """Returns a host's namespace."""
        return self.hosts[name].namespace

    def address(self, name: str, version: int = 4) -> str:
        """Returns a host's address."""
        return self.hosts[name].address(version)

    def router_mac(self, host: str) -> str:
        """Returns the router's MAC address on a host's link."""
        return MAC.format(HOSTS.index(host) + 1)

    def fresh_port(self) -> int:
        """Returns a UDP port that no flow has used yet."""
        return next(self._ports)

    @contextmanager
    def site_by_c(self) -> Iterator[None]:
        """Routes the site via c while the context is open, then via b again."""
        self._route_site("b", "c")
        try:
            yield
        finally:
            self._route_site("c", "b")

    def _route_site(self, old: str, new: str) -> None:
        for version, prefix in ROUTES.items():
            self.router.frr.configure(
                f"{prefix} {self.address(new, version)}",
                f"no {prefix} {self.address(old, version)}",
            )
        interface = {"b": "eth2", "c": "eth3"}[new]
        wait_until(partial(self._site_by, interface), 20, f"the site's routes by {interface}")

    def _site_by(self, interface: str) -> bool:
        routes = self.controller.ask(command="show", what="routes")
        found = [route for route in routes if ROUTES[4].endswith(route["prefix"])]
        found += [route for route in routes if ROUTES[6].endswith(route["prefix"])]
        return len(found) == 2 and all(
            route["installed"] and [leg["interface"] for leg in route["nexthops"]] == [interface]
            for route in found
        )

    # -- policy

    def commit(self, spd: str, **lists: Sequence[Rule]) -> None:
        """Commits an SPD (`sluice spd commit`). An omitted list lets everything pass."""
        self.commit_together({spd: lists})

    def commit_together(self, spds: Mapping[str, Mapping[str, Sequence[Rule]]]) -> None:
        """Commits several SPDs in one commit. In each, an omitted list lets everything pass."""
        files = []
        for spd, lists in spds.items():
            text = {"spd": spd, "inbound": [EVERYTHING], "outbound": [EVERYTHING], **lists}
            files.append({"name": f"{spd}.yaml", "text": yaml.safe_dump(text, sort_keys=False)})
        self._changed |= {spd for spd, lists in spds.items() if lists}
        self.controller.ask(command="spd commit", files=files)
        self._changed -= {spd for spd, lists in spds.items() if not lists}

    def restore(self) -> None:
        """Commits an SPD that lets everything pass in place of each changed one."""
        for spd in tuple(self._changed):
            self.commit(spd)

    @contextmanager
    def configured(self, spd: str, outbound: Sequence[Rule]) -> Iterator[None]:
        """Replaces the outbound list of an SPD in the configuration while the context is open."""
        (found,) = (one for one in self.controller.config["spds"] if one["name"] == spd)
        before, found["outbound"] = found["outbound"], list(outbound)
        try:
            yield
        finally:
            found["outbound"] = before

    def sluice(self, *words: str) -> str:
        """Runs the `sluice` command and returns its output."""
        return self.controller.command(*words, "--socket", str(self.controller.socket))

    def spd_record(self) -> bytes:
        """Returns the file in which the controller records all lists.

        The controller writes this file before it writes the switch's tables.
        """
        return (Path(self.controller.config["state_dir"]) / "spd.json").read_bytes()

    def list_of(self, spd: str, direction: str = "outbound") -> dict[str, Any]:
        """Returns one list of an SPD, as in `sluice show spd`."""
        lists = self.controller.ask(command="show", what="spd", spd=spd)
        (found,) = (one for one in lists if one["direction"] == direction)
        return dict(found)

    def rule(self, spd: str, name: str, direction: str = "outbound") -> "RuleCounts":
        """Returns how many packets matched a rule: by a cached flow, and by a search in the
        controller.
        """
        (found,) = (one for one in self.list_of(spd, direction)["rules"] if one["name"] == name)
        return RuleCounts(found["hits"], found["searched"])

    def searched(self) -> int:
        """Returns how many searches ended at a rule that was not generated, over all SPDs.

        Searches that end at a generated rule are left out: the hosts and the router send neighbor
        discovery at any time. Waits until the controller has read the SPDs back from the switch.
        """
        show = partial(self.controller.ask, command="show", what="spd")
        lists = wait_until(show, 20, "SPDs taken over", retry_on=(RequestRefused,))
        rules = (rule for one in lists for rule in one["rules"])
        return sum(r["searched"] for r in rules if not r["name"].startswith("generated:"))

    def flows(self, spd: str, direction: str = "outbound", **like: object) -> list[dict[str, Any]]:
        """Returns the flows of `sluice show flows` that have these values. The flow to evict next
        comes first.
        """
        return [
            flow
            for flow in self.controller.ask(command="show", what="flows", spd=spd)
            if flow["direction"] == direction and all(flow[k] == v for k, v in like.items())
        ]

    # -- counters

    def first_packets(self, name: str) -> int:
        """Returns a counter in the controller's group `first_packets`."""
        counters = self.controller.ask(command="show", what="counters")
        return int(counters["controller"]["first_packets"].get(name, 0))

    def drops(self, reason: str) -> int:
        """Returns the number of packets that the switch has dropped for this reason."""
        counters = self.controller.ask(command="show", what="counters")
        return int(counters["switch_drops"][reason]["packets"])

    def refusals(self) -> int:
        """Returns the number of outbound packets that the controller has discarded after a search
        of the rules.
        """
        counters = self.controller.ask(command="show", what="counters")["controller"]
        return int(counters["first_packets"].get("dropped: policy discards outbound", 0))

    @contextmanager
    def dropping(self, reason: str, packets: int = 1) -> Iterator[None]:
        """Checks that the switch drops exactly `packets` packets for a reason while the context is
        open.
        """
        before = self.drops(reason)
        yield
        wait_until(lambda: self.drops(reason) >= before + packets, 10, f"{packets} x {reason}")
        assert self.drops(reason) == before + packets

    @contextmanager
    def refusing(self, packets: int = 1) -> Iterator[None]:
        """Checks that the controller discards exactly `packets` outbound packets while the context
        is open.
        """
        before = self.refusals()
        yield
        wait_until(
            lambda: self.refusals() >= before + packets,
            10,
            f"{packets} packets to be searched and discarded",
        )
        assert self.refusals() == before + packets


class RuleCounts(NamedTuple):
    """Holds the number of packets that matched a rule: by flow cache hits, and by searches of the
    controller.
    """

    hits: int
    searched: int

    def since(self, before: "RuleCounts") -> tuple[int, int]:
        """Returns the increase of hits and of searches since an earlier count."""
        return self.hits - before.hits, self.searched - before.searched


def _answers(place: Namespace, address: str) -> bool:
    return probes.ping(place, address, count=1).received == 1

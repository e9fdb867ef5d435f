# SPDX-License-Identifier: Apache-2.0
"""Tests VRRP on a LAN with a P4 router and a plain Linux router: the host keeps its gateway.

                    r  P4, priority 200
                 1 / \\ 2
    h --- lan (bridge)   core (bridge) --- x      virtual router 5 on the LAN
                   \\ /
                    s  Linux, priority 100        x answers by s

The host's default routes use the virtual addresses. Each router has these addresses on macvlan
devices, created as an operator would. The source MAC address of frames at x shows which router has
forwarded them.
"""

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import Router, RouterKind
from sluice_topo.routers import LinuxRouter, P4Router

VMAC = {4: "00:00:5e:00:01:05", 6: "00:00:5e:00:02:05"}
VIRTUAL = {4: "10.1.0.254", 6: "2001:db8:1::fe"}
LENGTH = {4: 24, 6: 64}
HOST = {4: "10.1.0.10", 6: "2001:db8:1::10"}
SERVER = {4: "10.2.0.10", 6: "2001:db8:2::10"}
LAN = {"r": {4: "10.1.0.1", 6: "2001:db8:1::1"}, "s": {4: "10.1.0.2", 6: "2001:db8:1::2"}}
CORE = {"r": {4: "10.2.0.1", 6: "2001:db8:2::1"}, "s": {4: "10.2.0.2", 6: "2001:db8:2::2"}}
MAC = {"r": "02:00:00:00:02:02", "s": "02:00:00:00:03:02"}
"""The routers' MAC addresses on the core."""
ADVERTISE_MS = 200
MASTER_DOWN = 4 * ADVERTISE_MS / 1000
"""Longest time in seconds until a backup takes over: three intervals and the skew time, which is
less than one interval (RFC 5798, 6.1).
"""
INTERVAL = 0.01
VERSIONS = pytest.mark.parametrize("version", [4, 6])


def frr(priority: int, fpm: str = "") -> str:
    return f"""
frr defaults traditional
{fpm}
interface eth1
 vrrp 5
 vrrp 5 version 3
 vrrp 5 priority {priority}
 vrrp 5 advertisement-interval {ADVERTISE_MS}
 vrrp 5 ip {VIRTUAL[4]}
 vrrp 5 ipv6 {VIRTUAL[6]}
exit
"""


FPM = """
no zebra nexthop kernel enable
no fpm use-next-hop-groups
fpm address 127.0.0.1 port 2620
"""


def sluice() -> dict[str, Any]:
    """Returns r's configuration."""
    return {
        "router": "r",
        "switch": {"device_id": 1},
        "fpm": {"quiet_seconds": 0.3},
        "interfaces": [
            {
                "name": f"eth{port}",
                "port": port,
                "device": f"port{port}",
                "mac": f"02:00:00:00:02:{port:02x}",
                "addresses": [f"{where[version]}/{LENGTH[version]}" for version in (4, 6)],
            }
            for port, where in ((1, LAN["r"]), (2, CORE["r"]))
        ],
    }


def bridge(place: Namespace, name: str, *ports: str) -> None:
    place.run("ip", "link", "add", "name", name, "type", "bridge", "mcast_snooping", "0")
    place.run("ip", "link", "set", "dev", name, "up")
    for port in ports:
        place.silence(port)
        place.run("ip", "link", "set", "dev", port, "master", name)


def make_virtual_router(place: Namespace, link_local: str) -> None:
    """Creates a macvlan device for each IP version, with the virtual MAC and IP addresses."""
    for version in (4, 6):
        name = f"vrrp{version}-1-5"
        place.run(
            *("ip", "link", "add", name, "link", "eth1", "address", VMAC[version]),
            *("type", "macvlan", "mode", "bridge"),
        )
        place.run("ip", "link", "set", "dev", name, "addrgenmode", "none")
        place.add_address(name, f"{VIRTUAL[version]}/{LENGTH[version]}")
        # Two routers with the same MAC address would derive the same link-local address, so it is
        # set explicitly.
        if version == 6:
            place.add_address(name, f"{link_local}/64")
        place.link_up(name)


class Lan:
    """Holds the running network."""

    def __init__(self, lab: Lab) -> None:
        h, x, r, s, wire = (lab.namespace(name) for name in ("h", "x", "r", "s", "wire"))
        self.h, self.x, self.wire = h, x, wire
        for there, device, here in (
            (h, "eth0", "lan-h"),
            (r, "port1", "lan-r"),
            (s, "eth1", "lan-s"),
            (x, "eth0", "core-x"),
            (r, "port2", "core-r"),
            (s, "eth2", "core-s"),
        ):
            veth(there, device, wire, here)
        bridge(wire, "lan", "lan-h", "lan-r", "lan-s")
        bridge(wire, "core", "core-x", "core-r", "core-s")
        s.run("ip", "link", "set", "dev", "eth2", "address", MAC["s"])
        target = os.environ.get("TARGET")
        self.r = P4Router(
            Router("r", RouterKind.P4, Path()),
            r,
            lab.directory,
            lab.supervisor,
            target=target,
            config=sluice(),
            frr_config=frr(200, FPM),
        )
        self.s = LinuxRouter(
            Router("s", RouterKind.LINUX, Path()),
            s,
            lab.directory,
            lab.supervisor,
            frr_config=frr(100),
        )

    def start(self) -> None:
        """Starts everything. Returns when r is master for both IP versions and forwards."""
        r, s = self.r, self.s
        # The master's vrrpd sends router advertisements. The host must not configure addresses from
        # them.
        self.h.sysctl(ipv6__conf__eth0__accept_ra=0)
        for version in (4, 6):
            length, family = LENGTH[version], f"-{version}"
            self.h.add_address("eth0", f"{HOST[version]}/{length}")
            self.x.add_address("eth0", f"{SERVER[version]}/{length}")
            s.namespace.add_address("eth1", f"{LAN['s'][version]}/{length}")
            s.namespace.add_address("eth2", f"{CORE['s'][version]}/{length}")
            self.h.run("ip", family, "route", "add", "default", "via", VIRTUAL[version])
            self.x.run("ip", family, "route", "add", "default", "via", CORE["s"][version])
        # By default, Linux answers ARP for the addresses of all its interfaces.
        s.namespace.sysctl(ipv4__conf__all__arp_ignore=1, ipv4__conf__all__rp_filter=0)
        make_virtual_router(s.namespace, "fe80::5:2")
        s.start()
        r.namespace.sysctl(ipv4__ip_forward=0, ipv6__conf__all__forwarding=0)
        r.target.start()
        r.controller.start()
        make_virtual_router(r.namespace, "fe80::5:1")
        r.frr.start()
        self.wait_forwarding("r")
        r.controller.wait_synced()

    def state(self, router: str, version: int) -> str:
        """Returns the VRRP state of a router, as its vrrpd reports it."""
        node = self.r if router == "r" else self.s
        (found,) = node.frr.json("show vrrp 5 json")
        return str(found[f"v{version}"]["status"])

    def wait_forwarding(self, router: str) -> None:
        """Waits until a router is master for both IP versions and forwards the host's packets."""
        for version in (4, 6):
            what = f"{router} to be master of IPv{version}"
            wait_until(partial(self._is_forwarding, router, version), 30, what)

    def _is_forwarding(self, router: str, version: int) -> bool:
        return self.state(router, version) == "Master" and self.forwarder(version) == router

    def forwarder(self, version: int) -> str | None:
        """Returns the router that forwards a ping from the host to the server, or None."""
        with Capture(self.x, "eth0", lambda frame: not frame.outgoing) as seen:
            answered = probes.ping(self.h, SERVER[version], count=1).received
            senders = {
                frame.data[6:12].hex(":")
                for frame in seen.frames(lambda frame: frame.source == HOST[version])
                if frame.icmp_type in (8, 128)
            }
        return next((name for name, mac in MAC.items() if answered and {mac} == senders), None)

    def virtual_macs(self) -> list[str]:
        """Returns the virtual MAC addresses that r's switch accepts on the LAN."""
        interfaces = self.r.controller.ask(command="show", what="interfaces")
        (found,) = (one for one in interfaces if one["name"] == "eth1")
        return sorted(found["virtual_macs"])

    @contextmanager
    def traffic(self, seconds: float, what: str, bar: float) -> Iterator[None]:
        """Pings the server from the host while the context is open.

        For each IP version, the lost answers must not amount to more than `bar` seconds.
        """
        count = round(seconds / INTERVAL)
        with ThreadPoolExecutor(2) as pool:
            flows = {
                version: pool.submit(
                    probes.ping, self.h, SERVER[version], count=count, interval=INTERVAL
                )
                for version in (4, 6)
            }
            with Capture(self.x, "eth0") as seen:
                seen.wait_for(lambda frame: frame.icmp_type == 0, what="IPv4 traffic")
                seen.wait_for(lambda frame: frame.icmp_type == 129, what="IPv6 traffic")
            yield
        for version, flow in flows.items():
            done = flow.result()
            assert done.received, done.output
            print(f"{what}: IPv{version} lost {done.lost} of {done.sent}, {INTERVAL * 1000:.0f} ms")
            assert done.lost * INTERVAL <= bar, done.output


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> Lan:
    lan = Lan(module_lab)
    lan.start()
    return lan


@pytest.fixture
def lan(started: Lan) -> Lan:
    """Returns the network in a state in which r is master."""
    started.wait_forwarding("r")
    return started


@VERSIONS
def test_the_host_reaches_the_server_through_the_switch(lan: Lan, version: int) -> None:
    assert lan.virtual_macs() == sorted(VMAC.values())
    before = sent_by_switch(lan)
    done = probes.ping(lan.h, SERVER[version], count=50)
    assert done.lost == 0, done.output
    assert sent_by_switch(lan) >= before + 50
    neighbour = lan.h.run("ip", "neighbor", "show", VIRTUAL[version]).stdout
    assert VMAC[version] in neighbour


@VERSIONS
def test_the_master_answers_at_the_virtual_address(lan: Lan, version: int) -> None:
    for place in (lan.h, lan.x):
        done = probes.ping(place, VIRTUAL[version])
        assert done.lost == 0, done.output


def test_a_switch_that_hangs(lan: Lan) -> None:
    """If r's switch hangs, advertisements are missing and the backup takes over.

    No link goes down.
    """
    switch = lan.r.target.process
    assert switch is not None
    with lan.traffic(4, "r's switch hangs, s takes over", MASTER_DOWN + 1.0):
        switch.send(signal.SIGSTOP)
        try:
            lan.wait_forwarding("s")
        except BaseException:
            switch.send(signal.SIGCONT)
            raise
    with lan.traffic(8, "r's switch goes on, r is master again", 1.0):
        switch.send(signal.SIGCONT)
        lan.wait_forwarding("r")


def test_a_cut_cable_and_its_repair(lan: Lan) -> None:
    with lan.traffic(4, "cable cut, s takes over", MASTER_DOWN + 1.0):
        lan.wire.link_up("lan-r", False)
        lan.wait_forwarding("s")
    assert lan.virtual_macs() == []
    with lan.traffic(8, "cable repaired, r takes over again", 1.0):
        lan.wire.link_up("lan-r")
        lan.wait_forwarding("r")
    assert lan.virtual_macs() == sorted(VMAC.values())


def test_a_backup_leaves_the_virtual_address_to_the_master(lan: Lan) -> None:
    lan.r.frr.configure("interface eth1", "vrrp 5 priority 50")
    try:
        with lan.traffic(4, "r lowers its priority, s takes over", 1.0):
            lan.wait_forwarding("s")
        assert lan.virtual_macs() == []
        for version in (4, 6):
            # r must forward these packets and their answers, and not deliver the packets to its own
            # host stack.
            via = ("via", CORE["r"][version])
            lan.x.run("ip", f"-{version}", "route", "add", VIRTUAL[version], *via)
            try:
                wait_until(partial(answers, lan.x, VIRTUAL[version]), 20, "s to answer by r")
            finally:
                lan.x.run("ip", f"-{version}", "route", "del", VIRTUAL[version], *via)
    finally:
        lan.r.frr.configure("interface eth1", "vrrp 5 priority 200")
    lan.wait_forwarding("r")


def test_a_new_controller_takes_the_virtual_router_over(lan: Lan) -> None:
    with lan.traffic(6, "r's controller restarts", 0.0):
        lan.r.controller.kill()
        lan.r.controller.start()
        lan.r.controller.wait_synced()
    assert lan.virtual_macs() == sorted(VMAC.values())


def sent_by_switch(lan: Lan) -> int:
    """Returns the number of packets that r's switch has sent to the core."""
    interfaces = lan.r.controller.ask(command="show", what="interfaces")
    (found,) = (one for one in interfaces if one["name"] == "eth2")
    return int(found["sent"]["packets"])


def answers(place: Namespace, address: str) -> bool:
    return probes.ping(place, address, count=1).received == 1

# SPDX-License-Identifier: Apache-2.0
"""Builds a P4 router that mirrors IPsec from its kernel, and a peer that does ESP in its kernel.

    h1 --- eth1 [ r ] eth2 --- from_r [ n ] from_p --- eth0 [ p ] eth1 --- h2
                 engine                captures, NAT           Linux's own ESP

r forwards in its switch. Its kernel holds IPsec policies and SAs but encrypts nothing. Captures on
n see all packets between r and p. Depends on the test kit and sluice_topo.
"""

import itertools
import os
import re
import signal
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.esp_engine import ENGINE_MTU
from sluice_testkit.libreswan import Libreswan
from sluice_testkit.namespaces import Lab, veth
from sluice_testkit.nftables import nft
from sluice_testkit.packet import Frame
from sluice_testkit.process import Process
from sluice_testkit.sluice_esp import SluiceEsp
from sluice_testkit.strongswan import StrongSwan, kernel_has_esp
from sluice_testkit.wait import patient, wait_until
from sluice_topo import probes
from sluice_topo.description import Host, Router, RouterKind
from sluice_topo.routers import HostNode, P4Router

ENGINE_PORT = 9
R, P = "10.0.1.1", "10.0.2.1"
"""The tunnel's end points: the addresses of r and p."""
H1, H2 = "10.1.0.2", "10.2.0.2"
SITE1, SITE2 = "10.1.0.0/24", "10.2.0.0/24"
NATTED = "10.0.2.2"
"""Source address of r's packets after NAT by n."""
PATTERN = bytes.fromhex("c1ea47e875")
"""Part of the payload of each ping."""
ESP, UDP = 50, 17
MIRRORED = {"spds": [{"name": "wan", "source": "kernel"}]}
"""Configuration of r in which the SPD `wan` mirrors the kernel's policies."""
FRR = f"""
frr defaults traditional
hostname r
no zebra nexthop kernel enable
no fpm use-next-hop-groups
fpm address 127.0.0.1 port 2620
ip route 10.0.2.0/24 10.0.1.2
ip route {SITE2} 10.0.1.2
"""


def has_esp() -> bool:
    """Returns whether this machine's kernel accepts ESP SAs. To find out, the kernel may load a
    module.
    """
    with Lab() as lab:
        return kernel_has_esp(lab.namespace("esp"))


needs_esp = pytest.mark.skipif(not has_esp(), reason="the kernel has no ESP: make interop")


def _configuration(engine: Path, policy: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the configuration that r's operator would write."""
    networks = {"eth1": "10.1.0.1/24", "eth2": f"{R}/24"}
    interfaces = [
        {
            "name": name,
            "port": number,
            "device": f"port{number}",
            "mac": f"02:00:00:00:01:{number:02x}",
            "addresses": [address],
            "spd": {"eth1": "none", "eth2": "wan"}[name],
        }
        for number, (name, address) in enumerate(networks.items(), 1)
    ]
    return {
        "router": "r",
        "switch": {"device_id": 1},
        "fpm": {"quiet_seconds": 0.3},
        "engines": [{"id": 1, "port": ENGINE_PORT, "device": "port9", "admin": str(engine)}],
        "interfaces": interfaces,
        **policy,
    }


class Interop:
    """Holds the running network. `policy` is the part of r's configuration with the SPD `wan` and
    its bundles.
    """

    def __init__(self, lab: Lab, policy: Mapping[str, Any] = MIRRORED):
        self.lab = lab
        self.r, self.n, self.p = (lab.namespace(name) for name in "rnp")
        self.hosts = {
            "h1": HostNode(Host("h1", (f"{H1}/24",), ("10.1.0.1",)), lab.namespace("h1")),
            "h2": HostNode(Host("h2", (f"{H2}/24",), ("10.2.0.1",)), lab.namespace("h2")),
        }
        veth(self.hosts["h1"].namespace, "eth0", self.r, "port1")
        veth(self.r, "port2", self.n, "from_r")
        veth(self.n, "from_p", self.p, "eth0")
        veth(self.p, "eth1", self.hosts["h2"].namespace, "eth0")
        place = lab.namespace("r-engine")
        veth(self.r, "port9", place, "engine", mtu=ENGINE_MTU)
        place.silence("engine")
        self.engine = SluiceEsp("r-esp", place, "engine", lab.directory, lab.supervisor)
        admin = lab.directory / "r-esp" / "admin.sock"
        self.router = P4Router(
            Router("r", RouterKind.P4, Path()),
            *(self.r, lab.directory, lab.supervisor),
            target=os.environ.get("TARGET"),
            config=_configuration(admin, policy),
            frr_config=FRR,
        )
        self.router.target.ports[ENGINE_PORT] = "port9"
        self.controller = self.router.controller

    def start(self) -> None:
        """Starts everything. Returns when a ping from h1 to h2 is answered in clear."""
        for place in (self.n, self.p):
            place.sysctl(ipv4__ip_forward=1)
        self.n.add_address("from_r", "10.0.1.2/24")
        self.n.add_address("from_p", f"{NATTED}/24")
        self.p.add_address("eth0", f"{P}/24")
        self.p.add_address("eth1", "10.2.0.1/24")
        for place, prefix, gateway in (
            (self.n, SITE1, R),
            (self.n, SITE2, P),
            (self.p, "10.0.1.0/24", NATTED),
            (self.p, SITE1, NATTED),
        ):
            place.run("ip", "route", "add", prefix, "via", gateway)
        for host in self.hosts.values():
            host.start()
        self.engine.start()
        self.router.start()
        wait_until(lambda: self.ping(count=1).received, 60, "h1 to reach h2 in clear")
        self.controller.wait_synced()

    # -- queries

    def ping(
        self, to: str = "h2", *, count: int = 5, size: int = 100, options: Sequence[str] = ()
    ) -> probes.Ping:
        """Pings a host from the other host, with all requests sent at once.

        After the last request, ping waits only for the interval, or for twice the longest round
        trip. On an emulated machine, answers take longer. So the interval is long.
        """
        source, address = {"h2": ("h1", H2), "h1": ("h2", H1)}[to]
        at_once = ("-l", str(count), "-W", f"{patient(1):g}", "-p", PATTERN.hex())
        return probes.ping(
            self.hosts[source].namespace,
            address,
            count=count,
            interval=patient(1),
            size=size,
            options=(*at_once, *options),
        )

    def passes(self, to: str = "h2", *, count: int = 5, size: int = 100) -> None:
        """Checks that all pings to a host are answered."""
        seen = self.ping(to, count=count, size=size)
        assert seen.lost == 0, f"{seen.output}\n{self.where_lost()}"

    @contextmanager
    def lossless(self) -> Iterator[None]:
        """Pings in both directions, ten times per second, while the context is open.

        Checks that every ping is answered.
        """
        streams = [
            self.lab.supervisor.start(
                f"stream-{host}-{next(_numbers)}",
                self.hosts[host].namespace.argv(
                    ["ping", "-n", "-i", "0.1", "-p", PATTERN.hex(), to]
                ),
            )
            for host, to in (("h1", H2), ("h2", H1))
        ]
        for stream in streams:
            wait_until(partial(_answered, stream), 10, "a first answer")
        yield
        for stream in streams:
            _goes_on(stream)
            stream.stop(signal_number=signal.SIGINT)
            answered = _answered(stream)
            # Answers to the last pings may still be on their way.
            missing = set(range(1, max(answered) - 2)) - answered
            assert not missing, f"{stream.name} lost {sorted(missing)}\n{self.where_lost()}"

    def transfers(self, size: int) -> None:
        """Checks that `size` bytes go from h1 to h2 by TCP and arrive unchanged."""
        data = os.urandom(size)
        h1, h2 = (self.hosts[name].namespace for name in ("h1", "h2"))
        with h2.socket(socket.AF_INET, socket.SOCK_STREAM) as server, ThreadPoolExecutor(1) as pool:
            server.settimeout(patient(20))
            server.bind((H2, 0))
            server.listen(1)
            received = pool.submit(_receive, server)
            with h1.socket(socket.AF_INET, socket.SOCK_STREAM) as client:
                client.settimeout(patient(20))
                client.connect(server.getsockname())
                client.sendall(data)
            assert received.result() == data, self.where_lost()

    def sas(self) -> list[dict[str, Any]]:
        """Returns the SAs of `sluice sa list`."""
        return list(self.controller.ask(command="show", what="sas"))

    def in_use(self, direction: str) -> set[int]:
        """Returns the SPIs of the SAs in use in one direction."""
        return {
            one["spi"]
            for one in self.sas()
            if one["direction"] == direction and one["state"] == "in use"
        }

    def wait_in_use(self, different_from: frozenset[int] = frozenset()) -> frozenset[int]:
        """Waits until r uses SAs in both directions whose SPIs are not in `different_from`. Returns
        the SPIs of the SAs in use.
        """

        def found() -> frozenset[int]:
            out, back = self.in_use("outbound"), self.in_use("inbound")
            new_out = out - different_from
            return frozenset(new_out | back) if new_out and back - different_from else frozenset()

        return wait_until(found, 15, "new SAs in use")

    def rules(self, action: str) -> list[str]:
        """Returns the names of the mirrored outbound policies that are in force and have this
        action.
        """
        lists = self.controller.ask(command="show", what="spd", spd="wan")
        (outbound,) = (one["rules"] for one in lists if one["direction"] == "outbound")
        names = [one["name"] for one in outbound if one["action"] == action]
        return [name for name in names if name.startswith("kernel-out-")]

    def wait_for_rules(self, action: str, count: int) -> None:
        """Waits until exactly `count` mirrored outbound policies with this action are in force."""
        wait_until(lambda: len(self.rules(action)) == count, 10, f"{count} rules that {action}")

    def problems(self) -> list[str]:
        """Returns the problems about the SPD `wan` in `show status`."""
        status = self.controller.ask(command="show", what="status")
        return [one for one in status["problems"] if "SPD wan" in one]

    def drops(self, reason: str) -> int:
        """Returns the number of packets that the switch has dropped for this reason."""
        drops = self.controller.ask(command="show", what="counters")["switch_drops"]
        return int(drops.get(reason, {"packets": 0})["packets"])

    def counted(self, group: str, name: str) -> int:
        """Returns a counter of r's controller."""
        counters = self.controller.ask(command="show", what="counters")["controller"]
        return int(counters[group].get(name, 0))

    def where_lost(self) -> str:
        """Returns counters and states that show where packets were lost, for an error message."""
        counters = self.controller.ask(command="show", what="counters")
        drops = {k: v["packets"] for k, v in counters["switch_drops"].items() if v["packets"]}
        lines = [f"switch {drops}", f"engine {self.engine.ctl('show')}", f"SAs {self.sas()}"]
        lines += [f"problems {self.problems()}", self.p.run("ip", "-s", "xfrm", "state").stdout]
        lines.append(self.p.run("cat", "/proc/net/xfrm_stat").stdout)
        return "\n".join(lines)

    @contextmanager
    def monitor(self, *, in_udp: bool = False, hidden: bool = True) -> Iterator[list[Frame]]:
        """Captures the packets through n while the context is open.

        At the end, checks that there was ESP and that no ping was in clear. Set `hidden` to False
        for ESP without encryption, whose payload is visible.
        """
        found: list[Frame] = []
        with Capture(self.n, "from_r") as capture:
            yield found
            found += capture.frames()
        protocol = UDP if in_udp else ESP
        showing = [frame for frame in found if PATTERN in frame.data]
        clear = [frame for frame in showing if hidden or frame.protocol != protocol]
        assert not clear, f"in clear: {clear}"
        assert [frame for frame in found if frame.protocol == protocol], "no ESP"

    # -- the ends of the tunnel

    def flush(self) -> None:
        """Deletes all IPsec policies and SAs from both kernels. Waits until r's controller has
        removed them too.
        """
        for place in (self.r, self.p):
            place.run("ip", "xfrm", "state", "flush")
            place.run("ip", "xfrm", "policy", "flush")
        wait_until(lambda: not self.sas(), 20, "no SA is left in r")
        for action in ("protect", "discard", "bypass"):
            self.wait_for_rules(action, 0)

    @contextmanager
    def nat(self) -> Iterator[None]:
        """Makes n translate r's address in packets to p (NAT) while the context is open."""
        rules = (
            "add table ip nat\n"
            "add chain ip nat post { type nat hook postrouting priority 100; }\n"
            f"add rule ip nat post oifname from_p ip saddr {R} masquerade\n"
        )
        nft(self.n, rules)
        try:
            yield
        finally:
            nft(self.n, "delete table ip nat")

    def charon(self, of_peer: bool, **options: Any) -> StrongSwan:
        """Returns a strongSwan for r or for p, not yet started. `options` are those of
        `StrongSwan`.
        """
        label = f"charon-{'p' if of_peer else 'r'}-{next(_numbers)}"
        place = self.p if of_peer else self.r
        return StrongSwan(label, place, self.lab.directory, self.lab.supervisor, **options)

    def pluto(self) -> Libreswan:
        """Returns a Libreswan for r, not yet started."""
        label = f"pluto-r-{next(_numbers)}"
        return Libreswan(label, self.r, self.lab.directory, self.lab.supervisor)


_numbers = itertools.count(1)
"""Numbers for unique process names."""


def _receive(server: socket.socket) -> bytes:
    """Returns all data from the first client of a server."""
    connection, _ = server.accept()
    with connection, connection.makefile("rb") as file:
        connection.settimeout(patient(20))
        return file.read()


def _answered(stream: Process) -> set[int]:
    """Returns the sequence numbers of the answers that a ping has received."""
    return set(map(int, re.findall(r"icmp_seq=(\d+) ttl=", stream.log())))


def _goes_on(stream: Process) -> None:
    """Waits until a running ping has received ten more answers."""
    enough = len(_answered(stream)) + 10
    wait_until(lambda: len(_answered(stream)) >= enough, 10, f"{stream.name} to go on")


SITES = """\
connections {{
  peer {{
    version = 2
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = aes128-sha256-prfsha256-ecp256
    dpd_delay = {dpd}
    {connection}
    local {{ auth = psk
      id = {me} }}
    remote {{ auth = psk
      id = {other} }}
    children {{
      net {{
        local_ts = {local_site}
        remote_ts = {remote_site}
        esp_proposals = {esp}
        start_action = {start}
        {child}
      }}
    }}
  }}
}}
secrets {{
  ike-both {{ secret = "a secret of both" }}
}}
"""


def connections(
    *,
    of_peer: bool,
    start: str = "none",
    esp: str = "aes128gcm16-esn",
    remote: str | None = None,
    connection: str = "",
    child: str = "",
    dpd: str = "30s",
) -> str:
    """Returns the swanctl.conf of one end of the tunnel."""
    ends = (
        {"me": "r", "local": R, "local_site": SITE1},
        {"me": "p", "local": P, "local_site": SITE2},
    )
    mine, theirs = reversed(ends) if of_peer else ends
    return SITES.format(
        **mine,
        other=theirs["me"],
        remote=remote or theirs["local"],
        remote_site=theirs["local_site"],
        start=start,
        esp=esp,
        connection=connection,
        child=child,
        dpd=dpd,
    )

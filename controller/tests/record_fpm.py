#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records the messages of a real zebra over FPM, as goldens for the decoder's tests.

    sudo /usr/bin/python3 controller/tests/record_fpm.py controller/tests/goldens/fpm

Needs root, FRR and `ip netns`. Each scenario gets two new network namespaces, joined by three veth
pairs. `r` runs the recorded zebra (with staticd, and bgpd if needed), and `n` is the neighbour.

A scenario is a list of steps. A step runs commands. The FPM frames that zebra then sends are
recorded below the step's name, one frame per line, in hex. zebra sends no end marks. So a step ends
when zebra has been silent for QUIET_SECONDS.

The tests only read the files. They need neither root nor FRR.
"""

from __future__ import annotations

import ctypes
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

QUIET_SECONDS = 1.5
REPLAY_QUIET_SECONDS = 6.0
# Time limit in seconds for zebra to reconnect after it has lost its FPM peer. zebra 8.4.4 retries
# after 3 s.
CONNECT_SECONDS = 15.0
DAEMONS = Path("/usr/lib/frr")


def run(*words: str) -> None:
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL)


@dataclass
class Router:
    """Runs FRR in one namespace, with its sockets in its own directory."""

    namespace: str
    directory: Path
    children: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self, daemon: str, config: str, *extra: str) -> None:
        file = self.directory / f"{daemon}.conf"
        file.write_text(f"hostname {self.namespace}\n{config}\n")
        shutil.chown(file, "frr", "frr")
        self.children.append(
            subprocess.Popen(
                [
                    *("ip", "netns", "exec", self.namespace, str(DAEMONS / daemon)),
                    *("-u", "frr", "-g", "frr", "-f", str(file), "-P", "0"),
                    *("--vty_socket", str(self.directory)),
                    *("-z", str(self.directory / "zserv.api")),
                    *("-i", str(self.directory / f"{daemon}.pid"), *extra),
                ],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
        )

    def configure(self, *lines: str) -> None:
        words = [word for line in ("configure terminal", *lines) for word in ("-c", line)]
        run("vtysh", "--vty_socket", str(self.directory), *words)

    def stop(self) -> None:
        for child in self.children:
            child.terminate()
            child.wait()


class Listener:
    """Accepts zebra's FPM connection and splits its stream into frames."""

    def __init__(self, namespace: str) -> None:
        # A socket belongs to the namespace of the thread that creates it.
        here = os.open("/proc/self/ns/net", os.O_RDONLY)
        there = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
        try:
            setns(there)
            self.server = socket.create_server(("127.0.0.1", 2620))
            setns(here)
        finally:
            os.close(here)
            os.close(there)
        self.peer: socket.socket | None = None
        self.buffer = b""

    def frames(self, quiet: float) -> Iterator[bytes]:
        """Yields frames until no further frame comes for `quiet` seconds."""
        while True:
            while (frame := self._next_frame()) is not None:
                yield frame
            selector = selectors.DefaultSelector()
            with selector:
                selector.register(self.server, selectors.EVENT_READ)
                if self.peer is not None:
                    selector.register(self.peer, selectors.EVENT_READ)
                ready = [key.fileobj for key, _ in selector.select(quiet)]
            if not ready:
                return
            if self.server in ready:
                self.peer, self.buffer = self.server.accept()[0], b""
            if self.peer in ready and self.peer is not None:
                data = self.peer.recv(1 << 16)
                if not data:
                    self.disconnect()
                self.buffer += data

    def _next_frame(self) -> bytes | None:
        length = int.from_bytes(self.buffer[2:4], "big")
        if len(self.buffer) < 4 or len(self.buffer) < length:
            return None
        frame, self.buffer = self.buffer[:length], self.buffer[length:]
        return frame

    def wait_for_peer(self) -> list[bytes]:
        """Waits until zebra has connected. Returns the frames that it has sent meanwhile."""
        first: list[bytes] = []
        for frame in self.frames(CONNECT_SECONDS):
            first.append(frame)
            break
        if self.peer is None:
            raise TimeoutError("zebra did not connect to the FPM listener")
        return first

    def disconnect(self) -> None:
        if self.peer is not None:
            self.peer.close()
        self.peer, self.buffer = None, b""


def setns(descriptor: int) -> None:
    """Calls setns(2). Python has os.setns from version 3.12 on."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(descriptor, 0x40000000) != 0:
        raise OSError(ctypes.get_errno(), "setns")


class Stage:
    """Runs one scenario: holds its two namespaces, FRR, the listener and the output file."""

    def __init__(self, name: str, directory: Path) -> None:
        self.r, self.n = f"sl-rec-r-{os.getpid()}", f"sl-rec-n-{os.getpid()}"
        self.scratch: list[Path] = []
        for namespace in (self.r, self.n):
            run("ip", "netns", "add", namespace)
            run("ip", "-n", namespace, "link", "set", "lo", "up")
        for index in (1, 2, 3):
            self.link(index)
        self.listener = Listener(self.r)
        self.router = Router(self.r, self.new_directory())
        self.neighbour = Router(self.n, self.new_directory())
        self.out = (directory / f"{name}.fpm").open("w")
        self.out.write(f"# zebra {frr_version()} -M dplane_fpm_nl: scenario {name}\n")
        self.out.write("# interfaces, by ifindex: e1 11, e2 12, e3 13\n")

    def new_directory(self) -> Path:
        path = Path(tempfile.mkdtemp(prefix="sl-rec-"))
        shutil.chown(path, "frr", "frr")
        self.scratch.append(path)
        return path

    def link(self, index: int) -> None:
        """Creates a veth pair with fixed interface index and MAC addresses.

        e<index> is in r and has 10.0.<index>.1; p<index> is in n and has 10.0.<index>.2.
        """
        mac = "02:00:00:00"
        ours = f"e{index} netns {self.r} index {10 + index} address {mac}:00:0{index}"
        theirs = f"p{index} netns {self.n} address {mac}:01:0{index}"
        run(*f"ip link add {ours} type veth peer name {theirs}".split())
        for namespace, device, host in ((self.r, f"e{index}", 1), (self.n, f"p{index}", 2)):
            in_namespace = ("ip", "-n", namespace)
            run(*in_namespace, *f"link set {device} up".split())
            run(*in_namespace, *f"addr add 10.0.{index}.{host}/24 dev {device}".split())
            run(*in_namespace, *f"addr add 2001:db8:{index}::{host}/64 dev {device} nodad".split())

    def start(self, fpm: str = "") -> None:
        self.router.start("zebra", f"fpm address 127.0.0.1\n{fpm}", "-M", "dplane_fpm_nl")
        self.router.start("staticd", "")

    def step(self, name: str, *, wait_for_peer: bool = False, quiet: float = QUIET_SECONDS) -> None:
        self.out.write(f"\n== {name}\n")
        frames = self.listener.wait_for_peer() if wait_for_peer else []
        if wait_for_peer:
            quiet = REPLAY_QUIET_SECONDS
        for frame in (*frames, *self.listener.frames(quiet)):
            self.out.write(frame.hex() + "\n")

    def vtysh(self, *lines: str) -> None:
        self.router.configure(*lines)
        self.step(" | ".join(lines))

    def ip(self, words: str, namespace: str | None = None) -> None:
        run("ip", "-n", namespace or self.r, *words.split())
        self.step(f"ip {words}" + (" (neighbour)" if namespace else ""))

    def close(self) -> None:
        self.router.stop()
        self.neighbour.stop()
        self.listener.disconnect()
        self.listener.server.close()
        self.out.close()
        for namespace in (self.r, self.n):
            run("ip", "netns", "del", namespace)
        for path in self.scratch:
            shutil.rmtree(path)


def frr_version() -> str:
    command = [str(DAEMONS / "zebra"), "--version"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.split()[2]


def static(stage: Stage, fpm: str = "") -> None:
    """Records every kind of static route."""
    stage.start(fpm)
    stage.step("start", wait_for_peer=True)
    stage.vtysh("ip route 0.0.0.0/0 10.0.1.2")
    stage.vtysh("ip route 10.9.0.0/16 10.0.1.2")
    stage.vtysh("ip route 10.9.0.0/16 10.0.2.2")
    stage.vtysh("ip route 10.9.0.0/16 10.0.3.2")
    stage.vtysh("no ip route 10.9.0.0/16 10.0.1.2")
    stage.vtysh("ip route 10.8.0.0/16 198.51.100.1 e1 onlink")
    stage.vtysh("ip route 10.7.0.0/16 e2")
    stage.vtysh("ip route 10.6.0.0/16 blackhole")
    stage.vtysh("ip route 10.5.0.0/16 reject")
    stage.vtysh("ip route 10.2.0.0/16 10.9.1.1")
    stage.vtysh("ip route 10.3.0.0/16 10.0.1.2 table 100")
    stage.vtysh("ipv6 route ::/0 2001:db8:1::2")
    v6_ecmp = "ipv6 route 2001:db8:900::/48 2001:db8"
    stage.vtysh(f"{v6_ecmp}:1::2", f"{v6_ecmp}:2::2")
    stage.vtysh("ipv6 route 2001:db8:901::/48 fe80::1 e3")
    stage.vtysh("ipv6 route 2001:db8:902::/48 blackhole")
    stage.vtysh("ipv6 route 2001:db8:903::/48 reject")
    stage.vtysh("no ip route 10.8.0.0/16 198.51.100.1 e1 onlink")
    stage.ip("addr add 10.0.31.1 peer 10.0.31.9 dev e3")
    stage.ip("addr del 10.0.31.1 peer 10.0.31.9 dev e3")


def static_without_groups(stage: Stage) -> None:
    static(stage, "no fpm use-next-hop-groups")


def kernel(stage: Stage) -> None:
    """Records routes that another program adds to the kernel and that zebra passes on."""
    stage.start()
    stage.step("start", wait_for_peer=True)
    stage.ip("route add 10.20.0.0/16 via 10.0.3.2 metric 7")
    stage.ip("route add 10.21.0.0/16 nexthop via 10.0.1.2 weight 3 nexthop via 10.0.2.2 weight 1")
    stage.ip("route add unreachable 10.22.0.0/16")
    stage.ip("route add prohibit 10.23.0.0/16")
    stage.ip("route add blackhole 10.26.0.0/16")
    stage.ip("route add 10.24.0.0/16 via inet6 2001:db8:1::5 dev e1")
    stage.ip("route add 10.25.0.0/16 via 10.0.1.2 table 100")
    stage.ip("-6 route add 2001:db8:77::/48 via 2001:db8:1::9")
    stage.ip("route del 10.21.0.0/16")


def kernel_tos(stage: Stage) -> None:
    """Records kernel routes with a TOS or a source prefix, next to plain routes."""
    stage.start("no fpm use-next-hop-groups")
    stage.step("start", wait_for_peer=True)
    stage.ip("route add 10.30.0.0/16 via 10.0.1.2 tos 0x10")
    stage.ip("route add 10.31.0.0/16 via 10.0.1.2")
    stage.ip("route add 10.31.0.0/16 via 10.0.2.2 tos 0x10")
    stage.ip("route del 10.31.0.0/16 tos 0x10")
    stage.ip("-6 route add 2001:db8:78::/48 from 2001:db8:1::/64 via 2001:db8:1::9")


def link(stage: Stage) -> None:
    """Records the failure and return of an ECMP next hop, also with a new FPM session."""
    stage.start()
    stage.step("start", wait_for_peer=True)
    stage.vtysh("ip route 10.9.0.0/16 10.0.1.2", "ip route 10.9.0.0/16 10.0.2.2")
    stage.ip("link set p2 down", stage.n)
    stage.ip("link set p2 up", stage.n)
    stage.ip("link set e2 down")
    stage.listener.disconnect()
    stage.step("FPM peer disconnects while e2 is down", wait_for_peer=True)
    run("ip", "-n", stage.r, "link", "set", "e2", "up")
    stage.ip("addr add 2001:db8:2::1/64 dev e2 nodad")
    stage.listener.disconnect()
    stage.step("FPM peer disconnects", wait_for_peer=True)


def bgp_unnumbered(stage: Stage) -> None:
    """Records IPv4 routes with two IPv6 link-local next hops (RFC 8950)."""
    stage.start()
    stage.step("start", wait_for_peer=True)
    stage.neighbour.start("zebra", "")
    for router, asn, prefix in ((stage.router, 65001, "e"), (stage.neighbour, 65002, "p")):
        lines = [f"router bgp {asn}", f"bgp router-id 1.1.1.{asn % 10}"]
        lines += ["no bgp ebgp-requires-policy"]
        for index in (1, 2):
            interface = f"{prefix}{index}"
            lines += [f"neighbor {interface} interface remote-as external"]
            lines += [f"neighbor {interface} timers connect 1"]
        lines += ["address-family ipv4 unicast", "redistribute static", "exit-address-family"]
        router.start("bgpd", "\n".join(lines) + "\n")
    stage.neighbour.start("staticd", "ip route 203.0.113.0/24 blackhole")
    stage.step("bgpd: 203.0.113.0/24 by two link-local neighbours", quiet=20.0)


SCENARIOS: dict[str, Callable[[Stage], None]] = {
    "static": static,
    "static_without_groups": static_without_groups,
    "kernel": kernel,
    "kernel_tos": kernel_tos,
    "link": link,
    "bgp_unnumbered": bgp_unnumbered,
}


def main() -> int:
    if len(sys.argv) < 2 or os.geteuid() != 0:
        print(f"usage (as root): {sys.argv[0]} OUT_DIRECTORY [SCENARIO...]", file=sys.stderr)
        return 2
    for name in sys.argv[2:] or SCENARIOS:
        stage = Stage(name, Path(sys.argv[1]))
        try:
            SCENARIOS[name](stage)
        finally:
            stage.close()
        print(f"recorded {name}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())

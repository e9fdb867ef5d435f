# SPDX-License-Identifier: Apache-2.0
"""Builds a router whose kernel forwards, between hosts, and takes it over by `sluice up`.

    h1 --- eth1 [ r ] eth2 --- h2
                  eth3 --- h3

`r` has addresses, forwards IPv4 and IPv6, and runs no other program. `h3` is behind an interface
that tests do not take over.
"""

import json
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from subprocess import CompletedProcess
from types import TracebackType
from typing import Any, Self

from sluice_testkit import where
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.process import run
from sluice_testkit.wait import wait_until

RUN_DIRECTORY = Path("/run/sluice-up")
TAKEN = ("eth1", "eth2")
PROCESSES = ("supervisor", "switch", "controller")
WORD = b"sluice\n"


@dataclass(frozen=True)
class EndHost:
    """Holds a host with one link, `eth0`, to the router."""

    number: int
    namespace: Namespace

    def address(self, version: int) -> str:
        """Returns the host's IPv4 or IPv6 address."""
        return address(self.number, 2, version)


def address(network: int, host: int, version: int) -> str:
    """Returns the address of a host in one of the router's networks. The router is host 1."""
    return f"10.0.{network}.{host}" if version == 4 else f"2001:db8:{network}::{host}"


class KernelRouter:
    """Builds the namespaces. `close` ends the takeover, if one runs."""

    def __init__(self, lab: Lab, hosts: int = 3):
        self.namespace = lab.namespace("r")
        self.hosts: list[EndHost] = []
        for number in range(1, hosts + 1):
            host = EndHost(number, lab.namespace(f"h{number}"))
            veth(self.namespace, f"eth{number}", host.namespace, "eth0")
            for version, length in ((4, 24), (6, 64)):
                gateway = address(number, 1, version)
                self.namespace.add_address(f"eth{number}", f"{gateway}/{length}")
                host.namespace.add_address("eth0", f"{host.address(version)}/{length}")
                host.namespace.run("ip", f"-{version}", "route", "add", "default", "via", gateway)
            self.hosts.append(host)
        self.namespace.sysctl(ipv4__ip_forward=1, ipv6__conf__all__forwarding=1)
        # The kernel sends no neighbour solicitation while duplicate address detection of its
        # link-local address runs.
        wait_until(lambda: not self._has_tentative_address(), 10, "addresses without duplicates")
        self.name = lab.directory.name  # /run/sluice-up is common to all namespaces

    def _has_tentative_address(self) -> bool:
        namespaces = [self.namespace, *(host.namespace for host in self.hosts)]
        tentative = ("ip", "-6", "-oneline", "address", "show", "tentative")
        return any(one.run(*tentative).stdout for one in namespaces)

    def command(
        self, *words: str, name: bool = True, check: bool = True
    ) -> "CompletedProcess[str]":
        """Runs the `sluice` command on the router. With `name`, adds the option for this takeover's
        name.
        """
        own = ("--name", self.name) if name else ()
        argv = self.namespace.argv([str(where.sluice()), *words, *own])
        return run(argv, check=check, env={"SLUICE_SWITCH": str(where.sluice_switch())})

    def up(self, *interfaces: str) -> str:
        """Takes the interfaces over. Returns what the command prints."""
        return self.command("up", *(interfaces or TAKEN)).stdout

    def down(self) -> str:
        """Ends the takeover. Returns what the command prints."""
        return self.command("down").stdout

    @property
    def socket(self) -> Path:
        """Socket of the controller's API."""
        return RUN_DIRECTORY / f"{self.name}.sock"

    @property
    def log(self) -> str:
        """Returns the log of the takeover."""
        return (RUN_DIRECTORY / f"{self.name}.up" / "log").read_text(encoding="utf-8")

    def processes(self) -> dict[str, int]:
        """Returns the process ids of the takeover, by the name of the process."""
        path = RUN_DIRECTORY / f"{self.name}.up" / "processes.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        assert isinstance(found, dict)
        return found

    def kill(self, process: str) -> None:
        """Kills a process of the takeover by SIGKILL."""
        os.kill(self.processes()[process], signal.SIGKILL)

    def wait_for_end(self) -> None:
        """Waits until no process of the takeover runs and the ports are gone."""

        def is_over() -> bool:
            running = [one for one in self.processes().values() if is_running(one)]
            links = json.loads(self.namespace.run("ip", "-j", "link").stdout)
            return not running and not any(one["ifname"].startswith("sluice") for one in links)

        wait_until(is_over, 20, "the processes of the takeover to end")

    def show(self, what: str) -> Any:
        """Returns the parsed output of `sluice show WHAT --json`."""
        words = ("show", what, "--json", "--socket", str(self.socket))
        return json.loads(self.command(*words, name=False).stdout)

    def switch_packets(self) -> int:
        """Returns the number of packets that the switch's interfaces have received."""
        return sum(one["received"]["packets"] for one in self.show("interfaces"))

    def close(self) -> None:
        """Ends the takeover, if one runs, and removes its files."""
        self.command("down", check=False)
        shutil.rmtree(RUN_DIRECTORY / f"{self.name}.up", ignore_errors=True)
        for path in RUN_DIRECTORY.glob(f"{self.name}*.sock"):  # a killed takeover leaves them
            path.unlink(missing_ok=True)


def is_running(process: int) -> bool:
    """Returns whether a process runs. A process that has ended but was not waited for does not."""
    try:
        stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


class TcpSession:
    """Holds a TCP connection between two namespaces, over which words are sent and echoed."""

    def __init__(self, client: Namespace, server: Namespace, to: str, port: int = 7000):
        family = socket.AF_INET6 if ":" in to else socket.AF_INET
        with server.socket(family, socket.SOCK_STREAM) as listening:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((to, port))
            listening.listen()
            self._client = client.socket(family, socket.SOCK_STREAM)
            self._client.settimeout(20)
            self._client.connect((to, port))
            self._server, _ = listening.accept()
        self._echoing = threading.Thread(target=self._echo, daemon=True)
        self._echoing.start()
        self.words = 0

    def _echo(self) -> None:
        with suppress(OSError):
            while data := self._server.recv(4096):
                self._server.sendall(data)

    def exchange(self, words: int = 1) -> float:
        """Sends words and waits for their echo. Returns the longest time of one exchange in
        seconds."""
        longest = 0.0
        for _ in range(words):
            start = time.monotonic()
            self._client.sendall(WORD)
            answer = b""
            while len(answer) < len(WORD):
                received = self._client.recv(len(WORD) - len(answer))
                assert received, "the session was closed"
                answer += received
            assert answer == WORD
            longest = max(longest, time.monotonic() - start)
            self.words += 1
        return longest

    def close(self) -> None:
        """Closes both ends."""
        for one in (self._client, self._server):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()
        self._echoing.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def sessions_of(router: KernelRouter) -> Iterable[TcpSession]:
    """Yields sessions through the router and to the router, over IPv4 and IPv6. Closes them at the
    end."""
    h1, h2 = router.hosts[:2]
    for version in (4, 6):
        yield TcpSession(h1.namespace, h2.namespace, h2.address(version))
        own = address(1, 1, version)
        yield TcpSession(h1.namespace, router.namespace, own)

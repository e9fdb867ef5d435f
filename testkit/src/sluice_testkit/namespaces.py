# SPDX-License-Identifier: Apache-2.0
"""Creates network namespaces and the veth pairs between them.

A `Lab` holds the namespaces of one run, with a run directory and a supervisor. Leaving the lab's
context removes everything. Interfaces are created inside their namespaces, so the names of two runs
do not collide.

All offloads are off. With offloads, a veth would pass packets without checksums, and packets longer
than the MTU, to the software switch, which cannot process them.

`Lab.namespace` creates a `Namespace`. `Namespace.of_process` returns one for an existing network
namespace, such as that of a mininet node.
"""

import ctypes
import itertools
import os
import shutil
import socket
from collections.abc import Callable, Sequence
from pathlib import Path
from subprocess import CompletedProcess
from types import TracebackType
from typing import Self, TypeVar

from sluice_testkit import owner, where
from sluice_testkit.janitor import janitor
from sluice_testkit.process import Supervisor, run

Result = TypeVar("Result")

OFFLOADS = ("tx", "rx", "gso", "gro", "tso")
CLONE_NEWNET = 0x40000000

# Interface indexes for the next veth pair of this process (see `veth`).
_pair_indexes = itertools.count(1000, 2)

_libc = ctypes.CDLL(None, use_errno=True)


def _setns(descriptor: int) -> None:
    if _libc.setns(descriptor, CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"setns: {os.strerror(number)}")


class Namespace:
    """Runs commands and opens sockets in a network namespace."""

    def __init__(self, label: str, path: Path, enter: Sequence[str]):
        self.label = label
        self.path = path
        self._enter = tuple(enter)

    @classmethod
    def named(cls, label: str, name: str) -> Self:
        """Returns the namespace that `ip netns` calls `name`."""
        return cls(label, owner.NETNS_DIRECTORY / name, ("ip", "netns", "exec", name))

    @classmethod
    def of_process(cls, label: str, pid: int) -> Self:
        """Returns the network namespace of process `pid`.

        For commands in this namespace, /sys still shows the caller's network namespace.
        """
        path = Path(f"/proc/{pid}/ns/net")
        return cls(label, path, ("nsenter", f"--net={path}"))

    def argv(self, command: Sequence[str]) -> list[str]:
        """Returns the command line that runs `command` in this namespace.

        The wrapper execs the command, so the started process becomes the command.
        """
        return [*self._enter, *command]

    def run(
        self,
        *command: str,
        check: bool = True,
        timeout: float = 60.0,
        stdin: str | None = None,
    ) -> "CompletedProcess[str]":
        """Runs a command in this namespace and waits for its end (see `process.run`)."""
        return run(self.argv(command), check=check, timeout=timeout, stdin=stdin)

    def inside(self, function: Callable[[], Result]) -> Result:
        """Moves the calling thread into this namespace, calls `function`, and moves the thread
        back.
        """
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
        try:
            there = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _setns(there)
            finally:
                os.close(there)
            try:
                return function()
            finally:
                _setns(home)
        finally:
            os.close(home)

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Returns a socket opened in this namespace."""
        return self.inside(lambda: socket.socket(family, kind, protocol))

    def sysctl(self, **values: object) -> None:
        """Sets `net.*` variables. `__` stands for a dot: `ipv4__ip_forward=0`."""
        pairs = [f"net.{name.replace('__', '.')}={value}" for name, value in values.items()]
        self.run("sysctl", "-q", "-w", *pairs)

    def link_up(self, interface: str, up: bool = True) -> None:
        """Sets an interface administratively up or down."""
        self.run("ip", "link", "set", "dev", interface, "up" if up else "down")

    def add_address(self, interface: str, *addresses: str) -> None:
        """Adds addresses (`10.0.0.1/24`) to `interface`.

        IPv6 addresses skip duplicate address detection.
        """
        for address in addresses:
            extra = ["nodad"] if ":" in address else []
            self.run("ip", "address", "add", address, "dev", interface, *extra)

    def silence(self, interface: str) -> None:
        """Stops the kernel from sending on `interface`: removes addresses, disables IPv6 and
        ARP.
        """
        self.sysctl(**{f"ipv6__conf__{interface}__disable_ipv6": 1})
        self.run("ip", "address", "flush", "dev", interface)
        self.run("ip", "link", "set", "dev", interface, "arp", "off")

    def offloads_off(self, interface: str) -> None:
        """Turns offloads off, so that the kernel completes checksums and segments packets
        itself.
        """
        pairs = [word for offload in OFFLOADS for word in (offload, "off")]
        self.run("ethtool", "-K", interface, *pairs)


def veth(
    one: Namespace,
    one_name: str,
    two: Namespace,
    two_name: str,
    *,
    mtu: int = 1500,
    up: bool = True,
) -> None:
    """Creates a veth pair between two namespaces (or inside one), with offloads off.

    The two ends get different interface indexes. By default, the kernel gives both ends the same
    index if each is the n-th interface of its namespace. The kernel then takes such an end for an
    interface without a lower device, and reports a lost carrier up to a second late
    (`linkwatch_urgent_event` in net/core/link_watch.c).
    """
    temporary = f"v{os.getpid():x}"
    index = next(_pair_indexes)
    one.run(
        *("ip", "link", "add", "name", one_name, "index", str(index), "mtu", str(mtu)),
        *("type", "veth", "peer", "name", temporary, "index", str(index + 1), "mtu", str(mtu)),
    )
    if one.path != two.path:
        with two.path.open("rb") as there:
            target = f"/proc/{os.getpid()}/fd/{there.fileno()}"
            one.run("ip", "link", "set", "dev", temporary, "netns", target)
    two.run("ip", "link", "set", "dev", temporary, "name", two_name)
    for namespace, name in ((one, one_name), (two, two_name)):
        namespace.offloads_off(name)
        if up:
            namespace.link_up(name)


class Lab:
    """Holds the namespaces, the run directory and the processes of one run.

    Leaving the context removes them all.
    """

    def __init__(self) -> None:
        owner.sweep()
        self._prefix = owner.prefix()
        self._namespaces: dict[str, str] = {}
        self.directory = _make_directory(self._prefix)
        self.supervisor = Supervisor(self.directory / "log")

    def namespace(self, label: str) -> Namespace:
        """Creates a namespace with its loopback interface up."""
        name = f"{self.directory.name}-{label}"
        run(["ip", "netns", "add", name])
        janitor().add("netns", name)
        self._namespaces[label] = name
        namespace = Namespace.named(label, name)
        namespace.link_up("lo")
        return namespace

    def keep_logs(self, name: str) -> Path:
        """Copies all logs to build/logs/NAME of the checkout. Overwrites the logs of earlier runs.

        Returns the directory.
        """
        kept = where.repository() / "build" / "logs" / name
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(self.supervisor.directory, kept)
        return kept

    def close(self) -> None:
        """Ends all processes, deletes all namespaces and the run directory."""
        self.supervisor.stop()
        for label in reversed(list(self._namespaces)):
            name = self._namespaces.pop(label)
            owner.delete_namespace(name)
            janitor().remove("netns", name)
        shutil.rmtree(self.directory, ignore_errors=True)
        janitor().remove("directory", str(self.directory))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.supervisor.report())
        self.close()


def _make_directory(prefix: str) -> Path:
    """Creates a run directory that daemons of other users can enter."""
    for number in range(10_000):
        path = owner.temporary_root() / f"{prefix}-{number}"
        try:
            path.mkdir(mode=0o755)
        except FileExistsError:
            continue
        janitor().add("directory", str(path))
        return path
    raise FileExistsError(f"{owner.temporary_root()}/{prefix}-0 to -9999 all exist")

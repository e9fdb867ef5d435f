# SPDX-License-Identifier: Apache-2.0
"""Runs a P4Runtime target in a namespace: sluice-switch, or BMv2 as the reference.

A name or the environment variable TARGET selects the target. sluice-switch and BMv2 accept the same
command line. If BMv2 is selected but missing, an error is raised: a test that skips the comparison
would look as if it had passed.
"""

import os
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path

from sluice_testkit import where
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import Process, Supervisor
from sluice_testkit.wait import wait_until

CPU_PORT = 510
DROP_PORT = 511
GRPC_PORT = 9559
NAMES = ("sluice-switch", "bmv2")
HOW_TO_GET_BMV2 = (
    "simple_switch_grpc is not on PATH. BMv2 is in no package registry: install upstream's "
    "apt package or build p4lang/behavioral-model, then put it on PATH or set BMV2 to its path"
)


class TargetUnavailable(RuntimeError):
    """The selected target is not installed on this machine."""


def target_name(name: str | None = None) -> str:
    """Returns the name of the target: `name`, otherwise TARGET, otherwise sluice-switch."""
    chosen = name or os.environ.get("TARGET") or NAMES[0]
    if chosen not in NAMES:
        known = ", ".join(NAMES)
        raise TargetUnavailable(f"no target is called {chosen!r}: TARGET is one of {known}")
    return chosen


def bmv2_available() -> bool:
    """Returns whether simple_switch_grpc is installed on this machine."""
    return where.bmv2() is not None


def binary(name: str) -> Path:
    """Returns the path of a target's program."""
    if name == "sluice-switch":
        return where.sluice_switch()
    found = where.bmv2()
    if found is None:
        raise TargetUnavailable(HOW_TO_GET_BMV2)
    return found


def p4runtime_address(name: str | None, directory: Path, label: str) -> str:
    """Returns the P4Runtime address of a router's switch: a Unix socket, or TCP for BMv2."""
    if target_name(name) == "bmv2":
        return f"127.0.0.1:{GRPC_PORT}"
    return f"unix:{directory / label}-p4rt.sock"


class Target:
    """Runs one switch.

    `ports` maps a port number to its interface. The kernel is stopped from sending on these
    interfaces. `options` are additional command line options. The switch serves gRPC at `address`.
    The default is a port on the namespace's loopback interface, so all targets may use the same
    port.
    """

    def __init__(
        self,
        namespace: Namespace,
        ports: Mapping[int, str],
        supervisor: Supervisor,
        *,
        name: str | None = None,
        label: str = "switch",
        program: Path | None = None,
        p4info: Path | None = None,
        device_id: int = 1,
        cpu_port: int = CPU_PORT,
        grpc_port: int = GRPC_PORT,
        address: str | None = None,
        options: Sequence[str] = (),
    ):
        self.name = target_name(name)
        self.namespace = namespace
        self.ports = dict(ports)
        self.device_id = device_id
        self.cpu_port = cpu_port
        self.grpc = address or f"127.0.0.1:{grpc_port}"
        self.process: Process | None = None
        self._label = label
        self._supervisor = supervisor
        self._program = program
        self._p4info = p4info
        self.options = list(options)

    @property
    def pid(self) -> int:
        """Process id of the running switch."""
        if self.process is None:
            raise RuntimeError(f"{self._label} is not running")
        return self.process.pid

    def argv(self) -> list[str]:
        """Returns the switch's command line, without the wrapper that enters the namespace."""
        words = [str(binary(self.name))]
        words += ["--device-id", str(self.device_id)]
        for port, interface in sorted(self.ports.items()):
            words += ["-i", f"{port}@{interface}"]
        if self.name == "bmv2":
            words += ["--log-level", "warn", "--log-console"]
        words += ["--no-p4"] if self._program is None else [str(self._program)]
        own = ["--grpc-server-addr", self.grpc, "--cpu-port", str(self.cpu_port)]
        if self.name == "sluice-switch":
            if self._p4info is not None:
                words += ["--p4info", str(self._p4info)]
            return [*words, *own, *self.options]
        return [*words, "--", *own, "--drop-port", str(DROP_PORT), *self.options]

    def start(self, deadline: float = 30.0) -> None:
        """Starts the target and waits until gRPC listens."""
        argv = self.argv()
        for interface in self.ports.values():
            self.namespace.silence(interface)
        self.process = self._supervisor.start(self._label, self.namespace.argv(argv))
        wait_until(self._listens, deadline, f"{self.name} to listen on {self.grpc}")

    def stop(self) -> None:
        """Stops the target."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def kill(self) -> None:
        """Kills the target, which simulates a crash."""
        if self.process is not None:
            self.process.kill()
            self.process = None

    def log(self) -> str:
        """Returns the log that the target has written so far."""
        return "" if self.process is None else self.process.log()

    def _listens(self) -> bool:
        assert self.process is not None
        self.process.check()
        kind, _, place = self.grpc.partition(":")
        if kind == "unix":
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
                return probe.connect_ex(place) == 0
        with self.namespace.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            return probe.connect_ex((kind, int(place))) == 0

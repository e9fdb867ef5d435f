# SPDX-License-Identifier: Apache-2.0
"""Runs a switch under test, with pcap ports and P4Runtime, in a separate directory.

Depends on sluice_testkit (binaries, waiting) and on pipes. All targets accept the same command
line. They differ in how they read the frames of their ports. BMv2 merges its inputs by time stamp,
so it waits while one of them is empty. sluice-switch reads frames as they come.
"""

from __future__ import annotations

import random
import socket
import subprocess
from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Self

from sluice_conformance.pipes import InputPipe, frames
from sluice_testkit import target as targets
from sluice_testkit.wait import Timeout, wait_until

# `interpreter` is sluice-switch with its interpreter instead of machine code.
NAMES = ("sluice-switch", "interpreter", "bmv2")
DEVICE_ID = 1
START_SECONDS = 30.0
STOP_SECONDS = 5.0
_PORT_RANGE = (12000, 32000)
# sluice-switch logs this text if it has no machine code for the program or for a part of it.
_LEFT_OUT = "the interpreter runs it"


class TargetDied(Exception):
    """The switch ended unexpectedly."""


class Interpreted(Exception):
    """The interpreter ran a program, or a part of it, for which machine code was expected."""


def available() -> list[str]:
    """Returns the targets that are installed on this machine."""
    return [name for name in NAMES if name != "bmv2" or targets.bmv2_available()]


class Target:
    """Runs one switch with pcap ports."""

    def __init__(self, name: str, ports: Iterable[int], folder: Path, options: Sequence[str] = ()):
        self.name = name
        self.thrift_port = _free_port()  # used by BMv2 if built with Thrift
        self._options = options  # in addition to those of every target
        self.merges_inputs = name == "bmv2"
        self.address = f"127.0.0.1:{_free_port()}"
        self._folder = folder
        self._ports = sorted(ports)
        self._pipes: dict[int, InputPipe] = {}
        self._stamp = 0

    def __enter__(self) -> Self:
        self._pipes = {port: InputPipe(self._folder / f"p{port}_in.pcap") for port in self._ports}
        with (self._folder / "log").open("wb") as log:
            self._process = subprocess.Popen(
                self._argv(),
                cwd=self._folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        wait_until(self._listens, START_SECONDS, f"{self.name} to listen on {self.address}")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close_inputs()
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS)

    def _argv(self) -> list[str]:
        bmv2 = self.name == "bmv2"
        program = targets.binary("bmv2" if bmv2 else "sluice-switch")
        words = [str(program), "--device-id", str(DEVICE_ID), "--no-p4"]
        words += ["--use-files", "0"]
        for port in self._ports:
            words += ["-i", f"{port}@p{port}"]
        if bmv2:
            words += ["--log-console", "--log-level", "warn"]
            if _serves_thrift(program):
                words += ["--thrift-port", str(self.thrift_port)]
        else:
            words += ["--engine", "interpreter" if self.name == "interpreter" else "native"]
        return [*words, "--", "--grpc-server-addr", self.address, *self._options]

    def _listens(self) -> bool:
        self.check()
        host, port = self.address.split(":")
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            return probe.connect_ex((host, int(port))) == 0

    def check(self) -> None:
        """Raises TargetDied with the end of the switch's log unless the switch is running."""
        if self._process.poll() is not None:
            end = " / ".join(self._log()[-3:])
            raise TargetDied(f"{self.name} ended with {self._process.returncode}: {end}")

    def check_machine_code(self) -> None:
        """Raises Interpreted if the switch's log says that a part of the program has no machine
        code.
        """
        left_out = [line for line in self._log() if _LEFT_OUT in line]
        if left_out:
            raise Interpreted(" / ".join(left_out))

    def _log(self) -> list[str]:
        log = (self._folder / "log").read_text(encoding="utf-8", errors="replace")
        return log.strip().splitlines()

    def send(self, port: int, frame: bytes) -> None:
        """Sends a frame into a port.

        If the switch does not merge its inputs, it has read the frame when this returns.
        """
        self._stamp += 1
        pipe = self._pipes[port]
        pipe.write(self._stamp, frame)
        if not self.merges_inputs:
            wait_until(pipe.taken, START_SECONDS, f"{self.name} to read port {port}", interval=1e-3)

    def close_input(self, port: int) -> None:
        """Ends the input of a port."""
        self._pipes[port].close()

    def close_inputs(self) -> None:
        """Ends the inputs of all ports."""
        for pipe in self._pipes.values():
            pipe.close()

    def sent(self) -> dict[int, list[bytes]]:
        """Returns the frames that have left so far, by port."""
        return {port: frames(self._folder / f"p{port}_out.pcap") for port in self._ports}

    def wait_for_frames(self, count: int, seconds: float) -> bool:
        """Waits until `count` frames have left in total. Returns False if `seconds` pass before."""

        def enough() -> bool:
            self.check()
            return sum(len(found) for found in self.sent().values()) >= count

        try:
            return wait_until(enough, seconds, "frames", interval=0.005)
        except Timeout:
            return False


@cache
def _serves_thrift(bmv2: Path) -> bool:
    """Returns whether this BMv2 was built with Thrift. If so, it needs a Thrift port."""
    done = subprocess.run([str(bmv2), "--help"], capture_output=True, text=True, check=False)
    return "--thrift-port" in done.stdout + done.stderr


def _free_port() -> int:
    """Returns a port that no socket uses, outside of the kernel's range of ephemeral ports.

    The port is random, so that tests that run at the same time rarely choose the same one.
    """
    while True:
        port = random.randrange(*_PORT_RANGE)
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        return port

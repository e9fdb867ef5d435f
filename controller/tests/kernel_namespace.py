# SPDX-License-Identifier: Apache-2.0
"""Creates a network namespace for the thread of a test, and TAPs in this namespace.

Child processes and sockets that the thread creates belong to the namespace, and so does its view of
/proc/sys/net. Needs root.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import select
import socket
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
IFF_TAP, IFF_NO_PI = 0x0002, 0x1000
DEADLINE = 10.0

T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


def _call(name: str, *arguments: int) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        raise OSError(ctypes.get_errno(), name)


@contextmanager
def network_namespace() -> Iterator[None]:
    """Moves the calling thread into a new namespace, in which `lo` is up. Moves it back when the
    context ends.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        _call("unshare", CLONE_NEWNET)
        ip("link set lo up")
        yield
    finally:
        _call("setns", home, CLONE_NEWNET)
        os.close(home)


def ip(command: str, *, lines: str | None = None) -> None:
    """Runs `ip` in the namespace; `lines` are fed to `ip -batch -`."""
    subprocess.run(["ip", *command.split()], check=True, input=lines, text=True)


def ip_shows(command: str) -> str:
    """Runs `ip` in the namespace and returns its output."""
    return subprocess.run(
        ["ip", *command.split()], check=True, capture_output=True, text=True
    ).stdout


def set_sysctl(path: str, value: str) -> None:
    """Writes a value to the sysctl `path` below /proc/sys/net."""
    Path("/proc/sys/net", path).write_text(value)


def sysctl(path: str) -> str:
    return Path("/proc/sys/net", path).read_text().strip()


class Tap:
    """Creates a TAP. The test acts as the far end of the wire: it sends and receives frames."""

    def __init__(self, name: str, mac: str = "02:00:00:00:01:01") -> None:
        self._file = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI)
        fcntl.ioctl(self._file, TUNSETIFF, request)
        self.name = name
        ip(f"link set {name} address {mac}")
        self.ifindex = socket.if_nametoindex(name)

    def fileno(self) -> int:
        return self._file

    def write(self, frame: bytes) -> None:
        os.write(self._file, frame)

    def read(self, wanted: Callable[[bytes], bool], deadline: float = DEADLINE) -> bytes:
        """Returns the first frame of the host that `wanted` accepts. Discards the frames before it.

        Raises TimeoutError at the deadline.
        """
        end = time.monotonic() + deadline
        while (left := end - time.monotonic()) > 0:
            if select.select([self._file], [], [], left)[0]:
                frame = os.read(self._file, 1 << 16)
                if wanted(frame):
                    return frame
        raise TimeoutError(f"{self.name} sent no such frame within {deadline} s")

    def drain(self) -> list[bytes]:
        """Returns the frames that the host has sent and that were not read yet."""
        frames = []
        while select.select([self._file], [], [], 0)[0]:
            frames.append(os.read(self._file, 1 << 16))
        return frames

    def close(self) -> None:
        os.close(self._file)


class Source(Protocol[T]):
    def fileno(self) -> int: ...
    def poll(self, limit: int) -> list[T]: ...


def poll_until(
    source: Source[T], done: Callable[[list[T]], object], deadline: float = DEADLINE
) -> list[T]:
    """Polls `source` until `done` is true for the list of all its events. Returns the list."""
    events: list[T] = []
    end = time.monotonic() + deadline
    while True:
        while batch := source.poll(64):
            events += batch
        if done(events):
            return events
        left = end - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"not within {deadline} s; events: {events[-20:]}")
        select.select([source], [], [], left)

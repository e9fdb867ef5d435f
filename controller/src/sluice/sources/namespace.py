# SPDX-License-Identifier: Apache-2.0
"""Runs functions in named network namespaces (those of `ip netns`).

Entering a namespace needs CAP_SYS_ADMIN, which the controller drops before it serves requests. So
each namespace has its own thread. The thread enters the namespace at the start, drops its
privileges, and stays inside. `call` runs a function in this thread. Everything that the function
opens belongs to the namespace: sockets, files of /dev/net/tun and /proc/sys/net, child processes.
Linux only (setns(2), network_namespaces(7)).
"""

from __future__ import annotations

import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import ParamSpec, TypeVar

from sluice import privileges
from sluice.sources.links import ask
from sluice.wire.netlink import NLM_F_ACK
from sluice.wire.rtnetlink import IFF_UP, IFINFOMSG, RTM_NEWLINK

DIRECTORY = Path("/run/netns")
"""Directory of the named network namespaces of `ip netns`. FRR's option `-N NAME` uses it too."""
CLONE_NEWNET = 0x40000000
MS_BIND, MS_REC, MS_SHARED = 0x1000, 0x4000, 1 << 20
MNT_DETACH = 2
SO_NETNS_COOKIE = 71
LOOPBACK = 1
"""Index of `lo` in each namespace."""

P = ParamSpec("P")
T = TypeVar("T")
_libc = ctypes.CDLL(None, use_errno=True)


class NetworkNamespace:
    """Represents a named network namespace until `close`. `made`: this object created the
    namespace."""

    def __init__(self, name: str, directory: Path = DIRECTORY) -> None:
        """Enters the namespace, and creates it if it does not exist. Raises OSError."""
        self.name = name
        self.path = directory / name
        self._executor = ThreadPoolExecutor(1, thread_name_prefix=f"netns-{name}")
        self._thread = 0
        self.made = False
        try:
            self._executor.submit(self._enter).result()
        except OSError as error:
            self._executor.shutdown()
            reason = error.strerror or str(error)
            raise OSError(error.errno, f"network namespace {name}: {reason}") from error

    def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Runs a function in the namespace. Returns its result or raises its exception."""
        if threading.get_ident() == self._thread:
            return function(*args, **kwargs)
        return self._executor.submit(function, *args, **kwargs).result()

    @property
    def cookie(self) -> int | None:
        """Number of the namespace, unique until the next boot. None before Linux 5.14."""
        return self.call(_cookie)

    def is_own(self) -> bool:
        """Returns whether the process itself runs in this namespace."""
        inside = self.call(Path("/proc/thread-self/ns/net").stat)
        return os.path.samestat(inside, Path("/proc/self/ns/net").stat())

    def remove(self) -> None:
        """Removes the name of the namespace. The namespace itself ends when its last process and
        socket are gone. Raises OSError."""
        _call("umount2", str(self.path).encode(), MNT_DETACH)
        self.path.unlink()

    def close(self) -> None:
        """Ends the thread."""
        self._executor.shutdown()

    def _enter(self) -> None:
        if self.path.exists():
            file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                _call("setns", file, CLONE_NEWNET)
            finally:
                os.close(file)
        else:
            self._make()
        self._thread = threading.get_ident()
        # `lo` must be up, because FPM uses 127.0.0.1.
        body = IFINFOMSG.pack(0, 0, 0, LOOPBACK, IFF_UP, IFF_UP)
        ask(RTM_NEWLINK, NLM_F_ACK, body, "lo")

    def _make(self) -> None:
        """Creates the namespace, and moves this thread into it.

        Bind-mounts the namespace at `path` below a shared mount, as ip-netns(8) does, so that other
        mount namespaces see the name too.
        """
        directory = self.path.parent
        directory.mkdir(mode=0o755, parents=True, exist_ok=True)
        where = str(directory).encode()
        try:
            _call("mount", b"", where, b"none", MS_SHARED | MS_REC, None)
        except OSError as error:
            if error.errno != errno.EINVAL:  # EINVAL: not a mount point yet
                raise
            _call("mount", where, where, b"none", MS_BIND | MS_REC, None)
            _call("mount", b"", where, b"none", MS_SHARED | MS_REC, None)
        os.close(os.open(self.path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0))
        try:
            _call("unshare", CLONE_NEWNET)
            source = b"/proc/thread-self/ns/net"
            _call("mount", source, str(self.path).encode(), b"none", MS_BIND, None)
        except OSError:
            self.path.unlink()
            raise
        self.made = True

    def give_up_privileges(self) -> None:
        """Drops the thread's privileges, except those that the process keeps."""
        self.call(privileges.give_up)


def _cookie() -> int | None:
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as opened,
        suppress(OSError),
    ):
        value = opened.getsockopt(socket.SOL_SOCKET, SO_NETNS_COOKIE, 8)
        return int.from_bytes(value, "little")
    return None


def _call(name: str, *arguments: object) -> None:
    if getattr(_libc, name)(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{name}: {os.strerror(number)}")

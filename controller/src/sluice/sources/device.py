# SPDX-License-Identifier: Apache-2.0
"""Network devices, asked about directly (netdevice(7)), and which controller has which.

A claim is a locked file in a directory that only its owner may enter: an abstract socket's name,
which was used before, could be taken by any local user, and then no controller started.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from sluice.sources.handover import CLAIMS, holder
from sluice.sources.links import owner_of, queues_of, remove
from sluice.sources.queues import IFREQ
from sluice.sources.silence import silence

CLONE_DEVICE = "/dev/net/tun"
TUNSETIFF, TUNSETOWNER = 0x400454CA, 0x400454CC
IFF_TAP, IFF_MULTI_QUEUE, IFF_NO_PI = 0x0002, 0x0100, 0x1000
SIOCGIFFLAGS = 0x8913
MAKINGS = 20
"""How often a TAP is made again because somebody else had opened it at once."""
CLOSING_SECONDS = 5.0
"""How long TAPs are waited for, until the last controller's queues are the keeper's alone."""
IFF_UP, IFF_RUNNING = 0x1, 0x40


class Devices:
    """The network devices of the namespace that the process is in, by name."""

    def __init__(self, claims: Path = CLAIMS) -> None:
        self._directory = claims
        self._closing_until = time.monotonic() + CLOSING_SECONDS
        self._claims: dict[str, tuple[Path, int]] = {}

    def claim(self, name: str) -> None:
        """Claims a device for this process, until `release`, `close`, or the process ends.

        Several processes may open one TAP; two controllers must not. Raises OSError: EBUSY when
        another controller has claimed it, EPERM when other users could.
        """
        _make_private(self._directory)
        path = self._directory / f"{_namespace()}-{name}"
        while True:
            file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(file)
                message = "another controller has this interface"
                raise OSError(errno.EBUSY, message, name) from error
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), path.stat()):
                    break
            os.close(file)  # its owner removed it meanwhile
        self._claims[name] = path, file

    def release(self, name: str) -> None:
        """Gives up a claim."""
        path, file = self._claims.pop(name)
        path.unlink(missing_ok=True)
        os.close(file)

    def close(self) -> None:
        """Gives up all claims."""
        for name in list(self._claims):
            self.release(name)

    @contextmanager
    def reserved(self, name: str) -> Iterator[int]:
        """Makes the TAP, or opens one that is there, and lets this user alone open it from now on.
        Gives the descriptor of a queue of it, which is closed in the end.

        Without an owner every local user may, where /dev/net/tun is open to all: a queue of it
        reads what the host sends, and speaks to the host in the switch's place, for as long as the
        TAP lives. One system call makes a TAP and the next gives it its owner; the number of queues
        tells whether somebody opened one in between, and then the TAP is removed and made again.
        Inside, the TAP stays; raises OSError.
        """
        for _ in range(MAKINGS):
            was_there = _exists(name)
            queue = _open_queue(name)
            try:
                if _is_ours(name, was_there, self._directory, self._closing_until):
                    yield queue
                    return
                remove(name)
            finally:
                os.close(queue)
        message = "another user opens it whenever it is made; give /dev/net/tun mode 0600"
        raise OSError(errno.EBUSY, message, name)

    def silence(self, name: str) -> None:
        """See sources.silence."""
        silence(name)

    def has_carrier(self, name: str) -> bool:
        """Whether a device of this name is there, up, and has a carrier."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            try:
                answer = fcntl.ioctl(control, SIOCGIFFLAGS, IFREQ.pack(name.encode(), 0))
            except OSError:  # ENODEV: not there yet
                return False
        flags: int = IFREQ.unpack(answer)[1]
        return flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING


def _open_queue(name: str) -> int:
    """A queue of the TAP, which belongs to this user from then on. Raises OSError."""
    queue = os.open(CLONE_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE
        fcntl.ioctl(queue, TUNSETIFF, IFREQ.pack(name.encode(), flags))
        # The kernel looks at its whole IPv6 FIB when it is told, even of the same owner.
        if owner_of(name) != os.geteuid():
            fcntl.ioctl(queue, TUNSETOWNER, os.geteuid())
    except OSError:
        os.close(queue)
        raise
    return queue


def _is_ours(name: str, was_there: bool, claims: Path, until: float) -> bool:
    """Whether nobody has a queue but this process and, of a TAP that was there, its keepers: one
    of each controller that ended within the grace. That of the one that stands in, by its lock, is
    attached, all others are not.

    The keeper of a controller that was killed may take a moment to do either, which it has until
    `until` (monotonic).
    """
    while True:
        attached, detached = queues_of(name)
        if attached == 1 and (was_there or not detached):
            return True
        if attached == 2 and was_there and holder(name, claims) is not None:
            return True
        if not was_there or time.monotonic() >= until:
            return False
        time.sleep(0.01)


def _exists(name: str) -> bool:
    try:
        socket.if_nametoindex(name)
    except OSError:
        return False
    return True


def _namespace() -> int:
    """The number of the calling thread's network namespace, unique while it exists."""
    return Path("/proc/thread-self/ns/net").stat().st_ino


def _make_private(directory: Path) -> None:
    """A directory of mode 0700 that is ours. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = directory.stat()
    if found.st_uid not in (0, os.geteuid()):
        message = f"belongs to user {found.st_uid}, who could keep interfaces from us; remove it"
        raise OSError(errno.EPERM, message, str(directory))
    if stat.S_IMODE(found.st_mode) & 0o077:
        directory.chmod(0o700)

# SPDX-License-Identifier: Apache-2.0
"""Creates and inspects network devices by name (netdevice(7)), and claims them for a controller.

A claim is a locked file in a directory that only the directory's owner may enter. An abstract
socket would not do as a claim: any local user could bind its name, and so prevent the start of a
controller.
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
from sluice.sources.interface_settings import configure_interface
from sluice.sources.links import owner_of, queues_of, remove
from sluice.sources.queues import IFREQ

CLONE_DEVICE = "/dev/net/tun"
TUNSETIFF, TUNSETOWNER = 0x400454CA, 0x400454CC
IFF_TAP, IFF_MULTI_QUEUE, IFF_NO_PI = 0x0002, 0x0100, 0x1000
SIOCGIFFLAGS = 0x8913
MAKINGS = 20
"""Maximum number of attempts to create a TAP. An attempt fails if another user opens the TAP before
its owner is set."""
CLOSING_SECONDS = 5.0
"""Time after which queues of an existing TAP may belong only to keepers, in seconds. Until then, a
killed controller's keeper may still have its queue attached."""
IFF_UP, IFF_RUNNING = 0x1, 0x40


class Devices:
    """Creates, inspects and claims the network devices of the process's namespace, by name."""

    def __init__(self, claims: Path = CLAIMS) -> None:
        self._directory = claims
        self._closing_until = time.monotonic() + CLOSING_SECONDS
        self._claims: dict[str, tuple[Path, int]] = {}

    def claim(self, name: str) -> None:
        """Claims a device for this process until `release`, `close` or the end of the process.

        Several processes may open one TAP, but two controllers must not. Raises OSError: EBUSY if
        another controller has claimed the device, EPERM if other users could claim devices in the
        directory.
        """
        directory = _open_private(self._directory)
        try:
            self._claims[name] = self._claim_in(directory, name)
        finally:
            os.close(directory)

    def _claim_in(self, directory: int, name: str) -> tuple[Path, int]:
        """Returns the path of a claim, and the descriptor of its locked file."""
        path = self._directory / f"{_namespace()}-{name}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        while True:
            file = os.open(path.name, flags, 0o600, dir_fd=directory)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                os.close(file)
                message = "another controller has this interface"
                raise OSError(errno.EBUSY, message, name) from error
            with suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(file), os.stat(path.name, dir_fd=directory)):
                    return path, file
            os.close(file)  # the previous owner removed the file meanwhile

    def release(self, name: str) -> None:
        """Releases a claim."""
        path, file = self._claims.pop(name)
        path.unlink(missing_ok=True)
        os.close(file)

    def close(self) -> None:
        """Releases all claims."""
        for name in list(self._claims):
            self.release(name)

    @contextmanager
    def reserved(self, name: str) -> Iterator[int]:
        """Creates the TAP or opens an existing one. Makes this process's user the only user of the
        TAP.

        Yields the descriptor of one of the TAP's queues, and closes it at the end of the block. The
        TAP exists at least until then. Raises OSError.

        If /dev/net/tun is open to all, every local user can open a queue of a TAP that has no
        owner. The user could then read the host's packets and send packets to the host, as long as
        the TAP exists. One system call creates the TAP, and the next one sets its owner. If another
        user opens a queue between the two calls, the TAP has one queue too many. Then the TAP is
        removed and created again.
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
        message = "another user opens it each time it is created; give /dev/net/tun mode 0600"
        raise OSError(errno.EBUSY, message, name)

    def configure_interface(self, name: str) -> None:
        """Applies `interface_settings.configure_interface` to a device."""
        configure_interface(name)

    def has_carrier(self, name: str) -> bool:
        """Returns whether a device of this name exists, is up, and has a carrier."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
            try:
                answer = fcntl.ioctl(control, SIOCGIFFLAGS, IFREQ.pack(name.encode(), 0))
            except OSError:  # ENODEV: the device does not exist yet
                return False
        flags: int = IFREQ.unpack(answer)[1]
        return flags & (IFF_UP | IFF_RUNNING) == IFF_UP | IFF_RUNNING


def _open_queue(name: str) -> int:
    """Opens a queue of the TAP and makes this user the TAP's owner. Raises OSError."""
    queue = os.open(CLONE_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    try:
        flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE
        fcntl.ioctl(queue, TUNSETIFF, IFREQ.pack(name.encode(), flags))
        # TUNSETOWNER is called only if needed, because on each call the kernel walks its whole IPv6
        # FIB.
        if owner_of(name) != os.geteuid():
            fcntl.ioctl(queue, TUNSETOWNER, os.geteuid())
    except OSError:
        os.close(queue)
        raise
    return queue


def _is_ours(name: str, was_there: bool, claims: Path, until: float) -> bool:
    """Returns whether all queues of the TAP belong to this process and to keepers (`tap_keeper`).

    Keepers have queues only if the TAP existed before. There is one keeper for each controller that
    ended within the grace period. A keeper detaches its queue, or forwards packets as a stand-in
    and holds the stand-in lock. If the controller was killed just before, its keeper may have done
    neither yet. So this function waits for the keeper, but not longer than `until` (monotonic
    clock).
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
    """Returns the inode number of the calling thread's network namespace.

    The number is unique while the namespace exists.
    """
    return Path("/proc/thread-self/ns/net").stat().st_ino


def _open_private(directory: Path) -> int:
    """Creates the directory, or checks that this user or root owns it. Sets mode 0700.

    Returns a descriptor of the directory. Follows no symbolic link, because another user may own
    the directory above. Raises OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        found = os.fstat(file)
        if found.st_uid not in (0, os.geteuid()):
            message = f"belongs to user {found.st_uid}, who could claim interfaces in it; remove it"
            raise OSError(errno.EPERM, message, str(directory))
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(file, 0o700)
    except OSError:
        os.close(file)
        raise
    return file

# SPDX-License-Identifier: Apache-2.0
"""Keeps the host interfaces, with their carrier, while the controller is away.

A TAP loses its carrier the moment its last queue is closed, even a persistent one; FRR then takes
the link for dead, and its BGP sessions go. So a small process of its own holds a second, disabled
queue of every TAP. When the controller ends, however it ends, the keeper stays for GRACE_SECONDS: a
controller that is started meanwhile finds the interfaces, their addresses and neighbours as they
were. Otherwise the keeper ends and the TAPs disappear with it.

Meanwhile it carries the router's own packets between switch and TAPs, if the controller has left
tables for that (`stand_in`, `handover`). One that ends by itself leaves none.

It inherits the socket that owns the rule on IKE's ports (sources.ike_ports), so that the rule stays
as long as the TAPs.

The TAPs must be of IFF_MULTI_QUEUE (Documentation/networking/tuntap.rst), as native ones are.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from struct import Struct

from sluice.sources.handover import Handover, left_in

GRACE_SECONDS = 20.0

CLONE_DEVICE = "/dev/net/tun"
TUNSETIFF, TUNSETQUEUE = 0x400454CA, 0x400454D9
IFF_TAP, IFF_MULTI_QUEUE, IFF_DETACH_QUEUE, IFF_NO_PI = 0x0002, 0x0100, 0x0400, 0x1000
# struct ifreq: name, flags, the rest of the union
IFREQ = Struct("=16sH22x")
# In the keeper: standard input is the lifeline, and this what the controller leaves.
HANDED_OVER = 3


class TapKeeper:
    """The controller's side: the keeper lives as long as this is not closed, and then the grace."""

    def __init__(self, lifeline: int, status: int, pid: int) -> None:
        self._lifeline = lifeline
        self._status: int | None = status
        self.pid = pid

    @classmethod
    def start(
        cls,
        names: Sequence[str],
        grace: float = GRACE_SECONDS,
        handover: Handover | None = None,
    ) -> TapKeeper:
        """Starts the keeper of existing TAPs, which stands in by what is left in `handover`.

        Raises OSError when it cannot hold them.
        """
        keeper = cls.launch(grace, handover)
        try:
            keeper.hold(names)
        except OSError:
            keeper.close()
            raise
        return keeper

    @classmethod
    def launch(cls, grace: float = GRACE_SECONDS, handover: Handover | None = None) -> TapKeeper:
        """Starts a keeper that holds nothing yet, and does not wait for its interpreter: the TAPs
        can be made meanwhile. Raises OSError.
        """
        left = os.memfd_create("nothing") if handover is None else handover.file
        lifeline_read, lifeline = os.pipe()
        status, status_write = os.pipe()
        try:
            pid = os.posix_spawn(
                sys.executable,
                # -P: nothing is imported from the directory that the controller was started in.
                [sys.executable, "-P", "-m", __name__, str(grace)],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, lifeline_read, 0),
                    (os.POSIX_SPAWN_DUP2, status_write, 1),
                    (os.POSIX_SPAWN_OPEN, 2, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, left, HANDED_OVER),
                ],
                # Whoever kills the controller's process group does not mean the keeper.
                setsid=True,
            )
        except OSError:
            os.close(lifeline)
            os.close(status)
            raise
        finally:
            os.close(lifeline_read)
            os.close(status_write)
            if handover is None:
                os.close(left)
        return cls(lifeline, status, pid)

    def hold(self, names: Sequence[str]) -> None:
        """Has the keeper hold existing TAPs, once, and waits until it does. Raises OSError."""
        if self._status is None:
            raise ValueError("the keeper holds its TAPs already")
        status, self._status = self._status, None
        with os.fdopen(status) as file:
            # One that has died reads nothing, and says nothing below.
            with suppress(BrokenPipeError):
                os.write(self._lifeline, f"{' '.join(names)}\n".encode())
            problem = file.read().strip()
        if problem != "ready":
            raise OSError(f"the keeper of the host interfaces: {problem or 'it did not start'}")

    def close(self) -> None:
        """Lets go; the keeper ends after its grace, or at once where it holds nothing."""
        os.close(self._lifeline)
        if self._status is not None:
            os.close(self._status)
            self._status = None


def hold(name: str) -> int:
    """A disabled queue of the TAP `name`, as a file descriptor."""
    queue = os.open(CLONE_DEVICE, os.O_RDWR | os.O_CLOEXEC)
    flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE
    fcntl.ioctl(queue, TUNSETIFF, IFREQ.pack(name.encode(), flags))
    fcntl.ioctl(queue, TUNSETQUEUE, IFREQ.pack(b"", IFF_DETACH_QUEUE))
    return queue


def main(grace: float) -> int:
    """The keeper's side. Reads the TAPs' names, says "ready", waits for the end of its standard
    input, then the grace, in which it stands in."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with open(0, "rb", buffering=0, closefd=False) as lifeline:
        line = lifeline.readline()
    if not line.endswith(b"\n"):  # the controller ended, or could not make the TAPs
        return 0
    names = line.decode().split()
    try:
        for name in names:
            hold(name)
    except OSError as error:
        print(f"{name}: {error}", flush=True)
        return 1
    print("ready", flush=True)
    os.dup2(2, 1)  # whoever reads the status sees its end
    # Now, and not when it is urgent; and not before the controller goes on.
    from sluice.sources.stand_in import stand_in  # noqa: PLC0415

    os.read(0, 1)
    until = time.monotonic() + grace
    tables = left_in(HANDED_OVER)
    if tables is not None:
        with suppress(Exception):  # whatever it is, the TAPs are kept all the same
            stand_in(tables, names, until)
    time.sleep(max(0.0, until - time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

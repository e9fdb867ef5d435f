# SPDX-License-Identifier: Apache-2.0
"""Keeps the host interfaces, with their carrier, while the controller is away.

A TAP loses its carrier the moment its last queue is closed, even a persistent one; FRR then takes
the link for dead, and its BGP sessions go. So a small process of its own has the controller's queue
of every TAP open, too. When the controller ends, however it ends, the keeper stays for
GRACE_SECONDS: a controller that is started meanwhile finds the interfaces, their addresses and
neighbours as they were. Otherwise the keeper ends and the TAPs disappear with it.

Meanwhile it carries the router's own packets between switch and TAPs, if the controller has left
tables for that (`stand_in`, `handover`). One that ends by itself leaves none. Then, and when it has
stood in, the keeper detaches its queues: those of the next controller get all that the host sends.

The queue is shared, and not one of the keeper's own, because the kernel tells of each queue that is
opened, attached, detached or closed, and walks its whole IPv6 FIB each time.

It inherits the socket that owns the rule on IKE's ports (sources.ike_ports), so that the rule stays
as long as the TAPs.

The TAPs must be of IFF_MULTI_QUEUE (Documentation/networking/tuntap.rst), as native ones are.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING

from sluice.sources.handover import Handover, left_in
from sluice.sources.queues import detach, receive, send

if TYPE_CHECKING:
    import asyncio

GRACE_SECONDS = 20.0

# In the keeper: standard input is the lifeline, and this what the controller leaves.
HANDED_OVER = 3

_let_go: set[int] = set()
"""Keepers of this process that end by themselves, and have to be reaped."""


class TapKeeper:
    """The controller's side: the keeper lives as long as this is not closed, and then the grace."""

    def __init__(self, lifeline: socket.socket, pid: int) -> None:
        self._lifeline = lifeline
        self._watching: asyncio.AbstractEventLoop | None = None
        self.pid = pid

    @classmethod
    def launch(cls, grace: float = GRACE_SECONDS, handover: Handover | None = None) -> TapKeeper:
        """Starts a keeper that holds nothing yet, and does not wait for its interpreter. Raises
        OSError.
        """
        reap()
        left = os.memfd_create("nothing") if handover is None else handover.file
        lifeline, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.posix_spawn(
                sys.executable,
                # -P: nothing is imported from the directory that the controller was started in.
                [sys.executable, "-P", "-m", __name__, str(grace)],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, end.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, left, HANDED_OVER),
                ],
                # Whoever kills the controller's process group does not mean the keeper.
                setsid=True,
            )
        except OSError:
            lifeline.close()
            raise
        finally:
            end.close()
            if handover is None:
                os.close(left)
        return cls(lifeline, pid)

    def hold(self, queues: Mapping[str, int]) -> None:
        """Gives the keeper descriptors of queues, by the names of their TAPs, once. They are kept
        from then on: in the socket, until the keeper's interpreter has started. Raises OSError
        where the keeper has died.
        """
        send(self._lifeline, queues)

    def watch(self, on_end: Callable[[], None]) -> None:
        """Calls `on_end` once, from the running event loop, if the keeper ends before `close`."""
        import asyncio  # noqa: PLC0415 - the keeper itself has no loop, and stays small

        loop = asyncio.get_running_loop()

        def ended() -> None:
            loop.remove_reader(self._lifeline)
            on_end()

        loop.add_reader(self._lifeline, ended)
        self._watching = loop

    def close(self) -> None:
        """Lets go; the keeper ends after its grace, or at once where it holds nothing."""
        if self._watching is not None:
            self._watching.remove_reader(self._lifeline)
            self._watching = None
        self._lifeline.close()
        _let_go.add(self.pid)


def reap() -> None:
    """Reaps the keepers that were let go and have ended."""
    for pid in list(_let_go):
        with suppress(ChildProcessError):  # somebody else has
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _let_go.discard(pid)


def main(grace: float) -> int:
    """The keeper's side. Receives the queues, waits for the end of its standard input, then the
    grace, in which it stands in."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lifeline = socket.socket(fileno=0)
    queues = receive(lifeline)
    if queues is None:
        return 0
    module = None
    with suppress(Exception):  # whatever it is, the TAPs are kept all the same
        # Now, and not when it is urgent.
        module = import_module("sluice.sources.stand_in")
    lifeline.recv(1)
    until = time.monotonic() + grace
    tables = left_in(HANDED_OVER)
    if tables is not None and module is not None:
        with suppress(Exception):
            module.stand_in(tables, queues, until)
    detach(queues.values())
    time.sleep(max(0.0, until - time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

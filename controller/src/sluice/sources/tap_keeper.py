# SPDX-License-Identifier: Apache-2.0
"""Keeps the host interfaces and their carrier while the controller is absent.

A TAP, even a persistent one, loses its carrier when its last queue is closed. FRR then considers
the link down and drops its BGP sessions. So a small separate process, the **keeper**, also holds
the controller's queue of every TAP open. When the controller ends for any reason, the keeper stays
for GRACE_SECONDS (the grace period). A controller that starts in this time finds the interfaces
with their addresses and neighbours. If none starts, the keeper ends, and the TAPs disappear.

During the grace period, the keeper forwards the router's own packets between switch and TAPs if the
controller has left tables for that (`stand_in`, `handover`). A controller that ends by itself
leaves no tables. If the keeper does not forward, or stops forwarding, it detaches its queues. Then
the queues of the next controller receive all frames of the host.

The keeper shares the controller's queue instead of opening another one. Each time a queue is
opened, attached, detached or closed, the kernel sends a notification and walks its whole IPv6 FIB.

The keeper inherits the socket that owns the netfilter rule for IKE's ports (sources.ike_ports). So
the rule exists as long as the TAPs.

The TAPs need IFF_MULTI_QUEUE (Documentation/networking/tuntap.rst). `TapSet` creates them with it.
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

from sluice.sources.handover import Handover, tables_in
from sluice.sources.queues import detach, receive, send

if TYPE_CHECKING:
    import asyncio

GRACE_SECONDS = 20.0

# File descriptor of the handover memory in the keeper. The keeper's standard input is a socket that
# shows its end when the controller has ended.
HANDED_OVER = 3

_let_go: set[int] = set()
"""Released keepers of this process. They end by themselves and must be reaped."""


class TapKeeper:
    """Controls the keeper process. The keeper runs until `close`, and then for the grace period."""

    def __init__(self, lifeline: socket.socket, pid: int) -> None:
        self._lifeline = lifeline
        self._watching: asyncio.AbstractEventLoop | None = None
        self.pid = pid

    @classmethod
    def launch(cls, grace: float = GRACE_SECONDS, handover: Handover | None = None) -> TapKeeper:
        """Starts a keeper without queues. Returns before it runs. Raises OSError."""
        reap()
        left = os.memfd_create("nothing") if handover is None else handover.file
        lifeline, end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            pid = os.posix_spawn(
                sys.executable,
                # -P: imports nothing from the controller's working directory.
                [sys.executable, "-P", "-m", __name__, str(grace)],
                os.environ,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, end.fileno(), 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                    (os.POSIX_SPAWN_DUP2, left, HANDED_OVER),
                ],
                # A signal to the controller's process group must not reach the keeper.
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
        """Sends descriptors of queues and the names of their TAPs to the keeper. Call it once.

        The queues stay open from this call on: the descriptors wait in the socket until the
        keeper's interpreter has started. Raises OSError if the keeper has died.
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
        """Releases the keeper, which ends after its grace period, or at once if it has no
        queues."""
        if self._watching is not None:
            self._watching.remove_reader(self._lifeline)
            self._watching = None
        self._lifeline.close()
        _let_go.add(self.pid)


def reap() -> None:
    """Reaps released keepers that have ended."""
    for pid in list(_let_go):
        with suppress(ChildProcessError):  # another call has reaped it
            if os.waitpid(pid, os.WNOHANG) == (0, 0):
                continue
        _let_go.discard(pid)


def main(grace: float) -> int:
    """Runs the keeper.

    Receives the queues and waits for the end of standard input, which is the controller's end. Then
    acts as the stand-in until the end of the grace period.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    lifeline = socket.socket(fileno=0)
    queues = receive(lifeline)
    if queues is None:
        return 0
    module = None
    with suppress(Exception):  # without the module, the keeper only keeps the TAPs
        # Imported in advance, so that forwarding starts without delay.
        module = import_module("sluice.sources.stand_in")
    lifeline.recv(1)
    until = time.monotonic() + grace
    tables = tables_in(HANDED_OVER)
    if tables is not None and module is not None:
        with suppress(Exception):
            module.stand_in(tables, queues, until)
    detach(queues.values())
    time.sleep(max(0.0, until - time.monotonic()))
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1])))

# SPDX-License-Identifier: Apache-2.0
"""Delays IKE packets until the SAs that they announce to the peer are in force.

An IKE daemon installs an inbound SA in the kernel and then answers the peer, which may send with
that SA at once (RFC 7296, section 2.8). The engine gets the SA from the kernel later. Without a
delay the first packets could reach the engine before the SA and be dropped as UNKNOWN_SPI. So the
daemon's answer waits until all earlier kernel changes are in force. It waits at most `PATIENCE`
seconds. IKE packets keep their order.

Depends on p4runtime.client (the type of metadata) alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from sluice.p4runtime.client import Metadata

PATIENCE = 1.0
"""Maximum delay of a packet in seconds, below the retransmission timeout of IKE daemons."""
LIMIT = 1024
"""Maximum number of waiting packets. Further packets are dropped, and IKE retransmits them."""


class IkeOrder:
    """Queues IKE packets of the host. Passes each to `send` after `caught_up` has returned."""

    def __init__(
        self,
        caught_up: Callable[[], Awaitable[None]],
        send: Callable[[list[tuple[bytes, Metadata]]], None],
    ) -> None:
        self._caught_up = caught_up
        self._send = send
        self._waiting: deque[tuple[bytes, Metadata]] = deque()
        self._arrived = asyncio.Event()
        self.counters: Counter[str] = Counter()

    def submit(self, frame: bytes, metadata: Metadata) -> None:
        """Enqueues an IKE packet of the host. Drops it if `LIMIT` packets are waiting."""
        if len(self._waiting) >= LIMIT:
            self.counters["dropped: too many IKE packets wait"] += 1
            return
        self._waiting.append((frame, metadata))
        self._arrived.set()

    async def run(self) -> None:
        """Sends the queued packets until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            number = len(self._waiting)  # packets that arrive meanwhile may announce later SAs
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._caught_up()
            except TimeoutError:
                self.counters["IKE packets sent before their SAs were in force"] += number
            self._send([self._waiting.popleft() for _ in range(number)])
            if self._waiting:
                self._arrived.set()

# SPDX-License-Identifier: Apache-2.0
"""IKE packets that leave only when the SAs that they tell the peer of are in force.

An IKE daemon gives the kernel an inbound SA and then answers the peer, which may send by that SA at
once (RFC 7296, section 2.8). The engine learns of the SA from the kernel, so without this order the
first packets could reach it too early and be dropped as UNKNOWN_SPI. The daemon's answer passes
through here: it waits until what the kernel was given before it is in force, at most `PATIENCE`
seconds, and IKE packets keep their order.

Depends on p4runtime.client (the type of metadata) alone.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable

from sluice.p4runtime.client import Metadata

PATIENCE = 1.0
"""Seconds that a packet waits: less than IKE daemons wait before they send it again."""
LIMIT = 1024
"""Packets that wait; more are dropped, and IKE sends them again."""


class IkeOrder:
    """Sends IKE packets by `send`, after `caught_up` has come to its end."""

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
        """Takes a packet of the host's."""
        if len(self._waiting) >= LIMIT:
            self.counters["dropped: too many IKE packets wait"] += 1
            return
        self._waiting.append((frame, metadata))
        self._arrived.set()

    async def run(self) -> None:
        """Sends until cancelled."""
        while True:
            await self._arrived.wait()
            self._arrived.clear()
            number = len(self._waiting)  # those that come meanwhile may tell of later SAs
            try:
                async with asyncio.timeout(PATIENCE):
                    await self._caught_up()
            except TimeoutError:
                self.counters["IKE packets sent before their SAs were in force"] += number
            self._send([self._waiting.popleft() for _ in range(number)])
            if self._waiting:
                self._arrived.set()

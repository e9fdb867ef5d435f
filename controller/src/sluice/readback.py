# SPDX-License-Identifier: Apache-2.0
"""Reading what a switch holds, and closing what means something else by now.

Depends on entities, inventory, p4 and p4runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from google.protobuf.message import DecodeError

from sluice.entities import RETIRED, Key, Kind, Value
from sluice.inventory import Inventory
from sluice.p4.codec import Codec
from sluice.p4messages import p4r
from sluice.p4runtime.messages import Operation
from sluice.p4runtime.session import INTERNAL, NOT_FOUND, P4RuntimeError, Status
from sluice.state.takeover import Closing

BATCH = 512
"""Updates in one write, about 1.5 ms of encoding."""
SLICE = 2000
"""Entities that are looked at before the loop is let go."""
OK_STATUS = Status((0, ""))


class Writer(Protocol):
    """What is needed of a `Session`."""

    async def write(self, updates: list[bytes], *, atomic: bool = False) -> list[Status]:
        """Statuses by update, or [] when all were applied."""

    def read_parts(self, entities: list[p4r.Entity]) -> AsyncIterator[bytes]:
        """Entities in parts, as encoded ReadResponses."""


async def read(
    session: Writer,
    codec: Codec,
    requests: list[p4r.Entity],
    installed: Inventory,
    progressed: Callable[[], None] = lambda: None,
) -> None:
    """Puts what the switch holds of `requests` into `installed`; `progressed` is called whenever
    there is more. Raises P4RuntimeError."""
    async for part in session.read_parts(requests):
        try:
            for decoded in codec.read_part(part, installed.routes):
                found: dict[Kind, list[tuple[Key, Value]]] = {}
                for kind, key, value in decoded:
                    found.setdefault(kind, []).append((key, value))
                for kind, entries in found.items():
                    installed.put(kind, entries)
                progressed()
                await asyncio.sleep(0)
        except DecodeError as error:
            message = f"a ReadResponse that is no protobuf: {error}"
            raise P4RuntimeError(INTERNAL, message) from None


async def close(session: Writer, codec: Codec, closed: Closing, installed: Inventory) -> None:
    """Before anything else is written, in this order, whatever refers to it.

    Each of these updates makes packets drop, so that no order of them lets one pass. Raises
    P4RuntimeError, also where one is refused.
    """
    entries: list[tuple[Kind, Key, Value | None]] = [
        *((Kind.NEXTHOP, identifier, RETIRED) for identifier in closed.retired),
        *((kind, key, None) for kind, key in closed.withdrawn),
    ]
    for start in range(0, len(entries), BATCH):
        batch = entries[start : start + BATCH]
        updates = [
            codec.update(Operation.DELETE if value is None else Operation.MODIFY, kind, key, value)
            for kind, key, value in batch
        ]
        statuses = await session.write(updates) or [OK_STATUS] * len(batch)
        for (kind, key, value), (code, message) in zip(batch, statuses, strict=True):
            if code not in (0, NOT_FOUND):
                raise P4RuntimeError(code, f"{kind.name.lower()} {key}: {message}")
            if value is None or code == NOT_FOUND:
                installed.remove(kind, [key])
            else:
                installed.put(kind, [(key, value)])

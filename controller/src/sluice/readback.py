# SPDX-License-Identifier: Apache-2.0
"""Reads the switch's entities. Closes entities whose meaning has changed, so that they drop
packets.

Depends on entities, inventory, p4 and p4runtime.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Protocol

from google.protobuf.message import DecodeError

from sluice.entities import RETIRED, EntityKey, EntityKind, EntityValue
from sluice.inventory import Inventory
from sluice.p4.codec import Codec
from sluice.p4messages import p4r
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.session import INTERNAL, NOT_FOUND, P4RuntimeError, Status
from sluice.state.takeover import ClosingPlan

BATCH = 512
"""Number of updates in one write. Encoding them takes about 1.5 ms."""
SLICE = 2000
"""Number of entities processed between two yields to the event loop."""
OK_STATUS = Status((0, ""))


class Writer(Protocol):
    """Describes the methods of `Session` that this module and the reconciler use."""

    async def write(self, updates: list[bytes], *, atomic: bool = False) -> list[Status]:
        """Sends a write. Returns a status for each update, or [] if all were applied."""

    def read_parts(self, entities: list[p4r.Entity]) -> AsyncIterator[bytes]:
        """Yields entities in parts, as encoded ReadResponses."""


async def read(
    session: Writer,
    codec: Codec,
    requests: list[p4r.Entity],
    installed: Inventory,
    progressed: Callable[[], None] = lambda: None,
) -> None:
    """Reads the entities of `requests` into `installed`. Calls `progressed` after each part.

    Raises P4RuntimeError.
    """
    async for part in session.read_parts(requests):
        try:
            for decoded in codec.read_part(part, installed.routes):
                found: dict[EntityKind, list[tuple[EntityKey, EntityValue]]] = {}
                for kind, key, value in decoded:
                    found.setdefault(kind, []).append((key, value))
                for kind, entries in found.items():
                    installed.put(kind, entries)
                progressed()
                await asyncio.sleep(0)
        except DecodeError as error:
            message = f"the switch sent a ReadResponse that cannot be decoded: {error}"
            raise P4RuntimeError(INTERNAL, message) from None


async def close(session: Writer, codec: Codec, closed: ClosingPlan, installed: Inventory) -> None:
    """Retires and withdraws the entities named in `closed`, even if other entities refer to them.

    Order: this runs before any other write. Each of these updates makes the switch drop packets, so
    they may come in any order. Raises P4RuntimeError. This includes the refusal of an update.
    """
    entries: list[tuple[EntityKind, EntityKey, EntityValue | None]] = [
        *((EntityKind.NEXTHOP, identifier, RETIRED) for identifier in closed.retired),
        *((kind, key, None) for kind, key in closed.withdrawn),
    ]
    for start in range(0, len(entries), BATCH):
        batch = entries[start : start + BATCH]
        updates = [
            codec.update(
                UpdateType.DELETE if value is None else UpdateType.MODIFY, kind, key, value
            )
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

# SPDX-License-Identifier: Apache-2.0
"""Reads the counters of flows from the switch. Depends on p4.flows and p4runtime."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Protocol

from sluice.p4.counters import Count, Request
from sluice.p4.flows import FlowCodec, FlowSlot
from sluice.p4runtime.session import P4RuntimeError


class CounterReader(Protocol):
    """Declares the method of `Session` that reads entities."""

    def read(self, entities: list[Request]) -> AsyncIterator[Sequence[Request]]:
        """Yields entities in parts."""


async def read_counts(
    session: CounterReader,
    codec: FlowCodec,
    slots: Sequence[FlowSlot],
    is_over: Callable[[], bool],
) -> dict[FlowSlot, Count]:
    """Returns the counts of those flows that the switch holds.

    Raises P4RuntimeError if a read fails and `is_over` says that the session has ended.
    """
    counts: dict[FlowSlot, Count] = {}
    try:
        async for part in session.read([codec.count_request(slot) for slot in slots]):
            counts |= codec.counts(part)
    except P4RuntimeError:
        if is_over():
            raise
        if len(slots) == 1:
            return {}
        # Some targets refuse the whole request if one entry does not exist. So reads the halves.
        half = len(slots) // 2
        counts = await read_counts(session, codec, slots[:half], is_over)
        counts |= await read_counts(session, codec, slots[half:], is_over)
    return counts

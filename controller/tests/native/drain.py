# SPDX-License-Identifier: Apache-2.0
"""Reads all events of an object with `fileno()` and `poll()`.

Waits on the descriptor, as the event loop does.
"""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

Event = TypeVar("Event")
Event_co = TypeVar("Event_co", covariant=True)
DEADLINE = 20.0


class Pollable(Protocol[Event_co]):
    def fileno(self) -> int: ...
    def poll(self, max_events: int, /) -> Sequence[Event_co]: ...


def readable(descriptor: int, seconds: float = 0.0) -> bool:
    """Returns whether the descriptor becomes readable within `seconds`."""
    poller = select.poll()
    poller.register(descriptor, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


class Drain(Generic[Event]):
    """Polls a source of events. Stores the events in order until a test takes them."""

    def __init__(self, source: Pollable[Event], slice_size: int = 256) -> None:
        self.source = source
        self.slice_size = slice_size
        self.kept: list[Event] = []

    def until(self, wanted: Callable[[Event], bool]) -> Event:
        """Waits for the first event that `wanted` accepts, and returns it.

        Removes this event and all earlier ones from the store.
        """
        end = time.monotonic() + DEADLINE
        while True:
            for position, event in enumerate(self.kept):
                if wanted(event):
                    del self.kept[: position + 1]
                    return event
            left = end - time.monotonic()
            assert left > 0, f"not within {DEADLINE} s; had {self.kept!r:.500}"
            if readable(self.source.fileno(), left):
                self.kept.extend(self.source.poll(self.slice_size))

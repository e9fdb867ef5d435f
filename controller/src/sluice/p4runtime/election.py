# SPDX-License-Identifier: Apache-2.0
"""Election ids: which one to ask for, so that nobody can guess it and no live primary is displaced.

Some switches compare only the id of a Write with the primary's. So the low half is random. The high
half says how a session came by it:

- 0: a question. It wins where nobody has been primary yet, and loses to every primary.
- 1: the next id of a question's winner. Others' questions stay below it.
- more: one above the highest that the switch has seen without an owner (`above`), so that a
  restarted controller takes over from its own last life.
"""

from __future__ import annotations

import secrets
from typing import TypeAlias

ElectionId: TypeAlias = tuple[int, int]
"""High and low half, 64 bits each."""

HALF = (1 << 64) - 1
LARGEST: ElectionId = (HALF, HALF)


def question() -> ElectionId:
    """The first id that a session asks with."""
    return (0, _random_after(0))


def is_question(election_id: ElectionId) -> bool:
    """Whether an id only asks, and is to be replaced by its winner."""
    return election_id[0] == 0


def above(seen: ElectionId) -> ElectionId | None:
    """An id above one that was seen; None above the largest."""
    high, low = seen
    if high < HALF:
        return (high + 1, _random_after(0))
    return (high, _random_after(low)) if low < HALF else None


def _random_after(low: int) -> int:
    return low + 1 + secrets.randbelow(HALF - low)

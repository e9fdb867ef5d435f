# SPDX-License-Identifier: Apache-2.0
"""Chooses election ids that cannot be guessed and that do not displace a live primary.

Some switches authorize a Write only by comparing its election id with the primary's. So the id must
be secret, and its low half is random. The high half has one of these values:

- 0: the first id of a session, called a **question**: it asks the switch whether there is a
  primary. A question wins the election only if the switch has not had a primary yet.
- 1: the second id of a session whose question has won. This id is above all questions, so another
  session's question cannot displace the session.
- more than 1: one above the high half of the highest id that the switch has seen. A session uses
  such an id if the session with the highest id has ended (`above`). So a restarted controller takes
  over from its previous process.
"""

from __future__ import annotations

import secrets
from typing import TypeAlias

ElectionId: TypeAlias = tuple[int, int]
"""High and low half, 64 bits each."""

HALF = (1 << 64) - 1
LARGEST: ElectionId = (HALF, HALF)


def question() -> ElectionId:
    """Returns a question: a session's first id, which displaces no primary."""
    return (0, _random_after(0))


def is_question(election_id: ElectionId) -> bool:
    """Returns whether an id is a question. A session whose question wins must take a higher id."""
    return election_id[0] == 0


def above(seen: ElectionId) -> ElectionId | None:
    """Returns an id above `seen`, or None if `seen` is the largest id."""
    high, low = seen
    if high < HALF:
        return (high + 1, _random_after(0))
    return (high, _random_after(low)) if low < HALF else None


def _random_after(low: int) -> int:
    return low + 1 + secrets.randbelow(HALF - low)

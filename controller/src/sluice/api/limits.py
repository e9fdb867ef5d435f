# SPDX-License-Identifier: Apache-2.0
"""Limits of the local API. The server enforces them, the client mentions them in errors.

Standard library only: `sluice show` imports it.
"""

from __future__ import annotations

from typing import NamedTuple

REQUEST_BYTES = 32 << 20
"""Size limit of one request. 65,535 rules with several selectors each take 10 to 25 MB."""


class ServerLimits(NamedTuple):
    """Holds limits of the memory and the work that a server spends on its clients.

    Requests larger than `small_bytes` are received and answered `large_at_once` at a time. So all
    requests together hold at most `large_at_once` x `request_bytes` + `connections` x
    `small_bytes`.
    """

    request_bytes: int = REQUEST_BYTES
    small_bytes: int = 1 << 20
    large_at_once: int = 2
    connections: int = 64
    answered_at_once: int = 8
    patience: float = 30.0
    """Time for a client to send the rest of a large request, or to receive an answer, in
    seconds."""

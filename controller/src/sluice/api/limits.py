# SPDX-License-Identifier: Apache-2.0
"""Defines the limits of the local API. The server enforces them, the client names them in errors.

Imports only the standard library. The `sluice` command imports this module and must start fast.
"""

from __future__ import annotations

from typing import NamedTuple

REQUEST_BYTES = 256 << 20
"""Size limit of one request. 1,048,575 rules with several selectors each take 170 to 230 MB."""


class ServerLimits(NamedTuple):
    """Limits the memory and the work that a server spends on its clients.

    At most `large_at_once` requests of more than `small_bytes` are received and answered at the
    same time. So all requests together occupy at most `large_at_once` x `request_bytes` +
    `connections` x `small_bytes`.
    """

    request_bytes: int = REQUEST_BYTES
    small_bytes: int = 1 << 20
    large_at_once: int = 1
    connections: int = 64
    answered_at_once: int = 8
    patience: float = 30.0
    """Time for a client to send the rest of a large request, or to receive an answer, in
    seconds."""

# SPDX-License-Identifier: Apache-2.0
"""Defines the error that all decoders raise."""

from __future__ import annotations


class WireError(ValueError):
    """Reports invalid bytes.

    `name` identifies the type of error, and is also used as a counter's name
    (``netlink_truncated``). `offset` is the error's position in bytes from the start of the decoded
    data. `detail` is text for operators.
    """

    def __init__(self, name: str, offset: int, detail: str) -> None:
        super().__init__(f"{name} at byte {offset}: {detail}")
        self.name = name
        self.offset = offset
        self.detail = detail

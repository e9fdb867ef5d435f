# SPDX-License-Identifier: Apache-2.0
"""The one error of everything that decodes bytes."""

from __future__ import annotations


class WireError(ValueError):
    """Bytes that cannot be what they claim to be.

    `name` says what is wrong in a form that serves as a counter's name (``netlink_truncated``),
    `offset` where, in bytes from the start of what was decoded, `detail` adds to it for people.
    """

    def __init__(self, name: str, offset: int, detail: str) -> None:
        super().__init__(f"{name} at byte {offset}: {detail}")
        self.name = name
        self.offset = offset
        self.detail = detail

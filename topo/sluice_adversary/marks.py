# SPDX-License-Identifier: Apache-2.0
"""The number of a datagram, written into every eight bytes of its payload.

Fragments are cut at multiples of eight bytes, so a mark survives in each of them that has
eight bytes of payload, and in whatever quotes or echoes them. A check byte keeps other
bytes from passing for a mark.
"""

import struct

MAGIC = b"\xf3\x9a\xd7"
SIZE = 8


def mark(number: int) -> bytes:
    """The eight bytes for a number below 2^32."""
    body = struct.pack("!I", number)
    return MAGIC + body + bytes((_check(body),))


def fill(number: int, length: int, offset: int = 0) -> bytes:
    """`length` bytes of marks, whole ones at multiples of eight if they start at `offset`."""
    lead = -offset % SIZE
    repeated = mark(number) * (length // SIZE + 1)
    return (bytes(min(lead, length)) + repeated)[:length]


def find(data: bytes) -> int | None:
    """The first number in some bytes."""
    at = data.find(MAGIC)
    while at >= 0:
        body = data[at + 3 : at + 7]
        if at + SIZE <= len(data) and data[at + 7] == _check(body):
            return int.from_bytes(body, "big")
        at = data.find(MAGIC, at + 1)
    return None


def _check(body: bytes) -> int:
    return (body[0] ^ body[1] ^ body[2] ^ body[3]) ^ 0x5C

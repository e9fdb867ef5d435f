# SPDX-License-Identifier: Apache-2.0
"""Writes a datagram's number into every eight bytes of its payload.

Fragments are cut at multiples of eight bytes. So every fragment with eight bytes of payload
contains a mark, and so does every packet that quotes or echoes the payload. A mark contains a check
byte, so other bytes are hardly ever taken for a mark.
"""

import struct

MAGIC = b"\xf3\x9a\xd7"
SIZE = 8


def mark(number: int) -> bytes:
    """Returns the mark for a number below 2^32. A mark has eight bytes."""
    body = struct.pack("!I", number)
    return MAGIC + body + bytes((_check(body),))


def fill(number: int, length: int, offset: int = 0) -> bytes:
    """Returns `length` bytes of marks. The result begins at `offset` of the payload; marks begin at
    multiples of eight.
    """
    lead = -offset % SIZE
    repeated = mark(number) * (length // SIZE + 1)
    return (bytes(min(lead, length)) + repeated)[:length]


def find(data: bytes) -> int | None:
    """Returns the number in the first mark that `data` contains, or None."""
    at = data.find(MAGIC)
    while at >= 0:
        body = data[at + 3 : at + 7]
        if at + SIZE <= len(data) and data[at + 7] == _check(body):
            return int.from_bytes(body, "big")
        at = data.find(MAGIC, at + 1)
    return None


def _check(body: bytes) -> int:
    return (body[0] ^ body[1] ^ body[2] ^ body[3]) ^ 0x5C

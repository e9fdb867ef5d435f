# SPDX-License-Identifier: Apache-2.0
"""Decodes and encodes netlink messages and their attributes (RFC 3549, netlink(7)).

`routes` and `rtnetlink` decode the contents of messages. Netlink is in host byte order. This also
holds inside FPM frames, because their sender is on this machine or on one with the same byte order.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

from sluice.wire.errors import WireError

NLMSG_NOOP = 1
NLMSG_ERROR = 2
NLMSG_DONE = 3
NLMSG_OVERRUN = 4

NLM_F_REQUEST = 0x001
NLM_F_ACK = 0x004
NLM_F_DUMP_INTR = 0x010
NLM_F_DUMP = 0x300
NLM_F_REPLACE = 0x100
NLM_F_EXCL = 0x200
NLM_F_CREATE = 0x400
NLM_F_APPEND = 0x800

HEADER = Struct("=IHHII")
ATTRIBUTE = Struct("=HH")
# The two top bits of an attribute's type are NLA_F_NESTED and NLA_F_NET_BYTEORDER.
ATTRIBUTE_TYPE_MASK = 0x3FFF

U8 = Struct("=B")
U16 = Struct("=H")
U32 = Struct("=I")
I32 = Struct("=i")


class Message(NamedTuple):
    """Holds one message. `body` follows the netlink header, `offset` is the header's position."""

    type: int
    flags: int
    sequence: int
    port: int
    body: bytes
    offset: int


def align(length: int) -> int:
    """Rounds `length` up to netlink's alignment of 4."""
    return (length + 3) & ~3


def messages(data: bytes) -> Iterator[Message]:
    """Yields the messages in `data`. Raises WireError at a message with an invalid length."""
    offset, end = 0, len(data)
    while offset < end:
        if end - offset < HEADER.size:
            raise WireError("netlink_truncated", offset, f"{end - offset} bytes of {HEADER.size}")
        length, kind, flags, sequence, port = HEADER.unpack_from(data, offset)
        if length < HEADER.size or length > end - offset:
            raise WireError(
                "netlink_length",
                offset,
                f"message length {length} is not between {HEADER.size} and {end - offset}",
            )
        yield Message(
            kind, flags, sequence, port, data[offset + HEADER.size : offset + length], offset
        )
        offset += align(length)


def attributes(body: bytes, start: int, base: int = 0) -> dict[int, bytes]:
    """Returns the attributes in `body` from `start` on, by type. If a type is repeated, its last
    value counts.

    `base` is added to the offsets in errors. Raises WireError at an invalid length.
    """
    found: dict[int, bytes] = {}
    end = len(body)
    while end - start >= 4:
        length, kind = ATTRIBUTE.unpack_from(body, start)
        if length < 4 or length > end - start:
            raise WireError(
                "attribute_length",
                base + start,
                f"length {length} of attribute {kind & ATTRIBUTE_TYPE_MASK} is not between 4 and"
                f" {end - start}",
            )
        found[kind & ATTRIBUTE_TYPE_MASK] = body[start + 4 : start + length]
        start += (length + 3) & ~3
    if start < end:
        raise WireError("attribute_truncated", base + start, f"{end - start} bytes left over")
    return found


def fixed(value: bytes, what: str, form: Struct, offset: int) -> int:
    """Returns the number in an attribute. Raises WireError unless it has the size of `form`."""
    if len(value) != form.size:
        raise WireError(
            "attribute_size", offset, f"{what} has {len(value)} bytes instead of {form.size}"
        )
    number: int = form.unpack(value)[0]
    return number


def attribute(kind: int, value: bytes) -> bytes:
    """Encodes one attribute, with padding."""
    return ATTRIBUTE.pack(4 + len(value), kind) + value + bytes(-len(value) % 4)


def message(kind: int, flags: int, sequence: int, body: bytes) -> bytes:
    """Encodes one message with port 0, which the kernel replaces by the port of the sender."""
    return HEADER.pack(HEADER.size + len(body), kind, flags, sequence, 0) + body

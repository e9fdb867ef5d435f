# SPDX-License-Identifier: Apache-2.0
"""Tests netlink framing: messages and attributes, and errors that say where a length is invalid."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluice.wire.errors import WireError
from sluice.wire.netlink import (
    ATTRIBUTE,
    HEADER,
    U32,
    Message,
    align,
    attribute,
    attributes,
    fixed,
    message,
    messages,
)


@given(st.dictionaries(st.integers(0, 0x3FFF), st.binary(max_size=20)))
def test_attributes_are_read_as_they_were_written(wanted: dict[int, bytes]) -> None:
    body = b"head" + b"".join(attribute(kind, value) for kind, value in wanted.items())
    assert attributes(body, 4) == wanted


@given(st.lists(st.tuples(st.integers(0, 0xFFFF), st.binary(max_size=20)), max_size=5))
def test_messages_are_read_as_they_were_written(wanted: list[tuple[int, bytes]]) -> None:
    parts = [message(kind, 0x501, n, body) for n, (kind, body) in enumerate(wanted)]
    data = b"".join(part + bytes(align(len(part)) - len(part)) for part in parts)
    found = list(messages(data))
    assert [(one.type, one.body) for one in found] == wanted
    assert [one.sequence for one in found] == list(range(len(wanted)))
    assert all(
        data[one.offset :].startswith(
            HEADER.pack(HEADER.size + len(one.body), one.type, one.flags, one.sequence, one.port)
        )
        for one in found
    )


def test_messages_before_an_invalid_one_are_read() -> None:
    good = message(24, 0, 1, b"body")
    found = messages(good + HEADER.pack(15, 24, 0, 2, 0))
    assert next(found) == Message(24, 0, 1, 0, b"body", 0)
    with pytest.raises(WireError, match="message length 15") as error:
        next(found)
    assert (error.value.name, error.value.offset) == ("netlink_length", len(good))


@pytest.mark.parametrize(
    ("data", "name"),
    [(b"\0" * 15, "netlink_truncated"), (HEADER.pack(17, 24, 0, 1, 0), "netlink_length")],
)
def test_a_message_that_is_cut_is_named(data: bytes, name: str) -> None:
    with pytest.raises(WireError) as error:
        list(messages(data))
    assert error.value.name == name


def test_the_last_of_a_repeated_attribute_counts() -> None:
    assert attributes(attribute(5, b"one") + attribute(5, b"other"), 0) == {5: b"other"}


def test_flags_in_an_attributes_type_are_ignored() -> None:
    nested, network_order = 0x8000, 0x4000
    assert attributes(attribute(nested | network_order | 5, b"value"), 0) == {5: b"value"}


@pytest.mark.parametrize("length", [0, 3, 9])
def test_an_attributes_invalid_length_is_named_with_its_position(length: int) -> None:
    body = attribute(1, b"good") + ATTRIBUTE.pack(length, 2) + bytes(4)
    with pytest.raises(WireError, match=f"length {length} of attribute 2") as error:
        attributes(body, 0, base=100)
    assert (error.value.name, error.value.offset) == ("attribute_length", 108)


def test_bytes_behind_the_last_attribute_are_an_error() -> None:
    with pytest.raises(WireError, match="2 bytes left over") as error:
        attributes(attribute(1, b"good") + b"\0\0", 0)
    assert (error.value.name, error.value.offset) == ("attribute_truncated", 8)


def test_a_number_has_the_size_of_its_form() -> None:
    assert fixed(U32.pack(77), "RTA_OIF", U32, 0) == 77
    with pytest.raises(WireError, match="RTA_OIF has 2 bytes instead of 4") as error:
        fixed(b"\0\0", "RTA_OIF", U32, 40)
    assert (error.value.name, error.value.offset) == ("attribute_size", 40)

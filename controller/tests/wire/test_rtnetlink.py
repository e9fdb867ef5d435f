# SPDX-License-Identifier: Apache-2.0
"""Tests rtnetlink decoding with recordings of Linux 6.18 and with damaged forms of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordings
from event_text import event_text
from sluice.model import InterfaceAddress, KernelEvent, RouteEvent, parse_address
from sluice.wire import rtnetlink
from sluice.wire.errors import WireError
from sluice.wire.netlink import HEADER, attributes, message, messages
from sluice.wire.routes import ROUTE_MESSAGES, decode_route_message
from wire.strategies import damaged

DATAGRAMS = sorted({data for _, items in recordings.steps(recordings.RTNETLINK) for data in items})


def decode(datagram: bytes, ignored: Counter[str]) -> Iterator[RouteEvent | KernelEvent]:
    for item in messages(datagram):
        base = item.offset + HEADER.size
        event: RouteEvent | KernelEvent | None = None
        if item.type in rtnetlink.KERNEL_MESSAGES:
            event = rtnetlink.decode_kernel_message(item.type, item.body, base)
        elif item.type in ROUTE_MESSAGES:
            event = decode_route_message(item.type, item.body, base, ignored)
        if event is not None:
            yield event


def test_recording_decodes_to_its_golden() -> None:
    lines: list[str] = []
    ignored: Counter[str] = Counter()
    for step, datagrams in recordings.steps(recordings.RTNETLINK):
        lines.append(f"== {step}")
        lines += [event_text(event) for data in datagrams for event in decode(data, ignored)]
    lines += [f"ignored: {dict(sorted(ignored.items()))}"]
    recordings.assert_golden(recordings.RTNETLINK, lines)


@given(st.one_of(st.binary(max_size=200), damaged(DATAGRAMS)))
def test_any_bytes_decode_or_raise_wire_error(data: bytes) -> None:
    offset = 0
    try:
        list(decode(data, Counter()))
    except WireError as error:
        offset = error.offset
    assert 0 <= offset <= len(data)


@pytest.mark.parametrize("kind", sorted(rtnetlink.KERNEL_MESSAGES | ROUTE_MESSAGES))
@given(body=st.binary(max_size=64))
def test_any_body_of_any_message_decodes_or_raises_wire_error(kind: int, body: bytes) -> None:
    try:
        list(decode(message(kind, 0, 1, body), Counter()))
    except WireError:
        return


def test_every_datagram_cut_anywhere_is_an_error_or_whole_messages() -> None:
    for data in DATAGRAMS:
        ends = {item.offset + HEADER.size + len(item.body) for item in messages(data)}
        for length in range(1, len(data)):
            if length not in ends:
                with pytest.raises(WireError):
                    list(messages(data[:length]))


@pytest.mark.parametrize(
    ("text", "broadcast"),
    [("10.1.1.1/24", "10.1.1.255"), ("10.1.1.1/30", "10.1.1.3"), ("10.1.1.1/31", None)],
)
def test_an_address_is_added_with_its_broadcast_address(text: str, broadcast: str | None) -> None:
    request = rtnetlink.add_address(1, 7, InterfaceAddress.parse(text))
    (item,) = messages(request)
    found = attributes(item.body, rtnetlink.IFADDRMSG.size).get(rtnetlink.IFA_BROADCAST)
    assert found == (None if broadcast is None else parse_address(broadcast))

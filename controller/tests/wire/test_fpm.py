# SPDX-License-Identifier: Apache-2.0
"""Tests FPM decoding with recordings of zebra 8.4.4 and with damaged forms of them.

The file NAME.events holds the expected events of the recording NAME.fpm.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordings
from event_text import event_text
from sluice.model import (
    NexthopKind,
    NexthopObjectUpdated,
    NexthopSpec,
    Prefix,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
    parse_address,
)
from sluice.wire import fpm
from sluice.wire.errors import WireError
from wire.fpm_messages import PAYLOADS, decode
from wire.strategies import damaged


@pytest.mark.parametrize("recording", recordings.FPM, ids=lambda path: path.stem)
def test_recording_decodes_to_its_golden(recording: Path) -> None:
    lines: list[str] = []
    ignored: Counter[str] = Counter()
    for step, frames in recordings.steps(recording):
        lines.append(f"== {step}")
        for frame in frames:
            (payload,) = fpm.FrameSplitter().feed(frame)
            lines += [event_text(event) for event in fpm.decode_payload(payload, ignored)]
    lines += [f"ignored: {dict(ignored)}"]
    recordings.assert_golden(recording, lines)


def events_of(name: str, step: str) -> list[RouteEvent]:
    frames = dict(recordings.steps(recordings.fpm(name)))[step]
    splitter = fpm.FrameSplitter()
    payloads = [payload for frame in frames for payload in splitter.feed(frame)]
    return [event for payload in payloads for event in decode(payload)]


def key(text: str, table: int = 254) -> RouteKey:
    return RouteKey(table, Prefix.parse(text))


def test_replacement_in_one_frame_is_one_update() -> None:
    events = events_of("static_without_groups", "ip route 10.9.0.0/16 10.0.2.2")
    gateways = (parse_address("10.0.1.2"), parse_address("10.0.2.2"))
    nexthops = tuple(NexthopSpec(gateway, 11 + i) for i, gateway in enumerate(gateways))
    assert events == [RouteUpdated(Route(key("10.9.0.0/16"), 196, 20, nexthops))]


def test_group_and_its_members() -> None:
    legs = "nexthop via 10.0.1.2 weight 3 nexthop via 10.0.2.2 weight 1"
    first, second, group, route = events_of("kernel", f"ip route add 10.21.0.0/16 {legs}")
    assert isinstance(first, NexthopObjectUpdated)
    assert isinstance(second, NexthopObjectUpdated)
    assert group == NexthopObjectUpdated(21, None, ((first.id, 1), (second.id, 3)))
    assert route == RouteUpdated(Route(key("10.21.0.0/16"), 2, 20, (), 21))


@pytest.mark.parametrize(
    ("step", "prefix", "kind"),
    [
        ("ip route 10.6.0.0/16 blackhole", "10.6.0.0/16", NexthopKind.BLACKHOLE),
        ("ip route 10.5.0.0/16 reject", "10.5.0.0/16", NexthopKind.UNREACHABLE),
        ("ipv6 route 2001:db8:902::/48 blackhole", "2001:db8:902::/48", NexthopKind.BLACKHOLE),
        ("ipv6 route 2001:db8:903::/48 reject", "2001:db8:903::/48", NexthopKind.UNREACHABLE),
    ],
)
def test_routes_that_drop_say_how(step: str, prefix: str, kind: NexthopKind) -> None:
    route = events_of("static", step)[-1]
    nexthops = (NexthopSpec(None, None, 1, kind),)
    assert route == RouteUpdated(Route(key(prefix), 196, 20, nexthops))


def test_other_tables_keep_their_number() -> None:
    (route,) = events_of("static_without_groups", "ip route 10.3.0.0/16 10.0.1.2 table 100")
    assert isinstance(route, RouteUpdated)
    assert route.route.key == key("10.3.0.0/16", table=100)


def test_ipv4_route_over_ipv6_neighbours() -> None:
    step = "bgpd: 203.0.113.0/24 by two link-local neighbours"
    *_, group, route = events_of("bgp_unnumbered", step)
    assert isinstance(group, NexthopObjectUpdated)
    assert route == RouteUpdated(Route(key("203.0.113.0/24"), 186, 20, (), group.id))


# --- bad bytes -----------------------------------------------------------------------------------


@given(st.data())
def test_a_stream_may_be_split_anywhere(data: st.DataObject) -> None:
    stream = recordings.stream(data.draw(st.sampled_from(recordings.FPM)))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=20)))
    splitter = fpm.FrameSplitter()
    payloads: list[bytes] = []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        payloads += splitter.feed(stream[start:end])
    assert b"".join(map(fpm.frame, payloads)) == stream


def test_a_stream_may_come_byte_by_byte() -> None:
    stream = recordings.stream(recordings.fpm("link"))
    splitter = fpm.FrameSplitter()
    payloads = [payload for byte in stream for payload in splitter.feed(bytes([byte]))]
    assert b"".join(map(fpm.frame, payloads)) == stream


@pytest.mark.parametrize(
    ("header", "name", "offset"),
    [
        (b"\x02\x01\x00\x08abcd", "fpm_version", 8),
        (b"\x01\x02\x00\x08abcd", "fpm_type", 9),
        (b"\x01\x01\x00\x03abcd", "fpm_length", 10),
    ],
)
def test_a_bad_frame_header_is_named_with_its_offset(header: bytes, name: str, offset: int) -> None:
    splitter = fpm.FrameSplitter()
    with pytest.raises(WireError) as error:
        splitter.feed(fpm.frame(b"good") + header)
    assert (error.value.name, error.value.offset) == (name, offset)


def test_a_payload_cut_anywhere_but_between_messages_is_an_error() -> None:
    for payload in PAYLOADS:
        whole = decode(payload)
        for length in range(1, len(payload)):
            try:
                events = decode(payload[:length])
            except WireError:
                continue
            # zebra puts a DELROUTE and a NEWROUTE into one frame. If the payload is cut between the
            # two, the DELROUTE is a complete payload.
            assert len(whole) == 1
            assert isinstance(events[0], RouteDeleted)


@given(st.one_of(st.binary(max_size=200), damaged(PAYLOADS)))
def test_any_bytes_decode_or_raise_wire_error(payload: bytes) -> None:
    offset = 0
    try:
        decode(payload)
    except WireError as error:
        offset = error.offset
    assert 0 <= offset <= len(payload)


@given(
    st.lists(
        st.one_of(
            st.binary(max_size=20), damaged([recordings.stream(recordings.fpm("link"))[:200]])
        )
    )
)
def test_any_stream_splits_or_raises_wire_error(chunks: list[bytes]) -> None:
    splitter = fpm.FrameSplitter()
    try:
        for chunk in chunks:
            splitter.feed(chunk)
    except WireError:
        return

# SPDX-License-Identifier: Apache-2.0
"""Tests that native code reads first packets like the Python code that it replaces.

Frames are random packets, with random changes: cut off, padded, with other octets. For each frame
that native code reads, `wire.selectors` must read the same selectors and key, and
`PacketSchema.reinject_with` must give the same metadata for the answer. The search of rules for
such a frame must find the same rule as a search rule by rule.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

import policies
from fake_switch import PIPELINE
from packets import ethernet, ipv4, ipv6, ipv6_chain
from sluice._native import FirstPacket
from sluice.model import PuntedPacket, format_address
from sluice.native_punts import FIRST_PACKETS, NativePunts
from sluice.p4.packets import PACKET_IN, PacketSchema, PolicyAnswer, PuntReason
from sluice.p4.schema import Schema, load_pipeline
from sluice.policy.model import Rule
from sluice.state.rule_search import RuleIndex, first_match
from sluice.wire.selectors import selectors

SCHEMA = PacketSchema(Schema(load_pipeline(PIPELINE).p4info))
REASONS = {reason: number for number, reason in SCHEMA.reasons.items()}
IPV4, IPV6 = "10.0.0.1", "2001:db8::1"
SIZES = st.sampled_from([4, 16])
PROTOCOLS = st.sampled_from([0, 1, 6, 17, 43, 44, 47, 50, 51, 58, 60, 132, 135])


@st.composite
def frames(draw: st.DrawFn) -> bytes:
    payload = draw(st.binary(max_size=40))
    protocol, vlan = draw(PROTOCOLS), draw(st.sampled_from([None, 5]))
    match draw(st.sampled_from(["ipv4", "ipv6", "chain"])):
        case "ipv4":
            packet = ipv4(IPV4, "10.0.0.2", payload, protocol=protocol)
        case "ipv6":
            packet = ipv6(IPV6, "2001:db8::2", payload, protocol)
        case _:
            packet = ipv6_chain([(0, bytes(6)), (60, bytes(6))], protocol, payload)
    frame = bytearray(ethernet(packet, vlan))
    for at, octet in draw(
        st.lists(st.tuples(st.integers(12, 60), st.integers(0, 255)), max_size=3)
    ):
        if at < len(frame):
            frame[at] = octet
    frame += draw(st.binary(max_size=4))
    return bytes(frame[: draw(st.integers(0, 100))] if draw(st.booleans()) else frame)


def punted(frame: bytes, reason: PuntReason, **metadata: int) -> PuntedPacket:
    values = dict.fromkeys(PACKET_IN, 0) | {"reason": REASONS[reason]} | metadata
    return PuntedPacket(frame, *(values[name] for name in PACKET_IN))


def taken(packet: PuntedPacket) -> PuntedPacket | FirstPacket:
    queue = NativePunts(SCHEMA)
    assert queue.offer([(packet.frame, tuple(packet[1:]))]) == 1
    (found,) = queue.take(10)
    return found


def check(packet: PuntedPacket, found: FirstPacket) -> None:
    """Checks a packet that native code has read against the Python code."""
    inbound = packet.stage == SCHEMA.stage_inbound
    is_own = bool(packet.is_local) if inbound else packet.origin == SCHEMA.origin_local
    seen = selectors(packet.frame, is_own=is_own)
    assert seen.fragment is None
    assert found.selectors() == seen.selectors
    assert type(found.selectors()) is type(seen.selectors)
    assert found.key() == seen.key(bundle=packet.bundle if inbound else 0)
    assert list(map(type, found.key())) == list(map(type, seen.key() or ()))
    assert seen.selectors.icmp is None
    assert (found.reason, found.list_id) == (packet.reason, packet.list_id)
    assert found.packet() == packet


numbers = st.integers(0, 0xFFFF)


@given(
    frames(),
    st.sampled_from(sorted(FIRST_PACKETS, key=str)),
    st.sampled_from([SCHEMA.stage_inbound, SCHEMA.stage_outbound]),
    st.lists(st.integers(0, 3), min_size=4, max_size=4),
    st.lists(numbers, min_size=5, max_size=5),
)
def test_native_code_reads_what_the_specification_reads(
    frame: bytes, reason: PuntReason, stage: int, few: list[int], answer: list[int]
) -> None:
    origin, is_local, bundle, list_id = few
    packet = punted(
        frame,
        reason,
        stage=stage,
        origin=origin,
        is_local=is_local,
        bundle=bundle,
        list_id=list_id,
        ingress_port=7,
        ingress_l3_if=8,
        vrf=9,
        egress_l3_if=10,
        nexthop_id=11,
        inbound_list_id=12,
        inbound_generation=13,
    )
    found = taken(packet)
    if type(found) is FirstPacket:
        check(packet, found)
        verdict = PolicyAnswer(*answer)
        assert found.metadata(verdict) == SCHEMA.reinject_with(packet, verdict)
    else:
        assert found == packet


@pytest.mark.parametrize("protocol", [6, 17, 132, 47, 50])
@pytest.mark.parametrize("version", [4, 6])
def test_plain_packets_are_read_by_native_code(version: int, protocol: int) -> None:
    payload = bytes([1, 2, 3, 4]) + bytes(8)
    packet = (
        ipv4(IPV4, "10.0.0.2", payload, protocol=protocol)
        if version == 4
        else ipv6(IPV6, "2001:db8::2", payload, protocol)
    )
    punt = punted(ethernet(packet), PuntReason.OUTBOUND_MISS, stage=SCHEMA.stage_outbound)
    found = taken(punt)
    assert type(found) is FirstPacket
    check(punt, found)


@pytest.mark.parametrize(
    ("reason", "stage"),
    [
        (PuntReason.FRAGMENT, SCHEMA.stage_outbound),
        (PuntReason.LOCAL, SCHEMA.stage_outbound),
        (PuntReason.OUTBOUND_MISS, SCHEMA.stage_inbound + SCHEMA.stage_outbound + 1),
    ],
)
def test_only_first_packets_are_read(reason: PuntReason, stage: int) -> None:
    frame = ethernet(ipv4(IPV4, "10.0.0.2", bytes(12), protocol=17))
    packet = punted(frame, reason, stage=stage)
    assert taken(packet) == packet


@st.composite
def plain_frames(draw: st.DrawFn) -> bytes:
    """Draws plain packets with the addresses and numbers of `policies.rules`."""
    payload = b"".join(draw(policies.NUMBERS).to_bytes(2, "big") for _ in range(2)) + bytes(8)
    addresses = st.sampled_from([one for one in policies.ADDRESSES if len(one) == draw(SIZES)])
    source, destination = format_address(draw(addresses)), format_address(draw(addresses))
    protocol = draw(st.sampled_from([6, 17, 47, 50, 132]))
    if ":" in source:
        return ethernet(ipv6(source, destination, payload, protocol))
    return ethernet(ipv4(source, destination, payload, protocol=protocol))


@given(
    st.lists(policies.rules(), max_size=12),
    st.lists(st.tuples(plain_frames(), st.booleans()), max_size=10),
)
def test_the_search_for_a_first_packet_finds_the_first_match(
    rules: list[Rule], frames: list[tuple[bytes, bool]]
) -> None:
    index = RuleIndex(rules)
    for frame, is_own in frames:
        packet = punted(
            frame, PuntReason.INBOUND_MISS, stage=SCHEMA.stage_inbound, is_local=int(is_own)
        )
        found = taken(packet)
        assert type(found) is FirstPacket
        seen = selectors(frame, is_own=is_own)
        assert index.first_match_of(found) == first_match(rules, seen.selectors)


def test_a_packet_of_a_list_that_is_no_number_of_32_bits_is_left_to_python() -> None:
    frame = ethernet(ipv4(IPV4, "10.0.0.2", bytes(12), protocol=17))
    for numbers in ({"list_id": 1 << 32}, {"bundle": 1 << 16}):
        packet = punted(frame, PuntReason.INBOUND_MISS, stage=SCHEMA.stage_inbound, **numbers)
        assert taken(packet) == packet

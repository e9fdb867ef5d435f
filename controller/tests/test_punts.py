# SPDX-License-Identifier: Apache-2.0
"""Tests the handling of punted packets: each packet has exactly one outcome, or is dropped and
counted by its reason."""

from __future__ import annotations

import struct
from collections.abc import Iterable

import pytest

from fake_switch import PIPELINE
from scenes import SPECS, address, gateway, link, mac, neighbor, route
from sluice._native import FirstPacket
from sluice.held_packets import HeldPackets
from sluice.icmp import RateLimiter
from sluice.model import NeighborState, PuntedPacket, parse_address
from sluice.p4.packets import PACKET_OUT, AnsweredPunt, PacketSchema
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4runtime.client import Metadata
from sluice.policy.rejections import Rejections
from sluice.punts import PuntActions, PuntHandler, TunnelMtu
from sluice.state.fib import Fib
from sluice.state.nexthops import Path
from sluice.wire.errors import WireError
from sluice.wire.packet import has_source_route, ip_payload, parse_ipv4, parse_ipv6

SCHEMA = PacketSchema(Schema(load_pipeline(PIPELINE).p4info))
REASONS = {reason.value: number for number, reason in SCHEMA.reasons.items()}
ORIGINS = {"TRANSIT": 0, "LOCAL": SCHEMA.origin_local, "DECRYPTED": 2, "ENCRYPTED": 3}
ETHERNET = bytes.fromhex("020000000101020000000999")


def ipv4(
    source: str = "10.0.3.7",
    destination: str = "10.0.1.77",
    *,
    size: int = 100,
    dont_fragment: bool = False,
    options: bytes = b"",
    tag: bytes = b"",
) -> bytes:
    header_length = 20 + len(options)
    flags = 0x4000 if dont_fragment else 0
    packet = struct.pack(
        "!BBHHHBBH4s4s",
        0x40 | header_length // 4,
        0,
        header_length + size,
        7,
        flags,
        64,
        17,
        0,
        parse_address(source),
        parse_address(destination),
    )
    return ETHERNET + tag + b"\x08\x00" + packet + options + bytes(size)


def ipv6(source: str, destination: str, size: int = 100) -> bytes:
    packet = struct.pack("!IHBB", 6 << 28, size, 17, 64)
    packet += parse_address(source) + parse_address(destination) + bytes(size)
    return ETHERNET + b"\x86\xdd" + packet


def punt(frame: bytes, reason: str, **known: int) -> PuntedPacket:
    fields = {"ingress_port": 3, "ingress_l3_if": 3, "reason": REASONS[reason]} | known
    return PuntedPacket(frame, *(fields.get(name, 0) for name in PuntedPacket._fields[1:]))


class NoPolicy:
    """Replaces the policy by one under which no packet needs a verdict.

    `test_first_packets` tests packets that need a verdict.
    """

    def needs_verdict(self, packet: PuntedPacket) -> bool:
        return False

    def answer_plain(self, packets: Iterable[FirstPacket], now: float) -> Iterable[AnsweredPunt]:
        return []

    def answer(self, packet: PuntedPacket, now: float) -> Iterable[tuple[bytes, Metadata]]:
        raise AssertionError(packet)

    def take_rejected(self) -> Iterable[PuntedPacket]:
        raise AssertionError

    def expire(self, now: float) -> None:
        pass


class NoRejections(Rejections):
    """Sends no ICMP error about a discarded packet. `policy/test_rejections.py` tests such
    errors.
    """

    def __init__(self) -> None:
        pass


class PuntHarness:
    """Runs a punt handler on a Fib with three links, and records its decisions."""

    def __init__(self, rate: float = 1000) -> None:
        self.fib = Fib(SPECS)
        self.fib.start()
        for n in (1, 2, 3):
            self.apply(link(n), address(n, f"10.0.{n}.1/24"), address(n, f"2001:db8:{n}::1/64"))
        self.held = HeldPackets(2, 10, 3.0)
        self.ready: list[Path] = []
        self.audited: list[str] = []
        self.handler = PuntHandler(
            self.fib,
            SCHEMA,
            self.held,
            RateLimiter(rate, 10, rate, 10),
            self.ready.append,
            first_packets=NoPolicy(),
            tunnels={7: TunnelMtu(1400, 100)},
            audit_drop=lambda reason, packet, now: self.audited.append(reason),
            delivering=lambda packet: None,
            rejections=NoRejections(),
        )

    def apply(self, *events: object) -> None:
        self.fib.apply(events, 0.0)  # type: ignore[arg-type]

    def handle(self, packet: PuntedPacket, now: float = 0.0) -> PuntActions:
        outcome = PuntActions()
        self.handler.handle(packet, now, outcome)
        return outcome


@pytest.fixture
def harness() -> PuntHarness:
    return PuntHarness()


def sent(outcome: PuntActions) -> tuple[bytes, dict[str, int]]:
    """Returns the frame of the only packet-out, and its metadata by name."""
    ((frame, metadata),) = outcome.packet_outs
    return frame, dict(zip(PACKET_OUT, metadata, strict=True))


@pytest.mark.parametrize(
    "reason",
    ["ARP", "LINK_PROTOCOL", "NEIGHBOR_DISCOVERY", "ROUTING_PROTOCOL", "IKE", "LOCAL"],
)
def test_for_the_host(harness: PuntHarness, reason: str) -> None:
    outcome = harness.handle(punt(b"frame", reason))
    assert outcome.to_host == [(3, b"frame")]
    assert not outcome.packet_outs
    assert harness.handler.by_reason[reason] == 1


@pytest.mark.parametrize(
    ("reason", "code4", "code6"),
    [
        ("TTL_EXCEEDED", (11, 0), (3, 0)),
        ("NO_ROUTE", (3, 0), (1, 0)),
        ("UNREACHABLE", (3, 1), (1, 0)),
        ("PROHIBITED", (3, 13), (1, 1)),
    ],
)
def test_errors_come_from_the_interface_the_packet_came_by(
    harness: PuntHarness, reason: str, code4: tuple[int, int], code6: tuple[int, int]
) -> None:
    frame, metadata = sent(harness.handle(punt(ipv4(), reason, vrf=0)))
    error = ip_payload(frame)
    assert parse_ipv4(error).source == parse_address("10.0.3.1")
    assert tuple(error[20:22]) == code4
    assert metadata["kind"] == 2  # LOCAL_ORIGIN: the pipeline routes it
    assert metadata["egress_l3_if"] == 0
    frame, _ = sent(harness.handle(punt(ipv6("2001:db8:3::7", "2001:db8:9::1"), reason)))
    error = ip_payload(frame)
    assert parse_ipv6(error).source == parse_address("2001:db8:3::1")
    assert tuple(error[40:42]) == code6


def test_no_error_about_what_this_router_sent(harness: PuntHarness) -> None:
    outcome = harness.handle(punt(ipv4(), "NO_ROUTE", origin=1))
    assert not outcome.packet_outs
    assert harness.handler.counters["dropped: own packet, NO_ROUTE"] == 1


def test_errors_are_limited() -> None:
    harness = PuntHarness(rate=0.001)
    outcomes = [harness.handle(punt(ipv4(), "NO_ROUTE")) for _ in range(20)]
    assert sum(len(outcome.packet_outs) for outcome in outcomes) == 10
    refused = {name: n for name, n in harness.handler.counters.items() if "refused" in name}
    assert sum(refused.values()) == 10


@pytest.mark.parametrize("frame", [b"", ETHERNET, ETHERNET + b"\x08\x00", ipv4()[:30]])
@pytest.mark.parametrize("reason", sorted(REASONS.keys() - {"AUDIT", "ACQUIRE"}))
def test_truncated_packets_end_in_a_counter_or_at_the_host(
    harness: PuntHarness, frame: bytes, reason: str
) -> None:
    outcome = harness.handle(punt(frame, reason, egress_l3_if=1))
    assert not outcome.packet_outs
    assert outcome.to_host or any("dropped" in name for name in harness.handler.counters)


def test_an_unknown_reason_is_counted(harness: PuntHarness) -> None:
    harness.handle(punt(ipv4(), "LOCAL")._replace(reason=200))
    assert harness.handler.counters["dropped: unknown punt reason"] == 1


class TestTooBig:
    def test_ipv4_is_fragmented_and_goes_on_at_rewrite(self, harness: PuntHarness) -> None:
        harness.apply(link(1, mtu=1300))
        tag = b"\x81\x00\x00\x05"
        packet = punt(ipv4(size=2000, tag=tag), "MTU_EXCEEDED", egress_l3_if=1, nexthop_id=9)
        outcome = harness.handle(packet)
        assert len(outcome.packet_outs) == 2
        for frame, metadata in outcome.packet_outs:
            assert frame[:16] == ETHERNET + tag
            assert len(ip_payload(frame)) <= 1300
            named = dict(zip(PACKET_OUT, metadata, strict=True))
            assert (named["kind"], named["stage"], named["nexthop_id"]) == (3, 6, 9)
            assert named["ingress_l3_if"] == 3

    def test_what_its_bundle_may_not_carry_in_fragments_is_dropped(
        self, harness: PuntHarness
    ) -> None:
        harness.handler._without_later = frozenset({7})
        known = {"egress_l3_if": 1, "verdict": SCHEMA.verdict_protect}
        packet = punt(ipv4(size=2000), "MTU_EXCEEDED", sa_bundle=7, **known)
        assert harness.handle(packet).packet_outs == []
        assert harness.handler.counters == {
            "dropped: too big, its bundle carries no later fragments": 1
        }
        packet = punt(ipv4(size=2000), "MTU_EXCEEDED", sa_bundle=8, **known)
        assert len(harness.handle(packet).packet_outs) == 2

    @pytest.mark.parametrize(("mtu", "size"), [(1500, 1300), (1350, 1250)])
    def test_what_protection_adds_counts(self, harness: PuntHarness, mtu: int, size: int) -> None:
        harness.apply(link(1, mtu=mtu))
        known = {"egress_l3_if": 1, "nexthop_id": 9, "verdict": 3, "sa_bundle": 7, "rule": 5}
        packet = punt(ipv4(size=1400), "MTU_EXCEEDED", **known, list_id=2, generation=3)
        outcome = harness.handle(packet)
        assert len(outcome.packet_outs) == 2
        for frame, metadata in outcome.packet_outs:
            assert len(ip_payload(frame)) <= size
            named = dict(zip(PACKET_OUT, metadata, strict=True))
            claim = [named[name] for name in ("list_id", "generation", "verdict", "sa_bundle")]
            assert claim == [2, 3, 3, 7]
            assert named["rule"] == 5
        told, _ = sent(
            harness.handle(punt(ipv4(size=1400, dont_fragment=True), "MTU_EXCEEDED", **known))
        )
        assert int.from_bytes(ip_payload(told)[26:28], "big") == size

    def test_with_dont_fragment_the_sender_is_told(self, harness: PuntHarness) -> None:
        harness.apply(link(1, mtu=1300))
        packet = punt(ipv4(size=1400, dont_fragment=True), "MTU_EXCEEDED", egress_l3_if=1)
        frame, _ = sent(harness.handle(packet))
        error = ip_payload(frame)
        assert tuple(error[20:22]) == (3, 4)
        assert int.from_bytes(error[26:28], "big") == 1300

    def test_ipv6_is_told(self, harness: PuntHarness) -> None:
        harness.apply(link(1, mtu=1300))
        big = ipv6("2001:db8:3::7", "2001:db8:1::9", 1400)
        frame, _ = sent(harness.handle(punt(big, "MTU_EXCEEDED", egress_l3_if=1)))
        error = ip_payload(frame)
        assert error[40] == 2
        assert int.from_bytes(error[44:48], "big") == 1300

    @pytest.mark.parametrize("origin", ["LOCAL", "ENCRYPTED"])
    def test_nobody_is_told_of_what_the_controller_or_the_engine_made(
        self, harness: PuntHarness, origin: str
    ) -> None:
        """Checks that packets of the controller and the engine cause no ICMP error.

        `test_own_path_mtu` tests packets of the host stack.
        """
        harness.apply(link(1, mtu=1300))
        big = ipv4(size=1400, dont_fragment=True)
        known = {"origin": ORIGINS[origin], "egress_l3_if": 1, "nexthop_id": 9}
        outcome = harness.handle(punt(big, "MTU_EXCEEDED", **known))
        assert not outcome.packet_outs
        assert not outcome.to_host
        assert harness.handler.counters["dropped: own packet, TOO_BIG"] == 1

    def test_esp_over_ipv6_is_fragmented_by_its_source(self, harness: PuntHarness) -> None:
        harness.apply(link(1, mtu=1300))
        esp = ipv6("2001:db8:3::7", "2001:db8:1::9", 1400)
        esp = esp[:20] + bytes([50]) + esp[21:]
        known = {"origin": ORIGINS["ENCRYPTED"], "egress_l3_if": 1, "nexthop_id": 9}
        outcome = harness.handle(punt(esp, "MTU_EXCEEDED", **known))
        assert [len(ip_payload(frame)) for frame, _ in outcome.packet_outs] == [1296, 200]
        for frame, metadata in outcome.packet_outs:
            assert frame[:14] == esp[:14]
            named = dict(zip(PACKET_OUT, metadata, strict=True))
            assert (named["stage"], named["origin"]) == (6, ORIGINS["ENCRYPTED"])

    def test_an_unknown_interface(self, harness: PuntHarness) -> None:
        harness.handle(punt(ipv4(size=2000), "MTU_EXCEEDED", egress_l3_if=99))
        assert harness.handler.counters["dropped: too big for an unknown interface"] == 1


class TestOptions:
    def test_harmless_ones_are_routed(self, harness: PuntHarness) -> None:
        record_route = bytes([7, 7, 4, 0, 0, 0, 0, 0])
        packet = punt(ipv4(options=record_route), "IP_OPTIONS")
        frame, metadata = sent(harness.handle(packet))
        assert frame == packet.frame
        assert (metadata["kind"], metadata["stage"]) == (3, 4)

    @pytest.mark.parametrize("kind", [131, 137])
    @pytest.mark.parametrize("before", [1, 13])
    def test_source_routes_are_dropped(self, harness: PuntHarness, kind: int, before: int) -> None:
        options = bytes([1] * before + [kind, 7, 4, 1, 2, 3, 4])
        assert not harness.handle(punt(ipv4(options=options), "IP_OPTIONS")).packet_outs
        assert harness.handler.counters["dropped: source_route"] == 1

    @pytest.mark.parametrize("options", [b"\x07\x01", b"\x07", b"\x07\x09aa"])
    def test_malformed_ones_are_refused(self, options: bytes) -> None:
        with pytest.raises(WireError):
            has_source_route(options)
        assert not has_source_route(b"\x00" + options)


class TestNeighbors:
    HOST = Path(1, parse_address("10.0.1.77"))

    def test_held_asked_for_once_and_released(self, harness: PuntHarness) -> None:
        packets = [punt(ipv4(size=n), "NEIGHBOR_UNRESOLVED", egress_l3_if=1) for n in (1, 2, 3)]
        outcomes = [harness.handle(packet) for packet in packets]
        assert [outcome.resolve for outcome in outcomes] == [[self.HOST], [], []]
        harness.apply(neighbor(1, "10.0.1.77", 5))
        harness.handler.neighbor_changed(self.HOST, NeighborState.REACHABLE, 0.1, PuntActions())
        assert harness.ready == [self.HOST]
        outcome = PuntActions()
        harness.handler.release(self.HOST, outcome)
        assert [frame for frame, _ in outcome.packet_outs] == [p.frame for p in packets[:2]]
        named = dict(zip(PACKET_OUT, outcome.packet_outs[0][1], strict=True))
        assert (named["kind"], named["stage"]) == (3, 6)
        assert named["nexthop_id"] == harness.fib.nexthops.id_of(self.HOST)
        assert harness.held.counters["dropped: too many for one neighbour"] == 1

    def test_a_gateway_is_asked_for_instead_of_the_destination(self, harness: PuntHarness) -> None:
        harness.apply(route("20.0.0.0/8", gateway("10.0.2.9", 2)))
        path = Path(2, parse_address("10.0.2.9"))
        identifier = harness.fib.nexthops.id_of(path)
        assert identifier is not None
        packet = punt(
            ipv4(destination="20.1.1.1"),
            "NEIGHBOR_UNRESOLVED",
            egress_l3_if=2,
            nexthop_id=identifier,
        )
        assert harness.handle(packet).resolve == [path]

    def test_failure_is_told_to_every_sender(self, harness: PuntHarness) -> None:
        harness.handle(punt(ipv4(), "NEIGHBOR_UNRESOLVED", egress_l3_if=1))
        harness.apply(neighbor(1, "10.0.1.77", None, NeighborState.FAILED))
        outcome = PuntActions()
        harness.handler.neighbor_changed(self.HOST, NeighborState.FAILED, 3.0, outcome)
        frame, _ = sent(outcome)
        assert tuple(ip_payload(frame)[20:22]) == (3, 1)

    def test_so_is_silence(self, harness: PuntHarness) -> None:
        harness.handle(punt(ipv4(), "NEIGHBOR_UNRESOLVED", egress_l3_if=1))
        early, late = PuntActions(), PuntActions()
        harness.handler.expire(2.9, early)
        harness.handler.expire(3.0, late)
        assert not early.packet_outs
        assert not early.unanswered
        assert len(late.packet_outs) == 1
        assert late.unanswered == [self.HOST]

    def test_resolved_in_the_meantime(self, harness: PuntHarness) -> None:
        harness.apply(neighbor(1, "10.0.1.77", 5))
        assert harness.fib.neighbors.mac_of(self.HOST) == mac(5)
        outcome = harness.handle(punt(ipv4(), "NEIGHBOR_UNRESOLVED", egress_l3_if=1))
        assert harness.ready == [self.HOST]
        assert not outcome.resolve

    def test_known_but_not_to_be_reached_that_way(self, harness: PuntHarness) -> None:
        off_link = punt(ipv4(destination="10.9.9.9"), "NEIGHBOR_UNRESOLVED", egress_l3_if=1)
        harness.handle(off_link)
        path = Path(1, parse_address("10.9.9.9"))
        harness.apply(neighbor(1, "10.9.9.9", 5))
        outcome = PuntActions()
        harness.handler.neighbor_changed(path, NeighborState.REACHABLE, 0.1, outcome)
        assert len(outcome.packet_outs) == 1
        assert len(harness.held) == 0


def test_copies_of_dropped_packets_go_to_the_audit_log(harness: PuntHarness) -> None:
    outcome = harness.handle(punt(ipv4(), "AUDIT", drop_reason=28))
    assert harness.audited == ["UNKNOWN_SPI"]
    assert (outcome.to_host, outcome.packet_outs) == ([], [])
    harness.handle(punt(ipv4(), "AUDIT", drop_reason=255))
    assert harness.audited[1:] == ["255"]


@pytest.mark.parametrize("bundle", [0, 7])
def test_an_error_goes_by_the_bundle_that_carried_its_packet(
    harness: PuntHarness, bundle: int
) -> None:
    """Checks that an ICMP error leaves as the quoted packet came: by the same bundle, or in clear.

    The error quotes the packet's plaintext, so it needs the same protection (RFC 4301, section 6).
    """
    packet = punt(ipv4(), "TTL_EXCEEDED", bundle=bundle, origin=2 if bundle else 0)
    _, metadata = sent(harness.handle(packet))
    assert (metadata["kind"], metadata["bundle"], metadata["egress_l3_if"]) == (2, bundle, 0)

# SPDX-License-Identifier: Apache-2.0
"""Tests single decisions of the reference against RFC 4301 and the project's documents."""

import struct
from dataclasses import replace

import pytest

from sluice_adversary import plan
from sluice_adversary.datagrams import DECRYPTED, ENCRYPTED, EntryPoint, Shim
from sluice_adversary.drafts import Draft, in_chain, options_chain, transport
from sluice_adversary.lists import HOST, NOTHING, TO_DECRYPT, PacketOutcome
from sluice_adversary.plan import packed
from sluice_adversary.policy import (
    BYPASS,
    DISCARD,
    OPAQUE,
    UNKNOWN,
    Policy,
    Rule,
    Seen,
    Verdict,
    search,
)
from sluice_adversary.reference import Expectation, Reference
from sluice_adversary.wire import ESP, ICMP, ICMPV6, ROUTING, TCP, UDP, routing_header

from .made import (
    A6,
    B6,
    FROM_A,
    NUMBER,
    ONE,
    OWN_B,
    OWN_B6,
    REST,
    TWO,
    A,
    B,
    C,
    datagram,
    filled,
    policy,
    protected_port,
    udp,
)

OUT_A, OUT_B = (frozenset({PacketOutcome("out", link)}) for link in "ab")
BY_ONE = frozenset({PacketOutcome("protect", 1)})
TO_HOST, TO_ENGINE = frozenset({HOST}), frozenset({TO_DECRYPT})
FROM_B = EntryPoint("b")
PROTECTED = Rule("all", ONE)
DECRYPTED_BY_ONE = EntryPoint(plan.ENGINE, Shim(DECRYPTED, 1, ingress_l3_if=2))


def expect(rules: Policy, *packets: bytes, entry: EntryPoint = FROM_A) -> Expectation:
    return Reference(rules).expect(datagram(*packets, entry=entry))


# -- search of an ordered list


def test_the_first_match_decides() -> None:
    assert expect(policy(protected_port(), REST), udp(7000).whole()).allowed == (BY_ONE,)
    assert expect(policy(REST, protected_port()), udp(7000).whole()).allowed == (OUT_B,)


def test_what_no_rule_matches_is_discarded() -> None:
    found = expect(policy(protected_port()), udp(53).whole())
    assert (found.allowed, found.must, found.excuse) == ((NOTHING,), False, "policy")


def test_a_bundle_without_an_sa_lets_nothing_out() -> None:
    assert expect(policy(Rule("all", Verdict("protect", 4))), udp().whole()).allowed == (NOTHING,)


def test_an_interface_without_an_spd_lets_everything_out() -> None:
    bypassed = policy(REST, inbound=(REST,))
    found = expect(bypassed, udp(ends=(B, A)).whole(), entry=FROM_B)
    assert found.allowed == (OUT_A,)


def test_unseen_ports_leave_every_verdict_possible_that_the_order_allows() -> None:
    rules = (protected_port(1), Rule("all", TWO), Rule("never", DISCARD))
    assert search(rules, Seen(A, B, UDP, UNKNOWN, UNKNOWN, UNKNOWN)) == {ONE, TWO}
    assert search(rules, Seen(A, B, TCP, UNKNOWN, UNKNOWN, UNKNOWN)) == {TWO}


# -- fragments


@pytest.mark.parametrize("ends", [(A, B), (A6, B6)], ids=["IPv4", "IPv6"])
def test_later_fragments_get_what_their_first_gets(ends: tuple[bytes, bytes]) -> None:
    rules = policy(protected_port(), REST)
    assert expect(rules, *udp(7000, ends=ends).cut(8, 32)).allowed == (BY_ONE,) * 3
    assert expect(rules, *udp(53, ends=ends).cut(8, 32)[::-1]).allowed == (OUT_B,) * 3


def test_without_the_first_only_what_all_verdicts_agree_on_passes() -> None:
    later = udp(53).cut(8)[1]
    assert expect(policy(protected_port(), REST), later).allowed == (NOTHING,)
    assert expect(policy(protected_port(), Rule("all", ONE)), later).allowed == (BY_ONE,)
    assert expect(policy(Rule("all", BYPASS, protocols=(UDP,))), later).allowed == (OUT_B,)


def test_the_next_header_of_a_later_ipv6_fragment_is_not_believed() -> None:
    rules = policy(Rule("udp", ONE, protocols=(UDP,)), REST)
    draft = in_chain(options_chain(1), udp(ends=(A6, B6)))
    first, later = draft.cut(40)
    assert expect(rules, first, later).allowed == (BY_ONE, BY_ONE)
    assert expect(rules, later).allowed == (NOTHING,)
    lies = draft.made_up(40, draft.payload[40:], False, 59)
    assert expect(rules, lies).allowed == (NOTHING,)


def test_a_first_fragment_without_its_header_chain_is_dropped_with_what_needs_it() -> None:
    draft = in_chain(options_chain(2), udp(ends=(A6, B6)))
    found = expect(policy(protected_port(), REST), *draft.cut(16))
    assert (found.allowed, found.must) == ((NOTHING, NOTHING), False)


def test_a_second_fragment_inside_the_tcp_header_is_dropped() -> None:
    data = transport((A, B), TCP, (53, 7000), NUMBER, 64)
    draft = Draft(4, A, B, TCP, data, 5)
    assert expect(policy(REST), *draft.cut(8)).allowed == (OUT_B, NOTHING)


def test_two_first_fragments_each_get_their_own_and_later_ones_either() -> None:
    one, two = udp(7000), udp(53)
    packets = one.piece(0, 16), two.piece(0, 16), one.piece(16, 72)
    found = expect(policy(protected_port(), REST), *packets)
    assert found.allowed == (BY_ONE, OUT_B, BY_ONE | OUT_B)
    assert (found.must, found.excuse) == (False, "overlaps")


def test_a_rule_for_packets_without_ports_matches_later_fragments_themselves() -> None:
    opaque = Rule("opaque", DISCARD, protocols=(UDP,), destination_ports=OPAQUE)
    first, later = udp(7000).cut(8)
    behind = expect(policy(protected_port(), opaque, REST), first, later)
    before = expect(policy(opaque, protected_port(), REST), first, later)
    assert behind.allowed == (BY_ONE, BY_ONE)
    assert (before.allowed, before.must) == ((BY_ONE, NOTHING), False)


def test_overlaps_harm_nobody_where_all_verdicts_agree() -> None:
    draft = udp()
    packets = draft.piece(0, 24), draft.piece(16, 72)
    assert expect(policy(REST), *packets).may_overlap
    assert not expect(policy(protected_port(), REST), *packets).may_overlap


def test_what_is_whole_must_arrive_and_what_is_not_may_be_dropped() -> None:
    first, middle, last = udp(53).cut(8, 32)
    rules = policy(protected_port(), REST)
    assert expect(rules, first, middle, last).must
    assert expect(rules, last, middle, first, first).must
    assert expect(rules, first, last).excuse == "pieces missing"
    assert expect(rules, first, middle).excuse == "pieces missing"


def test_source_routes_are_dropped() -> None:
    draft = udp(53)
    draft.options = b"\x83\x07\x04" + B + b"\1"
    found = expect(policy(REST), draft.whole())
    assert (found.allowed, found.excuse) == ((NOTHING,), "source route")


@pytest.mark.parametrize(("kind", "left"), [(4, 1), (2, 255), (3, 1)])
def test_segments_left_are_dropped_where_a_list_is_asked(kind: int, left: int) -> None:
    draft = udp(53, ends=(A6, B6))
    header = routing_header(draft.start, kind, left)
    routed = replace(draft, start=ROUTING, payload=header + draft.payload)
    found = expect(policy(REST), routed.whole())
    assert (found.allowed, found.excuse) == ((NOTHING,), "segments left")
    first, _ = expect(policy(REST), *routed.cut(64)).allowed
    assert first == NOTHING
    used_up = replace(
        draft, start=ROUTING, payload=routing_header(draft.start, kind, 0) + draft.payload
    )
    assert expect(policy(REST), used_up.whole()).allowed == (OUT_B,)


def test_a_transport_header_that_is_cut_off_is_dropped() -> None:
    draft = udp(53)
    assert expect(policy(REST), replace(draft, payload=draft.payload[:7]).whole()).allowed == (
        NOTHING,
    )


# -- inbound lists


def test_in_clear_only_what_the_inbound_list_bypasses_comes_in() -> None:
    packet = udp(7000, ends=(B, A)).whole()
    for rule, allowed in (
        (REST, OUT_A),
        (Rule("all", ONE), NOTHING),
        (Rule("all", DISCARD), NOTHING),
    ):
        assert expect(policy(inbound=(rule,)), packet, entry=FROM_B).allowed == (allowed,)


def test_decrypted_only_what_its_own_bundle_protects_comes_in() -> None:
    packet = udp(7000, ends=(B, A)).whole()
    for rule, allowed in (
        (REST, NOTHING),
        (Rule("all", ONE), OUT_A),
        (Rule("all", TWO), NOTHING),
    ):
        found = expect(policy(inbound=(rule,)), packet, entry=DECRYPTED_BY_ONE)
        assert found.allowed == (allowed,)


def test_generated_rules_are_for_the_router_itself_only() -> None:
    to_router = Draft(4, B, OWN_B, UDP, transport((B, OWN_B), UDP, (500, 500), NUMBER, 40), 5)
    assert expect(policy(), to_router.whole(), entry=FROM_B).allowed == (TO_HOST,)
    assert expect(policy(), *to_router.cut(8), entry=FROM_B).allowed == (TO_HOST, TO_HOST)
    transit = Draft(4, B, A, UDP, transport((B, A), UDP, (500, 500), NUMBER, 40), 5)
    assert expect(policy(), transit.whole(), entry=FROM_B).allowed == (NOTHING,)


def test_the_routers_own_addresses_are_no_sources_from_outside() -> None:
    data = transport((OWN_B, A), UDP, (500, 500), NUMBER, 40)
    spoofed = Draft(4, OWN_B, C, UDP, data, 5).whole()
    assert expect(policy(REST), spoofed).excuse == "martian source"
    kinds = (
        (136, 255, "ff02::1", TO_HOST),
        (136, 64, "ff02::1", NOTHING),
        (135, 255, "ff02::1", NOTHING),
    )
    for kind, hops, group, allowed in kinds:
        to = packed(group)
        data = transport((OWN_B6, to), ICMPV6, (kind << 8, 0), NUMBER, 24)
        packet = Draft(6, OWN_B6, to, ICMPV6, data, 5, hops).whole()
        assert expect(policy(), packet, entry=FROM_B).allowed == (allowed,)


def test_neighbor_discovery_is_never_routed() -> None:
    data = transport((A6, B6), ICMPV6, (135 << 8, 0), NUMBER, 24)
    for count in (0, 9):
        draft = in_chain(options_chain(count), Draft(6, A6, B6, ICMPV6, data, 5, 255))
        assert expect(policy(REST), draft.whole()).allowed == (NOTHING,)


# -- ICMP errors


def _error(ends: tuple[bytes, bytes], about: bytes, kind: int = 3) -> bytes:
    data = struct.pack("!HHI", kind << 8, 0, 0) + about + filled(16)
    return Draft(4, *ends, ICMP, data, 6).whole()


def test_an_error_leaves_by_what_it_quotes_only_to_be_protected() -> None:
    about = udp(53, ends=(B, A)).whole()  # an answer comes from A, port 53
    answered = Rule("answer", ONE, protocols=(UDP,), destination_ports=((53, 53),))
    error = _error((A, B), about)
    assert expect(policy(answered), error).allowed == (BY_ONE,)
    assert expect(policy(replace(answered, verdict=BYPASS)), error).allowed == (NOTHING,)
    assert expect(policy(answered, Rule("icmp", BYPASS, protocols=(ICMP,))), error).allowed == (
        OUT_B,
    )


def test_an_error_for_another_than_the_sender_is_nobodys_answer() -> None:
    answered = Rule("answer", ONE, protocols=(UDP,))
    other = packed(plan.LINKS["b"].host(4, 2))
    about = udp(53, ends=(B, A)).whole()
    assert expect(policy(answered), _error((A, other), about)).allowed == (NOTHING,)


def test_errors_in_clear_come_in_only_where_the_spd_checks_them() -> None:
    rule = Rule("answer", BYPASS, protocols=(UDP,))
    error = _error((B, A), udp(53, ends=(A, B)).whole())
    found = [
        expect(policy(inbound=(rule,), checked=c), error, entry=FROM_B).allowed
        for c in (False, True)
    ]
    assert found == [(NOTHING,), (OUT_A,)]
    protects = policy(inbound=(replace(rule, verdict=ONE),), checked=True)
    assert expect(protects, error, entry=FROM_B).allowed == (NOTHING,)


def test_errors_that_a_bundle_carried_must_be_about_what_it_protects() -> None:
    error = _error((B, A), udp(53, ends=(A, B)).whole())
    for verdict, allowed in ((ONE, OUT_A), (TWO, NOTHING), (BYPASS, NOTHING)):
        rule = Rule("answer", verdict, protocols=(UDP,))
        assert expect(policy(inbound=(rule,)), error, entry=DECRYPTED_BY_ONE).allowed == (allowed,)


@pytest.mark.parametrize(("protocol", "ends"), [(ICMPV6, (A, B)), (ICMP, (A6, B6))])
def test_types_are_read_over_either_ip(protocol: int, ends: tuple[bytes, bytes]) -> None:
    echo = Rule("echo", DISCARD, protocols=(protocol,), icmp=((128 << 8, 128 << 8 | 255),))
    version = 4 if len(ends[0]) == 4 else 6
    for kind, allowed in ((128, NOTHING), (9, OUT_B)):
        data = transport(ends, protocol, (kind << 8, 0), NUMBER, 16)
        packet = Draft(version, *ends, protocol, data, 5).whole()
        assert expect(policy(echo, REST), packet).allowed == (allowed,)


# -- ESP, and the engine


def _to_router(protocol: int, body: bytes) -> Draft:
    return Draft(4, B, OWN_B, protocol, body, 5)


def test_esp_for_the_router_goes_to_the_engine_and_its_fragments_too() -> None:
    body = struct.pack("!II", 0x1001, 1) + filled(64)
    assert expect(policy(), _to_router(ESP, body).whole(), entry=FROM_B).allowed == (TO_ENGINE,)
    assert (
        expect(policy(), *_to_router(ESP, body).cut(32), entry=FROM_B).allowed == (TO_ENGINE,) * 2
    )
    unknown = struct.pack("!II", 0x9999, 1) + filled(64)
    assert expect(policy(), _to_router(ESP, unknown).whole(), entry=FROM_B).allowed == (NOTHING,)


def test_esp_in_udp_is_what_stands_inside_the_packet() -> None:
    esp = struct.pack("!II", 0x1001, 1) + filled(32)
    head = struct.pack("!HHHH", 4500, 4500, 8 + len(esp), 0)
    whole = expect(policy(), _to_router(UDP, head + esp).whole(), entry=FROM_B)
    assert whole.allowed == (TO_ENGINE,)
    lies = expect(policy(), _to_router(UDP, head).whole() + esp, entry=FROM_B)
    assert lies.allowed == (TO_HOST,)
    ike = expect(policy(), _to_router(UDP, head + bytes(4) + esp).whole(), entry=FROM_B)
    assert ike.allowed == (TO_HOST,)


def test_a_fragment_of_esp_in_udp_that_shows_its_spi_is_dropped_and_one_of_8_bytes_is_udp() -> None:
    esp = struct.pack("!II", 0x1001, 1) + filled(32)
    draft = _to_router(UDP, struct.pack("!HHHH", 4500, 4500, 8 + len(esp), 0) + esp)
    assert expect(policy(), draft.cut(16)[0], entry=FROM_B).allowed == (NOTHING,)
    assert expect(policy(), *draft.cut(8), entry=FROM_B).allowed == (TO_HOST, TO_HOST)


def test_what_the_engine_encrypted_is_esp_from_its_bundle() -> None:
    local = packed(str(plan.BUNDLES[1].local))
    body = struct.pack("!II", 7, 1) + filled(64)
    esp = Draft(4, local, B, ESP, body, 5)
    shim = Shim(ENCRYPTED, 1)
    cases = (
        (esp.whole(), shim, OUT_B),
        (esp.whole(), shim._replace(bundle=3), NOTHING),
        (esp.whole(), shim._replace(bundle=9), NOTHING),
        (esp.whole(), shim._replace(vrf=7), NOTHING),
        (esp.cut(32)[0], shim, NOTHING),
        (replace(esp, source=A).whole(), shim, NOTHING),
        (replace(esp, start=UDP).whole(), shim, NOTHING),
        (udp(ends=(local, B)).whole(), shim, NOTHING),
    )
    for packet, one, allowed in cases:
        assert expect(policy(), packet, entry=EntryPoint(plan.ENGINE, one)).allowed == (allowed,)


def test_nobody_else_speaks_for_the_engine() -> None:
    packet = udp(53).whole()
    for entry in (
        EntryPoint("a", Shim(DECRYPTED, 1)),
        EntryPoint(plan.ENGINE),
        EntryPoint(plan.ENGINE, Shim(1, 1)),
    ):
        assert expect(policy(REST), packet, entry=entry).allowed == (NOTHING,)

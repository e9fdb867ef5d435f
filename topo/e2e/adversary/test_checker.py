# SPDX-License-Identifier: Apache-2.0
"""Tests the checker with hand-made frames: it must report frames that leak, and accept permitted
ones.
"""

import struct

import pytest

from sluice_adversary import marks, plan
from sluice_adversary.checker import OutcomeChecker
from sluice_adversary.datagrams import DECRYPT, DECRYPTED, Datagram, EntryPoint, Shim
from sluice_adversary.drafts import Draft
from sluice_adversary.policy import BYPASS, Policy, Rule
from sluice_adversary.reference import Reference
from sluice_adversary.wire import ICMP, ipv4

from .made import (
    NUMBER,
    ONE,
    OWN_B,
    REST,
    A,
    B,
    datagram,
    left,
    policy,
    protected_port,
    to_engine,
    udp,
)


def judging(rules: Policy, *datagrams: Datagram) -> OutcomeChecker:
    checker = OutcomeChecker()
    checker.new_round(Reference(rules))
    for one in datagrams:
        checker.sent(one)
    return checker


def kinds(checker: OutcomeChecker) -> list[str]:
    return [finding.kind for finding in checker.findings]


def test_what_arrives_where_it_belongs_is_no_finding() -> None:
    one, two = udp(7000), udp(53, number=78)
    checker = judging(
        policy(protected_port(), REST), datagram(*one.cut(8, 32)), datagram(two.whole(), number=78)
    )
    for packet in one.cut(8, 32):
        checker.saw("engine", to_engine(1, packet))
    checker.saw("b", left("b", two.whole()))
    assert not checker.pending
    assert not checker.give_up()
    assert not checker.findings


@pytest.mark.parametrize("at", [0, 1, 2])
def test_any_fragment_in_clear_is_a_leak(at: int) -> None:
    """Checks that any of three fragments is reported as a leak if it is in clear.

    The first fragment has no mark, so the checker identifies it by its bytes.
    """
    packets = udp(7000).cut(8, 32)
    checker = judging(policy(protected_port(), REST), datagram(*packets))
    checker.saw("b", left("b", packets[at]))
    assert kinds(checker) == ["leak"]
    case = checker.findings[0].case
    assert case is not None
    assert case.datagram.number == NUMBER


def test_the_wrong_bundle_the_wrong_link_and_the_host_are_leaks() -> None:
    packet = udp(7000).whole()
    places = (
        ("engine", to_engine(2, packet)),
        ("engine", to_engine(1, packet, DECRYPT)),
        ("c", left("c", packet)),
        ("b", to_engine(1, packet)),
    )
    for place, frame in places:
        checker = judging(policy(protected_port()), datagram(packet))
        checker.saw(place, frame)
        assert kinds(checker) == ["leak"]
    for see, seen in (
        (OutcomeChecker.delivered, left("b", packet)),
        (OutcomeChecker.heard, packet),
    ):
        checker = judging(policy(protected_port()), datagram(packet))
        see(checker, seen)
        assert kinds(checker) == ["leak"]


def test_a_frame_that_nobody_sent_is_a_leak() -> None:
    checker = judging(policy(REST))
    checker.saw("b", left("b", udp(53).whole()))
    assert kinds(checker) == ["leak"]


def test_bytes_that_were_altered_on_the_way_are_a_leak() -> None:
    sent = udp(53)
    checker = judging(policy(REST), datagram(sent.whole()))
    sent.payload = sent.payload[:-8] + bytes(8)
    checker.saw("b", left("b", sent.whole()))
    assert kinds(checker) == ["leak"]


def test_what_does_not_arrive_is_lost_and_what_need_not_is_not() -> None:
    packets = udp(53).cut(8, 32)
    checker = judging(
        policy(REST), datagram(*packets), datagram(*udp(53, number=78).cut(8)[1:], number=78)
    )
    checker.saw("b", left("b", packets[1]))
    (lost,) = checker.give_up()
    assert lost.kind == "lost"
    assert lost.case is checker.cases[NUMBER]
    assert "1 of 3" in lost.what


def test_overlapping_fragments_do_not_both_pass() -> None:
    draft = udp(53)
    one, two = draft.piece(0, 24), draft.piece(16, 72)
    checker = judging(policy(protected_port(), REST), datagram(one, two))
    checker.saw("b", left("b", one))
    checker.saw("b", left("b", one))
    assert not checker.findings
    checker.saw("b", left("b", two))
    assert kinds(checker) == ["leak"]


def test_a_fragment_that_the_router_made_is_known() -> None:
    draft = udp(53, size=200)
    checker = judging(policy(REST), datagram(draft.whole()))
    for packet in draft.cut(64, 128):
        checker.saw("b", left("b", packet))
    assert not checker.findings


# -- the router's own packets


def _own_error(about: bytes) -> bytes:
    return ipv4(OWN_B, A, ICMP, struct.pack("!HHI", 11 << 8, 0, 0) + about)


def test_an_error_about_a_decrypted_packet_goes_by_its_bundle_or_nowhere() -> None:
    quoted = udp(53, ends=(A, B)).whole()
    entry = EntryPoint(plan.ENGINE, Shim(DECRYPTED, 3, ingress_l3_if=2))
    for place, frame, found in (
        ("a", left("a", _own_error(quoted)), ["leak"]),
        ("engine", to_engine(1, _own_error(quoted)), ["leak"]),
        ("engine", to_engine(3, _own_error(quoted)), []),
    ):
        checker = judging(policy(Rule("icmp", BYPASS)), datagram(quoted, entry=entry))
        checker.saw(place, frame)
        assert kinds(checker) == found


def test_an_error_is_known_by_its_quote_where_that_holds_no_mark() -> None:
    quoted = udp(53, size=64, ends=(A, B)).piece(0, 8)
    entry = EntryPoint(plan.ENGINE, Shim(DECRYPTED, 3, ingress_l3_if=2))
    checker = judging(policy(Rule("icmp", BYPASS)), datagram(quoted, entry=entry))
    checker.saw("a", left("a", _own_error(quoted)))
    assert kinds(checker) == ["leak"]


def test_an_error_may_leave_by_a_bundle_that_carried_packets_like_what_it_quotes() -> None:
    carried = udp(53, ends=(B, OWN_B), number=78).whole()
    entry = EntryPoint(plan.ENGINE, Shim(DECRYPTED, 1, ingress_l3_if=2))
    clear = udp(7000, ends=(B, OWN_B)).whole()
    error = ipv4(OWN_B, B, ICMP, struct.pack("!HHI", 3 << 8, 0, 0) + clear)
    rules = policy(inbound=(Rule("all", ONE),))
    checker = judging(rules, datagram(carried, entry=entry, number=78), datagram(clear))
    checker.saw("engine", to_engine(1, error))
    assert not checker.findings
    checker.saw("engine", to_engine(2, error))
    assert kinds(checker) == ["leak"]


def test_what_was_forgotten_takes_nothing_else_along(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the checker still knows the second of two datagrams with the same bytes, after it
    has removed the first from its memory.
    """
    monkeypatch.setattr("sluice_adversary.checker.REMEMBERED", 1)
    packet = udp(53, size=0).whole()
    checker = judging(policy(REST), datagram(packet, number=1), datagram(packet, number=2))
    checker.saw("b", left("b", packet))
    assert not checker.findings
    assert not checker.pending


def test_the_routers_own_packets_meet_the_outbound_list() -> None:
    answer = Draft(4, OWN_B, B, ICMP, struct.pack("!HHI", 0, 0, 1) + marks.fill(NUMBER, 16), 5)
    for rule, link_leaks, engine_leaks in ((REST, [], ["leak"]), (Rule("all", ONE), ["leak"], [])):
        checker = judging(policy(rule))
        checker.saw("b", left("b", answer.whole()))
        assert kinds(checker) == link_leaks
        checker = judging(policy(rule))
        checker.saw("engine", to_engine(1, answer.whole()))
        assert kinds(checker) == engine_leaks


def test_what_the_router_said_around_a_commit_may_follow_either_policy() -> None:
    answer = Draft(4, OWN_B, B, ICMP, struct.pack("!HHI", 0, 0, 1) + bytes(16), 5).whole()
    checker = judging(policy(REST))
    checker.new_round(Reference(policy()))
    checker.saw("b", left("b", answer))
    assert not checker.findings
    checker.settled()
    checker.saw("b", left("b", answer))
    assert kinds(checker) == ["leak"]

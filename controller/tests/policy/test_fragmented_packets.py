# SPDX-License-Identifier: Apache-2.0
"""Tests that each fragment gets the verdict of its whole datagram (RFC 4301, section 7) or is
dropped.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from packets import ethernet, ipv4, ipv6_chain
from policy_world import BYPASS, CONFIG, INBOUND, PROTECT, PolicyWorld, RunScenario, filled
from sluice.policy.model import FragmentClass
from sluice.state.spd import rule_blocks, rules_digest

SOURCE, DESTINATION = "10.0.3.7", "10.9.0.1"
SECRET, OPEN = 7000, 53
UDP, FRAGMENT, DESTINATION_OPTIONS = 17, 44, 60
RULES = """\
spd: corp
inbound: [{name: all-in, action: bypass}]
outbound:
  - {name: secret, action: protect, bundle: branch, protocol: udp, destination_ports: [7000]}
  - {name: closed, action: discard, protocol: udp, destination_ports: [9000]}
  - {name: rest, action: bypass}
"""
AGREED = """\
spd: corp
inbound: [{name: all-in, action: bypass}]
outbound:
  - {name: elsewhere, action: discard, destination: 10.8.0.0/16}
  - {name: web, action: protect, bundle: branch, protocol: tcp, destination_ports: [80]}
  - {name: rest, action: bypass}
"""
WAITED = "fragments that waited for their first"
OVERLAP = "dropped: fragments overlap"


def ports(port: int) -> bytes:
    return (40000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(12)


def first(port: int) -> bytes:
    return ethernet(ipv4(SOURCE, DESTINATION, ports(port), UDP, more_fragments=True))


def later(offset: int = 16, *, more: bool = False) -> bytes:
    packet = ipv4(SOURCE, DESTINATION, bytes(16), UDP, fragment_offset=offset, more_fragments=more)
    return ethernet(packet)


def fragment6(offset: int, more: bool, protocol: int, payload: bytes) -> bytes:
    header = b"\0\0" + (offset | more).to_bytes(2, "big") + b"abcd"
    return ethernet(ipv6_chain([(FRAGMENT, header)], protocol, payload))


@pytest.mark.parametrize(("port", "verdict"), [(SECRET, PROTECT), (OPEN, BYPASS)])
def test_later_fragments_get_their_datagrams_verdict_and_are_not_cached(
    run_scenario: RunScenario, port: int, verdict: int
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        for frame in (first(port), later(16, more=True), later(32)):
            world.miss(frame)
        sent = await world.sent(3)
        assert [each["verdict"] for each in sent] == [verdict] * 3
        assert world.switch.flows == {}
        assert len(world.controller.first_packets.fragments) == 0

    run_scenario(scenario)


def test_later_fragments_of_what_is_discarded_are_discarded(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(first(9000))
        world.miss(later())
        await world.counted("dropped: policy discards outbound", 2)
        assert world.client.sent == []

    run_scenario(scenario)


def test_later_fragments_wait_for_their_first(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(later(32))
        world.miss(later(16, more=True))
        await world.counted(WAITED, 2)
        assert world.client.sent == []
        world.miss(first(SECRET))
        sent = await world.sent(3)
        assert [each["verdict"] for each in sent] == [PROTECT] * 3
        assert [frame for frame, _ in world.client.sent] == [
            first(SECRET),
            later(32),
            later(16, more=True),
        ]

    run_scenario(scenario)


def test_a_commit_applies_to_the_fragments_that_follow_it(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(first(SECRET))
        await world.sent()
        await world.commit(RULES.replace("[7000]", "[9000]").replace("closed", "shut"))
        world.miss(later())
        sent = await world.sent(2)
        assert [each["verdict"] for each in sent] == [PROTECT, BYPASS]

    run_scenario(scenario)


def test_where_all_rules_agree_fragments_are_cached_and_need_no_state(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(AGREED)
        world.miss(later())
        world.miss(first(SECRET))
        await world.sent(2)
        await world.until(lambda: len(world.switch.live()) == 2)
        classes = {slot.key.fragment for slot in world.switch.live()}
        assert classes == {FragmentClass.FIRST, FragmentClass.LATER}
        assert len(world.controller.first_packets.fragments) == 0

    run_scenario(scenario)


def test_overlaps_are_dropped_by_name(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(first(OPEN))
        world.miss(later(8))
        await world.counted(OVERLAP)
        world.miss(later(16))
        await world.counted(OVERLAP, 2)
        assert len(world.client.sent) == 1

    run_scenario(scenario)


def test_a_second_first_fragment_with_other_ports_is_an_overlap(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        for frame in (first(OPEN), first(SECRET), later()):
            world.miss(frame)
        await world.counted(OVERLAP, 2)
        assert [each["verdict"] for each in await world.sent()] == [BYPASS]

    run_scenario(scenario)


def test_what_waits_in_vain_is_dropped_by_name(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.controller.first_packets.fragments._seconds = 0.05
        world.miss(later())
        fragments = world.controller.first_packets.fragments
        await world.until(lambda: fragments.counters["dropped: fragment whose first did not come"])
        assert (len(fragments), world.client.sent) == (0, [])

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("frames", "reasons"),
    [
        ([later(16)], ["fragment whose first did not come"]),
        ([first(OPEN), later(8)], ["fragments overlap"]),
        ([later(16), later(24)], ["fragments overlap"] * 2),
    ],
)
def test_a_dropped_fragment_is_in_the_audit_log(
    run_scenario: RunScenario, frames: list[bytes], reasons: list[str]
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.controller.first_packets.fragments._seconds = 0.05
        for frame in frames:
            world.miss(frame)
        audit = world.controller.audit
        await world.until(lambda: audit.counters["written: fragment dropped"] == len(reasons))
        lines = [one for one in world.audit_lines() if one["event"] == "fragment dropped"]
        assert [one["reason"] for one in lines] == reasons
        assert {(one["list"], one["destination"]) for one in lines} == {("outbound", DESTINATION)}

    run_scenario(scenario)


def test_the_protocol_that_later_ipv6_fragments_name_is_not_believed(
    run_scenario: RunScenario,
) -> None:
    rules = """\
spd: corp
inbound: []
outbound:
  - {name: udp, action: protect, bundle: branch, protocol: udp}
  - {name: rest, action: bypass}
"""
    options = bytes([UDP, 0]) + bytes(6)

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(rules)
        world.miss(fragment6(0, True, DESTINATION_OPTIONS, options + ports(OPEN)))
        world.miss(fragment6(24, True, DESTINATION_OPTIONS, bytes(16)))
        world.miss(fragment6(40, False, 6, bytes(16)))  # its Next Header field names TCP
        sent = await world.sent(3)
        assert [each["verdict"] for each in sent] == [PROTECT] * 3

    run_scenario(scenario)


@pytest.mark.parametrize("is_local", [0, 1])
def test_neighbour_discovery_in_fragments_is_refused(
    run_scenario: RunScenario, is_local: int
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        solicitation = bytes([135]) + bytes(23)
        world.miss(fragment6(0, True, 58, solicitation), INBOUND, is_local=is_local)
        await world.counted("dropped: nd_invalid")
        assert world.client.sent == []

    run_scenario(scenario)


def test_neighbour_discovery_behind_a_deep_chain_is_refused(run_scenario: RunScenario) -> None:
    """Checks that the controller drops neighbour discovery behind more extension headers than the
    pipeline can parse.

    After re-injection, the pipeline could check neither the ICMP type of such a packet nor its hop
    limit, which must be 255.
    """

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        chain = [(DESTINATION_OPTIONS, bytes(8))] * 7
        world.miss(ethernet(ipv6_chain(chain, 58, bytes([136]) + bytes(23))), INBOUND, is_local=1)
        await world.counted("dropped: nd_invalid")
        assert world.client.sent == []

    run_scenario(scenario)


# -- bundles that must not carry later fragments

WHOLE_ONLY = CONFIG.replace(
    "    spd: corp\n    outb", "    spd: corp\n    later_fragments: no\n    outb"
)
LATER_REFUSED = "dropped: later fragment, its bundle carries none"
SAME = """\
spd: corp
inbound: [{name: all, action: protect, bundle: branch}]
outbound: [{name: all, action: protect, bundle: branch}]
"""


@pytest.mark.parametrize("rules", [RULES, SAME])
def test_a_bundle_sends_no_later_fragments_if_it_says_so(
    run_scenario: RunScenario, tmp_path: Path, rules: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(rules)
        for frame in (first(SECRET), later(16, more=True), later(32)):
            world.miss(frame)
        await world.counted(LATER_REFUSED, 2)
        assert [each["verdict"] for each in await world.sent()] == [PROTECT]
        assert all(slot.key.fragment is FragmentClass.FIRST for slot in world.switch.flows)
        assert world.audit_lines()[-1]["event"] == "fragment dropped"

    run_scenario(scenario, text=filled(WHOLE_ONLY, tmp_path))


def test_a_bundle_accepts_no_later_fragments_if_it_says_so(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(SAME)
        world.miss(later(), INBOUND, bundle=7, origin=2)
        await world.counted(LATER_REFUSED)
        assert (world.client.sent, world.switch.flows) == ([], {})

    run_scenario(scenario, text=filled(WHOLE_ONLY, tmp_path))


def test_such_a_bundle_changes_nothing_for_fragments_in_clear(
    run_scenario: RunScenario, tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        for frame in (first(OPEN), later()):
            world.miss(frame)
        assert [each["verdict"] for each in await world.sent(2)] == [BYPASS] * 2

    run_scenario(scenario, text=filled(WHOLE_ONLY, tmp_path))


def test_its_lists_have_another_digest_so_cached_fragments_do_not_outlive_a_restart() -> None:
    other, same, carried = (rule_blocks(("a",), (7,), bundles) for bundles in ({7}, {8}, set()))
    assert rules_digest(other) != rules_digest(carried) == rules_digest(same)

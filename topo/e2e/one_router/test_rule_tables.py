# SPDX-License-Identifier: Apache-2.0
"""Tests SPDs whose rules are in the switch's rule tables: no new flow needs the controller.

The verdicts must be those of the ordered search, also right after a commit, without a controller,
and after a restart of the controller.
"""

import random
import socket
from collections.abc import Iterator

import pytest

from sluice_testkit.packet import UDP
from sluice_testkit.pytest_plugin import open_lab
from sluice_testkit.target import target_name
from sluice_testkit.wait import wait_until

from .network import EVERYTHING, VERSIONS, OneRouter, Rule, udp
from .test_explain import explain, random_rules
from .walking import ArrivalRecorder, Flow, stop

PACKETS = 16
COMMITS = 12
ASKS_SWITCH = target_name() == "sluice-switch"


@pytest.fixture(scope="module", params=["rules", "auto"])
def started(request: pytest.FixtureRequest) -> Iterator[OneRouter]:
    for lab in open_lab():
        network = OneRouter(lab, interposed=False, mode=request.param)
        network.start()
        yield network


@pytest.fixture
def flows(network: OneRouter) -> Iterator[list[Flow]]:
    """Yields an empty list for flows. All flows in the list are closed after the test."""
    opened: list[Flow] = []
    yield opened
    for flow in opened:
        flow.close()


def is_whole_list_in_switch(network: OneRouter, spd: str) -> bool:
    """Returns whether both lists of an SPD are in the rule tables as a whole."""
    lists = [network.list_of(spd, direction) for direction in ("inbound", "outbound")]
    return all(one["rule_tables"]["is_complete"] for one in lists)


@VERSIONS
def test_new_flows_are_not_searched_for(
    network: OneRouter, flows: list[Flow], version: int
) -> None:
    """Packets of new flows get their verdict from the tables, and each rule counts its packets."""
    flows += [Flow(network, version) for _ in range(PACKETS)]
    passing, stopped = flows[: PACKETS // 2], flows[PACKETS // 2 :]
    network.commit("east", outbound=stop(*stopped))
    assert is_whole_list_in_switch(network, "east")
    assert is_whole_list_in_switch(network, "west")
    searched = network.searched()
    through, halted = network.rule("east", "everything"), network.rule("east", "stop")
    entered = network.rule("west", "everything", "inbound")
    with ArrivalRecorder(network) as arrivals, network.dropping("OUTBOUND_DISCARD", len(stopped)):
        expected = [number for flow in passing for number in flow.send()]
        for flow in stopped:
            flow.send()
        arrivals.wait_for(expected)
    assert arrivals.numbers() == sorted(expected)
    assert network.searched() == searched
    assert network.rule("east", "stop").since(halted) == (len(stopped), 0)
    assert network.rule("east", "everything").since(through) == (len(passing), 0)
    assert network.rule("west", "everything", "inbound").since(entered) == (PACKETS, 0)
    assert network.flows("east", protocol=UDP) == []


@VERSIONS
@pytest.mark.parametrize("seed", [3, 4])
def test_packets_have_the_fate_of_the_ordered_search(
    network: OneRouter, flows: list[Flow], version: int, seed: int
) -> None:
    flows += [Flow(network, version) for _ in range(PACKETS)]
    ports = [flow.port for flow in flows]
    chance = random.Random(seed)
    network.commit("west", inbound=random_rules(chance, ports))
    network.commit("east", outbound=random_rules(chance, ports))
    searched = network.searched()
    expected = []
    with ArrivalRecorder(network) as arrivals:
        for flow in flows:
            found = explain(network, flow, version)
            assert found["disagreements"] == []
            if ASKS_SWITCH:
                lists = found["switch"]["lists"].values()
                assert all(one["rule_hit"] and not one["asked"] for one in lists)
            (number,) = flow.send()
            if found["outcome"]["result"] == "forwarded":
                expected.append(number)
        arrivals.wait_for(expected)
        assert arrivals.numbers() == sorted(expected)
    assert 0 < len(expected) < PACKETS
    assert network.searched() == searched


def test_own_packets_without_a_whole_transport_header_match_no_entry(network: OneRouter) -> None:
    """A packet of the host stack is cut off within its ports. The ordered search drops it."""
    network.commit("east", outbound=[EVERYTHING])
    dropped = network.first_packets("dropped: transport_truncated")
    with network.router.namespace.socket(
        socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_UDP
    ) as cut_off:
        cut_off.sendto(b"\x12\x34", (network.address("b"), 0))
    wait_until(lambda: network.first_packets("dropped: transport_truncated") == dropped + 1)


def test_after_a_commit_no_packet_meets_the_old_rules(
    network: OneRouter, flows: list[Flow]
) -> None:
    """Packets flow all the time. Those sent after a commit has returned have its verdict."""
    flows.append(Flow(network))
    (flow,) = flows
    expected, refused = [], []
    with ArrivalRecorder(network) as arrivals:
        for number in range(COMMITS):
            rules = stop(flow) if number % 2 else [EVERYTHING]
            network.commit("east", outbound=rules)
            sent = flow.send(20)
            if number % 2:
                refused += sent
            else:
                expected += sent
        arrivals.wait_for(expected)
    assert not set(refused) & set(arrivals.numbers())


def test_a_list_longer_than_its_share_of_the_tables(network: OneRouter, flows: list[Flow]) -> None:
    """The tables hold the first rules. A packet that needs a later rule is searched for. In mode
    `auto` the tables hold nothing, and each flow is searched for.
    """
    flows += [Flow(network) for _ in range(2)]
    first, last = flows
    before = network.list_of("east")
    is_auto, room = before["mode"] == "auto", before["rule_tables"]["room"]["ipv4"]
    many: list[Rule] = [
        udp(f"r{number}", "discard", 1) | {"source": [f"10.{number >> 8}.{number & 255}.7"]}
        for number in range(room)
    ]
    rules = [udp("first", "bypass", first.port), *many, udp("last", "bypass", last.port)]
    network.commit("east", outbound=rules)
    held = network.list_of("east")["rule_tables"]
    assert not held["is_complete"]
    assert held["rules"] == 0 if is_auto else 0 < held["rules"] < len(rules)
    assert held["chosen"] == ("cache" if is_auto else "rules")
    searched = network.searched()
    with ArrivalRecorder(network) as arrivals:
        arrivals.wait_for(first.send())
        assert network.searched() == searched + is_auto
        arrivals.wait_for(last.send())
    assert network.searched() == searched + is_auto + 1


def test_the_choice_is_shown(network: OneRouter) -> None:
    """Both `show spd` and `show flows` say that the switch holds the rules."""
    mode = network.list_of("east")["mode"]
    spd = network.sluice("show", "spd", "east")
    choice = "auto: cache+rules, all" if mode == "auto" else "pinned: rules, all"
    assert spd.count(choice) == 2
    flows = network.sluice("show", "flows", "east")
    why = "all rules are in the rule tables" if mode == "auto" else "no flow cache (mode: rules)"
    assert f"east inbound, east outbound: {why}" in flows


def test_the_rules_hold_without_a_controller_and_after_its_restart(
    network: OneRouter, flows: list[Flow]
) -> None:
    flows += [Flow(network) for _ in range(4)]
    network.commit("east", outbound=stop(flows[0], flows[2]))
    network.controller.kill()
    with ArrivalRecorder(network) as arrivals:
        flows[0].send()
        expected = flows[1].send()
        arrivals.wait_for(expected)
        network.controller.start()
        network.wait_taken_over()
        assert is_whole_list_in_switch(network, "east")
        flows[2].send()
        expected += flows[3].send()
        arrivals.wait_for(expected)
        assert arrivals.numbers() == sorted(expected)

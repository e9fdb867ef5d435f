# SPDX-License-Identifier: Apache-2.0
"""Tests that `sluice explain` predicts what happens to real packets.

For random packets and rules, the prediction is compared with the arrival of the packet. Each packet
is explained before it is sent, when its flow is not cached, and again when its flow is cached.
"""

import json
import random
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.process import CommandFailed
from sluice_testkit.target import target_name
from sluice_testkit.wait import wait_until

from .network import EVERYTHING, VERSIONS, OneRouter, Rule, udp
from .walking import ArrivalRecorder, Flow, stop

PACKETS = 12
ASKS_SWITCH = target_name() == "sluice-switch"


def explain(network: OneRouter, flow: Flow, version: int) -> dict[str, Any]:
    """Returns the explanation for packets of a flow that arrive on eth1."""
    ends = [(network.address("a", version), flow.source_port), (flow.destination, flow.port)]
    texts = [f"[{host}]:{port}" if version == 6 else f"{host}:{port}" for host, port in ends]
    found = network.sluice("explain", f"udp {texts[0]} > {texts[1]} in eth1", "--json")
    answer = json.loads(found)
    assert isinstance(answer, dict)
    return answer


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> OneRouter:
    network = OneRouter(module_lab, interposed=False)
    network.start()
    return network


@pytest.fixture
def flows(network: OneRouter) -> Iterator[list[Flow]]:
    """Yields an empty list for flows. All flows in the list are closed after the test."""
    opened: list[Flow] = []
    yield opened
    for flow in opened:
        flow.close()


def random_rules(chance: random.Random, ports: list[int]) -> list[Rule]:
    """Returns rules that bypass or discard ranges of these ports. A rule may completely cover a
    later one.
    """
    rules = []
    for number in range(8):
        low, high = sorted(chance.sample(ports, 2))
        rule = udp(f"r{number}", chance.choice(["bypass", "discard"]))
        rules.append(rule | {"destination_ports": [f"{low}-{high}"]})
    return [*rules, EVERYTHING]


@VERSIONS
@pytest.mark.parametrize("seed", [1, 2])
def test_packets_have_the_fate_that_is_explained(
    network: OneRouter, flows: list[Flow], version: int, seed: int
) -> None:
    flows += [Flow(network, version) for _ in range(PACKETS)]
    ports = [flow.port for flow in flows]
    chance = random.Random(seed)
    network.commit("west", inbound=random_rules(chance, ports))
    network.commit("east", outbound=random_rules(chance, ports))
    expected = []
    with ArrivalRecorder(network) as arrivals:
        for flow in flows:
            found = explain(network, flow, version)
            (number,) = flow.send()
            if found["outcome"]["result"] == "forwarded":
                expected.append(number)
            else:
                assert found["outcome"]["reason"] in ("INBOUND_DISCARD", "OUTBOUND_DISCARD")
        arrivals.wait_for(expected)
        for flow in flows:
            cached = partial(_is_cached, network, flow, version)
            wait_until(cached, 10, "flow cached")
        assert arrivals.numbers() == sorted(expected)
    assert 0 < len(expected) < PACKETS


def _is_cached(network: OneRouter, flow: Flow, version: int) -> bool:
    """Returns whether all lists on the packet's path have the flow in their caches.

    If so, also checks that the controller's explanation and the switch's dry run agree.
    """
    found = explain(network, flow, version)
    lists = [found["inbound"], *found["outbound"]]
    if any(one["cache"] != "flow" for one in lists):
        return False
    assert found["disagreements"] == []
    if ASKS_SWITCH:
        assert all(one["hit"] for one in found["switch"]["lists"].values())
    return True


@pytest.mark.skipif(not ASKS_SWITCH, reason="other targets have no dry runs")
def test_an_explanation_sends_and_counts_nothing(network: OneRouter, flows: list[Flow]) -> None:
    flow = Flow(network)
    flows.append(flow)
    before = network.searched()
    with ArrivalRecorder(network) as arrivals:
        for _ in range(3):
            found = explain(network, flow, 4)
            assert found["switch"]["runs"] == 3
            assert found["disagreements"] == []
        (number,) = flow.send()
        arrivals.wait_for([number])
        assert arrivals.numbers() == [number]
    assert network.searched() == before + 2  # in two lists
    (row,) = network.flows("east", destination_port=flow.port)
    assert row["action"] == "bypass"


@pytest.mark.skipif(not ASKS_SWITCH, reason="other targets have no dry runs")
def test_a_commit_changes_both_accounts(network: OneRouter, flows: list[Flow]) -> None:
    """After a commit has changed the verdict of a cached flow, the controller's explanation and the
    switch's dry run both report the new verdict.
    """
    flow = Flow(network)
    flows.append(flow)
    flow.send()
    wait_until(lambda: network.flows("east", destination_port=flow.port), 10, "flow cached")
    network.commit("east", outbound=stop(flow))
    found = explain(network, flow, 4)
    assert found["outcome"] == {"result": "dropped", "reason": "OUTBOUND_DISCARD"}
    assert found["disagreements"] == []


def test_bad_descriptions_are_refused(network: OneRouter) -> None:
    with pytest.raises(CommandFailed, match="no interface 'eth9'"):
        network.sluice("explain", "udp 10.1.0.2:1 > 10.2.0.2:2 in eth9")

# SPDX-License-Identifier: Apache-2.0
"""Tests changes of rules and routes while traffic runs. Captures on the hosts check the results.

To know that a packet will not arrive, a test waits until the packet is counted as dropped, and
never for a fixed time.
"""

from functools import partial

import pytest

from sluice_testkit.packet import UDP
from sluice_testkit.wait import wait_until

from .network import EVERYTHING, SITE, VERSIONS, OneRouter, udp
from .walking import ArrivalRecorder, Flow, Fragments, Stream

# -- rules that change while a flow is sending


@VERSIONS
def test_a_discard_rule_stops_a_running_flow_at_once(network: OneRouter, version: int) -> None:
    """When a commit of a discard rule has returned, packets of a flow that is already sending no
    longer arrive.

    The flow is then cached with the verdict discard.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        with Stream(flow) as stream:
            stream.wait_for_more(20)
            network.commit("east", outbound=[udp("stop", "discard", flow.port), EVERYTHING])
            last = stream.sent[-1]
            stream.wait_for_more(20)
        later = sum(number > last for number in stream.sent)
        stopped = partial(network.rule, "east", "stop")
        wait_until(lambda: sum(stopped()) >= later, 10, f"{later} packets discarded")
        assert stopped().hits > 0
        assert b.numbers(), "the flow never ran"
        assert max(b.numbers()) <= last


@VERSIONS
def test_a_running_flow_goes_on_once_its_rule_is_lifted(network: OneRouter, version: int) -> None:
    """When a commit has removed the discard rule of a flow, every packet sent afterwards arrives
    once.

    No packet arrives before the commit.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        network.commit("east", outbound=[udp("stop", "discard", flow.port), EVERYTHING])
        with Stream(flow) as stream:
            wait_until(lambda: sum(network.rule("east", "stop")) >= 20, 10, "20 discarded")
            assert b.numbers() == []
            network.commit("east")
            last = stream.sent[-1]
            stream.wait_for_more(20)
        came = b.wait_for(number for number in stream.sent if number > last)
        assert len(came) == len(set(came))


@pytest.mark.parametrize(("spd", "direction"), [("west", "inbound"), ("east", "outbound")])
@VERSIONS
def test_a_discard_rule_discards_and_is_cached(
    network: OneRouter, version: int, spd: str, direction: str
) -> None:
    """For a discarded flow, the controller searches the rules for the first packet only. The switch
    drops the later packets, and they count as hits of the rule.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        network.commit(spd, **{direction: [udp("no", "discard", flow.port), EVERYTHING]})
        flow.send()
        like = {"destination_port": flow.port, "action": "discard", "stale": False}
        wait_until(partial(network.flows, spd, direction, **like), 10, "the flow cached")
        with network.dropping(f"{direction.upper()}_DISCARD", 9):
            flow.send(9)
        assert network.rule(spd, "no", direction) == (9, 1)
        assert b.numbers() == []


# -- two lists on one path, and fragments


@VERSIONS
def test_a_first_packet_misses_inbound_and_then_outbound(network: OneRouter, version: int) -> None:
    """For the first packet of a flow, the controller searches the inbound and the outbound list
    once each. The packet leaves once.

    The later packets hit both caches.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        network.commit("west", inbound=[udp("in", "bypass", flow.port)])
        network.commit("east", outbound=[udp("out", "bypass", flow.port)])
        first = flow.send()
        assert b.wait_for(first) == first
        assert network.rule("west", "in", "inbound") == (0, 1)
        assert network.rule("east", "out") == (0, 1)
        for spd, direction in (("west", "inbound"), ("east", "outbound")):
            cached = partial(network.flows, spd, direction, destination_port=flow.port)
            wait_until(partial(cached, stale=False), 10, f"cached {direction}")
        more = flow.send(5)
        assert b.wait_for(more) == [*first, *more]
        assert network.rule("west", "in", "inbound") == (5, 1)
        assert network.rule("east", "out") == (5, 1)


@VERSIONS
@pytest.mark.parametrize("action", ["bypass", "discard"])
def test_fragments_meet_the_rule_of_their_datagram(
    network: OneRouter, version: int, action: str
) -> None:
    """Later fragments get the verdict of the first fragment of their datagram. If the first
    fragment has not arrived, they wait for it and do not pass.
    """
    other = {"bypass": "discard", "discard": "bypass"}[action]
    port = network.fresh_port()
    fragments = Fragments(network, version, port)
    with ArrivalRecorder(network) as b:
        network.commit("east", outbound=[udp("ports", action, port), udp("any", other)])
        numbers = [fragments.send_first()]
        numbers += [fragments.send_later(of=numbers[0]) for _ in range(2)]
        early = fragments.send_later()
        waited = partial(network.first_packets, "fragments that waited for their first")
        wait_until(waited, 10, "the fragment without its first fragment to wait")
        passing = numbers if action == "bypass" else []
        assert b.wait_for(passing) == passing
        assert early not in b.numbers()
        assert network.rule("east", "ports") == (0, 3)
        assert network.rule("east", "any") == (0, 0)
        assert network.flows("east", protocol=UDP, stale=False) == []


@VERSIONS
def test_fragments_that_all_rules_agree_about_are_served_from_the_cache(
    network: OneRouter, version: int
) -> None:
    """If all rules that may match a later fragment agree, its verdict is cached and it needs no
    first fragment.
    """
    port = network.fresh_port()
    fragments = Fragments(network, version, port)
    with ArrivalRecorder(network) as b:
        network.commit("east", outbound=[udp("ports", "bypass", port), EVERYTHING])
        cached = partial(network.flows, "east", protocol=UDP, stale=False)
        later = [fragments.send_later()]
        wait_until(partial(cached, fragment="later"), 10, "the later fragment's flow to be cached")
        first = [fragments.send_first()]
        wait_until(partial(cached, fragment="first"), 10, "the first fragment's flow to be cached")
        later += [fragments.send_later() for _ in range(4)]
        first += [fragments.send_first() for _ in range(4)]
        assert b.wait_for(sorted(later + first)) == sorted(later + first)
        assert network.rule("east", "ports") == (4, 1)


# -- routes that change while a flow is sending


@VERSIONS
def test_a_running_flow_moves_to_an_interface_with_another_spd(
    network: OneRouter, version: int
) -> None:
    """When a route moves to another interface, that interface's SPD applies to a flow that is
    already sending.

    The flow is cached for SPD `east` while its route goes via b. When the route moves to c, the
    list of `south` discards the flow.
    """
    with (
        Flow(network, version, destination=SITE[version]) as flow,
        ArrivalRecorder(network, "b") as b,
        ArrivalRecorder(network, "c") as c,
    ):
        network.commit("south", outbound=[udp("stop", "discard", flow.port), EVERYTHING])
        first = flow.send(3)
        b.wait_for(first)
        with network.site_by_c():
            with network.refusing():
                flow.send()
            with network.dropping("OUTBOUND_DISCARD"):
                flow.send()
            assert c.numbers() == []
            assert b.numbers() == first
        second = flow.send(3)
        assert b.wait_for(second) == [*first, *second]
        assert network.flows("east", destination_port=flow.port, stale=False)

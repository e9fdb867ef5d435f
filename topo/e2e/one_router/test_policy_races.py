# SPDX-License-Identifier: Apache-2.0
"""Tests rules and routes that change while the controller searches the rules for a packet, or
before the verdict reaches the switch.

The interposer holds messages between controller and switch, so each race happens in the order that
the test needs. Captures on the hosts check that no packet arrives that the current rules discard,
and that every other packet arrives once.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from sluice_testkit.controller import RequestRefused
from sluice_testkit.wait import wait_until

from .network import EVERYTHING, SITE, VERSIONS, OneRouter, udp
from .walking import ArrivalRecorder, Flow, stop

FLOW_TABLE = {4: "outbound.ipv4_flow", 6: "outbound.ipv6_flow"}


# -- rules that change during the search for a first packet


@VERSIONS
def test_a_packet_that_is_searched_after_a_commit_meets_the_new_rules(
    network: OneRouter, version: int
) -> None:
    """If a packet is punted before a commit but searched after it, the packet and its cached flow
    get the new verdict.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        with network.interposer.hold("packet_in", **flow.miss()) as punts:
            flow.send()
            punts.wait_for(1)
            network.commit("east", outbound=stop(flow))
            with network.refusing():
                punts.release()
        with network.dropping("OUTBOUND_DISCARD", 2):
            flow.send(2)
        assert network.rule("east", "stop") == (2, 1)
        assert b.numbers() == []

        network.sluice("flow-cache", "clear", "east")
        with network.interposer.hold("packet_in", **flow.miss()) as punts:
            first = flow.send()
            punts.wait_for(1)
            network.commit("east", outbound=[udp("pass", "bypass", flow.port)])
            punts.release()
            assert b.wait_for(first) == first
        more = flow.send(2)
        assert b.wait_for(more) == [*first, *more]
        assert network.rule("east", "pass") == (2, 1)


@VERSIONS
@pytest.mark.parametrize(("spd", "stage"), [("west", "INBOUND"), ("east", "OUTBOUND")])
def test_an_answer_that_comes_after_a_commit_is_dropped(
    network: OneRouter, version: int, spd: str, stage: str
) -> None:
    """If a packet-out carries a verdict from before a commit, the switch drops it as STALE_VERDICT.

    A flow that was installed with this verdict is stale.
    """
    direction = stage.lower()
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        with network.interposer.hold("packet_out", **flow.answer(stage)) as answers:
            flow.send()
            answers.wait_for(1)
            network.commit(spd, **{direction: [udp("new", "discard", flow.port), EVERYTHING]})
            with network.dropping("STALE_VERDICT"):
                answers.release()
        for old in network.flows(spd, direction, destination_port=flow.port):
            assert old["stale"]
        flow.send()
        like = {"destination_port": flow.port, "action": "discard", "stale": False}
        wait_until(partial(network.flows, spd, direction, **like), 10, "the new verdict cached")
        with network.dropping(f"{stage}_DISCARD"):
            flow.send()
        assert network.rule(spd, "new", direction) == (1, 1)
        assert b.numbers() == []


@VERSIONS
@pytest.mark.parametrize(("spd", "stage"), [("west", "INBOUND"), ("east", "OUTBOUND")])
def test_any_commit_makes_answers_stale(
    network: OneRouter, version: int, spd: str, stage: str
) -> None:
    """A commit invalidates every verdict found before it, even if the verdict would stay the same.
    The flow's next packet passes.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        with network.interposer.hold("packet_out", **flow.answer(stage)) as answers:
            flow.send()
            answers.wait_for(1)
            another = udp("another", "discard", network.fresh_port())
            network.commit(spd, **{stage.lower(): [another, EVERYTHING]})
            with network.dropping("STALE_VERDICT"):
                answers.release()
        after = flow.send()
        assert b.wait_for(after) == after


@VERSIONS
def test_the_inbound_list_changes_while_the_outbound_one_is_searched(
    network: OneRouter, version: int
) -> None:
    """If the inbound list changes during the outbound search, the packet is dropped: its inbound
    verdict must still be valid when it leaves the router.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        with network.interposer.hold("packet_out", **flow.answer()) as answers:
            flow.send()
            answers.wait_for(1)
            network.commit("west", inbound=[udp("shut", "discard", flow.port), EVERYTHING])
            with network.dropping("STALE_VERDICT"):
                answers.release()
        assert b.numbers() == []


@VERSIONS
def test_a_flow_that_is_inserted_late_serves_nobody(network: OneRouter, version: int) -> None:
    """A commit waits for the inserts that were sent or queued before it. While the commit waits, no
    new insert begins.

    When the commit is in force, the flows of these inserts are deleted or stale.
    """
    entries = partial(network.interposer.entries, FLOW_TABLE[version])

    def not_installed() -> int:
        counters = network.controller.ask(command="show", what="counters")["controller"]
        return int(counters["flow_caches"].get("flow not installed: a commit is under way", 0))

    with (
        Flow(network, version) as one,
        Flow(network, version) as two,
        Flow(network, version) as new,
        ArrivalRecorder(network) as b,
        ThreadPoolExecutor(1) as pool,
    ):
        passing = udp("pass", "bypass", one.port, two.port, new.port)
        network.commit("east", outbound=[passing, *stop(one, two)])
        before = not_installed()
        with network.interposer.hold("write", tables=FLOW_TABLE[version]) as writes:
            first = one.send()
            writes.wait_for(1)
            first += two.send()
            assert b.wait_for(first) == first, "a packet does not wait for its flow"
            recorded = network.spd_record()
            commit = pool.submit(network.commit, "east", outbound=stop(one, two))

            def is_held() -> bool:
                nonlocal first
                first += new.send()
                b.wait_for(first)
                return not_installed() > before

            wait_until(is_held, 10, "flows that wait for the commit")
            assert network.spd_record() == recorded
            assert not commit.done()
            writes.open()
            commit.result(timeout=20)
        now = network.list_of("east")["epoch"]
        with network.refusing(2):
            one.send()
            two.send()
        for flow in (one, two):
            found = wait_until(
                partial(entries, dst_port=flow.port, epoch=now), 10, "the flow with the new epoch"
            )
            assert found == entries(dst_port=flow.port)
        assert b.numbers() == first


# -- commits


@VERSIONS
def test_a_commit_returns_when_the_switch_has_it(network: OneRouter, version: int) -> None:
    """Until a commit returns, the old rules apply to running and new flows. Afterwards the new
    rules apply.
    """
    with (
        Flow(network, version) as running,
        Flow(network, version) as new,
        ArrivalRecorder(network) as b,
        ThreadPoolExecutor(1) as pool,
    ):
        first = running.send()
        b.wait_for(first)
        with network.interposer.hold("write", tables="outbound.list_state") as writes:
            commit = pool.submit(network.commit, "east", outbound=stop(running, new))
            writes.wait_for(1)
            meanwhile = [*running.send(2), *new.send()]
            b.wait_for(meanwhile)
            assert not commit.done()
            writes.release()
            commit.result(timeout=20)
        with network.refusing(2):
            running.send()
            new.send()
        assert b.numbers() == [*first, *meanwhile]


def test_a_commit_of_several_spds_is_one_write_or_refused(network: OneRouter) -> None:
    """If the target supports it, a commit of several SPDs is a single write to the switch.

    Otherwise the commit is refused.
    """
    with (
        Flow(network, sink="c") as flow,
        ArrivalRecorder(network, "c") as c,
        ThreadPoolExecutor(1) as pool,
    ):
        wanted = {"west": {"inbound": stop(flow)}, "south": {"outbound": stop(flow)}}
        if network.router.target.name == "bmv2":
            with pytest.raises(RequestRefused, match="commit them one by one"):
                network.commit_together(wanted)
            sent = flow.send()
            assert c.wait_for(sent) == sent
            return
        with network.interposer.hold("write", tables="outbound.list_state") as writes:
            commit = pool.submit(network.commit_together, wanted)
            (write,) = writes.wait_for(1)
            assert write["tables"] == ["inbound.list_state", "outbound.list_state"]
            writes.release()
            commit.result(timeout=20)
        flow.send()
        wait_until(
            lambda: network.rule("west", "stop", "inbound") == (0, 1),
            10,
            "one search by the controller",
        )
        assert c.numbers() == []


def test_commits_at_the_same_time_are_made_one_after_the_other(network: OneRouter) -> None:
    """Of two simultaneous commits, the second waits until the switch has the first one. At the end,
    the second is in force.
    """
    with Flow(network) as flow, ArrivalRecorder(network) as b, ThreadPoolExecutor(2) as pool:
        with network.interposer.hold("write", tables="outbound.list_state") as writes:
            one = pool.submit(network.commit, "east", outbound=stop(flow))
            writes.wait_for(1)
            two = pool.submit(network.commit, "east", outbound=[udp("pass", "bypass", flow.port)])
            assert len(writes.held()) == 1
            writes.release()
            one.result(timeout=20)
            writes.wait_for(1)
            assert not two.done()
            writes.release()
            two.result(timeout=20)
        sent = flow.send()
        assert b.wait_for(sent) == sent
        assert network.rule("east", "pass") == (0, 1)


# -- routes that change during the search for a first packet


@VERSIONS
@pytest.mark.parametrize("action", ["bypass", "discard"])
def test_the_route_moves_to_an_interface_with_another_spd(
    network: OneRouter, version: int, action: str
) -> None:
    """The verdict of `east` is not valid for `south`: when the route moves, the re-injected packet
    is a miss in the list of `south`.
    """
    with (
        Flow(network, version, destination=SITE[version]) as flow,
        ArrivalRecorder(network, "b") as b,
        ArrivalRecorder(network, "c") as c,
    ):
        network.commit("south", outbound=[udp("theirs", action, flow.port), EVERYTHING])
        with network.interposer.hold("packet_out", **flow.answer()) as answers:
            sent = flow.send()
            answers.wait_for(1)
            with network.site_by_c(), Flow(network, version, sink="c", port=flow.port):
                with network.interposer.hold("packet_in", **flow.miss()) as punts:
                    answers.open()
                    (punt,) = punts.wait_for(1)
                    assert punt["list_id"] == network.list_of("south")["list_id"]
                    assert (b.numbers(), c.numbers()) == ([], [])
                came = c.wait_for(sent if action == "bypass" else [])
                wait_until(
                    lambda: network.rule("south", "theirs") == (0, 1),
                    10,
                    "one search in south's list",
                )
                assert (b.numbers(), c.numbers()) == ([], came)

# SPDX-License-Identifier: Apache-2.0
"""Tests that policy holds although messages between controller and switch are lost, or the
controller is killed.

Packets and commits may be lost. But captures on the hosts check that no packet arrives that the
current rules discard, and that no packet arrives twice.
"""

from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from sluice_testkit.controller import RequestRefused
from sluice_testkit.interposer import MessageKind
from sluice_testkit.wait import wait_until

from .network import VERSIONS, OneRouter
from .walking import ArrivalRecorder, Flow, stop

# -- lost messages


@VERSIONS
@pytest.mark.parametrize("kind", ["packet_in", "packet_out"])
def test_a_lost_message_costs_its_packet_and_no_other(
    network: OneRouter, version: int, kind: MessageKind
) -> None:
    """If a packet-in or packet-out is lost, only its packet is lost: the next packets of the flow
    pass.
    """
    with Flow(network, version) as flow, ArrivalRecorder(network) as b:
        facts = flow.miss() if kind == "packet_in" else flow.answer()
        with network.interposer.drop(kind, **facts) as lost:
            flow.send()
            wait_until(lambda: lost.dropped() == 1, 10, "a lost message")
        after = flow.send(2)
        assert b.wait_for(after) == after


def test_a_lost_write_of_a_flow_costs_its_session_and_no_policy(network: OneRouter) -> None:
    """After a write of a flow is lost, the controller starts a new session and reads the switch's
    contents.

    No packet arrives that the rules discard.
    """
    with Flow(network) as flow, Flow(network) as never, ArrivalRecorder(network) as b:
        network.commit("east", outbound=stop(never))
        sessions = network.interposer.sessions()
        with network.interposer.drop("write", tables="outbound.ipv4_flow") as lost:
            first = flow.send()
            b.wait_for(first)
            never.send()
            wait_until(lost.dropped, 10, "a lost insert")
            wait_until(
                lambda: network.interposer.sessions() > sessions,
                10,
                "the controller to begin another session",
            )
        network.wait_taken_over()
        with network.refusing():
            never.send()
        after = flow.send()
        assert b.wait_for(after) == [*first, *after]
        cached = partial(network.flows, "east", destination_port=flow.port, stale=False)
        wait_until(cached, 10, "the flow to be cached")


def test_a_lost_connection_costs_no_flow(network: OneRouter) -> None:
    """A lost connection costs no flow: in the next session, epochs and cached flows are the
    same.
    """
    with Flow(network) as flow, Flow(network) as never, ArrivalRecorder(network) as b:
        network.commit("east", outbound=stop(never))
        cached = partial(network.flows, "east", stale=False)
        with network.refusing():
            never.send()
        sent = flow.send()
        for one in (flow, never):
            wait_until(partial(cached, destination_port=one.port), 10, "the flow cached")
        epoch = network.list_of("east")["epoch"]
        with network.dropping("OUTBOUND_DISCARD", 2):
            network.interposer.hang_up()
            never.send()
            network.wait_taken_over()
            never.send()
        sent += flow.send()
        assert b.wait_for(sent) == sent
        assert network.list_of("east")["epoch"] == epoch
        assert network.rule("east", "stop") == (2, 1)


def test_a_commit_that_the_switch_never_got_is_refused(network: OneRouter) -> None:
    """A commit fails if its write does not reach the switch.

    Then the old rules stay in force, also in the next session.
    """
    with Flow(network) as flow, ArrivalRecorder(network) as b:
        first = flow.send()
        b.wait_for(first)
        with (
            network.interposer.drop("write", tables="outbound.list_state"),
            pytest.raises(RequestRefused, match="the switch refused the change"),
        ):
            network.commit("east", outbound=stop(flow))
        network.interposer.hang_up()
        network.wait_taken_over()
        assert "stop" not in {rule["name"] for rule in network.list_of("east")["rules"]}
        second = flow.send()
        assert b.wait_for(second) == [*first, *second]
        network.commit("east", outbound=stop(flow))
        with network.refusing():
            flow.send()
        assert b.numbers() == [*first, *second]


def test_half_a_commit_is_none(network: OneRouter) -> None:
    """If the write for one of an SPD's two lists is lost, the commit fails, and both lists keep the
    old rules.

    On targets that commit each list with a separate write, the switch has then received only one of
    the lists.
    """
    with Flow(network) as flow, ArrivalRecorder(network) as b:
        first = flow.send()
        b.wait_for(first)
        rules = stop(flow)
        with (
            network.interposer.drop("write", tables="outbound.list_state"),
            pytest.raises(RequestRefused, match="the switch refused the change"),
        ):
            network.commit("west", inbound=rules, outbound=rules)
        network.wait_taken_over()
        for direction in ("inbound", "outbound"):
            names = {rule["name"] for rule in network.list_of("west", direction)["rules"]}
            assert "stop" not in names
        second = flow.send()
        assert b.wait_for(second) == [*first, *second]
        network.commit("west", inbound=rules, outbound=rules)
        flow.send()
        wait_until(
            lambda: network.rule("west", "stop", "inbound") == (0, 1),
            10,
            "one search by the controller",
        )
        assert b.numbers() == [*first, *second]


# -- a controller that is killed


def test_killed_between_insert_and_reinjection(network: OneRouter) -> None:
    """If the controller dies after a flow's insert but before the packet is re-injected, the packet
    is lost and never doubled.

    The flow is installed, and the next controller keeps it.
    """
    with Flow(network) as flow, Flow(network) as never, ArrivalRecorder(network) as b:
        network.commit("east", outbound=stop(never))
        with network.interposer.hold("packet_out", **flow.answer()) as answers:
            flow.send()
            answers.wait_for(1)
            cached = partial(network.flows, "east", destination_port=flow.port, stale=False)
            wait_until(cached, 10, "the flow's insert")
            network.controller.kill()
        later = flow.send(2)
        never.send(2)  # misses while there is no controller
        assert b.wait_for(later) == later, "installed flows go on without a controller"
        network.controller.start()
        network.wait_taken_over()
        assert cached()
        hits = network.rule("east", "everything").hits
        last = flow.send(2)
        with network.refusing():
            never.send()
        assert b.wait_for(last) == [*later, *last]
        assert network.rule("east", "everything").hits - hits >= 2


def test_killed_between_punt_and_insert(network: OneRouter) -> None:
    """If the controller dies after a punt but before the flow's insert, packets of new flows are
    lost until the next controller runs.

    Until then, no packet leaves that needs a search of the rules. Cached flows continue.
    """
    with Flow(network) as flow, Flow(network) as running, ArrivalRecorder(network) as b:
        known = running.send()
        b.wait_for(known)
        cached = partial(network.flows, "east")
        wait_until(partial(cached, destination_port=running.port), 10, "a running flow")
        with network.interposer.hold("packet_in", **flow.miss()) as punts:
            flow.send()
            punts.wait_for(1)
            network.controller.kill()
        flow.send()  # misses while there is no controller
        known += running.send(3)
        assert b.wait_for(known) == known
        network.controller.start()
        network.wait_taken_over()
        assert cached(destination_port=flow.port) == []
        again = flow.send()
        assert b.wait_for(again) == [*known, *again]


@pytest.mark.parametrize("held", ["write", "answer"])
def test_killed_in_the_middle_of_a_commit(network: OneRouter, held: MessageKind) -> None:
    """Kills the controller before the switch has received a commit, or before the switch's answer
    has arrived.

    Then the next controller's rules apply to every packet, and no stale flow is used. Depending on
    the number of flows, the commit has either deleted the changed flow, or made it stale by a new
    epoch.
    """
    cached = partial(network.interposer.entries, "outbound.ipv4_flow")
    with Flow(network) as flow, ArrivalRecorder(network) as b, ThreadPoolExecutor(1) as pool:
        first = flow.send(3)
        b.wait_for(first)
        wait_until(partial(cached, dst_port=flow.port), 10, "the flow cached")
        before = network.list_of("east")["generation"]
        with network.interposer.hold(held, tables="outbound.list_state") as messages:
            commit = pool.submit(network.commit, "east", outbound=stop(flow))
            messages.wait_for(1)
            network.controller.kill()
            assert commit.exception(timeout=20) is not None
            wait_until(lambda: not messages.held(), 10, "the end of the killed one's session")
        meanwhile = flow.send()
        if held == "write" and cached(dst_port=flow.port):  # the switch did not get the new rules
            first += meanwhile
            assert b.wait_for(meanwhile) == first
        network.controller.start()
        network.wait_taken_over()
        assert network.list_of("east")["generation"] > before
        stopped = any(rule["name"] == "stop" for rule in network.list_of("east")["rules"])
        if stopped:
            with network.refusing():
                flow.send()
            assert b.numbers() == first
        else:
            after = flow.send()
            assert b.wait_for(after) == [*first, *after]
        network.commit("east", outbound=stop(flow))
        came, refused = b.numbers(), not stopped
        with network.refusing(refused), network.dropping("OUTBOUND_DISCARD", not refused):
            flow.send()
        assert b.numbers() == came


def test_a_successor_that_takes_other_rules_retires_the_flows(network: OneRouter) -> None:
    """If a controller starts with other rules than its predecessor, it makes the old flows stale
    before it is ready.
    """
    with Flow(network) as flow, ArrivalRecorder(network) as b:
        first = flow.send(3)
        b.wait_for(first)
        network.controller.kill()
        with network.configured("east", stop(flow)):
            network.controller.start("--configured-policy")
        network.wait_taken_over()
        with network.refusing():
            flow.send()
        assert b.numbers() == first
        network.commit("east")
        last = flow.send()
        assert b.wait_for(last) == [*first, *last]


def test_what_was_committed_outlives_the_controller(network: OneRouter) -> None:
    """A flow that was stopped by a commit stays stopped while the controller is dead, and after the
    controller's restart.
    """
    with Flow(network) as flow, Flow(network) as new, ArrivalRecorder(network) as b:
        b.wait_for(flow.send())
        network.commit("east", outbound=stop(flow, new))
        with network.refusing():
            flow.send()
        cached = partial(network.flows, "east", destination_port=flow.port, stale=False)
        wait_until(partial(cached, action="discard"), 10, "the flow cached")
        came = b.numbers()
        network.controller.kill()
        flow.send(2)
        new.send(2)  # misses while there is no controller
        network.controller.start()
        network.wait_taken_over()
        hits = network.rule("east", "stop").hits
        assert hits >= 2
        with network.refusing(), network.dropping("OUTBOUND_DISCARD"):
            flow.send()
            new.send()
        assert network.rule("east", "stop").hits == hits + 1
        assert b.numbers() == came

# SPDX-License-Identifier: Apache-2.0
"""Tests the auditor: the controller must detect, repair and report entries that another client has
written to the switch.
"""

from pathlib import Path
from typing import Any

import pytest

from sluice_testkit import where
from sluice_testkit.process import run
from sluice_testkit.wait import wait_until

from .network import OneRouter
from .walking import ArrivalRecorder, Flow, Stream, stop

TABLE = "outbound.ipv4_flow"
INTERVAL = 0.5
ROUNDS = 3
"""Rounds until a repair is complete. The current round has already passed the table. The next round
finds the difference. The switch acknowledges the repair during the third round.
"""
BESIDE, INSTEAD = ("foreign_writer", 1), ("", 1 << 100)


@pytest.fixture
def network(network: OneRouter) -> OneRouter:
    """Returns the network with an auditor that checks the switch often enough for a test."""
    config = network.controller.config
    if "limits" not in config:
        config["limits"] = {"auditor_seconds": INTERVAL}
        network.controller.kill()
        network.controller.start()
        network.wait_taken_over()
    return network


def report(network: OneRouter) -> dict[str, Any]:
    """Returns the auditor's report about policy tables in `sluice show status`."""
    status = network.controller.ask(command="show", what="status")
    return dict(status["auditor"]["policy"])


def wait_round(network: OneRouter) -> int:
    """Waits until the auditor has completed another round. Returns the number of completed
    rounds.
    """
    before = int(report(network)["rounds"])
    wait_until(lambda: report(network)["rounds"] > before, 20, "a complete round")
    return before + 1


def write_as_another(network: OneRouter, role: str, election_id: int) -> int:
    """Runs another client that changes discarded flows to bypass. Returns the number of changed
    flows.
    """
    script = Path(__file__).with_name("foreign_writer.py")
    argv = [str(where.controller_python()), str(script), network.interposer.switch]
    argv += [str(where.pipeline() / "router.p4info.txtpb"), role, str(election_id), TABLE]
    return int(run(network.router.namespace.argv(argv)).stdout)


@pytest.mark.parametrize("who", [BESIDE, INSTEAD], ids=["beside the controller", "in its place"])
def test_a_discarded_flow_that_was_made_a_bypass_is_discarded_again(
    network: OneRouter, who: tuple[str, int]
) -> None:
    """The auditor makes a flow discard again that another client changed to bypass. The repair
    takes a few rounds, and no packet passes afterwards.
    """
    with Flow(network) as flow, ArrivalRecorder(network) as b:
        network.commit("east", outbound=stop(flow))
        with Stream(flow, rate=100) as stream:
            wait_until(lambda: network.rule("east", "stop").hits > 10, 10, "cached discards")
            wait_round(network)
            before = report(network)["repaired"].get("outbound_flow", 0)
            sessions = network.interposer.sessions()
            assert write_as_another(network, *who) >= 1
            if who == INSTEAD:
                wait_until(lambda: network.interposer.sessions() > sessions, 30, "a new session")
                network.wait_taken_over()
            rounds = report(network)["rounds"]
            wait_until(
                lambda: report(network)["repaired"].get("outbound_flow", 0) > before,
                30,
                "the repair",
            )
            assert report(network)["rounds"] <= rounds + ROUNDS
            wait_round(network)
            like = {"verdict": 1, "dst_port": flow.port}
            wait_until(
                lambda: not network.interposer.entries(TABLE, **like),
                10,
                "the bypass flows to be gone",
            )
            last = stream.sent[-1]
            hits = network.rule("east", "stop").hits
            stream.wait_for_more(100)
            wait_until(
                lambda: network.rule("east", "stop").hits > hits + 50,
                10,
                "discards by the repaired flow",
            )
        assert all(number <= last for number in b.numbers())
        status = network.sluice("show", "status")
        assert "repaired" in status
        assert "outbound_flow" in status
        log = network.controller.process
        assert log is not None
        assert "repaired: outbound_flow" in log.log()


def test_nothing_is_repaired_that_the_controller_wrote(network: OneRouter) -> None:
    """The auditor does not report the controller's own changes to flows, routes and lists as
    faults.
    """
    before = report(network)["repaired"]
    with Flow(network) as flow, ArrivalRecorder(network), Stream(flow):
        for _ in range(5):
            network.commit("east", outbound=stop(flow))
            network.sluice("flow-cache", "clear", "west")
            network.commit("east")
            wait_round(network)
        with network.site_by_c():
            wait_round(network)
    assert report(network)["repaired"] == before
    assert report(network)["entries"] > 0
    assert report(network)["problem"] is None

# SPDX-License-Identifier: Apache-2.0
"""Tests `explain`: the path that follows from the controller's state, the path in the switch, and
the comparison of the two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from packets import ethernet, ipv4
from policy_world import INBOUND, OUTBOUND, PolicyWorld
from scenes import gateway, neighbor, route, slot
from sluice.api.server import BadRequestError
from sluice.entities import BundleInVrf, EntityChanges, EntityKind, RouteTarget
from sluice.policy.model import Direction

RunScenario = Callable[..., None]
Steps = list[tuple[str, str, dict[str, str]]]
ROUTER = "v1model_ingress.router"
TO_WEB = "tcp 10.0.2.9:40000 > 20.0.0.1:80 in eth2"
STAGES = {INBOUND: "ipsec_inbound.inbound", OUTBOUND: "flow_cache.outbound"}


async def began(world: PolicyWorld) -> None:
    """Starts the router with a route via eth1. The SPD corp applies to eth1."""
    await world.began()
    world.routes.put(route("20.0.0.0/8", gateway("10.0.1.9", 1)))
    world.kernel.put(neighbor(1, "10.0.1.9", 4))
    await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
    await world.synced()


def searches(world: PolicyWorld, direction: Direction, **flow: int) -> Steps:
    """Returns the trace steps of a lookup in a flow table of corp. `flow` holds the fields of a
    hit; without it, the lookup is a miss.
    """
    state = world.state("corp", direction)
    version = {"epoch": hex(state.version.epoch), "generation": hex(state.version.generation)}
    hit = {name: hex(value) for name, value in flow.items()}
    if flow:
        hit |= {"result": "hit", "epoch": version["epoch"]}
    stage = f"{ROUTER}.{STAGES[direction]}"
    return [
        ("table", f"{stage}.list_state", {"key.list_id": hex(state.list_id)} | version),
        ("table", f"{stage}.ipv4_flow", hit),
    ]


def routes(world: PolicyWorld, prefix: str = "0x0,0x14000000/8") -> Steps:
    """Returns the trace steps of a routing lookup that finds the next hop of the test's route."""
    number = _nexthop(world)
    fib = {"result": "hit", "entry": prefix}
    nexthop = {"key.nexthop_id": hex(number), "l3_if": "0x1"}
    return [
        ("table", f"{ROUTER}.routing.fib.ipv4_fib", fib),
        ("table", f"{ROUTER}.routing.nexthop_resolution.nexthop", nexthop),
    ]


def _nexthop(world: PolicyWorld) -> int:
    target = world.switch.of(EntityKind.ROUTE)[slot("20.0.0.0/8")]
    assert isinstance(target, RouteTarget)
    return target.id


def punted(world: PolicyWorld, reason: str) -> Steps:
    numbers = {one.value: number for number, one in world.controller.packets.reasons.items()}
    counter = {"of": f"{ROUTER}.punt.punt_counter", "index": str(numbers[reason])}
    return [("extern", "counter", counter), ("fate", "packet_in", {"port": "510"})]


def sent(port: int) -> Steps:
    return [("fate", "transmitted", {"port": str(port)})]


async def explained(world: PolicyWorld, text: str = TO_WEB, *runs: Steps) -> dict[str, Any]:
    """Requests an explanation of a packet. `runs` are the traces that the switch returns for its
    dry runs, in order."""
    world.client.runs = [*runs]
    answer = await world.ask("explain", text=text)
    assert isinstance(answer, dict)
    return answer


def test_all_rules_that_match_are_listed(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        rule = "{name: late, action: discard, destination: 20.0.0.0/8}"
        await world.ask("spd add", spd="corp", direction="outbound", rule=rule)
        found = await explained(world)
        assert found["switch"] is None
        assert found["inbound"] is None
        (outbound,) = found["outbound"]
        names = [(one["position"], one["name"]) for one in outbound["matches"]]
        assert names == [(2, "web"), (4, "late")]
        assert outbound["verdict"] == {"action": "bypass", "bundle": None, "rule": "web"}
        assert outbound["cache"] == "no flow"
        assert found["route"]["route"]["prefix"] == "20.0.0.0/8"
        assert found["outcome"]["result"] == "forwarded"

    run_policy_scenario(scenario)


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("udp 10.0.2.9:1 > 20.0.0.1:80 in eth2", ("dropped", "OUTBOUND_DISCARD")),
        ("tcp 10.0.2.9:1 > 99.0.0.1:80 in eth2", ("dropped", "NO_ROUTE")),
        ("tcp 10.0.2.9:1 > 10.0.1.1:80 in eth2", ("to this router", None)),
        ("tcp 10.0.2.9:1 > 20.0.0.1:80 in eth3", ("dropped", "INBOUND_DISCARD")),
        ("tcp 10.0.1.1:1 > 20.0.0.1:80", ("forwarded", None)),
    ],
)
def test_the_models_outcome(
    run_policy_scenario: RunScenario, text: str, outcome: tuple[str, str | None]
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        found = (await explained(world, text))["outcome"]
        assert (found["result"], found["reason"]) == outcome

    run_policy_scenario(scenario)


def test_a_packet_without_an_sa_is_dropped(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        world.routes.put(route("10.9.0.0/16", gateway("10.0.1.9", 1)))
        await world.synced()
        outcomes = []
        for _ in range(2):
            found = await explained(world, "tcp 10.0.2.9:1 > 10.9.0.1:80 in eth2")
            outcomes.append((found["outcome"]["result"], found["outcome"]["reason"]))
            changes = EntityChanges()
            changes.set(EntityKind.OUTBOUND_SA, BundleInVrf(0, 7), None)
            world.controller.reconciler.submit(changes)
        assert outcomes == [("protected", "bundle branch"), ("dropped", "NO_SA")]

    run_policy_scenario(scenario)


def test_a_mobility_message_is_explained_by_its_type(run_policy_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        packet = (await explained(world, "mobility 10.0.2.9 > 20.0.0.1 type 5 in eth2"))["packet"]
        assert (packet["protocol"], packet["mobility_type"]) == (135, 5)
        assert (packet["destination_port"], packet["icmp"]) == (None, None)
        other = (await explained(world))["packet"]
        assert other["mobility_type"] is None

    run_policy_scenario(scenario)


def test_the_controllers_verdict_goes_back_into_the_switch(
    run_policy_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        miss = routes(world) + searches(world, OUTBOUND) + punted(world, "OUTBOUND_MISS")
        found = await explained(world, TO_WEB, miss, routes(world) + sent(1))
        assert found["disagreements"] == []
        assert found["switch"]["runs"] == 2
        assert found["switch"]["lists"]["outbound"]["asked"]
        assert found["switch"]["outcome"] == {"result": "forwarded", "reason": "port 1"}
        (leg,) = found["route"]["legs"]
        assert leg["taken"]
        (port, frame), (again, reinjected) = world.client.dry_runs
        assert (port, again) == (2, 510)
        header = len(reinjected) - len(frame)
        assert reinjected[header:] == frame
        state = world.state("corp", OUTBOUND)
        assert state.list_id.to_bytes(2, "big") in reinjected[:header]
        assert state.version.generation.to_bytes(4, "big") in reinjected[:header]

    run_policy_scenario(scenario)


def test_a_packet_that_the_controller_discards_is_not_run_again(
    run_policy_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        miss = routes(world) + searches(world, OUTBOUND) + punted(world, "OUTBOUND_MISS")
        text = TO_WEB.replace("tcp", "udp")
        found = await explained(world, text, miss)
        assert found["disagreements"] == []
        assert (found["switch"]["runs"], len(world.client.dry_runs)) == (1, 1)
        outcome = {"result": "to the controller", "reason": "OUTBOUND_MISS"}
        assert found["switch"]["outcome"] == outcome

    run_policy_scenario(scenario)


def test_differences_between_model_and_switch_are_named(
    run_policy_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        text = TO_WEB.replace("tcp", "udp")
        hit = searches(world, OUTBOUND, rule=1, verdict=1, sa_bundle=0)
        found = await explained(world, text, routes(world) + hit + sent(1))
        assert found["disagreements"] == [
            "outbound list: the switch has a current flow; the model's record says: no flow",
            "outcome: the switch sends the packet in clear (port 1); the model says: dropped:"
            " OUTBOUND_DISCARD",
        ]
        other = routes(world, "0x0,0x14000000/9") + searches(world, OUTBOUND)
        other[2][2]["epoch"] = "0x63"
        found = await explained(world, TO_WEB, other)
        version = world.state("corp", OUTBOUND).version
        assert found["disagreements"] == [
            f"outbound list: the switch has epoch 99, generation {version.generation}; the model"
            f" has epoch {version.epoch}, generation {version.generation}",
            "route: the switch matches 20.0.0.0/9; the model has 20.0.0.0/8",
        ]
        wrong = [
            ("table", f"{ROUTER}.routing.nexthop_resolution.nexthop", {"key.nexthop_id": "99"})
        ]
        found = await explained(world, TO_WEB, routes(world)[:1] + wrong)
        (difference,) = found["disagreements"]
        assert difference.startswith("next hop: the switch takes 99; the model has ")

    run_policy_scenario(scenario)


@pytest.mark.parametrize("quote", [b"", b"\x45", ipv4("10.7.7.7", "10.8.8.8", bytes(8))])
def test_an_error_with_a_bad_quote_is_explained(
    run_policy_scenario: RunScenario, quote: bytes
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        frame = ethernet(ipv4("192.0.2.1", "20.0.0.1", bytes([3, 1]) + bytes(6) + quote, 1))
        found = await world.ask("explain", frame=frame.hex(), **{"in": "eth2"})
        assert found["outcome"] == {"result": "dropped", "reason": "OUTBOUND_DISCARD"}
        (outbound,) = found["outbound"]
        assert outbound["note"].startswith("the controller drops the packet: icmp_enclosed_")

    run_policy_scenario(scenario)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({}, "text: a packet's description; or frame"),
        ({"text": "x"}, "is no packet: write"),
        ({"text": TO_WEB, "frame": "00"}, "text: a packet's description; or frame"),
        ({"text": TO_WEB.replace("eth2", "eth9")}, "no interface 'eth9'; this router has: eth1"),
        ({"text": "icmp 10.0.0.1 > 10.0.0.2 vrf x"}, "no VRF 'x'; this router has: default"),
        ({"frame": "00" * 20}, "no interface None"),
        ({"frame": "0g", "in": "eth1"}, "is not in hexadecimal"),
        ({"frame": "00", "in": "eth1"}, "must have 14 to 9216 bytes, this one has 1"),
        ({"frame": "00" * 14, "in": "eth1"}, "the packet cannot be read: "),
    ],
)
def test_requests_with_errors_are_refused(
    run_policy_scenario: RunScenario, request_: dict[str, Any], said: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await began(world)
        with pytest.raises(BadRequestError, match=said):
            await world.ask("explain", **request_)

    run_policy_scenario(scenario)

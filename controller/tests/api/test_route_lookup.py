# SPDX-License-Identifier: Apache-2.0
"""Tests the route lookup for an address, which must find the same route as the switch.

If a longer prefix that covers the address is not used, the lookup also shows the reason.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scenes import gateway, neighbor, route, slot
from sluice.api.server import BadRequestError
from sluice.api.views import Views
from sluice.entities import EntityKind
from test_controller import World

Scenario = Callable[[World], Awaitable[None]]


async def looked_up(world: World, address: str, **more: Any) -> dict[str, Any]:
    request = {"command": "show", "what": "route", "address": address} | more
    found: dict[str, Any] = await Views(world.controller).answer(request)
    return found


async def begin(world: World) -> None:
    world.links()
    legs = (gateway("10.0.1.9", 1, 3), gateway("10.0.2.9", 2, 1))
    world.routes.put(route("169.254.7.0/24", gateway("10.0.1.9", 1)))
    world.routes.put(route("0.0.0.0/0", gateway("10.0.2.9", 2)))
    world.routes.put(route("20.0.0.0/8", *legs))
    world.kernel.put(neighbor(1, "10.0.1.9", 4))
    await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
    await world.synced()


def test_the_longest_prefix_with_its_ways_out(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        found = await looked_up(world, "20.1.2.3")
        assert found["vrf"] == "default"
        assert found["route"]["prefix"] == "20.0.0.0/8"
        assert found["not_installed"] == []
        first, second = found["legs"]
        assert (first["share"], second["share"]) == (0.75, 0.25)
        assert (first["neighbor"], first["port"], first["installed"]) == ("reachable", 1, True)
        assert first["mac"] == "02:00:00:00:09:04"
        assert second["neighbor"] is None
        found = await looked_up(world, "10.0.1.1")
        assert found["own"]
        found = await looked_up(world, "10.0.1.9")
        assert found["route"]["prefix"] == "10.0.1.9/32"
        assert found["route"]["protocol"] == "neighbor"

    run_scenario(scenario)


def test_a_longer_prefix_that_is_not_installed_is_told(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        found = await looked_up(world, "169.254.7.1")
        assert found["route"]["prefix"] == "0.0.0.0/0"
        (longer,) = found["not_installed"]
        assert longer["prefix"] == "169.254.7.0/24"
        assert "link-local" in longer["unrouted"]
        found = await looked_up(world, "2001:db8::1")
        assert found["route"] is None

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("wanted", "said"),
    [({"address": "10.0.0"}, "no IPv4 or IPv6"), ({"address": "10.0.0.1", "vrf": "x"}, "no VRF")],
)
def test_what_is_not_there_is_said(
    run_scenario: Callable[[Scenario], None],
    wanted: dict[str, str],
    said: str,
) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(BadRequestError, match=said):
            await looked_up(world, **wanted)

    run_scenario(scenario)


FLOW = {"source": "10.0.3.2", "protocol": 6, "ports": [40000, 443]}


def test_a_flow_s_next_hop_is_the_switch_s(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        legs = (await looked_up(world, "20.1.2.3"))["legs"]
        assert [leg["taken"] for leg in legs] == [None, None]
        chosen = legs[1]["nexthop"]
        router = "v1model_ingress.router"
        world.client.steps = [
            ("table", f"{router}.routing.fib.ipv4_fib", {"result": "hit"}),
            ("table", f"{router}.routing.multipath.nexthop_group", {"group": "1"}),
            (
                "table",
                f"{router}.routing.nexthop_resolution.nexthop",
                {"key.nexthop_id": hex(chosen)},
            ),
        ]
        found = await looked_up(world, "20.1.2.3", flow=FLOW)
        assert [leg["taken"] for leg in found["legs"]] == [False, True]
        assert found["flow"] == {"matched": True, "group": 1, "nexthop": chosen}
        ((port, packet),) = world.client.dry_runs
        assert port == 510
        assert packet.endswith(
            bytes([10, 0, 3, 2, 20, 1, 2, 3]) + bytes.fromhex("9c4001bb") + packet[-16:]
        )

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("flow", "said"),
    [
        ("x", "a flow must be an object"),
        (FLOW | {"port": 1}, "no field 'port'"),
        (FLOW | {"protocol": "tcp"}, "a whole number"),
        (FLOW | {"ports": [1]}, "two whole numbers"),
        (FLOW | {"ports": None}, "has ports"),
        (FLOW | {"source": "2001:db8::1"}, "same IP version"),
        (FLOW, "cannot trace a flow"),
    ],
)
def test_a_flow_that_is_none_is_refused_and_so_is_a_switch_that_does_not_tell(
    run_scenario: Callable[[Scenario], None],
    flow: Any,
    said: str,
) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        with pytest.raises(BadRequestError, match=said):
            await looked_up(world, "20.1.2.3", flow=flow)

    run_scenario(scenario)

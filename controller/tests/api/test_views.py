# SPDX-License-Identifier: Apache-2.0
"""Tests the views of `sluice show`: the state of a running controller, with the counters of the
switch.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from scenes import gateway, link, mac, neighbor, route, slot
from sluice import __version__
from sluice.api.requests import Requests
from sluice.api.rows import Rows
from sluice.api.server import BadRequestError
from sluice.api.standby import PRIMARY
from sluice.api.views import Views, describe
from sluice.entities import EntityKind
from sluice.model import FpmSessionOpened, NeighborState, format_mac
from test_controller import World

Scenario = Callable[[World], Awaitable[None]]


async def begin(world: World) -> None:
    world.links()
    world.routes.put(FpmSessionOpened("zebra"))
    world.routes.put(route("169.254.7.0/24", gateway("10.0.1.9", 1)))
    world.routes.put(route("0.0.0.0/0", gateway("10.0.2.9", 2)))
    world.routes.put(route("20.0.0.0/8", gateway("10.0.1.9", 1, 3), gateway("10.0.2.9", 2, 1)))
    world.kernel.put(neighbor(1, "10.0.1.9", 4))
    await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
    await world.synced()


async def show(world: World, what: str, **more: Any) -> Any:
    found = await Views(world.controller).answer({"command": "show", "what": what} | more)
    return await found.whole() if isinstance(found, Rows) else found


@pytest.mark.parametrize(
    ("wanted", "said"),
    [
        ({"command": "look"}, "unknown command 'look'; there is: show"),
        ({"command": "show", "what": "weather"}, "cannot show 'weather'; there is: status,"),
        ({"command": "show"}, "cannot show None"),
    ],
)
def test_an_unknown_view_is_refused_by_name(
    run_scenario: Callable[[Scenario], None], wanted: dict[str, str], said: str
) -> None:
    async def scenario(world: World) -> None:
        with pytest.raises(BadRequestError, match=said):
            await Views(world.controller).answer(wanted)

    run_scenario(scenario)


def test_status_of_a_primary(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.routes.put(route("30.0.0.0/8", obj=42))
        elsewhere = route("40.0.0.0/8", gateway("10.0.1.9", 1))
        other_table = elsewhere.route._replace(key=elsewhere.route.key._replace(table=77))
        world.routes.put(elsewhere._replace(route=other_table))
        await world.synced()
        status = await show(world, "status")
        assert (status["version"], status["role"]) == (__version__, PRIMARY)
        assert status["ready"] is True
        assert status["synced"] is True
        assert status["uptime"] >= 0
        assert status["counters_cleared"] is None
        assert status["switch"]["connected"] is True
        assert status["switch"]["installed"]["route"] == len(world.switch.of(EntityKind.ROUTE))
        fpm = status["fpm"]
        assert (fpm["peer"], fpm["routes"], fpm["stale_routes"]) == ("zebra", 4, 0)
        assert fpm["not_installed"] == {"link-local: never forwarded (RFC 3927)": 1}
        assert fpm["waiting_for_objects"] == {42: 1}
        assert status["reconciler"]["failures"] == []
        assert status["vrfs"] == [
            {"name": "default", "table": 254, "device": None, "namespace": None, "fpm": "zebra"}
        ]
        assert status["remarks"] == {"routes of kernel table 77, which no VRF has": 1}

    run_scenario(scenario)


def test_status_names_refused_updates(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        refused = slot("20.0.0.0/8")
        world.switch.refuse = lambda _, __, key: 3 if key == refused else 0
        world.links()
        world.routes.put(route("20.0.0.0/8", gateway("10.0.1.9", 1)))
        await world.until(lambda: world.controller.reconciler.failures)
        reconciler = (await show(world, "status"))["reconciler"]
        assert reconciler["failed"] == 1
        [failure] = reconciler["failures"]
        assert failure["what"] == "route 20.0.0.0/8 vrf 0"
        assert failure["error"]

    run_scenario(scenario)


def test_interfaces(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.kernel.put(link(2, up=False, mtu=1400))
        interfaces = world.controller.fib.interfaces.by_l3_if
        await world.until(lambda: not interfaces[2].up)
        await world.synced()
        first, second, third = await show(world, "interfaces")
        assert (first["name"], first["port"], first["vrf"]) == ("eth1", 1, "default")
        assert (first["up"], first["mac"], first["mtu"]) == (True, "02:00:00:00:01:01", 1500)
        assert first["addresses"] == ["10.0.1.1/24"]
        assert first["virtual_macs"] == []
        assert (second["up"], second["mtu"]) == (False, 1400)
        assert third["name"] == "eth3"

    run_scenario(scenario)


def test_next_hops_and_groups(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        found = await show(world, "nexthops")
        by_gateway = {(one["interface"], one["gateway"]): one for one in found["nexthops"]}
        assert set(by_gateway) == {
            *(("eth1", "10.0.1.9"), ("eth2", "10.0.2.9")),
            *(("eth1", None), ("eth2", None), ("eth3", None)),
        }
        gateway_1 = by_gateway["eth1", "10.0.1.9"]
        assert gateway_1["mac"] == format_mac(mac(4))
        assert gateway_1["used_by"] == 2  # used by the host route and the group
        assert by_gateway["eth2", "10.0.2.9"]["mac"] is None
        [group] = found["groups"]
        assert group["used_by"] == 1
        assert {one["gateway"]: one["weight"] for one in group["members"]} == {
            "10.0.1.9": 3,
            "10.0.2.9": 1,
        }

    run_scenario(scenario)


def test_neighbors_in_order_of_interface_and_address(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.kernel.put(
            neighbor(2, "10.0.2.8", None, NeighborState.FAILED),
            neighbor(1, "10.0.1.10", 5, NeighborState.STALE),
            neighbor(1, "10.0.1.8", 6),
        )
        await world.until(lambda: len(world.controller.fib.neighbors.paths()) == 4)
        found = await show(world, "neighbors")
        assert [(one["interface"], one["address"], one["state"]) for one in found] == [
            ("eth1", "10.0.1.8", "reachable"),
            ("eth1", "10.0.1.9", "reachable"),
            ("eth1", "10.0.1.10", "stale"),
            ("eth2", "10.0.2.8", "failed"),
        ]
        assert found[0]["mac"] == format_mac(mac(6))
        assert all(one["age"] >= 0 for one in found)
        nexthops = world.controller.fib.nexthops
        assert nexthops.path_of(found[0]["nexthop"]) is not None
        assert found[3]["nexthop"] is None

    run_scenario(scenario)


def test_punts_by_reason(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        world.controller.punts.by_reason["LOCAL"] = 3
        found = await show(world, "punts")
        local = found["reasons"]["LOCAL"]
        assert local["handled"] == 3
        assert local["rate"] == world.controller.config.punt_rates["LOCAL"].rate
        assert local["queue_full"] == 0
        assert (found["waiting"], found["held"]) == (0, 0)

    run_scenario(scenario)


def test_counts_of_a_switch_that_is_not_connected_are_unknown(
    run_scenario: Callable[[Scenario], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        monkeypatch.setattr(type(world.controller.connection), "primary", None)
        assert (await show(world, "counters"))["switch_drops"] is None
        assert (await show(world, "punts"))["reasons"]["LOCAL"]["to_cpu"] is None
        assert {one["sent"] for one in await show(world, "interfaces")} == {None}

    run_scenario(scenario)


def test_a_key_as_text() -> None:
    assert describe(slot("20.0.0.0/8")) == "20.0.0.0/8 vrf 0"
    assert describe(7) == "7"


def test_filters(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        show = {"command": "show"}
        views = Views(world.controller)
        (one,) = await views.answer(show | {"what": "interfaces", "name": "eth2"})
        assert one["name"] == "eth2"
        assert len(await views.answer(show | {"what": "interfaces", "vrf": "default"})) == 3
        found = await views.answer(show | {"what": "routes", "protocol": "bgp", "limit": 2})
        rows = await found.whole()
        assert [row["protocol"] for row in rows] == ["bgp", "bgp"]
        found = await views.answer(show | {"what": "routes", "vrf": "default"})
        assert len(await found.whole()) > 2
        for wrong in ({"name": "eth9"}, {"vrf": "red"}):
            with pytest.raises(BadRequestError, match="there is no"):
                await views.answer(show | {"what": "interfaces"} | wrong)

    run_scenario(scenario)


def test_cleared_counters_count_from_0_and_metrics_go_on(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(world: World) -> None:
        await begin(world)
        requests = Requests(world.controller)
        counters = {"command": "show", "what": "counters"}
        world.controller.counters["packets out"] = 7
        before = (await requests.answer(counters))["controller"]["controller"]["packets out"]
        await requests.answer({"command": "clear counters"})
        world.controller.counters["packets out"] += 2
        assert before == 7
        shown = await requests.answer(counters)
        assert shown["controller"]["controller"]["packets out"] == 2
        text = await requests.answer({"command": "show", "what": "metrics"})
        assert 'part="controller",what="packets out"} 9' in text
        status = await requests.answer({"command": "show", "what": "status"})
        assert status["counters_cleared"] is not None

    run_scenario(scenario)

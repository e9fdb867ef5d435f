# SPDX-License-Identifier: Apache-2.0
"""Tests the commands `flow-cache off`, `on` and `clear`, and what the views of SPDs show
meanwhile.
"""

from __future__ import annotations

import pytest

from fake_switch import FakeSwitch
from policy_world import BYPASS, CODEC, OUTBOUND, PolicyWorld, RunScenario, tcp
from sluice.api.server import BadRequestError
from sluice.entities import EntityKind


def test_off_searches_every_packet_and_nothing_loops(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        shown = await world.ask("flow-cache off", spd="corp")
        assert {one["cache"] for one in shown} == {False}
        assert world.switch.live() == {}
        writes = len(world.switch.flow_log)
        for _ in range(3):
            world.miss(tcp(80))
        answers = await world.sent(4)
        assert {one["verdict"] for one in answers} == {BYPASS}
        assert len(world.switch.flow_log) == writes
        await world.ask("flow-cache on")
        world.miss(tcp(80))
        await world.until(world.switch.live)

    run_scenario(scenario)


def test_off_survives_a_restart_and_so_does_on(run_scenario: RunScenario) -> None:
    switch = FakeSwitch(CODEC)

    async def off(world: PolicyWorld) -> None:
        await world.began()
        await world.ask("flow-cache off", spd="corp")

    async def still_off(world: PolicyWorld) -> None:
        await world.began()
        shown = await world.ask("show", what="flow-cache")
        assert {(one["spd"], one["cache"]) for one in shown} == {("corp", False), ("edge", True)}
        world.miss(tcp(80))
        await world.sent()
        assert switch.live() == {}
        await world.ask("flow-cache on", spd="corp")

    async def on_again(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(switch.live)

    run_scenario(off, switch)
    run_scenario(still_off, switch)
    run_scenario(on_again, switch)


def test_off_that_the_switch_refused_is_off_neither_now_nor_later(
    run_scenario: RunScenario,
) -> None:
    async def refused(world: PolicyWorld) -> None:
        await world.began()
        world.switch.refuse = lambda _, kind, __: 13 if kind is EntityKind.OUTBOUND_LIST else 0
        with pytest.raises(BadRequestError, match="the switch refused the change"):
            await world.ask("flow-cache off", spd="corp")

    async def later(world: PolicyWorld) -> None:
        await world.began()
        assert {one["cache"] for one in await world.ask("show", what="flow-cache")} == {True}

    run_scenario(refused)
    run_scenario(later)


def test_clear_retires_every_flow(run_scenario: RunScenario) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        before = world.state("corp", OUTBOUND).version
        (_, outbound) = await world.ask("flow-cache clear", spd="corp")
        # The rules are unchanged, so the generation stays. A new generation would drop packets that
        # are just being re-injected with a verdict.
        assert world.state("corp", OUTBOUND).version == (before.epoch + 1, before.generation)
        assert (outbound["flows"], outbound["stale_flows"]) == (1, 1)
        assert world.switch.live() == {}
        with pytest.raises(BadRequestError, match="there is no SPD"):
            await world.ask("flow-cache clear", spd="nobody")

    run_scenario(scenario)


@pytest.mark.parametrize("what", ["spd", "flows", "flow-cache"])
def test_what_is_not_started_says_so(run_scenario: RunScenario, what: str) -> None:
    async def scenario(world: PolicyWorld) -> None:
        with pytest.raises(BadRequestError, match="corp, edge: not started"):
            await world.ask("show", what=what)
        assert await world.ask("show", what="metrics")
        await world.began()
        assert isinstance(await world.ask("show", what=what), list)

    run_scenario(scenario)


@pytest.mark.parametrize("what", ["spd", "flows", "flow-cache", "metrics", "counters"])
def test_policy_can_be_shown(run_scenario: RunScenario, what: str) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        world.miss(tcp(80))
        await world.until(world.switch.live)
        shown = await world.ask("show", what=what)
        if what == "metrics":
            assert 'rule="web"' in shown
        elif what == "flows":
            (flow,) = shown
            assert (flow["action"], flow["rule"], flow["stale"]) == ("bypass", "web", False)
        assert shown

    run_scenario(scenario)

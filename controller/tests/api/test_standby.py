# SPDX-License-Identifier: Apache-2.0
"""Tests the status of a controller that is not the primary."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from tempfile import NamedTemporaryFile
from types import SimpleNamespace
from typing import Any

import pytest

from sluice.api.standby import STANDBY, WAITING, standby_status
from sluice.api.views import Views
from sluice.config import load_config
from sluice.primacy import Primacy
from sluice.reload import ReloadReport
from test_controller import World

Scenario = Callable[[World], Awaitable[None]]


CONFIG = """\
router: r1
switch: {target: bmv2, address: "127.0.0.1:9559"}
interfaces: [{name: eth1, port: 1, mac: "02:00:00:00:01:01"}]
"""


def status(session: object = None, error: str | None = None, refused: str | None = None) -> Any:
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(CONFIG)
        file.flush()
        config = load_config(file.name)
    primacy = Primacy(config.switch, nobody)
    primacy.session = session  # type: ignore[assignment]
    primacy.last_error = error
    return standby_status(config, primacy, ReloadReport(1.0, refused), 2.04)


def nobody(_: object) -> Any:
    raise AssertionError("nobody connects")


def test_of_a_controller_that_stands_by() -> None:
    session = SimpleNamespace(is_standby=True, arbitration="standby")
    found = status(session, error="an earlier one")
    assert (found["role"], found["progress"]["phase"]) == (STANDBY, STANDBY)
    assert (found["ready"], found["synced"]) == (False, False)
    assert found["switch"]["arbitration"] == "standby"
    assert found["switch"]["target"] == "bmv2"
    assert found["uptime"] == 2.0
    assert found["problems"] == []  # standby is not a problem


@pytest.mark.parametrize(
    ("error", "why"), [(None, "connecting"), ("Connection refused", "Connection refused")]
)
def test_of_a_controller_without_a_switch(error: str | None, why: str) -> None:
    found = status(error=error)
    assert (found["role"], found["progress"]["phase"]) == (WAITING, WAITING)
    assert found["switch"]["arbitration"] == "not connected"
    assert found["switch"]["last_error"] == error
    assert found["problems"] == [f"the switch at 127.0.0.1:9559 is not connected: {why}"]


def test_a_refused_reload_is_a_problem() -> None:
    session = SimpleNamespace(is_standby=True, arbitration="standby")
    found = status(session, refused="interfaces: eth9 is unknown")
    assert found["problems"] == ["the last reload was refused: interfaces: eth9 is unknown"]
    assert found["configuration"]["refused"] == "interfaces: eth9 is unknown"


def test_a_standby_s_status_has_the_keys_of_a_primary_s(
    run_scenario: Callable[[Scenario], None],
) -> None:
    standby = status()

    async def scenario(world: World) -> None:
        await world.synced()
        primary = await Views(world.controller).answer({"command": "show", "what": "status"})
        assert primary.keys() == standby.keys()
        for part in ("switch", "fpm", "progress", "configuration"):
            assert primary[part].keys() == standby[part].keys(), part

    run_scenario(scenario)

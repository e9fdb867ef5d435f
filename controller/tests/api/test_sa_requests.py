# SPDX-License-Identifier: Apache-2.0
"""Tests requests about SAs.

Views must show SAs without their keys. Other requests add, rekey and delete an SA by its name.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from policy_world import PolicyWorld
from sluice import associations
from sluice.api.server import BadRequestError
from test_associations import CONFIG, PlayedEngine

FIRST_KEY, SECOND_KEY = "11" * 20, "22" * 20
MORE = """\
security_associations:
  - {name: in, bundle: branch, direction: inbound, spi: 0x2000, algorithm: aes-128-gcm,
     key_file: second}
"""
Scenario = Callable[[PolicyWorld], Awaitable[None]]


@pytest.fixture
def run_sa_scenario(
    run_policy_scenario: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[Scenario], None]:
    """Returns a function that runs a scenario on a router with one SA.

    The configuration names the SA "out". Engine 1 holds the SA.
    """
    for name in ("POLL", "RECONNECT"):
        monkeypatch.setattr(associations, name, 0.02)
    key_file(tmp_path, "first", FIRST_KEY)
    key_file(tmp_path, "second", SECOND_KEY)
    text = CONFIG.format(directory=tmp_path, spi=0x100, key=tmp_path / "first")
    text = text.replace(f"{tmp_path}/state", str(tmp_path))

    class SaWorld(PolicyWorld):
        engines = {1: PlayedEngine()}  # noqa: RUF012 - one for each test

    def run(scenario: Scenario) -> None:
        async def begun(world: PolicyWorld) -> None:
            await world.began()
            await until_in_use(world, "out", 0x100)
            await scenario(world)

        run_policy_scenario(begun, world=SaWorld, text=text)

    return run


def key_file(directory: Path, name: str, digits: str) -> Path:
    path = directory / name
    path.touch(mode=0o600)
    path.write_text(digits)
    return path


async def shown(world: PolicyWorld, **more: Any) -> dict[tuple[str, int], dict[str, Any]]:
    rows = await world.ask("show", what="sas", **more)
    return {(row["name"], row["spi"]): row for row in rows}


async def until_in_use(world: PolicyWorld, name: str, spi: int) -> None:
    table = world.controller.associations.table
    await world.until(
        lambda: any(
            (one.sa.name, one.sa.settings.spi, one.state.value) == (name, spi, "in use")
            for one in table.reports()
        )
    )


def test_an_sa_is_shown_with_its_state_and_without_its_key(
    run_sa_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        found = await shown(world)
        assert set(found) == {("out", 0x100)}
        row = found["out", 0x100]
        assert (row["bundle"], row["direction"], row["algorithm"]) == (
            *("branch", "outbound", "aes-128-gcm"),
        )
        assert (row["state"], row["why"], row["engine"]) == ("in use", None, 1)
        assert (row["local"], row["remote"]) == ("10.0.0.1", "10.0.0.2")
        assert (row["origin"], row["packets"]) == ("configuration", 0)
        assert row["path_mtu"]["told_by"] is None
        text = json.dumps(row)
        assert FIRST_KEY not in text
        assert "first" not in text

    run_sa_scenario(scenario)


def test_sas_of_a_bundle(run_sa_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(world: PolicyWorld) -> None:
        assert len(await shown(world, bundle="branch")) == 1
        with pytest.raises(BadRequestError, match="there is no bundle 'x'; there is: branch"):
            await shown(world, bundle="x")

    run_sa_scenario(scenario)


def test_added_sas_are_answered_and_deleted_by_name(
    run_sa_scenario: Callable[[Scenario], None], tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        more = {"text": MORE, "name": "more.yaml", "directory": str(tmp_path)}
        (added,) = await world.ask("sa add", **more)
        assert (added["name"], added["spi"], added["direction"]) == ("in", 0x2000, "inbound")
        assert added["path_mtu"] is None
        assert added["fragmentation"] is None
        await until_in_use(world, "in", 0x2000)
        with pytest.raises(BadRequestError, match=r"more\.yaml"):
            await world.ask("sa add", **more)  # an SA with this name exists already
        (deleted,) = await world.ask("sa del", name="in")
        assert (deleted["name"], deleted["spi"]) == ("in", 0x2000)
        assert set(await shown(world)) == {("out", 0x100)}
        with pytest.raises(BadRequestError, match="there is no SA 'in'"):
            await world.ask("sa del", name="in")
        with pytest.raises(BadRequestError, match="is in the configuration"):
            await world.ask("sa del", name="out")

    run_sa_scenario(scenario)


def test_a_rekey_takes_a_new_key_and_a_new_spi(
    run_sa_scenario: Callable[[Scenario], None], tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        for spi, key, said in (
            (0x101, "first", "has this key"),
            (0x100, "second", "SPI 0x100 is in use"),
        ):
            with pytest.raises(BadRequestError, match=said):
                await world.ask("sa rekey", name="out", spi=spi, key_file=str(tmp_path / key))
        assert set(await shown(world)) == {("out", 0x100)}

    run_sa_scenario(scenario)


def test_names_of_key_files_need_a_whole_directory(
    run_sa_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        with pytest.raises(BadRequestError, match="a path in a request must begin with /"):
            await world.ask("sa add", text=MORE, name="more.yaml", directory="keys")

    run_sa_scenario(scenario)


def test_a_rekey_is_answered_with_the_successor(
    run_sa_scenario: Callable[[Scenario], None], tmp_path: Path
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        key = str(tmp_path / "second")
        (successor,) = await world.ask("sa rekey", name="out", spi=0x101, key_file=key)
        assert (successor["name"], successor["spi"]) == ("out", 0x101)
        await until_in_use(world, "out", 0x101)
        engine = world.controller.sources.engines[1]
        assert isinstance(engine, PlayedEngine)
        assert ("add", 0x101, False) in engine.told

    run_sa_scenario(scenario)


@pytest.mark.parametrize(
    ("request_", "said"),
    [
        ({"name": "x", "spi": 0x101, "key_file": "/k"}, "there is no SA 'x'; there is: out"),
        (
            {"name": "out", "spi": 0x101},
            "aes-128-gcm needs the successor's key: give --key-file FILE",
        ),
        (
            {"name": "out", "spi": 0x101, "key_file": "/k", "integrity_key_file": "/i"},
            "aes-128-gcm has no key of this kind: leave out --integrity-key-file",
        ),
        (
            {"name": "out", "spi": 0x101, "key_file": "k"},
            "'k': a path in a request must begin with /",
        ),
        ({"name": "out", "spi": 255, "key_file": "/k"}, "255 is not an SPI"),
        ({"name": "out", "spi": True, "key_file": "/k"}, "True is not an SPI"),
        ({"name": "out", "spi": "0x101", "key_file": "/k"}, "'0x101' is not an SPI"),
    ],
)
def test_a_rekey_that_is_none_is_refused_and_changes_nothing(
    run_sa_scenario: Callable[[Scenario], None], request_: dict[str, Any], said: str
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        with pytest.raises(BadRequestError, match=said):
            await world.ask("sa rekey", **request_)
        assert set(await shown(world)) == {("out", 0x100)}

    run_sa_scenario(scenario)

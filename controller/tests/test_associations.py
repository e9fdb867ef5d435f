# SPDX-License-Identifier: Apache-2.0
"""Tests the handling of SAs with engines that refuse requests, stop answering, and come back. Also
tests the order of writes to disk.

The engines are fakes with the methods of `sources.esp_engine`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sluice import associations as module
from sluice.associations import AssociationError, Associations
from sluice.config import load_config
from sluice.entities import Encrypt, EntityChanges, EntityKind
from sluice.model import parse_address
from sluice.policy.populated import Populated
from sluice.sa_config import parse_associations
from sluice.sa_keys import KeyFiles
from sluice.sa_model import (
    ALGORITHMS,
    EngineRefusalError,
    EngineUnreachableError,
    HeldSa,
    KeyMaterial,
    SaSettings,
)
from sluice.state.bundle_numbers import FIRST
from sluice.state.path_mtus import MIN_INNER_MTU, PathMtu, PathMtus
from sluice.state.sa_table import Clocks, SaState

CONFIG = """\
router: r1
state_dir: {directory}/state
interfaces: [{{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}}]
spds: [{{name: corp, outbound: [{{name: a, action: protect, bundle: branch}}]}}]
engines: [{{id: 1, port: 9, admin: /run/one.sock}}]
bundles: [{{name: branch, id: 5, spd: corp}}]
security_associations:
  - {{name: out, bundle: branch, direction: outbound, spi: {spi}, algorithm: aes-128-gcm,
     key_file: {key}, local: 10.0.0.1, remote: 10.0.0.2}}
"""


class PlayedEngine:
    """Simulates an engine in memory. `silent` and `refuses` make it fail."""

    def __init__(self) -> None:
        self.held: dict[object, HeldSa] = {}
        self.told: list[tuple[str, int, bool]] = []
        self.silent = False
        self.refuses: str | None = None

    async def status(self) -> list[HeldSa]:
        self._answer()
        return list(self.held.values())

    async def add(
        self, settings: SaSettings, number: int, keys: KeyMaterial, *, resume: bool
    ) -> None:
        self._answer()
        assert keys.fingerprint() == settings.fingerprint
        if self.refuses is not None:
            raise EngineRefusalError(self.refuses)
        self.told.append(("add", settings.spi, resume))
        held = HeldSa(settings, number)
        self.held[held.key] = held

    async def delete(self, settings: SaSettings, number: int) -> None:
        self._answer()
        self.told.append(("delete", settings.spi, False))
        del self.held[HeldSa(settings, number).key]

    def close(self) -> None:
        pass

    def _answer(self) -> None:
        if self.silent:
            raise EngineUnreachableError("/run/one.sock: Connection refused")


class PlayedSwitch:
    """Simulates a reconciler whose switch applies each write at once."""

    def __init__(self) -> None:
        self.compared = True
        self.installed = SimpleNamespace(by_kind={kind: {} for kind in EntityKind})

    def take(self, changes: EntityChanges) -> None:
        for kind, entries in changes.by_kind.items():
            for key, value in entries.items():
                if value is None:
                    self.installed.by_kind[kind].pop(key, None)
                else:
                    self.installed.by_kind[kind][key] = value


class World:
    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "state").mkdir(exist_ok=True)
        self.engine, self.switch = PlayedEngine(), PlayedSwitch()
        self.now = 1000.0
        self.answers: list[bool] = []
        self.mtu_of_the_link = 1500
        self.make()

    def key(self, name: str, digit: str) -> Path:
        path = self.directory / name
        path.touch(mode=0o600)
        path.write_text(digit * 40)
        return path

    def config(self, spi: int = 0x100, key: str = "first", digit: str = "1") -> Any:
        path = self.directory / "r1.yaml"
        text = CONFIG.format(directory=self.directory, spi=spi, key=self.key(key, digit))
        path.write_text(text)
        return load_config(path)

    def make(self, config: Any = None) -> None:
        """Starts a controller."""
        config = config or self.config()
        clock = asyncio.get_running_loop().time
        engines = {1: self.engine}
        path_mtus = PathMtus(lambda vrf, address: {1}, lambda l3_if: self.mtu_of_the_link)
        self.sas = Associations(
            config,
            engines,
            self.switch,  # type: ignore[arg-type]
            path_mtus,
            clock=clock,
            clocks=lambda: Clocks(self.now),
        )
        self.sas.on_changed = self.switch.take
        self.sas.on_engine = lambda _, answers: self.answers.append(answers)

    async def running(self, body: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.create_task(self.sas.run())
        try:
            await self.sas.wait_for_engines()
            await body()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def outbound(self) -> Encrypt | None:
        values = list(self.switch.installed.by_kind[EntityKind.OUTBOUND_SA].values())
        assert len(values) <= 1
        return values[0] if values else None

    def path_mtu(self) -> int:
        found = self.outbound()
        assert found is not None
        return found.path_mtu

    def state(self, spi: int) -> SaState:
        self.sas.table.desired()
        (found,) = (one.state for one in self.sas.table.reports() if one.sa.settings.spi == spi)
        return found

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.01)


Body = Callable[[World], Coroutine[Any, Any, None]]


@pytest.fixture
def run_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Body], None]:
    for name in ("POLL", "RECONNECT"):
        monkeypatch.setattr(module, name, 0.02)

    def run(body: Body) -> None:
        async def whole() -> None:
            await body(World(tmp_path))

        asyncio.run(whole())

    return run


def test_the_record_is_on_disk_before_the_switch_hears(
    run_scenario: Callable[[Body], None],
) -> None:
    async def body(world: World) -> None:
        recorded: list[bool] = []
        take = world.switch.take

        def watched(changes: EntityChanges) -> None:
            if changes.by_kind.get(EntityKind.OUTBOUND_SA):
                text = (world.directory / "state" / "sa-keys").read_text()
                recorded.append('"engine": 1' in text)
            take(changes)

        world.sas.on_changed = watched

        async def serves() -> None:
            await world.until(lambda: world.outbound() is not None)

        await world.running(serves)
        assert recorded == [True]
        assert world.engine.told == [("add", 0x100, False)]

    run_scenario(body)


def test_a_restart_finds_the_sa_and_tells_nothing(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        async def serves() -> None:
            await world.until(lambda: world.outbound() is not None)

        await world.running(serves)
        before = world.outbound()
        world.make()
        await world.running(serves)
        assert world.engine.told == [("add", 0x100, False)]
        assert world.outbound() == before

    run_scenario(body)


def test_an_engine_that_forgot_is_told_again_to_resume(
    run_scenario: Callable[[Body], None],
) -> None:
    async def body(world: World) -> None:
        async def dies() -> None:
            await world.until(lambda: world.outbound() is not None)
            world.engine.silent = True
            await world.until(lambda: world.answers[-1] is False)
            assert "does not answer" in next(world.sas.problems())
            assert world.outbound() is not None, "the entry stays, and packets drop as NO_ENGINE"
            world.engine.held.clear()
            world.engine.silent = False
            await world.until(lambda: world.state(0x100) is SaState.IN_USE)

        await world.running(dies)
        assert world.engine.told == [("add", 0x100, False), ("add", 0x100, True)]
        assert world.outbound() is not None
        assert [*world.sas.problems()] == []

    run_scenario(body)


def test_a_refused_key_asks_for_a_rekey(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        world.engine.refuses = "no sequence numbers are reserved here for this key: rekey"

        async def refused() -> None:
            await world.until(lambda: world.state(0x100) is SaState.REKEY_NEEDED)

        await world.running(refused)
        assert world.outbound() is None
        assert "sluice sa rekey" in next(world.sas.problems())

    run_scenario(body)


def test_a_refused_successor_leaves_what_was(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        keys = KeyFiles(ALGORITHMS["aes-128-gcm"], world.key("second", "2"), None)

        async def rekeyed() -> None:
            await world.until(lambda: world.outbound() is not None)
            before = world.outbound()
            world.engine.refuses = "the disk is full"
            with pytest.raises(AssociationError, match="the disk is full"):
                await world.sas.rekey("out", 0x101, keys)
            assert world.outbound() == before
            assert [one.settings.spi for one in world.sas.table.wanted] == [0x100]
            world.engine.refuses = None
            (report,) = await world.sas.rekey("out", 0x101, keys)
            assert report.state is SaState.IN_USE
            assert world.outbound() != before
            await world.until(lambda: len(world.sas.table.wanted) == 1)
            for spi, digit, says in (
                (0x101, "3", "a new SPI"),
                (0x102, "2", "could be used twice"),
            ):
                again = KeyFiles(ALGORITHMS["aes-128-gcm"], world.key("again", digit), None)
                with pytest.raises(AssociationError, match=says):
                    await world.sas.rekey("out", spi, again)

        await world.running(rekeyed)
        world.make()
        assert [one.settings.spi for one in world.sas.table.wanted] == [0x101], (
            "the SA survives a restart"
        )
        world.make(world.config(0x200, "fourth", "4"))
        assert [one.settings.spi for one in world.sas.table.wanted] == [0x200], (
            "another file counts"
        )

    run_scenario(body)


def test_a_reload_with_another_key_is_a_rekey(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        async def reloaded() -> None:
            await world.until(lambda: world.outbound() is not None)
            new = world.config(0x300, "fifth", "5").policy.security_associations
            world.sas.set_configured(new)
            spis = {one.settings.spi for one in world.sas.table.wanted}
            assert spis == {0x100, 0x300}, "the old and the new SA exist side by side"
            await world.until(lambda: world.state(0x300) is SaState.IN_USE)
            await world.until(lambda: len(world.sas.table.wanted) == 1)

        await world.running(reloaded)

    run_scenario(body)


def test_an_sa_of_other_traffic_does_not_succeed(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        async def reloaded() -> None:
            await world.until(lambda: world.outbound() is not None)
            (new,) = world.config(0x300, "fifth", "5").policy.security_associations
            traffic = Populated(source=parse_address("10.1.0.1"))
            world.sas.set_configured([replace(new, traffic=traffic)])
            (sa,) = world.sas.table.wanted
            assert (sa.settings.spi, sa.is_retiring) == (0x300, False)
            assert sa.settings.bundle == FIRST, "it has a bundle number of its own"
            assert world.sas.table.bundles[FIRST].name == "branch (10.1.0.1 > *)"

        await world.running(reloaded)

    run_scenario(body)


def test_sas_of_both_directions_of_a_pair_share_an_instance(
    run_scenario: Callable[[Body], None],
) -> None:
    async def body(world: World) -> None:
        ends = "source: {}, destination: {}"
        sa = (
            "{{name: {name}, bundle: branch, spi: {spi}, algorithm: aes-128-gcm, key_file: {key},"
            " traffic: {{{traffic}}}, {more}}}"
        )
        there, back = ("10.1.0.1", "10.2.0.1"), ("10.2.0.1", "10.1.0.1")
        outbound = "direction: outbound, local: 10.0.0.1, remote: 10.0.0.2"
        listed = [
            sa.format(
                name=name,
                spi=spi,
                key=world.key(name, digit),
                traffic=ends.format(*pair),
                more=more,
            )
            for name, spi, digit, pair, more in (
                ("there", 0x500, "7", there, outbound),
                ("back", 0x600, "8", back, "direction: inbound"),
                ("other", 0x700, "9", there, "direction: inbound"),
            )
        ]
        text = f"security_associations: [{', '.join(listed)}]"
        sas = parse_associations(
            text, "file", world.directory, world.sas.bundles, world.sas.values_in_use()
        )

        async def added() -> None:
            adding = asyncio.create_task(world.sas.add(sas))
            await world.until(lambda: len(world.engine.held) == 4)
            numbers = {one.name: one.settings.bundle for one in world.sas.table.wanted}
            assert numbers == {"out": 5, "there": FIRST, "back": FIRST, "other": FIRST + 1}
            assert not adding.done(), "no list has their rules"
            world.sas._instances.in_force = world.sas._instances.wanted
            world.sas.progressed()
            assert {one.state for one in await adding} == {SaState.IN_USE}

        await world.running(added)
        world.make()
        assert {one.name: one.traffic for one in world.sas.table.wanted}["there"] == sas[0].traffic

    run_scenario(body)


def test_a_key_file_that_changed_is_not_given(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        world.key("first", "9")

        async def refused() -> None:
            await world.until(lambda: world.state(0x100) is SaState.REKEY_NEEDED)

        await world.running(refused)
        assert world.engine.told == []

    run_scenario(body)


def test_what_is_added_stays_until_it_is_deleted(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        text = (
            "security_associations:\n"
            "  - {name: more, bundle: branch, direction: inbound, spi: 0x500,"
            f" algorithm: aes-128-gcm, key_file: {world.key('more', '7')}}}\n"
        )
        sas = parse_associations(
            text, "file", world.directory, world.sas.bundles, world.sas.values_in_use()
        )

        async def added() -> None:
            (report,) = await world.sas.add(sas)
            assert report.state is SaState.IN_USE
            with pytest.raises(AssociationError, match="is in the configuration"):
                await world.sas.delete("out")

        await world.running(added)
        world.make()
        assert [one.name for one in world.sas.table.wanted] == ["out", "more"]

        async def deleted() -> None:
            assert [one.name for one in await world.sas.delete("more")] == ["more"]
            with pytest.raises(AssociationError, match="no SA 'more'; there is: out"):
                await world.sas.delete("more")

        await world.running(deleted)
        world.make()
        assert [one.name for one in world.sas.table.wanted] == ["out"]

    run_scenario(body)


def test_a_key_that_the_configuration_takes_is_no_longer_a_commands(
    run_scenario: Callable[[Body], None], caplog: pytest.LogCaptureFixture
) -> None:
    """Checks that an SA that was added by a command is dropped when an SA of the configuration has
    the same key.

    Otherwise two engines could use the key at the same time, with the same sequence numbers.
    """

    async def body(world: World) -> None:
        text = (
            "security_associations:\n"
            "  - {name: more, bundle: branch, direction: outbound, spi: 0x500, local: 10.0.0.1,"
            f" remote: 10.0.0.2, algorithm: aes-128-gcm, key_file: {world.key('more', '7')}}}\n"
        )
        sas = parse_associations(
            text, "file", world.directory, world.sas.bundles, world.sas.values_in_use()
        )

        async def added() -> None:
            await world.sas.add(sas)
            config = world.config(spi=0x200, key="second", digit="7")
            world.sas.set_configured(config.policy.security_associations)
            assert "more" not in {one.name for one in world.sas.table.wanted}

        await world.running(added)
        assert "SA more (SPI 0x500) is not used" in caplog.text
        world.make(world.config(spi=0x200, key="second", digit="7"))
        assert "more" not in {one.name for one in world.sas.table.wanted}

    run_scenario(body)


def test_an_expired_sa_stays_expired(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        async def exhausted() -> None:
            await world.until(lambda: world.outbound() is not None)
            for key, held in world.engine.held.items():
                world.engine.held[key] = held._replace(drops={"sequence_exhausted": 1})
            await world.until(lambda: world.outbound() is None)
            assert world.state(0x100) is SaState.EXPIRED

        await world.running(exhausted)
        world.engine.held.clear()
        world.make()
        assert world.state(0x100) is SaState.EXPIRED

    run_scenario(body)


def test_the_link_to_the_peer_bounds_the_path_mtu(run_scenario: Callable[[Body], None]) -> None:
    async def body(world: World) -> None:
        world.mtu_of_the_link = 1400

        async def serves() -> None:
            await world.until(lambda: world.outbound() is not None)
            assert world.path_mtu() == 1400
            world.mtu_of_the_link = 1300
            world.sas.links_changed()
            assert world.path_mtu() == 1300
            world.mtu_of_the_link = 9000
            world.sas.links_changed()
            assert world.path_mtu() == 1500, "the configured path MTU applies"

        await world.running(serves)

    run_scenario(body)


def test_what_an_authentic_error_tells_is_in_the_switch_at_once(
    run_scenario: Callable[[Body], None],
) -> None:
    async def body(world: World) -> None:
        sender = parse_address("10.0.0.9")

        async def told() -> None:
            await world.until(lambda: world.outbound() is not None)
            (sa,) = world.sas.table.wanted
            assert world.sas.report_path_mtu(sa, 1420, sender)
            assert world.path_mtu() == 1420
            assert world.sas.report_path_mtu(sa, 68, sender)
            assert world.path_mtu() == MIN_INNER_MTU + sa.settings.overhead
            assert not world.sas.report_path_mtu(sa, 1500, sender)
            found = world.sas.path_mtu_of(sa)
            assert isinstance(found, PathMtu)
            assert found.reported is not None
            assert found.reported.sender == sender
            now = asyncio.get_running_loop().time()
            assert 599 < found.reported.until - now <= 600, "the default of limits"
            world.sas.report_lifetime = 300
            assert world.sas.report_path_mtu(sa, 68, sender)
            found = world.sas.path_mtu_of(sa)
            assert isinstance(found, PathMtu)
            assert found.reported is not None
            assert 299 < found.reported.until - now <= 301
            keys = KeyFiles(ALGORITHMS["aes-128-gcm"], world.key("second", "2"), None)
            await world.sas.rekey("out", 0x101, keys)
            assert world.path_mtu() == found.mtu, "the path MTU survives a rekey"

        await world.running(told)

    run_scenario(body)

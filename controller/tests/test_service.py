# SPDX-License-Identifier: Apache-2.0
"""Tests the daemon in standby, at a reload and at a restart. Sources and switch are fakes."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import weakref
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from fake_client import FakeClient
from fake_switch import PIPELINE, FakeSwitch, load_codec
from sluice import service
from sluice.api.server import BadRequestError
from sluice.config import Config, load_config
from sluice.entities import EntityKind, PuntLimit
from sluice.host_sources import StartResources
from sluice.inputs import Sources
from sluice.p4.schema import load_pipeline
from sluice.p4runtime.election import ElectionId
from sluice.p4runtime.session import NOT_FOUND
from sluice.reload import ReloadReport
from sluice.service import ReloadError, Service, SharedState
from sluice.service_manager import ServiceManager
from sluice.sources.punt import PuntQueue
from sluice.sources.replay import ReplayGate
from sluice.stalls import Stalls
from sluice.turns import EndedError
from test_controller import FakeDump, FakeInput

CONFIG = """
router: r1
state_dir: {directory}/state
api: {{socket: {directory}/r1.sock}}
switch: {{address: "unix:{directory}/switch.sock"}}
interfaces:
  - {{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: none}}
  - {{name: eth2, port: 2, mac: "02:00:00:00:01:02", spd: none}}
"""
THIRD = '  - {name: eth3, port: 3, mac: "02:00:00:00:01:03", spd: none}\n'
OTHER = (5, 7)


class Manager(ServiceManager):
    """Records all notifications."""

    def __init__(self) -> None:
        super().__init__(None)
        self.told: list[str] = []

    def notify(self, state: str) -> None:
        self.told += state.splitlines()


class Daemon:
    """Runs the service, and records its changes to the host."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path = path
        self.switch = FakeSwitch(load_codec())
        self.clients: list[FakeClient] = []
        self.arbitration: list[Any] | None = None
        self.opened: list[list[str]] = []
        self.removed: list[tuple[str, int]] = []
        self.problem: OSError | None = None
        self.manager = Manager()
        read = load_config(path)
        read.state_dir.mkdir()
        start = StartResources(read.state_dir)
        monkeypatch.setattr(service, "open_sources", self._open)
        monkeypatch.setattr(service, "connect", self._connect)
        monkeypatch.setattr(service, "probe", lambda *_: None)
        monkeypatch.setattr(service, "remove_taps", lambda taps, _: self.removed.extend(taps))
        parts = SharedState(
            load_pipeline(PIPELINE), start, Stalls(), self.manager, ReloadReport(0.0), 0.0
        )
        self.service = Service(parts, path, read, read)

    def _open(self, config: Config, *_: object) -> Sources:
        problem, self.problem = self.problem, None
        if problem is not None:
            raise problem
        self.opened.append([one.name for one in config.interfaces])
        routes, kernel, host = FakeInput(), FakeInput(), FakeInput()
        kernel.synced = True
        gate = ReplayGate(60.0)
        return Sources(routes, gate, FakeDump(), kernel, host, PuntQueue(100))

    def _connect(self, config: Config, election_id: ElectionId, **_: object) -> FakeClient:
        client = FakeClient(self.switch, arbitration=self.arbitration, election_id=election_id)
        self.clients.append(client)
        return client

    def write(self, *changes: tuple[str, str], more: str = "") -> None:
        text = self.path.read_text()
        for old, new in changes:
            text = text.replace(old, new)
        self.path.write_text(text + more)

    @property
    def controller(self) -> Any:
        return self.service._life.controller

    async def status(self) -> dict[str, Any]:
        found = await self.service.answer({"command": "show", "what": "status"})
        return cast(dict[str, Any], found)

    async def until(self, condition: Callable[[], object]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.001)


Scenario = Callable[[Daemon], Awaitable[None]]


@pytest.fixture
def run_scenario(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Scenario], None]:
    path = tmp_path / "r1.yaml"
    path.write_text(CONFIG.format(directory=tmp_path))

    def run(scenario: Scenario) -> None:
        async def scene() -> None:
            daemon = Daemon(path, monkeypatch)
            task = asyncio.create_task(daemon.service.run())
            try:
                await asyncio.wait_for(scenario(daemon), 30)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        asyncio.run(scene())

    return run


def test_a_standby_opens_nothing_before_it_is_primary(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(daemon: Daemon) -> None:
        daemon.arbitration = [(False, 6, "", OTHER)]
        await daemon.until(lambda: "READY=1" in daemon.manager.told)
        status = await daemon.status()
        assert status["role"] == "standby"
        assert status["problems"] == []
        with pytest.raises(BadRequestError, match="this controller is on standby"):
            await daemon.service.answer({"command": "show", "what": "routes"})
        assert daemon.opened == []
        client = daemon.clients[-1]
        client.arbitrate = lambda asked: client.arbitration(True, 0, "", asked)  # type: ignore
        client.arbitration(False, NOT_FOUND, "", OTHER)
        await daemon.until(lambda: daemon.controller)
        assert daemon.opened == [["eth1", "eth2"]]
        await daemon.until(lambda: daemon.switch.of(EntityKind.HASH_SEED))
        assert (await daemon.status())["role"] == "primary"

    run_scenario(scenario)


def test_a_standby_that_reloads_removes_no_interface(
    run_scenario: Callable[[Scenario], None],
) -> None:
    """Checks that a standby's reload removes no interface.

    The interfaces are those of the primary on the same host.
    """

    async def scenario(daemon: Daemon) -> None:
        daemon.arbitration = [(False, 6, "", OTHER)]
        await daemon.until(lambda: "READY=1" in daemon.manager.told)
        daemon.write(("name: eth2", "name: eth9"))
        assert await daemon.service.reload() == ["interfaces.eth2", "interfaces.eth9"]
        daemon.arbitration = None
        await daemon.until(lambda: len(daemon.clients) == 2)
        await daemon.until(lambda: daemon.controller)
        assert daemon.opened == [["eth1", "eth9"]]
        assert daemon.removed == []

    run_scenario(scenario)


def test_a_reload_begins_another_life_and_frees_the_old_one(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(daemon: Daemon) -> None:
        await daemon.until(lambda: daemon.controller and daemon.controller.reconciler.synced)
        old = weakref.ref(daemon.controller)
        daemon.write(("name: eth2", "name: eth9"), more=THIRD)
        changed = await daemon.service.reload()
        assert changed == ["interfaces.eth2", "interfaces.eth9", "interfaces.eth3"]
        assert daemon.opened[1] == ["eth1", "eth9", "eth3"]
        assert daemon.removed == [("eth2", 0)]
        assert daemon.clients[0].closed
        await daemon.until(lambda: daemon.clients[1].requests)
        first, second = (client.requests[-1].election_id for client in daemon.clients[:2])
        assert second.high == first.high + 1
        gc.collect()
        assert old() is None
        assert "RELOADING=1" in daemon.manager.told
        assert daemon.manager.told[-1].startswith(("READY=1", "STATUS="))
        assert await daemon.service.reload() == []

    run_scenario(scenario)


def test_the_old_configuration_begins_again_where_the_new_one_cannot(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(daemon: Daemon) -> None:
        await daemon.until(lambda: daemon.controller and daemon.controller.reconciler.synced)
        daemon.write(more=THIRD)
        daemon.problem = OSError("interface eth3: no")
        with pytest.raises(ReloadError, match="interface eth3: no"):
            await daemon.service.reload()
        await daemon.until(lambda: daemon.controller)
        assert daemon.opened == [["eth1", "eth2"], ["eth1", "eth2"]]
        assert any("eth3: no" in one for one in (await daemon.status())["problems"])
        assert len(await daemon.service.reload()) == 1, "what the file says is still new"

    run_scenario(scenario)


def test_settings_change_in_the_life_that_there_is(
    run_scenario: Callable[[Scenario], None],
) -> None:
    async def scenario(daemon: Daemon) -> None:
        await daemon.until(lambda: daemon.controller and daemon.controller.reconciler.synced)
        controller = daemon.controller
        daemon.write(
            more="limits: {held_packets: 1, auditor_seconds: 9, punt_queue: 64,"
            " path_mtu_seconds: 300, icmp_rejects_per_second: 7}\n"
            "audit: {rate: 3}\npunt_rates: {ARP: {rate: 1, burst: 1}}\n"
        )
        assert len(await daemon.service.reload()) == 8
        assert daemon.controller is controller
        assert controller.auditor.interval == 9
        assert controller.associations.report_lifetime == 300
        assert controller.rejections._limiter._rate == 7
        assert controller.held._total == 1
        assert controller.audit._rate == 3
        meters = controller.reconciler.installed.by_kind[EntityKind.PUNT_METER]
        await daemon.until(lambda: meters.get("ARP") == PuntLimit(1, 1))
        assert len(daemon.clients) == 1

    run_scenario(scenario)


def test_a_fixed_key_refuses_all(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(daemon: Daemon) -> None:
        await daemon.until(lambda: daemon.controller)
        daemon.write(("router: r1", "router: r2"), more="limits: {held_packets: 1}\n")
        with pytest.raises(ReloadError, match=r"^router: cannot be changed while"):
            await daemon.service.reload()
        assert daemon.controller.held._total == 1024
        with pytest.raises(BadRequestError, match=r"^router: cannot be changed"):
            await daemon.service.answer({"command": "reload"})

    run_scenario(scenario)


def test_views_under_way_end_with_a_sentence(run_scenario: Callable[[Scenario], None]) -> None:
    async def scenario(daemon: Daemon) -> None:
        await daemon.until(lambda: daemon.controller and daemon.controller.reconciler.synced)
        waiting = asyncio.create_task(daemon.controller.views.next())
        late = daemon.controller.views
        daemon.write(more=THIRD)
        await daemon.service.reload()
        for turn in (waiting, late.next()):
            with contextlib.suppress(EndedError):
                await turn
        with pytest.raises(EndedError, match="ask again"):
            await late.next()

    run_scenario(scenario)

# SPDX-License-Identifier: Apache-2.0
"""Runs a controller with SPDs and a fake switch, for the tests of policy."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from fake_switch import FakeSwitch, load_codec
from packets import ethernet, ipv4
from sluice.api.requests import Requests
from sluice.api.rows import Rows
from sluice.config import load_config
from sluice.numbers import InterfaceNumbers
from sluice.policy.model import Direction
from test_controller import World, metadata
from test_punts import punt

CODEC = load_codec()
INBOUND, OUTBOUND = Direction.INBOUND, Direction.OUTBOUND
STAGE_INBOUND, STAGE_OUTBOUND = 2, 5
BYPASS, DISCARD, PROTECT = 1, 2, 3
CONFIG = """\
router: r1
state_dir: {state}
switch: {{target: {target}}}
interfaces:
  - {{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}}
  - {{name: eth2, port: 2, mac: "02:00:00:00:01:02", spd: none}}
  - {{name: eth3, port: 3, mac: "02:00:00:00:01:03", spd: edge}}
engines: [{{id: 1, port: 9}}]
bundles:
  - name: branch
    id: 7
    spd: corp
    outbound: {{engine: 1, sa: 100, local: 10.0.1.1, path_mtu: 1400, overhead: 73, spi: 7000}}
    inbound: [{{spi: 4096, engine: 1, sa: 200}}]
spds:
  - name: corp
    mode: cache
    flow_cache: {{size: {size}, idle_timeout: {idle}}}
    inbound: [{{name: all-in, action: bypass}}]
    outbound:
      - {{name: secret, action: protect, bundle: branch, destination: 10.9.0.0/16}}
      - {{name: web, action: bypass, protocol: tcp, destination_ports: [80]}}
      - {{name: dns, action: bypass, protocol: udp, source_ports: [53]}}
  - name: edge
    mode: cache
    inbound: []
    outbound: []
"""
COMMIT = """\
spd: corp
inbound: [{name: all-in, action: bypass}]
outbound: [{name: web, action: discard, protocol: tcp, destination_ports: [80]}]
"""
Scenario = Callable[["PolicyWorld"], Awaitable[None]]


class PolicyWorld(World):
    """Runs a router with two SPDs. `sent` returns the metadata of each packet-out, as values by
    field name."""

    @property
    def policy(self) -> Any:
        return self.controller.policy

    def state(self, spd: str, direction: Direction) -> Any:
        return self.policy.table.list_of(spd, direction)

    async def began(self) -> None:
        self.links()
        await asyncio.wait_for(self.ready.wait(), 5)

    def miss(self, frame: bytes, direction: Direction = OUTBOUND, /, **known: int) -> None:
        """Punts a frame as the pipeline does when the flow cache of the SPD corp has no flow for
        it.
        """
        state = self.state("corp", direction)
        stage = STAGE_INBOUND if direction is INBOUND else STAGE_OUTBOUND
        reason = "INBOUND_MISS" if direction is INBOUND else "OUTBOUND_MISS"
        fields = {"stage": stage, "list_id": state.list_id, "generation": state.version.generation}
        packet = punt(frame, reason, **(fields | known))
        self.client.punt((packet.frame, tuple(packet[1:])))

    def audit_lines(self) -> list[dict[str, Any]]:
        """Returns the lines of the audit log."""
        text = self.controller.config.audit.file.read_text()
        return [json.loads(line) for line in text.splitlines()]

    async def sent(self, number: int = 1) -> list[dict[str, int]]:
        await self.until(lambda: len(self.client.sent) >= number)
        return [metadata(values) for _, values in self.client.sent]

    async def request(self, command: str, **more: Any) -> Any:
        return await Requests(self.controller).answer({"command": command} | more)

    async def ask(self, command: str, **more: Any) -> Any:
        answer = await self.request(command, **more)
        return await answer.whole() if isinstance(answer, Rows) else answer

    async def commit(self, *texts: str) -> Any:
        files = [{"name": f"{n}.yaml", "text": text} for n, text in enumerate(texts)]
        return await self.ask("spd commit", files=files)

    async def counted(self, name: str, number: int = 1) -> None:
        counters = self.controller.first_packets.counters
        await self.until(lambda: counters[name] == number)


RunScenario = Callable[..., None]


@pytest.fixture
def run_scenario(tmp_path: Path) -> RunScenario:
    def run(scenario: Scenario, switch: FakeSwitch | None = None, **settings: Any) -> None:
        numbers = InterfaceNumbers(tmp_path) if settings.pop("numbered", False) else None
        kind: type[PolicyWorld] = settings.pop("world", PolicyWorld)
        values = {"target": "sluice-switch", "size": 100, "idle": 60, "state": tmp_path}
        path = tmp_path / "r1.yaml"
        text = settings.pop("text", None) or CONFIG.format(**(values | settings))
        path.write_text(text)
        config = load_config(path)
        given = config if numbers is None else numbers.assign(config)

        worlds: list[PolicyWorld] = []

        async def scene() -> None:
            world = kind(given, switch or FakeSwitch(CODEC), numbers)
            worlds.append(world)
            task = asyncio.create_task(world.controller.run())
            try:
                await asyncio.wait_for(scenario(world), 20)
            finally:
                if task.done():
                    task.result()
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert world.switch.violations == []

        try:
            asyncio.run(scene())
        finally:
            for world in worlds:
                world.close()

    return run


def filled(text: str, state: Path) -> str:
    """Fills in the variables of a configuration. `text` is CONFIG or derived from CONFIG."""
    return text.format(target="sluice-switch", size=100, idle=60, state=state)


def tcp(port: int, destination: str = "10.0.1.77") -> bytes:
    payload = (40000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(16)
    return ethernet(ipv4("10.0.3.7", destination, payload, 6))

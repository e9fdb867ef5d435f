# SPDX-License-Identifier: Apache-2.0
"""Measures how long the controller's event loop stalls with a full table: `make bench-stalls`.

    cd controller && PYTHONPATH=src python tests/measure_stalls.py [--routes N]

The controller runs with the fakes of the tests. Routes come in slices, as over FPM. The switch
acknowledges every write at once and is always empty when it is read.

After the load, each kind of work that walks all routes is done once: views, a new session of the
routing daemon (with the comparison of its routes), a change of links, and a new session with the
switch. For each kind of work, the program prints the longest stall of each part, in milliseconds of
the thread's processor time. The time of other processes does not count, but their use of caches and
memory may slow the thread.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fake_client import FakeClient
from fake_switch import FakeSwitch
from scenes import address, gateway, ifindex, link, neighbor
from sluice.api.requests import Requests
from sluice.api.server import ApiServer
from sluice.config import load_config
from sluice.garbage_collection import GarbageCollection
from sluice.model import (
    MAIN_TABLE,
    FpmSessionClosed,
    FpmSessionOpened,
    LinkRemoved,
    Prefix,
    Route,
    RouteKey,
    RouteUpdated,
)
from sluice.stalls import Stalls, measured_loop
from test_controller import CODEC, CONFIG, World

BOUND = 0.020


class WillingClient(FakeClient):
    """Acknowledges every write without reading it."""

    def write(self, token: int, request: bytes) -> None:
        """Acknowledges the write at once."""
        self._check_open()
        self._emit(("write_done", token, 0, "", []))


class Routes:
    """Creates route events when they are polled, and not before.

    A list of all events would use memory that the daemon does not use.
    """

    def __init__(self, world: World) -> None:
        self._feed = world.routes

    async def send(self, count: int) -> None:
        """Announces the first `count` prefixes of the table."""
        feed = self._feed
        for start in range(0, count, 512):
            feed.put(*(update(n) for n in range(start, min(start + 512, count))))
            while feed.waiting:
                await asyncio.sleep(0.001)


def key(n: int) -> RouteKey:
    """Returns the n-th prefix of the table: the n-th /24 from 1.0.0.0 on."""
    return RouteKey(MAIN_TABLE, Prefix(((1 << 24) + (n << 8)).to_bytes(4, "big"), 24))


def update(n: int) -> RouteUpdated:
    """Returns the n-th route, which leads to one of 200 gateways."""
    leg = gateway(f"10.0.{1 + n % 2}.{10 + n % 100}", 1 + n % 2)
    return RouteUpdated(Route(key(n), 186, 20, (leg,), None))


class Bench:
    """Measures the stalls of one controller."""

    def __init__(self, world: World, stalls: Stalls, folder: Path, count: int) -> None:
        self.world = world
        self.controller = world.controller
        self.stalls = stalls
        self.socket = folder / "r1.sock"
        self.count = count
        self.results: dict[str, Any] = {}

    async def measure(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Does the work and prints the longest stall of each part."""
        await asyncio.sleep(0.001)  # ends the iteration of earlier work
        self.stalls.forget()
        began, cpu = time.monotonic(), time.thread_time()
        await work()
        await asyncio.sleep(0.01)
        found = {part: longest.ever * 1000 for part, longest in self.stalls.longest().items()}
        self.results[name] = {part: round(ms, 1) for part, ms in found.items()}
        text = ", ".join(
            f"{part} {ms:.1f}" for part, ms in sorted(found.items(), key=lambda x: -x[1])
        )
        over = " OVER" if max(found.values()) > BOUND * 1000 else ""
        print(
            f"{name}: {text} ms{over} [{time.monotonic() - began:.1f} s,"
            f" {time.thread_time() - cpu:.1f} s CPU]",
            flush=True,
        )

    async def synced(self) -> None:
        """Waits until the switch holds all desired entries."""
        while not self.controller.reconciler.synced or self.world.routes.waiting:
            await asyncio.sleep(0.01)

    def asking(self, **request: Any) -> Callable[[], Awaitable[None]]:
        """Returns work that sends a request to the API and discards the answer."""
        return lambda: asyncio.to_thread(read_answer, self.socket, request)

    async def load(self) -> None:
        """Announces all routes to an empty controller."""
        self.world.routes.put(FpmSessionOpened("zebra"))
        await Routes(self.world).send(self.count)
        await self.synced()

    async def restart(self) -> None:
        """Restarts the routing daemon, which then has no routes. The kernel still has half of its
        former routes.
        """
        world = self.world
        world.routes.put(FpmSessionClosed("gone"), FpmSessionOpened("zebra"))
        # Read the length now, because the dictionary is handed over and emptied.
        kept = len(world.dump.routes)
        while self.controller.fib.rib.stale != kept or not self.controller.settled:
            await asyncio.sleep(0.01)
        await self.synced()

    async def replay(self) -> None:
        """Announces all routes again."""
        await Routes(self.world).send(self.count)
        await self.synced()

    async def replumb(self) -> None:
        """Removes an interface and adds it again.

        Meanwhile half of the routes have no usable next hop.
        """
        self.world.kernel.put(LinkRemoved(ifindex(1)))
        while self.world.kernel.waiting:
            await asyncio.sleep(0.01)
        await self.synced()
        self.world.kernel.put(link(1), address(1, "10.0.1.1/24"))
        while self.world.kernel.waiting:
            await asyncio.sleep(0.01)
        await self.synced()

    async def reconnect(self) -> None:
        """Ends the session with the switch. The next session finds an empty switch."""
        before = self.world.client
        before.hang_up()
        while self.world.client is before:
            await asyncio.sleep(0.01)
        await self.synced()


def read_answer(path: Path, request: dict[str, Any]) -> None:
    """Reads an answer to its end and discards it."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(str(path))
        connection.sendall(json.dumps({"command": "show"} | request).encode() + b"\n")
        end, size = b"", 0
        while end[-1:] != b"\n":
            chunk = connection.recv(1 << 20)
            if not chunk:
                raise ConnectionError("no answer")
            end, size = chunk[-200:], size + len(chunk)
    assert b'"ok": true' in end or size < 1 << 20, end


async def run(stalls: Stalls, folder: Path, count: int) -> dict[str, Any]:
    """Measures all kinds of work and returns the stalls of each part, in milliseconds."""
    # The fake switch is always empty, so the auditor must not run.
    limits = "limits: {held_seconds: 0.3, auditor_seconds: 3600}"
    (folder / "r1.yaml").write_text(CONFIG.replace("limits: {held_seconds: 0.3}", limits))
    config = load_config(folder / "r1.yaml")
    World.quiet = 0.5
    world = World(config, FakeSwitch(CODEC), stalls=stalls)
    world.dump.give = lambda routes: routes
    world.make_client = WillingClient
    controller = world.controller
    stalls.watch_garbage()
    garbage = GarbageCollection()
    controller.on_routes = garbage.made
    garbage.start()
    bench = Bench(world, stalls, folder, count)
    api = ApiServer(
        bench.socket,
        Requests(controller).answer,
        turn=controller.views.next,
        measured=stalls.measured,
    )
    task = asyncio.create_task(controller.run())
    async with api:
        world.links()
        for n in range(10, 110):
            world.kernel.put(*(neighbor(leg, f"10.0.{leg}.{n}", n) for leg in (1, 2)))
        await world.ready.wait()
        await bench.measure("load", bench.load)
        await bench.measure("idle", lambda: asyncio.sleep(0.5))
        await bench.measure("show status", bench.asking(what="status"))
        await bench.measure("metrics", bench.asking(what="metrics"))
        await bench.measure("show routes --limit 100", bench.asking(what="routes", limit=100))
        await bench.measure("show routes", bench.asking(what="routes"))
        await bench.measure("replay", bench.replay)
        world.dump.routes = {key(n): update(n).route for n in range(0, count, 2)}
        await bench.measure("daemon restarts", bench.restart)
        await bench.measure("load again", bench.replay)
        await bench.measure("interface changes", bench.replumb)
        await bench.measure("switch reconnects", bench.reconnect)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return bench.results


def main() -> None:
    """Runs the measurements and prints the results as JSON."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--routes", type=int, default=900_000)
    arguments = parser.parse_args()
    stalls = Stalls(time.thread_time)
    with (
        tempfile.TemporaryDirectory() as folder,
        asyncio.Runner(loop_factory=lambda: measured_loop(stalls)) as runner,
    ):
        print(json.dumps(runner.run(run(stalls, Path(folder), arguments.routes))))


if __name__ == "__main__":
    main()

# SPDX-License-Identifier: Apache-2.0
"""Connects state, reconciler and native client to a real switch, for tests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from sluice_testkit.target import Target, p4runtime_address

from fake_switch import PIPELINE, load_codec
from scenes import SPECS, address, link
from sluice._native import P4RuntimeClient
from sluice.entities import (
    HASH_SEED_KEY,
    EntityChanges,
    EntityKind,
    HashSeed,
    Nexthop,
    NexthopGroup,
    PuntLimit,
)
from sluice.model import Event
from sluice.p4.schema import load_pipeline
from sluice.p4runtime.session import P4RuntimeError, Session
from sluice.reconciler import Reconciler
from sluice.state.fib import Fib

CODEC = load_codec()


def address_in(directory: Path) -> str:
    """Returns the address at which a test's switch serves P4Runtime.

    For sluice-switch this is a Unix socket, which is reachable from every network namespace. Each
    test has a namespace of its own, but the native client's thread stays in the namespace where it
    was first used.
    """
    return p4runtime_address(None, directory, "switch")


class Router:
    """Runs a Fib and a reconciler with a real P4Runtime session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.fib = Fib(SPECS)
        self.reconciler = Reconciler(CODEC, self._deleted, time.monotonic)
        self.reconciler.submit(self.fib.start())
        settings = EntityChanges()
        settings.set(EntityKind.HASH_SEED, HASH_SEED_KEY, HashSeed(0xDEADBEEF))
        settings.set(EntityKind.PUNT_METER, "LOCAL", PuntLimit(1000, 100))
        self.reconciler.submit(settings)

    def _deleted(self, kind: EntityKind, key: object) -> None:
        if isinstance(key, int):
            self.fib.confirm_deleted(kind, key)

    def feed(self, *events: Event) -> None:
        self.reconciler.submit(self.fib.apply(events, 0.0))

    def interfaces(self) -> None:
        for n in (1, 2, 3):
            self.feed(link(n), address(n, f"10.0.{n}.1/24"), address(n, f"2001:db8:{n}::1/64"))

    async def read(self) -> None:
        await self.reconciler.read_back(self.session)

    async def adopt(self) -> None:
        await self.read()
        found = self.reconciler.installed.by_kind
        nexthops = {
            key: value if isinstance(value, Nexthop) else None
            for key, value in found[EntityKind.NEXTHOP].items()
            if isinstance(key, int)
        }
        groups = {
            key: value if isinstance(value, NexthopGroup) else None
            for key, value in found[EntityKind.GROUP].items()
            if isinstance(key, int)
        }
        self.reconciler.submit(self.fib.adopt(nexthops, groups, 0.0))
        await self.reconciler.compare()

    async def settle(self) -> None:
        task = asyncio.create_task(self.reconciler.run(self.session))
        try:
            deadline = time.monotonic() + 60
            while not self.reconciler.synced and not task.done():
                failures = [f"{what}: {why}" for what, why in self.reconciler.failures.items()]
                assert time.monotonic() < deadline, failures[:10]
                await asyncio.sleep(0.01)
            if task.done():
                task.result()
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def check(self) -> None:
        """Checks that the switch holds exactly the desired entries."""
        await self.read()
        for kind in EntityKind:
            if kind > EntityKind.HASH_SEED:
                assert self.reconciler.installed.by_kind[kind] == self.reconciler.desired[kind]


@asynccontextmanager
async def connected(target: Target) -> AsyncIterator[Router]:
    """Yields a primary router in the target's namespace. The switch has the router's pipeline."""
    async with asyncio.timeout(30):
        session = await primary(target)
        pipeline = load_pipeline(PIPELINE)
        await session.ensure_pipeline(pipeline.p4info, pipeline.device_config)
    try:
        yield Router(session)
    finally:
        session.close()
        await session.closed


async def primary(target: Target) -> Session:
    """Returns a primary session.

    Retries until the switch has noticed the end of the previous session.
    """
    while True:
        client = target.namespace.inside(
            lambda: P4RuntimeClient(target.grpc, target.device_id, (0, 1))
        )
        session = Session(client, target.device_id, (0, 1), None, lambda _: None)
        try:
            await session.become_primary()
        except P4RuntimeError:
            await asyncio.sleep(0.05)
        else:
            return session


def run_scenario(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 120))

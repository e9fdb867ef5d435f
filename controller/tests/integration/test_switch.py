# SPDX-License-Identifier: Apache-2.0
"""Tests reconciler, session and native client with a real switch.

The switch is sluice-switch, or BMv2 with TARGET=bmv2. Reads of the switch return the entries that
were written. A second controller adopts them without a write. The reconciler corrects wrong
entries, removes unknown ones, and fills a restarted switch again.

A second controller waits while the first is primary, and takes over when the first is gone. If a
client has used the largest election id, the status reports this.
"""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path

import pytest
from sluice_testkit.namespaces import Lab
from sluice_testkit.target import Target

from real_switch import CODEC, address_in, connected, run_scenario
from scenes import gateway, neighbor, no_route, route, slot
from sluice._native import P4RuntimeClient
from sluice.entities import (
    UNREACHABLE,
    EntityKey,
    EntityKind,
    EntityValue,
    Nexthop,
    RouteTarget,
    RouteTargetKind,
)
from sluice.model import Event
from sluice.p4runtime.election import LARGEST, ElectionId, question
from sluice.p4runtime.messages import UpdateType
from sluice.p4runtime.session import P4RuntimeError, Session, SwitchPorts
from tampering import audit_of, copies, repaired, tampered, until

COUNT = 3000

pytestmark = pytest.mark.skipif(shutil.which("ip") is None, reason="needs Linux namespaces")


@pytest.fixture(scope="module")
def target(module_lab: Lab, tmp_path_factory: pytest.TempPathFactory) -> Target:
    namespace = module_lab.namespace("switch")
    address = address_in(tmp_path_factory.mktemp("switch"))
    target = Target(namespace, {}, module_lab.supervisor, address=address)
    target.start()
    return target


def many() -> list[Event]:
    ipv4 = [route(f"20.{n >> 8}.{n & 255}.0/24", gateway("10.0.1.9", 1)) for n in range(COUNT)]
    legs = (gateway("fe80::9", 1, 1), gateway("fe80::a", 2, 3))
    ipv6 = [route(f"2001:db8:{n + 0x100:x}::/48", *legs) for n in range(COUNT)]
    return [*ipv4, *ipv6, route("0.0.0.0/0", gateway("10.0.2.9", 2)), route("::/0", *legs)]


def test_the_switch_tells_its_ports(target: Target) -> None:
    """Checks that sluice-switch reports its ports. BMv2 reports none."""

    async def scenario() -> None:
        async with connected(target) as router:
            ports = await router.session.ports()
            assert ports == (None if target.name == "bmv2" else SwitchPorts({}, target.cpu_port))

    run_scenario(scenario)


def test_written_and_read_back(target: Target) -> None:
    async def scenario() -> None:
        async with connected(target) as router:
            router.reconciler.release(EntityKind)
            await router.adopt()
            router.interfaces()
            router.feed(*many(), neighbor(1, "10.0.1.9", 4), neighbor(2, "fe80::a", 5))
            await router.settle()
            await router.check()

    run_scenario(scenario)


def test_a_new_controller_adopts_what_is_right_and_corrects_the_rest(target: Target) -> None:
    async def scenario() -> None:
        async with connected(target) as router:
            wrong: list[tuple[UpdateType, EntityKind, EntityKey, EntityValue | None]] = [
                (UpdateType.MODIFY, EntityKind.ROUTE, slot("20.0.5.0/24"), UNREACHABLE),
                (UpdateType.DELETE, EntityKind.ROUTE, slot("20.0.6.0/24"), None),
                (
                    UpdateType.INSERT,
                    EntityKind.NEXTHOP,
                    60000,
                    Nexthop(1, b"\x0a\0\1\x63", None, True),
                ),
                (
                    UpdateType.INSERT,
                    EntityKind.ROUTE,
                    slot("99.0.0.0/8"),
                    RouteTarget(RouteTargetKind.NEXTHOP, 60000),
                ),
            ]
            for operation, kind, key, value in wrong:
                update = CODEC.update(operation, kind, key, value)
                assert await router.session.write([update]) == []
            await router.adopt()
            router.interfaces()
            router.feed(*many(), neighbor(1, "10.0.1.9", 4), neighbor(2, "fe80::a", 5))
            router.reconciler.release(EntityKind)
            await router.settle()
            await router.check()
            settings = 2
            assert router.reconciler.counters["updates"] == len(wrong) + settings

    run_scenario(scenario)


def test_routes_go_in_the_right_order(target: Target) -> None:
    async def scenario() -> None:
        async with connected(target) as router:
            await router.adopt()
            router.reconciler.release(EntityKind)
            router.interfaces()
            router.feed(*many())
            await router.settle()
            router.feed(*(no_route(f"20.{n >> 8}.{n & 255}.0/24") for n in range(COUNT)))
            router.feed(*(no_route(f"2001:db8:{n + 0x100:x}::/48") for n in range(COUNT)))
            router.feed(no_route("::/0"), no_route("0.0.0.0/0"))
            await router.settle()
            await router.check()
            assert router.reconciler.counters["updates refused"] == 0
            assert not router.reconciler.installed.by_kind[EntityKind.GROUP]

    run_scenario(scenario)


def test_everything_that_somebody_else_wrote_is_put_right(target: Target, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with connected(target) as router:
            router.reconciler.release(EntityKind)
            await router.adopt()
            router.interfaces()
            router.feed(*many(), neighbor(1, "10.0.1.9", 4))
            await router.settle()
            auditor = audit_of(router.reconciler, tmp_path)
            tasks = [
                asyncio.create_task(auditor.run(router.session)),
                asyncio.create_task(router.reconciler.run(router.session)),
            ]
            await until(lambda: all(one.rounds > 1 for one in auditor.reports.values()))
            assert not any(one.repairs or one.problem for one in auditor.reports.values())
            wrong = tampered(router.reconciler)
            updates = [CODEC.update(*one) for one in wrong] + copies()
            assert await router.session.write(updates) == []
            names = {kind.name.lower() for _, kind, _, _ in wrong}
            names |= {"multicast_group", "clone_session"}
            await until(lambda: repaired(auditor).total() >= len(updates))
            await until(lambda: router.reconciler.synced)
            assert repaired(auditor).keys() == names
            assert repaired(auditor).total() == len(updates)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await router.check()

    run_scenario(scenario)


def test_refused_updates_come_back_one_by_one(target: Target) -> None:
    async def scenario() -> None:
        async with connected(target) as router:
            good = CODEC.update(
                UpdateType.INSERT, EntityKind.ROUTE, slot("30.0.0.0/8"), UNREACHABLE
            )
            other = CODEC.update(
                UpdateType.INSERT, EntityKind.ROUTE, slot("31.0.0.0/8"), UNREACHABLE
            )
            absent = CODEC.update(UpdateType.DELETE, EntityKind.ROUTE, slot("32.0.0.0/8"), None)
            codes = [s.code for s in await router.session.write([good, good, absent, other])]
            assert codes[0] == codes[3] == 0
            assert codes[1] != 0
            assert codes[2] != 0
            assert 5 not in codes[:2]

    run_scenario(scenario)


def test_a_restarted_switch_is_filled_again(target: Target) -> None:
    async def scenario() -> None:
        async with connected(target) as router:
            await router.adopt()
            router.interfaces()
            router.feed(*many()[:100])
            await router.settle()
            target.stop()
            await router.session.closed
            target.start()
            async with connected(target) as again:
                router.session = again.session
                router.reconciler.disconnect()
                await router.read()
                await router.reconciler.compare()
                await router.settle()
                await router.check()

    run_scenario(scenario)


# --- election of the primary ----------------------------------------------------------------------


def session_of(target: Target, election_id: ElectionId | None = None) -> Session:
    asked = election_id or question()
    client = target.namespace.inside(lambda: P4RuntimeClient(target.grpc, target.device_id, asked))
    return Session(client, target.device_id, asked, None, lambda _: None)


def test_a_second_controller_waits_and_takes_over_from_the_first(target: Target) -> None:
    async def scenario() -> None:
        first = session_of(target)
        await first.become_primary()
        # The low half of an election id is random, so in about half of these sessions it is larger
        # than the primary's.
        seconds = [session_of(target) for _ in range(4)]
        await until(lambda: all("another controller" in one.arbitration for one in seconds))
        assert first.is_primary
        first.close()
        await until(lambda: any(one.is_primary for one in seconds))
        for one in seconds:
            one.close()

    run_scenario(scenario)


def test_the_largest_id_is_stood_by_and_a_restarted_switch_is_taken(target: Target) -> None:
    async def outcome() -> str:
        session = session_of(target)
        try:
            await session.become_primary()
        except P4RuntimeError as error:
            return str(error)
        finally:
            session.close()
        return "primary"

    async def scenario() -> None:
        stranger = session_of(target, LARGEST)
        await stranger.become_primary()
        waiting = session_of(target)
        await until(lambda: "largest election id; stop it" in waiting.arbitration)
        stranger.close()
        # Some switches remember the highest election id ever used, and refuse every lower one until
        # they restart.
        assert "restart the switch" in (told := await outcome()) or told == "primary"
        target.stop()
        target.start()
        assert await outcome() == "primary"

    run_scenario(scenario)

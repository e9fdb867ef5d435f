# SPDX-License-Identifier: Apache-2.0
"""Tests the order in which SAs are written to engines and to the switch.

A new SA works before the old one is removed. If a step fails, packets are dropped and do not leave
in clear. No nonce repeats.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from sluice.entities import (
    BundleInVrf,
    Decrypt,
    Encrypt,
    EntityKey,
    EntityKind,
    EntityValue,
    InboundSpi,
    ReassemblyEngine,
)
from sluice.policy.model import Direction
from sluice.sa_model import (
    Fragmentation,
    HeldSa,
    KeyMaterial,
    Lifetime,
    LifetimeState,
    Origin,
    SaSettings,
    SecurityAssociation,
)
from sluice.state.sa_table import (
    DRAIN,
    GRACE,
    RETRY,
    Add,
    BundleSpec,
    Clocks,
    Command,
    Delete,
    KeyUse,
    SaState,
    SaTable,
)

BRANCH, IN_VRF = 5, BundleInVrf(0, 5)
LOCAL, REMOTE = bytes([10, 0, 0, 1]), bytes([10, 0, 0, 2])
OVERHEAD = 57


class NoKeys:
    def read(self) -> KeyMaterial:
        raise AssertionError("the table reads no keys")


def sa(name: str, spi: int, *, engine: int | None = None, **settings: Any) -> SecurityAssociation:
    outbound = name.startswith("to")
    ends = {"local": LOCAL, "remote": REMOTE} if outbound else {"replay_window": 64}
    direction = Direction.OUTBOUND if outbound else Direction.INBOUND
    common = {"bundle": BRANCH, "vrf": 0, "algorithm": "aes-128-gcm", "fingerprint": f"of {spi}"}
    made = SaSettings(direction, spi, **common, **ends, **settings)  # type: ignore[arg-type]
    return SecurityAssociation(name, made, Origin.CONFIGURATION, NoKeys(), engine)


OUT, IN = sa("to", 0x100), sa("from", 0x200)


class World:
    """Simulates engines and a switch. They carry out the table's commands when the test says so."""

    def __init__(self, *engines: int) -> None:
        self.uses: dict[str, KeyUse] = {}
        self.bundle = BundleSpec("branch", BRANCH, 0, engines or (1,), 1500)
        self.clocks = Clocks(0.0)
        self.table = SaTable([self.bundle], engines or (1,), self.uses, clocks=lambda: self.clocks)
        self.held: dict[int, dict[object, HeldSa]] = {one: {} for one in engines or (1,)}
        self.installed: dict[EntityKind, dict[EntityKey, EntityValue]] = {
            kind: {} for kind in EntityKind
        }
        self.now, self.number = 0.0, 0

    def up(self, *engines: int) -> None:
        for engine in engines:
            self.table.engine_holds(engine, self.held[engine].values())

    def restarted(self, engine: int) -> None:
        self.table.engine_unreachable(engine)
        self.held[engine].clear()
        self.up(engine)

    def commands(self, engine: int = 1) -> list[Command]:
        return self.table.commands(engine, self.installed, self.now)

    def obey(self, engine: int = 1) -> list[Command]:
        """Carries out the table's commands for an engine, and returns them."""
        commands = self.commands(engine)
        for command in commands:
            if isinstance(command, Delete):
                del self.held[engine][command.held.key]
                self.table.deleted(engine, command.held)
                continue
            settings = command.sa.settings
            self.number += command.sa.is_outbound
            number = self.number if command.sa.is_outbound else settings.spi
            self.uses[settings.fingerprint] = KeyUse(
                engine, self.uses.get(settings.fingerprint, KeyUse(engine, self.clocks)).since
            )
            held = HeldSa(settings, number)
            self.held[engine][held.key] = held
            self.table.added(engine, command.sa, number)
        return commands

    def write(self) -> None:
        """Writes the desired entries to the switch."""
        self.installed |= self.table.desired()

    def settle(self) -> None:
        for engine in self.held:
            if self.table.is_reachable(engine):
                self.obey(engine)
        self.write()
        self.now += DRAIN
        for engine in self.held:
            if self.table.is_reachable(engine):
                self.obey(engine)

    def outbound(self) -> EntityValue | None:
        return self.table.desired()[EntityKind.OUTBOUND_SA].get(IN_VRF)

    def inbound(self, spi: int) -> EntityValue | None:
        return self.table.desired()[EntityKind.INBOUND_SA].get(InboundSpi(0, spi))

    def states(self) -> dict[str, SaState]:
        self.table.desired()
        return {f"{one.sa.name} {one.sa.settings.spi:x}": one.state for one in self.table.reports()}

    def grew(self, engine: int, spi: int, **changes: Any) -> None:
        """Changes what an engine reports about an SA."""
        for key, held in self.held[engine].items():
            if held.settings.spi == spi:
                self.held[engine][key] = held._replace(**changes)
        self.up(engine)


def test_nothing_is_in_the_switch_before_its_engine_has_it() -> None:
    world = World()
    world.table.set_wanted([OUT, IN])
    assert world.outbound() is None
    assert world.commands() == []
    world.up(1)
    assert (world.outbound(), world.inbound(0x200)) == (None, None)
    assert world.obey() == [Add(OUT, resume=False), Add(IN, resume=False)]
    assert world.outbound() == Encrypt(1, 1, 1500, OVERHEAD)
    assert world.inbound(0x200) == Decrypt(BRANCH, 1, 0x200)
    assert world.table.desired()[EntityKind.REASSEMBLY_ENGINE] == {0: ReassemblyEngine(1)}
    assert world.states() == {"to 100": SaState.IN_USE, "from 200": SaState.IN_USE}


def test_a_controller_that_restarts_finds_what_the_engine_has() -> None:
    before = World()
    before.table.set_wanted([OUT, IN])
    before.up(1)
    before.obey()
    after = World()
    after.uses, after.table = before.uses, SaTable([before.bundle], [1], before.uses)
    after.held = before.held
    after.table.set_wanted([OUT, IN])
    after.up(1)
    assert after.obey() == []
    assert after.outbound() == Encrypt(1, 1, 1500, OVERHEAD)


def test_a_rekey_is_made_before_the_break() -> None:
    world = World()
    world.table.set_wanted([OUT, IN])
    world.up(1)
    world.settle()
    new = sa("to", 0x101)
    world.table.set_wanted([replace(OUT, is_retiring=True), IN, new])
    assert world.outbound() == Encrypt(1, 1, 1500, OVERHEAD)
    assert world.obey() == [Add(new, resume=False)]
    assert world.outbound() == Encrypt(1, 2, 1500, OVERHEAD)
    assert [one.settings.spi for one in world.table.retired(world.now)] == [0x100]
    world.table.set_wanted([IN, new])
    world.now += 100
    assert world.commands() == [], "the switch still names the old SA"
    world.write()
    assert world.commands() == [], "packets for the old SA may be on their way to the engine"
    world.now += DRAIN
    (deleted,) = world.obey()
    assert isinstance(deleted, Delete)
    assert deleted.held.settings.spi == 0x100
    assert len(world.held[1]) == 2


def test_a_coming_sa_serves_only_where_nothing_else_does() -> None:
    world = World()
    coming = replace(sa("to", 0x101), is_coming=True)
    world.table.set_wanted([OUT, coming])
    world.up(1)
    world.settle()
    assert world.outbound() == Encrypt(1, 1, 1500, OVERHEAD)
    world.table.set_wanted([replace(OUT, is_retiring=True), replace(coming, is_coming=False)])
    assert world.outbound() == Encrypt(1, 2, 1500, OVERHEAD)
    world.table.set_wanted([coming])
    assert world.outbound() == Encrypt(1, 2, 1500, OVERHEAD)


def test_a_retiring_inbound_sa_waits_for_the_peer() -> None:
    world = World()
    new = sa("from", 0x201)
    world.table.set_wanted([replace(IN, is_retiring=True), new])
    world.up(1)
    world.settle()
    assert world.inbound(0x200) is not None
    assert world.inbound(0x201) is not None
    assert world.table.retired(1000) == []
    world.grew(1, 0x201, packets=1)
    assert world.table.retired(1000) == []
    assert world.table.retired(1000 + GRACE)[0].settings.spi == 0x200


def test_a_refused_successor_changes_nothing() -> None:
    world = World()
    world.table.set_wanted([OUT])
    world.up(1)
    world.settle()
    new = sa("to", 0x101)
    world.table.set_wanted([replace(OUT, is_retiring=True), new])
    world.table.refused(new, "the disk is full", world.now)
    assert world.commands() == []
    assert world.states() == {"to 100": SaState.RETIRING, "to 101": SaState.REFUSED}
    assert world.outbound() == Encrypt(1, 1, 1500, OVERHEAD)
    assert world.table.retired(world.now) == []
    world.now += RETRY
    assert world.commands() == [Add(new, resume=False)]


def test_a_deleted_sa_leaves_the_switch_first() -> None:
    world = World()
    world.table.set_wanted([OUT, IN])
    world.up(1)
    world.settle()
    world.table.set_wanted([])
    assert (world.outbound(), world.inbound(0x200)) == (None, None)
    world.now += 100
    assert world.commands() == []
    world.write()
    world.commands()
    world.now += DRAIN
    assert len(world.obey()) == 2
    assert world.held == {1: {}}


def test_what_nobody_wants_is_deleted_while_the_switch_is_not_known() -> None:
    """Checks that an SA that is no longer desired is deleted even if the contents of the switch are
    unknown.

    The deletion need not wait for an unreachable switch, because all it can do is stop packets.
    """
    world = World()
    world.table.set_wanted([OUT])
    world.up(1)
    world.settle()
    world.table.set_wanted([])
    assert world.table.commands(1, None, 10.0) == []
    assert len(world.table.commands(1, None, 10.0 + DRAIN)) == 1


def test_an_engine_that_dies_keeps_its_place_in_the_switch() -> None:
    """Checks that the entries of an unreachable engine stay in the switch.

    Meanwhile the switch drops packets for the engine, and counts them under a reason of its own.
    When the engine is back without its SAs, it gets them again. Outbound SAs are added with
    `resume`.
    """
    world = World()
    world.table.set_wanted([OUT, IN])
    world.up(1)
    world.settle()
    world.table.engine_unreachable(1)
    assert world.outbound() == Encrypt(1, 1, 1500, OVERHEAD)
    assert world.inbound(0x200) == Decrypt(BRANCH, 1, 0x200)
    assert set(world.states().values()) == {SaState.WAITING}
    world.restarted(1)
    assert (world.outbound(), world.inbound(0x200)) == (None, None)
    assert world.obey() == [Add(OUT, resume=True), Add(IN, resume=False)]
    assert world.outbound() == Encrypt(1, 2, 1500, OVERHEAD)


def test_a_bundle_moves_by_another_key_only() -> None:
    world = World(1, 2)
    spare = sa("to-spare", 0x110, engine=2)
    world.table.set_wanted([OUT, IN, spare])
    world.up(1, 2)
    world.settle()
    assert world.outbound() == Encrypt(1, 1, 1500, OVERHEAD)
    assert world.states()["to-spare 110"] is SaState.STANDBY
    world.table.engine_unreachable(1)
    world.settle()
    assert world.outbound() == Encrypt(2, 2, 1500, OVERHEAD)
    assert world.inbound(0x200) == Decrypt(BRANCH, 2, 0x200)
    assert world.states()["to 100"] is SaState.REKEY_NEEDED
    assert all(held.settings.fingerprint != "of 256" for held in world.held[2].values())
    world.restarted(1)
    world.settle()
    assert world.outbound() == Encrypt(1, 3, 1500, OVERHEAD)
    assert world.inbound(0x200) == Decrypt(BRANCH, 2, 0x200), (
        "the inbound SA stays on the engine with its window"
    )


def test_without_another_key_a_bundle_does_not_move() -> None:
    world = World(1, 2)
    world.table.set_wanted([OUT])
    world.up(1, 2)
    world.settle()
    world.table.engine_unreachable(1)
    world.settle()
    assert world.outbound() == Encrypt(1, 1, 1500, OVERHEAD), (
        "the entry stays, and packets drop because the engine is down"
    )
    assert world.states() == {"to 100": SaState.REKEY_NEEDED}
    new = sa("to", 0x101)
    world.table.set_wanted([replace(OUT, is_retiring=True), new])
    world.settle()
    assert world.outbound() == Encrypt(2, 2, 1500, OVERHEAD)


@pytest.mark.parametrize(
    ("hard", "told", "why"),
    [
        ({"bytes": 5000}, {"bytes": 5000}, "its hard limit of 5,000 bytes is reached"),
        ({"packets": 9}, {"packets": 9}, "its hard limit of 9 packets is reached"),
        ({"packets": 9}, {"drops": {"sequence_exhausted": 1}}, "all its sequence numbers are used"),
        ({"seconds": 60}, {}, "its hard limit of 60 seconds is reached"),
        (
            {"bytes": 5000, "packets": 9},
            {"packets": 8},
            "a hard limit is reached (5,000 bytes, 9 packets), or all its sequence numbers are"
            " used",
        ),
    ],
)
def test_an_expired_sa_names_the_limit_that_it_has_reached(
    hard: dict[str, int], told: dict[str, Any], why: str
) -> None:
    world = World()
    limited = replace(OUT, settings=OUT.settings._replace(hard=Lifetime(**hard)))
    world.table.set_wanted([limited])
    world.up(1)
    world.settle()
    world.grew(1, 0x100, **told)
    use = world.uses["of 256"]
    if "seconds" in hard:
        world.clocks = Clocks(100.0)
    else:
        world.uses["of 256"] = use._replace(is_expired=True)
    (report,) = world.table.reports()
    assert (report.state, report.why) == (SaState.EXPIRED, why)


def test_a_hard_limit_ends_it_for_good() -> None:
    world = World()
    world.table.set_wanted([OUT, IN])
    world.up(1)
    world.settle()
    world.grew(1, 0x100, age=LifetimeState.SOFT)
    assert world.table.review_lifetimes() == ([], [], [])
    world.grew(1, 0x100, age=LifetimeState.HARD)
    assert world.table.review_lifetimes() == ([OUT], [], [])
    world.uses["of 256"] = world.uses["of 256"]._replace(is_expired=True)
    assert world.outbound() is None
    assert world.states() == {"to 100": SaState.EXPIRED, "from 200": SaState.IN_USE}
    world.settle()
    world.restarted(1)
    assert world.obey() == [Add(IN, resume=False)], "an expired SA is not added again"


def test_time_and_numbers_end_an_sa_whatever_its_engine_says() -> None:
    world = World()
    timed = sa("to", 0x100, hard=Lifetime(seconds=60))
    world.table.set_wanted([timed, IN])
    world.up(1)
    world.settle()
    world.clocks = Clocks(59.0)
    assert world.table.review_lifetimes() == ([], [], [])
    world.clocks = Clocks(60.0)
    assert world.table.is_expired(timed)
    assert world.table.review_lifetimes() == ([], [timed], [])
    assert world.table.review_lifetimes() == ([], [], []), "the warning is reported once"
    world.grew(1, 0x200, drops={"sequence_exhausted": 1})
    assert world.table.review_lifetimes() == ([IN], [], [])


@pytest.mark.parametrize("wall", [0.0, 1000.0, 1e9])
def test_within_a_boot_the_uptime_counts(wall: float) -> None:
    """Checks that while the machine does not reboot, lifetimes are measured by the uptime and not
    by the wall clock.
    """
    world = World()
    world.clocks = Clocks(1000.0, "boot", 10.0)
    timed = sa("to", 0x100, hard=Lifetime(seconds=60))
    world.table.set_wanted([timed, IN])
    world.up(1)
    world.settle()
    world.clocks = Clocks(wall, "boot", 69.0)
    assert not world.table.is_expired(timed)
    world.clocks = Clocks(wall, "boot", 70.0)
    assert world.table.is_expired(timed)


def test_across_boots_the_wall_clock_counts_and_may_be_put_right() -> None:
    world = World()
    world.clocks = Clocks(1000.0, "boot", 10.0)
    timed = sa("to", 0x100, hard=Lifetime(seconds=60))
    world.table.set_wanted([timed, IN])
    world.up(1)
    world.settle()
    for wall in (10.0, 5000.0):  # a wall clock that was reset, and one that is ahead
        world.clocks = Clocks(wall, "next boot", 1.0)
        assert world.table.review_lifetimes() == ([], [timed], [])
        assert world.outbound() is None
        world.clocks = Clocks(1030.0, "next boot", 2.0)
        assert world.table.review_lifetimes() == ([], [], [timed])
    assert not world.uses["of 256"].is_expired


def test_changed_settings_under_one_spi_wait_until_the_old_one_has_gone() -> None:
    world = World()
    world.table.set_wanted([OUT, IN])
    world.up(1)
    world.settle()
    changed = sa("from", 0x200, esn=True)
    world.table.set_wanted([OUT, changed])
    assert world.inbound(0x200) is None
    assert world.commands() == []
    world.write()
    world.commands()
    world.now += DRAIN
    assert [type(one) for one in world.obey()] == [Delete]
    assert world.obey() == [Add(changed, resume=False)]


def test_an_engine_is_told_no_key_twice() -> None:
    """Checks that an engine gets an SA only if no other SA of the engine has the same key.

    Here the operator has added such an SA by hand. The controller first deletes it.
    """
    world = World()
    foreign = HeldSa(replace_settings(OUT, spi=0x999), 77)
    world.held[1][foreign.key] = foreign
    world.table.set_wanted([OUT])
    world.up(1)
    assert world.commands() == []
    world.now += DRAIN
    assert [type(one) for one in world.obey()] == [Delete]
    assert world.obey() == [Add(OUT, resume=False)]


def replace_settings(one: SecurityAssociation, **changes: Any) -> SaSettings:
    return one.settings._replace(**changes)


def test_after_encryption_only_the_packet_itself_has_to_fit() -> None:
    world = World()
    world.table.set_wanted([OUT])
    world.up(1)
    world.settle()
    before = world.outbound()
    assert isinstance(before, Encrypt)
    assert (before.path_mtu, before.overhead) == (1500, OVERHEAD)
    told = len(world.held[1])
    world.table.set_wanted([replace(OUT, fragmentation=Fragmentation.AFTER)])
    assert world.outbound() == before._replace(path_mtu=0xFFFF, overhead=0)
    assert not world.commands()
    assert len(world.held[1]) == told, "the engine sees the same SA"


def test_a_key_is_of_one_direction_whatever_the_engines() -> None:
    """Checks that an inbound and an outbound SA never have the same key, even on different engines.

    Otherwise this router and its peer would both encrypt with this key, and use the same nonces.
    """
    world = World(1, 2)
    out = sa("to", 0x100, engine=1)
    back = sa("from", 0x200, engine=2)
    back = replace(back, settings=back.settings._replace(fingerprint="of 256"))
    world.table.set_wanted([out, back])
    world.up(1, 2)
    assert world.obey(1) == [Add(out, resume=False)]
    assert world.obey(2) == []
    (report,) = (one for one in world.table.reports() if one.sa == back)
    assert (report.state, report.why) == (
        SaState.WAITING,
        "another SA has the same key: give this SA another key, or delete the other",
    )


def test_a_second_sa_of_an_spi_waits_and_says_for_what() -> None:
    world = World()
    second = replace(IN, name="from another", settings=IN.settings._replace(fingerprint="new"))
    world.table.set_wanted([IN, second])
    world.up(1)
    assert world.obey() == [Add(IN, resume=False)]
    assert world.obey() == []
    (report,) = (one for one in world.table.reports() if one.sa == second)
    assert report.why == (
        "another SA has the same SPI: give this SA another SPI, or delete the other"
    )

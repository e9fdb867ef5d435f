# SPDX-License-Identifier: Apache-2.0
"""Tracks wanted and held security associations (SAs), and plans commands for the engines.

The plan is level-triggered: it follows from the known state alone, not from events. `commands`
returns the commands that the engines need now. `desired` returns the entities that the switch must
hold now. After an interruption, the next pass computes the rest. In every intermediate state,
packets that cannot be protected are dropped. These rules hold:

- Order: an SA is in the switch only while its engine is known to hold the SA. The engine keeps the
  SA for `DRAIN` seconds after the SA has left the switch. An outbound SA replaces its predecessor
  with one write.
- A bundle sends with one outbound SA, which is chosen by these criteria in this order: no engine
  holds the SA's successor yet; the peer knows the SA; the bundle prefers the SA's engine; the SA is
  the newest.
- Nonces: a key that has encrypted on one engine is never used on another engine. If that engine is
  gone, the SA waits and reports that a rekey is needed.
- An inbound SA moves to another engine only when its engine no longer works. On the new engine, it
  gets a new anti-replay window.
- While an engine is unreachable, its SAs stay in the switch, and the switch drops their packets as
  NO_ENGINE.
- An SA that has reached a limit of bytes, packets or sequence numbers stays expired
  (`KeyUse.is_expired`), also across restarts.
- A limit of time is measured by the uptime within one boot, and by the wall clock across boots. The
  wall clock may be wrong, so an expiry by time is never recorded.

Pure; depends on sa_model and entities.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeAlias

from sluice.entities import (
    OF_BUNDLE,
    BundleInVrf,
    Decrypt,
    Encrypt,
    EntityKey,
    EntityKind,
    EntityValue,
    EspSource,
    InboundSpi,
    ReassemblyEngine,
)
from sluice.sa_model import Fragmentation, HeldSa, LifetimeState, SaSettings, SecurityAssociation
from sluice.state.sa_engines import (
    EngineState,
    EntitiesByKind,
    ExclusiveResource,
    exclusive_resources,
    is_key,
    is_referred_to,
)

DRAIN = 3.0
"""Time in seconds for which an engine keeps an SA that left the switch, for packets in flight."""
GRACE = 10.0
"""Time in seconds for which a retiring inbound SA stays after its successor has carried a
packet."""
RETRY = 5.0
"""Time in seconds after which the controller again adds an SA that an engine refused."""
UNLIMITED_PATH_MTU = 0xFFFF
"""Path MTU without a limit: the maximum length of an IP packet, in bytes."""
MAX_COMMANDS = 256
"""Maximum number of commands returned at a time."""


class BundleSpec(NamedTuple):
    """Describes a configured bundle. `engines` lists its engines, the preferred engine first."""

    name: str
    id: int
    vrf: int
    engines: tuple[int, ...]
    path_mtu: int


class Clocks(NamedTuple):
    """Holds the readings of the machine's clocks at one moment.

    `wall` is the wall clock in seconds, which may be set at any time. `uptime` (CLOCK_BOOTTIME) is
    the time in seconds since the boot that `boot` identifies. It cannot be set.
    """

    wall: float
    boot: str = ""
    uptime: float = 0.0

    def age(self, since: Clocks) -> float | None:
        """Returns the seconds since an earlier moment, or None if they are unknown.

        Uses the uptime within one boot, otherwise the wall clock. The result is unknown if the wall
        clock shows a time before the earlier moment.
        """
        if self.boot and self.boot == since.boot:
            return self.uptime - since.uptime
        return self.wall - since.wall if self.wall >= since.wall else None


class KeyUse(NamedTuple):
    """Holds the use of a key: the engine that received the key, the time of this, and whether the
    key's SA has expired."""

    engine: int
    since: Clocks
    is_expired: bool = False


class LifetimeReview(NamedTuple):
    """Holds the SAs whose lifetime has changed since the last review.

    - `used_up`: SAs that have reached a limit that an engine counts. The caller must record their
      expiry on disk.
    - `outlived`: SAs that have reached their limit of time.
    - `restored`: SAs that counted as expired by time but do not any more, because the wall clock
      was wrong and has been set.
    """

    used_up: list[SecurityAssociation]
    outlived: list[SecurityAssociation]
    restored: list[SecurityAssociation]


def _has_ended(held: HeldSa) -> bool:
    """Returns whether an engine reports that an SA can no longer encrypt or decrypt."""
    return held.age is LifetimeState.HARD or bool(held.drops.get("sequence_exhausted"))


class SaId(NamedTuple):
    """Identifies an SA in the router."""

    name: str
    spi: int


class Add(NamedTuple):
    """Adds an SA to an engine. `resume`: the key may have encrypted on this engine before."""

    sa: SecurityAssociation
    resume: bool


class Delete(NamedTuple):
    """Deletes an SA from an engine."""

    held: HeldSa


Command: TypeAlias = Add | Delete


class SaState(Enum):
    """State of an SA as reported to an operator."""

    IN_USE = "in use"
    STANDBY = "standby"
    RETIRING = "retiring"
    EXPIRED = "expired"
    WAITING = "waiting"
    REFUSED = "refused"
    REKEY_NEEDED = "rekey needed"


class SaReport(NamedTuple):
    """Holds an SA and its state. `why` is the reason if the SA is not in use."""

    sa: SecurityAssociation
    state: SaState
    engine: int | None
    held: HeldSa | None
    why: str | None = None


@dataclass(slots=True)
class _Tracked:
    sa: SecurityAssociation
    order: int
    engine: int | None = None
    held: HeldSa | None = None
    refusal: str | None = None
    retry_at: float = 0.0
    successor_used_at: float | None = None


class SaTable:
    """Holds all SAs.

    `engines` are the engines to which the router gives SAs. `uses` is the caller's record of key
    uses, by fingerprint. `path_mtu` returns the path MTU, in bytes, for a bundle whose outbound SA
    has the given settings. `clocks` reads the clocks.
    """

    def __init__(
        self,
        bundles: Iterable[BundleSpec],
        engines: Iterable[int],
        uses: Mapping[str, KeyUse],
        path_mtu: Callable[[BundleSpec, SaSettings], int] = lambda bundle, _: bundle.path_mtu,
        clocks: Callable[[], Clocks] = lambda: Clocks(0.0),
    ) -> None:
        self.bundles = {one.id: one for one in bundles}
        self._engines = {one: EngineState() for one in engines}
        self._uses = uses
        self._path_mtu = path_mtu
        self._clocks = clocks
        self._outlived: set[SaId] = set()
        self._tracked: dict[SaId, _Tracked] = {}
        self._orders = 0
        self._desired: dict[EntityKind, dict[EntityKey, EntityValue]] = {}

    # -- wanted and known SAs

    def set_wanted(self, sas: Sequence[SecurityAssociation]) -> None:
        """Replaces all wanted SAs. An SA that was wanted before keeps its known state."""
        before, self._tracked = self._tracked, {}
        for sa in sas:
            known = before.get(identity(sa))
            if known is None or (known.sa.settings, known.sa.engine) != (sa.settings, sa.engine):
                self._orders += 1
                known = _Tracked(sa, self._orders)
            known.sa = sa
            self._tracked[identity(sa)] = known
        self._assign_engines()

    @property
    def wanted(self) -> list[SecurityAssociation]:
        """All wanted SAs, in order."""
        return [one.sa for one in self._tracked.values()]

    def is_held(self, sa: SecurityAssociation) -> bool:
        """Returns whether an SA is wanted and an engine is known to hold it."""
        tracked = self._tracked.get(identity(sa))
        return tracked is not None and tracked.held is not None

    def engine_holds(self, engine: int, held: Iterable[HeldSa]) -> None:
        """Records that an engine is reachable and holds exactly these SAs."""
        known = self._engines[engine]
        known.reachable = True
        known.replace(held)
        self._assign_engines()

    def engine_unreachable(self, engine: int) -> None:
        """Records that an engine is unreachable. Forgets the SAs that it held."""
        known = self._engines[engine]
        known.reachable = False
        known.replace(())
        self._assign_engines()

    def is_reachable(self, engine: int) -> bool | None:
        """Returns whether an engine is reachable; None while that is unknown."""
        return self._engines[engine].reachable

    def added(self, engine: int, sa: SecurityAssociation, number: int) -> None:
        """Records that an engine has added an SA under this number."""
        held = HeldSa(sa.settings, number)
        self._engines[engine].add(held)
        tracked = self._tracked.get(identity(sa))
        if tracked is not None and tracked.engine == engine:
            tracked.held, tracked.refusal = held, None

    def refused(self, sa: SecurityAssociation, why: str, now: float) -> None:
        """Records that an SA was refused, by its engine or because of its keys. After `RETRY`
        seconds `commands` requests the SA again."""
        tracked = self._tracked.get(identity(sa))
        if tracked is not None:
            tracked.refusal, tracked.retry_at = why, now + RETRY

    def deleted(self, engine: int, held: HeldSa) -> None:
        """Records that an engine has deleted an SA."""
        self._engines[engine].remove(held)
        for tracked in self._tracked.values():
            if tracked.engine == engine and tracked.sa.settings == held.settings:
                tracked.held = None

    # -- assignment to engines, and lifetimes

    def _assign_engines(self) -> None:
        """Assigns each SA to an engine, and finds the SA among those that this engine holds."""
        for tracked in self._tracked.values():
            tracked.engine = self._choose_engine(tracked)
            tracked.held = self._held_by(tracked.sa.settings, tracked.engine)

    def _choose_engine(self, tracked: _Tracked) -> int | None:
        able = self._eligible_engines(tracked.sa)
        if tracked.sa.is_outbound:
            use = self._uses.get(tracked.sa.settings.fingerprint)
            if use is not None:
                return use.engine if use.engine in able else None
            if tracked.held is not None and tracked.engine in able:
                return tracked.engine
        elif tracked.engine in able and self._engines[tracked.engine].reachable:
            return tracked.engine
        holders = [one for one in able if self._held_by(tracked.sa.settings, one) is not None]
        reachable = [one for one in able if self._engines[one].reachable]
        return next(iter(holders + reachable), None)

    def _eligible_engines(self, sa: SecurityAssociation) -> tuple[int, ...]:
        """Returns the engines to which an SA may be assigned."""
        bundle = self.bundles.get(sa.settings.bundle)
        engines = () if bundle is None else bundle.engines
        if sa.engine is not None:
            engines = (sa.engine,) if sa.engine in engines else ()
        return tuple(one for one in engines if one in self._engines)

    def _held_by(self, settings: SaSettings, engine: int | None) -> HeldSa | None:
        if engine is None:
            return None
        return self._engines[engine].by_settings.get(settings)

    def is_expired(self, sa: SecurityAssociation) -> bool:
        """Returns whether an SA has reached a hard limit."""
        return self._is_used_up(sa) or self._has_outlived(sa)

    def why_expired(self, sa: SecurityAssociation) -> str:
        """Returns which hard limit an expired SA has reached, as far as the controller knows."""
        hard, tracked = sa.settings.hard, self._tracked.get(identity(sa))
        held = None if tracked is None else tracked.held
        if held is not None and held.drops.get("sequence_exhausted"):
            return "all its sequence numbers are used"
        if held is not None and hard.bytes is not None and held.bytes >= hard.bytes:
            return f"its hard limit of {hard.bytes:,} bytes is reached"
        if held is not None and hard.packets is not None and held.packets >= hard.packets:
            return f"its hard limit of {hard.packets:,} packets is reached"
        if self._has_outlived(sa):
            limit = f"its hard limit of {hard.seconds:,} seconds"
            use = self._uses[sa.settings.fingerprint]
            known = self._clocks().age(use.since) is not None
            return f"{limit} is reached" if known else f"its age is unknown, so {limit} applies"
        limits = [f"{value:,} {name}" for name, value in hard._asdict().items() if value]
        if not limits:
            return "all its sequence numbers are used"
        return (
            f"a hard limit is reached ({', '.join(limits)}), or all its sequence numbers are used"
        )

    def review_lifetimes(self) -> LifetimeReview:
        """Returns the SAs that have expired since the last review, or no longer count as
        expired."""
        used_up = [
            one.sa
            for one in self._tracked.values()
            if not self._is_used_up(one.sa) and one.held is not None and _has_ended(one.held)
        ]
        before = self._outlived
        self._outlived = {key for key, one in self._tracked.items() if self._has_outlived(one.sa)}
        outlived, restored = self._outlived - before, before - self._outlived
        tracked = self._tracked
        return LifetimeReview(
            used_up,
            [tracked[key].sa for key in tracked if key in outlived],
            [tracked[key].sa for key in tracked if key in restored],
        )

    def _is_used_up(self, sa: SecurityAssociation) -> bool:
        use = self._uses.get(sa.settings.fingerprint)
        return use is not None and use.is_expired

    def _has_outlived(self, sa: SecurityAssociation) -> bool:
        """Returns whether an SA is older than its time limit allows. An unknown age counts as too
        old."""
        use, limit = self._uses.get(sa.settings.fingerprint), sa.settings.hard.seconds
        if use is None or limit is None:
            return False
        age = self._clocks().age(use.since)
        return age is None or age >= limit

    def retired(self, now: float) -> list[SecurityAssociation]:
        """Returns the retiring SAs that are no longer needed. The caller must remove them from the
        wanted SAs."""
        done = []
        for tracked in self._tracked.values():
            if not tracked.sa.is_retiring:
                continue
            successor = self._successor(tracked.sa)
            if successor is None or self.is_expired(tracked.sa):
                done.append(tracked.sa)
            elif tracked.sa.is_outbound:
                if self.state_of(successor.sa) is SaState.IN_USE:
                    done.append(tracked.sa)
            elif successor.held is not None and successor.held.packets:
                if tracked.successor_used_at is None:
                    tracked.successor_used_at = now
                elif now - tracked.successor_used_at >= GRACE:
                    done.append(tracked.sa)
        return done

    def _successor(self, sa: SecurityAssociation) -> _Tracked | None:
        name, direction = sa.name, sa.settings.direction
        for one in self._tracked.values():
            is_other = one.sa.name == name and one.sa.settings.direction is direction
            if is_other and not one.sa.is_retiring:
                return one
        return None

    # -- entities of the switch

    def desired(self) -> dict[EntityKind, dict[EntityKey, EntityValue]]:
        """Returns the entities of all bundles that the switch must hold now."""
        found: dict[EntityKind, dict[EntityKey, EntityValue]] = {
            kind: {}
            for kind in (
                *(EntityKind.ESP_SOURCE, EntityKind.OUTBOUND_SA),
                *(EntityKind.INBOUND_SA, EntityKind.REASSEMBLY_ENGINE),
            )
        }
        outbound: dict[int, list[_Tracked]] = {}
        for tracked in self._tracked.values():
            if tracked.sa.is_outbound:
                outbound.setdefault(tracked.sa.settings.bundle, []).append(tracked)
                self._add_source(tracked.sa.settings, found[EntityKind.ESP_SOURCE])
            else:
                self._add_inbound(tracked, found[EntityKind.INBOUND_SA])
        for bundle, sas in outbound.items():
            self._add_outbound(self.bundles[bundle], sas, found[EntityKind.OUTBOUND_SA])
        self._add_reassembly(found)
        self._desired = found
        return found

    def _add_source(self, settings: SaSettings, entries: dict[EntityKey, EntityValue]) -> None:
        if settings.local is not None:
            entries[EspSource(settings.vrf, settings.bundle, settings.local)] = OF_BUNDLE

    def _add_inbound(self, tracked: _Tracked, entries: dict[EntityKey, EntityValue]) -> None:
        settings = tracked.sa.settings
        if self.is_expired(tracked.sa):
            return
        key = InboundSpi(settings.vrf, settings.spi)
        if tracked.held is not None and tracked.engine is not None:
            entries[key] = Decrypt(settings.bundle, tracked.engine, tracked.held.number)
            return
        before = self._desired.get(EntityKind.INBOUND_SA, {}).get(key)
        if isinstance(before, Decrypt) and self._is_unreachable(before.engine):
            entries[key] = before

    def _is_unreachable(self, engine: int) -> bool:
        return engine in self._engines and self._engines[engine].reachable is False

    def _add_outbound(
        self, bundle: BundleSpec, sas: list[_Tracked], entries: dict[EntityKey, EntityValue]
    ) -> None:
        key = BundleInVrf(bundle.vrf, bundle.id)
        serving = self._serving(bundle, sas)
        if serving is not None and serving.held is not None and serving.engine is not None:
            lengths = self._lengths(bundle, serving.sa)
            entries[key] = Encrypt(serving.engine, serving.held.number, *lengths)
            return
        before = self._desired.get(EntityKind.OUTBOUND_SA, {}).get(key)
        if isinstance(before, Encrypt) and self._is_unreachable(before.engine):
            waiting = [one for one in sas if one.engine == before.engine]
            if any(not self.is_expired(one.sa) for one in waiting):
                entries[key] = before

    def _lengths(self, bundle: BundleSpec, sa: SecurityAssociation) -> tuple[int, int]:
        """Returns the path MTU and overhead for the switch.

        With fragmentation after encryption, the path MTU is unlimited and the overhead is 0: the
        switch need not check the length of the ESP packet.
        """
        if sa.fragmentation is Fragmentation.AFTER:
            return UNLIMITED_PATH_MTU, 0
        return self._path_mtu(bundle, sa.settings), sa.settings.overhead

    def _serving(self, bundle: BundleSpec, sas: Iterable[_Tracked]) -> _Tracked | None:
        able = [one for one in sas if one.held is not None and not self.is_expired(one.sa)]
        return max(able, key=lambda one: self._preference(bundle, one), default=None)

    def _preference(self, bundle: BundleSpec, one: _Tracked) -> tuple[bool, bool, int, int]:
        place = bundle.engines.index(one.engine) if one.engine in bundle.engines else 0
        successor = self._successor(one.sa) if one.sa.is_retiring else None
        is_last = successor is None or successor.held is None
        return is_last, not one.sa.is_coming, -place, one.order

    def _add_reassembly(self, found: dict[EntityKind, dict[EntityKey, EntityValue]]) -> None:
        """Adds the entities that send all fragments of a VRF to the engine with most of the VRF's
        inbound SAs."""
        counts: dict[int, Counter[int]] = {}
        for key, value in found[EntityKind.INBOUND_SA].items():
            if isinstance(key, InboundSpi) and isinstance(value, Decrypt):
                counts.setdefault(key.vrf, Counter())[value.engine] += 1
        for vrf, engines in counts.items():
            best = min(engines, key=lambda engine: (-engines[engine], engine))
            found[EntityKind.REASSEMBLY_ENGINE][vrf] = ReassemblyEngine(best)

    # -- commands to engines

    def commands(self, engine: int, installed: EntitiesByKind | None, now: float) -> list[Command]:
        """Returns the commands that an engine needs now, at most `MAX_COMMANDS`.

        `installed` has the switch's entities. None: they are unknown. Then an SA may be deleted
        while an entry of the switch still refers to it.
        """
        known = self._engines[engine]
        placed = [one for one in self._tracked.values() if one.engine == engine]
        kept = {
            one.held.key for one in placed if one.held is not None and not self.is_expired(one.sa)
        }
        found: list[Command] = []
        for key, held in known.held.items():
            if key in kept:
                known.idle_since.pop(key, None)
            elif self._may_delete(engine, held, installed, now):
                found.append(Delete(held))
        resources_in_use = self._resources_in_use(engine)
        for one in placed:
            if self._may_add(one, resources_in_use, now):
                found.append(Add(one.sa, self._resumes(one.sa)))
                resources_in_use.update(exclusive_resources(one.sa.settings, held=True))
        return found[:MAX_COMMANDS]

    def _resources_in_use(self, engine: int) -> set[ExclusiveResource]:
        """Returns the exclusive resources that a new SA of an engine cannot have.

        These are the SPIs in use on this engine, and the keys in use on any engine. A key must not
        be used in both directions, because both ends would then send with the same nonces.
        """
        found = self._engines[engine].resources_in_use()
        for one in self._engines.values():
            found.update(filter(is_key, one.resources_in_use()))
        return found

    def _may_delete(
        self, engine: int, held: HeldSa, installed: EntitiesByKind | None, now: float
    ) -> bool:
        since = self._engines[engine].idle_since
        if installed is not None and is_referred_to(installed, engine, held):
            since.pop(held.key, None)
            return False
        return now - since.setdefault(held.key, now) >= DRAIN

    def _may_add(
        self, tracked: _Tracked, resources_in_use: Container[ExclusiveResource], now: float
    ) -> bool:
        """Returns whether to add an SA now. The SA must wait while an engine holds another SA that
        excludes it."""
        if tracked.held is not None or self.is_expired(tracked.sa) or now < tracked.retry_at:
            return False
        return not any(
            one in resources_in_use for one in exclusive_resources(tracked.sa.settings, held=False)
        )

    def _resumes(self, sa: SecurityAssociation) -> bool:
        return sa.is_outbound and sa.settings.fingerprint in self._uses

    # -- reports to operators

    def state_of(self, sa: SecurityAssociation) -> SaState:
        """Returns an SA's state; WAITING for an SA that is not wanted."""
        tracked = self._tracked.get(identity(sa))
        return SaState.WAITING if tracked is None else self._state_and_reason(tracked, {})[0]

    def reports(self) -> Iterator[SaReport]:
        """Yields a report on each SA."""
        in_use: dict[int, set[ExclusiveResource]] = {}
        for one in self._tracked.values():
            state, why = self._state_and_reason(one, in_use)
            yield SaReport(one.sa, state, one.engine, one.held, why)

    def _state_and_reason(
        self, one: _Tracked, in_use: dict[int, set[ExclusiveResource]]
    ) -> tuple[SaState, str | None]:
        """Returns an SA's state and the reason for it. `in_use` caches the exclusive resources in
        use per engine."""
        if self.is_expired(one.sa):
            return SaState.EXPIRED, self.why_expired(one.sa)
        if one.held is not None:
            if one.sa.is_retiring:
                return SaState.RETIRING, None
            return (SaState.IN_USE if self._is_in_use(one) else SaState.STANDBY), None
        if (bound := self._why_key_is_bound(one.sa)) is not None:
            return SaState.REKEY_NEEDED, bound
        if one.engine is None:
            able = ", ".join(map(str, self._eligible_engines(one.sa))) or "its bundle has none"
            return SaState.WAITING, f"none of its engines answers: {able}"
        if one.refusal is not None:
            needed = "rekey" in one.refusal
            return (SaState.REKEY_NEEDED if needed else SaState.REFUSED), one.refusal
        if not self._engines[one.engine].reachable:
            return SaState.WAITING, f"engine {one.engine} does not answer"
        if one.engine not in in_use:
            in_use[one.engine] = self._resources_in_use(one.engine)
        wanted = exclusive_resources(one.sa.settings, held=False)
        if taken := in_use[one.engine].intersection(wanted):
            what = "key" if any(map(is_key, taken)) else "SPI"
            return (
                SaState.WAITING,
                f"another SA has the same {what}: give this SA another {what}, or delete the other",
            )
        return SaState.WAITING, f"engine {one.engine} is receiving it"

    def _why_key_is_bound(self, sa: SecurityAssociation) -> str | None:
        """Returns the reason why an SA cannot move to another engine of its bundle, or None.

        The reason is that another engine may repeat nonces with the key.
        """
        use = self._uses.get(sa.settings.fingerprint) if sa.is_outbound else None
        if use is None:
            return None
        able = self._eligible_engines(sa)
        if use.engine in able and self._engines[use.engine].reachable is not False:
            return None
        if use.engine in able and not any(self._engines[one].reachable for one in able):
            return None
        gone = "does not answer" if use.engine in able else "its bundle does not use any more"
        return (
            f"its key has encrypted on engine {use.engine}, which {gone}, and must not encrypt on"
            " another: give it a new key"
        )

    def _is_in_use(self, one: _Tracked) -> bool:
        settings = one.sa.settings
        if not one.sa.is_outbound or one.held is None:
            return one.held is not None
        value = self._desired.get(EntityKind.OUTBOUND_SA, {}).get(
            BundleInVrf(settings.vrf, settings.bundle)
        )
        return isinstance(value, Encrypt) and (value.engine, value.sa) == (
            one.engine,
            one.held.number,
        )


def identity(sa: SecurityAssociation) -> SaId:
    """Returns the key that identifies an SA in the router."""
    return SaId(sa.name, sa.settings.spi)

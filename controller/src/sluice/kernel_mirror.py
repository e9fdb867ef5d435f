# SPDX-License-Identifier: Apache-2.0
"""Mirrors a kernel's policies as rules of an SPD, and its states as SAs.

Reports the usage of the SAs back to the kernel.

  policies   kernel -> XfrmMonitor -> mirror_rules (pure) -> Policy.mirror -> switch
  states     kernel -> XfrmMonitor -> mirror_states (pure) -> Associations -> engines, switch
  usage      engines -> Associations -> usage and expiries -> kernel -> IKE daemon
  acquire    NO_SA, a copy of the packet -> the policy that needs its bundle -> kernel -> IKE

An IKE daemon writes policies and states one by one, so the mirror collects changes for a moment and
applies them together. The daemon's packets to the peer wait until the changes are in force
(`ike_order`). If a kernel's policies cannot be brought into force, the SPD closes: it drops all
packets except ND and IKE, and the mirror tries again.

The kernel passes this module's acquires on to all key managers, like acquires for its own packets.
For its own acquires, the kernel also creates a larval state, which limits their rate. It creates
none for this module's acquires, so this module limits the rate itself.

Depends on policy, inputs, state.kernel_rules and state.kernel_sas.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from sluice.inputs import XfrmInput
from sluice.model import Address, Prefix, PuntedPacket
from sluice.policy.enforcement import MirroredSpd, Policy
from sluice.policy.model import Direction, Selectors
from sluice.policy.start import PolicyError
from sluice.sa_model import LifetimeState
from sluice.state.kernel_rules import MirroredRules, mirror_rules, selector_matches
from sluice.state.kernel_sas import BundleIds, MirroredState, MirroredStates, mirror_states
from sluice.state.sa_table import BundleSpec, SaId, SaReport, identity
from sluice.wire.errors import WireError
from sluice.wire.selectors import selectors
from sluice.xfrm_model import ANY_PORT, KernelSelector, PortMatch, StateKey, Usage

log = logging.getLogger(__name__)

GATHERING = 0.02
"""Time for which changes are collected before they are applied together, in seconds."""
RETRY = 1.0
"""Pause between attempts to bring policies into force, in seconds."""
REPORTING = 2.0
"""Pause between two usage reports of SAs, in seconds."""
TAKEOVER = 2.0
"""Time in seconds after which a new outbound SA replaces an older SA that the kernel still has. If
the kernel deletes the older SA, the new SA replaces it immediately."""
ACQUIRE_INTERVAL = 3.0
"""Minimum time between two acquires for a bundle, in seconds. For a trap policy, the minimum time
applies to each pair of hosts."""
ACQUIRES_PER_SECOND = 100.0
"""Rate of acquires for all bundles together, and their burst."""
MOST_ACQUIRED = 4096
"""Maximum number of remembered acquires. The last acquire of each bundle is remembered; for trap
policies, the last one of each pair of hosts."""
CLOSED = MirroredSpd(dict.fromkeys(Direction, ()), ())
"""Lists without rules: their final discard applies to everything but ND and IKE."""


class BundleDefaults(NamedTuple):
    """Holds the settings of a mirrored SPD's bundles that do not come from the kernel.

    `engines` lists the engines that may hold the SAs, the preferred engine first. `path_mtu` is in
    bytes.
    """

    vrf: int
    engines: tuple[int, ...]
    path_mtu: int


class KernelMirror:
    """Mirrors one kernel's IPsec databases to one SPD. `own` returns this router's addresses in a
    VRF."""

    def __init__(
        self,
        spd: str,
        kernel: XfrmInput,
        defaults: BundleDefaults,
        own: Callable[[int], Iterable[Address]],
        clock: Callable[[], float],
    ) -> None:
        self.spd = spd
        self.kernel = kernel
        self.counters: Counter[str] = Counter()
        self.on_states: Callable[[], None] = lambda: None
        """Callback after each update of `states` and `specs`."""
        self._defaults = defaults
        self._own = own
        self._clock = clock
        self._changed = asyncio.Event()
        self._received = self._carried_out = 0
        """Number of kernel changes received so far, and number of changes carried out so far."""
        self._progress = asyncio.Event()
        self._failure: str | None = None
        # Time of the last acquire, by (bundle, source, destination). For bundles that are not
        # traps, both addresses are empty.
        self._acquired: OrderedDict[tuple[str, Address, Address], float] = OrderedDict()
        self._tokens, self._tokens_at = ACQUIRES_PER_SECOND, clock()
        self.rules: MirroredRules = self._translate()
        """The rules that are in force, or that come into force when the switch connects."""
        # Order: problems of new rules are shown only after the rules are in force. So the problems
        # shown always concern the rules that the switch applies.
        self._rule_problems = self.rules.problems
        self._states = MirroredStates((), ())
        self.specs: tuple[BundleSpec, ...] = ()
        """The bundles, in the form that `Associations` takes."""
        self._since: dict[StateKey, float] = {}
        """Time when each of the kernel's states was first seen."""
        self._reported: dict[SaId, tuple[Usage, LifetimeState]] = {}
        # SAs whose rekey was requested because the kernel itself has sent packets with them.
        self._rekeys: set[StateKey] = set()

    def _translate(self) -> MirroredRules:
        return mirror_rules(self.kernel.policies.values(), self.kernel.defaults)

    @property
    def mirrored(self) -> MirroredSpd:
        """The rules and bundles that the switch enforces."""
        return _in_force(self.rules)

    def problems(self) -> Iterator[str]:
        """Yields one sentence for each problem of the mirror."""
        if self._failure is not None:
            why = self._failure
            yield (
                f"SPD {self.spd} is closed and drops all packets except ND and IKE, since the"
                f" kernel's policies are not in force: {why}"
            )
        elif not self.kernel.synced:
            yield f"SPD {self.spd}: the kernel's policies are being read again"
        for problem in (*self._rule_problems, *self._states.problems):
            yield f"SPD {self.spd}: {problem}"

    # -- the kernel's notifications

    def drain(self) -> bool:
        """Reads the kernel's waiting notifications. It is the `drain` of an `Inlet` and returns
        False, which means that no work is left."""
        if self.kernel.poll():
            self._received += 1
            self._changed.set()
        return False

    async def caught_up(self) -> None:
        """Waits until all changes that were made in the kernel so far are in force, or have
        failed."""
        self.drain()
        heard = self._received
        while self._carried_out < heard:
            self._progress.clear()
            await self._progress.wait()

    async def run(self, policy: Policy) -> None:
        """Applies the kernel's changes to the switch until cancelled."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(GATHERING)
            self._changed.clear()
            heard = self._received
            if self.kernel.is_refused:
                await self._read_again(policy)
            if not self.kernel.synced:
                continue  # the end of the dump will set `_changed` again
            rules = self._translate()
            if _in_force(rules) != self.mirrored or self._failure is not None:
                await self._bring_into_force(policy, rules)
            self.rules = rules  # a rekey may change only the SPI in a policy
            self._rule_problems = rules.problems
            self.mirror_states(policy)
            self._schedule_takeovers()
            self._carried_out = heard
            self._progress.set()

    async def _bring_into_force(self, policy: Policy, rules: MirroredRules) -> None:
        self.rules = rules
        try:
            await policy.mirror(self.spd, self.mirrored)
        except PolicyError as error:
            await self._close(policy, str(error))
            asyncio.get_running_loop().call_later(RETRY, self._changed.set)
        else:
            if self._failure is not None:
                log.info("policy %s: the kernel's policies are in force again", self.spd)
            self._failure = None
            self.counters["policies brought into force"] += 1

    async def _read_again(self, policy: Policy) -> None:
        """Closes the SPD after the kernel refused a dump, and requests a new dump after `RETRY`."""
        await self._close(policy, "the kernel refuses to show them")
        await asyncio.sleep(RETRY)
        self.kernel.read_again()
        self._changed.set()

    async def _close(self, policy: Policy, why: str) -> None:
        """Closes the SPD, because the rules in force may allow more than the kernel's current
        policies."""
        if self._failure is None:
            log.error("policy %s: the kernel's policies are not in force: %s", self.spd, why)
        self._failure = why
        try:
            await policy.mirror(self.spd, CLOSED)
        except PolicyError as error:
            log.error(
                "policy %s: the SPD cannot be closed, its previous rules stay: %s", self.spd, error
            )

    # -- states

    def mirror_states(self, policy: Policy) -> None:
        """Mirrors the kernel's current states again, with this router's current addresses."""
        known = policy.numbers.by_name
        bundles = [one for name, one in self.rules.bundles.items() if name in known]
        self._states = mirror_states(
            self.kernel.states.values(),
            self.rules,
            frozenset(self._own(self._defaults.vrf)),
            BundleIds(known, self._defaults.vrf),
            fresh=self._fresh_states(),
        )
        self._request_rekeys()
        present = {identity(one.association) for one in self._states.states}
        self._reported = {
            key: reported for key, reported in self._reported.items() if key in present
        }
        vrf, engines, path_mtu = self._defaults
        self.specs = tuple(
            BundleSpec(one.name, known[one.name], vrf, engines, path_mtu) for one in bundles
        )
        self.on_states()

    def _request_rekeys(self) -> None:
        """Requests a rekey of each SA with which the kernel itself has sent packets. For this, it
        reports one soft expiry of the SA."""
        used = {state.key: state for state in self._states.used_by_kernel}
        for key in used.keys() - self._rekeys:
            self.counters["SAs that the kernel itself used: rekey requested"] += 1
            self.kernel.expire(used[key], hard=False)
        self._rekeys = set(used)

    def _fresh_states(self) -> dict[StateKey, float]:
        """Returns the states that were first seen less than `TAKEOVER` seconds ago.

        Maps states to the time when they were first seen.
        """
        now = self._clock()
        self._since = {key: self._since.get(key, now) for key in self.kernel.states}
        return {key: since for key, since in self._since.items() if now - since < TAKEOVER}

    def _schedule_takeovers(self) -> None:
        """Schedules `mirror_states` for the time when the oldest fresh state may replace its
        predecessor."""
        fresh = self._fresh_states()
        if fresh:
            remaining = min(fresh.values()) + TAKEOVER - self._clock()
            asyncio.get_running_loop().call_later(remaining, self._changed.set)

    @property
    def states(self) -> tuple[MirroredState, ...]:
        """The mirrored SAs."""
        return self._states.states

    def report(self, reports: Iterable[SaReport]) -> None:
        """Reports usage and expiries of SAs to the kernel.

        The kernel passes an expiry on to the IKE daemon, as if the kernel had detected it.
        """
        mirrored = {identity(one.association): one.state for one in self.states}
        for one in reports:
            key, held = identity(one.sa), one.held
            state = mirrored.get(key)
            if state is None or held is None:
                continue
            known, age = self._reported.get(key, (Usage(), LifetimeState.FRESH))
            used = known.used or (int(time.time()) if held.packets else 0)
            usage = Usage(held.bytes, held.packets, state.usage.added, used)
            if (usage.bytes, usage.packets) != (known.bytes, known.packets):
                self.kernel.report_usage(state, usage)
            if held.age is not age and held.age is not LifetimeState.FRESH:
                self.kernel.expire(state, hard=held.age is LifetimeState.HARD)
            self._reported[key] = usage, held.age

    # -- acquires

    def acquire(self, packet: PuntedPacket, bundle: str, now: float) -> None:
        """Requests an SA for a packet dropped because its bundle has no outbound SA."""
        try:
            flow = flow_of(selectors(packet.frame, is_own=False).selectors)
        except WireError as error:
            self.counters[f"no acquire: {error.name}"] += 1
            return
        # With a trap policy, each pair of hosts needs its own SA. So acquires are limited per pair:
        # an unanswered acquire for one pair does not delay those for other pairs.
        known = self.rules.bundles.get(bundle)
        is_trap = known is not None and bool(known.trap)
        ends = (flow.source.address, flow.destination.address) if is_trap else (b"", b"")
        key = (bundle, *ends)
        if now - self._acquired.get(key, -ACQUIRE_INTERVAL) < ACQUIRE_INTERVAL:
            self.counters["acquires held back"] += 1
            return
        asking = self.rules.policies.get(bundle, ())
        policy = next((one for one in asking if selector_matches(one.selector, flow)), None)
        if policy is None:
            self.counters["no acquire: no policy asks for it"] += 1
        elif self._take_token(now):
            self._acquired[key] = now
            self._acquired.move_to_end(key)
            if len(self._acquired) > MOST_ACQUIRED:
                self._acquired.popitem(last=False)
            self.counters["acquires"] += 1
            self.kernel.acquire(policy, flow)
        else:
            self.counters["acquires held back"] += 1

    def _take_token(self, now: float) -> bool:
        earned = (now - self._tokens_at) * ACQUIRES_PER_SECOND
        self._tokens = min(ACQUIRES_PER_SECOND, self._tokens + earned)
        self._tokens_at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


def _in_force(rules: MirroredRules) -> MirroredSpd:
    """Returns the rules and bundles of mirrored policies, which the switch enforces."""
    return MirroredSpd(rules.rules, tuple(rules.bundles))


def flow_of(packet: Selectors) -> KernelSelector:
    """Returns a selector that matches only this packet's flow, as in the kernel's own acquires."""
    if packet.icmp is not None:
        source, destination = (PortMatch(value, 0xFFFF) for value in divmod(packet.icmp, 256))
    elif packet.mobility_type is not None:
        source, destination = PortMatch(packet.mobility_type, 0xFFFF), PortMatch(0, 0xFFFF)
    else:
        source, destination = (
            ANY_PORT if port is None else PortMatch(port, 0xFFFF)
            for port in (packet.source_port, packet.destination_port)
        )
    return KernelSelector(
        Prefix.host(packet.source),
        Prefix.host(packet.destination),
        packet.protocol or 0,
        source,
        destination,
    )

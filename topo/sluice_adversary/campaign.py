# SPDX-License-Identifier: Apache-2.0
"""Runs rounds of attack: commits random rules, sends random datagrams, checks all captured frames.

Datagrams are sent in batches. Within a batch, the packets of several datagrams are interleaved.
After each batch, one sentinel packet is sent on every path through the router. The batch ends when
all expected packets and the sentinels have arrived. Packets that are missing after a timeout are
lost. Frames that arrive later are still checked.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import permutations
from random import Random

from sluice_testkit.wait import Timeout, wait_until

from . import marks, plan
from .checker import Finding, OutcomeChecker
from .datagrams import DECRYPTED, Datagram, EntryPoint, Shim
from .drafts import Draft
from .network import Arena
from .plan import packed
from .policy import Policy, edited, random_policy
from .reference import Reference
from .shapes import Shapes

ROUND = 1500
"""Number of datagrams for each policy."""
EDITED = 0.6
"""Fraction of the policies that are an edit of the previous policy."""
PATIENCE = 6.0
"""Seconds after which a missing packet counts as lost."""
SENTINELS = 1 << 31
"""The lowest number of a sentinel."""


@dataclass
class Totals:
    """Holds the totals of the campaign up to now."""

    packets: int = 0
    datagrams: int = 0
    rounds: int = 0
    shapes: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    invalidation: Mapping[str, int] = field(default_factory=dict)
    """Effect of the commits on cached flows, as the router reports it."""


class Campaign:
    """Attacks one router. The same seed gives the same rules and datagrams."""

    def __init__(
        self, arena: Arena, seed: int, reference: Callable[[Policy], Reference] = Reference
    ):
        self.random = Random(seed)
        self.checker = OutcomeChecker()
        self.totals = Totals()
        self.policies: list[Policy] = []
        self._arena = arena
        self._make_reference = reference
        self._sentinels = SENTINELS
        self._shapes: Shapes | None = None

    def run(self, packets: int, progress: Callable[["Campaign"], None] = lambda _: None) -> None:
        """Runs rounds until at least `packets` packets were sent. Calls `progress` after each
        batch.
        """
        began = time.monotonic()
        while self.totals.packets < packets:
            self.begin(self._next_policy())
            for _ in range(0, ROUND, self._arena.burst):
                if self.totals.packets < packets:
                    self.batch([self.shapes.next() for _ in range(self._arena.burst)])
                    self.totals.seconds = time.monotonic() - began
                    progress(self)
        self.listen_until_quiet()
        self.totals.invalidation = self._arena.invalidation()

    def _next_policy(self) -> Policy:
        """Returns either a new random policy or a small edit of the last one. After an edit, most
        cached flows stay valid.
        """
        if not self.policies or self.random.random() >= EDITED:
            return random_policy(self.random)
        return edited(self.random, self.policies[-1])

    @property
    def shapes(self) -> Shapes:
        """The generator of datagrams, aimed at the rules in force."""
        assert self._shapes is not None, "no policy was committed yet"
        return self._shapes

    def begin(self, policy: Policy) -> None:
        """Commits a policy. A round of attack with this policy begins."""
        self.listen()
        self._arena.commit(policy)
        self.policies.append(policy)
        if self._shapes is None:
            self._shapes = Shapes(self.random, policy, self._arena.without)
        self._shapes.policy = policy
        self.checker.new_round(self._make_reference(policy))
        self.listen()
        self.totals.rounds += 1

    def batch(self, datagrams: list[Datagram]) -> list[Finding]:
        """Sends datagrams with their packets interleaved. Returns the lost datagrams as
        findings.
        """
        for datagram in datagrams:
            self.checker.sent(datagram)
            self.totals.shapes[datagram.shape] += 1
        self.totals.datagrams += len(datagrams)
        self._send(self._mixed(datagrams))
        self._send_sentinels()
        self.wait()
        return self.checker.give_up()

    def wait(self) -> None:
        """Waits until all expected packets have arrived. Returns after `PATIENCE` seconds in any
        case.
        """
        try:
            wait_until(self._all_arrived, PATIENCE, "datagrams to arrive", interval=0.002)
        except Timeout:
            return
        self.checker.settled()

    def _all_arrived(self) -> bool:
        self.listen()
        return not self.checker.pending

    def listen_until_quiet(self) -> None:
        """Checks captured frames until none has arrived for a second."""
        seen, since = -1, time.monotonic()

        def quiet() -> bool:
            nonlocal seen, since
            self.listen()
            if sum(self.checker.seen.values()) != seen:
                seen, since = sum(self.checker.seen.values()), time.monotonic()
            return time.monotonic() - since > 1.0

        wait_until(quiet, 30, "the network to fall quiet")

    def _mixed(self, datagrams: list[Datagram]) -> list[tuple[str, bytes]]:
        """Returns the frames of all datagrams in random order, with at most eight datagrams
        interleaved.

        The frames of one datagram keep their order.
        """
        waiting = [(one.entry.port, one.frames()) for one in datagrams]
        waiting.reverse()
        open_ones: list[tuple[str, list[bytes]]] = []
        mixed = []
        while waiting or open_ones:
            while waiting and len(open_ones) < 8:
                port, frames = waiting.pop()
                open_ones.append((port, frames[::-1]))
            at = self.random.randrange(len(open_ones))
            port, frames = open_ones[at]
            mixed.append((port, frames.pop()))
            if not frames:
                open_ones.pop(at)
        return mixed

    def _send(self, frames: list[tuple[str, bytes]]) -> None:
        for count, (port, frame) in enumerate(frames):
            self._arena.links[port].send(frame)
            if count % 64 == 63:
                self.listen()
        self.totals.packets += len(frames)

    def _send_sentinels(self) -> None:
        """Sends one sentinel on each path. The first rules of every list let sentinels pass.

        When the sentinels have arrived, all earlier datagrams have passed the router and its
        engine.
        """
        ways = _flows_in_clear()
        if self._arena.peer is not None:
            ways += _flows_by_bundle()
        for entry, source, destination in ways:
            self._sentinels += 1
            sentinel = _sentinel(self._sentinels, entry, source, destination)
            self.checker.sent(sentinel)
            self._arena.links[entry.port].send(sentinel.frames()[0])

    def listen(self) -> None:
        """Checks all frames that are waiting in the captures."""
        for name, listener in self._arena.links.items():
            for frame in listener.heard():
                self.checker.saw(name, frame)
        for listener in self._arena.hosts:
            for frame in listener.heard():
                self.checker.delivered(frame)
        for listener in self._arena.sockets:
            for data in listener.heard():
                self.checker.heard(data)

    def replay(self, finding: Finding) -> bool:
        """Sends the datagram of a finding once more and alone, under the same rules.

        Returns whether the same kind of finding occurs again.
        """
        case = finding.case
        if case is None:
            return False
        policy = self.policies[case.round - 1]
        again = Campaign(self._arena, 0, self._make_reference)
        again.begin(policy)
        again.batch([case.datagram])
        again.listen_until_quiet()
        return any(one.kind == finding.kind for one in again.checker.findings)


FlowEnds = tuple[EntryPoint, bytes, bytes]
"""Entry point, source and destination of a sentinel."""


def _flows_in_clear() -> list[FlowEnds]:
    """Returns the ends of one path in clear from each link to each other link."""
    pairs = permutations(plan.LINKS.values(), 2)
    return [(EntryPoint(one.name), _host(one), _host(two)) for one, two in pairs]


def _flows_by_bundle() -> list[FlowEnds]:
    """Returns the ends of the paths through bundles.

    There are two kinds. Some sentinels enter by a link and are encrypted, one for each bundle. The
    others arrive encrypted, in each bundle and on each link. The engine decrypts such a sentinel,
    then encrypts it again for a bundle of another SPD.
    """
    link, ends = plan.LINKS["a"], [one for one in plan.BUNDLES.values() if one.local is not None]
    ways = [(EntryPoint(link.name), _host(link), _behind(one)) for one in ends]
    for bundle in plan.BUNDLES.values():
        others = [one for one in ends if one.spd != bundle.spd]
        for at, link in enumerate(plan.LINKS.values()):
            entry = EntryPoint(
                plan.ENGINE, Shim(DECRYPTED, bundle.number, ingress_l3_if=link.number)
            )
            ways.append((entry, _behind(bundle), _behind(others[at % len(others)])))
    return ways


def _host(link: plan.Link, bundle: int = 0) -> bytes:
    return packed(link.host(4, plan.SENTINEL_HOST + bundle))


def _behind(bundle: plan.Bundle) -> bytes:
    return _host(plan.BY_SPD[bundle.spd], bundle.number)


def _sentinel(number: int, entry: EntryPoint, source: bytes, destination: bytes) -> Datagram:
    data = marks.fill(number, 32)
    draft = Draft(4, source, destination, plan.SENTINEL_PROTOCOL, data, number & 0xFFFF)
    return Datagram(number, "sentinel", entry, [draft.whole()])

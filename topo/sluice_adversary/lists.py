# SPDX-License-Identifier: Apache-2.0
"""The two ordered lists that a packet meets, and its outcomes (RFC 4301, 5.1, 5.2, 6)."""

from typing import NamedTuple

from . import plan
from .errors import enclosed
from .policy import BYPASS, FINAL, GENERATED, UNKNOWN, Policy, Rule, Seen, Verdict, search
from .wire import Piece, Upper, read_upper


class PacketOutcome(NamedTuple):
    """Where a packet may be seen: ("out", link), ("protect", bundle), ("host", "") to the
    router's own stack, ("decrypt", "") at the engine to be decrypted.
    """

    kind: str
    where: str | int = ""


PacketOutcomes = frozenset[PacketOutcome]
NOTHING: PacketOutcomes = frozenset()
HOST, TO_DECRYPT = PacketOutcome("host"), PacketOutcome("decrypt")


class PacketPath(NamedTuple):
    """Facts shared by all packets of a datagram: addresses, and how it came."""

    source: bytes
    destination: bytes
    version: int
    entry_link: str
    carrier: int

    @property
    def is_local(self) -> bool:
        """Whether it is for the router itself."""
        return plan.is_local(self.destination)


class PolicyQuery(NamedTuple):
    """The input of a lookup in the lists. `quoted`: for an ICMP error, the packet that answers the
    quoted one. `own`: for a later fragment, its own selectors; `seen` has those of its first.
    """

    seen: Seen
    quoted: Seen | None = None
    own: Seen | None = None

    @classmethod
    def about(cls, piece: Piece, upper: Upper, own: Seen | None = None) -> "PolicyQuery":
        """The input for a whole packet, or a first fragment."""
        seen = Seen(piece.source, piece.destination, *upper[:4])
        return cls(seen, enclosed(piece.version, piece, upper), own)

    @classmethod
    def about_later(cls, piece: Piece) -> "PolicyQuery":
        """The input for a later fragment whose first has not been seen."""
        protocol = piece.start if piece.version == 4 else UNKNOWN
        return cls(Seen(piece.source, piece.destination, protocol, UNKNOWN, UNKNOWN, UNKNOWN))


class Lists:
    """The lists of the policy in force."""

    def __init__(self, policy: Policy):
        self._policy = policy

    def is_guarded(self, link: str) -> bool:
        """Whether an SPD guards a link."""
        return self._policy.of_link(plan.LINKS[link]) is not None

    def decide(self, path: PacketPath, query: PolicyQuery) -> PacketOutcomes:
        """The outcomes by inbound list, delivery or routing, and outbound list."""
        if not self._accepted(path, query):
            return NOTHING
        if path.is_local:
            return frozenset({HOST})
        link = plan.route(path.destination)
        link_local = plan.is_link_local(path.source) or plan.is_link_local(path.destination)
        if link is None or link_local or plan.is_group(path.destination):
            return NOTHING
        return self._leaving(link, query)

    def _accepted(self, path: PacketPath, query: PolicyQuery) -> bool:
        """Whether the inbound list accepts it. An error that only the final discard matches is
        judged by its quote, if an SA carried it or the SPD is configured so.
        """
        if path.carrier:
            spd = self._policy.spds[plan.BUNDLES[path.carrier].spd]
        elif (guard := self._policy.of_link(plan.LINKS[path.entry_link])) is not None:
            spd = guard
        else:
            return True
        wanted = Verdict("protect", path.carrier) if path.carrier else BYPASS
        rules = (*(GENERATED["inbound"] if path.is_local else ()), *spd.inbound)
        found = search(rules, query.seen, query.own)
        by_quote = query.quoted is not None and (path.carrier or spd.errors_checked)
        if found == {FINAL} and by_quote and query.quoted is not None:
            found = search(rules, query.quoted)
        return found == {wanted}

    def _leaving(
        self, link: plan.Link, query: PolicyQuery, generated: tuple[Rule, ...] = ()
    ) -> PacketOutcomes:
        """Returns the outbound list's outcomes. A quoted packet leads to protection or nowhere."""
        spd = self._policy.of_link(link)
        if spd is None:
            return frozenset({PacketOutcome("out", link.name)})
        rules = (*generated, *spd.outbound)
        found = search(rules, query.seen, query.own)
        if found == {FINAL} and query.quoted is not None:
            found = search(rules, query.quoted)
            if any(verdict.action != "protect" for verdict in found):
                return NOTHING
        if len(found) != 1:
            return NOTHING
        (verdict,) = found
        return frozenset(_outcomes(verdict, link))

    def own(self, piece: Piece, egress: str | None) -> PacketOutcomes:
        """The permitted outcomes of a packet of the router itself; `egress`: the link it was on.

        Selectors hidden by fragmentation are judged leniently: any verdict of the whole is allowed.
        """
        link = plan.route(piece.destination) if egress is None else plan.LINKS[egress]
        if link is None:
            return NOTHING
        spd, generated = self._policy.of_link(link), GENERATED["outbound"]
        if not piece.offset or spd is None:
            upper = read_upper(piece.version, piece.start, piece.payload)
            return self._leaving(link, PolicyQuery.about(piece, upper), generated)
        possible = search((*generated, *spd.outbound), PolicyQuery.about_later(piece).seen)
        return frozenset(one for verdict in possible for one in _outcomes(verdict, link))


def _outcomes(verdict: Verdict, link: plan.Link) -> set[PacketOutcome]:
    if verdict.action == "bypass":
        return {PacketOutcome("out", link.name)}
    if verdict.action == "protect" and plan.BUNDLES[verdict.bundle].local is not None:
        return {PacketOutcome("protect", verdict.bundle)}
    return set()

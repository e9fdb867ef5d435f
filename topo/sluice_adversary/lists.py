# SPDX-License-Identifier: Apache-2.0
"""Finds the permitted outcomes of a packet by the inbound and the outbound list (RFC 4301, 5.1,
5.2, 6).
"""

from typing import NamedTuple

from . import plan
from .errors import enclosed
from .policy import BYPASS, FINAL, GENERATED, UNKNOWN, Policy, Rule, Seen, Verdict, search
from .wire import Piece, Upper, read_upper


class PacketOutcome(NamedTuple):
    """Describes where a packet is captured, and in which form.

    ("out", link)        in clear on a link
    ("protect", bundle)  at the engine, to be encrypted
    ("decrypt", "")      at the engine, to be decrypted
    ("host", "")         at the router's own host stack
    """

    kind: str
    where: str | int = ""


PacketOutcomes = frozenset[PacketOutcome]
NOTHING: PacketOutcomes = frozenset()
HOST, TO_DECRYPT = PacketOutcome("host"), PacketOutcome("decrypt")


class PacketPath(NamedTuple):
    """Holds what all fragments of a datagram have in common: addresses, IP version, entry link, and
    the bundle that carried it.
    """

    source: bytes
    destination: bytes
    version: int
    entry_link: str
    carrier: int

    @property
    def is_local(self) -> bool:
        """Whether the packet is addressed to the router itself."""
        return plan.is_local(self.destination)


class PolicyQuery(NamedTuple):
    """Holds the selectors for a search of a list.

    `quoted`: for an ICMP error, the selectors that an answer to the quoted packet would have. For a
    later fragment, `seen` holds the selectors of its first fragment, and `own` those of the later
    fragment itself.
    """

    seen: Seen
    quoted: Seen | None = None
    own: Seen | None = None

    @classmethod
    def about(cls, piece: Piece, upper: Upper, own: Seen | None = None) -> "PolicyQuery":
        """Returns the selectors for a whole packet or a first fragment."""
        seen = Seen(piece.source, piece.destination, *upper[:4])
        return cls(seen, enclosed(piece.version, piece, upper), own)

    @classmethod
    def about_later(cls, piece: Piece) -> "PolicyQuery":
        """Returns the selectors for a later fragment whose first fragment is missing."""
        protocol = piece.start if piece.version == 4 else UNKNOWN
        return cls(Seen(piece.source, piece.destination, protocol, UNKNOWN, UNKNOWN, UNKNOWN))


class Lists:
    """Decides about packets by the lists of the policy in force."""

    def __init__(self, policy: Policy):
        self._policy = policy

    def is_guarded(self, link: str) -> bool:
        """Returns whether an SPD guards a link."""
        return self._policy.of_link(plan.LINKS[link]) is not None

    def decide(self, path: PacketPath, query: PolicyQuery) -> PacketOutcomes:
        """Returns the permitted outcomes of a packet that enters the router.

        Searches the inbound list. If it accepts the packet, either delivers the packet to the host,
        or routes it and searches the outbound list.
        """
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
        """Returns whether the inbound list accepts the packet.

        If no rule matches an ICMP error, the packet that it quotes decides, provided that the error
        arrived in an SA or that the SPD has `icmp_errors: checked`.
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
        """Returns the permitted outcomes by the outbound list.

        If no rule matches an ICMP error, the packet that it quotes decides: the error may leave
        only if the verdict of the quoted packet is protect.
        """
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
        """Returns the permitted outcomes of a packet that the router itself has sent.

        `egress` is the link on which it was captured. Without `egress`, the link is that of the
        route.

        A later fragment does not contain all selectors. So every verdict that its datagram could
        get is allowed.
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

# SPDX-License-Identifier: Apache-2.0
"""Decides what a list does with a packet, without any effect (RFC 4301, sections 6 and 7).

`first_packets` carries the decisions out, and `explain` only shows them. So both treat ICMP errors
and fragments alike, although more than the first matching rule decides about these.

An ICMP error (section 6) that no rule matches is treated like a packet of the reverse flow of the
packet that it quotes. But the sender of an error can forge the quote. So an outbound error passes
only if the rule for the reverse flow is PROTECT, and is protected by that rule's bundle. An inbound
error passes only if it came through that bundle, or in clear if the SPD has `icmp_errors: checked`.
All other errors are dropped.

A kernel's default does not count as a rule that matches. If the default is bypass, an error passes
if the packet that it quotes would be bypassed too. Later fragments of an error do not show the
quote. So an error in fragments is dropped if it might quote a packet of a flow that a rule protects
or discards. A redirect, and every other quoting message that routers do not forward, is treated
like an error in fragments.

Depends on policy.model, state.spd and wire.selectors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from sluice.model import Address
from sluice.policy.model import Action, Direction, FragmentClass, Selectors, Verdict
from sluice.state.spd import PolicyList
from sluice.wire.errors import WireError
from sluice.wire.selectors import (
    Quoted,
    SeenPacket,
    is_icmp_error,
    is_neighbor_discovery,
    may_be_icmp_error,
    quoted_packet,
    quotes_a_packet,
)

QUOTE_REFUSED = "icmp_enclosed_flow"
"""Reason in the audit log: policy does not allow the error for the flow that it quotes."""
ERROR_IN_FRAGMENTS = "icmp_error_fragmented"
"""Reason in the audit log: the error is in fragments, and its quote may be of a flow that a rule
protects or discards."""
ERROR_NOT_ROUTED = "icmp_error_of_a_link"
"""Reason in the audit log: a redirect, source quench or unassigned error, whose quote may be of a
flow that a rule protects or discards. No such error is routed."""


class EspSender(NamedTuple):
    """Source address and SPI of the ESP packets of a bundle's outbound SA."""

    address: Address
    spi: int


class Decision(NamedTuple):
    """Holds a list's verdict on one packet.

    - `is_cacheable`: the verdict applies to each packet with the same key in the flow cache.
    - `refused_error`: why an ICMP error is dropped; None for other packets.
    - `is_by_quote`: the verdict follows from the packet that the ICMP error quotes.
    - `is_refused_in_clear`: the ICMP error was dropped because it came in clear.
    """

    verdict: Verdict
    is_cacheable: bool = False
    refused_error: str | None = None
    is_by_quote: bool = False
    is_refused_in_clear: bool = False


class BadQuoteError(WireError):
    """Reports that the packet that an ICMP error quotes cannot be read. The error is dropped."""


class Decisions:
    """Decides about the packets of all lists.

    `is_checked` returns whether an SPD has `icmp_errors: checked`. `is_esp_source` returns whether
    an SA of an SPD sends ESP packets with the given source address and SPI.
    """

    def __init__(
        self, is_checked: Callable[[str], bool], is_esp_source: Callable[[str, EspSender], bool]
    ) -> None:
        self._is_checked = is_checked
        self._is_esp_source = is_esp_source

    # -- whole packets

    def of_packet(
        self, state: PolicyList, frame: bytes, seen: SeenPacket, verdict: Verdict, bundle: int
    ) -> Decision:
        """Decides about an unfragmented packet.

        `verdict` is that of the first rule that matches. `bundle` is the bundle that carried the
        packet; 0 if it came in clear. Raises WireError; BadQuoteError if the quote is bad.
        """
        if is_neighbor_discovery(seen.selectors) and not seen.is_cacheable:
            # The packet has more extension headers than the pipeline parses. So the pipeline did
            # not recognize it as ND, and did not check that the hop limit is 255.
            raise WireError("nd_invalid", 0, "neighbour discovery behind a deep chain")
        if _is_bypassed_by_default(state, verdict) and quotes_a_packet(seen.selectors):
            if not _may_quote_restricted(state, seen.selectors):
                return Decision(verdict)
            if not is_icmp_error(seen.selectors):
                return Decision(state.final(), refused_error=ERROR_NOT_ROUTED)
        if state.is_default(verdict) and is_icmp_error(seen.selectors):
            try:
                quoted = quoted_packet(frame, is_own=seen.selectors.is_own)
            except WireError as error:
                raise BadQuoteError(error.name, error.offset, error.detail) from error
            if quoted is not None:
                return self._of_error(state, quoted, verdict, bundle)
        return Decision(verdict, is_cacheable=True)

    def _of_error(
        self, state: PolicyList, quoted: Quoted, default: Verdict, bundle: int
    ) -> Decision:
        """Decides about an ICMP error that no rule matches (RFC 4301, 6.1 and 6.2).

        `default` is the verdict that the error itself would get: a kernel's default or the final
        discard.
        """
        if quoted.fragment_class is FragmentClass.LATER:
            verdict = state.search_fragment(quoted.selectors, None) or state.final()
        else:
            verdict = state.search(quoted.selectors)
        is_refused_in_clear = False
        if verdict.action is default.action is Action.BYPASS:
            verdict = default
        elif state.direction is Direction.OUTBOUND:
            verdict = verdict if verdict.action is Action.PROTECT else state.final()
        elif bundle:
            is_accepted = verdict.action is Action.PROTECT and verdict.bundle == bundle
            verdict = verdict if is_accepted else state.final()
        else:
            accepted = self._accept_in_clear(state, quoted, verdict)
            is_refused_in_clear = accepted is None
            verdict = accepted or state.final()
        refusal = QUOTE_REFUSED if verdict.action is Action.DISCARD else None
        return Decision(
            verdict,
            refused_error=refusal,
            is_by_quote=True,
            is_refused_in_clear=is_refused_in_clear,
        )

    def _accept_in_clear(
        self, state: PolicyList, quoted: Quoted, verdict: Verdict
    ) -> Verdict | None:
        """Returns the verdict on an inbound ICMP error that came in clear, whose quote may be
        forged. Returns None if the error is refused.

        The error passes only if the SPD has `icmp_errors: checked`, and only in these cases:

        - The list bypasses the reverse flow of the quoted packet.
        - The error is for this router and quotes an ESP packet that an SA of this SPD sent.
        """
        if self._is_checked(state.spd):
            if verdict.action is Action.BYPASS:
                return verdict
            if quoted.spi is not None and quoted.selectors.is_own:
                about = EspSender(quoted.selectors.destination, quoted.spi)
                if self._is_esp_source(state.spd, about):
                    return Verdict(state.final_id, Action.BYPASS, 0)
        return None

    # -- fragments

    @staticmethod
    def of_fragment(state: PolicyList, seen: SeenPacket) -> Decision | None:
        """Decides about a fragment without its datagram. Raises WireError.

        Returns None if the decision needs the first fragment of the datagram (`of_datagram`).
        """
        if is_neighbor_discovery(seen.selectors):
            raise WireError("nd_invalid", 0, "neighbour discovery in fragments (RFC 6980)")
        later = seen.as_later_fragment()
        verdict = state.search_fragment(later, None)
        if verdict is None:
            return None
        is_bypassed = _is_bypassed_by_default(state, verdict)
        if is_bypassed and may_be_icmp_error(later) and _may_quote_restricted(state, later):
            return None  # only the first fragment shows whether this is an error
        if seen.fragment_class is FragmentClass.FIRST:
            verdict = state.search(seen.selectors)
        is_error = is_bypassed and quotes_a_packet(seen.selectors)
        return Decision(verdict, is_cacheable=not is_error)

    @staticmethod
    def of_datagram(state: PolicyList, first: Selectors, later: Selectors | None) -> Decision:
        """Decides about a fragment, given the selectors `first` of its datagram's first fragment.

        `later` has the selectors of a later fragment. It is None for the first fragment itself.
        """
        if later is None:
            verdict = state.search(first)
        else:
            verdict = state.search_fragment(later, first) or state.final()
        if (
            quotes_a_packet(first)
            and _is_bypassed_by_default(state, verdict)
            and _may_quote_restricted(state, first)
        ):
            return Decision(state.final(), refused_error=ERROR_IN_FRAGMENTS)
        return Decision(verdict)


def _is_bypassed_by_default(state: PolicyList, verdict: Verdict) -> bool:
    return verdict.action is Action.BYPASS and state.is_default(verdict)


def _may_quote_restricted(state: PolicyList, error: Selectors) -> bool:
    """Returns whether an ICMP error may quote a packet of a flow that a rule protects or discards.

    An error goes to the sender of the quoted packet, so the rule for the reverse flow accepts the
    error's destination.
    """
    return state.restricts_to(error.destination, is_own=error.is_own)

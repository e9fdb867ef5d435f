# SPDX-License-Identifier: Apache-2.0
"""Builds ICMP errors of a router (RFC 792, 1191, 1812, 4443), if they may be sent.

`error_for` decides whether an error may be sent, and builds it. `RateLimiter` bounds the rate of
errors. This module does no I/O: the caller passes the packet, the time and the source address, and
sends the result. The caller also counts each `IcmpErrorRefusal` by name. Depends on wire.packet.
"""

from __future__ import annotations

from collections.abc import Container
from enum import Enum, StrEnum
from struct import Struct

from sluice.model import Address
from sluice.wire.errors import WireError
from sluice.wire.packet import (
    ICMP,
    ICMPV6,
    IPv4,
    IPv6,
    UpperLayer,
    build_ipv4,
    build_ipv6,
    internet_checksum,
    ip_payload,
    ipv6_upper_layer,
    is_multicast,
    is_valid_source,
    parse_ipv4,
    parse_ipv6,
    pseudo_header,
)

# type, code, checksum, rest of header
ICMP_HEADER = Struct("!BBHI")

# Largest size of an error, in bytes. The error quotes as much of the packet as this size allows
# (RFC 1812, section 4.3.2.3; RFC 4443, 2.4 (c)).
IPV4_ERROR_LIMIT = 576
IPV6_ERROR_LIMIT = 1280
# Type of service of ICMPv4 errors: precedence internetwork control (RFC 1812, section 4.3.2.5).
INTERNETWORK_CONTROL = 0xC0
ERROR_TTL = 64

# ICMPv4 types of errors: destination unreachable, source quench, redirect, time exceeded, parameter
# problem.
ICMPV4_ERRORS = frozenset({3, 4, 5, 11, 12})
ICMPV6_REDIRECT = 137


class IcmpErrorKind(Enum):
    """The ICMP errors that a router sends. Each value holds type and code in ICMP, and type and
    code in ICMPv6."""

    NO_ROUTE = ((3, 0), (1, 0))
    ROUTE_UNREACHABLE = ((3, 1), (1, 0))
    """Sent if the matching route has the type unreachable. Linux sends the same error."""
    NEIGHBOR_UNREACHABLE = ((3, 1), (1, 3))
    PROHIBITED = ((3, 13), (1, 1))
    TOO_BIG = ((3, 4), (2, 0))
    TTL_EXCEEDED = ((11, 0), (3, 0))


class IcmpErrorRefusal(StrEnum):
    """Reasons for not sending an error."""

    MALFORMED = "malformed"
    LINK_MULTICAST = "link_multicast"
    SOURCE = "source_not_answerable"
    DESTINATION_MULTICAST = "destination_multicast"
    DESTINATION_BROADCAST = "destination_broadcast"
    LATER_FRAGMENT = "later_fragment"
    ABOUT_AN_ERROR = "about_an_error"
    RATE_LIMITED = "rate_limited"
    RATE_LIMITED_SOURCE = "rate_limited_source"
    RATE_LIMITED_REJECT = "rate_limited_reject"
    RATE_LIMITED_REJECT_SOURCE = "rate_limited_reject_source"


def error_for(
    frame: bytes,
    kind: IcmpErrorKind,
    answer_from: Address,
    mtu: int = 0,
    broadcasts: Container[Address] = (),
) -> bytes | IcmpErrorRefusal:
    """Returns the ICMP error, as an IP packet, about the IP packet in the Ethernet `frame`.

    `answer_from` is the source of the error: an address of this router, of the packet's address
    family. Only TOO_BIG carries `mtu`. `broadcasts` has the directed broadcast addresses known to
    the router.
    """
    try:
        packet = ip_payload(frame)
        if frame[0] & 1 and not _asks_for_path_mtu(kind, packet):
            return IcmpErrorRefusal.LINK_MULTICAST
        if packet[0] >> 4 == 4:
            return _ipv4_error(packet, kind, answer_from, mtu, broadcasts)
        return _ipv6_error(packet, kind, answer_from, mtu)
    except WireError:
        return IcmpErrorRefusal.MALFORMED


def _asks_for_path_mtu(kind: IcmpErrorKind, packet: bytes) -> bool:
    """Returns whether the error is an IPv6 Packet Too Big.

    This error is also sent about multicast packets (RFC 4443, section 2.4, e.3).
    """
    return kind is IcmpErrorKind.TOO_BIG and packet[0] >> 4 == 6


# --- IPv4 ----------------------------------------------------------------------------------------


def _ipv4_error(
    packet: bytes,
    kind: IcmpErrorKind,
    answer_from: Address,
    mtu: int,
    broadcasts: Container[Address],
) -> bytes | IcmpErrorRefusal:
    header = parse_ipv4(packet)
    refusal = _ipv4_refusal(header, packet, broadcasts)
    if refusal is not None:
        return refusal
    form, code = kind.value[0]
    rest = min(mtu, 0xFFFF) if kind is IcmpErrorKind.TOO_BIG else 0
    quoted = packet[: IPV4_ERROR_LIMIT - 20 - ICMP_HEADER.size]
    checksum = internet_checksum(ICMP_HEADER.pack(form, code, 0, rest) + quoted)
    # RFC 6864: a packet that is never fragmented needs no identification.
    answer = IPv4(
        header_length=20,
        tos=INTERNETWORK_CONTROL,
        total_length=0,
        identification=0,
        dont_fragment=True,
        more_fragments=False,
        fragment_offset=0,
        ttl=ERROR_TTL,
        protocol=ICMP,
        source=answer_from,
        destination=header.source,
        options=b"",
    )
    return build_ipv4(answer, ICMP_HEADER.pack(form, code, checksum, rest) + quoted)


def _ipv4_refusal(
    header: IPv4, packet: bytes, broadcasts: Container[Address]
) -> IcmpErrorRefusal | None:
    """Returns the reason why no error may be sent about an IPv4 packet, or None if one may be sent.

    See RFC 1812, section 4.3.2.7.
    """
    if not is_valid_source(header.source) or header.source in broadcasts:
        return IcmpErrorRefusal.SOURCE
    if is_multicast(header.destination):
        return IcmpErrorRefusal.DESTINATION_MULTICAST
    if header.destination == b"\xff\xff\xff\xff" or header.destination in broadcasts:
        return IcmpErrorRefusal.DESTINATION_BROADCAST
    if header.fragment_offset:
        return IcmpErrorRefusal.LATER_FRAGMENT
    if header.protocol == ICMP:
        message = packet[header.header_length :]
        # If the packet ends before the ICMP type, it counts as an error, because it may be one.
        if not message or message[0] in ICMPV4_ERRORS:
            return IcmpErrorRefusal.ABOUT_AN_ERROR
    return None


# --- IPv6 ----------------------------------------------------------------------------------------


def _ipv6_error(
    packet: bytes, kind: IcmpErrorKind, answer_from: Address, mtu: int
) -> bytes | IcmpErrorRefusal:
    header = parse_ipv6(packet)
    refusal = _ipv6_refusal(header, packet, kind)
    if refusal is not None:
        return refusal
    form, code = kind.value[1]
    rest = mtu if kind is IcmpErrorKind.TOO_BIG else 0
    quoted = packet[: IPV6_ERROR_LIMIT - 40 - ICMP_HEADER.size]
    length = ICMP_HEADER.size + len(quoted)
    checksum = internet_checksum(
        pseudo_header(answer_from, header.source, length, ICMPV6)
        + ICMP_HEADER.pack(form, code, 0, rest)
        + quoted
    )
    answer = IPv6(INTERNETWORK_CONTROL, 0, length, ICMPV6, ERROR_TTL, answer_from, header.source)
    return build_ipv6(answer, ICMP_HEADER.pack(form, code, checksum, rest) + quoted)


def _ipv6_refusal(header: IPv6, packet: bytes, kind: IcmpErrorKind) -> IcmpErrorRefusal | None:
    """Returns the reason why no error may be sent about an IPv6 packet, or None if one may be sent.

    See RFC 4443, section 2.4 (e).
    """
    if not is_valid_source(header.source):
        return IcmpErrorRefusal.SOURCE
    if is_multicast(header.destination) and not _asks_for_path_mtu(kind, packet):
        return IcmpErrorRefusal.DESTINATION_MULTICAST
    upper = _upper_layer_if_whole(packet)
    if upper is None:
        return None
    if upper.protocol == ICMPV6:
        # A later fragment does not contain the ICMP type. It counts as an error, because it may be
        # one.
        message = b"" if upper.fragment_offset else packet[upper.offset :]
        if not message or message[0] < 128 or message[0] == ICMPV6_REDIRECT:
            return IcmpErrorRefusal.ABOUT_AN_ERROR
    return None


def _upper_layer_if_whole(packet: bytes) -> UpperLayer | None:
    """Returns the upper layer, or None if the packet ends within its extension headers (tiny first
    fragment)."""
    try:
        return ipv6_upper_layer(packet)
    except WireError:
        return None


# --- rate ----------------------------------------------------------------------------------------


class TokenBucket:
    """Implements a token bucket of `rate` tokens a second and at most `burst` tokens. The bucket
    starts full."""

    __slots__ = ("_burst", "_rate", "_tokens", "_when")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate, self._burst = rate, burst
        self._tokens, self._when = burst, now

    def _refill(self, now: float) -> None:
        self._tokens = min(self._burst, self._tokens + max(0.0, now - self._when) * self._rate)
        self._when = now

    def has_token(self, now: float) -> bool:
        """Returns whether `take` would succeed."""
        self._refill(now)
        return self._tokens >= 1.0

    def take(self, now: float) -> bool:
        """Takes one token if there is one."""
        if not self.has_token(now):
            return False
        self._tokens -= 1.0
        return True


class RateLimiter:
    """Bounds the errors sent (RFC 1812, section 4.3.2.8; RFC 4443, section 2.4 (f)).

    An error needs a token from two buckets: one bucket for all errors, and one for its destination
    host. (An IPv6 /64 counts as one host.) So the errors to one busy host do not use up the budget
    for all others. At most `max_hosts` host buckets are kept; the oldest one is evicted.
    """

    def __init__(
        self, rate: float, burst: float, host_rate: float, host_burst: float, max_hosts: int = 4096
    ) -> None:
        self._max_hosts = max_hosts
        self.set_rates(rate, burst, host_rate, host_burst)

    def set_rates(self, rate: float, burst: float, host_rate: float, host_burst: float) -> None:
        """Sets the rates, and resets all buckets."""
        self._rate, self._burst = rate, burst
        self._host_rate, self._host_burst = host_rate, host_burst
        self._all: TokenBucket | None = None
        self._hosts: dict[bytes, TokenBucket] = {}

    def refuse(self, destination: Address, now: float) -> IcmpErrorRefusal | None:
        """Returns None if an error may be sent to `destination` now, else the reason.

        If the result is None, the error counts as sent and has used its tokens.
        """
        refusal = self.check(destination, now)
        if refusal is None:
            self.take(destination, now)
        return refusal

    def check(self, destination: Address, now: float) -> IcmpErrorRefusal | None:
        """Returns what `refuse` would return, but takes no token."""
        if not self._of_all(now).has_token(now):
            return IcmpErrorRefusal.RATE_LIMITED
        if not self._host(destination[:8], now).has_token(now):
            return IcmpErrorRefusal.RATE_LIMITED_SOURCE
        return None

    def take(self, destination: Address, now: float) -> None:
        """Takes the tokens of an error that `check` has allowed."""
        self._of_all(now).take(now)
        self._host(destination[:8], now).take(now)

    def _of_all(self, now: float) -> TokenBucket:
        if self._all is None:
            self._all = TokenBucket(self._rate, self._burst, now)
        return self._all

    def _host(self, host: bytes, now: float) -> TokenBucket:
        bucket = self._hosts.get(host)
        if bucket is None:
            if len(self._hosts) >= self._max_hosts:
                del self._hosts[next(iter(self._hosts))]
            bucket = self._hosts[host] = TokenBucket(self._host_rate, self._host_burst, now)
        return bucket

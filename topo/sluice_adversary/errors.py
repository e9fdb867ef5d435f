# SPDX-License-Identifier: Apache-2.0
"""Finds the packets that ICMP errors quote (RFC 4301, section 6). Pure."""

from .policy import UNKNOWN, Seen
from .wire import ICMP_ERRORS, ICMP_PROTOCOL, Piece, Upper, read_piece, read_upper


def is_error(version: int, upper: Upper) -> bool:
    """Returns whether a packet is an ICMP error. Such an error quotes a packet and is sent to its
    source.
    """
    if upper.protocol != ICMP_PROTOCOL[version] or upper.icmp is None:
        return False
    return upper.icmp >> 8 in ICMP_ERRORS[version]


def enclosed(version: int, piece: Piece | None, upper: Upper | None) -> Seen | None:
    """Returns the selectors that an answer to the quoted packet would have.

    Returns None if the packet is no ICMP error, if it quotes nothing usable, or if its destination
    is not the quoted packet's source (RFC 4301, section 6).
    """
    if piece is None or upper is None or not is_error(version, upper):
        return None
    quote = piece.payload[upper.offset + 8 :]
    about = read_piece(lengthened(quote))
    if about is None or about.version != version or about.source != piece.destination:
        return None
    about_upper = read_upper(version, about.start, about.payload)
    if about.broken or about.source_routed or about_upper.source_routed:
        return None
    if about.segments_left or about_upper.segments_left:
        return None
    if about.offset:
        protocol = about.start if version == 4 else UNKNOWN
        return Seen(about.destination, about.source, protocol, UNKNOWN, UNKNOWN, UNKNOWN)
    if about_upper.broken:
        return None
    return Seen(about.source, about.destination, *about_upper[:4]).reversed()


def quotes_later_fragment(piece: Piece, upper: Upper) -> bool:
    """Returns whether an ICMP error quotes a later fragment, which has no ports."""
    about = read_piece(lengthened(piece.payload[upper.offset + 8 :]))
    return about is not None and about.offset > 0


def lengthened(quote: bytes) -> bytes:
    """Returns a quote whose length field is reduced to the bytes that are there, since a quote may
    be truncated.
    """
    if len(quote) >= 20 and quote[0] >> 4 == 4:
        length = min(len(quote), int.from_bytes(quote[2:4], "big"))
        return quote[:2] + length.to_bytes(2, "big") + quote[4:]
    if len(quote) >= 40 and quote[0] >> 4 == 6:
        length = min(len(quote) - 40, int.from_bytes(quote[4:6], "big"))
        return quote[:4] + length.to_bytes(2, "big") + quote[6:]
    return quote

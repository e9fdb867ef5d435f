# SPDX-License-Identifier: Apache-2.0
"""Reads one frame of a pcap file, as tcpdump writes it."""

from __future__ import annotations

import struct
from pathlib import Path

_BYTE_ORDERS = {
    b"\xd4\xc3\xb2\xa1": "<",
    b"\xa1\xb2\xc3\xd4": ">",
    b"\x4d\x3c\xb2\xa1": "<",  # with nanoseconds
    b"\xa1\xb2\x3c\x4d": ">",
}
_PCAPNG = b"\x0a\x0d\x0d\x0a"
_HEADER_BYTES, _RECORD_BYTES = 24, 16
_ETHERNET = 1
_LINK_TYPE = 0x0FFFFFFF  # the upper bits describe a frame check sequence


class PcapError(Exception):
    """Raised when a frame cannot be read from a file. The text has the reason."""


def read_frame(path: Path, number: int) -> bytes:
    """Returns frame `number` of a file, counted from 1. Raises PcapError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise PcapError(f"{path}: {error.strerror}") from error
    if data[:4] == _PCAPNG:
        raise PcapError(f"{path}: is pcapng; convert it: editcap -F pcap {path} NEW")
    order = _BYTE_ORDERS.get(data[:4])
    if order is None or len(data) < _HEADER_BYTES:
        raise PcapError(f"{path}: is no pcap file")
    (link_type,) = struct.unpack_from(f"{order}I", data, 20)
    if link_type & _LINK_TYPE != _ETHERNET:
        raise PcapError(f"{path}: has no Ethernet frames, but link type {link_type & _LINK_TYPE}")
    at, count = _HEADER_BYTES, 0
    while at + _RECORD_BYTES <= len(data):
        captured, length = struct.unpack_from(f"{order}II", data, at + 8)
        at += _RECORD_BYTES
        count += 1
        if at + captured > len(data):
            raise PcapError(f"{path}: ends in the middle of packet {count}")
        if count == number:
            if captured < length:
                raise PcapError(
                    f"{path}: packet {count} was cut to {captured} of {length} bytes; capture with"
                    " `tcpdump -s 0`"
                )
            return data[at : at + captured]
        at += captured
    raise PcapError(f"{path}: has {count} packets, no packet {number}")

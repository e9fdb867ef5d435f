# SPDX-License-Identifier: Apache-2.0
"""Builds UDP frames by the million, and reads and writes pcap files."""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ETHERNET = 14
IPV4 = 20
UDP = 8
_PCAP_HEADER = struct.pack("<IHHiIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1)


@dataclass(frozen=True)
class Flow:
    """Holds the key of a flow: addresses and ports as numbers."""

    source: int
    destination: int
    source_port: int
    destination_port: int


def udp(flow: Flow, macs: bytes, size: int) -> bytes:
    """Returns a frame of `size` bytes, not counting the frame check sequence. `macs`: destination,
    source.
    """
    total = size - ETHERNET
    sum_of_words = 0x4500 + total + 0x4000 + 0x4011
    for address in (flow.source, flow.destination):
        sum_of_words += (address >> 16) + (address & 0xFFFF)
    folded = (sum_of_words & 0xFFFF) + (sum_of_words >> 16)
    folded = (folded & 0xFFFF) + (folded >> 16)
    header = struct.pack(
        "!12sHBBHHHBBHIIHHHH",
        macs,
        0x0800,
        0x45,
        0,
        total,
        0,
        0x4000,
        64,
        17,
        folded ^ 0xFFFF,
        flow.source,
        flow.destination,
        flow.source_port,
        flow.destination_port,
        total - IPV4,
        0,
    )
    return header.ljust(size, b"\0")


def write_pcap(path: Path, frames: Iterable[bytes]) -> None:
    """Writes frames to a pcap file, with time stamp 0."""
    with path.open("wb") as file:
        file.write(_PCAP_HEADER)
        for frame in frames:
            file.write(struct.pack("<IIII", 0, 0, len(frame), len(frame)) + frame)


def read_pcap(path: Path) -> list[bytes]:
    """Returns the frames of a file that `write_pcap` has written."""
    data = path.read_bytes()
    frames, at = [], len(_PCAP_HEADER)
    while at < len(data):
        (length,) = struct.unpack_from("<I", data, at + 8)
        frames.append(data[at + 16 : at + 16 + length])
        at += 16 + length
    return frames

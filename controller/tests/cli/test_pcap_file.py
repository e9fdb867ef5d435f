# SPDX-License-Identifier: Apache-2.0
"""Tests reading one frame of a pcap file."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from sluice.cli.pcap_file import PcapError, read_frame

FRAMES = [b"first", b"the second"]


def pcap(order: str = "<", magic: int = 0xA1B2C3D4, link: int = 1, cut: int = 0) -> bytes:
    data = struct.pack(f"{order}IHHiIII", magic, 2, 4, 0, 0, 65535, link)
    for frame in FRAMES:
        data += struct.pack(f"{order}IIII", 1, 2, len(frame), len(frame) + cut) + frame
    return data


@pytest.mark.parametrize("order", ["<", ">"])
@pytest.mark.parametrize("magic", [0xA1B2C3D4, 0xA1B23C4D])
def test_frames_are_counted_from_1(tmp_path: Path, order: str, magic: int) -> None:
    path = tmp_path / "some.pcap"
    path.write_bytes(pcap(order, magic))
    assert [read_frame(path, number) for number in (1, 2)] == FRAMES


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no pcap file"),
        (pcap()[:20], "is no pcap file"),
        (b"\x0a\x0d\x0d\x0a" + bytes(40), "is pcapng; convert it: editcap"),
        (pcap(link=113), "has no Ethernet frames, but link type 113"),
        (pcap(cut=1), "packet 2 was cut to 10 of 11 bytes"),
        (pcap()[:-1], "ends in the middle of packet 2"),
        (pcap()[:45], "has 1 packets, no packet 2"),
    ],
)
def test_what_is_wrong_with_a_file_is_named(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "some.pcap"
    path.write_bytes(data)
    with pytest.raises(PcapError, match=said):
        read_frame(path, 2)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(PcapError, match=r"absent\.pcap: No such file"):
        read_frame(tmp_path / "absent.pcap", 1)

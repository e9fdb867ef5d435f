# SPDX-License-Identifier: Apache-2.0
"""Tests pcap streams: written frames are read back, also from a file that is still growing."""

import os
from pathlib import Path

from sluice_conformance.pipes import InputPipe, frames


def test_what_goes_into_a_pipe(tmp_path: Path) -> None:
    pipe = InputPipe(tmp_path / "in.pcap")
    pipe.write(1_000_002, b"abc")
    assert not pipe.taken()
    reader = os.open(tmp_path / "in.pcap", os.O_RDONLY)
    data = os.read(reader, 100)
    assert pipe.taken()
    pipe.close()
    assert os.read(reader, 1) == b""
    os.close(reader)
    out = tmp_path / "out.pcap"
    out.write_bytes(data)
    assert frames(out) == [b"abc"]
    out.write_bytes(data + data[24:-1])
    assert frames(out) == [b"abc"]
    out.write_bytes(data + data[24:])
    assert frames(out) == [b"abc", b"abc"]


def test_a_file_that_is_not_there_yet(tmp_path: Path) -> None:
    assert frames(tmp_path / "none.pcap") == []
    (tmp_path / "short.pcap").write_bytes(b"\xd4\xc3")
    assert frames(tmp_path / "short.pcap") == []

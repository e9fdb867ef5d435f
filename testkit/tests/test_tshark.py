# SPDX-License-Identifier: Apache-2.0
"""Tests that each line of tshark's output is parsed into one ESP packet."""

from pathlib import Path
from subprocess import CompletedProcess

import pytest

from sluice_testkit import tshark


def test_the_first_esp_header_is_the_packets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Checks that the packet gets the SPI and sequence number of the first ESP header.

    A packet decrypted with a wrong key may seem to have two ESP headers.
    """
    line = "0x00001002,0x3ca0f94c|10,601341938|0,0|10.0.12.1|10.0.20.1|||\n"
    monkeypatch.setattr(tshark, "_tshark", lambda words: CompletedProcess(words, 0, line, ""))
    sa = tshark.EspSa("10.0.12.1", "10.0.20.1", 0x1002, "aes-128-gcm")
    (packet,) = tshark.esp_packets(Path("capture.pcap"), [sa])
    assert packet == tshark.EspPacket(0x1002, 10, False, None, b"")

# SPDX-License-Identifier: Apache-2.0
"""Tests the encoding of eBPF instructions."""

from __future__ import annotations

import pytest

from sluice.wire import bpf
from sluice.wire.bpf import R0, R1, R2, R10, Program


def test_instructions() -> None:
    made = Program()
    made.load_map(R1, 7)
    made.store_value(R10, -4, 5)
    made.load(bpf.LOAD_WORD, R2, R1, 40)
    made.set(R0, 0xFFFFFFFF)
    made.leave()
    assert made.code() == bytes.fromhex(
        "1811000007000000 0000000000000000 620afcff05000000 6112280000000000"
        "b7000000ffffffff 9500000000000000"
    )


def test_jumps_count_from_the_next_instruction() -> None:
    made = Program()
    made.label("start")
    made.jump_if(R0, 1, "end")
    made.jump("start")
    made.label("end")
    made.leave(2)
    code = made.code()
    assert [code[at + 2 : at + 4] for at in (0, 8)] == [b"\x01\x00", b"\xfe\xff"]


def test_missing_label_is_an_error() -> None:
    made = Program()
    made.jump("nowhere")
    with pytest.raises(KeyError):
        made.code()

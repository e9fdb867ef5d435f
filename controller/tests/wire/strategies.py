# SPDX-License-Identifier: Apache-2.0
"""Provides strategies of damaged bytes for property tests of codecs."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy


def damaged(samples: list[bytes]) -> SearchStrategy[bytes]:
    """Returns a strategy of samples with some bytes overwritten, cut off or inserted."""

    @st.composite
    def build(draw: st.DrawFn) -> bytes:
        data = bytearray(draw(st.sampled_from(samples)))
        for _ in range(draw(st.integers(0, 4))):
            if data:
                data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        where = draw(st.integers(0, len(data)))
        match draw(st.sampled_from(["keep", "cut", "insert"])):
            case "cut":
                del data[where:]
            case "insert":
                data[where:where] = draw(st.binary(max_size=9))
        return bytes(data)

    return build()

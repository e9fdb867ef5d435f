# SPDX-License-Identifier: Apache-2.0
"""Tests the error that all decoders raise: it has a name for counters and a text for people."""

from __future__ import annotations

import pytest

from sluice.wire.errors import WireError


def test_its_text_has_name_position_and_detail() -> None:
    error = WireError("netlink_length", 16, "message length 3")
    assert str(error) == "netlink_length at byte 16: message length 3"
    assert (error.name, error.offset, error.detail) == ("netlink_length", 16, "message length 3")


def test_it_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="at byte 0"):
        raise WireError("name", 0, "detail")

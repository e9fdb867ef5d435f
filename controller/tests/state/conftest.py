# SPDX-License-Identifier: Apache-2.0
"""Provides the fixture `wanted`: the forwarding state with which most of these tests start."""

from __future__ import annotations

import pytest

from scenes import (
    Desired,
    address,
    link,
)


@pytest.fixture
def wanted() -> Desired:
    desired = Desired()
    for n in (1, 2, 3):
        desired.apply(link(n), address(n, f"10.0.{n}.1/24"), address(n, f"2001:db8:{n}::1/64"))
    return desired

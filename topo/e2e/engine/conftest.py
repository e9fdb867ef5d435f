# SPDX-License-Identifier: Apache-2.0
"""Starts this package's network once. Checks the captures after each test."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.pytest_plugin import open_lab
from sluice_testkit.target import target_name

from ..protected.network import WIRES
from .network import LinkCaptures, Protected, running


@pytest.fixture(scope="package", params=["beside", "inside"])
def protected(request: pytest.FixtureRequest) -> Iterator[Protected]:
    """Yields one network after the other: the first with `sluice-esp` on an interface, the second
    with the engine inside the switch.
    """
    inside = request.param == "inside"
    if inside and target_name() != "sluice-switch":
        pytest.skip("an engine inside is sluice-switch's")
    with contextmanager(open_lab)() as lab, running(lab, inside) as protected:
        yield protected


@pytest.fixture(autouse=True)
def wires(protected: Protected) -> Iterator[LinkCaptures]:
    with ExitStack() as stack:
        captures = {
            interface: stack.enter_context(Capture(protected.between, interface))
            for interface in WIRES.values()
        }
        wires = LinkCaptures(captures)
        yield wires
        wires.check()

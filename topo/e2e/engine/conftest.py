# SPDX-License-Identifier: Apache-2.0
"""The network of this package, started once, and captures that judge after each test."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab
from sluice_testkit.pytest_plugin import open_lab

from ..protected.network import WIRES
from .network import Protected, Wires, running


@pytest.fixture(scope="package")
def package_lab() -> Iterator[Lab]:
    yield from open_lab()


@pytest.fixture(scope="package")
def protected(package_lab: Lab) -> Iterator[Protected]:
    with running(package_lab) as protected:
        yield protected


@pytest.fixture(autouse=True)
def wires(protected: Protected) -> Iterator[Wires]:
    with ExitStack() as stack:
        captures = {
            interface: stack.enter_context(Capture(protected.between, interface))
            for interface in WIRES.values()
        }
        wires = Wires(captures)
        yield wires
        wires.check()

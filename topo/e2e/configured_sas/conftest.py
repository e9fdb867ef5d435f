# SPDX-License-Identifier: Apache-2.0
"""Starts this package's network once. Checks the captures after each test."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab
from sluice_testkit.pytest_plugin import open_lab

from ..engine.network import LinkCaptures
from ..protected.network import WIRES
from .network import Sites, running


@pytest.fixture(scope="package")
def package_lab() -> Iterator[Lab]:
    yield from open_lab()


@pytest.fixture(scope="package")
def sites(package_lab: Lab) -> Iterator[Sites]:
    with running(package_lab) as sites:
        yield sites


@pytest.fixture(autouse=True)
def wires(sites: Sites) -> Iterator[LinkCaptures]:
    with ExitStack() as stack:
        captures = {
            interface: stack.enter_context(Capture(sites.between, interface))
            for interface in WIRES.values()
        }
        wires = LinkCaptures(captures)
        yield wires
        wires.check()

# SPDX-License-Identifier: Apache-2.0
"""Starts this package's network once. Checks the captures after each test."""

from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.pytest_plugin import open_lab

from .monitor import LeakMonitor, monitored
from .network import ProtectedNetwork, running


@pytest.fixture(scope="package")
def package_lab() -> Iterator[Lab]:
    yield from open_lab()


@pytest.fixture(scope="package")
def walks(package_lab: Lab) -> Iterator[ProtectedNetwork]:
    with running(package_lab) as walks:
        yield walks


@pytest.fixture(autouse=True)
def monitor(walks: ProtectedNetwork) -> Iterator[LeakMonitor]:
    with monitored(walks) as monitor:
        yield monitor

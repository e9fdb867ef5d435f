# SPDX-License-Identifier: Apache-2.0
"""Starts this package's network once. After each test, removes all IPsec policies and SAs from the
kernels.
"""

from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.pytest_plugin import open_lab

from .network import Interop


@pytest.fixture(scope="package")
def package_lab() -> Iterator[Lab]:
    yield from open_lab()


@pytest.fixture(scope="package")
def started(package_lab: Lab) -> Interop:
    network = Interop(package_lab)
    network.start()
    return network


@pytest.fixture
def network(started: Interop) -> Iterator[Interop]:
    """Yields the network. When a test begins, the kernels have no IPsec policies and SAs."""
    yield started
    started.flush()

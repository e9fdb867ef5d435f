# SPDX-License-Identifier: Apache-2.0
"""Starts this package's network once for each module."""

from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab

from .network import OneRouter


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> OneRouter:
    network = OneRouter(module_lab)
    network.start()
    return network


@pytest.fixture
def network(started: OneRouter) -> Iterator[OneRouter]:
    """Yields the network. When a test begins, all SPDs let everything pass."""
    yield started
    started.restore()

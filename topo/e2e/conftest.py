# SPDX-License-Identifier: Apache-2.0
"""Provides fixtures for the end-to-end tests. The variable TARGET selects the switch."""

import os
from collections.abc import Iterator

import pytest

from sluice_testkit.namespaces import Lab
from sluice_topo.description import two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import wait_for_legs


@pytest.fixture(scope="session", autouse=True)
def root() -> None:
    """Ends the test run before the first test if it does not run as root."""
    if os.geteuid() != 0:
        pytest.exit("the end-to-end tests need root (network namespaces)", returncode=2)


@pytest.fixture(scope="module")
def started(module_lab: Lab) -> Network:
    """Starts the two-site network. Returns when BGP is up and the switches have all routes."""
    network = build_in_lab(two_sites(), module_lab, os.environ.get("TARGET"))
    network.start()
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    return network


@pytest.fixture
def network(started: Network) -> Iterator[Network]:
    """Yields the two-site network. After each test, BGP and the equal-cost routes must be up
    again.
    """
    yield started
    started.wait_for_bgp()
    wait_for_legs(started, 2)

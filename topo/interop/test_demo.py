# SPDX-License-Identifier: Apache-2.0
"""Tests the demo's part about IKE, which needs a kernel with ESP.

The earlier parts are not tested here: they measure losses during restarts, and an emulated machine
is too slow for that.
"""

import pytest

from sluice_testkit.namespaces import Lab
from sluice_testkit.strongswan import is_installed
from sluice_testkit.target import target_name
from sluice_topo import ike_demo
from sluice_topo.demo_printer import DemoPrinter
from sluice_topo.description import two_sites
from sluice_topo.esp_sites import attach_engines
from sluice_topo.network import build_in_lab
from sluice_topo.routing_demo import wait_for_legs

from .network import needs_esp

pytestmark = [
    needs_esp,
    pytest.mark.skipif(not is_installed(), reason="strongSwan is not installed"),
]


def test_the_demo_negotiates(lab: Lab) -> None:
    network = build_in_lab(two_sites(), lab, target_name())
    sites = attach_engines(network, lab)
    assert sites is not None
    network.start()
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    assert ike_demo.can_run(sites)
    lines: list[str] = []

    def write(text: str) -> None:
        print(text)  # pytest shows it if the test fails
        lines.append(text)

    ike_demo.run(sites, DemoPrinter(write))
    told = "\n".join(lines)
    assert "two rekeys: packets lost: 0 of" in told
    assert "after expiry: in clear on the links: 0" in told

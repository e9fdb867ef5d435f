# SPDX-License-Identifier: Apache-2.0
"""Tests IPsec policy for transit packets: searches for first packets, cached flows, and rules that
change.

On r1, the SPD `wan` guards the links to the transit routers. It lets BGP and ICMP pass, and
discards UDP to one port. Captures on the hosts check the results.
"""

import os
from pathlib import Path
from typing import Any

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab
from sluice_testkit.packet import ICMP
from sluice_testkit.wait import wait_until
from sluice_topo import probes
from sluice_topo.description import two_sites
from sluice_topo.network import Network, build_in_lab
from sluice_topo.routing_demo import wait_for_legs

NOTHING_PROTECTED = [{"name": "everything", "action": "bypass"}]
NO_PING = "- {name: no-ping, action: discard, protocol: icmp, icmp: [8]}"


def guarded(router: str, config: dict[str, Any]) -> dict[str, Any]:
    """Returns a router's configuration. For r1, it binds the SPD `wan` to the links to the transit
    routers.
    """
    if router == "r1":
        config["spds"] = [
            {
                "name": "wan",
                "mode": "cache",
                "flow_cache": {"size": 1000, "idle_timeout": 60},
                "inbound": NOTHING_PROTECTED,
                "outbound": NOTHING_PROTECTED,
            }
        ]
        for interface in config["interfaces"]:
            interface["spd"] = "none" if interface["name"] == "eth1" else "wan"
    return config


@pytest.fixture(scope="module")
def network(module_lab: Lab) -> Network:
    network = build_in_lab(two_sites(), module_lab, os.environ.get("TARGET"), edit=guarded)
    network.start()
    network.wait_for_bgp()
    wait_for_legs(network, 2)
    return network


def spd_file(tmp_path: Path, *first: str) -> str:
    """Writes the SPD `wan` to a file. Its outbound list begins with the rules in `first`.

    Returns the path of the file.
    """
    everything = "- {name: everything, action: bypass}"
    lines = ["spd: wan", "inbound:", everything, "outbound:", *first, everything]
    path = tmp_path / "wan.yaml"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def sluice(network: Network, *words: str) -> str:
    """Runs the `sluice` command for r1 and returns its output."""
    controller = network.p4_router("r1").controller
    return controller.command(*words, "--socket", str(controller.socket))


def rule(network: Network, name: str) -> dict[str, Any]:
    """Returns an outbound rule of r1, as in `sluice show spd`."""
    lists = network.p4_router("r1").controller.show("spd")
    (found,) = [
        rule
        for one in lists
        if one["direction"] == "outbound"
        for rule in one["rules"]
        if rule["name"] == name
    ]
    return dict(found)


def test_bgp_comes_up_through_an_spd(network: Network) -> None:
    assert rule(network, "everything")["searched"] > 0


@pytest.mark.parametrize("version", [4, 6])
def test_the_first_packet_is_searched_and_the_rest_hit(network: Network, version: int) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    router = network.p4_router("r1").controller
    sluice(network, "flow-cache", "clear")
    before = rule(network, "everything")["hits"]
    assert probes.ping(h1.namespace, h2.address(version), count=10).lost == 0
    assert rule(network, "everything")["hits"] - before >= 5
    shown = [f for f in router.show("flows")["flows"] if f["destination"] == h2.address(version)]
    assert any(flow["icmp"] and not flow["stale"] for flow in shown)


def test_a_rule_takes_effect_on_running_flows_and_is_cached(
    network: Network, tmp_path: Path
) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    assert probes.ping(h1.namespace, h2.address(4), count=2).lost == 0
    sluice(network, "spd", "commit", spd_file(tmp_path, NO_PING))
    with Capture(
        h2.namespace, "eth0", lambda frame: frame.protocol == ICMP and not frame.outgoing
    ) as capture:
        seen = probes.ping(h1.namespace, h2.address(4), count=5)
        assert seen.lost == seen.sent
        assert capture.count() == 0
    assert rule(network, "no-ping")["hits"] >= 3
    assert 1 <= rule(network, "no-ping")["searched"] <= 2
    sluice(network, "spd", "commit", spd_file(tmp_path))
    assert probes.ping(h1.namespace, h2.address(4), count=2).lost == 0


def test_without_the_cache_every_packet_is_searched_and_passes_once(network: Network) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    sluice(network, "flow-cache", "off", "wan")
    before = rule(network, "everything")
    with Capture(
        h2.namespace, "eth0", lambda frame: frame.protocol == ICMP and not frame.outgoing
    ) as capture:
        assert probes.ping(h1.namespace, h2.address(4), count=10).lost == 0
        assert capture.count() == 10
    after = rule(network, "everything")
    assert after["searched"] - before["searched"] >= 10
    assert after["hits"] == before["hits"]
    sluice(network, "flow-cache", "on", "wan")


def test_a_killed_controller_leaves_the_flows_and_its_successor_keeps_them(
    network: Network,
) -> None:
    h1, h2 = network.hosts["h1"], network.hosts["h2"]
    controller = network.p4_router("r1").controller
    assert probes.ping(h1.namespace, h2.address(4), count=2).lost == 0
    epochs = [one["epoch"] for one in controller.show("spd")]
    controller.kill()
    assert probes.ping(h1.namespace, h2.address(4), count=3).lost == 0
    controller.start()
    wait_until(controller.synced, 30, "the controller to be synced")
    assert [one["epoch"] for one in controller.show("spd")] == epochs
    assert any(not flow["stale"] for flow in controller.show("flows")["flows"])

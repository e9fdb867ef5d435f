# SPDX-License-Identifier: Apache-2.0
"""Tests the configuration that `sluice up` makes from a plan, and the description of the plan."""

from __future__ import annotations

from pathlib import Path

from sluice.host_sources import names_in
from sluice.model import InterfaceAddress
from sluice.namespaces import OWN_NAMESPACE
from sluice.state.fib import Fib
from sluice.state.router_plan import PlannedInterface, PlannedPort, RouterPlan
from sluice.survey_model import HostLink, HostSurvey
from sluice.up.preview import preview
from sluice.up.router_config import configuration
from sluice.up.run_files import RunFiles

MAC = bytes([2, 0, 0, 0, 0, 1])
CARD = HostLink(5, "eth1", "", MAC, 1400, True, True)
ADDRESS = InterfaceAddress.parse("10.0.1.1/24")
PLAN = RouterPlan(
    (PlannedPort(1, CARD),),
    (
        PlannedInterface("eth1", 5, 1, 5, 0, MAC, 1400, (ADDRESS,), True, False),
        PlannedInterface("eth1.7", 6, 1, 5, 7, MAC, 1400, (), False, False),
    ),
    ("a note",),
    (),
)


def test_interfaces_are_the_kernels(tmp_path: Path) -> None:
    config = configuration(PLAN, RunFiles("r", tmp_path))
    specs = [one.spec for one in config.interfaces]
    assert [(one.name, one.l3_if, one.port, one.vlan, one.mtu) for one in specs] == [
        ("eth1", 1, 1, 0, 1400),
        ("eth1.7", 2, 1, 7, 1400),
    ]
    assert config.is_taken_over
    assert names_in(config, OWN_NAMESPACE) == []  # there are no TAPs
    assert config.policy.spds == ()
    assert str(config.switch.address) == f"unix:{tmp_path}/r-p4rt.sock"
    assert config.api_socket == tmp_path / "r.sock"
    Fib(specs, {vrf.table: vrf.id for vrf in config.vrfs}, config.next_hop_vrfs())


def test_preview() -> None:
    survey = HostSurvey((CARD,), {}, route_count=12, neighbor_count=3)
    assert preview(PLAN, survey, ["192.0.2.0/24"]) == [
        "port 1: eth1",
        "  eth1, 02:00:00:00:00:01, MTU 1400: 10.0.1.1/24; forwards IPv4",
        "  eth1.7, VLAN 7, 02:00:00:00:00:01, MTU 1400: no address; forwards nothing",
        "routes: 12 of the kernel's main table; neighbours: 3",
        "the kernel goes on forwarding by these routes: 192.0.2.0/24",
        "note: a note",
    ]

# SPDX-License-Identifier: Apache-2.0
"""Tests that an ICMP error of the host about a packet from a bundle leaves by this bundle or is
dropped."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from packets import ethernet, ipv4
from policy_world import CONFIG, filled
from sluice.config import Config, load_config
from sluice.host_errors import IN_CLEAR, LATEST_ERROR, REMEMBERED, Carrier, HostErrors
from sluice.policy.config import PolicyConfig
from sluice.policy.model import Direction
from sluice.state.spd import SpdTable
from test_punts import punt

OWN, PEER, BRANCH, LAB = "10.0.1.1", "10.9.0.1", 7, 8
NOW = [1000.0]
"""Current time in seconds. A test may advance it."""
CONFIGURED: list[Config] = []
"""Holds the configuration that the fixture `errors` loaded last."""
RULES = """\
    inbound:
      - {name: site, action: protect, bundle: branch, source: 10.9.0.0/16}
      - {name: lab, action: protect, bundle: lab, protocol: udp, destination_ports: [7000]}
      - {name: rest, action: bypass}
"""
SECOND = "    inbound: [{name: all, action: protect, bundle: rim, source: 10.9.9.0/24}]\n"


def bundle(name: str, number: int, spd: str, vrf: str = "default") -> str:
    return (
        f"  - {{name: {name}, id: {number}, spd: {spd}, vrf: {vrf}, outbound: {{engine: 1,"
        f" sa: {number}, local: 10.0.1.1, overhead: 73}}}}\n"
    )


@pytest.fixture
def errors(tmp_path: Path) -> HostErrors:
    """Returns HostErrors for two SPDs whose bundles are in the default VRF."""
    more = bundle("lab", LAB, "corp") + bundle("rim", 9, "edge")
    text = CONFIG.replace("    inbound: [{{name: all-in, action: bypass}}]\n", RULES)
    text = text.replace("spds:\n", more.replace("{", "{{").replace("}", "}}") + "spds:\n")
    text = text.replace("    inbound: []\n", SECOND)
    text = text.replace(RULES, RULES.replace("{", "{{").replace("}", "}}"))
    text = text.replace(SECOND, SECOND.replace("{", "{{").replace("}", "}}"))
    path = tmp_path / "r1.yaml"
    path.write_text(filled(text, tmp_path))
    config = load_config(path)
    table = SpdTable(config.policy.bundle_ids())
    wanted = {
        (spd.name, direction): spd.rules[direction]
        for spd in config.policy.spds
        for direction in Direction
    }
    table.apply(table.plan_start(wanted, {}))
    CONFIGURED[:] = [config]
    made = HostErrors(config, table.list_of, lambda: NOW[0])
    NOW[0] += LATEST_ERROR
    return made


def bundle_for(errors: HostErrors, frame: bytes) -> int:
    carrier = errors.carrier_for(frame)
    assert carrier is not None
    return carrier.bundle


def about(source: str, port: int = 9, **header: object) -> bytes:
    payload = (40000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(4)
    quoted = ipv4(source, OWN, payload, 17, **header)  # type: ignore[arg-type]
    return ethernet(ipv4(OWN, source, bytes([3, 3]) + bytes(6) + quoted, 1))


def test_an_error_about_what_came_protected_leaves_by_the_same_bundle(errors: HostErrors) -> None:
    assert bundle_for(errors, about(PEER)) == BRANCH
    assert bundle_for(errors, about("10.0.3.7", 7000)) == LAB


def test_an_error_about_what_came_in_clear_is_an_ordinary_packet(errors: HostErrors) -> None:
    assert bundle_for(errors, about("10.0.3.7")) == IN_CLEAR
    echo = ethernet(ipv4(OWN, PEER, bytes(8), 1))
    assert bundle_for(errors, echo) == IN_CLEAR
    assert bundle_for(errors, ethernet(ipv4(OWN, PEER, bytes(8), 17))) == IN_CLEAR


def test_where_two_bundles_could_have_carried_it_nothing_leaves(errors: HostErrors) -> None:
    assert errors.carrier_for(about("10.9.9.1")) is None


def test_a_quoted_fragment_that_could_have_come_protected_stays_here(errors: HostErrors) -> None:
    assert errors.carrier_for(about("10.0.3.7", fragment_offset=80)) is None
    # Of the rules that could match the fragment, the first names this bundle.
    assert bundle_for(errors, about(PEER, fragment_offset=80)) == BRANCH


def test_what_cannot_be_read_stays_here(errors: HostErrors) -> None:
    cut = ethernet(ipv4(OWN, PEER, bytes([3, 3]) + bytes(10), 1))
    assert errors.carrier_for(cut) is None
    assert errors.counters == {"dropped: icmp_enclosed_truncated": 1}


def test_a_list_that_has_not_started_decides_nothing(errors: HostErrors) -> None:
    errors._list_of = lambda spd, direction: None
    assert errors.carrier_for(about("10.0.3.7")) is None


# -- packets that the host received shortly before


def delivered(errors: HostErrors, source: str, carrier: int, port: int = 9, vrf: int = 0) -> None:
    payload = (40000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(4)
    frame = ethernet(ipv4(source, OWN, payload, 17))
    errors.delivered(punt(frame, "LOCAL", bundle=carrier, vrf=vrf))


def test_how_the_packet_came_is_remembered(errors: HostErrors) -> None:
    delivered(errors, PEER, IN_CLEAR)  # received on an interface without SPD
    assert bundle_for(errors, about(PEER)) == IN_CLEAR
    delivered(errors, "10.9.9.1", BRANCH)
    assert bundle_for(errors, about("10.9.9.1")) == BRANCH
    delivered(errors, "10.0.3.7", LAB)
    assert bundle_for(errors, about("10.0.3.7")) == LAB
    assert bundle_for(errors, about("10.0.3.7", 10)) == IN_CLEAR  # not received


def test_the_same_packet_by_two_ways_is_answered_by_none(errors: HostErrors) -> None:
    """Checks that no error leaves about a packet that came both in clear and protected by a bundle.

    Otherwise an attacker could send a protected packet again in clear. The error about it would
    then leave in clear, and would quote the packet's plaintext.
    """
    delivered(errors, PEER, BRANCH)
    delivered(errors, PEER, IN_CLEAR)
    assert errors.carrier_for(about(PEER)) is None


def test_the_memory_is_bounded_and_what_it_lost_has_no_errors(errors: HostErrors) -> None:
    """Checks that the number of remembered packets is bounded, and that errors about forgotten
    packets are dropped.

    The controller cannot tell how a forgotten packet arrived. For a while the host may still send
    errors about such packets, so errors about unknown packets are dropped. Afterwards the SPD lists
    decide.
    """
    delivered(errors, "10.0.3.7", BRANCH)  # the rules now bypass it
    for port in range(10, 10 + REMEMBERED):
        delivered(errors, PEER, IN_CLEAR, port)
    assert len(errors._delivered) == REMEMBERED
    assert errors.carrier_for(about("10.0.3.7")) is None
    assert bundle_for(errors, about(PEER, 10)) == IN_CLEAR
    NOW[0] += LATEST_ERROR
    assert bundle_for(errors, about("10.0.3.7")) == IN_CLEAR


def test_an_error_goes_to_the_vrf_of_the_bundle_whatever_interface_the_host_chose(
    errors: HostErrors,
) -> None:
    delivered(errors, "10.0.3.7", BRANCH, vrf=3)
    assert errors.carrier_for(about("10.0.3.7")) == Carrier(3, BRANCH)
    delivered(errors, "10.0.3.8", IN_CLEAR, vrf=3)
    assert errors.carrier_for(about("10.0.3.8")) == Carrier(0, IN_CLEAR)


def test_an_error_about_what_an_instance_carried_goes_to_the_vrf_of_its_bundle(
    errors: HostErrors,
) -> None:
    errors._vrf_of[BRANCH] = 3
    assert errors.carrier_for(about(PEER)) == Carrier(3, BRANCH)
    errors._vrf_of = {99: 4}
    errors._configured_number = lambda number: 99 if number == BRANCH else number
    assert errors.carrier_for(about(PEER)) == Carrier(4, BRANCH)


def test_after_a_start_nothing_is_said_about_packets_from_before_it(errors: HostErrors) -> None:
    """Checks that for a while after a start, errors about unknown packets are dropped.

    Such a packet may have arrived before the restart, when other rules were in force.
    """
    config, lists = CONFIGURED[0], errors._list_of
    for had_bundles in (True, False):
        fresh = HostErrors(config, lists, lambda: NOW[0], had_bundles=had_bundles)
        assert fresh.carrier_for(about("10.0.3.7")) is None
        delivered(fresh, "10.0.3.7", IN_CLEAR)
        assert bundle_for(fresh, about("10.0.3.7")) == IN_CLEAR
    NOW[0] += LATEST_ERROR
    assert bundle_for(fresh, about("10.0.3.8")) == IN_CLEAR


def test_a_router_that_had_bundles_a_moment_ago_is_careful_too(errors: HostErrors) -> None:
    config = dataclasses.replace(CONFIGURED[0], policy=PolicyConfig())
    careful = HostErrors(config, errors._list_of, lambda: NOW[0], had_bundles=True)
    assert careful.carrier_for(about("10.0.3.7")) is None
    never_had = HostErrors(config, errors._list_of, lambda: NOW[0])
    assert bundle_for(never_had, about("10.0.3.7")) == IN_CLEAR

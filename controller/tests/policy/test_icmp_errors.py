# SPDX-License-Identifier: Apache-2.0
"""Tests ICMP errors that no rule matches (RFC 4301, section 6).

The controller searches the rules for the packet that the error quotes.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from packets import ethernet, ipv4
from policy_world import (
    BYPASS,
    CONFIG,
    INBOUND,
    OUTBOUND,
    PROTECT,
    PolicyWorld,
    RunScenario,
    filled,
)
from sluice.policy.model import Direction

SITE, PEER, BETWEEN = "10.9.0.1", "10.0.3.7", "10.0.9.9"
SECRET, OPEN, CLOSED = 7000, 53, 9000
RULES = """\
spd: corp
inbound:
  - {name: secret, action: protect, bundle: branch, protocol: udp, source_ports: [7000]}
  - {name: open, action: bypass, protocol: udp, source_ports: [53]}
  - {name: closed, action: discard, protocol: udp, source_ports: [9000]}
outbound:
  - {name: secret, action: protect, bundle: branch, protocol: udp, source_ports: [7000]}
  - {name: open, action: bypass, protocol: udp, source_ports: [53]}
  - {name: closed, action: discard, protocol: udp, source_ports: [9000]}
"""
BUNDLE = 7
REFUSED = {
    "outbound": "dropped: policy discards outbound",
    "inbound": "dropped: policy discards inbound",
}


def datagram(source: str, destination: str, port: int, **header: object) -> bytes:
    """Returns a UDP datagram to `port`. For the SPD, an ICMP error about the datagram is traffic
    from `port`, in the reverse direction.
    """
    payload = (40000).to_bytes(2, "big") + port.to_bytes(2, "big") + bytes(4)
    return ipv4(source, destination, payload, 17, **header)  # type: ignore[arg-type]


def error(about: bytes, to: str, kind: int = 3) -> bytes:
    return ethernet(ipv4(BETWEEN, to, bytes([kind, 1]) + bytes(6) + about, 1))


@pytest.mark.parametrize("kind", [3, 11, 12])
def test_outbound_an_error_about_a_protected_flow_is_protected(
    run_scenario: RunScenario, kind: int
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(datagram(PEER, SITE, SECRET), PEER, kind))
        (sent,) = await world.sent()
        assert (sent["verdict"], sent["sa_bundle"]) == (PROTECT, BUNDLE)
        assert world.switch.flows == {}  # not cached: the next error may quote another packet

    run_scenario(scenario)


@pytest.mark.parametrize("port", [OPEN, CLOSED, 1])
def test_outbound_what_an_error_quotes_never_leads_to_a_bypass(
    run_scenario: RunScenario, port: int
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(datagram(PEER, SITE, port), PEER))
        await world.counted(REFUSED["outbound"])
        assert (world.client.sent, world.switch.flows) == ([], {})

    run_scenario(scenario)


def test_an_error_that_a_rule_matches_needs_no_quote(run_scenario: RunScenario) -> None:
    rule = '  - {name: errors, action: bypass, protocol: icmp, icmp: ["3/1"]}\n'

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES + rule)
        world.miss(error(datagram(PEER, SITE, CLOSED), PEER))
        await world.sent()
        await world.until(world.switch.live)

    run_scenario(scenario)


def test_an_error_to_another_than_who_sent_the_quoted_packet_is_nobodys(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(datagram(PEER, SITE, SECRET), "10.0.3.8"))
        await world.counted("dropped: icmp_enclosed_source")
        assert world.client.sent == []

    run_scenario(scenario)


def test_a_quoted_later_fragment_is_protected_only_if_all_rules_agree(
    run_scenario: RunScenario,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(datagram(PEER, SITE, SECRET, fragment_offset=80), PEER))
        await world.counted(REFUSED["outbound"])
        await world.commit(
            "spd: corp\noutbound:\n  - {name: all, action: protect, bundle: branch,"
            " protocol: udp}\n"
        )
        world.miss(error(datagram(PEER, SITE, SECRET, fragment_offset=80), PEER))
        (sent,) = await world.sent()
        assert (sent["verdict"], sent["sa_bundle"]) == (PROTECT, BUNDLE)

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("port", "bundle", "passes"),
    [(SECRET, BUNDLE, True), (SECRET, 8, False), (OPEN, BUNDLE, False), (CLOSED, BUNDLE, False)],
)
def test_inbound_what_a_bundle_carried_must_be_about_its_own_flows(
    run_scenario: RunScenario, port: int, bundle: int, passes: bool
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(datagram(PEER, SITE, port), PEER), INBOUND, bundle=bundle, origin=2)
        if passes:
            (sent,) = await world.sent()
            assert (sent["verdict"], sent["sa_bundle"]) == (PROTECT, BUNDLE)
        else:
            await world.counted(REFUSED["inbound"])
            assert world.client.sent == []
        assert world.switch.flows == {}

    run_scenario(scenario)


CHECKED = CONFIG.replace("  - name: corp\n", "  - name: corp\n    icmp_errors: checked\n")
ESP_SPI = 7000
"""SPI of the bundle `branch` in CONFIG."""


@pytest.mark.parametrize(("port", "passes"), [(SECRET, False), (OPEN, True), (CLOSED, False)])
def test_checked_errors_in_clear_must_be_about_flows_in_clear(
    run_scenario: RunScenario, tmp_path: Path, port: int, passes: bool
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(datagram(PEER, SITE, port), PEER), INBOUND)
        if passes:
            (sent,) = await world.sent()
            assert sent["verdict"] == BYPASS
        else:
            await world.counted(REFUSED["inbound"])
            assert world.client.sent == []
        assert world.switch.flows == {}

    run_scenario(scenario, text=filled(CHECKED, tmp_path))


@pytest.mark.parametrize(
    ("source", "spi", "is_local", "passes"),
    [
        ("10.0.1.1", ESP_SPI, 1, True),
        ("10.0.1.1", ESP_SPI, 0, False),  # an error for another destination than this router
        ("10.0.1.1", 7001, 1, False),
        ("10.0.1.2", ESP_SPI, 1, False),
    ],
)
def test_checked_errors_about_esp_must_be_about_an_sa_of_the_spd(
    run_scenario: RunScenario, tmp_path: Path, source: str, spi: int, is_local: int, passes: bool
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        about = ipv4(source, "10.9.9.9", spi.to_bytes(4, "big") + bytes(4), 50)
        world.miss(error(about, source), INBOUND, is_local=is_local)
        if passes:
            (sent,) = await world.sent()
            assert sent["verdict"] == BYPASS
        else:
            await world.counted(REFUSED["inbound"])
            assert world.client.sent == []

    run_scenario(scenario, text=filled(CHECKED, tmp_path))


@pytest.mark.parametrize("port", [SECRET, OPEN, CLOSED, 1])
def test_inbound_in_clear_errors_are_refused(run_scenario: RunScenario, port: int) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(datagram(PEER, SITE, port), PEER), INBOUND)
        await world.counted(REFUSED["inbound"])
        await world.counted("ICMP errors in clear refused")
        assert world.client.sent == []

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("icmp", "kind", "passes"),
    [("3/1", 3, True), ("3/1", 11, False), ("3/4", 3, False), ("3", 3, True)],
)
def test_a_rule_admits_errors_in_clear_by_type_and_code(
    run_scenario: RunScenario, icmp: str, kind: int, passes: bool
) -> None:
    """Checks that a rule with ICMP types matches the type and code of the error itself, whatever
    the error quotes.

    The error has code 1.
    """
    rule = f'inbound:\n  - {{name: errors, action: bypass, protocol: icmp, icmp: "{icmp}"}}\n'

    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES.replace("inbound:\n", rule))
        world.miss(error(datagram(PEER, SITE, SECRET), PEER, kind), INBOUND)
        if passes:
            (sent,) = await world.sent()
            assert sent["verdict"] == BYPASS
        else:
            await world.counted("ICMP errors in clear refused")
            assert world.client.sent == []

    run_scenario(scenario)


@pytest.mark.parametrize(
    ("direction", "about", "known", "reason"),
    [
        (OUTBOUND, datagram(PEER, SITE, OPEN), {}, "icmp_enclosed_flow"),
        (OUTBOUND, datagram(SITE, PEER, SECRET), {}, "icmp_enclosed_source"),
        (INBOUND, datagram(PEER, SITE, SECRET), {}, "icmp_enclosed_flow"),
        (
            INBOUND,
            datagram(PEER, SITE, OPEN),
            {"bundle": BUNDLE, "origin": 2},
            "icmp_enclosed_flow",
        ),
    ],
)
def test_a_refused_error_is_in_the_audit_log(
    run_scenario: RunScenario,
    direction: Direction,
    about: bytes,
    known: dict[str, int],
    reason: str,
) -> None:
    async def scenario(world: PolicyWorld) -> None:
        await world.began()
        await world.commit(RULES)
        world.miss(error(about, PEER), direction, **known)
        audit = world.controller.audit
        await world.until(lambda: audit.counters["written: icmp error refused"])
        *_, line = world.audit_lines()
        assert (line["event"], line["reason"]) == ("icmp error refused", reason)
        assert (line["list"], line["destination"]) == (direction.value, PEER)
        assert not audit.counters["written: wrong sa"]

    run_scenario(scenario)

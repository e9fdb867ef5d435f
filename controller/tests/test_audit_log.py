# SPDX-License-Identifier: Apache-2.0
"""Tests the audit log: its events, their fields, and their rate limits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from packets import ethernet, ipv4
from sluice.audit_log import REQUESTED_BY, AuditLog, ListChange, Requester
from sluice.config import load_config
from sluice.model import PuntedPacket
from sluice.policy.model import Action, Direction, Rule
from sluice.state.spd import PolicyList, SpdTable

CONFIG = """\
router: r1
state_dir: {state}
vrfs: {{blue: {{table: 100}}}}
interfaces:
  - {{name: eth1, port: 1, mac: "02:00:00:00:01:01", spd: corp}}
engines: [{{id: 1, port: 9}}]
bundles: [{{name: branch, id: 7, spd: corp}}]
spds: [{{name: corp}}]
audit: {{rate: 3}}
"""
IN = Direction.INBOUND
RULES = (
    Rule("quiet", Action.DISCARD, protocol=(6,)),
    Rule("loud", Action.DISCARD, protocol=(17,), audit=True),
)
ESP = ethernet(ipv4("192.0.2.1", "10.0.0.1", bytes.fromhex("0000100000000001"), 50))
UDP = ethernet(ipv4("192.0.2.1", "10.0.0.1", bytes.fromhex("0fa00050000c0000") + bytes(4)))


class Log:
    """Holds an audit log, its file, and the SPD whose rules it logs."""

    def __init__(self, directory: Path) -> None:
        path = directory / "r1.yaml"
        path.write_text(CONFIG.format(state=directory))
        self.path = directory / "audit.log"
        self.log = AuditLog(load_config(path), wall=lambda: 1_700_000_000.25)
        self.table = SpdTable({"branch": 7})
        self.commit(*RULES)
        self.log.lists = self.table.lists.get

    def commit(self, *rules: Rule) -> ListChange:
        before = self.table.list_of("corp", IN)
        self.table.apply(self.table.plan_commit({("corp", IN): rules}))
        return ListChange.of(before, self.state)

    @property
    def state(self) -> PolicyList:
        state = self.table.list_of("corp", IN)
        assert state is not None
        return state

    def lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.path.read_text().splitlines()]


@pytest.fixture
def audit(tmp_path: Path) -> Log:
    return Log(tmp_path)


def punted(frame: bytes, **known: int) -> PuntedPacket:
    return PuntedPacket(frame, *(known.get(name, 0) for name in PuntedPacket._fields[1:]))


def test_an_unknown_spi_with_everything_that_is_known(audit: Log) -> None:
    audit.log.packet_dropped("UNKNOWN_SPI", punted(ESP, ingress_l3_if=1, vrf=1), 5.0)
    assert audit.lines() == [
        {
            "time": "2023-11-14T22:13:20.250000Z",
            "event": "spi unknown",
            "router": "r1",
            "reason": "UNKNOWN_SPI",
            "vrf": "blue",
            "interface": "eth1",
            "source_mac": "02:00:00:00:00:aa",
            "source": "192.0.2.1",
            "destination": "10.0.0.1",
            "protocol": 50,
            "spi": 4096,
        }
    ]


def test_ah_for_this_router_is_logged_with_its_spi(audit: Log) -> None:
    header = bytes([59, 4, 0, 0]) + (4096).to_bytes(4, "big") + bytes(16)
    frame = ethernet(ipv4("192.0.2.1", "10.0.0.1", header, 51))
    audit.log.packet_dropped("AH_NO_SA", punted(frame, ingress_l3_if=1), 5.0)
    (line,) = audit.lines()
    assert (line["event"], line["reason"]) == ("spi unknown", "AH_NO_SA")
    assert (line["protocol"], line["spi"]) == (51, 4096)


@pytest.mark.parametrize(
    ("reason", "event"),
    [
        ("INBOUND_CLEARTEXT", "cleartext refused"),
        ("INBOUND_WRONG_SA", "wrong sa"),
        ("FORGED_SHIM", "forged shim"),
        ("SHIM_INVALID", "invalid shim"),
        ("SOMETHING_NEW", "packet dropped"),
    ],
)
def test_each_reason_has_its_event_and_the_list_that_spoke(
    audit: Log, reason: str, event: str
) -> None:
    state = audit.state
    packet = punted(UDP, ingress_l3_if=2, list_id=state.list_id, rule=state.rule_ids[1], bundle=7)
    audit.log.packet_dropped(reason, packet, 0.0)
    (line,) = audit.lines()
    assert (line["event"], line["reason"]) == (event, reason)
    assert (line["spd"], line["list"], line["rule"]) == ("corp", "inbound", "loud")
    assert (line["interface"], line["bundle"], line["vrf"]) == ("engine 1", "branch", "default")
    assert (line["source_port"], line["destination_port"]) == (4000, 80)


def test_discards_of_rules_that_ask_for_it(audit: Log) -> None:
    state = audit.state
    for rule_id in (*state.rule_ids, state.final_id):
        audit.log.discarded(punted(UDP, ingress_l3_if=1), state, rule_id, 0.0)
    (line,) = audit.lines()
    assert (line["event"], line["spd"], line["list"], line["rule"]) == (
        *("discarded", "corp", "inbound"),
        "loud",
    )
    # The log must follow a commit, although the list keeps its number.
    audit.commit(RULES[0]._replace(audit=True), RULES[1]._replace(audit=False))
    for rule_id in audit.state.rule_ids:
        audit.log.discarded(punted(UDP), audit.state, rule_id, 9.0)
    assert [line["rule"] for line in audit.lines()] == ["loud", "quiet"]


def test_a_discard_has_its_time_rule_and_selectors(audit: Log) -> None:
    state = audit.state
    audit.log.discarded(punted(UDP, ingress_l3_if=1), state, state.rule_ids[1], 0.0)
    assert audit.lines() == [
        {
            "time": "2023-11-14T22:13:20.250000Z",
            "event": "discarded",
            "router": "r1",
            "spd": "corp",
            "list": "inbound",
            "rule": "loud",
            "vrf": "default",
            "interface": "eth1",
            "source_mac": "02:00:00:00:00:aa",
            "source": "192.0.2.1",
            "destination": "10.0.0.1",
            "protocol": 17,
            "source_port": 4000,
            "destination_port": 80,
        }
    ]


def test_each_kind_of_event_has_a_rate_and_says_what_it_held_back(audit: Log) -> None:
    for _ in range(5):
        audit.log.packet_dropped("UNKNOWN_SPI", punted(ESP), 0.0)
    audit.log.packet_dropped("FORGED_SHIM", punted(ESP), 0.0)
    audit.log.packet_dropped("UNKNOWN_SPI", punted(ESP), 0.5)
    audit.log.packet_dropped("UNKNOWN_SPI", punted(ESP), 5.0)
    assert [(line["event"], line.get("suppressed")) for line in audit.lines()] == [
        *[("spi unknown", None)] * 3,
        ("forged shim", None),
        ("spi unknown", 2),
        ("spi unknown", None),
    ]
    assert audit.log.counters["suppressed: spi unknown"] == 2
    assert audit.log.counters["written: spi unknown"] == 5


def test_a_change_of_policy_with_who_asked_and_what_it_did(audit: Log) -> None:
    token = REQUESTED_BY.set(Requester(1000, 4711))
    change = audit.commit(RULES[1], Rule("new", Action.BYPASS), Rule("newer", Action.BYPASS))
    audit.log.policy_changed("commit", ["corp"], [change], 0.0)
    REQUESTED_BY.reset(token)
    audit.log.policy_changed("start", ["corp"], [ListChange.of(None, audit.state)], 0.0)
    asked, started = audit.lines()
    assert (asked["event"], asked["change"], asked["spds"]) == (
        "policy changed",
        "commit",
        ["corp"],
    )
    assert asked["asked_by"] == {"uid": 1000, "pid": 4711}
    assert change.before is not None
    assert asked["lists"] == [
        {
            "spd": "corp",
            "list": "inbound",
            "rules": 3,
            "digest": change.after.digest,
            "epoch": 2,
            "generation": 2,
            "digest_before": change.before.digest,
            "added": 2,
            "removed": 1,
        }
    ]
    assert started["asked_by"] == "router"
    assert "added" not in started["lists"][0]


def test_a_file_that_cannot_be_written_costs_lines_and_nothing_else(
    audit: Log, tmp_path: Path
) -> None:
    audit.path.mkdir()
    audit.log.packet_dropped("UNKNOWN_SPI", punted(ESP), 0.0)
    audit.log.policy_changed("start", ["corp"], [], 0.0)
    assert audit.log.counters == {"lost: the file cannot be written": 2}


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
@given(frame=st.binary(max_size=90), numbers=st.lists(st.integers(0, 0xFFFFFFFF), max_size=18))
def test_no_packet_raises(tmp_path: Path, frame: bytes, numbers: list[int]) -> None:
    audit = Log(tmp_path)
    packet = PuntedPacket(frame, *(numbers + [0] * 18)[:18])
    audit.log.packet_dropped("UNKNOWN_SPI", packet, 0.0)
    audit.log.discarded(packet, audit.state, audit.state.rule_ids[1], 0.0)
    event = "wrong sa" if packet.bundle else "discarded"
    assert audit.lines()[-1]["event"] == event
    audit.log.error_refused(packet, audit.state, "icmp_enclosed_flow", 0.0)
    audit.log.fragment_dropped(packet, "fragments overlap", 0.0)
    assert audit.lines()[-1]["event"] == "fragment dropped"


def test_what_somebody_else_wrote(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.log.repaired("outbound_binding 1", "Binding(list_id=0)", "Binding(list_id=2)", 0.0)
    (line,) = map(json.loads, log.path.read_text().splitlines())
    assert line["event"] == "switch repaired"
    assert (line["what"], line["found"]) == ("outbound_binding 1", "Binding(list_id=0)")
    assert line["put"] == "Binding(list_id=2)"


def test_a_decrypted_packet_that_its_list_discards_came_by_the_wrong_sa(audit: Log) -> None:
    """Checks that the discard of a decrypted packet is always logged, as `wrong sa` (RFC 4301,
    5.2).

    This holds even if a rule without `audit`, or the final discard, discards it.
    """
    state = audit.state
    for rule_id in (*state.rule_ids, state.final_id):
        audit.log.discarded(punted(UDP, ingress_l3_if=2, bundle=7), state, rule_id, 0.0)
    lines = audit.lines()
    assert [line["event"] for line in lines] == ["wrong sa"] * 3
    assert [line["rule"] for line in lines] == ["quiet", "loud", "(final)"]
    assert {(line["bundle"], line["list"]) for line in lines} == {("branch", "inbound")}


def test_refused_errors_and_dropped_fragments_have_their_own_rates(audit: Log) -> None:
    packet = punted(UDP, ingress_l3_if=1, list_id=audit.state.list_id)
    for _ in range(4):
        audit.log.error_refused(packet, audit.state, "icmp_enclosed_flow", 0.0)
        audit.log.fragment_dropped(packet, "fragments overlap", 0.0)
    lines = audit.lines()
    assert [line["event"] for line in lines] == ["icmp error refused", "fragment dropped"] * 3
    assert (lines[0]["reason"], lines[0]["rule"]) == ("icmp_enclosed_flow", "(final)")
    assert (lines[1]["reason"], lines[1]["spd"]) == ("fragments overlap", "corp")
    assert "rule" not in lines[1]
    for event in ("icmp error refused", "fragment dropped"):
        assert audit.log.counters[f"suppressed: {event}"] == 1

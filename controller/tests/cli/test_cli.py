# SPDX-License-Identifier: Apache-2.0
"""Tests the `sluice` command: tables for people, JSON for programs, and exit codes."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from cli.answers import ANSWERS, EXPECTED, FLOW, PAGES, ROUTE
from sluice import __version__
from sluice.cli import explain_table, flow_tables, policy_tables, route_table, shared, tables
from sluice.cli.main import cli

FAILED, USAGE, NO_DAEMON = 1, 2, 3


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """Runs a daemon that answers from ANSWERS. Yields its socket. The requests are recorded in a
    file next to the socket.
    """
    path = tmp_path / "r1.sock"
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    listener.listen()

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection, connection.makefile("rb") as lines:
                request = json.loads(lines.readline())
                with (tmp_path / "requests").open("a") as log:
                    log.write(json.dumps(request) + "\n")
                name = _name(request)
                answer = {"ok": True, "data": ANSWERS[name]} | PAGES.get(request.get("after"), {})
                if name in ("flows", "flows --by"):
                    answer |= {"data": ANSWERS[name]["flows"]}
                    answer |= {"uncached": ANSWERS[name]["uncached"]}
                connection.sendall(json.dumps(answer).encode() + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def _name(request: dict[str, Any]) -> str:
    if request["command"].startswith("flow-cache"):
        return "flow-cache"
    if request["command"] in ("spd add", "spd delete", "spd move", "spd rollback"):
        return "spd commit"  # all changes of rules have the same answer
    if request.get("by") is not None:
        return "flows --by"
    return str(request.get("what", request["command"]))


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ("check", ["1 inbound rule, 2 outbound rules: fine", "warning: no BGP", "with --frr"]),
        (
            "check",
            [
                "outbound, IPv4 and IPv6 fragments of 'web', 'dns', 'site' and 2 more: by the"
                " controller where 'web' could match too, else by the flow cache",
                "punt_rates.FRAGMENT (2,000 fragments a second)",
            ],
        ),
        (
            "check",
            [
                "corp outbound, rule tables: the first 4 of 5 rules (1,234 IPv4, 17 IPv6 entries;"
                " room for 65,536 IPv4, 65,536 IPv6)",
            ],
        ),
        (
            "diff",
            [
                "corp inbound: no change",
                "- 1 web: bypass",
                "+ 2 web: discard",
                "flows: 12 of 2,000 would change:",
                "rule tables: nothing, since only the first 4 of 5 rules would fit"
                " (1,234 IPv4, 17 IPv6 entries; room for 65,536 IPv4, 65,536 IPv6)",
                "tcp [2001:db8::1]:40000 -> 10.0.0.1: protect(branch) by web -> searched again"
                " (later fragments, for this router, by hub)",
                "protect(branch) by web -> discard by new",
                "and 10 more",
            ],
        ),
        (
            "commit",
            [
                "corp outbound: 5 rules, epoch 4, generation 9\n",
                "auto: cache+rules, all 5 rules in the tables\n",
                "in force after 4.2 ms",
                "warning: no BGP",
            ],
        ),
    ],
)
def test_rules_are_sent_as_text(daemon: Path, action: str, words: list[str]) -> None:
    path = daemon.parent / "corp.yaml"
    path.write_text("spd: corp\n")
    done = sluice("spd", action, str(path), "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    for word in words:
        assert word in done.stdout
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    files = [{"name": str(path), "text": "spd: corp\n"}]
    assert json.loads(line) == {"command": f"spd {action}", "files": files}


def asked(daemon: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (daemon.parent / "requests").read_text().splitlines()]


@pytest.mark.parametrize("as_json", [False, True])
def test_routes_are_asked_for_page_by_page(daemon: Path, as_json: bool) -> None:
    words = ["show", "routes", "--after", "1.0.0.0/8", "--socket", str(daemon)]
    done = sluice(*words, *(["--json"] if as_json else []))
    assert done.exit_code == 0, done.output
    expected = ["2.0.0.0/8", "3.0.0.0/8", "4.0.0.0/8", "100.100.100.0/24"]
    if as_json:
        assert [route["prefix"] for route in json.loads(done.stdout)] == expected
    else:
        lines = done.stdout.splitlines()
        assert [line.split()[0] for line in lines if "bgp" in line] == expected
        assert [line for line in lines if "protocol" in line] == lines[:1]
    first, second = asked(daemon)
    assert (first["after"], first["limit"]) == ("1.0.0.0/8", shared.PAGE)
    assert (second["after"], second["after_vrf"]) == ("4.0.0.0/8", 3)


def test_no_more_pages_are_asked_for_than_the_limit_needs(daemon: Path) -> None:
    done = sluice("show", "routes", "--after", "1.0.0.0/8", "--limit", "3", "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    assert [request["limit"] for request in asked(daemon)] == [3]
    alone = sluice("show", "routes", "--after-vrf", "3", "--socket", str(daemon))
    assert alone.exit_code == USAGE


def test_a_page_that_fails_ends_the_command(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PAGES, "4.0.0.0/8", {"ok": False, "error": "internal error"})
    done = sluice("show", "routes", "--after", "1.0.0.0/8", "--socket", str(daemon))
    assert done.exit_code == FAILED
    assert "3.0.0.0/8" in done.stdout
    assert "internal error" in done.stderr


def test_rows_are_printed_as_they_come() -> None:
    """Checks that the command requests the next page only after it has printed the current one."""
    printed: list[str] = []

    def found() -> Iterator[list[dict[str, Any]]]:
        for n in range(3):
            yield [ROUTE | {"prefix": f"{n}.0.0.0/8"}]
            printed.append(out.getvalue())

    with contextlib.redirect_stdout(io.StringIO()) as out:
        route_table.show(found())
    assert [text.count("bgp") for text in printed] == [1, 2, 3]


def test_no_routes(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ANSWERS, "routes", [])
    assert sluice("show", "routes", "--socket", str(daemon)).stdout == "no routes\n"
    as_json = sluice("show", "routes", "--json", "--socket", str(daemon))
    assert json.loads(as_json.stdout) == []


def test_whoever_stops_reading_is_told_nothing(daemon: Path) -> None:
    """Checks that the command prints no error if the program that reads its output exits.

    An example is `sluice show routes | head`.
    """
    PAGES["endless"] = {"data": [ROUTE] * 1000, "next": {"after": "endless"}}
    command = [sys.executable, "-c", "from sluice.cli.main import main; main()"]
    command += ["show", "routes", "--after", "endless", "--socket", str(daemon)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert b"prefix" in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == b""
        assert process.wait(30) == FAILED


def test_an_unreadable_file_of_rules_fails(daemon: Path) -> None:
    absent = sluice("spd", "commit", str(daemon.parent / "absent"), "--socket", str(daemon))
    assert absent.exit_code == FAILED
    assert "No such file" in absent.stderr
    assert sluice("spd", "commit").exit_code == USAGE
    assert sluice("spd", "commit", "corp.yaml", "--configured", "corp").exit_code == USAGE


CONFIG = """\
router: r1
interfaces: [{name: eth1, port: 1, mac: "02:00:00:00:01:01", addresses: [10.0.0.1/24], spd: corp}]
engines: [{id: 1, port: 9}]
bundles:
  - {name: branch, id: 1, spd: corp, outbound: {engine: 1, sa: 1, local: 10.0.1.1, overhead: 73}}
spds: [{name: corp, file: in-force.yaml}]
"""
PROTECTED = "spd: corp\noutbound: [{name: a, action: protect, bundle: branch}]\n"


def test_a_check_needs_no_controller(tmp_path: Path) -> None:
    config, file, frr = tmp_path / "r1.yaml", tmp_path / "new.yaml", tmp_path / "frr.conf"
    config.write_text(CONFIG)
    (tmp_path / "in-force.yaml").write_text("spd: corp\n")
    file.write_text(PROTECTED)
    frr.write_text("router bgp 1\n neighbor 10.0.0.2 remote-as 2\n")
    done = sluice("spd", "check", str(file), "--config", str(config))
    assert done.exit_code == 0, done.output
    assert "corp: 0 inbound rules, 1 outbound rule: fine" in done.stdout
    assert done.stdout.count("BGP and OSPF sessions are not checked") == 1
    assert "come up" not in done.stdout
    for given in (frr, tmp_path):
        words = ("spd", "check", str(file), "--config", str(config), "--frr", str(given), "--json")
        (found,) = json.loads(sluice(*words).stdout)
        assert "10.0.0.1 - 10.0.0.2" in found["warnings"][0]
        assert not any("OSPF" in one for one in found["warnings"])
        assert found["sessions_unchecked"] is None
    frr.write_text("hostname r1\n")
    done = sluice("spd", "check", str(file), "--config", str(config), "--frr", str(frr))
    assert (
        "BGP and OSPF sessions are not checked: FRR's configuration has no such session"
        in done.stdout
    )
    frr.write_text("router bgp 1\n neighbor 10.0.0.2 remote-as 2\n")
    done = sluice("spd", "check", str(file), "--frr", str(frr))
    assert "not checked: no interface that corp guards is known" in done.stdout
    done = sluice("spd", "check", "--configured", "corp", "--config", str(config))
    assert "corp: 0 inbound rules, 0 outbound rules: fine" in done.stdout


def test_a_check_tells_every_problem_of_every_file(tmp_path: Path) -> None:
    config, file = tmp_path / "r1.yaml", tmp_path / "new.yaml"
    config.write_text(CONFIG.replace("overhead", "overhaed"))
    file.write_text(PROTECTED.replace("branch", "nobody") + "inbound: [{name: b}]\n")
    done = sluice("spd", "check", str(file), "--config", str(config))
    assert done.exit_code == FAILED
    for where in (f"{config}:5: ", f"{tmp_path / 'in-force.yaml'}: No such", f"{file}:3: "):
        assert where in done.stderr
    config.write_text(CONFIG)
    (tmp_path / "in-force.yaml").write_text("spd: corp\n")
    done = sluice("spd", "check", str(file), "--config", str(config))
    assert f"{file}:2: outbound rule 1 'a'.bundle: this SPD has no bundle 'nobody'" in done.stderr
    assert f"{file}:3: " in done.stderr


def test_rules_alone_can_be_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sluice.cli.shared.RUN_DIRECTORIES", (tmp_path,))
    file = tmp_path / "new.yaml"
    file.write_text(PROTECTED.replace("branch", "any-name"))
    done = sluice("spd", "check", str(file))
    assert done.exit_code == 0, done.output
    assert "no controller runs here" in done.stderr
    assert "bundles and addresses are not known" in done.stderr
    assert "1 outbound rule: fine" in done.stdout
    absent = sluice("spd", "check", str(file), "--socket", str(tmp_path / "absent.sock"))
    assert absent.exit_code == NO_DAEMON


def test_frrs_configuration_goes_with_the_question(daemon: Path) -> None:
    path = daemon.parent / "corp.yaml"
    path.write_text("spd: corp\n")
    (daemon.parent / "frr.conf").write_text("hostname r1\n")
    frr = str(daemon.parent / "frr.conf")
    done = sluice("spd", "check", str(path), "--frr", frr, "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    assert json.loads(line)["frr"] == [{"name": frr, "text": "hostname r1\n"}]
    nothing = sluice("spd", "check", str(path), "--frr", str(daemon.parent / "absent"))
    assert nothing.exit_code == FAILED


def test_configured_rules_are_named(daemon: Path) -> None:
    done = sluice("spd", "diff", "--configured", "corp", "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    assert json.loads(line) == {"command": "spd diff", "configured": ["corp"]}


RULE = "{name: web, action: bypass}"


@pytest.mark.parametrize(
    ("words", "sent"),
    [
        (
            ["add", "corp", "outbound", RULE, "--before", "rest", "-m", "why"],
            {
                "command": "spd add",
                "spd": "corp",
                "direction": "outbound",
                "rule": RULE,
                "at": "before",
                "next_to": "rest",
                "message": "why",
            },
        ),
        (
            ["move", "corp", "inbound", "web", "--first"],
            {
                "command": "spd move",
                "spd": "corp",
                "direction": "inbound",
                "name": "web",
                "at": "first",
            },
        ),
        (
            ["delete", "corp", "inbound", "web"],
            {"command": "spd delete", "spd": "corp", "direction": "inbound", "name": "web"},
        ),
        (["rollback", "3", "corp"], {"command": "spd rollback", "commit": 3, "spds": ["corp"]}),
    ],
)
def test_changes_of_rules_are_requested(
    daemon: Path, words: list[str], sent: dict[str, Any]
) -> None:
    done = sluice("spd", *words, "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    assert "in force after 4.2 ms" in done.stdout
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    assert json.loads(line) == sent


def test_a_packet_is_explained(daemon: Path, tmp_path: Path) -> None:
    words = ["explain", "udp 10.1.0.10:5000 > 10.2.0.9:7000 in eth1", "--socket", str(daemon)]
    done = sluice(*words)
    assert done.exit_code == FAILED  # because model and switch disagree
    for line in (
        "packet     udp 10.1.0.10:5000 -> 10.2.0.9:7000, 42 bytes",
        "interface  eth1 (port 1, VLAN 7, VRF red, SPD none)",
        "via 10.0.1.9 dev eth1, share 75% <- taken",
        "outbound   SPD corp, epoch 4, generation 9; flow cache: no flow",
        "  - ike: bypass udp any -> any <- decides",
        "  3 site: protect(branch) any -> any",
        "and 3 more rules that match",
        "verdict: bypass by ike",
        "outcome    forwarded",
        "outbound list: the cache lacks the flow, so the switch asks the controller",
        "route 20.0.0.0/8, group 7, next hop 3",
        "dropped: NO_SA",
        "DISAGREEMENT: route: the switch matches 20.0.0.0/9",
    ):
        assert line in done.stdout
    frame = bytes(20)
    header = struct.pack("<IHHiIIIIIII", 0xA1B2C3D4, 2, 4, 0, 0, 65535, 1, 0, 0, 20, 20)
    (tmp_path / "one.pcap").write_bytes(header + frame)
    sluice("explain", "--pcap", str(tmp_path / "one.pcap"), "--in", "eth1", "--socket", str(daemon))
    sluice("explain", "--hex", "00ff", "--in", "eth1", "--socket", str(daemon))
    lines = (daemon.parent / "requests").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [
        {"command": "explain", "text": words[1]},
        {"command": "explain", "frame": frame.hex(), "in": "eth1"},
        {"command": "explain", "frame": "00ff", "in": "eth1"},
    ]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["udp 10.0.0.1:1 > 10.0.0.2:2", "--hex", "00"],
        ["udp 10.0.0.1:1 > 10.0.0.2:2", "--in", "eth1"],
        ["--hex", "00"],
        ["--pcap", "x.pcap", "--hex", "00", "--in", "eth1"],
    ],
)
def test_packets_that_are_given_in_part_or_twice_are_refused(words: list[str]) -> None:
    assert sluice("explain", *words).exit_code == USAGE


def test_two_places_for_a_rule_are_refused(daemon: Path) -> None:
    words = ["spd", "add", "corp", "outbound", RULE, "--first", "--after", "x"]
    done = sluice(*words, "--socket", str(daemon))
    assert done.exit_code == USAGE
    assert "one of --first, --last" in done.stderr


def test_an_earlier_commit_is_compared(daemon: Path) -> None:
    done = sluice("spd", "diff", "--commit", "3", "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    assert json.loads(line) == {"command": "spd diff", "commit": 3}
    done = sluice("spd", "diff", "--commit", "3", "corp.yaml", "--socket", str(daemon))
    assert done.exit_code == USAGE


def test_the_log_names_users_and_changes(daemon: Path) -> None:
    done = sluice("spd", "log", "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    joined = " ".join(done.stdout.split())
    for words in ("ann", "1001", "(router)", "rollback to 1", "corp outbound +1 -2 ~3"):
        assert words in joined


def test_more_changed_flows_can_be_asked_for(daemon: Path) -> None:
    words = ["spd", "diff", "--configured", "corp", "--flows", "500", "--socket", str(daemon)]
    assert sluice(*words).exit_code == 0
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    assert json.loads(line)["flows"] == 500


@pytest.mark.parametrize(
    ("flow", "text"),
    [
        ({}, "tcp"),
        ({"protocol": 1, "icmp": "8/0"}, "icmp 8/0"),
        ({"protocol": 135, "mobility_type": 0}, "mobility 0"),
        ({"protocol": 135, "mobility_type": 5}, "mobility 5"),
        ({"protocol": 135}, "mobility"),  # a later fragment
    ],
)
def test_a_flow_shows_the_type_of_its_messages(flow: dict[str, Any], text: str) -> None:
    assert flow_tables.flow_protocol(FLOW | flow) == text


@pytest.mark.parametrize(("kind", "text"), [(0, ", type 0, 42 bytes"), (None, ", 42 bytes")])
def test_an_explained_mobility_message_shows_its_type(kind: int | None, text: str) -> None:
    packet = ANSWERS["explain"]["packet"] | {"protocol": 135, "mobility_type": kind}
    packet |= {"source_port": None, "destination_port": None}
    (line,) = explain_table._packet(packet)
    assert line == f"mobility 10.1.0.10 -> 10.2.0.9{text}"


def test_filters_of_flows_are_sent(daemon: Path) -> None:
    end = ["--socket", str(daemon)]
    words = ["show", "flows", "corp", "--list", "inbound", "--source", "10.0.0.0/8", "--stale"]
    words += ["--destination", "10.2.0.9", "--host", "10.1.0.10", "--protocol", "udp"]
    words += ["--port", "53", "--action", "protect", "--rule", "site", "--bundle", "branch"]
    assert sluice(*words, "--limit", "9", *end).exit_code == 0
    assert sluice("show", "flows", "--top", "5", "--rate", "0.5", *end).exit_code == 0
    first, second = asked(daemon)
    show = {"command": "show", "what": "flows"}
    assert first == show | {
        "spd": "corp",
        "list": "inbound",
        "source": "10.0.0.0/8",
        "destination": "10.2.0.9",
        "host": "10.1.0.10",
        "protocol": "udp",
        "port": 53,
        "action": "protect",
        "rule": "site",
        "bundle": "branch",
        "stale": True,
        "limit": 9,
    }
    assert second == show | {"top": 5, "rate": 0.5}
    for wrong in (["--limit", "5", "--top", "5"], ["--rate", "1"], ["--top", "0"]):
        assert sluice("show", "flows", *wrong, *end).exit_code == USAGE


def test_sums_of_flows(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["show", "flows", "--by", "source", "--rate", "2", "--socket", str(daemon)]
    shown = sluice(*words).stdout.partition("corp inbound")[0].split()
    assert shown[:4] == ["source", "flows", "packets/s", "bytes/s"]
    assert shown[-4:] == ["2001:db8::1", "3", "12.5", "1,250.0"]
    by_rule = {"spd": "corp", "direction": "outbound", "rule": None, "flows": 3}
    for rows, expected in (
        ([by_rule | {"packets": 4, "bytes": 5}], ["corp", "outbound", "(stale)", "3", "4", "5"]),
        ([{"protocol": 6, "flows": 3, "packets": 4, "bytes": 5}], ["tcp", "3", "4", "5"]),
        ([], ["no", "flows"]),
    ):
        monkeypatch.setitem(ANSWERS, "flows --by", {"flows": rows, "uncached": []})
        assert sluice(*words).stdout.split()[-len(expected) :] == expected


def test_rates_of_flows_replace_their_counts(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"packets_per_second": 12345.6, "bytes_per_second": 1234567.8}
    monkeypatch.setitem(ANSWERS, "flows", {"flows": [FLOW | rates], "uncached": []})
    shown = sluice("show", "flows", "--top", "1", "--rate", "1", "--socket", str(daemon)).stdout
    assert "packets/s" in shown
    assert "12.3 k" in shown
    assert "1.23 M" in shown
    assert "7,700" not in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (9999, "9,999"),
        (0.25, "0.2"),
        (10_000, "10.0 k"),
        (99_949, "99.9 k"),
        (99_950, "100 k"),
        (999_499, "999 k"),
        (999_500, "1.00 M"),
        (10**18, "1,000,000 T"),
    ],
)
def test_short_numbers(value: float, text: str) -> None:
    assert flow_tables.short_number(value) == text


def test_rules_in_force_are_printed_as_a_file(daemon: Path) -> None:
    done = sluice("spd", "export", "corp", "--socket", str(daemon))
    assert done.stdout == ANSWERS_EXPORT
    as_json = sluice("spd", "export", "corp", "--json", "--socket", str(daemon))
    assert json.loads(as_json.stdout) == ANSWERS["spd export"]


@pytest.mark.parametrize("action", ["on", "off", "clear", "show"])
def test_flow_caches_by_hand(daemon: Path, action: str) -> None:
    done = sluice("flow-cache", action, "corp", "--socket", str(daemon))
    assert done.exit_code == 0, done.output
    assert "65,536" in done.stdout
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    assert json.loads(line)["spd"] == "corp"


ANSWERS_EXPORT = "spd: corp\noutbound:\n- {name: web, action: bypass}\n"


def sluice(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words), prog_name="sluice")


@pytest.mark.parametrize("what", sorted(EXPECTED))
def test_for_people_and_for_programs(daemon: Path, what: str) -> None:
    shown = sluice("show", what, "--socket", str(daemon))
    assert shown.exit_code == 0, shown.output
    for word in EXPECTED[what]:
        assert word in shown.stdout
    as_json = sluice("show", what, "--json", "--socket", str(daemon))
    assert json.loads(as_json.stdout) == ANSWERS[what]


def test_a_check_of_the_status_fails_with_its_problems(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = sluice("show", "status", "--check", "--socket", str(daemon))
    assert (found.exit_code, found.stdout) == (FAILED, "interface eth1 is down\n")
    found = sluice("show", "status", "--check", "--json", "--socket", str(daemon))
    assert (found.exit_code, json.loads(found.stdout)) == (FAILED, ["interface eth1 is down"])
    monkeypatch.setitem(ANSWERS, "status", ANSWERS["status"] | {"problems": []})
    found = sluice("show", "status", "--check", "--socket", str(daemon))
    assert (found.exit_code, found.output) == (0, "")


def test_a_route_is_looked_up(daemon: Path) -> None:
    found = sluice("show", "route", "20.1.2.3", "--vrf", "red", "--socket", str(daemon))
    assert found.exit_code == 0, found.output
    for word in (
        "20.1.2.3 in VRF default:",
        "20.0.0.0/8 (bgp), group, group 5",
        "eth1        1.10   10.0.1.9   reachable   02:00:00:00:09:04",
        "75%",
        "RESOURCE_EXHAUSTED",
        "20.1.0.0/16 (bgp) is not in the switch: not in the switch yet",
    ):
        assert word in found.stdout, found.stdout
    (request,) = asked(daemon)
    assert request["address"] == "20.1.2.3"
    assert request["vrf"] == "red"


def test_filters_are_the_controllers(daemon: Path) -> None:
    for words, filters in (
        (("interfaces", "eth1"), {"name": "eth1"}),
        (("interfaces", "--vrf", "red"), {"vrf": "red"}),
        (("routes", "--vrf", "red", "--protocol", "bgp"), {"vrf": "red", "protocol": "bgp"}),
    ):
        found = sluice("show", *words, "--socket", str(daemon))
        assert found.exit_code == 0, found.output
        assert asked(daemon)[-1].items() >= filters.items()


def test_a_flow_goes_with_the_question_and_its_next_hop_is_marked(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    legs = ANSWERS["route"]["legs"]
    taken = [leg | {"taken": leg["nexthop"] == 7} for leg in legs]
    way = {"matched": True, "group": 5, "nexthop": 7}
    monkeypatch.setitem(ANSWERS, "route", ANSWERS["route"] | {"legs": taken, "flow": way})
    words = ("show", "route", "20.1.2.3", "--socket", str(daemon), "--source", "10.0.0.1")
    found = sluice(*words, "--protocol", "tcp", "--ports", "40000:443")
    assert found.exit_code == 0, found.output
    assert found.output.count("this one") == 1
    flow = {"source": "10.0.0.1", "protocol": 6, "ports": [40000, 443]}
    assert asked(daemon)[-1]["flow"] == flow
    sluice(*words, "--protocol", "47", "--flow-label", "5")
    assert asked(daemon)[-1]["flow"] == {"source": "10.0.0.1", "protocol": 47, "flow_label": 5}
    away = {"legs": [leg | {"taken": False} for leg in legs]}
    for end, said in (({"nexthop": None}, "no next hop that is up"), ({}, "ask again")):
        answer = ANSWERS["route"] | away | {"flow": way | end}
        monkeypatch.setitem(ANSWERS, "route", answer)
        assert said in sluice(*words, "--protocol", "tcp", "--ports", "1:2").output
    for wrong in (
        (),
        ("--protocol", "tcpp"),
        ("--protocol", "tcp", "--ports", "443"),
        ("--protocol", "tcp", "--ports", "a:b"),
    ):
        assert sluice(*words, *wrong).exit_code == USAGE
    assert sluice(*words[:5], "--protocol", "tcp").exit_code == USAGE


LONG_NAME, LONG_ADDRESS = "interface-name-", "2001:db8:1111:2222:3333:4444:5555:6666"
MANY = 123_456_789_012


def _stretched(data: Any, key: str = "") -> Any:
    """Returns the data with long names, addresses and counts instead of the original ones."""
    if isinstance(data, dict):
        return {name: _stretched(value, name) for name, value in data.items()}
    if isinstance(data, list):
        return [_stretched(value, key) for value in data]
    if key in ("packets", "bytes", "hits", "searched") and isinstance(data, int):
        return MANY
    texts = dict.fromkeys(("source", "destination", "address", "gateway"), LONG_ADDRESS)
    texts |= {"interface": LONG_NAME, "name": LONG_NAME, "addresses": f"{LONG_ADDRESS}/64"}
    texts |= {"prefix": f"{LONG_ADDRESS}/128", "spd": "headquarters", "bundle": "headquarters-2"}
    return texts.get(key, data) if isinstance(data, str) else data


@pytest.mark.parametrize("what", sorted(tables._VIEWS))
def test_tables_fit_100_columns_and_cut_nothing(what: str) -> None:
    data = ANSWERS["interfaces" if what == "interface" else what.removesuffix(" --generated")]
    stretched = _stretched(data) if not what.startswith("spd ") else data
    for shown in (data, stretched):
        out = io.StringIO()
        tables._VIEWS[what](Console(width=100, file=out, highlight=False), shown)
        for line in out.getvalue().splitlines():
            assert len(line) <= 100
            assert "…" not in line, out.getvalue()


@pytest.mark.parametrize("columns", [80, 100])
def test_routes_fit_a_terminal_and_cut_nothing(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((columns, 24)))
    route_table.show([_stretched(ANSWERS["routes"])])
    text = capsys.readouterr().out
    plain = click.unstyle(text)
    assert all(len(line) <= columns for line in plain.splitlines()), plain
    assert "…" not in plain
    assert plain.splitlines()[2] == f"{LONG_ADDRESS}/128"
    assert plain.count(f"via {LONG_ADDRESS}") == (5 if columns == 100 else 0)
    folded = "".join(plain.split())
    for word in ("weight3", "RESOURCE_EXHAUSTED", "(RFC3927)"):
        assert all(part in folded for part in re.findall(r"[a-z0-9]+", word)), plain


def test_every_column_has_a_header(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[str] = []
    for module in (tables, flow_tables, policy_tables):
        monkeypatch.setattr(module, "print_table", lambda _, columns, *__: seen.extend(columns))
    for what, view in tables._VIEWS.items():
        name = "interfaces" if what == "interface" else what.removesuffix(" --generated")
        view(Console(file=io.StringIO()), ANSWERS[name])
    assert len(seen) > 40
    assert all(column.strip(">=") for column in seen)


def test_what_changes_something_says_so(daemon: Path) -> None:
    assert sluice("reload", "--socket", str(daemon)).stdout == "interfaces.eth1.mtu\n"
    assert sluice("clear", "counters", "--socket", str(daemon)).output == ""
    assert [one["command"] for one in asked(daemon)] == ["reload", "clear counters"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("sluice show interfaces ", ["eth1"]),
        ("sluice show interfaces x", []),
        ("sluice show spd co", ["corp"]),
        ("sluice spd export ", ["corp"]),
        ("sluice show route 10.0.0.1 --vrf r", ["red"]),
    ],
)
def test_names_are_completed(daemon: Path, words: str, expected: list[str]) -> None:
    environment = {
        "_SLUICE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
        "SLUICE_SOCKET": str(daemon),
    }
    found = CliRunner().invoke(cli, [], prog_name="sluice", env=environment)
    assert [line.split(",")[1] for line in found.stdout.split()] == expected


def test_without_a_controller_nothing_is_completed(tmp_path: Path) -> None:
    environment = {
        "_SLUICE_COMPLETE": "bash_complete",
        "COMP_WORDS": "sluice show spd ",
        "COMP_CWORD": "3",
        "SLUICE_SOCKET": str(tmp_path / "absent"),
    }
    found = CliRunner().invoke(cli, [], prog_name="sluice", env=environment)
    assert found.output.strip() == ""


def test_generated_rules_are_shown_on_request(daemon: Path) -> None:
    """Checks that `--generated` also shows the generated rules, without rule numbers.

    Operator's rules must have the same numbers as without `--generated`: their positions in the
    file.
    """
    folded = sluice("show", "spd", "--socket", str(daemon)).stdout
    assert "nd-out-v6" not in folded
    shown = sluice("show", "spd", "--generated", "--socket", str(daemon)).stdout
    assert "(generated)" not in shown
    rows = [line.split()[:2] for line in shown.splitlines()]
    assert ["nd-out-v6", "bypass"] in rows
    assert ["1", "web"] in rows


def test_metrics_are_printed_as_they_are(daemon: Path) -> None:
    assert sluice("metrics", "--socket", str(daemon)).stdout == "sluice_synced 1\n"


def test_routes_can_be_chosen(daemon: Path) -> None:
    sluice("show", "routes", "20.0.0.0/8", "--limit", "5", "--socket", str(daemon))
    (line,) = (daemon.parent / "requests").read_text().splitlines()
    assert json.loads(line) == {
        "command": "show",
        "what": "routes",
        "prefix": "20.0.0.0/8",
        "limit": 5,
    }


def test_no_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    absent = sluice("show", "routes", "--socket", str(tmp_path / "r1.sock"))
    assert absent.exit_code == NO_DAEMON
    assert str(tmp_path / "r1.sock") in absent.stderr
    assert "sluice run CONFIG" in absent.stderr
    monkeypatch.setattr(shared, "RUN_DIRECTORIES", (tmp_path,))
    assert sluice("show", "routes").exit_code == NO_DAEMON


def test_the_only_socket_is_found_and_of_several_one_is_to_be_named(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    takeovers = daemon.parent / "takeovers"
    takeovers.mkdir()
    monkeypatch.setattr(shared, "RUN_DIRECTORIES", (takeovers, daemon.parent))
    assert sluice("show", "neighbors").exit_code == 0
    (takeovers / "up.sock").touch()
    (takeovers / "up-p4rt.sock").touch()
    several = sluice("show", "neighbors")
    assert several.exit_code == USAGE
    assert f"({daemon}, {takeovers}/up.sock)" in several.stderr


@pytest.mark.parametrize(
    "words", [["show", "nonsense"], ["nonsense"], ["show", "routes", "--limit", "0"], ["run"]]
)
def test_wrong_usage(words: list[str]) -> None:
    assert sluice(*words).exit_code == USAGE


def test_a_bad_configuration_fails_with_every_problem(tmp_path: Path) -> None:
    path = tmp_path / "r1.yaml"
    path.write_text("router: r1\nfoo: 1\n")
    result = sluice("run", "--check", str(path))
    assert result.exit_code == FAILED
    assert "foo: unknown key" in result.stderr
    assert "interfaces" in result.stderr
    absent = sluice("run", "--check", str(tmp_path / "absent"))
    assert absent.exit_code == FAILED
    assert "No such file" in absent.stderr


def test_a_good_configuration_is_fine(tmp_path: Path) -> None:
    path = tmp_path / "r1.yaml"
    path.write_text('router: r1\ninterfaces: [{name: a, port: 1, mac: "02:00:00:00:00:01"}]\n')
    assert sluice("run", "--check", str(path)).exit_code == 0


def test_the_version_names_commit_and_pipeline() -> None:
    root = Path(__file__).resolve().parents[3]
    pipeline = (root / "p4src/build/v1model/router.json").read_bytes()
    digest = hashlib.sha256(pipeline).hexdigest()[:12]
    asked = ["git", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()
    shown = sluice("--version")
    assert shown.exit_code == 0
    assert shown.stdout == f"sluice {__version__} (commit {commit}, pipeline {digest})\n"


def test_help_and_completion() -> None:
    for words in ([], ["run"], ["show"], ["show", "routes"], ["completion"], ["metrics"]):
        shown = sluice(*words, "--help")
        assert shown.exit_code == 0
        assert "Exit codes" in shown.stdout
    for shell in ("bash", "zsh", "fish"):
        assert "_SLUICE_COMPLETE" in sluice("completion", shell).stdout


@pytest.mark.parametrize("name", ["../r", "a b", "", ".r"])
@pytest.mark.parametrize("command", [["up", "eth1"], ["down"]])
def test_a_takeover_has_a_name_that_is_safe_in_paths(command: list[str], name: str) -> None:
    found = CliRunner().invoke(cli, [*command, "--name", name], prog_name="sluice")
    assert found.exit_code == 2
    assert "Invalid value for '--name'" in found.stderr

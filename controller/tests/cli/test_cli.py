# SPDX-License-Identifier: Apache-2.0
"""The command: tables for people, JSON for programs, exit codes that tell the truth."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sluice import __version__
from sluice.cli import main as cli_main
from sluice.cli.main import cli

FAILED, USAGE, NO_DAEMON = 1, 2, 3

LEG = {"interface": "eth1", "gateway": "10.0.1.9", "mac": "02:00:00:00:09:04", "up": True}
COUNT = {"packets": 1234, "bytes": 99}
ANSWERS: dict[str, Any] = {
    "status": {
        "router": "r1",
        "synced": False,
        "switch": {
            "target": "bmv2",
            "address": "127.0.0.1:9559",
            "connected": False,
            "arbitration": "another controller is primary",
            "last_error": "UNAVAILABLE: gone",
        },
        "fpm": {
            "peer": None,
            "routes": 3,
            "stale_routes": 2,
            "settled": False,
            "waiting_for_objects": {"42": 7},
        },
        "reconciler": {
            "pending": 1,
            "orphans": 4,
            "failed": 1,
            "failures": [{"what": "route 20.0.0.0/8 vrf 0", "error": "RESOURCE_EXHAUSTED"}],
        },
        "problems": {"routes of kernel table 77, which no VRF has": 5},
    },
    "interfaces": [
        {
            "name": "eth1",
            "port": 1,
            "vlan": 10,
            "vrf": "default",
            "up": True,
            "carrier": False,
            "mac": "02:00:00:00:01:01",
            "mtu": 1500,
            "addresses": ["10.0.1.1/24"],
            "received": COUNT,
            "sent": None,
        }
    ],
    "routes": [
        {
            "prefix": "20.0.0.0/8",
            "vrf": 0,
            "protocol": "bgp",
            "action": "group",
            "nexthops": [LEG | {"weight": 3}, LEG | {"weight": 1}],
            "dead_nexthops": [],
            "installed": True,
            "error": None,
        },
        {
            "prefix": "21.0.0.0/8",
            "vrf": 0,
            "protocol": "static",
            "action": "blackhole",
            "nexthops": [],
            "dead_nexthops": [],
            "installed": False,
            "error": "RESOURCE_EXHAUSTED",
        },
    ],
    "nexthops": {
        "nexthops": [LEG | {"id": 1, "used_by": 2, "sent": COUNT}],
        "groups": [{"id": 1, "used_by": 2, "members": [LEG | {"weight": 2}]}],
    },
    "neighbors": [LEG | {"address": "10.0.1.9", "state": "reachable", "age": 1.5, "nexthop": 1}],
    "punts": {
        "reasons": {
            "ARP": {
                "to_cpu": 5,
                "metered_away": None,
                "queue_full": 0,
                "handled": 5,
                "rate": 1000,
            }
        },
        "waiting": 0,
        "held": 1,
        "results": {"icmp sent: NO_ROUTE": 3},
        "held_packets": {"held": 1},
    },
    "counters": {
        "switch_drops": {"MARTIAN": COUNT, "NO_INTERFACE": {"packets": 0, "bytes": 0}},
        "controller": {"fpm": {"frames": 7}},
    },
    "metrics": "sluice_synced 1\n",
}
EXPECTED = {
    "status": ["r1", "no", "UNAVAILABLE: gone", "20.0.0.0/8", "kernel table 77", "object 42"],
    "interfaces": ["eth1", "1.10", "1,234", "10.0.1.1/24"],
    "routes": ["via 10.0.1.9 dev eth1 weight 3", "blackhole", "RESOURCE_EXHAUSTED"],
    "nexthops": ["02:00:00:00:09:04", "weight 2"],
    "neighbors": ["reachable"],
    "punts": ["ARP", "1,000", "icmp sent: NO_ROUTE", "1 are held"],
    "counters": ["MARTIAN", "frames"],
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Path]:
    """A socket that answers from ANSWERS, and keeps the requests beside it."""
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
                answer = {"ok": True, "data": ANSWERS[request["what"]]}
                connection.sendall(json.dumps(answer).encode() + b"\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield path
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


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
    monkeypatch.setattr(cli_main, "RUN_DIRECTORY", tmp_path)
    assert sluice("show", "routes").exit_code == NO_DAEMON


def test_the_only_socket_is_found_and_of_several_one_is_to_be_named(
    daemon: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cli_main, "RUN_DIRECTORY", daemon.parent)
    assert sluice("show", "neighbors").exit_code == 0
    (daemon.parent / "r2.sock").touch()
    several = sluice("show", "neighbors")
    assert several.exit_code == USAGE
    assert "r1.sock, r2.sock" in several.stderr


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


def test_version_help_and_completion() -> None:
    assert __version__ in sluice("--version").stdout
    for words in ([], ["run"], ["show"], ["show", "routes"], ["completion"], ["metrics"]):
        shown = sluice(*words, "--help")
        assert shown.exit_code == 0
        assert "Exit codes" in shown.stdout
    for shell in ("bash", "zsh", "fish"):
        assert "_SLUICE_COMPLETE" in sluice("completion", shell).stdout

# SPDX-License-Identifier: Apache-2.0
"""Tests the metrics of controller and switch.

Prometheus' own tool must accept their format, and the number of label values must be bounded. The
alerts and panels of monitoring/ may name only metrics and values that exist.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any

import pytest
import yaml
from sluice_testkit.target import CPU_PORT
from sluice_testkit.where import sluice_switch

from fake_switch import PIPELINE
from real_switch import Router
from scenes import gateway, route, slot
from sluice import metrics
from sluice._native import P4RuntimeClient
from sluice.api.standby import standby_status
from sluice.api.views import Views
from sluice.config import Config, ConfigError, load_config
from sluice.connection_config import HostPort
from sluice.entities import EntityKind
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Schema, load_pipeline
from sluice.p4runtime.session import Session
from sluice.primacy import Primacy
from sluice.reload import ReloadReport
from test_controller import CONFIG, World, run_scenario  # noqa: F401 - a fixture

MONITORING = Path(__file__).parents[2] / "monitoring"
UNPACKED = Path(__file__).parents[2] / "build/promtool"
METRIC = re.compile(r"\b(?:sluice|process)_[a-z0-9_]+")
REASONS = re.compile(r'reason=~?"([^"]*)"')
Scenario = Callable[[World], Awaitable[None]]
RULE = {"name": "web", "hits": 3, "searched": 1}
POLICY = {
    "spd": "corp",
    "direction": "inbound",
    "epoch": 1,
    "generation": 1,
    "flows": 2,
    "stale_flows": 0,
    "rule_tables": {"rules": 2, "is_complete": False},
    "rules": [RULE],
    "final_discard": {"hits": 5, "searched": 0},
}


def promtool(*words: str, stdin: str | None = None, cwd: Path | None = None) -> str:
    """Runs promtool, which must succeed, and returns its output."""
    program = shutil.which("promtool", path=f"{UNPACKED}:{os.environ['PATH']}")
    assert program, "promtool is missing: run make unit-python, which unpacks it"
    done = subprocess.run(
        [program, *words], input=stdin, cwd=cwd, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


async def text_of(world: World) -> str:
    world.links()
    world.routes.put(route("20.0.0.0/8", gateway("10.0.1.9", 1)))
    await world.until(lambda: slot("20.0.0.0/8") in world.switch.of(EntityKind.ROUTE))
    await world.synced()
    text: str = await Views(world.controller).answer({"command": "show", "what": "metrics"})
    return text


def names(text: str) -> set[str]:
    return {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}


def lines_with(status: dict[str, Any] | None = None, **views: Any) -> list[str]:
    """Returns the metrics, as lines of text, that are derived from these views."""
    config = load_config_of(CONFIG)
    standby = standby_status(config, Primacy(config.switch, nobody), ReloadReport(1.0), 2.0)
    made: dict[str, Any] = {
        "punts": {"reasons": {}},
        "counters": {"switch_drops": {}, "controller": {}},
        "interfaces": [],
        "policy": [],
        "sas": [],
        "engines": {},
    }
    return [*metrics.lines(router="r1", status=standby | (status or {}), **(made | views))]


def nobody(_: object) -> Any:
    raise AssertionError("nobody connects")


def load_config_of(text: str) -> Config:
    with NamedTemporaryFile("w", suffix=".yaml") as file:
        file.write(text)
        file.flush()
        return load_config(file.name)


def test_promtool_takes_them(run_scenario: Callable[[Scenario], None]) -> None:  # noqa: F811
    async def scenario(world: World) -> None:
        text = await text_of(world)
        promtool("check", "metrics", stdin=text)
        assert 'sluice_role{router="r1",role="primary"} 1\n' in text
        assert 'sluice_role{router="r1",role="standby"} 0\n' in text
        assert re.search(r"^process_cpu_seconds_total\{.*\} [0-9.]+$", text, re.MULTILINE)

    run_scenario(scenario)


def test_a_standby_has_those_of_its_process() -> None:
    config = load_config_of(CONFIG)
    report = ReloadReport(1.0, "no")
    status = standby_status(config, Primacy(config.switch, nobody), report, 2.0)
    text = "\n".join(metrics.standby_lines(status)) + "\n"
    promtool("check", "metrics", stdin=text)
    assert 'sluice_role{router="r1",role="waiting for the switch"} 1\n' in text
    assert 'sluice_config_last_reload_successful{router="r1"} 0\n' in text
    assert "sluice_synced" not in text


def test_labels_are_bounded() -> None:
    """Checks that the number of label values is bounded.

    Error texts and rule names are used as label values, and there may be any number of them.
    """
    events = {f"counters not read: {n}": 1 for n in range(1000)}
    rules = [RULE | {"name": f"r{n}"} for n in range(5000)]
    found = lines_with(
        counters={"switch_drops": {}, "controller": {"kernel": events}},
        policy=[POLICY | {"rules": rules}],
    )
    counted = [line for line in found if line.startswith("sluice_controller_events_total{")]
    assert len(counted) == metrics.MOST + 1
    assert counted[-1].endswith(f'what="other"}} {1000 - metrics.MOST}')
    assert sum(line.startswith("sluice_rule_hits_total{") for line in found) == metrics.RULES
    assert f'sluice_rules_left_out{{router="r1"}} {5001 - metrics.RULES}' in found
    whole = 'sluice_spd_hits_total{router="r1",spd="corp",direction="inbound"}'
    assert f"{whole} {5000 * 3 + 5}" in found


def test_counts_keep_all_their_digits() -> None:
    found = lines_with(
        counters={"switch_drops": {"TTL": {"packets": 12345678901}}, "controller": {}}
    )
    assert 'sluice_switch_drops_total{router="r1",reason="TTL"} 12345678901' in found


# --- metrics of the switch ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def of_the_switch(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns the metrics of a sluice-switch that runs the router, with IPv4 and IPv6 routes."""
    directory = tmp_path_factory.mktemp("switch")
    grpc, metrics = f"unix:{directory}/p4rt.sock", directory / "metrics.sock"
    program = [str(sluice_switch()), str(PIPELINE / "router.json")]
    options = ["--p4info", str(PIPELINE / "router.p4info.txtpb"), "--admin", "none"]
    options += ["-i", "1@discard:one", "--cpu-port", str(CPU_PORT), "--device-id", "1"]
    options += ["--grpc-server-addr", grpc, "--metrics-address", f"unix:{metrics}"]
    with subprocess.Popen([*program, *options], stderr=subprocess.PIPE, text=True) as switch:
        try:
            assert switch.stderr is not None
            assert any(line == "sluice-switch: ready\n" for line in switch.stderr)
            asyncio.run(asyncio.wait_for(give_routes(grpc), 60))
            return scraped(metrics)
        finally:
            switch.terminate()


async def give_routes(grpc: str) -> None:
    """Writes routes of some prefixes to the switch."""
    session = Session(P4RuntimeClient(grpc, 1, (0, 1)), 1, (0, 1), None, lambda _: None)
    try:
        await session.become_primary()
        pipeline = load_pipeline(PIPELINE)
        await session.ensure_pipeline(pipeline.p4info, pipeline.device_config)
        router = Router(session)
        await router.read()
        router.interfaces()
        await router.settle()
    finally:
        session.close()
        await session.closed


def scraped(path: Path) -> str:
    """Returns the metrics that are served at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(10)
        client.connect(str(path))
        client.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        with client.makefile() as answer:
            head, _, text = answer.read().partition("\n\n")
    assert "200 OK" in head
    return text


def test_promtool_takes_those_of_the_switch(of_the_switch: str) -> None:
    promtool("check", "metrics", stdin=of_the_switch)
    for name in ("port_up", "table_entries", "fib_info", "dropped_packets_total", "uptime_seconds"):
        assert f"\nsluice_dataplane_{name}" in of_the_switch
    for version in (4, 6):
        routes = rf'^sluice_dataplane_fib_routes{{table="[\w.]*ipv{version}_fib",vrf="0"}} [1-9]'
        assert re.search(routes, of_the_switch, re.MULTILINE)
    limit = 'table_limit_entries{table="v1model_ingress.router.flow_cache.outbound.'
    assert limit in of_the_switch


def test_no_metric_of_the_switch_is_called_as_one_of_the_controller_s(of_the_switch: str) -> None:
    both = names(of_the_switch) & names("\n".join(lines_with(policy=[POLICY])))
    assert not {name for name in both if not name.startswith("process_")}


# --- monitoring/ ----------------------------------------------------------------------------------


def expressions() -> list[tuple[str, str]]:
    """Returns each PromQL expression of monitoring/ with the name of its alert, panel or
    variable.
    """
    rules = yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    found = [(rule["alert"], rule["expr"]) for group in rules["groups"] for rule in group["rules"]]
    dashboard = json.loads((MONITORING / "dashboard.json").read_text())
    for panel in dashboard["panels"]:
        found += [(panel["title"], target["expr"]) for target in panel["targets"]]
    variables = dashboard["templating"]["list"]
    return found + [
        (one["name"], one["query"]["query"]) for one in variables if one["type"] == "query"
    ]


def test_alerts_and_panels_name_metrics_that_there_are(of_the_switch: str) -> None:
    known = names("\n".join(lines_with(policy=[POLICY]))) | names(of_the_switch)
    found = expressions()
    assert len(found) > 25
    for where, expression in found:
        for name in METRIC.findall(expression):
            assert name in known, f"{where}: there is no {name}"
    assert any(METRIC.search(expression) for _, expression in found)


def test_alerts_name_reasons_that_there_are(of_the_switch: str) -> None:
    schema = Schema(load_pipeline(PIPELINE).p4info)
    punts = {reason.value for reason in PacketSchema(schema).reasons.values()}
    known = punts | set(schema.enum("drop_reason_t")) | set(REASONS.findall(of_the_switch))
    named = {
        name
        for _, expression in expressions()
        for reasons in REASONS.findall(expression)
        for name in reasons.split("|")
    }
    assert named
    assert named <= known


def test_promtool_takes_the_rules_and_they_alert() -> None:
    promtool("check", "rules", str(MONITORING / "alerts.yaml"))
    promtool("test", "rules", "alerts_test.yaml", cwd=MONITORING)
    promtool("check", "config", "prometheus.yaml", cwd=MONITORING)


def test_off_unless_configured_and_never_beyond_this_host(tmp_path: Path) -> None:
    path = tmp_path / "r1.yaml"
    path.write_text(CONFIG)
    assert load_config(path).metrics_listen is None
    path.write_text(CONFIG + 'metrics: {listen: "127.0.0.1:9109"}\n')
    assert load_config(path).metrics_listen == HostPort("127.0.0.1", 9109)
    path.write_text(CONFIG + 'metrics: {listen: "0.0.0.0:9109"}\n')
    with pytest.raises(ConfigError, match="metrics have no authentication"):
        load_config(path)

# SPDX-License-Identifier: Apache-2.0
"""Runs a router whose second interface has an SPD, for benchmarks of the flow cache.

    host1 --- eth1 [ router ] eth2 --- host2

Packets go from host1 to host2, so each needs a verdict of the SPD's outbound list.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.switch_reader import SwitchReader
from sluice_testkit import where
from sluice_testkit.controller import Controller
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.process import Process, Supervisor
from sluice_testkit.target import Target
from sluice_testkit.wait import wait_until

SPD = "guard"
HOST_MAC = "02:bb:00:00:00:%02x"
PORT_MAC = "02:00:00:00:01:%02x"
PORTS = (1, 2)
DEVICE_ID = 1
PUNT_RATE = {"rate": 1_000_000, "burst": 100_000}
INBOUND = [{"name": "all", "action": "bypass"}]


def configuration(
    address: str,
    outbound: Sequence[Mapping[str, Any]],
    flow_cache: Mapping[str, Any],
    mode: str,
) -> dict[str, Any]:
    """Returns the configuration of the router. `mode` is the mode of the SPD."""
    lists = {"inbound": INBOUND, "outbound": [dict(rule) for rule in outbound]}
    switch = {"target": "sluice-switch", "address": address}
    return {
        "router": "bench",
        "switch": switch | {"device_id": DEVICE_ID, "cpu_port": 510},
        "fpm": {"listen": "127.0.0.1:2620"},
        "spds": [{"name": SPD, "mode": mode, "flow_cache": dict(flow_cache)} | lists],
        "punt_rates": {"OUTBOUND_MISS": PUNT_RATE},
        "interfaces": [
            {
                "name": f"eth{port}",
                "port": port,
                "device": f"port{port}",
                "mac": PORT_MAC % port,
                "mtu": 1500,
                "addresses": [f"10.{port}.0.1/16"],
                "spd": SPD if port == 2 else "none",
            }
            for port in PORTS
        ],
    }


@dataclass
class PolicyRouter:
    """Runs the router and sends packets through it."""

    namespace: Namespace
    target: Target
    controller: Controller
    supervisor: Supervisor
    switch: SwitchReader

    def send(self, flows: Iterable[str], pace: Iterable[str]) -> Process:
        """Starts to send packets to host2. `flows` and `pace` are options of sluice-traffic."""
        macs = ["--dst-mac", PORT_MAC % 1, "--src-mac", HOST_MAC % 1]
        argv = [str(where.sluice_traffic()), "gen", "--tx", "host1", *macs, *flows, *pace]
        return self.supervisor.start("traffic", self.namespace.argv(argv))

    @staticmethod
    def wait_sent(sender: Process, deadline: float) -> None:
        """Waits until a sender has sent all packets. Raises AssertionError if it fails."""
        wait_until(lambda: not sender.running(), deadline, "the packets to be sent")
        assert sender.exit_status() == 0, sender.tail()

    def counters(self, group: str) -> dict[str, int]:
        """Returns a group of the controller's counters."""
        found = self.controller.ask(command="show", what="counters")["controller"][group]
        assert isinstance(found, dict)
        return found

    def rules(self) -> list[tuple[int, str]]:
        """Returns number and name of the rules of the outbound list, in order. Omits the
        generated rules."""
        listed = self.controller.ask(command="show", what="spd", spd=SPD)
        (rules,) = (one["rules"] for one in listed if one["direction"] == "outbound")
        return [(int(one["id"]), str(one["name"])) for one in rules if not one["generated"]]

    def epoch(self) -> int:
        """Returns the epoch of the outbound list."""
        listed = self.controller.ask(command="show", what="flow-cache", spd=SPD)
        (epoch,) = (int(one["epoch"]) for one in listed if one["direction"] == "outbound")
        return epoch

    def wait_for_hosts(self) -> None:
        """Waits until the switch has the routes to both hosts."""
        wanted = {f"10.{port}.0.2/32" for port in PORTS}

        def reachable() -> bool:
            routes = self.controller.show("routes")
            return wanted <= {route["prefix"] for route in routes if route["installed"]}

        wait_until(reachable, 20, "routes to the hosts", interval=0.1)


@contextlib.contextmanager
def started(
    lab: Lab,
    outbound: Sequence[Mapping[str, Any]],
    flow_cache: Mapping[str, Any],
    *,
    mode: str = "cache",
    rule_file: Path | None = None,
) -> Iterator[PolicyRouter]:
    """Starts switch and controller, with two hosts on veth pairs and their neighbour entries.

    With `rule_file`, the configuration takes the rules from this file instead of `outbound`.
    """
    namespace = lab.namespace("bench")
    ports = {port: f"port{port}" for port in PORTS}
    for port, device in ports.items():
        veth(namespace, device, namespace, f"host{port}")
        namespace.silence(f"host{port}")
    address = f"unix:{lab.directory / 'switch.sock'}"
    target = Target(namespace, ports, lab.supervisor, name="sluice-switch", address=address)
    config = configuration(address, outbound, flow_cache, mode)
    if rule_file is not None:
        (spd,) = config["spds"]
        del spd["inbound"], spd["outbound"]
        spd["file"] = str(rule_file)
    controller = Controller("bench", namespace, config, lab.directory, lab.supervisor)
    target.start()
    controller.start(deadline=300)
    for port in ports:
        entry = (f"10.{port}.0.2", "lladdr", HOST_MAC % port, "nud", "permanent")
        namespace.run("ip", "neighbor", "replace", *entry, "dev", f"eth{port}")
    with SwitchReader(address, DEVICE_ID) as switch:
        router = PolicyRouter(namespace, target, controller, lab.supervisor, switch)
        router.wait_for_hosts()
        yield router


def load_averages() -> list[float]:
    """Returns the machine's load averages of 1, 5 and 15 minutes."""
    return [float(one) for one in Path("/proc/loadavg").read_text().split()[:3]]

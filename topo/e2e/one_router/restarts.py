# SPDX-License-Identifier: Apache-2.0
"""Restarts a router with a changed configuration, and observes the effect on traffic.

A `RestartSetting` holds what the operator changes between two runs: the order of the interfaces,
their SPDs, and the SPDs' rules. `Traffic` sends continuously from every host to every other host,
and `Traffic.seen` returns the packets that arrived at each host. A setting permits a packet if two
lists permit it: the inbound list of the sender's interface and the outbound list of the receiver's
interface.
"""

import random
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

from sluice_testkit.capture import Capture
from sluice_testkit.wait import wait_until

from .network import EVERYTHING, HOSTS, ROOMY, SITE, OneRouter, udp
from .walking import MARK, PAYLOAD, number_of

INTERFACES = tuple(f"eth{number}" for number in range(1, len(HOSTS) + 1))
NONE = "none"
FIRST_FLOW_PORT = 20000
PASSED = 3
"""Number of packets that must arrive before a flow counts as passing."""


class TrafficPath(NamedTuple):
    """Identifies one flow of the traffic. Each flow has its own UDP port.

    The destination is an address of the host `sink`, or the site behind it, which a static route
    reaches via b.
    """

    source: str
    sink: str
    to_site: bool
    port: int


_ENDS = [
    *((source, sink, False) for source, sink in permutations(HOSTS, 2)),
    ("a", "b", True),
]
TRAFFIC_PATHS = tuple(TrafficPath(*ends, FIRST_FLOW_PORT + at) for at, ends in enumerate(_ENDS))
INTERFACE_OF = dict(zip(HOSTS, INTERFACES, strict=True))


class Discards(NamedTuple):
    """Holds the UDP ports that the two lists of an SPD discard. All other packets pass."""

    inbound: frozenset[int] = frozenset()
    outbound: frozenset[int] = frozenset()


@dataclass(frozen=True)
class RestartSetting:
    """Holds the part of a configuration that a restart changes.

    `guards` maps an interface to its SPD, or to `none`.

    With `forgotten`, the file of interface numbers is deleted. Then the order of the interfaces
    determines their numbers.
    """

    order: tuple[str, ...] = INTERFACES
    guards: Mapping[str, str] = field(default_factory=dict)
    spds: Mapping[str, Discards] = field(default_factory=dict)
    forgotten: bool = False

    def allows(self, path: TrafficPath) -> bool:
        """Returns whether the flow passes: the sender's inbound list and the receiver's outbound
        list must permit it.
        """
        first, last = (self.guard(INTERFACE_OF[host]) for host in (path.source, path.sink))
        return path.port not in first.inbound and path.port not in last.outbound

    def guard(self, interface: str) -> Discards:
        """Returns the discards of the SPD that guards an interface."""
        return self.spds.get(self.guards.get(interface, NONE), Discards())

    def treats_equally(self, other: "RestartSetting", interface: str) -> bool:
        """Returns whether a restart from `other` to this setting changes nothing for an
        interface.
        """
        name = self.guards.get(interface, NONE)
        return (
            name == other.guards.get(interface, NONE)
            and self.spds.get(name) == other.spds.get(name)
            and not self.forgotten
        )

    def configure(self, config: dict[str, Any]) -> None:
        """Changes a controller's configuration according to the setting."""
        if self.forgotten:
            (Path(config["state_dir"]) / "interfaces.json").unlink()
        known = {one["name"]: one for one in config["interfaces"]}
        config["interfaces"] = [
            known[name] | {"spd": self.guards.get(name, NONE)} for name in self.order
        ]
        config["spds"] = [
            {
                "name": name,
                "flow_cache": ROOMY,
                "inbound": _rules(ports.inbound),
                "outbound": _rules(ports.outbound),
            }
            for name, ports in self.spds.items()
        ]


def _rules(discarded: frozenset[int]) -> list[dict[str, Any]]:
    return [udp("no", "discard", *sorted(discarded)), EVERYTHING] if discarded else [EVERYTHING]


def draw(dice: random.Random, before: RestartSetting | None = None) -> RestartSetting:
    """Draws a random setting. If `before` is given, some parts are copied from it."""
    names = ["north", "east", "south", "west", "upper", "lower"]
    dice.shuffle(names)
    spds = {name: Discards(_draw_ports(dice), _draw_ports(dice)) for name in names[:4]}
    order = tuple(dice.sample(INTERFACES, len(INTERFACES)))
    if before is not None:
        spds |= {name: old for name, old in before.spds.items() if dice.random() < 0.5}
        order = before.order if dice.random() < 0.3 else order
    guards = {name: dice.choice([*spds, NONE]) for name in INTERFACES}
    if before is not None:
        kept = [one for one in INTERFACES if before.guards.get(one, NONE) in {*spds, NONE}]
        guards |= {one: before.guards.get(one, NONE) for one in kept if dice.random() < 0.4}
    return RestartSetting(order, guards, spds, forgotten=before is not None and dice.random() < 0.4)


def _draw_ports(dice: random.Random) -> frozenset[int]:
    return frozenset(path.port for path in TRAFFIC_PATHS if dice.random() < 0.35)


class Traffic:
    """Sends packets of all flows, `rate` per second for each flow. Captures them at every host."""

    def __init__(self, network: OneRouter, rate: float = 60.0) -> None:
        self._network = network
        self._interval = 1 / (rate * len(TRAFFIC_PATHS))
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._sinks: list[socket.socket] = []
        self._sources: dict[TrafficPath, tuple[socket.socket, str]] = {}
        self._captures: dict[str, Capture] = {}
        self.sent: dict[TrafficPath, list[int]] = {path: [] for path in TRAFFIC_PATHS}
        self._path_of_port: dict[int, TrafficPath] = {}
        self._number = 0

    def _run(self) -> None:
        while True:
            for path in TRAFFIC_PATHS:
                if self._stop.wait(self._interval):
                    return
                self._number += 1
                self.sent[path].append(self._number)
                self._path_of_port[self._number] = path
                source, destination = self._sources[path]
                source.sendto(PAYLOAD.pack(MARK, self._number), (destination, path.port))

    def seen(self) -> dict[tuple[TrafficPath, str], list[int]]:
        """Returns the numbers of the captured packets, by flow and by the host at which they
        arrived.
        """
        found: dict[tuple[TrafficPath, str], list[int]] = defaultdict(list)
        for host, capture in self._captures.items():
            for frame in capture.frames():
                number = number_of(frame)
                found[self._path_of_port[number], host].append(number)
        return found

    def wait_until_passing(self, setting: RestartSetting, deadline: float = 30.0) -> None:
        """Waits until all permitted flows pass and the controller searches no more rules for
        them.
        """
        end = time.monotonic() + deadline
        searched = None
        while searched != (searched := self._network.searched()):
            marks = {path: self.sent[path][-1] for path in TRAFFIC_PATHS if self.sent[path]}
            for path in TRAFFIC_PATHS:
                if setting.allows(path):
                    passing = partial(self._passed_since, path, marks.get(path, 0))
                    wait_until(passing, end - time.monotonic(), f"{path} to pass")

    def _passed_since(self, path: TrafficPath, mark: int) -> bool:
        return sum(number > mark for number in self.seen()[path, path.sink]) >= PASSED

    def __enter__(self) -> Self:
        for path in TRAFFIC_PATHS:
            sink = self._network.host(path.sink).socket(socket.AF_INET, socket.SOCK_DGRAM)
            sink.bind(("", path.port))
            self._sinks.append(sink)
            source = self._network.host(path.source).socket(socket.AF_INET, socket.SOCK_DGRAM)
            destination = SITE[4] if path.to_site else self._network.address(path.sink)
            self._sources[path] = source, destination
        for host in HOSTS:
            place = self._network.host(host)
            keep = lambda frame: not frame.outgoing and MARK in frame.data  # noqa: E731
            self._captures[host] = Capture(place, "eth0", keep)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Stops sending."""
        self._stop.set()
        self._thread.join()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        for capture in self._captures.values():
            capture.stop()
        for one in (*self._sinks, *(source for source, _ in self._sources.values())):
            one.close()


def leaks(traffic: Traffic, old: RestartSetting, new: RestartSetting) -> list[str]:
    """Describes packets that both settings forbid, and packets that arrived at a wrong host."""
    found = []
    for (path, host), numbers in traffic.seen().items():
        if host != path.sink:
            found.append(f"{path}: {len(numbers)} packets out to {host}")
        elif not old.allows(path) and not new.allows(path):
            found.append(f"{path}: {len(numbers)} packets that both settings forbid")
    return found


def losses(traffic: Traffic, old: RestartSetting, new: RestartSetting) -> list[str]:
    """Describes packets lost from flows that the change does not affect.

    Precondition: all sent packets have arrived or were dropped.
    """
    found = []
    seen = traffic.seen()
    for path in TRAFFIC_PATHS:
        ends = INTERFACE_OF[path.source], INTERFACE_OF[path.sink]
        if old.allows(path) and all(new.treats_equally(old, one) for one in ends):
            lost = sorted({*traffic.sent[path]} - {*seen[path, path.sink]})
            if lost:
                found.append(f"{path}: {len(lost)} of {len(traffic.sent[path])} packets lost")
    return found

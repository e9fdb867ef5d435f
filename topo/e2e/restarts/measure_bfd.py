# SPDX-License-Identifier: Apache-2.0
"""Measures how long BFD is silent while the controller is killed and restarted: `make bench-bfd`.

    python -m e2e.restarts.measure_bfd [--kills N]        (in topo/, with the controller's Python)

The network is that of the restart proofs, with four BFD sessions between r1 and its neighbours. One
session sends every 50 ms, and its timeout is so long that it cannot expire. The gaps between its
packets are the silence, measured on the neighbour's link and on r1's host interface.

The other sessions send every 100, 300 and 500 ms, and expire after three intervals. FRR counts how
often they go down. The program prints one JSON object and does not judge the result.
"""

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Iterator
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NamedTuple

from sluice_testkit.capture import Capture
from sluice_testkit.frr import Frr
from sluice_testkit.namespaces import Lab
from sluice_testkit.packet import UDP, Frame
from sluice_testkit.wait import wait_until

from .network import Restarts

BFD_PORT = 3784
KILLS = 20


class Session(NamedTuple):
    """Describes a BFD session of r1. `interface` is the interface of r1. The neighbour uses its
    eth1.
    """

    neighbor: str
    interface: str
    own: str
    peer: str
    interval: int
    multiplier: int

    def lines(self, of_neighbor: bool) -> Iterator[str]:
        """Yields the FRR configuration lines of one end: r1's, or the neighbour's."""
        own, peer, interface = self.own, self.peer, self.interface
        if of_neighbor:
            own, peer, interface = peer, own, "eth1"
        yield f"peer {peer} local-address {own} interface {interface}"
        yield f"detect-multiplier {self.multiplier}"
        yield f"receive-interval {self.interval}"
        yield f"transmit-interval {self.interval}"
        yield "exit"


PROBE = Session("t1", "eth2", "10.0.1.1", "10.0.1.2", 50, 200)
JUDGED = (
    Session("t1", "eth2", "2001:db8:0:1::1", "2001:db8:0:1::2", 100, 3),
    Session("t2", "eth3", "10.0.2.1", "10.0.2.2", 300, 3),
    Session("t2", "eth3", "2001:db8:0:2::1", "2001:db8:0:2::2", 500, 3),
)


def configure(network: Restarts, sessions: tuple[Session, ...]) -> None:
    """Starts bfdd on all routers and configures the sessions. Waits until all are up."""
    daemons = {"r1": network.router.frr} | {n: r.frr for n, r in network.transit.items()}
    for name, frr in daemons.items():
        frr.start_daemon("bfdd")
        mine = [one for one in sessions if name in ("r1", one.neighbor)]
        lines = [line for one in mine for line in one.lines(of_neighbor=name != "r1")]
        frr.configure("bfd", *lines)
    wait_until(lambda: not down(network, sessions), 30, "BFD sessions", interval=0.1)


def down(network: Restarts, sessions: tuple[Session, ...]) -> list[str]:
    """Returns the peer addresses of the sessions that r1 does not report as up."""
    up = {peer["peer"] for peer in peers(network.router.frr) if peer["status"] == "up"}
    return [one.peer for one in sessions if one.peer not in up]


def peers(frr: Frr) -> list[dict[str, Any]]:
    """Returns the sessions that bfdd lists."""
    shown: list[dict[str, Any]] = frr.json("show bfd peers json")
    return shown


def falls(network: Restarts, session: Session) -> int:
    """Returns how often the session went down. If the two ends disagree, returns the larger
    number.
    """
    counts = [0]
    for frr in (network.router.frr, network.transit[session.neighbor].frr):
        for one in frr.json("show bfd peers counters json"):
            if one["peer"] in (session.own, session.peer):
                counts.append(one["session-down"])
    return max(counts)


def from_probe(frame: Frame) -> bool:
    """Returns whether the frame belongs to the session that measures the silence."""
    ends = {frame.source, frame.destination}
    ours = ends == {PROBE.own, PROBE.peer}
    return ours and frame.protocol == UDP and frame.destination_port == BFD_PORT


def silence(capture: Capture, source: str, begin: float) -> float:
    """Returns the longest gap between packets of `source`, in milliseconds. Counts from shortly
    before `begin`.
    """
    times = [frame.time for frame in capture.frames() if frame.source == source]
    times = [one for one in times if one >= begin - 0.2]
    return 1000 * max(later - earlier for earlier, later in pairwise(times))


def measure(network: Restarts, kills: int) -> dict[str, Any]:
    """Kills and restarts the controller `kills` times. Returns the silences and the lost BFD
    sessions.
    """
    sessions = (PROBE, *JUDGED)
    configure(network, sessions)
    before = [falls(network, one) for one in JUDGED]
    fell = dict.fromkeys((f"{one.interval} ms x {one.multiplier}" for one in JUDGED), 0)
    silent: dict[str, list[float]] = {"to the neighbour": [], "to the host": [], "to ready": []}
    with ExitStack() as stack:
        link = stack.enter_context(Capture(network.transit["t1"].namespace, "eth1", from_probe))
        host = stack.enter_context(Capture(network.router.namespace, "eth2", from_probe))
        for _ in range(kills):
            wait_until(lambda: not down(network, sessions), 30, "BFD sessions", interval=0.1)
            for capture in (link, host):
                capture.clear()
                capture.wait_for(from_probe, count=20)
            begin = time.time()
            network.controller.kill()
            network.controller.start()
            silent["to ready"].append(1000 * (time.time() - begin))
            network.wait_until_equal()
            for capture in (link, host):
                capture.wait_for(lambda frame: frame.time > time.time() - 0.05, count=1)
            silent["to the neighbour"].append(silence(link, PROBE.own, begin))
            silent["to the host"].append(silence(host, PROBE.peer, begin))
            after = [falls(network, one) for one in JUDGED]
            for name, earlier, later in zip(fell, before, after, strict=True):
                fell[name] += later > earlier
            before = after
    return {
        "machine": {"cores": os.cpu_count(), "kernel": platform.release(), "load": os.getloadavg()},
        "kills": kills,
        "milliseconds": {
            name: {
                "median": round(statistics.median(values)),
                "longest": round(max(values)),
                "all": [round(value) for value in values],
            }
            for name, values in silent.items()
        },
        "kills in which a session fell": fell,
    }


def main() -> None:
    """Measures and prints the result."""
    parser = argparse.ArgumentParser(
        prog="measure_bfd", description="Measures BFD while the controller is killed and restarted"
    )
    parser.add_argument(
        "--kills", type=int, default=KILLS, help=f"number of kills (default: {KILLS})"
    )
    arguments = parser.parse_args()
    with Lab() as lab, ExitStack() as stack:
        network = Restarts(lab, stack)
        network.start()
        print(json.dumps(measure(network, arguments.kills), indent=2))


if __name__ == "__main__":
    main()

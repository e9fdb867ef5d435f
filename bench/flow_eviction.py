# SPDX-License-Identifier: Apache-2.0
"""Compares the hit rate of a full flow cache with that of true LRU: `make bench-flow-eviction`.

    python -m bench.flow_eviction [--rounds N] [--size N] [--no-switch] [--look]

`bench.flow_simulation` runs the controller's own flow cache and a true LRU cache with the same
packets. The packet rates are such that LRU has some 10,000 new flows (misses) a second. In the
largest case, the cache holds 1,048,576 flows. Smaller cases show that the difference between the
two hit rates hardly depends on the cache's size and the trace's exponent.

A second measurement uses a real switch and controller, which get packets from sluice-traffic. The
cache is smaller and the rate is lower. The hit rate is computed from the switch's counters. The
peer is a true LRU cache that gets the same frames. The controller's CPU time is measured too.

A case is measured by `--rounds` seeds; the largest one by a single seed. With `--look` or another
`--size` of the largest case, no results are written. `--no-switch` leaves out the real switch.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from bench.bars import compare_with_bars
from bench.cpu import process_seconds
from bench.flow_simulation import SimulationResult, Trace, TrueLru, simulate
from bench.policy_router import load_averages, started
from bench.switch_reader import PacketCounts
from sluice_testkit.bench import BenchCase, write_results
from sluice_testkit.namespaces import Lab, Namespace
from sluice_testkit.wait import wait_until

FULL_SIZE = 1 << 20
SMALL_SIZE = 1 << 16
SHARE = 10
"""Population of a trace, as a multiple of the cache's size."""
ROUNDS = 3
SMALL = (
    Trace(0.8, SHARE * SMALL_SIZE, 17_500, SMALL_SIZE),
    Trace(1.0, SHARE * SMALL_SIZE, 44_000, SMALL_SIZE),
    Trace(1.2, SHARE * SMALL_SIZE, 175_000, SMALL_SIZE),
    Trace(1.0, SHARE * SMALL_SIZE, 20_000, SMALL_SIZE, single=4_500),
)
FULL_RATE = 52_500
"""Packets a second of the trace through the largest cache."""
REAL = Trace(1.0, SHARE * (1 << 14), 4_000, 1 << 14)
SOURCE_PORTS = 1 << 14
FIRST_SOURCE_PORT = 1024
ETH_P_ALL, SO_RCVBUFFORCE = 3, 33
RECEIVE_BUFFER, FRAME_BYTES = 64 << 20, 64
IPV4 = b"\x08\x00"
PORTS_AT = slice(34, 38)
"""The UDP ports of an Ethernet frame with IPv4."""


class RealResult(NamedTuple):
    """Holds the hit rates of the real router and of LRU, and rates per second."""

    hit_rate: float
    lru: float
    packets: float
    new_flows: float
    evictions: float
    controller_cpu: float


def simulated(trace: Trace, seeds: int) -> tuple[BenchCase, list[SimulationResult]]:
    """Simulates a trace with several seeds."""
    # Before the measurement, the cache is filled, and then all its flows are replaced twice. During
    # the measurement, they are replaced once more.
    turnover = trace.size / 10_000
    warmup, seconds = 2 * turnover, max(turnover, 10.0)
    found, start = [], time.process_time()
    for seed in range(1, seeds + 1):
        found.append(simulate(trace, warmup, seconds, seed))
    details = {
        "kind": "simulation",
        "packets a second": trace.rate + trace.single,
        "new flows a second": round(statistics.median(one.new_flows for one in found)),
        "evictions a second": round(statistics.median(one.evictions for one in found)),
        "counters read a second": round(statistics.median(one.counters_read for one in found)),
        "seeds": seeds,
        "cpu seconds": round(time.process_time() - start, 1),
    }
    case = BenchCase(
        f"{trace.name}, simulated",
        [one.ours for one in found],
        {"lru": [one.lru for one in found]},
        details,
    )
    return case, found


class FrameObserver:
    """Passes the frames that enter a router's port to a true LRU cache, in a thread."""

    def __init__(self, namespace: Namespace, port: str, size: int) -> None:
        self._socket = namespace.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self._socket.bind((port, 0))
        self._socket.settimeout(0.2)
        self._lru = TrueLru(size)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.counts = PacketCounts(0, 0)

    def __enter__(self) -> FrameObserver:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        self._thread.join()
        self._socket.close()

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                frame, address = self._socket.recvfrom(FRAME_BYTES)
            except TimeoutError:
                continue
            is_packet = frame[12:14] == IPV4 and frame[23] == socket.IPPROTO_UDP
            if is_packet and address[2] != socket.PACKET_OUTGOING:
                hits = self._lru.hits([int.from_bytes(frame[PORTS_AT], "big")])
                self.counts = PacketCounts(self.counts.hits + hits, self.counts.misses + 1 - hits)


def measured(trace: Trace, seconds: float) -> RealResult:
    """Sends the packets of a trace through a real router. Returns the rates of the last
    `seconds`."""
    rules = [{"name": "all", "action": "bypass"}]
    cache = {"size": trace.size, "idle_timeout": round(trace.idle_timeout)}
    flows = ["--src", "10.1.0.2", "--dst", "10.2.0.2", "--pick", f"zipf:{trace.exponent}"]
    flows += ["--sport", f"{FIRST_SOURCE_PORT}+{SOURCE_PORTS}"]
    flows += ["--dport", f"9+{trace.population // SOURCE_PORTS}"]
    pace = ["--rate", str(trace.rate), "--arrivals", "poisson", "--duration", "3600"]
    with (
        Lab() as lab,
        started(lab, rules, cache) as router,
        FrameObserver(router.namespace, "port1", trace.size) as observer,
    ):
        sender = router.send(flows, pace)

        def evicted() -> int:
            assert sender.running(), sender.tail()
            return router.counters("flow_caches").get("flows evicted", 0)

        wait_until(lambda: evicted() >= 2 * trace.size, 600, "two full caches", interval=1.0)
        (rule,) = (identifier for identifier, _ in router.rules())
        start, before, evictions = time.monotonic(), router.switch.outbound([rule]), evicted()
        cpu, seen = process_seconds(router.controller.pid), observer.counts
        time.sleep(seconds)
        after = router.switch.outbound([rule]).since(before)
        lru = observer.counts.since(seen)
        spent = process_seconds(router.controller.pid) - cpu
        took = time.monotonic() - start
        result = RealResult(
            after.hit_rate,
            lru.hit_rate,
            after.packets / took,
            after.misses / took,
            (evicted() - evictions) / took,
            spent / took,
        )
        sender.stop()
    return result


def real_case(trace: Trace, rounds: int, seconds: float) -> BenchCase:
    """Measures the real router, and LRU with the same frames."""
    found = [measured(trace, seconds) for _ in range(rounds)]
    lru = [one.lru for one in found]
    medians = RealResult(*(statistics.median(values) for values in zip(*found, strict=True)))
    details = {
        "kind": "measurement",
        "packets a second": round(medians.packets),
        "new flows a second": round(medians.new_flows),
        "evictions a second": round(medians.evictions),
        "controller's CPU": round(medians.controller_cpu, 3),
        "rounds": rounds,
    }
    return BenchCase(
        f"{trace.name}, real switch", [one.hit_rate for one in found], {"lru": lru}, details
    )


def tell(case: BenchCase) -> dict[str, Any]:
    """Prints a case and returns it as results have it."""
    shown = case.as_dict()
    ours, lru, ratio = shown["ours"], shown["peers"]["lru"], shown["ratio"]["lru"]
    rates = ", ".join(f"{name} {value:,}" for name, value in case.details.items() if name != "kind")
    compared = f"hit rate {ours:.2%}, LRU {lru:.2%}, difference {ratio - 1:+.2%}"
    print(f"{case.workload}: {compared} ({rates})", flush=True)
    return shown


def main(words: Iterable[str] | None = None) -> int:
    """Parses the command line, measures and writes the results."""
    parser = argparse.ArgumentParser(
        prog="flow_eviction", description="Compares a full flow cache's hit rate with LRU's"
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"default: {ROUNDS}")
    parser.add_argument(
        "--size", type=int, default=FULL_SIZE, help=f"flows of the largest case: {FULL_SIZE:,}"
    )
    parser.add_argument("--seconds", type=float, default=30.0, help="of the real router: 30")
    parser.add_argument("--no-switch", action="store_true", help="simulate only")
    parser.add_argument("--look", action="store_true", help="write no results")
    arguments = parser.parse_args(None if words is None else list(words))
    largest = Trace(1.0, SHARE * arguments.size, FULL_RATE, arguments.size)
    cases, shown = [], []
    for trace in (*SMALL, largest):
        case, _ = simulated(trace, 1 if trace is largest else arguments.rounds)
        cases.append(case)
        shown.append(tell(case))
    if not arguments.no_switch:
        cases.append(real_case(REAL, arguments.rounds, arguments.seconds))
        shown.append(tell(cases[-1]))
    bars = compare_with_bars("flow-eviction", shown)
    more = {"bars": [one.as_dict() for one in bars], "load average": load_averages()}
    if not arguments.look and not arguments.no_switch and arguments.size == FULL_SIZE:
        print(write_results("flow-eviction", "share of packets that hit", cases, more=more))
    for bar in bars:
        print(bar)
    return 0


if __name__ == "__main__":
    sys.exit(main())

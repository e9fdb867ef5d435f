# SPDX-License-Identifier: Apache-2.0
"""Changes routes at a given rate, and measures the time from BGP to the switch.

Every few milliseconds, some prefixes are announced again with another gateway. The benchmark
watches one prefix of each batch: it reads the prefix's entry from the switch until the entry has
another next hop.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from p4.v1 import p4runtime_pb2, p4runtime_pb2_grpc

from bench import bgp
from bench.routing_table import Prefix
from sluice_ptf.schema import Schema
from sluice_testkit import where
from sluice_testkit.wait import wait_until

BATCH_SECONDS = 0.02
A_MESSAGE = 4
"""Prefixes per update."""
LOOK_SECONDS = 0.005
PATIENCE = 60.0


@dataclass
class _Watched:
    """Holds a prefix whose new next hop has not been seen in the switch yet."""

    prefix: Prefix
    sent: float
    before: bytes


class RouteReader:
    """Reads single routes of the default VRF from a switch, not necessarily as its primary."""

    def __init__(self, address: str, device_id: int):
        self._schema = Schema.load(where.pipeline())
        self._device_id = device_id
        options = [("grpc.default_authority", "localhost")]  # the default, the path, is not valid
        channel = grpc.insecure_channel(address, options=options)
        self._stub = p4runtime_pb2_grpc.P4RuntimeStub(channel)

    def actions(self, prefixes: Sequence[Prefix]) -> dict[Prefix, bytes]:
        """Returns the encoded action of each route that the switch holds."""
        request = p4runtime_pb2.ReadRequest(device_id=self._device_id)
        for address, length in prefixes:
            match: dict[str, Any] = {"vrf": 0, "dst_addr": _text(address, length)}
            entry = self._schema.entry("ipv4_fib", match, "set_nexthop", nexthop_id=1)
            entry.ClearField("action")
            request.entities.add().table_entry.CopyFrom(entry)
        found: dict[Prefix, bytes] = {}
        for response in self._stub.Read(request, timeout=30):
            for entity in response.entities:
                lpm = next(m.lpm for m in entity.table_entry.match if m.HasField("lpm"))
                key = lpm.value.rjust(4, b"\0"), lpm.prefix_len
                found[key] = entity.table_entry.action.SerializeToString()
        return found


def _text(address: bytes, length: int) -> str:
    return ".".join(map(str, address)) + f"/{length}"


class Changes:
    """Changes the gateways of the IPv4 routes of a table, and measures the lag of each watched
    change.
    """

    def __init__(
        self,
        prefixes: Sequence[Prefix],
        gateways: Sequence[bytes],
        own_as: int,
        reader: RouteReader,
    ):
        self._prefixes = prefixes
        self._gateways = gateways
        self._as = own_as
        self._reader = reader
        self._watched: list[_Watched] = []
        self._lock = threading.Lock()
        self._over = threading.Event()
        self.lags: list[float] = []
        self.rate = 0.0
        """Changes sent per second."""

    def run(self, speaker: bgp.Speaker, rate: float, seconds: float) -> None:
        """Sends `rate` changes per second, and waits until the last watched change is in the
        switch.
        """
        size = round(rate * BATCH_SECONDS)
        looking = threading.Thread(target=self._look)
        looking.start()
        began = time.monotonic()
        sent = 0
        try:
            for batch in range(round(seconds / BATCH_SECONDS)):
                self._batch(speaker, batch, size)
                sent += size
                wait = began + (batch + 1) * BATCH_SECONDS - time.monotonic()
                if wait > 0:
                    time.sleep(wait)
            self.rate = sent / (time.monotonic() - began)
            wait_until(lambda: not self._watched, PATIENCE, "the last changes in the switch")
        finally:
            self._over.set()
            looking.join()

    def _batch(self, speaker: bgp.Speaker, batch: int, size: int) -> None:
        """Sends one batch of changes. The batches change every prefix once before any prefix a
        second time.
        """
        first = batch * size % len(self._prefixes)
        turn = batch * size // len(self._prefixes)
        some = [self._prefixes[(first + n) % len(self._prefixes)] for n in range(size)]
        messages = []
        for n in range(0, size, A_MESSAGE):
            # The gateway that follows the prefix's current gateway, in the order of
            # `bgp.announcements`.
            number = (first + n) % len(self._prefixes) // bgp.PREFIXES + 1 + turn
            gateway = self._gateways[number % len(self._gateways)]
            path = (self._as, 64_000 + turn, 1 + batch % 60_000)
            messages.append(bgp.announcement(some[n : n + A_MESSAGE], gateway, path))
        watched = some[batch % size]
        before = self._reader.actions([watched]).get(watched, b"")
        with self._lock:
            self._watched.append(_Watched(watched, time.monotonic(), before))
        speaker.send(b"".join(messages))

    def _look(self) -> None:
        while not self._over.is_set():
            with self._lock:
                waiting = list(self._watched)
            if waiting:
                found = self._reader.actions([one.prefix for one in waiting])
                now = time.monotonic()
                done = [one for one in waiting if found.get(one.prefix) != one.before]
                self.lags += [now - one.sent for one in done]
                with self._lock:
                    self._watched = [one for one in self._watched if one not in done]
            time.sleep(LOOK_SECONDS)

    def percentile(self, share: float) -> float:
        """Returns the seconds within which this fraction of the watched changes reached the
        switch.
        """
        ordered = sorted(self.lags)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    def report(self) -> dict[str, float]:
        """Returns the lags for the report, in seconds. The percentile that a bar limits is not
        included.
        """
        return {
            "watched": len(self.lags),
            "sent a second": round(self.rate, 1),
            "median": statistics.median(self.lags),
            "p99": self.percentile(0.99),
            "longest": max(self.lags),
        }

# SPDX-License-Identifier: Apache-2.0
"""Dumps the kernel's routes, which confirm zebra's routes after a replay (`sources.replay`).

A dump arrives in slices. The caller selects the routes that it needs, so memory never holds a full
table. If a table has several routes for one prefix, only the one with the lowest metric is
returned, because it is the route that the kernel uses. Routes that the controller itself added
(sources.vrf_devices) are left out.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping

from sluice.model import Route, RouteKey, RouteUpdated
from sluice.sources.netlink_socket import NetlinkSocket, Overrun
from sluice.sources.vrf_devices import LAST_METRIC
from sluice.wire import rtnetlink
from sluice.wire.errors import WireError
from sluice.wire.netlink import HEADER, NLM_F_DUMP_INTR, NLMSG_DONE, NLMSG_ERROR, messages
from sluice.wire.routes import (
    AF_INET,
    AF_INET6,
    RTM_NEWROUTE,
    RTPROT_KERNEL,
    decode_route_message,
)

log = logging.getLogger(__name__)

FAMILIES = (AF_INET, AF_INET6)


class KernelRouteDump:
    """Dumps the kernel's unicast routes each time `start` is called."""

    def __init__(self, tables: Mapping[int, int] | None = None) -> None:
        """Opens a socket in the calling thread's namespace.

        `tables` limits the dump to the kernel tables that are its keys. The value is the table
        number that the returned routes get.
        """
        self._tables = tables
        self._socket = NetlinkSocket()
        self._families = iter(FAMILIES)
        self._family = AF_INET
        self._sequence = 0
        self._running = False
        self._interrupted = False
        self._routes: dict[RouteKey, Route] = {}
        self._wanted: Callable[[RouteKey], bool] = lambda _: True
        self.counters: Counter[str] = Counter()

    @property
    def running(self) -> bool:
        """Whether a dump is under way."""
        return self._running

    def fileno(self) -> int:
        """Returns a descriptor that is readable while a part of the dump waits."""
        return self._socket.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._socket.close()

    def start(self, wanted: Callable[[RouteKey], bool] = lambda _: True) -> None:
        """Starts a dump, unless one is under way. The result has the routes that are `wanted`."""
        if not self._running:
            self._running = True
            self._wanted = wanted
            self._routes = {}
            self._families = iter(FAMILIES)
            self._ask_next_family()

    def poll(self, datagrams: int) -> dict[RouteKey, Route] | None:
        """Reads at most `datagrams` datagrams of 32 KiB. Returns the routes when the dump has
        ended.

        Returns None before. The caller owns the routes and should free them in slices, because
        freeing a million at once takes long.
        """
        for _ in range(datagrams):
            try:
                datagram = self._socket.receive()
            except Overrun:
                self._interrupted = True
                continue
            if datagram is None:
                return None
            try:
                if self._read(datagram):
                    self._running = False
                    complete, self._routes = self._routes, {}
                    return complete
            except WireError as error:
                self.counters[error.name] += 1
                self._interrupted = True
                log.warning("netlink: %s in %s", error, datagram[:256].hex())
        return None

    def _ask_next_family(self) -> bool:
        family = next(self._families, None)
        if family is None:
            return False
        self._ask(family)
        return True

    def _ask(self, family: int) -> None:
        self._family, self._interrupted = family, False
        self._sequence = self._socket.next_sequence()
        self._socket.send(rtnetlink.dump_routes(self._sequence, family))

    def _read(self, datagram: bytes) -> bool:
        """Reads one datagram. Returns whether it was the last one of the whole dump."""
        for item in messages(datagram):
            if item.sequence != self._sequence:
                continue
            self._interrupted |= bool(item.flags & NLM_F_DUMP_INTR)
            if item.type == RTM_NEWROUTE:
                base = item.offset + HEADER.size
                event = decode_route_message(item.type, item.body, base, self.counters)
                if isinstance(event, RouteUpdated):
                    self._learn(event.route)
            elif item.type == NLMSG_DONE:
                return self._end_of_family()
            elif item.type == NLMSG_ERROR:
                code, _ = rtnetlink.decode_error(item.body, item.offset + HEADER.size)
                self.counters[f"dump_failed_{code}"] += 1
                return not self._ask_next_family()
        return False

    def _end_of_family(self) -> bool:
        if self._interrupted:  # the tables changed during the dump
            self.counters["dumps_interrupted"] += 1
            self._ask(self._family)
            return False
        return not self._ask_next_family()

    def _learn(self, route: Route) -> None:
        if (route.protocol, route.metric) == (RTPROT_KERNEL, LAST_METRIC):
            return
        key = route.key
        if self._tables is not None:
            table = self._tables.get(key.table)
            if table is None:
                return
            key = RouteKey(table, key.prefix)
        if not self._wanted(key):
            return
        known = self._routes.get(key)
        if known is None or route.metric < known.metric:
            self._routes[key] = route

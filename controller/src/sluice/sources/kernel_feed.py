# SPDX-License-Identifier: Apache-2.0
"""Reads the kernel's routes, and returns changes of them as events of a routing daemon's session.

Without FRR's FPM, the kernel's main table is the source of routes. `KernelFeed` dumps all routes
and next-hop objects at the start, and then follows the kernel's notifications. The kernel does not
announce every change, and some announcements are incomplete. So a new dump is compared with the
known routes after each of these events:

- A link went up or down, or an address was removed: the kernel then deletes IPv4 routes without
  notification.
- A next-hop object changed: the routes that use the object change with it.
- A route was appended to another one (`ip route append`), or a next hop was removed from an IPv6
  route with several next hops.
- The kernel dropped notifications (ENOBUFS).

Comparisons are at least `COMPARISON_INTERVAL` apart, so that a flapping link does not keep the
process busy. `poll` limits the number of messages too, not only the events, because a dump of
unchanged routes has no events.

Dumps and notifications use one socket, so they arrive in the order of the changes. The session
never closes: after a dump, only the differences are events. Depends on an interface, `Table`, which
state.kernel_table implements; the caller passes the table.
"""

from __future__ import annotations

import errno
import logging
import select
import time
from collections import Counter
from collections.abc import Iterable
from typing import Protocol

from sluice.model import (
    MAIN_TABLE,
    FpmSessionOpened,
    LinkChanged,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    Route,
    RouteDeleted,
    RouteEvent,
    RouteKey,
    RouteUpdated,
)
from sluice.sources.alarm import Alarm
from sluice.sources.netlink_socket import NetlinkSocket, Overrun
from sluice.wire import rtnetlink
from sluice.wire.errors import WireError
from sluice.wire.host_links import MISPLACED, misplaced
from sluice.wire.netlink import (
    HEADER,
    NLM_F_APPEND,
    NLM_F_DUMP_INTR,
    NLMSG_DONE,
    NLMSG_ERROR,
    Message,
    messages,
)
from sluice.wire.routes import (
    AF_INET,
    AF_INET6,
    ROUTE_MESSAGES,
    RTM_DELROUTE,
    RTM_NEWROUTE,
    decode_route_message,
    dump_nexthops,
    metric_of,
)

log = logging.getLogger(__name__)

RTNLGRP_IPV4_ROUTE, RTNLGRP_IPV6_ROUTE, RTNLGRP_NEXTHOP = 7, 11, 32
GROUPS = (
    rtnetlink.RTNLGRP_LINK,
    rtnetlink.RTNLGRP_IPV4_IFADDR,
    RTNLGRP_IPV4_ROUTE,
    RTNLGRP_IPV6_ROUTE,
    RTNLGRP_NEXTHOP,
)
DUMPS = (
    dump_nexthops,
    lambda sequence: rtnetlink.dump_routes(sequence, AF_INET),
    lambda sequence: rtnetlink.dump_routes(sequence, AF_INET6),
)
NEXTHOPS = 0
MESSAGES = 1024
"""Most messages that one `poll` reads, except for the rest of the last datagram."""
COMPARISON_INTERVAL = 1.0
"""Shortest time from the end of a comparison to the next one, in seconds."""
TABLE, LOCAL_TABLE = 4, b"\xff"
"""Position of the table in struct rtmsg, and RT_TABLE_LOCAL."""
WORKS = rtnetlink.IFF_UP | rtnetlink.IFF_LOWER_UP
ONLY_IN_KERNEL = {
    "route_type_throw": "throw routes",
    "route_with_tos": "routes with a TOS",
    "route_source_specific": "routes with a source prefix",
    **MISPLACED,
}
"""Routes that the switch cannot apply, by the name of the decoder's counter."""


class Table(Protocol):
    """Describes the methods of `state.kernel_table.KernelTable` that are used."""

    def best(self, key: RouteKey) -> Route | None:
        """Returns the route that the kernel uses for a prefix, or None."""

    def find(self, key: RouteKey, metric: int) -> Route | None:
        """Returns the route of a prefix with this metric, or None."""

    def update(self, route: Route) -> RouteUpdated | None:
        """Adds or replaces a route. Returns the event if the best route changed."""

    def delete(self, key: RouteKey, metric: int) -> RouteUpdated | RouteDeleted | None:
        """Deletes a route. Returns the event if the best route changed."""

    def keep_only(self, shown: Iterable[tuple[RouteKey, int]]) -> list[RouteUpdated | RouteDeleted]:
        """Deletes all routes that are not in `shown`. Returns the events."""


class KernelFeed:
    """Provides the routes of the main table of the network namespace in which it is created."""

    def __init__(self, table: Table) -> None:
        self._table = table
        self._socket = NetlinkSocket(GROUPS)
        self._alarm = Alarm()
        self._readable = select.epoll()
        for one in (self._socket, self._alarm):
            self._readable.register(one.fileno(), select.EPOLLIN)
        self._pending: list[RouteEvent] = [FpmSessionOpened("the kernel's routing table")]
        self._flags: dict[int, int] = {}
        self._dump: int | None = None
        self._sequence = 0
        self._again = self._interrupted = self._waits = False
        self._compared_at = -COMPARISON_INTERVAL
        # `_shown`: the routes that the dump or a notification has contained since the dump began.
        # `_dumped`: the routes that the dump itself has contained.
        self._shown: set[tuple[RouteKey, int]] = set()
        self._dumped: set[tuple[RouteKey, int]] = set()
        # Prefixes and metrics for which the kernel has several routes. It uses the first of them.
        self._further: set[tuple[RouteKey, int]] = set()
        self._objects: set[int] = set()
        self._shown_objects: set[int] = set()
        self.synced = False
        """Whether the first dump is complete."""
        self.idle = False
        """Whether the last `poll` left no message unread."""
        self.local_version = 0
        """Version of the kernel's local table. A new value means that it may have changed."""
        self.encapsulated: set[tuple[RouteKey, int]] = set()
        """Routes that the kernel encapsulates, which the switch cannot do: prefix and metric."""
        self.counters: Counter[str] = Counter()
        self._ask(NEXTHOPS)

    @property
    def problem(self) -> str | None:
        """Describes the kernel's routes that the switch cannot apply, as a sentence. None if there
        are none."""
        found = self.only_in_kernel
        return f"the switch cannot apply {' and '.join(found)}" if found else None

    @property
    def only_in_kernel(self) -> list[str]:
        """Kinds of routes in the kernel that the switch cannot apply."""
        return [text for name, text in ONLY_IN_KERNEL.items() if self.counters[name]]

    def fileno(self) -> int:
        """Returns a descriptor that is readable while there may be events."""
        return self._readable.fileno()

    def close(self) -> None:
        """Closes the socket."""
        self._readable.close()
        self._alarm.close()
        self._socket.close()

    def link_changed(self, event: LinkChanged) -> None:
        """Does nothing. This source reads link events itself, from the socket that also has the
        routes."""

    def poll(self, limit: int) -> list[RouteEvent]:
        """Returns about `limit` events in order.

        Reads at most about `MESSAGES` messages. So the list may be empty while messages wait; the
        descriptor stays readable then. During the first dump, `poll` reads on until there is an
        event, because the controller takes an empty list for the end of the routes.
        """
        events, self._pending = self._pending, []
        self.idle, read = False, 0
        if self._alarm.take():
            self._waits = False
            self._compare()
        while len(events) < limit and (read < MESSAGES or not (events or self.synced)):
            read += 1
            try:
                datagram = self._socket.receive()
            except Overrun:
                self.counters["overruns"] += 1
                self._dump = None  # the dump's answer may be lost
                self._ask(NEXTHOPS)
                continue
            self.idle = datagram is None
            if datagram is None:
                break
            try:
                for message in messages(datagram):
                    read += 1
                    self._read(message, events)
            except WireError as error:
                self.counters[error.name] += 1
                log.warning("netlink: %s in %s", error, datagram[:256].hex())
                self._compare_again()
        return events

    # --- dumps -----------------------------------------------------------------------------------

    def _ask(self, dump: int) -> None:
        if dump == NEXTHOPS:
            self.counters["dumps"] += 1
            self._shown, self._shown_objects, self._interrupted = set(), set(), False
            self._dumped.clear()
            self._further.clear()
        self._dump = dump
        self._sequence = self._socket.next_sequence()
        self._socket.send(DUMPS[dump](self._sequence))

    def _compare_again(self) -> None:
        """Schedules a dump of everything for the end of the interval since the last dump."""
        self.counters["comparisons"] += 1
        left = self._compared_at + COMPARISON_INTERVAL - time.monotonic()
        if self._waits:
            return
        if self._dump is None and left > 0:
            self._waits = True
            self._alarm.set(left)
        else:
            self._compare()

    def _compare(self) -> None:
        """Requests a dump of everything now, or after the dump under way, which is out of date."""
        if self._dump is None:
            self._ask(NEXTHOPS)
        else:
            self._again = True

    def _end_dump(self, events: list[RouteEvent]) -> None:
        if self._dump is None:
            return
        if self._dump + 1 < len(DUMPS):
            self._ask(self._dump + 1)
            return
        self._dump = None
        again, self._again = self._again or self._interrupted, False
        if again and not self.synced:
            self._ask(NEXTHOPS)
            return
        if not self._interrupted:
            events += self._table.keep_only(self._shown)
            self.encapsulated &= self._shown
            events += [NexthopObjectDeleted(one) for one in self._objects - self._shown_objects]
            self._objects &= self._shown_objects
        self._shown, self._dumped, self._shown_objects = set(), set(), set()
        if self.synced:
            self._compared_at = time.monotonic()
        self.synced = True
        if again:
            self._compare_again()

    # --- messages --------------------------------------------------------------------------------

    def _read(self, message: Message, events: list[RouteEvent]) -> None:
        of_dump = message.sequence == self._sequence and message.port == self._socket.port
        if of_dump and message.flags & NLM_F_DUMP_INTR:
            self._interrupted = True
        if message.type in ROUTE_MESSAGES:
            self._read_route(message, of_dump, events)
        elif message.type == rtnetlink.RTM_NEWLINK:
            self._read_link(message)
        elif message.type in (rtnetlink.RTM_DELLINK, rtnetlink.RTM_DELADDR):
            self._compare_again()
        elif message.type == NLMSG_DONE and of_dump:
            self._end_dump(events)
        elif message.type == NLMSG_ERROR and of_dump:
            code, _ = rtnetlink.decode_error(message.body, message.offset + HEADER.size)
            if code != errno.EOPNOTSUPP:  # the kernel lacks next-hop objects
                self.counters[f"dump_failed_{errno.errorcode.get(code, code)}"] += 1
                self._interrupted |= code == errno.EBUSY  # an earlier dump has not ended
            self._end_dump(events)

    def _read_link(self, message: Message) -> None:
        _, _, _, index, flags, _ = rtnetlink.IFINFOMSG.unpack_from(message.body)
        if self._flags.get(index) != flags & WORKS:
            self._flags[index] = flags & WORKS
            self._compare_again()

    def _read_route(self, message: Message, of_dump: bool, events: list[RouteEvent]) -> None:
        self.local_version += message.body[TABLE : TABLE + 1] == LOCAL_TABLE and not of_dump
        base = message.offset + HEADER.size
        ignored: Counter[str] = Counter()
        event = decode_route_message(message.type, message.body, base, ignored)
        if message.type == RTM_NEWROUTE and (name := misplaced(message.body)) is not None:
            self.counters[name] += 1
        if isinstance(event, NexthopObjectUpdated | NexthopObjectDeleted):
            self._learn_object(event, of_dump, events)
            return
        if isinstance(event, RouteUpdated | RouteDeleted):
            key = event.route.key if isinstance(event, RouteUpdated) else event.key
            if key.table != MAIN_TABLE:
                return
            metric = metric_of(message.body)
            if message.type == RTM_NEWROUTE and isinstance(event, RouteUpdated):
                is_encapsulated = any("encapsulated" in name for name in ignored)
                self._learn(event.route, is_encapsulated, message, of_dump, events)
            elif message.type == RTM_DELROUTE:
                self._forget(key, metric, events)
        self.counters.update(ignored)

    def _learn(
        self,
        route: Route,
        is_encapsulated: bool,
        message: Message,
        of_dump: bool,
        events: list[RouteEvent],
    ) -> None:
        one = route.key, route.metric
        known = self._table.find(*one)
        is_ipv4 = len(route.key.prefix.address) == 4
        if of_dump:
            is_further = one in self._dumped
            self._dumped.add(one)
        else:  # IPv6: the message contains all next hops of the prefix
            is_further = known is not None and is_ipv4 and bool(message.flags & NLM_F_APPEND)
        if is_further:
            self._further.add(one)  # the kernel still uses the first route
            return
        if self._dump is not None:
            self._shown.add(one)
        has_changed = is_encapsulated != (one in self.encapsulated)
        (self.encapsulated.add if is_encapsulated else self.encapsulated.discard)(one)
        if known != route or has_changed:
            event = self._table.update(route)
            if event is None and has_changed and self._table.best(route.key) == route:
                event = RouteUpdated(route)  # only the encapsulation differs
            if event is not None:
                events.append(event)

    def _forget(self, key: RouteKey, metric: int, events: list[RouteEvent]) -> None:
        known = self._table.find(key, metric)
        if known is None:
            return
        several = len(known.nexthops) > 1 and len(key.prefix.address) == 16
        if several or (key, metric) in self._further:
            self._compare_again()  # the message does not show what remains
            return
        self._shown.discard((key, metric))
        self.encapsulated.discard((key, metric))
        event = self._table.delete(key, metric)
        if event is not None:
            events.append(event)

    def _learn_object(
        self,
        event: NexthopObjectUpdated | NexthopObjectDeleted,
        of_dump: bool,
        events: list[RouteEvent],
    ) -> None:
        if isinstance(event, NexthopObjectUpdated):
            self._objects.add(event.id)
            self._shown_objects.add(event.id)
        else:
            self._objects.discard(event.id)
            self._shown_objects.discard(event.id)
        events.append(event)
        if not of_dump:
            self._compare_again()

# SPDX-License-Identifier: Apache-2.0
"""Updates the tables of the steering programs when the host changes.

`SteeredHost` follows the kernel's routes and addresses. It also follows everything that could make
the kernel treat forwarded packets differently from the switch: rules, firewall, IPsec policies,
settings. After such a change it makes the plan again. The kernel does not announce all changes, so
`SteeredHost` also looks for them at intervals. If the kernel must forward again, `problems` has the
reasons.

Depends on sources and state. Not asynchronous: the caller waits for `descriptors`, at
most `REVIEW_SECONDS`, and calls `poll`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace

from sluice.model import Prefix, Route, RouteDeleted, RouteEvent, RouteUpdated
from sluice.sources import host_survey
from sluice.sources.kernel_feed import KernelFeed
from sluice.sources.netlink_socket import NETLINK_XFRM, NetlinkSocket, Overrun
from sluice.sources.steering import Steering, port_entry
from sluice.state.kernel_table import KernelTable
from sluice.state.router_plan import RouterPlan, plan
from sluice.state.steering import SteeredPrefixes, SteeringVerdict
from sluice.survey_model import HostSurvey
from sluice.wire.rtnetlink import RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR, RTNLGRP_LINK
from sluice.wire.steering_programs import TO_KERNEL, TO_SWITCH

log = logging.getLogger(__name__)

RTNLGRP_TC, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE = 4, 8, 19
RTNLGRP_IPV4_NETCONF, RTNLGRP_IPV6_NETCONF = 24, 25
HOST_GROUPS = (
    *(RTNLGRP_LINK, RTNLGRP_IPV4_IFADDR, RTNLGRP_IPV6_IFADDR),
    *(RTNLGRP_IPV4_NETCONF, RTNLGRP_IPV6_NETCONF),
)
RULE_GROUPS = (RTNLGRP_TC, RTNLGRP_IPV4_RULE, RTNLGRP_IPV6_RULE)
XFRMNLGRP_POLICY, NFNLGRP_NFTABLES = 4, 7
EVENTS = 1024
REVIEW_SECONDS = 2.0
"""Time after which `SteeredHost` looks again for changes without a message, in seconds."""
VERDICTS = {SteeringVerdict.KERNEL: TO_KERNEL, SteeringVerdict.SWITCH: TO_SWITCH, None: None}


class SurveyedRoutes:
    """Follows the kernel's routes, and determines which of them the switch can use."""

    def __init__(self, taken: Iterable[int]) -> None:
        """`taken`: the indexes of the interfaces that are taken over. Reads all routes. Raises
        OSError."""
        self._taken = frozenset(taken)
        self._table = KernelTable()
        self.feed = KernelFeed(self._table)
        self.foreign: set[Prefix] = set()
        """Prefixes whose packets the kernel forwards, because the switch cannot use the route."""

    @property
    def count(self) -> int:
        """Number of prefixes with a route."""
        return len(self._table)

    def poll(self) -> list[tuple[Prefix, bool | None]]:
        """Returns changed routes as pairs: the prefix, and whether the switch can use the route.
        None: the route is gone. Empty if no change waits."""
        return [
            change
            for event in self.feed.poll(EVENTS)
            if (change := self._changed(event)) is not None
        ]

    def _changed(self, event: RouteEvent) -> tuple[Prefix, bool | None] | None:
        if isinstance(event, RouteDeleted):
            self.foreign.discard(event.key.prefix)
            return event.key.prefix, None
        if not isinstance(event, RouteUpdated):
            return None
        prefix = event.route.key.prefix
        usable = self._is_usable(event.route)
        (self.foreign.discard if usable else self.foreign.add)(prefix)
        return prefix, usable

    def _is_usable(self, route: Route) -> bool:
        """Returns whether the switch can use a route: the route drops, or all its next hops are on
        interfaces that are taken over."""
        if (route.key, route.metric) in self.feed.encapsulated or not route.nexthops:
            return False
        return all(one.ifindex in self._taken for one in route.nexthops if one.ifindex is not None)


def read_host(names: Sequence[str]) -> tuple[HostSurvey, RouterPlan, SurveyedRoutes]:
    """Reads the host with all its routes, and makes the plan. Raises OSError."""
    survey = host_survey.survey()
    planned = plan(survey, names)
    routes = SurveyedRoutes(one.index for one in planned.interfaces)
    while not routes.feed.synced:
        routes.poll()
    kinds = tuple(routes.feed.only_in_kernel)
    survey = replace(survey, routes=kinds, route_count=routes.count)
    return survey, plan(survey, names), routes


class SteeredHost:
    """Keeps the tables up to date for the planned interfaces."""

    def __init__(
        self, names: Sequence[str], planned: RouterPlan, steering: Steering, ports: dict[int, int]
    ) -> None:
        """`ports` maps each network card to the host's end of its port, by index."""
        self._names, self._planned, self._steering = names, planned, steering
        self._ports = ports
        self._indexes = {one.index for one in planned.interfaces}
        self._watched = [(one.name, one.index) for one in planned.interfaces]
        self._mtus = {one.index: one.mtu for one in planned.interfaces}
        # Order: open the sockets before reading the host, so that no change is missed.
        self._host = NetlinkSocket(HOST_GROUPS)
        self._policies = [NetlinkSocket(RULE_GROUPS), *_open_policies()]
        self.routes = SurveyedRoutes(self._indexes)
        self._local_version = -1
        self._prefixes = SteeredPrefixes()
        self._reasons: tuple[str, ...] = ()
        self._look_at = time.monotonic() + REVIEW_SECONDS
        self._silent = host_survey.silent_state(self._watched)
        self._review()

    def descriptors(self) -> list[int]:
        """Returns descriptors that are readable while changes may wait."""
        sockets = [one.fileno() for one in (self._host, *self._policies)]
        return [*sockets, self.routes.feed.fileno()]

    def poll(self) -> None:
        """Reads waiting changes, and changes the tables. Returns quickly.

        Some changes of routes may remain unread; `descriptors` are then still readable. After a
        change of rules, filters, firewall or IPsec policies, the kernel forwards until the host has
        been reviewed.
        """
        self._follow_host()
        for prefix, usable in self.routes.poll():
            self._set(self._prefixes.set_route(prefix, usable))
        if self._local_version != self.routes.feed.local_version:
            self._local_version = self.routes.feed.local_version
            self._set(self._prefixes.set_local(host_survey.read_local_prefixes()))

    @property
    def is_settled(self) -> bool:
        """Whether the tables hold all routes that the kernel has announced."""
        feed = self.routes.feed
        return feed.synced and feed.idle and self._local_version == feed.local_version

    def _follow_host(self) -> None:
        was_on = self._steering.is_on
        has_policies = sum(map(_drain, self._policies)) > 0
        if has_policies:
            self._steering.switch_on(False)
        has_changed = _drain(self._host) or has_policies
        if has_changed or self._has_changed_silently():
            self._review()
        if was_on and not self._steering.is_on and not self.problems:
            self._steering.switch_on(True)

    def _has_changed_silently(self) -> bool:
        """Checks at most once in `REVIEW_SECONDS`."""
        now = time.monotonic()
        if now < self._look_at:
            return False
        self._look_at = now + REVIEW_SECONDS
        before, self._silent = self._silent, host_survey.silent_state(self._watched)
        return before != self._silent

    @property
    def problems(self) -> list[str]:
        """Reasons why the kernel must forward again."""
        kinds = self.routes.feed.only_in_kernel
        return [*self._reasons, *(f"{one}: the switch cannot apply these routes" for one in kinds)]

    def _set(self, changes: Iterable[tuple[Prefix, SteeringVerdict | None]]) -> None:
        for prefix, verdict in changes:
            self._steering.set_prefix(prefix, VERDICTS[verdict])

    def _review(self) -> None:
        """Makes the plan again, and writes the table of ports."""
        planned = plan(host_survey.survey(self._ports), self._names)
        grown = tuple(
            f"{one.name}: has a larger MTU now, which its port does not have; run `sluice up` again"
            for one in planned.interfaces
            if one.mtu > self._mtus.get(one.index, one.mtu)
        )
        self._reasons = planned.problems + grown
        self._steering.set_ports(
            dict(
                port_entry(
                    one.card,
                    one.vlan,
                    one.mac,
                    self._ports[one.card],
                    ipv4=one.ipv4,
                    ipv6=one.ipv6,
                )
                for one in planned.interfaces
                if one.index in self._indexes
            )
        )

    def close(self) -> None:
        """Closes all sockets."""
        for one in (self._host, *self._policies):
            one.close()
        self.routes.feed.close()


def _open_policies() -> list[NetlinkSocket]:
    """Opens the sockets for changes of IPsec policies and of nftables, if the kernel has both."""
    found = []
    for group, protocol in (
        (XFRMNLGRP_POLICY, NETLINK_XFRM),
        (NFNLGRP_NFTABLES, host_survey.NETLINK_NETFILTER),
    ):
        try:
            found.append(NetlinkSocket((group,), protocol=protocol))
        except OSError as error:
            log.info("no notifications of netlink protocol %d: %s", protocol, error)
    return found


def _drain(one: NetlinkSocket) -> bool:
    """Reads all waiting messages of a socket. Returns whether there were any."""
    found = False
    while True:
        try:
            if one.receive() is None:
                return found
        except Overrun:
            pass
        found = True

# SPDX-License-Identifier: Apache-2.0
"""A defect of zebra (8.4.4): next-hop groups that it replays short of a leg, and never completes.

A group that is replayed to a new FPM session while the link of one of its next hops is down comes
without that leg. When the link is back, zebra announces the next hop and the route again, but not
the group: its RIB has both legs, its FPM peer one, for ever. Seen in tests/goldens/fpm/link.fpm.
(`no fpm use-next-hop-groups` in zebra's configuration avoids groups altogether.)

`GroupDoubt` sees the pattern and says when a new replay is due. Pure.
"""

from __future__ import annotations

from sluice.model import (
    FpmSessionOpened,
    LinkChanged,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    RouteEvent,
)


class GroupDoubt:
    """Follows links and one FPM session after another."""

    def __init__(self) -> None:
        self._running: dict[int, bool] = {}
        # Of the present session: links that were down when it opened, single next hops, groups.
        self._down_at_open: set[int] = set()
        self._singles: dict[int, NexthopObjectUpdated] = {}
        self._has_groups = False

    def note_link(self, event: LinkChanged) -> None:
        """Takes notice of a link of the host."""
        self._running[event.ifindex] = event.up and event.carrier

    def note(self, event: RouteEvent) -> bool:
        """Takes notice of an event of the session; True when its groups cannot be trusted."""
        if isinstance(event, FpmSessionOpened):
            self._down_at_open = {link for link, running in self._running.items() if not running}
            self._singles = {}
            self._has_groups = False
        elif isinstance(event, NexthopObjectDeleted):
            self._singles.pop(event.id, None)
        elif isinstance(event, NexthopObjectUpdated):
            if event.group:
                self._has_groups = True
                return False
            known = self._singles.get(event.id)
            self._singles[event.id] = event
            return known == event and self._has_groups and self._has_recovered(event)
        return False

    def _has_recovered(self, event: NexthopObjectUpdated) -> bool:
        """Whether a next hop's link is up that was down when the session opened."""
        link = event.nexthop.ifindex if event.nexthop is not None else None
        gateway = event.nexthop.address if event.nexthop is not None else None
        if link is None or gateway is None or link not in self._down_at_open:
            return False
        return self._running.get(link, False)

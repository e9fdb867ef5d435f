# SPDX-License-Identifier: Apache-2.0
"""Works around a defect of zebra 8.4.4: after a replay, a next-hop group may stay incomplete.

Suppose the link of a group's next hop is down during the replay to a new FPM session. Then zebra
sends the group without that next hop. When the link is up again, zebra announces the next hop and
the route again, but not the group. From then on zebra's RIB has all next hops of the group, but its
FPM peer still lacks one. tests/goldens/fpm/link.fpm is a recording of this. (`no fpm
use-next-hop-groups` in zebra's configuration avoids groups.)

`IncompleteGroups` detects this pattern, and reports that a new replay is needed. Pure.
"""

from __future__ import annotations

from sluice.model import (
    FpmSessionOpened,
    LinkChanged,
    NexthopObjectDeleted,
    NexthopObjectUpdated,
    RouteEvent,
)


class IncompleteGroups:
    """Tracks the host's links, and the next-hop objects of the current FPM session."""

    def __init__(self) -> None:
        self._running: dict[int, bool] = {}
        # State of the current session: the links that were down when the session opened, its single
        # next hops, and whether it has groups.
        self._down_at_open: set[int] = set()
        self._singles: dict[int, NexthopObjectUpdated] = {}
        self._has_groups = False

    def note_link(self, event: LinkChanged) -> None:
        """Records the state of a link of the host."""
        self._running[event.ifindex] = event.up and event.carrier

    def note(self, event: RouteEvent) -> bool:
        """Records an event of the session. Returns True if a group may lack a next hop."""
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
        """Returns whether a next hop's link was down when the session opened and is up now."""
        link = event.nexthop.ifindex if event.nexthop is not None else None
        gateway = event.nexthop.address if event.nexthop is not None else None
        if link is None or gateway is None or link not in self._down_at_open:
            return False
        return self._running.get(link, False)

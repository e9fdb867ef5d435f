# SPDX-License-Identifier: Apache-2.0
"""Forwards the host's packets after a controller was killed, until another controller is primary.

The process that keeps the TAPs (`tap_keeper`) runs this module if its controller has ended and has
left tables (`handover`). The stand-in forwards the same packets as the fast path, by the same rules
in the same native code: ARP, neighbour discovery, BFD, BGP and other protocols of the router
itself. It drops the packets that the controller handled one by one: first packets, errors,
fragments. It writes nothing to the switch.

The stand-in has two sessions with the switch. It opens them after it has taken the locks of the
TAPs. So a controller that becomes primary at the same time finds this process by the locks, and
ends it.

- The first session has the default role, as a backup. Through it, the switch notifies the stand-in
  of a new primary, and the stand-in then ends. The session's election id is lower than that of
  almost every controller.
- The second session has a role of its own. The switch allows this role only to receive and send
  these packets.

The stand-in ends unless the last primary was the controller that left the tables. If the switch
makes the first session primary, the switch has lost its state, and the stand-in ends. BMv2 is an
exception: it has no roles and forgets the election ids of closed sessions, so it always makes the
first session primary. There, this session forwards the packets until the next controller becomes
primary.

The stand-in also ends when the switch ends a session, because a restarted switch has no state.
Depends on `handover` and `sluice._native`.
"""

from __future__ import annotations

import os
import secrets
import select
import socket
import time
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from sluice._native import FastPath, P4RuntimeClient, TapSet
from sluice.sources.handover import CLAIMS, StandInLocks, Tables, end_stand_ins
from sluice.sources.queues import detach

ROLE = "sluice-stand-in"
NOT_FOUND = 5
"""Status code of an arbitration update when there is no primary."""
QUESTIONS = 1 << 32
"""Upper bound of the low half of the first session's election id. Of controllers' first election
ids, about one in 2^32 is below this bound."""
ATTEMPTS = 3
"""Number of election ids tried in the stand-in's own role. Each id is above the highest id seen."""
UNUSED_QUEUE_LIMIT = 1
"""Limit of the packet queue to Python. Nothing reads this queue."""


def stand_in(
    tables: Tables, queues: Mapping[str, int], until: float, claims: Path = CLAIMS
) -> None:
    """Forwards packets between TAPs and switch. `queues` maps the name of each TAP to one of its
    queues.

    Returns at `until` (monotonic clock), when a controller is primary, or when a session ends.
    Raises OSError if the kernel refuses an operation.
    """
    names = list(queues)
    with ExitStack() as stack:
        end_stand_ins(names, claims)
        locks = StandInLocks(names, claims)
        locks.take()
        stack.callback(locks.release)
        # Order: detach before the locks are released. While this process holds a lock, the next
        # controller assumes that an attached queue belongs to this process.
        stack.callback(detach, queues.values())
        StandIn(tables, queues, stack).run(until)


class StandIn:
    """Forwards packets between the two sessions and the TAPs. `stack` closes sessions and TAPs."""

    def __init__(self, tables: Tables, queues: Mapping[str, int], stack: ExitStack) -> None:
        self._tables = tables
        self._queues = queues
        self._stack = stack
        self._path = FastPath(**tables["rules"])
        self._path.set_interfaces(*tables["interfaces"])
        self._attempts = 0
        self._carries: P4RuntimeClient | None = None
        self._watch = self._connect((0, 1 + secrets.randbelow(QUESTIONS)))
        self._own_role: P4RuntimeClient | None = None

    def run(self, until: float) -> None:
        """Forwards packets. Returns when this process must no longer stand in."""
        while (left := until - time.monotonic()) > 0:
            sessions = [one for one in (self._watch, self._own_role) if one is not None]
            select.select([one.fileno() for one in sessions], [], [], left)
            for session in sessions:
                for event in session.poll(64):
                    if not self._handle_event(session, event):
                        return

    def _handle_event(self, session: P4RuntimeClient, event: Any) -> bool:
        """Handles a session event. Returns False when this process must no longer stand in."""
        if event[0] == "closed":
            return False
        if event[0] != "arbitration":
            return True
        _, is_primary, code, _, highest = event
        if session is self._own_role:
            return self._own_role_arbitrated(session, is_primary, highest)
        if not self._tables["has_roles"] and (is_primary or self._carries is session):
            return is_primary and (self._carries is session or self._carry(session))
        if is_primary or highest != self._tables["primary"]:
            return False
        if code != NOT_FOUND:
            # There is a primary. It may be the old controller, if the switch has not noticed yet
            # that it is gone. But if forwarding has begun, the switch had noticed this before, so
            # the primary is a new controller.
            return self._carries is None
        if self._own_role is None:
            self._own_role = self._connect(
                (1, 1),
                role=ROLE,
                packets_only=(self._tables["packets_in"], self._tables["packets_out"]),
            )
        return True

    def _own_role_arbitrated(
        self, session: P4RuntimeClient, is_primary: bool, highest: tuple[int, int] | None
    ) -> bool:
        if self._carries is session:
            return is_primary
        if is_primary:
            return self._carry(session)
        self._attempts += 1
        if self._attempts > ATTEMPTS or highest is None or highest[0] >= (1 << 64) - 1:
            return False
        with suppress(ConnectionError):
            session.arbitrate((highest[0] + 1, 1))
        return True

    def _connect(self, election_id: tuple[int, int], **role: Any) -> P4RuntimeClient:
        address, device_id, tls, server_name = self._tables["switch"]
        check_owner(address)
        client = P4RuntimeClient(
            address,
            device_id,
            election_id,
            packet_in_limit=UNUSED_QUEUE_LIMIT,
            tls=tls,
            server_name=server_name,
            fast_path=self._path,
            **role,
        )
        self._stack.callback(client.close)
        return client

    def _carry(self, session: P4RuntimeClient) -> bool:
        """Starts forwarding between the queues and the session."""
        taps = TapSet(queue_limit=UNUSED_QUEUE_LIMIT, fast_path=self._path)
        self._stack.callback(taps.close)
        # Order: set the metadata before the queues join. The queues already hold frames that the
        # host has sent since the controller ended. They are forwarded as soon as a queue joins.
        session.set_packet_metadata(self._tables["packet_in"], self._tables["packet_out"])
        known = {tap[0] for tap in self._tables["interfaces"][0]}
        for name, queue in self._queues.items():
            with suppress(OSError, ValueError):  # the TAP may be gone or renamed
                index = socket.if_nametoindex(name)
                if index in known:
                    taps.join(name, index, queue)
        self._carries = session
        return True


def check_owner(address: str) -> None:
    """Raises OSError unless a Unix socket belongs to this user or root."""
    if not address.startswith("unix:"):
        return
    found = os.stat(address.removeprefix("unix:"))
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{address} belongs to user {found.st_uid}")

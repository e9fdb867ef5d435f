# SPDX-License-Identifier: Apache-2.0
"""Carries the host's packets while a controller that was killed is not yet back.

The keeper of the TAPs runs this when its controller is gone and has left tables (`handover`). It
carries what the fast path carried, by the same rules in the same native code: ARP, neighbour
discovery, BFD, BGP and other protocols of the router's own. What the controller decided by the
packet is dropped: first packets, errors, fragments. It writes nothing to the switch.

Two sessions with the switch, both asked for after the locks were taken, so that a controller that
becomes primary meanwhile finds and ends this process:

- The first is of the default role, as a backup. It is there to hear who is primary: as soon as
  there is one, standing in is over. Its election id loses to that of every controller.
- The second is of a role of its own, which may get and send these packets and do nothing else. The
  switch holds it to that.

The last primary must have been the controller that left the tables. BMv2 knows no roles and forgets
the election ids of those who are gone: it makes the first session primary, which then carries, and
which the next controller's question displaces. Any other switch that does so is empty.

Standing in also ends when the switch ends a session: one that restarted is empty. Depends on
`handover` and `sluice._native`.
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
"""In the answer to an arbitration: there is no primary."""
QUESTIONS = 1 << 32
"""Low halves of the first session's election ids are below this; of controllers' first ones, about
one in 2^32 is."""
ATTEMPTS = 3
"""Ids that are asked with in the own role, each above the highest that was seen there."""
NOBODYS = 1
"""Packets that are queued for Python, which does not look at them."""


def stand_in(
    tables: Tables, queues: Mapping[str, int], until: float, claims: Path = CLAIMS
) -> None:
    """Carries packets of TAPs, of which `queues` has a queue by the TAP's name, until `until`
    (monotonic), or until a controller is primary, or a session ends. Raises OSError when the kernel
    refuses something."""
    names = list(queues)
    with ExitStack() as stack:
        end_stand_ins(names, claims)
        locks = StandInLocks(names, claims)
        locks.take()
        stack.callback(locks.release)
        # Before the locks are given up, by which the next controller knows whose queue is attached.
        stack.callback(detach, queues.values())
        StandIn(tables, queues, stack).run(until)


class StandIn:
    """Two sessions and the TAPs, opened and closed by `stack`."""

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
        """Returns when it is over."""
        while (left := until - time.monotonic()) > 0:
            sessions = [one for one in (self._watch, self._own_role) if one is not None]
            select.select([one.fileno() for one in sessions], [], [], left)
            for session in sessions:
                for event in session.poll(64):
                    if not self._goes_on(session, event):
                        return

    def _goes_on(self, session: P4RuntimeClient, event: Any) -> bool:
        """Takes notice of an event; false: standing in is over."""
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
            # The switch may not have noticed yet that the controller is gone.
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
            packet_in_limit=NOBODYS,
            tls=tls,
            server_name=server_name,
            fast_path=self._path,
            **role,
        )
        self._stack.callback(client.close)
        return client

    def _carry(self, session: P4RuntimeClient) -> bool:
        """Lets packets pass between the queues and the session."""
        taps = TapSet(queue_limit=NOBODYS, fast_path=self._path)
        self._stack.callback(taps.close)
        # First: the queues have what the host sent since the controller's end.
        session.set_packet_metadata(self._tables["packet_in"], self._tables["packet_out"])
        known = {tap[0] for tap in self._tables["interfaces"][0]}
        for name, queue in self._queues.items():
            with suppress(OSError, ValueError):  # a TAP that somebody removed or renamed
                index = socket.if_nametoindex(name)
                if index in known:
                    taps.join(name, index, queue)
        self._carries = session
        return True


def check_owner(address: str) -> None:
    """Refuses a socket of another user's. Raises OSError."""
    if not address.startswith("unix:"):
        return
    found = os.stat(address.removeprefix("unix:"))
    if found.st_uid not in (0, os.geteuid()):
        raise PermissionError(f"{address} belongs to user {found.st_uid}")

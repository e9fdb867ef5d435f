# SPDX-License-Identifier: Apache-2.0
"""Maintains the connection to the switch: one session after another.

A session has these steps. The switch continues to forward during all of them:

1. Become primary.
2. Install the pipeline, if the switch runs another pipeline.
3. Read the entities back.
4. Delete or disable entities whose meaning differs from the configuration, so that the switch drops
   their packets (to **close** them).
5. Compare the entities with the desired ones, and write differences until the session ends.

Depends on p4runtime and reconciler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

from sluice.connection_config import SwitchConfig
from sluice.entity_text import text_of
from sluice.p4.packets import AnsweredPunt, PacketSchema
from sluice.p4.schema import Pipeline
from sluice.p4runtime.client import Metadata
from sluice.p4runtime.election import ElectionId
from sluice.p4runtime.session import (
    FAILED_PRECONDITION,
    P4RuntimeError,
    PacketInHandler,
    Session,
)
from sluice.primacy import Backoff, DisplacedError, Primacy
from sluice.reconciler import Reconciler
from sluice.state.takeover import ClosingPlan, EntitiesByKind

log = logging.getLogger(__name__)

SHOWN = 8
"""Maximum number of entities named in one log line."""


class StandIns(Protocol):
    """Controls stand-ins. A stand-in is a process that passes the host's packets after a controller
    was killed."""

    def end_stand_ins(self) -> None:
        """Ends the stand-ins of earlier controllers. Raises OSError if one does not end."""

    def set_passing(self, primary: ElectionId | None) -> None:
        """Sets whether a stand-in may take over if this controller dies.

        `primary` is the election id under which this controller is primary and passes packets. It
        is None if the controller passes no packets. Then a stand-in must not do so either.
        """


class SwitchConnection:
    """Maintains the connection to one switch.

    After the read-back, `closing` returns the entities to close before anything else is written.
    Then `on_read` is called, and then the entities are compared. During a session, `session_tasks`
    runs besides the reconciler. `measured` records how long the reconciler occupies the event loop.

    Invariant: the controller exchanges packets with the switch only while all interface numbers
    mean the same in the switch and in the configuration, because packet metadata names interfaces
    by number. Order: a new primary first ends the stand-ins of earlier controllers.
    """

    def __init__(
        self,
        *,
        config: SwitchConfig,
        pipeline: Pipeline,
        packets: PacketSchema,
        reconciler: Reconciler,
        primacy: Primacy,
        on_packets: PacketInHandler,
        closing: Callable[[EntitiesByKind], ClosingPlan],
        on_read: Callable[[], Awaitable[None]],
        session_tasks: Callable[[Session], Coroutine[Any, Any, None]],
        measured: Callable[[str, Awaitable[None]], Coroutine[Any, Any, None]],
        stand_ins: StandIns | None = None,
    ) -> None:
        self._measured = measured
        self._config = config
        self._pipeline = pipeline
        self._packets = packets
        self._reconciler = reconciler
        self._primacy = primacy
        self._on_packets = on_packets
        self._closing = closing
        self._on_read = on_read
        self._session_tasks = session_tasks
        self._stand_ins = stand_ins

    @property
    def session(self) -> Session | None:
        """The current session, even if it may not write."""
        return self._primacy.session

    @property
    def last_error(self) -> str | None:
        """Error that ended the last session, or None while a session works."""
        return self._primacy.last_error

    @property
    def primary(self) -> Session | None:
        """The current session, if it may write."""
        session = self.session
        return session if session is not None and session.is_primary else None

    @property
    def arbitration(self) -> str:
        """The state of the primary election, as text for people."""
        return "not connected" if self.session is None else self.session.arbitration

    def packet_out(self, batch: list[tuple[bytes, Metadata]]) -> int:
        """Sends packets. Returns the number that the bounded queue to the switch accepted."""
        return 0 if self.session is None else self.session.packet_out(batch)

    def answer(self, batch: Sequence[AnsweredPunt]) -> int:
        """Re-injects plain first packets. Returns the number that the queue accepted."""
        return 0 if self.session is None else self.session.answer(batch)

    async def run(self) -> None:
        """Runs one session after another until cancelled, with a back-off between them.

        Raises DisplacedError when another controller has permanently replaced this one.
        """
        clock = asyncio.get_running_loop().time
        backoff = Backoff()
        while True:
            try:
                await self._one_session()
                delay = backoff.ended(clock())
            except DisplacedError:
                raise
            except P4RuntimeError as error:
                self._primacy.failed(error)
                delay = backoff.failed(clock())
            self._reconciler.disconnect()
            await asyncio.sleep(delay)

    async def _one_session(self) -> None:
        """Runs one session. Raises P4RuntimeError if it fails before the write phase."""
        session = await self._primacy.acquire(self._on_packets)
        try:
            self._end_stand_ins()
            if await session.ensure_pipeline(self._pipeline.p4info, self._pipeline.device_config):
                log.info("loaded the pipeline into the switch at %s", self._config.address)
            await self._reconciler.read_back(session, partial(self._close, session))
            self._let_pass(session)
            await self._on_read()
            await self._reconciler.compare()
            self._primacy.recovered()
            error = await self._write_until_closed(session)
            self._primacy.last_error = f"{self._config.address}: session ended: {error}"
            log.log(
                logging.DEBUG if self._primacy.is_yielding else logging.WARNING,
                "switch %s",
                self.last_error,
            )
        finally:
            self._set_passing(None)
            self._primacy.close()

    def _end_stand_ins(self) -> None:
        if self._stand_ins is not None:
            try:
                self._stand_ins.end_stand_ins()
            except OSError as error:
                raise P4RuntimeError(FAILED_PRECONDITION, str(error)) from error

    def _let_pass(self, session: Session) -> None:
        session.set_packet_metadata(self._packets.packet_in, self._packets.packet_out)
        self._set_passing(session.election_id)

    def _set_passing(self, primary: ElectionId | None) -> None:
        if self._stand_ins is not None:
            self._stand_ins.set_passing(primary)

    def _close(self, session: Session, installed: EntitiesByKind) -> ClosingPlan:
        """Returns the entities to close. If there are none, enables packet-ins and packet-outs.

        If there are such entities, packets are enabled later, when all routes are read. By then,
        the packets that the switch punted before the closing have been discarded.
        """
        closed = self._closing(installed)
        if not closed:
            self._let_pass(session)
        else:
            log.info(
                "packets of these entries are dropped until the new configuration is written: %s",
                ", ".join(
                    f"{kind.name.lower()} ({text_of(key)})"
                    for kind, key in closed.withdrawn[:SHOWN]
                )
                + (", ..." if len(closed.withdrawn) > SHOWN else ""),
            )
        return closed

    async def _write_until_closed(self, session: Session) -> P4RuntimeError:
        tasks = [
            asyncio.create_task(self._measured("reconciler", self._reconciler.run(session))),
            asyncio.create_task(self._session_tasks(session)),
        ]
        ends: set[asyncio.Future[Any]] = {*tasks, session.closed}
        try:
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
        except P4RuntimeError as error:
            return error
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return session.closed.result()

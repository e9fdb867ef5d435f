# SPDX-License-Identifier: Apache-2.0
"""The connection to the switch, kept: session after session, each taken up where the last broke.

One session: become primary, give the switch its pipeline if it runs another, read back what it
holds and close what means something else by now, compare, then write until the session ends. What
is in the switch goes on forwarding all the while. Depends on p4runtime and reconciler.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any, Protocol

from sluice.connection_config import SwitchConfig
from sluice.entity_text import text_of
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Pipeline
from sluice.p4runtime.client import Client, Metadata
from sluice.p4runtime.election import ElectionId, question
from sluice.p4runtime.session import (
    FAILED_PRECONDITION,
    P4RuntimeError,
    PacketInHandler,
    Session,
)
from sluice.reconciler import Reconciler
from sluice.state.takeover import Closing, Entities

log = logging.getLogger(__name__)

SHOWN = 8
"""Entities that a line of the log names at most."""
FIRST_RECONNECT, LAST_RECONNECT = 0.05, 2.0
EAGER_SECONDS = 5.0
"""After a session: a switch that restarts is back by then, and is asked for at the first pace."""


class Backoff:
    """Seconds between two attempts to reach the switch."""

    def __init__(self) -> None:
        self._delay = FIRST_RECONNECT
        self._eager_until = float("-inf")

    def ended(self, now: float) -> float:
        """How long to wait after a session."""
        self._delay, self._eager_until = FIRST_RECONNECT, now + EAGER_SECONDS
        return self._delay

    def failed(self, now: float) -> float:
        """How long to wait after an attempt that came to no session."""
        if now >= self._eager_until:
            self._delay = min(LAST_RECONNECT, self._delay * 2)
        return self._delay


class StandIns(Protocol):
    """Processes that carry the host's packets for a controller that was killed."""

    def end_stand_ins(self) -> None:
        """Ends those of controllers before this one. Raises OSError where one does not end."""

    def set_passing(self, primary: ElectionId | None) -> None:
        """Takes notice of whether packets pass, and so of whether one may stand in for this
        controller: with which election id it is primary; None: none pass."""


class SwitchConnection:
    """One switch. When what it holds has been read, `closing` says what of it is to be closed
    before anything is written; then `on_read` is called, before the rest is compared.
    `session_tasks` runs beside the reconciler for as long as a session does; `measured` times what
    is awaited.

    Packets name interfaces by number, in the sense of who sent them: they go neither way before
    the switch and the configuration mean the same by all numbers that it still holds.
    Before a primary does anything, those who carry packets for the controller before are ended."""

    def __init__(
        self,
        *,
        config: SwitchConfig,
        pipeline: Pipeline,
        packets: PacketSchema,
        reconciler: Reconciler,
        connect: Callable[[ElectionId], Client],
        on_packets: PacketInHandler,
        closing: Callable[[Entities], Closing],
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
        self._connect = connect
        self._on_packets = on_packets
        self._closing = closing
        self._on_read = on_read
        self._session_tasks = session_tasks
        self._stand_ins = stand_ins
        self.session: Session | None = None
        self.last_error: str | None = None

    @property
    def primary(self) -> Session | None:
        """The session, while it may write."""
        session = self.session
        return session if session is not None and session.is_primary else None

    @property
    def arbitration(self) -> str:
        """Who is primary, for people."""
        return "not connected" if self.session is None else self.session.arbitration

    def packet_out(self, batch: list[tuple[bytes, Metadata]]) -> int:
        """Sends packets; returns how many the switch's bounded queue took."""
        return 0 if self.session is None else self.session.packet_out(batch)

    async def run(self) -> None:
        """Keeps a session until cancelled."""
        clock = asyncio.get_running_loop().time
        backoff = Backoff()
        while True:
            try:
                await self._one_session()
                delay = backoff.ended(clock())
            except P4RuntimeError as error:
                message = f"{self._config.address}: {error}"
                if message != self.last_error:
                    log.warning("switch %s", message)
                self.last_error = message
                delay = backoff.failed(clock())
            self._reconciler.disconnect()
            await asyncio.sleep(delay)

    async def _one_session(self) -> None:
        """From connection to end. Raises P4RuntimeError when it did not come to writing."""
        election_id = question()
        session = Session(
            self._connect(election_id),
            self._config.device_id,
            election_id,
            None,
            self._on_packets,
        )
        self.session = session
        try:
            await session.become_primary()
            self._end_stand_ins()
            if await session.ensure_pipeline(self._pipeline.p4info, self._pipeline.device_config):
                log.info("gave the switch at %s its pipeline", self._config.address)
            await self._reconciler.read_back(session, partial(self._close, session))
            self._let_pass(session)
            await self._on_read()
            await self._reconciler.compare()
            self.last_error = None
            error = await self._write_until_closed(session)
            self.last_error = f"{self._config.address}: session ended: {error}"
            log.warning("switch %s", self.last_error)
        finally:
            self._set_passing(None)
            session.close()
            self.session = None

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

    def _close(self, session: Session, installed: Entities) -> Closing:
        """What is to be closed. Where that is nothing, packets need not wait for the routes; else
        those that the switch punted before are gone by the time that the routes are read."""
        closed = self._closing(installed)
        if not closed:
            self._let_pass(session)
        else:
            log.info(
                "closed until the new configuration stands: %s",
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

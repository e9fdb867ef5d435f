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
from sluice.state.takeover import Closing, Entities

log = logging.getLogger(__name__)

SHOWN = 8
"""Entities that a line of the log names at most."""


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
        primacy: Primacy,
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
        self._primacy = primacy
        self._on_packets = on_packets
        self._closing = closing
        self._on_read = on_read
        self._session_tasks = session_tasks
        self._stand_ins = stand_ins

    @property
    def session(self) -> Session | None:
        """The session, also while it may not write."""
        return self._primacy.session

    @property
    def last_error(self) -> str | None:
        """Why there was no session last, or why it ended; None while one goes well."""
        return self._primacy.last_error

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
        """Keeps a session until cancelled. Raises DisplacedError where another controller has
        taken this one's turn for good."""
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
        """From connection to end. Raises P4RuntimeError when it did not come to writing."""
        session = await self._primacy.win(self._on_packets)
        try:
            self._end_stand_ins()
            if await session.ensure_pipeline(self._pipeline.p4info, self._pipeline.device_config):
                log.info("gave the switch at %s its pipeline", self._config.address)
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

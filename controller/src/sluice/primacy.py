# SPDX-License-Identifier: Apache-2.0
"""Keeps this controller primary: opens sessions in turn, and hands each out once it may write.

Of several controllers one is primary, and the others stand by (`wait_for_primacy`): they wait for a
turn that the switch tells them of, and displace nobody. A primary that lost its turn, and does not
get it back within its patience, is displaced (`DisplacedError`): it must release the resources of a
primary. Depends on p4runtime.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from sluice.connection_config import SwitchConfig
from sluice.p4runtime.client import Client
from sluice.p4runtime.election import ElectionId, question
from sluice.p4runtime.session import (
    ABORTED,
    P4RuntimeError,
    PacketInHandler,
    Session,
)

log = logging.getLogger(__name__)

FIRST_RECONNECT, LAST_RECONNECT = 0.05, 2.0
EAGER_SECONDS = 5.0
"""Time after a session during which reconnects use the first interval: a switch that restarts is
back by then."""
PATIENCE = 3.0
"""Seconds that a primary which lost its session waits while another one has its turn: the switch
may not have noticed yet that the session is over."""


class DisplacedError(P4RuntimeError):
    """Another controller is primary, and stays it."""


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


class Primacy:
    """The sessions of one controller. `connect` makes a client that asks with an election id.

    `patience` is in seconds, None without end. `first_id` is what the first session asks with,
    where this is to take the turn of the session that has a lower one.
    """

    def __init__(
        self,
        config: SwitchConfig,
        connect: Callable[[ElectionId], Client],
        patience: float | None = None,
        first_id: ElectionId | None = None,
    ) -> None:
        self._config = config
        self._connect = connect
        self._patience = patience
        self._first_id = first_id
        self.session: Session | None = None
        self.last_error: str | None = None
        self.is_yielding = False
        """Whether another session of this process is about to take the turn."""

    @property
    def is_standby(self) -> bool:
        """Whether another controller is primary."""
        return self.session is not None and self.session.is_standby

    async def acquire(self, on_packets: PacketInHandler) -> Session:
        """Returns a session that may write, and whose packet-ins go to `on_packets`.

        Raises P4RuntimeError where the session ended first, or where there was none; DisplacedError
        where another controller stayed primary for longer than the patience.
        """
        session = await self._become_primary(self._patience)
        session.on_packets = on_packets
        return session

    async def wait_for_primacy(self) -> None:
        """Returns when this controller is primary; the session is there for `acquire`."""
        clock = asyncio.get_running_loop().time
        backoff = Backoff()
        while True:
            try:
                session = await self._become_primary(None)
            except P4RuntimeError as error:
                self.failed(error)
                await asyncio.sleep(backoff.failed(clock()))
            else:
                session.on_packets = lambda _: None  # they name what nobody has read yet
                return

    def failed(self, error: P4RuntimeError) -> None:
        """Takes notice that there is no session, and says why, once."""
        message = f"{self._config.address}: {error}"
        if message != self.last_error:
            log.warning("switch %s", message)
        self.last_error = message

    def recovered(self) -> None:
        """Takes notice that a session is at work, and says so if the one before had failed."""
        if self.last_error is not None:
            level = logging.DEBUG if self.is_yielding else logging.INFO
            log.log(level, "switch %s: connected again", self._config.address)
        self.last_error = None

    def close(self) -> None:
        """Ends the session, if there is one."""
        if self.session is not None:
            self.session.close()
            self.session = None

    async def _become_primary(self, patience: float | None) -> Session:
        session = self.session
        if session is None or session.closed.done():
            self.close()
            asked, self._first_id = self._first_id or question(), None
            client = self._connect(asked)
            session = Session(client, self._config.device_id, asked, None, lambda _: None)
            self.session = session
        try:
            if patience is None:
                await session.become_primary()
            else:
                await self._wait_for(session, patience)
        except BaseException:
            self.close()
            raise
        return session

    async def _wait_for(self, session: Session, patience: float) -> None:
        while not session.is_primary:
            try:
                async with asyncio.timeout(patience):
                    await session.become_primary()
            except TimeoutError:
                if session.is_standby:
                    raise DisplacedError(ABORTED, session.arbitration) from None

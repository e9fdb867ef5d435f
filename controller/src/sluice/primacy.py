# SPDX-License-Identifier: Apache-2.0
"""Keeps this controller primary. Opens a new session whenever the last one has ended.

`Primacy.acquire` returns a session once the session may write. Of several controllers, only one is
primary. The others are on standby (`wait_for_primacy`): they wait until the switch reports that it
has no primary, and never displace a primary. A primary that loses this role, and does not regain it
within its patience, is displaced (`DisplacedError`). It must then release the resources of a
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
"""Time after a session during which reconnects use the first interval, in seconds. A switch
restarts within this time."""
PATIENCE = 3.0
"""Time that a controller waits after the loss of its session, while another session is primary, in
seconds. The other session may be an earlier one of this controller, whose end the switch has not
noticed yet."""


class DisplacedError(P4RuntimeError):
    """Reports that another controller has been primary for longer than this controller's
    patience."""


class Backoff:
    """Computes the delay in seconds between two attempts to reach the switch."""

    def __init__(self) -> None:
        self._delay = FIRST_RECONNECT
        self._eager_until = float("-inf")

    def ended(self, now: float) -> float:
        """Returns the delay before the next attempt, after a session has ended."""
        self._delay, self._eager_until = FIRST_RECONNECT, now + EAGER_SECONDS
        return self._delay

    def failed(self, now: float) -> float:
        """Returns the delay before the next attempt, after an attempt has failed."""
        if now >= self._eager_until:
            self._delay = min(LAST_RECONNECT, self._delay * 2)
        return self._delay


class Primacy:
    """Opens the sessions of one controller.

    `connect` creates a client that arbitrates with an election id. `patience` is in seconds; None:
    no limit. `first_id`, if given, is the election id of the first session. To displace an earlier
    session of its own, the caller chooses an id higher than that session's.
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
        """Whether another session of this process is about to become primary."""

    @property
    def is_standby(self) -> bool:
        """Whether another controller is primary."""
        return self.session is not None and self.session.is_standby

    async def acquire(self, on_packets: PacketInHandler) -> Session:
        """Returns a session that may write, and whose packet-ins go to `on_packets`.

        Raises P4RuntimeError if the session fails or ends before it may write. Raises
        DisplacedError if another controller stays primary for longer than the patience.
        """
        session = await self._become_primary(self._patience)
        session.on_packets = on_packets
        return session

    async def wait_for_primacy(self) -> None:
        """Waits until this controller is primary. `acquire` then returns the session."""
        clock = asyncio.get_running_loop().time
        backoff = Backoff()
        while True:
            try:
                session = await self._become_primary(None)
            except P4RuntimeError as error:
                self.failed(error)
                await asyncio.sleep(backoff.failed(clock()))
            else:
                # Packet-ins are ignored, because the meaning of the ids in them is unknown before
                # the read-back.
                session.on_packets = lambda _: None
                return

    def failed(self, error: P4RuntimeError) -> None:
        """Records the error that prevents a session. Logs it only if it differs from the previous
        error."""
        message = f"{self._config.address}: {error}"
        if message != self.last_error:
            log.warning("switch %s", message)
        self.last_error = message

    def recovered(self) -> None:
        """Records that a session works. Logs this if the previous attempt had failed."""
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

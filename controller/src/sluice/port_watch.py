# SPDX-License-Identifier: Apache-2.0
"""Polls the switch's ports, reports missing ports, and detects a switch that does not answer.

P4Runtime has no messages about ports, so sluice-switch reports its ports by another gRPC service at
the same address. Other targets refuse the request. A refusal counts as an answer of the switch: the
target's ports stay unknown, and no port is reported as missing. Depends on config and the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator

from sluice.config import Config
from sluice.p4runtime.session import P4RuntimeError, Session, SwitchPorts

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Pause between two requests, in seconds."""
PATIENCE = 5.0
"""Time without an answer after which the switch is reported as hanging, in seconds."""


class PortWatch:
    """Holds the switch's last reported ports. Calls `on_changed` with the ports on every change."""

    def __init__(self, config: Config, on_changed: Callable[[SwitchPorts | None], None]) -> None:
        self._config = config
        self._on_changed = on_changed
        self.ports: SwitchPorts | None = None
        self._missing: tuple[str, ...] = ()
        self._unanswered: tuple[str, ...] = ()

    @property
    def problems(self) -> tuple[str, ...]:
        """Returns the problems of the switch, as sentences."""
        return self._unanswered + self._missing

    async def run(self, session: Session) -> None:
        """Polls until cancelled. Raises P4RuntimeError when the session ends."""
        try:
            while True:
                try:
                    found = await self._ask(session)
                except P4RuntimeError:
                    if session.closed.done():
                        raise
                    found = self.ports  # after a refusal, the last report stays valid
                self._set_silent(False)
                if found != self.ports:
                    self._changed(found)
                await asyncio.sleep(INTERVAL)
        finally:
            self._unanswered = ()  # the end of the session is reported elsewhere

    async def _ask(self, session: Session) -> SwitchPorts | None:
        question = asyncio.ensure_future(session.ports())
        try:
            answered, _ = await asyncio.wait({question}, timeout=PATIENCE)
            if not answered:
                self._set_silent(True)
            return await question
        finally:
            question.cancel()

    def _set_silent(self, is_silent: bool) -> None:
        before, self._unanswered = self._unanswered, ()
        if is_silent:
            self._unanswered = (
                f"the switch at {self._config.switch.address} has not answered for {PATIENCE:g} s:"
                f" it hangs, or gets too little CPU time",
            )
        _log_changes(before, self._unanswered)

    def state_of(self, port: int) -> str | None:
        """Returns "up", "down" or "absent", or None if the switch does not report its ports."""
        if self.ports is None:
            return None
        link = self.ports.links.get(port)
        return "absent" if link is None else "up" if link else "down"

    def _changed(self, found: SwitchPorts | None) -> None:
        self.ports = found
        before, self._missing = self._missing, tuple(self._find_missing())
        _log_changes(before, self._missing)
        self._on_changed(found)

    def _find_missing(self) -> Iterator[str]:
        """Yields a sentence for each configured port that the switch lacks.

        Also yields a sentence if the switch's CPU port differs from the configured one, and for
        each engine's port that is down.
        """
        if self.ports is None:
            return
        wanted = self._config.switch.cpu_port
        if self.ports.cpu_port != wanted:
            has = "none" if self.ports.cpu_port is None else f"{self.ports.cpu_port}"
            yield (
                f"the switch's CPU port is {has}, not {wanted} (switch.cpu_port): packets for the"
                f" router do not arrive; start the switch with --cpu-port {wanted}, or correct"
                f" switch.cpu_port"
            )
        by_port: dict[int, list[str]] = {}
        for interface in self._config.interfaces:
            by_port.setdefault(interface.port, []).append(interface.name)
        for port, names in by_port.items():
            if port not in self.ports.links:
                yield (
                    f"interface {', '.join(names)}: the switch has no port {port}; attach it"
                    f" (sluice-switch ctl add-port)"
                )
        for engine in self._config.policy.engines:
            state = self.state_of(engine.port)
            if state == "absent":
                yield (
                    f"engine {engine.id}: the switch has no port {engine.port}, so it drops this"
                    f" engine's packets as NO_ENGINE; attach the port (sluice-switch ctl add-port)"
                )
            elif state == "down":
                yield (
                    f"engine {engine.id}: the link of the switch's port {engine.port} is down, so"
                    f" the switch drops this engine's packets as NO_ENGINE"
                )


def _log_changes(before: Iterable[str], now: Iterable[str]) -> None:
    """Logs the problems that are new, and those that have ended."""
    for problem in now:
        if problem not in before:
            log.warning("%s", problem)
    for problem in before:
        if problem not in now:
            log.info("solved: %s", problem)

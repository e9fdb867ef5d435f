# SPDX-License-Identifier: Apache-2.0
"""Watches which ports the switch has, and says which of the configuration's are missing.

P4Runtime does not tell of ports. sluice-switch does, at the same address; of another target nothing
is known, and nothing is missing. Depends on config and the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator

from sluice.config import Config
from sluice.p4runtime.session import P4RuntimeError, Session, SwitchPorts

log = logging.getLogger(__name__)

INTERVAL = 1.0
"""Seconds between two questions."""


class PortWatch:
    """The switch's ports as they were last told. `on_changed` is called with every difference."""

    def __init__(self, config: Config, on_changed: Callable[[SwitchPorts | None], None]) -> None:
        self._config = config
        self._on_changed = on_changed
        self.ports: SwitchPorts | None = None
        self.problems: tuple[str, ...] = ()

    async def run(self, session: Session) -> None:
        """Asks until cancelled. Raises P4RuntimeError when the session ends."""
        while True:
            try:
                found = await session.ports()
            except P4RuntimeError:
                if session.closed.done():
                    raise
                found = self.ports  # refused, this time: what was told last holds
            if found != self.ports:
                self._changed(found)
            await asyncio.sleep(INTERVAL)

    def state_of(self, port: int) -> str | None:
        """ "up", "down" or "absent"; None if the switch does not tell."""
        if self.ports is None:
            return None
        link = self.ports.links.get(port)
        return "absent" if link is None else "up" if link else "down"

    def _changed(self, found: SwitchPorts | None) -> None:
        self.ports = found
        before, self.problems = self.problems, tuple(self._missing())
        for problem in self.problems:
            if problem not in before:
                log.warning("%s", problem)
        for problem in before:
            if problem not in self.problems:
                log.info("no longer so: %s", problem)
        self._on_changed(found)

    def _missing(self) -> Iterator[str]:
        """What the configuration names and the switch does not have."""
        if self.ports is None:
            return
        wanted = self._config.switch.cpu_port
        if self.ports.cpu_port != wanted:
            has = "none" if self.ports.cpu_port is None else f"{self.ports.cpu_port}"
            yield (
                f"the switch's CPU port is {has}, not {wanted} (switch.cpu_port): packets for the"
                f" router do not arrive; start the switch with --cpu-port {wanted}"
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
                    f"engine {engine.id}: the switch has no port {engine.port}, so what it should"
                    f" encrypt or decrypt is dropped as NO_ENGINE; attach it (sluice-switch ctl"
                    f" add-port)"
                )
            elif state == "down":
                yield (
                    f"engine {engine.id}: the link of the switch's port {engine.port} is down, so"
                    f" what it should encrypt or decrypt is dropped as NO_ENGINE"
                )

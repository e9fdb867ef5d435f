# SPDX-License-Identifier: Apache-2.0
"""Runs the daemon: waits on standby, runs one configuration after the other, and serves the API.

A `ControllerRun` (a **life**) is the period in which the daemon runs one configuration. A life
first waits to become the switch's primary, and until then changes nothing on this host. Then it
opens the sources and runs a controller. A life ends when the daemon ends, at a reload, or when
another controller becomes primary. In the last case, the next life is on standby first.

A reload reads the file, and applies or refuses it as a whole (`reload`). If more than simple
settings change, the reload works like a restart: a new session becomes primary, and the old
controller ends. The new controller closes the entities in the switch that differ, so that they drop
packets. It changes them and opens them again. If the new life cannot begin, a life with the old
configuration begins.

Depends on controller, host_sources and api.requests.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from sluice._native import P4RuntimeClient
from sluice.api.requests import Requests
from sluice.api.server import BadRequestError
from sluice.api.standby import standby_status
from sluice.config import Config, ConfigError, load_config
from sluice.controller import Controller
from sluice.fast_path import FastPath
from sluice.garbage_collection import GarbageCollection
from sluice.host_sources import (
    StartResources,
    error_text,
    names_in,
    open_sources,
    probe,
    remove_taps,
)
from sluice.metrics import standby_lines
from sluice.namespaces import OWN_NAMESPACE
from sluice.numbers import InterfaceNumbers, NumbersError
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Pipeline, Schema, SchemaError
from sluice.p4runtime import transport
from sluice.p4runtime.client import Client
from sluice.p4runtime.election import ElectionId, above
from sluice.p4runtime.session import INVALID_ARGUMENT, P4RuntimeError
from sluice.policy.spdstore import SpdStore, SpdStoreError
from sluice.policy.start import PolicyError, rules_at_start
from sluice.primacy import PATIENCE, DisplacedError, Primacy
from sluice.privileges import PrivilegeError
from sluice.reload import ReloadReport, differences, with_isolation_of
from sluice.sa_uses import SaStoreError
from sluice.service_manager import ServiceManager
from sluice.sources.handover import Handover
from sluice.stalls import Stalls

log = logging.getLogger(__name__)

FAILURES = (
    *(ConfigError, SchemaError, SpdStoreError, NumbersError, PolicyError, PrivilegeError),
    *(SaStoreError, OSError),
)
"""Errors that end the daemon with a message. A reload that raises such an error is refused."""
TAKING_OVER_SECONDS, TAKING_OVER_INTERVAL = 10.0, 0.1
"""Time that a new primary waits for its predecessor on the host to release resources, and interval
of its attempts, in seconds."""
TURN_SECONDS = 10.0
"""Time that a reload waits for the new session to become primary, in seconds."""


class ReloadError(Exception):
    """Reports a refused reload, with the reason."""


class SharedState(NamedTuple):
    """Holds the state that all lives of a daemon share."""

    pipeline: Pipeline
    start: StartResources
    stalls: Stalls
    manager: ServiceManager
    reloads: ReloadReport
    started_at: float
    """Time by the event loop's clock, in seconds."""


class ControllerRun:
    """Runs one configuration, from standby to its end.

    - `config`: the configuration, with the isolation of each VRF filled in.
    - `takes_over`: the election id of the primary session that this run replaces.
    - `discards_commits`: the run begins by discarding the committed rules of SPDs.
    """

    def __init__(
        self,
        shared: SharedState,
        config: Config,
        *,
        takes_over: ElectionId | None = None,
        discards_commits: bool = False,
    ) -> None:
        self._shared = shared
        self.config = config
        self.before: Config | None = None
        """The configuration that is started again if this one cannot start."""
        self._discards_commits = discards_commits
        self.controller: Controller | None = None
        self._requests: Requests | None = None
        self.started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Future that is done when the controller runs, or has the error that prevented this."""
        self._handover = Handover()
        self._fast_path = FastPath(
            PacketSchema(Schema(shared.pipeline.p4info)),
            remembers=bool(config.policy.spds),
            withholds_ike=any(spd.is_mirrored for spd in config.policy.spds),
            handover=self._handover,
            names=names_in(config, OWN_NAMESPACE),
        )
        self.primacy = Primacy(
            config.switch,
            partial(connect, config, fast_path=self._fast_path),
            PATIENCE,
            None if takes_over is None else above(takes_over),
        )

    async def take_over(self) -> None:
        """Becomes primary in place of the session with the election id `takes_over`. Raises
        P4RuntimeError."""
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self.primacy.acquire(lambda _: None)
        except TimeoutError:
            raise P4RuntimeError(INVALID_ARGUMENT, "the switch does not answer") from None

    def close(self) -> None:
        """Closes the session with the switch, and the handover memory."""
        self.primacy.close()
        self._handover.close()

    async def run(self) -> None:
        """Runs until cancelled. Raises DisplacedError, or one of FAILURES if it cannot begin."""
        with contextlib.closing(self):
            standing_by = asyncio.create_task(self.primacy.wait_for_primacy())
            stood_by = await self._stand_by(standing_by)
            async with contextlib.AsyncExitStack() as stack:
                controller = await self._begin(stack, patient=stood_by)
                self.controller, self._requests = controller, Requests(controller)
                stack.callback(self._end)
                self.started.set_result(None)
                await controller.run()

    async def _stand_by(self, turn: asyncio.Task[None]) -> bool:
        """Waits to become primary. Returns whether another controller was primary during the
        wait."""
        stood_by = False
        try:
            while not turn.done():
                if self.primacy.is_standby and not stood_by:
                    stood_by = True
                    reason = f"another controller is primary at {self.config.switch.address}"
                    log.info("standby: %s; this controller changes nothing on this host", reason)
                    self._shared.manager.notify(f"READY=1\nSTATUS=standby: {reason}")
                await asyncio.wait({turn}, timeout=TAKING_OVER_INTERVAL)
            turn.result()
        finally:
            turn.cancel()
            await asyncio.gather(turn, return_exceptions=True)
        if stood_by:
            log.info("primary now at %s", self.config.switch.address)
        return stood_by

    async def _begin(self, stack: contextlib.AsyncExitStack, patient: bool) -> Controller:
        """Opens the sources and creates the controller. `stack` closes them."""
        shared = self._shared
        if self._discards_commits:
            SpdStore(self.config.state_dir).forget_committed()
        numbers = InterfaceNumbers(self.config.state_dir)
        given = numbers.assign(self.config)
        deadline = asyncio.get_running_loop().time() + TAKING_OVER_SECONDS * patient
        while True:
            async with contextlib.AsyncExitStack() as opened:
                try:
                    sources = open_sources(
                        given, shared.start, self._fast_path, self._handover, opened
                    )
                except OSError as error:
                    late = asyncio.get_running_loop().time() >= deadline
                    if late or error.errno not in (errno.EBUSY, errno.EADDRINUSE):
                        raise
                else:
                    # Order: this callback runs first. It removes the fast path's tables from the
                    # handover memory. So only a killed controller leaves tables, and only then does
                    # a stand-in forward packets.
                    opened.callback(self._handover.withdraw)
                    controller = Controller(
                        given,
                        shared.pipeline,
                        sources,
                        partial(connect, given, fast_path=self._fast_path),
                        partial(_say_ready, shared.manager),
                        numbers=numbers,
                        stalls=shared.stalls,
                        primacy=self.primacy,
                    )
                    controller.reloads, controller.started_at = shared.reloads, shared.started_at
                    garbage = GarbageCollection()
                    controller.on_routes = garbage.made
                    garbage.start()
                    opened.callback(garbage.stop)
                    await stack.enter_async_context(opened.pop_all())
                    return controller
            await asyncio.sleep(TAKING_OVER_INTERVAL)

    def _end(self) -> None:
        if self.controller is not None:
            self.controller.views.close()
        self.controller = self._requests = None

    async def answer(self, request: dict[str, Any]) -> Any:
        """Answers a request of the API. Raises BadRequestError."""
        if self._requests is not None:
            return await self._requests.answer(request)
        if request.get("command") == "show" and request.get("what") == "status":
            uptime = asyncio.get_running_loop().time() - self._shared.started_at
            return standby_status(self.config, self.primacy, self._shared.reloads, uptime)
        address, session = self.config.switch.address, self.primacy.session
        why = self.primacy.last_error if session is None else session.arbitration
        raise BadRequestError(
            f"this controller is on standby and cannot answer: {why or 'connecting'}"
            f" (switch at {address}); ask the primary controller, or see `sluice show status`"
        )

    async def turn(self) -> None:
        """Waits until work that is more urgent than the API has run."""
        if self.controller is None:
            await asyncio.sleep(0)
        else:
            await self.controller.views.next()


class Service:
    """Runs the daemon's lives, and answers API requests.

    `path` is the configuration file, or None if there is none. `read` is the configuration as read.
    `decided` is the same with the isolation of each VRF filled in.
    """

    def __init__(
        self,
        shared: SharedState,
        path: Path | None,
        read: Config,
        decided: Config,
        *,
        discards_commits: bool = False,
    ) -> None:
        self._shared = shared
        self._path = path
        self._read = read
        self._life = ControllerRun(shared, decided, discards_commits=discards_commits)
        self._running: asyncio.Task[None] | None = None
        self._next: ControllerRun | None = None
        self._lock = asyncio.Lock()
        self._reloading: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Runs one life after the other, until cancelled. Raises one of FAILURES."""
        while True:
            self._running = asyncio.create_task(self._life.run())
            try:
                await asyncio.wait({self._running})
            finally:
                self._running.cancel()
                await asyncio.gather(self._running, return_exceptions=True)
            await self._follow(self._running)

    async def _follow(self, ended: asyncio.Task[None]) -> None:
        """Chooses the next life. If there must be none, raises the error that ended the last
        life."""
        old, following, self._next = self._life, self._next, None
        if following is not None:
            if old.started.done():  # otherwise the TAPs belong to another controller
                removed = _tap_names(old.config) - _tap_names(following.config)
                remove_taps(removed, self._shared.start.vrf_namespaces.namespaces)
                following.before = old.config
            self._life = following
            return
        try:
            ended.result()
        except DisplacedError as error:
            log.warning("standby: %s; the host's interfaces are released", error)
            self._life = ControllerRun(self._shared, old.config)
        except FAILURES as error:
            if old.before is None or old.started.done():
                raise
            log.error(
                "the new configuration cannot start, the old one is back in force: %s",
                error_text(error),
            )
            old.started.set_exception(ReloadError(error_text(error)))
            self._life = ControllerRun(self._shared, old.before)
        else:
            raise RuntimeError("the controller ended unexpectedly")

    # -- reload

    def ask_to_reload(self) -> None:
        """Starts a reload in a separate task, as SIGHUP does. The outcome is logged."""

        async def reload() -> None:
            with contextlib.suppress(ReloadError):
                await self.reload()

        task = asyncio.get_running_loop().create_task(reload())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)

    async def reload(self) -> list[str]:
        """Applies the current content of the configuration file. If it cannot be applied as a
        whole, changes nothing.

        Returns the changed keys. Raises ReloadError.
        """
        async with self._lock:
            manager, reloads = self._shared.manager, self._shared.reloads
            manager.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
            try:
                changed = await self._reload()
            except (ReloadError, P4RuntimeError, *FAILURES) as error:
                reloads.refused = error_text(error)
                log.error(
                    "%s is not reloaded, the configuration in force stays: %s",
                    self._path,
                    reloads.refused,
                )
                raise ReloadError(reloads.refused) from error
            finally:
                manager.notify("READY=1")
            reloads.refused, reloads.succeeded_at = None, time.time()
            log.info("%s is reloaded: %s", self._path, ", ".join(changed) or "nothing has changed")
            return changed

    async def _reload(self) -> list[str]:
        if self._path is None:
            raise ReloadError(
                "`sluice up` made this configuration from the kernel's state, which it follows;"
                " there is no file to read"
            )
        new = await asyncio.to_thread(load_config, self._path)
        found = differences(self._read, new)
        if found.fixed:
            raise ReloadError(
                f"{', '.join(found.fixed)}: cannot be changed while the controller runs; restart"
                " it, or undo the change"
            )
        life = self._life
        decided = with_isolation_of(new, life.config)
        if life.controller is None:
            if found.all:
                self._replace(ControllerRun(self._shared, decided))
        elif not found.by_restart:
            life.config = decided
            life.controller.set_limits(decided)
        else:
            following = await self._prepare(life.controller, decided)
            # Order: the old controller's resources are freed before the new one begins.
            del life
            self._replace(following)
            await following.started
        self._read = new
        return list(found.all)

    def _replace(self, following: ControllerRun) -> None:
        self._next = following
        if self._running is not None:
            self._running.cancel()

    async def _prepare(self, controller: Controller, new: Config) -> ControllerRun:
        """Returns a new life whose session is primary already. Raises an error if this fails."""
        session = controller.connection.primary
        if session is None:
            raise ReloadError("the switch is not connected; reload again when it is")
        old = self._life.config
        record = SpdStore(new.state_dir).load()
        rules_at_start(new, record)
        controller.policy.check_capacity(new)
        probe(old, new, self._shared.start.vrf_namespaces.namespaces)
        following = ControllerRun(self._shared, new, takes_over=session.election_id)
        yielding = self._life.primacy
        yielding.is_yielding = True
        try:
            await following.take_over()
        except P4RuntimeError:
            yielding.is_yielding = False
            following.close()
            raise
        return following

    # -- answers

    async def answer(self, request: dict[str, Any]) -> Any:
        """Answers a request of the API. Raises BadRequestError."""
        if request.get("command") == "reload":
            try:
                return {"changed": await self.reload()}
            except ReloadError as error:
                raise BadRequestError(str(error)) from error
        return await self._life.answer(request)

    async def metrics(self) -> str:
        """Returns the metrics as text. On standby, these are only the metrics of the controller
        itself."""
        if self._life.controller is None:
            status = await self._life.answer({"command": "show", "what": "status"})
            return "\n".join(standby_lines(status)) + "\n"
        text: str = await self._life.answer({"command": "show", "what": "metrics"})
        return text

    async def turn(self) -> None:
        """Behaves like `ControllerRun.turn`."""
        await self._life.turn()


def connect(config: Config, election_id: ElectionId, fast_path: FastPath | None = None) -> Client:
    """Creates a client, which connects in the background. Raises P4RuntimeError."""
    switch = config.switch
    keys = transport.prepare(switch)
    server_name = None if switch.tls is None else switch.tls.server_name
    if fast_path is not None:
        fast_path.connects(switch, keys)
    try:
        return P4RuntimeClient(
            str(switch.address),
            switch.device_id,
            election_id,
            tls=keys,
            server_name=server_name,
            fast_path=None if fast_path is None else fast_path.native,
            punts=None if fast_path is None else fast_path.punts.native,
        )
    except ValueError as error:  # a TLS file holds no certificate or key
        raise P4RuntimeError(INVALID_ARGUMENT, str(error)) from error


def _tap_names(config: Config) -> set[tuple[str, int]]:
    """Returns the TAPs' names, each with the number of its network namespace."""
    return {(one.name, one.vrf.namespace_number) for one in config.interfaces}


def _say_ready(manager: ServiceManager) -> None:
    print("sluice: ready", file=sys.stderr, flush=True)
    manager.notify("READY=1\nSTATUS=the switch is programmed")

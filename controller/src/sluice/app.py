# SPDX-License-Identifier: Apache-2.0
"""Runs the daemon's process: configuration, privileges, signals and API. `service` runs the router.

`run(config_path)` returns an exit code. If the start fails, it prints the reason as one sentence on
standard error. On SIGTERM or SIGINT the daemon ends, while the switch keeps its entries and
continues to forward. On SIGHUP the daemon reloads its configuration.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sluice import journal, privileges
from sluice.api.metrics_server import MetricsServer
from sluice.api.server import ApiServer
from sluice.config import Config, load_config
from sluice.host_sources import StartResources, check, error_text
from sluice.p4.schema import load_pipeline
from sluice.policy.spdstore import prepare
from sluice.reload import ReloadReport
from sluice.service import FAILURES, Service, SharedState
from sluice.service_manager import ServiceManager
from sluice.stalls import Stalls, measured_loop

OK, FAILED = 0, 1


def run(config_path: Path, *, configured_policy: bool = False) -> int:
    """Runs the daemon until it receives SIGTERM or SIGINT. Returns the process's exit code.

    With `configured_policy`, SPDs start with the configured rules instead of those of the last
    commit.
    """
    return _run_daemon(partial(load_config, config_path), config_path, configured_policy)


def run_without_file(config: Config) -> int:
    """Runs the daemon like `run`, with a configuration object instead of a file (`sluice up`)."""
    return _run_daemon(lambda: config, None, configured_policy=False)


def _run_daemon(
    read_config: Callable[[], Config], config_path: Path | None, configured_policy: bool
) -> int:
    journal.start()
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # too early: no configuration is loaded yet
    try:
        privileges.forbid_core()
        read = read_config()
        journal.name_router(read.router)
        prepare(read.state_dir)
        start = StartResources(read.state_dir)
        decided = start.vrf_namespaces.decide(read, start.vrf_devices.prepare)
        for namespace in start.vrf_namespaces.namespaces.values():
            namespace.give_up_privileges()
        privileges.drop()
        check(decided, start.vrf_namespaces.namespaces)
        stalls = Stalls()
        with asyncio.Runner(loop_factory=partial(measured_loop, stalls)) as runner:
            pipeline = load_pipeline(read.switch.pipeline)
            manager = ServiceManager.from_environment()
            now = runner.get_loop().time()
            parts = SharedState(pipeline, start, stalls, manager, ReloadReport(time.time()), now)
            runner.run(_run(parts, config_path, read, decided, configured_policy))
    except FAILURES as error:
        print(f"sluice: {error_text(error)}", file=sys.stderr)
        return FAILED
    return OK


async def _run(
    parts: SharedState, path: Path | None, read: Config, decided: Config, configured_policy: bool
) -> None:
    stalls, manager = parts.stalls, parts.manager
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(parts.start.vrf_namespaces.close)
        stack.callback(stalls.watch_garbage())
        service = Service(parts, path, read, decided, discards_commits=configured_policy)
        api = ApiServer(
            read.api_socket, service.answer, turn=service.turn, measured=stalls.measured
        )
        await stack.enter_async_context(api)
        if read.metrics_listen is not None:
            server = MetricsServer(read.metrics_listen, service.metrics)
            await stack.enter_async_context(server)
        devices = parts.start.vrf_devices
        watching = asyncio.create_task(stalls.measured("VRF devices", devices.watch()))
        stack.callback(watching.cancel)
        stack.callback(manager.notify, "STOPPING=1")
        alive = asyncio.create_task(manager.keep_informed())
        stack.callback(alive.cancel)
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, service.ask_to_reload)
        await _until_signal(asyncio.create_task(service.run()))


async def _until_signal(main: asyncio.Task[None]) -> None:
    """Runs the task until it fails, or until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, main.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await main

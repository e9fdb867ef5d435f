# SPDX-License-Identifier: Apache-2.0
"""The daemon: sources, controller and API put together, and their life from start to signal.

The only module that makes real sources and the native client. `run(config_path)` returns an exit
code; what goes wrong at start is said in one sentence on standard error. On SIGTERM or SIGINT the
daemon leaves; what it installed stays in the switch and goes on forwarding.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import sys
from functools import partial
from pathlib import Path

from sluice import privileges
from sluice._native import FpmServer, P4RuntimeClient, TapSet
from sluice.api.requests import Requests
from sluice.api.server import ApiServer
from sluice.config import Config, ConfigError, load_config
from sluice.controller import Controller
from sluice.fast_path import FastPath
from sluice.garbage import Garbage
from sluice.inputs import Sources
from sluice.model import MAIN_TABLE
from sluice.numbers import InterfaceNumbers, NumbersError
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Schema, SchemaError, load_pipeline
from sluice.p4runtime import transport
from sluice.p4runtime.client import Client
from sluice.p4runtime.election import ElectionId
from sluice.p4runtime.session import INVALID_ARGUMENT, P4RuntimeError
from sluice.policy_start import PolicyError
from sluice.privileges import PrivilegeError
from sluice.sources.fpm import FpmSource
from sluice.sources.host import HostInterfaces
from sluice.sources.ike_ports import IkePorts
from sluice.sources.kernel import KernelMonitor
from sluice.sources.kernel_routes import KernelRouteDump
from sluice.sources.neighbor_probe import NeighborProbe
from sluice.sources.peer import AllowedUsers
from sluice.sources.punt import PuntQueue
from sluice.sources.replay import ReplayGate
from sluice.sources.tap_keeper import TapKeeper
from sluice.sources.vrf_devices import VrfDevices
from sluice.spdstore import SpdStore, SpdStoreError, prepare
from sluice.stalls import Stalls, measured_loop

OK, FAILED = 0, 1
FAILURES = (
    *(ConfigError, SchemaError, SpdStoreError, NumbersError, PolicyError, PrivilegeError),
    OSError,
)
"""What ends the daemon with a sentence."""


def run(config_path: Path, *, configured_policy: bool = False) -> int:
    """Runs the daemon until a signal; the process's exit code.

    With `configured_policy`, SPDs start as the configuration has them and not as last committed.
    """
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(message)s"
    )
    try:
        config = load_config(config_path)
        prepare(config.state_dir)
        privileges.drop()
        if configured_policy:
            SpdStore(config.state_dir).forget_committed()
        numbers = InterfaceNumbers(config.state_dir)
        stalls = Stalls()
        with asyncio.Runner(loop_factory=partial(measured_loop, stalls)) as runner:
            runner.run(_run(numbers.give(config), numbers, stalls))
    except FAILURES as error:
        print(f"sluice: {_sentence(error)}", file=sys.stderr)
        return FAILED
    return OK


def _sentence(error: Exception) -> str:
    """Returns what an error says, without the numbers that only programs need."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error)
    text = re.sub(r" \(os error \d+\)", "", error.strerror)
    return text if error.filename is None else f"{error.filename}: {text}"


async def _run(config: Config, numbers: InterfaceNumbers, stalls: Stalls) -> None:
    pipeline = load_pipeline(config.switch.pipeline)
    async with contextlib.AsyncExitStack() as stack:
        fast_path = FastPath(
            PacketSchema(Schema(pipeline.p4info)), remembers=bool(config.policy.spds)
        )
        sources = _make_sources(config, fast_path, stack)
        controller = Controller(
            config,
            pipeline,
            sources,
            partial(_connect, config, fast_path=fast_path),
            _say_ready,
            numbers=numbers,
            stalls=stalls,
        )
        stack.callback(stalls.watch_garbage())
        api = ApiServer(
            config.api_socket,
            Requests(controller).answer,
            turn=controller.views.next,
            measured=stalls.measured,
        )
        await stack.enter_async_context(api)
        garbage = Garbage()
        controller.on_routes = garbage.made
        garbage.start()
        stack.callback(garbage.stop)
        await _until_signal(asyncio.create_task(controller.run()))


def _make_sources(config: Config, fast_path: FastPath, stack: contextlib.AsyncExitStack) -> Sources:
    """Opens everything; `stack` closes it. Raises OSError in a sentence."""
    ike_ports = None
    if config.policy.spds:  # before there is an interface that a packet could leave by
        ike_ports = IkePorts(config.ike.users)
        stack.callback(ike_ports.close)
    probe = NeighborProbe()
    kernel = KernelMonitor(probe=probe)
    stack.callback(kernel.close)
    vrf_devices = VrfDevices()
    vrf_devices.prepare(config.vrfs)
    taps = TapSet(fast_path=fast_path.native)
    stack.callback(taps.close)
    host = HostInterfaces(
        taps,
        kernel,
        is_probe=probe.is_probe,
        guard=_unguarded if ike_ports is None else ike_ports.guard,
        join=vrf_devices.join,
        tables={vrf.table: vrf.id for vrf in config.vrfs},
        on_change=fast_path.publish,
    )
    stack.callback(host.close)
    for interface in config.interfaces:
        try:
            host.add(interface)
        except OSError as error:
            raise OSError(f"interface {interface.name}: {_sentence(error)}") from error
    host.publish()
    keeper = TapKeeper.start([interface.name for interface in config.interfaces])
    stack.callback(keeper.close)
    dump = KernelRouteDump()
    stack.callback(dump.close)
    try:
        server = FpmServer(str(config.fpm.listen))
    except OSError as error:
        raise OSError(f"fpm.listen: {_sentence(error)}") from error
    stack.callback(server.close)
    kernel.start()
    return Sources(
        routes=FpmSource(server, AllowedUsers(str(config.fpm.listen), config.fpm.users).admit),
        gate=ReplayGate(
            config.fpm.quiet_seconds,
            tables=frozenset(vrf.table for vrf in config.vrfs) - {MAIN_TABLE},
        ),
        dump=dump,
        kernel=kernel,
        host=host,
        punts=PuntQueue(config.limits.punt_queue),
        ike_ports=ike_ports,
        fast_path=fast_path,
    )


def _unguarded(device: str) -> None:
    """Without policy there is no rule that a packet could step around."""


def _connect(config: Config, election_id: ElectionId, fast_path: FastPath | None = None) -> Client:
    """Raises P4RuntimeError."""
    switch = config.switch
    keys = transport.prepare(switch)
    server_name = None if switch.tls is None else switch.tls.server_name
    try:
        return P4RuntimeClient(
            str(switch.address),
            switch.device_id,
            election_id,
            tls=keys,
            server_name=server_name,
            fast_path=None if fast_path is None else fast_path.native,
        )
    except ValueError as error:  # what the files hold is no certificate or key
        raise P4RuntimeError(INVALID_ARGUMENT, str(error)) from error


def _say_ready() -> None:
    print("sluice: ready", file=sys.stderr, flush=True)


async def _until_signal(main: asyncio.Task[None]) -> None:
    """Runs the task until it fails, or until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, main.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await main

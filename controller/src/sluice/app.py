# SPDX-License-Identifier: Apache-2.0
"""The daemon: sources, controller and API put together, and their life from start to signal.

The only module that makes real sources and the native client. `run(config_path)` returns an exit
code; what goes wrong at start is said in one sentence on standard error. On SIGTERM or SIGINT the
daemon leaves; what it installed stays in the switch and goes on forwarding.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from sluice import journal, privileges
from sluice._native import FpmServer, P4RuntimeClient, TapSet
from sluice.api.requests import Requests
from sluice.api.server import ApiServer
from sluice.config import Config, ConfigError, VrfConfig, load_config
from sluice.controller import Controller
from sluice.fast_path import FastPath
from sluice.garbage import Garbage
from sluice.inputs import RouteFeed, Sources
from sluice.model import MAIN_TABLE
from sluice.namespaces import HOME
from sluice.numbers import InterfaceNumbers, NumbersError
from sluice.p4.packets import PacketSchema
from sluice.p4.schema import Schema, SchemaError, load_pipeline
from sluice.p4runtime import transport
from sluice.p4runtime.client import Client
from sluice.p4runtime.election import ElectionId
from sluice.p4runtime.session import INVALID_ARGUMENT, P4RuntimeError
from sluice.policy_start import PolicyError
from sluice.privileges import PrivilegeError
from sluice.service_manager import ServiceManager
from sluice.sources.device import Devices
from sluice.sources.fpm import FpmSource
from sluice.sources.handover import Handover
from sluice.sources.host import HostInterfaces, TapPlace
from sluice.sources.ike_ports import IkePorts, SeveralIkePorts
from sluice.sources.kernel import KernelMonitor
from sluice.sources.kernel_routes import KernelRouteDump
from sluice.sources.namespace_routes import NamespaceRoutes
from sluice.sources.neighbor_probe import NeighborProbe
from sluice.sources.peer import AllowedUsers
from sluice.sources.punt import PuntQueue
from sluice.sources.replay import ReplayGate
from sluice.sources.several_kernels import SeveralKernels
from sluice.sources.tap_keeper import TapKeeper
from sluice.sources.vrf_devices import VrfDevices
from sluice.sources.vrf_places import VrfPlaces
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
    journal.start()
    try:
        config = load_config(config_path)
        journal.name_router(config.router)
        prepare(config.state_dir)
        start = _Start(config.state_dir)
        config = start.places.decide(config, start.vrf_devices.prepare)
        for namespace in start.places.namespaces.values():
            namespace.give_up_privileges()
        privileges.drop()
        if configured_policy:
            SpdStore(config.state_dir).forget_committed()
        numbers = InterfaceNumbers(config.state_dir)
        stalls = Stalls()
        with asyncio.Runner(loop_factory=partial(measured_loop, stalls)) as runner:
            runner.run(_run(numbers.give(config), start, numbers, stalls))
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


class _Start:
    """What takes more privileges than are kept."""

    def __init__(self, state_dir: Path) -> None:
        self.vrf_devices = VrfDevices()
        self.places = VrfPlaces(state_dir)


async def _run(config: Config, start: _Start, numbers: InterfaceNumbers, stalls: Stalls) -> None:
    pipeline = load_pipeline(config.switch.pipeline)
    manager = ServiceManager.from_environment()
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(start.places.close)
        handover = Handover()
        fast_path = FastPath(
            PacketSchema(Schema(pipeline.p4info)),
            remembers=bool(config.policy.spds),
            handover=handover,
            names=_names_in(config, HOME),
        )
        sources = _make_sources(config, start, fast_path, handover, stack)
        stack.callback(handover.close)  # the first to go: nobody stands in for who ends by itself
        controller = Controller(
            config,
            pipeline,
            sources,
            partial(_connect, config, fast_path=fast_path),
            partial(_say_ready, manager),
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
        watching = asyncio.create_task(stalls.measured("VRF devices", start.vrf_devices.watch()))
        stack.callback(watching.cancel)
        stack.callback(manager.tell, "STOPPING=1")
        alive = asyncio.create_task(manager.keep_informed())
        stack.callback(alive.cancel)
        await _until_signal(asyncio.create_task(controller.run()))


def _names_in(config: Config, namespace: int) -> list[str]:
    """Returns the TAPs that are in a network namespace."""
    return [each.name for each in config.interfaces if each.vrf.place == namespace]


def _make_sources(
    config: Config,
    start: _Start,
    fast_path: FastPath,
    handover: Handover,
    stack: contextlib.AsyncExitStack,
) -> Sources:
    """Opens everything; `stack` closes it. Raises OSError in a sentence."""
    namespaces = start.places.namespaces
    stacks = {HOME: _HostStack(config, lambda act: act(), stack)}
    # Of the namespace at home first: the threads of `native` start there.
    for number, namespace in namespaces.items():
        stacks[number] = _HostStack(config, namespace.call, stack)
    kernel = SeveralKernels({number: (one.kernel, one.probe) for number, one in stacks.items()})
    stack.callback(kernel.close)
    taps = TapSet(fast_path=fast_path.native, rests=True)
    stack.callback(taps.close)
    host = HostInterfaces(
        taps,
        kernel,
        stacks[HOME].devices,
        is_probe=kernel.is_probe,
        guard=stacks[HOME].guard,
        join=start.vrf_devices.join,
        tables={vrf.table: vrf.id for vrf in config.vrfs},
        on_change=fast_path.publish,
        places={
            number: TapPlace(one.inside, one.devices, one.guard)
            for number, one in stacks.items()
            if number != HOME
        },
    )
    stack.callback(host.close)
    for interface in config.interfaces:
        try:
            host.add(interface)
        except OSError as error:
            raise OSError(f"interface {interface.name}: {_sentence(error)}") from error
    host.publish()
    for number, one in stacks.items():
        names = _names_in(config, number)
        if names:
            left = handover if number == HOME else None
            keeper = one.inside(partial(TapKeeper.start, names, handover=left))
            stack.callback(keeper.close)
    feeds = [
        _make_feed(config, vrf, stacks[vrf.place], stack)
        for vrf in config.vrfs
        if vrf.id == HOME or vrf.place != HOME
    ]
    kernel.start()
    ike_ports = [one.ike_ports for one in stacks.values() if one.ike_ports is not None]
    home = feeds[0]
    return Sources(
        routes=home.routes,
        gate=home.gate,
        dump=home.dump,
        kernel=kernel,
        host=host,
        punts=PuntQueue(config.limits.punt_queue),
        ike_ports=SeveralIkePorts(ike_ports) if ike_ports else None,
        fast_path=fast_path,
        vrf_devices=start.vrf_devices,
        feeds_of_vrfs=tuple(feeds[1:]),
    )


class _HostStack:
    """What there is of each network namespace. `inside` calls a function there."""

    def __init__(
        self,
        config: Config,
        inside: Callable[[Callable[[], Any]], Any],
        stack: contextlib.AsyncExitStack,
    ) -> None:
        self.inside = inside
        self.devices = Devices()
        self.ike_ports: IkePorts | None = None
        if config.policy.spds:  # before there is an interface that a packet could leave by
            self.ike_ports = inside(partial(IkePorts, config.ike.users))
            stack.callback(self.ike_ports.close)
        self.probe: NeighborProbe = inside(NeighborProbe)
        self.kernel: KernelMonitor = inside(partial(KernelMonitor, probe=self.probe))

    def guard(self, device: str) -> None:
        """Without policy there is no rule that a packet could step around."""
        if self.ike_ports is not None:
            self.ike_ports.guard(device)


def _make_feed(
    config: Config, vrf: VrfConfig, host_stack: _HostStack, stack: contextlib.AsyncExitStack
) -> RouteFeed:
    """What brings the routes of the routing daemon in a VRF's network namespace, or at home."""
    inside, listen, home = host_stack.inside, str(config.fpm.listen), vrf.place == HOME
    tables = None if home else {MAIN_TABLE: vrf.table}
    dump: KernelRouteDump = inside(partial(KernelRouteDump, tables))
    stack.callback(dump.close)
    try:
        server: FpmServer = inside(partial(FpmServer, listen))
    except OSError as error:
        where = "" if home else f" in network namespace {vrf.namespace}"
        raise OSError(f"fpm.listen{where}: {_sentence(error)}") from error
    stack.callback(server.close)
    users = AllowedUsers(listen, config.fpm.users)
    source = FpmSource(server, lambda peer: str(inside(partial(users.admit, peer))))
    routes = source if home else NamespaceRoutes(source, vrf.place, vrf.table, vrf.name)
    left_out = frozenset(one.table for one in config.vrfs if one.place == HOME) - {MAIN_TABLE}
    gate = ReplayGate(config.fpm.quiet_seconds, tables=left_out if home else frozenset())
    return RouteFeed(vrf.place, routes, gate, dump)


def _connect(config: Config, election_id: ElectionId, fast_path: FastPath | None = None) -> Client:
    """Raises P4RuntimeError."""
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
        )
    except ValueError as error:  # what the files hold is no certificate or key
        raise P4RuntimeError(INVALID_ARGUMENT, str(error)) from error


def _say_ready(manager: ServiceManager) -> None:
    print("sluice: ready", file=sys.stderr, flush=True)
    manager.tell("READY=1\nSTATUS=the switch is programmed")


async def _until_signal(main: asyncio.Task[None]) -> None:
    """Runs the task until it fails, or until SIGTERM or SIGINT."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, main.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await main

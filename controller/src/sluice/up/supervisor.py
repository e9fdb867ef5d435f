# SPDX-License-Identifier: Apache-2.0
"""Runs a takeover: starts switch and controller, steers frames, and gives the interfaces back.

Order of the start: programs (off), ports, switch, controller. When the switch holds all routes and
neighbours, one write to the programs' settings directs the frames to it. Each frame goes either to
the switch or to the kernel, so this step neither loses nor doubles a frame. The end has the reverse
order: the kernel gets new frames first, and the switch still sends those that it has received.

The takeover ends when the supervisor gets SIGTERM or SIGINT, when the switch or the controller
ends, and when the host changes so that the switch would forward differently from the kernel.
"""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from sluice import privileges
from sluice.api.client import DaemonAbsentError, RequestError, ask
from sluice.app import run_without_file
from sluice.garbage_collection import GarbageCollection
from sluice.host_sources import error_text
from sluice.sources.device import Devices
from sluice.sources.links import remove
from sluice.sources.steering import Steering
from sluice.sources.switch_namespace import SwitchNamespace
from sluice.state.router_plan import RouterPlan
from sluice.up.processes import start_controller, start_switch
from sluice.up.router_config import configuration
from sluice.up.run_files import Processes, RunFiles
from sluice.up.steered_host import REVIEW_SECONDS, SteeredHost, read_host

log = logging.getLogger(__name__)

START_SECONDS = 120.0
"""Time in which the switch must hold the kernel's routes, in seconds."""
KEPT = frozenset({privileges.CAP_NET_ADMIN, 39})
"""Capabilities of the supervisor once the others run: CAP_NET_ADMIN, and CAP_BPF for the maps."""
STATUS_INTERVAL = 0.05
DRAIN_SECONDS = 0.1
"""Time for which the switch sends on after the kernel gets all new frames, in seconds."""
END_SECONDS = 5.0


class TakeoverError(Exception):
    """Reports why the interfaces cannot be taken over, or had to be given back."""


class Supervisor:
    """Runs one takeover of the interfaces called `names`."""

    def __init__(
        self, names: Sequence[str], files: RunFiles, switch: Path, *, workers: int = 1
    ) -> None:
        self._names = tuple(names)
        self._files = files
        self._switch = switch
        self._workers = workers
        self._stack = contextlib.ExitStack()
        self._watched: dict[str, int] = {}
        """Descriptors that become readable when a process ends, by the name of the process."""

    def run(self, report: Callable[[str], None]) -> None:
        """Runs the takeover until its end. Calls `report` with one line when the switch forwards.

        Returns if a signal ended the takeover. Otherwise raises TakeoverError or OSError.
        """
        with self._stack as stack:
            wakeup = stack.enter_context(_ending_signals())
            lock = self._files.take()
            if lock is None:
                name = self._files.name
                raise TakeoverError(
                    f"a takeover called {name} runs; end it first: `sluice down --name {name}`"
                )
            stack.callback(os.close, lock)
            stack.callback(self._remove_sockets)
            self._claim(stack)
            planned = self._plan()
            steering = Steering()
            stack.callback(steering.close)
            processes, host = self._start(planned, steering, stack)
            self._files.record(lock, processes)
            stack.callback(steering.switch_on, False)
            self._wait_until_programmed(host, wakeup)
            steering.switch_on(True)
            stack.callback(self._hand_back, steering)
            report(self._summary(planned, processes))
            self._watch(host, wakeup)

    def _remove_sockets(self) -> None:
        for path in (self._files.api, self._files.p4runtime, self._files.admin):
            path.unlink(missing_ok=True)

    def _claim(self, stack: contextlib.ExitStack) -> None:
        devices = Devices()
        stack.callback(devices.close)
        for name in dict.fromkeys(self._names):
            devices.claim(name)

    def _plan(self) -> RouterPlan:
        """Reads the host and makes the plan. Does not keep the routes, because the controller,
        which starts as a copy of this process, would inherit their memory. Raises TakeoverError."""
        _, planned, routes = read_host(self._names)
        routes.feed.close()
        if planned.problems:
            raise TakeoverError("\n".join(planned.problems))
        return planned

    def _start(
        self, planned: RouterPlan, steering: Steering, stack: contextlib.ExitStack
    ) -> tuple[Processes, SteeredHost]:
        with contextlib.closing(SwitchNamespace()) as namespace:
            ports = {}
            for port in planned.ports:
                outside = f"sluice{port.link.index}"
                with contextlib.suppress(OSError):  # an old port may just vanish
                    remove(outside)
                index = namespace.add_port(outside, port.link.name, port.link.mtu)
                steering.attach(port.link.index, index)
                ports[port.link.index] = index
            gate = steering.switch_gate
            switch = start_switch(
                self._switch,
                planned,
                self._files,
                namespace=namespace,
                gate=gate.descriptor,
                workers=self._workers,
            )
            gate.close()
        stack.callback(_end, switch.pid)
        self._watch_process("the switch", switch.pid, stack)
        gate = steering.controller_gate
        config = configuration(planned, self._files)
        controller = start_controller(config, gate.descriptor, run_without_file)
        gate.close()
        stack.callback(_end, controller)
        self._watch_process("the controller", controller, stack)
        privileges.give_up(KEPT)
        collection = GarbageCollection()
        collection.start()  # a full garbage collection would delay reactions to changes
        stack.callback(collection.stop)
        host = SteeredHost(self._names, planned, steering, ports)
        stack.callback(host.close)
        return Processes(os.getpid(), switch.pid, controller), host

    def _watch_process(self, name: str, process: int, stack: contextlib.ExitStack) -> None:
        descriptor = os.pidfd_open(process)
        stack.callback(os.close, descriptor)
        self._watched[name] = descriptor

    def _wait_until_programmed(self, host: SteeredHost, wakeup: int) -> None:
        """Waits until the switch holds the kernel's routes and neighbours."""
        end = time.monotonic() + START_SECONDS
        while not (host.is_settled and self._is_programmed()):
            if time.monotonic() > end:
                raise TakeoverError(f"the switch is not programmed after {START_SECONDS:.0f} s")
            if self._step(host, wakeup, STATUS_INTERVAL):
                raise TakeoverError("ended by a signal before the switch was programmed")

    def _is_programmed(self) -> bool:
        try:
            status = ask(self._files.api, {"command": "show", "what": "status"})
        except (DaemonAbsentError, RequestError):  # the controller starts
            return False
        reconciler = status["reconciler"]
        if reconciler["failures"]:
            one = reconciler["failures"][0]
            raise TakeoverError(f"the switch refuses {one['what']}: {one['error']}")
        in_step = status["ready"] and status["synced"] and status["fpm"]["settled"]
        return bool(in_step) and not reconciler["pending"]

    def _watch(self, host: SteeredHost, wakeup: int) -> None:
        """Keeps the tables up to date until a signal arrives. Raises TakeoverError."""
        while not self._step(host, wakeup, REVIEW_SECONDS):
            pass

    def _step(self, host: SteeredHost, wakeup: int, seconds: float) -> bool:
        """Waits for changes and applies them. Returns whether a signal ends the takeover."""
        waiting = [wakeup, *self._watched.values(), *host.descriptors()]
        ready, _, _ = select.select(waiting, [], [], seconds)
        for name, descriptor in self._watched.items():
            if descriptor in ready:
                raise TakeoverError(f"{name} has ended, so the kernel forwards")
        if wakeup in ready:
            return True
        host.poll()
        if host.problems:
            raise TakeoverError("\n".join(host.problems))
        return False

    @staticmethod
    def _hand_back(steering: Steering) -> None:
        steering.switch_on(False)
        time.sleep(DRAIN_SECONDS)

    def _summary(self, planned: RouterPlan, processes: Processes) -> str:
        names = ", ".join(one.name for one in planned.interfaces)
        return (
            f"the switch forwards for {names} (processes: supervisor {processes.supervisor},"
            f" switch {processes.switch}, controller {processes.controller})"
        )


@contextlib.contextmanager
def _ending_signals() -> Iterator[int]:
    """Yields a descriptor that is readable after SIGTERM or SIGINT."""
    reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    before = {
        number: signal.signal(number, lambda *_: None) for number in (signal.SIGTERM, signal.SIGINT)
    }
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.set_wakeup_fd(writing)
    try:
        yield reading
    finally:
        signal.set_wakeup_fd(-1)
        for number, handler in before.items():
            signal.signal(number, handler)
        os.close(reading)
        os.close(writing)


def _end(process: int) -> None:
    """Ends a child process, by SIGKILL if SIGTERM does not end it in time."""
    with contextlib.suppress(ProcessLookupError, ChildProcessError):
        descriptor = os.pidfd_open(process)
        try:
            signal.pidfd_send_signal(descriptor, signal.SIGTERM)
            if not select.select([descriptor], [], [], END_SECONDS)[0]:
                signal.pidfd_send_signal(descriptor, signal.SIGKILL)
            os.waitpid(process, 0)
        finally:
            os.close(descriptor)


def supervise(
    names: Sequence[str], files: RunFiles, switch: Path, report: Callable[[str], None], workers: int
) -> str | None:
    """Runs a takeover. Returns the reason why it ended, or None if a signal ended it."""
    try:
        Supervisor(names, files, switch, workers=workers).run(report)
    except (TakeoverError, privileges.PrivilegeError) as error:
        return str(error)
    except OSError as error:
        return error_text(error)
    return None

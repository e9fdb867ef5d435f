# SPDX-License-Identifier: Apache-2.0
"""Starts the switch and the controller of a takeover.

Each process inherits the descriptor of one program array, and is then its only holder
(`wire.steering_programs`). The descriptor has a high number (`Map.move_to`), because the kernel
closes the files of a killed process from the highest descriptor on, and to close a packet socket
takes some 20 ms. Both processes get SIGKILL when the supervisor dies. Neither inherits another
descriptor of the supervisor. The functions must be called in the main thread: the kernel sends the
signal when the thread that started the process ends.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import signal
import subprocess
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from sluice import privileges
from sluice.about import default_pipeline
from sluice.config import Config
from sluice.sources.switch_namespace import SwitchNamespace
from sluice.state.router_plan import RouterPlan
from sluice.up.run_files import RunFiles

PROGRAM = "sluice-switch"
PR_SET_PDEATHSIG = 1
CAP_NET_RAW, CAP_SYS_NICE = 13, 23
SWITCH_CAPABILITIES = frozenset({privileges.CAP_NET_ADMIN, CAP_NET_RAW, CAP_SYS_NICE})
"""Capabilities of the switch, as in its systemd unit."""
FIRST_OTHER = 3
"""The first descriptor after standard input, output and error."""
_libc = ctypes.CDLL(None, use_errno=True)


def find_switch() -> Path | None:
    """Returns the path of sluice-switch: on PATH, or built in this checkout. None if there is
    none."""
    installed = shutil.which(PROGRAM)
    if installed is not None:
        return Path(installed)
    built = default_pipeline().parents[2] / "switch" / "target" / "release" / PROGRAM
    return built if built.exists() else None


def start_switch(
    program: Path,
    planned: RouterPlan,
    files: RunFiles,
    *,
    namespace: SwitchNamespace,
    gate: int,
    workers: int,
) -> subprocess.Popen[bytes]:
    """Starts the switch with the planned ports. `gate` is the descriptor that it inherits."""
    pipeline = default_pipeline()
    argv = [str(program), str(pipeline / "router.json")]
    argv += ["--p4info", str(pipeline / "router.p4info.txtpb"), "--strict-ports"]
    argv += ["--device-id", "1", "--cpu-port", "510", "--workers", str(workers)]
    argv += ["--grpc-server-addr", f"unix:{files.p4runtime}", "--grpc-socket-mode", "0600"]
    argv += ["--admin", f"unix:{files.admin}"]
    for port in planned.ports:
        argv += ["-i", f"{port.number}@{port.link.name}"]
    supervisor = os.getpid()

    def prepare() -> None:
        namespace.enter()
        privileges.give_up(SWITCH_CAPABILITIES)
        _die_with(supervisor)

    return subprocess.Popen(  # noqa: S603 - the operator names the program
        argv,
        stdin=subprocess.DEVNULL,
        pass_fds=(gate,),
        preexec_fn=prepare,  # noqa: PLW1509 - the supervisor has one thread
        start_new_session=True,
    )


def start_controller(config: Config, gate: int, run: Callable[[Config], int]) -> int:
    """Starts the controller as a copy of this process. Returns its process id.

    `gate` is the descriptor that it inherits. `run` runs the controller and returns the exit code.
    """
    supervisor = os.getpid()
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        _die_with(supervisor)
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.closerange(FIRST_OTHER, gate)
        os.closerange(gate + 1, os.sysconf("SC_OPEN_MAX"))
        code = run(config)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _die_with(supervisor: int) -> None:
    """Makes the kernel kill this process when the supervisor dies."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != supervisor:  # the supervisor has died already
        os._exit(1)

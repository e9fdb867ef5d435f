# SPDX-License-Identifier: Apache-2.0
"""Defines `sluice up` and `sluice down`, which take over a running router and give it back."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from sluice import scalars
from sluice.cli.printable import printable
from sluice.cli.shared import EPILOG, FAILED, CommandFailedError
from sluice.up.run_files import DEFAULT_NAME, RunFiles


def _checked_name(_context: click.Context, _option: click.Parameter, value: str) -> str:
    """Returns a name that is safe in file names. Raises BadParameter."""
    try:
        return scalars.name(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


NAME = click.option(
    "--name",
    default=DEFAULT_NAME,
    callback=_checked_name,
    show_default=True,
    help="Name of the takeover, for its files in /run/sluice-up.",
)
DOWN_SECONDS = 30.0
STARTED, FAILED_BEFORE = "+", "-"


@click.command(epilog=EPILOG)
@click.argument("interfaces", metavar="IFACE...", nargs=-1, required=True)
@click.option("--dry-run", is_flag=True, help="Show what would be taken over, and change nothing.")
@click.option("--foreground", is_flag=True, help="Stay in the foreground, for systemd.")
@NAME
@click.option(
    "--switch",
    type=click.Path(path_type=Path, exists=True),
    envvar="SLUICE_SWITCH",
    help="Path of sluice-switch; default: the one on PATH.",
)
@click.option(
    "--workers", type=click.IntRange(min=1), default=1, help="Threads of the switch; default: 1."
)
def up(
    *,
    interfaces: tuple[str, ...],
    dry_run: bool,
    foreground: bool,
    name: str,
    switch: Path | None,
    workers: int,
) -> None:
    """Take over a running router.

    The switch forwards for the network cards IFACE and for the VLANs on them. Addresses, routes,
    neighbours and sessions stay where they are. The host's own packets stay with the kernel. If the
    switch or the controller ends for any reason, the kernel forwards again.

    Refuses a host whose kernel applies features to forwarded packets that the switch lacks, and
    names every reason.
    """
    if dry_run:
        _dry_run(interfaces)
        return
    from sluice.up.processes import find_switch  # noqa: PLC0415 - other commands do not need it

    program = switch or find_switch()
    if program is None:
        raise CommandFailedError("there is no sluice-switch on PATH; name it with --switch")
    files = RunFiles(name)
    if foreground:
        _say_end(_supervise(interfaces, files, program, click.echo, workers))
        return
    with _errors_told():
        files.make_directories()
    _start_in_background(interfaces, files, program, workers)


@contextlib.contextmanager
def _errors_told() -> Iterator[None]:
    """Raises CommandFailedError instead of OSError."""
    from sluice.host_sources import error_text  # noqa: PLC0415 - as above

    try:
        yield
    except OSError as error:
        raise CommandFailedError(error_text(error)) from error


def _dry_run(interfaces: tuple[str, ...]) -> None:
    from sluice.up.preview import preview  # noqa: PLC0415 - as above
    from sluice.up.steered_host import read_host  # noqa: PLC0415 - as above

    try:
        survey, planned, routes = read_host(interfaces)
    except OSError as error:
        raise CommandFailedError(str(error)) from error
    foreign = sorted(map(str, routes.foreign))
    for line in preview(planned, survey, foreign):
        click.echo(printable(line))
    if planned.problems:
        raise CommandFailedError("\n".join(planned.problems))


def _supervise(
    interfaces: tuple[str, ...],
    files: RunFiles,
    program: Path,
    report: Callable[[str], None],
    workers: int,
) -> str | None:
    from sluice.up.supervisor import supervise  # noqa: PLC0415 - as above

    return supervise(interfaces, files, program, report, workers)


def _say_end(reason: str | None) -> None:
    if reason is not None:
        raise CommandFailedError(reason)


def _start_in_background(
    interfaces: tuple[str, ...], files: RunFiles, program: Path, workers: int
) -> None:
    """Starts the supervisor as a daemon. Returns when the switch forwards."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        os.setsid()
        if os.fork() != 0:  # a daemon must not get a controlling terminal
            os._exit(0)
        _run_daemon(interfaces, files, program, workers, writing)
    os.close(writing)
    os.wait()
    with os.fdopen(reading, encoding="utf-8") as answers:
        answer = answers.read()
    if not answer.startswith(STARTED):
        text = answer.removeprefix(FAILED_BEFORE) or f"the supervisor has ended; see {files.log}"
        raise CommandFailedError(text)
    click.echo(answer.removeprefix(STARTED))


def _run_daemon(
    interfaces: tuple[str, ...], files: RunFiles, program: Path, workers: int, answers: int
) -> None:
    code = FAILED
    try:
        nothing = os.open(os.devnull, os.O_RDONLY)
        log = files.open_log()
        for number, source in ((0, nothing), (1, log), (2, log)):
            os.dup2(source, number)
        os.chdir("/")
        waiting = [answers]

        def answer(text: str) -> None:
            if waiting:
                os.write(waiting[0], text.encode())
                os.close(waiting.pop())

        reason = _supervise(
            interfaces, files, program, lambda text: answer(f"{STARTED}{text}"), workers
        )
        if reason is not None:
            now = time.strftime("%Y-%m-%d %H:%M:%S")
            print(f"{now} sluice up: {reason}", file=sys.stderr, flush=True)
            answer(f"{FAILED_BEFORE}{reason}")
        code = FAILED if reason is not None else 0
    finally:
        os._exit(code)


@click.command(epilog=EPILOG)
@NAME
def down(name: str) -> None:
    """Give the interfaces of `sluice up` back to the kernel.

    First, the kernel gets all new packets. Then the switch ends.
    """
    files = RunFiles(name)
    with _errors_told():
        found = files.processes()
    if found is None:
        others = ", ".join(files.running()) or "none"
        why = f"; {files.log} says why it ended" if files.log.exists() else ""
        raise CommandFailedError(f"no takeover called {name} runs here (running: {others}){why}")
    try:
        descriptor = os.pidfd_open(found.supervisor)
    except ProcessLookupError:
        return
    signal.pidfd_send_signal(descriptor, signal.SIGTERM)
    end = time.monotonic() + DOWN_SECONDS
    while files.processes() is not None:
        select.select([descriptor], [], [], 0.1)
        if time.monotonic() > end:
            raise CommandFailedError(f"the supervisor (process {found.supervisor}) does not end")
    click.echo("the kernel forwards")

# SPDX-License-Identifier: Apache-2.0
"""Processes that are looked after.

A `Supervisor` starts processes in sessions of their own, with standard input
closed and output in a log file each, ends them in reverse order, and shows the
ends of their logs when something went wrong. The janitor ends them should this
process die first.

`run` is for commands that end by themselves.
"""

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from sluice_testkit import owner
from sluice_testkit.janitor import janitor, signal_group
from sluice_testkit.wait import patient, wait_until

TAIL_LINES = 12


class CommandFailed(AssertionError):
    """A command returned another status than 0, or did not end in time."""


class ProcessDied(AssertionError):
    """A process that was to keep running has ended."""


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    timeout: float = 60.0,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end; output is captured as text, stderr apart.

    With `check`, a status other than 0 raises `CommandFailed` with all output.
    Without standard input given, there is none (never the terminal).
    """
    timeout = patient(timeout)
    try:
        done = subprocess.run(
            list(argv),
            capture_output=True,
            text=True,
            errors="replace",
            timeout=timeout,
            env=None if env is None else os.environ | dict(env),
            **({"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}),
        )
    except subprocess.TimeoutExpired as expired:
        raise CommandFailed(f"{' '.join(argv)}: not done after {timeout:g} s") from expired
    if check and done.returncode != 0:
        raise CommandFailed(
            f"{' '.join(argv)}: exit status {done.returncode}\n{done.stdout}{done.stderr}".rstrip()
        )
    assert isinstance(done, subprocess.CompletedProcess)
    return done


class Process:
    """One supervised process; made by `Supervisor.start`."""

    def __init__(self, name: str, argv: Sequence[str], popen: subprocess.Popen[bytes], log: Path):
        self.name = name
        self.argv = tuple(argv)
        self.log_path = log
        self._popen = popen
        self._group = f"{popen.pid} {owner.start_time(popen.pid) or 0}"
        self._start = owner.start_time(popen.pid) or 0
        janitor().add("group", self._group)

    @property
    def pid(self) -> int:
        """Process id of the group's leader, which a wrapper has become by exec."""
        return self._popen.pid

    def running(self) -> bool:
        """True until it has ended."""
        return self._popen.poll() is None

    def exit_status(self) -> int | None:
        """Exit status; minus the signal if one ended it; None while running."""
        return self._popen.poll()

    def log(self) -> str:
        """All that it has written so far, stdout and stderr."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of the log under a headline, for error messages."""
        state = "running" if self.running() else f"ended with {self.exit_status()}"
        end = "\n".join("    " + line for line in self.log().splitlines()[-lines:])
        return f"--- {self.name} ({state}; {' '.join(self.argv)})\n{end}"

    def check(self) -> None:
        """Raise `ProcessDied` with the log's end unless it is running."""
        if not self.running():
            raise ProcessDied(f"{self.name} has ended\n{self.tail()}")

    def wait_for_log(self, text: str, deadline: float = 20.0) -> None:
        """Wait until `text` is in the log; fail at once if the process ends before."""

        def seen() -> bool:
            if text in self.log():
                return True
            self.check()
            return False

        try:
            wait_until(seen, deadline, f"{text!r} in the log of {self.name}")
        except AssertionError as error:
            error.add_note(self.tail())
            raise

    def wait(self, deadline: float = 20.0) -> int:
        """Wait for its end and return the exit status."""
        try:
            status = self._popen.wait(deadline)
        except subprocess.TimeoutExpired as expired:
            what = f"{self.name}: not done after {deadline:g} s"
            raise CommandFailed(f"{what}\n{self.tail()}") from expired
        self._forget()
        return status

    def send(self, signal_number: int) -> None:
        """Send a signal to its whole group."""
        signal_group(self.pid, self._start, signal_number)

    def stop(self, grace: float = 5.0, signal_number: int = signal.SIGTERM) -> int:
        """End its group: politely, then after `grace` seconds by force. Returns the exit status."""
        self.send(signal_number)
        try:
            self._popen.wait(grace)
        except subprocess.TimeoutExpired:
            self.send(signal.SIGCONT)
        self.send(signal.SIGKILL)
        status = self._popen.wait(10)
        self._forget()
        return status

    def kill(self) -> None:
        """End its group by SIGKILL, as a crash would."""
        self.stop(signal_number=signal.SIGKILL)

    def _forget(self) -> None:
        """Nothing is left to end, unless children stay in the group."""
        if not signal_group(self.pid, self._start, 0):
            janitor().remove("group", self._group)


class Supervisor:
    """Starts processes, keeps their logs in `directory`, ends them in reverse order."""

    def __init__(self, directory: Path):
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self._processes: list[Process] = []

    def start(
        self,
        name: str,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        stdin: IO[bytes] | int = subprocess.DEVNULL,
    ) -> Process:
        """Start `argv`; its output is appended to `directory/NAME.log`."""
        log = self.directory / f"{name}.log"
        with log.open("ab") as output:
            popen = subprocess.Popen(
                list(argv),
                stdin=stdin,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=None if env is None else os.environ | dict(env),
            )
        process = Process(name, argv, popen, log)
        self._processes.append(process)
        return process

    def stop(self) -> None:
        """End all processes, the last started first."""
        while self._processes:
            process = self._processes.pop()
            with contextlib.suppress(ProcessLookupError):
                process.stop()

    def report(self) -> str:
        """The ends of all logs."""
        return "\n".join(process.tail() for process in self._processes)

    def ended(self) -> list[str]:
        """The ends of the logs of those that have ended with an error, and not by `stop`."""
        expected = (None, 0, -signal.SIGTERM, -signal.SIGKILL)
        return [one.tail() for one in self._processes if one.exit_status() not in expected]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None:
            error.add_note(self.report())
        self.stop()

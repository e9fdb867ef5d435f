# SPDX-License-Identifier: Apache-2.0
"""Runs processes and makes sure that they end.

A `Supervisor` starts each process in its own session, without input and with its output in a log
file. The supervisor ends the processes in reverse order. After an error, it shows the ends of their
logs. If the process that runs the supervisor dies first, the janitor ends the processes.

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
    """A command ended with a status other than 0, or did not end in time."""


class ProcessDied(AssertionError):
    """A process that was expected to keep running has ended."""


def run(
    argv: Sequence[str],
    *,
    check: bool = True,
    timeout: float = 60.0,
    stdin: str | None = None,
    env: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Runs a command and waits for its end. Captures stdout and stderr separately, as text.

    With `check`, a status other than 0 raises `CommandFailed` with all output. Without `stdin`,
    standard input is empty, never the terminal.
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
    """Controls one supervised process. `Supervisor.start` creates it."""

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
        """Returns the PID of the process group's leader. This is the command itself, because
        wrappers exec it.
        """
        return self._popen.pid

    def running(self) -> bool:
        """Returns whether the process is running."""
        return self._popen.poll() is None

    def exit_status(self) -> int | None:
        """Returns the exit status. It is negative (minus the signal number) after death by a
        signal, and None while the process runs.
        """
        return self._popen.poll()

    def log(self) -> str:
        """Returns what the process has written to stdout and stderr."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")

    def tail(self, lines: int = TAIL_LINES) -> str:
        """Returns a headline and the last lines of the log, for error messages."""
        state = "running" if self.running() else f"ended with {self.exit_status()}"
        end = "\n".join("    " + line for line in self.log().splitlines()[-lines:])
        return f"--- {self.name} ({state}; {' '.join(self.argv)})\n{end}"

    def check(self) -> None:
        """Raises `ProcessDied` with the end of the log if the process has ended."""
        if not self.running():
            raise ProcessDied(f"{self.name} has ended\n{self.tail()}")

    def wait_for_log(self, text: str, deadline: float = 20.0) -> None:
        """Waits until `text` is in the log. Raises ProcessDied if the process ends before that."""

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
        """Waits until the process ends and returns the exit status."""
        try:
            status = self._popen.wait(deadline)
        except subprocess.TimeoutExpired as expired:
            what = f"{self.name}: not done after {deadline:g} s"
            raise CommandFailed(f"{what}\n{self.tail()}") from expired
        self._forget()
        return status

    def send(self, signal_number: int) -> None:
        """Sends a signal to the whole process group."""
        signal_group(self.pid, self._start, signal_number)

    def stop(self, grace: float = 5.0, signal_number: int = signal.SIGTERM) -> int:
        """Ends the process group by `signal_number`; after `grace` seconds, by SIGKILL.

        Returns the exit status.
        """
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
        """Ends the process group by SIGKILL, which simulates a crash."""
        self.stop(signal_number=signal.SIGKILL)

    def _forget(self) -> None:
        """Tells the janitor that the group has ended, unless it still contains children."""
        if not signal_group(self.pid, self._start, 0):
            janitor().remove("group", self._group)


class Supervisor:
    """Starts processes, keeps their logs in `directory`, and ends the processes in reverse
    order.
    """

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
        """Starts `argv`. Its output is appended to `directory/NAME.log`."""
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
        """Ends all processes, the last started first."""
        while self._processes:
            process = self._processes.pop()
            with contextlib.suppress(ProcessLookupError):
                process.stop()

    def report(self) -> str:
        """Returns the ends of the logs of all processes."""
        return "\n".join(process.tail() for process in self._processes)

    def ended(self) -> list[str]:
        """Returns the ends of the logs of processes that have failed. Processes ended by `stop` do
        not count.
        """
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

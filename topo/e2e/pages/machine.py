# SPDX-License-Identifier: Apache-2.0
"""Simulates a machine for the commands of a page. It has its own network, /run, /var/lib and
/etc/frr.

So programs and sockets can have the names that the pages use. All files are in `directory`, which
is also the working directory of the commands.
"""

import os
from pathlib import Path

from sluice_testkit import where
from sluice_testkit.pages import Command, blocks
from sluice_testkit.process import Process, Supervisor, run

READY = {"sluice": "sluice: ready", "sluice-switch": "sluice-switch: ready"}
MOUNTS = """
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /var/lib
mount --bind {frr} /etc/frr
mkdir -p /run/sluice /run/netns
ip link set lo up
echo made
exec sleep infinity
"""


class Machine:
    """Runs commands on the simulated machine. When `supervisor` stops, their processes end."""

    def __init__(self, directory: Path, supervisor: Supervisor) -> None:
        self.directory = directory
        self.frr = directory / "frr"
        self.frr.mkdir(parents=True)
        self._supervisor = supervisor
        self._started = 0
        words = ["unshare", "--mount", "--net", "bash", "-euc", MOUNTS.format(frr=self.frr)]
        self._init = supervisor.start("machine", words)
        self._init.wait_for_log("made")

    def type(
        self, command: Command | str, *, directory: Path | None = None, timeout: float = 120
    ) -> str:
        """Runs a command to its end and returns its output.

        Raises CommandFailed if the command fails.
        """
        text = command.text if isinstance(command, Command) else command
        done = run(self._argv(text, directory), env=self._environment(), timeout=timeout)
        return done.stdout + done.stderr

    def start(self, command: Command | str, *, directory: Path | None = None) -> Process:
        """Starts a program in the background, as with `&`.

        If it is `sluice` or `sluice-switch`, returns when it reports that it is ready.
        """
        text = command.text if isinstance(command, Command) else command
        text = text.rstrip().removesuffix("&")
        self._started += 1
        name = text.split()[0].rpartition("/")[2]
        process = self._supervisor.start(
            f"{name}-{self._started}",
            self._argv(f"exec {text}", directory),
            env=os.environ | self._environment(),
        )
        if name in READY:
            process.wait_for_log(READY[name], deadline=30)
        return process

    def links(self, *names: str) -> None:
        """Creates veth pairs for these names. The ends of a pair are called NAME and NAME-far."""
        for name in names:
            self.type(f"ip link add {name} type veth peer name {name}-far")
            self.type(f"ip link set {name} up; ip link set {name}-far up")

    def write(self, name: str, text: str) -> Path:
        """Writes a file into the working directory of the commands."""
        path = self.directory / name
        path.write_text(text, encoding="utf-8")
        path.chmod(0o600)
        return path

    def _argv(self, text: str, directory: Path | None) -> list[str]:
        enter = ["nsenter", f"--target={self._init.pid}", "--mount", "--net"]
        script = f"cd {directory or self.directory}\n{text}"
        return [*enter, "bash", "-euo", "pipefail", "-c", script]

    def _environment(self) -> dict[str, str]:
        programs = [where.sluice_switch().parent, where.sluice().parent, *_ptf()]
        path = ":".join([*map(str, programs), os.environ["PATH"], "/usr/sbin", "/sbin"])
        return {"PATH": path, "HOME": str(self.directory), "SLUICE_SOCKET": ""}


def _ptf() -> list[Path]:
    return [where.repository() / ".venv" / "ptf" / "bin"]


def block(page: str, language: str, begins: str) -> str:
    """Returns the text of a page's block in this language that begins with `begins`. There must be
    exactly one.
    """
    (found,) = (
        one.text
        for one in blocks(page)
        if one.language == language and one.text.lstrip().startswith(begins)
    )
    return found

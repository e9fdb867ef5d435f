# SPDX-License-Identifier: Apache-2.0
"""A running ESP engine (`sluice-esp`) at the other end of a switch's engine port.

Depends on namespaces, process and where.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sluice_testkit import where
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import CommandFailed, Process, Supervisor
from sluice_testkit.wait import wait_until


class SluiceEsp:
    """One engine on `interface`; its state outlives the process."""

    def __init__(
        self,
        label: str,
        namespace: Namespace,
        interface: str,
        directory: Path,
        supervisor: Supervisor,
    ):
        self.process: Process | None = None
        self._label = label
        self._namespace = namespace
        self._interface = interface
        self._directory = directory / label
        self._directory.mkdir(mode=0o700)
        self._supervisor = supervisor

    @property
    def admin(self) -> Path:
        """Its admin socket."""
        return self._directory / "admin.sock"

    def start(self) -> None:
        """Start it and wait until it answers."""
        argv = [str(where.sluice_esp()), "--interface", self._interface]
        argv += ["--admin", str(self.admin)]
        argv += ["--state-directory", str(self._directory / "state")]
        self.process = self._supervisor.start(self._label, self._namespace.argv(argv))
        wait_until(self._answers, 20, f"{self._label} to answer")

    def kill(self) -> None:
        """End it as a crash would."""
        assert self.process is not None
        self.process.kill()
        self.process = None

    def add(self, sas: Iterable[Mapping[str, Any]]) -> None:
        """Give it SAs, by a file that is its owner's alone."""
        path = self._directory / "sas.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(list(sas)), encoding="utf-8")
        self.ctl("add", str(path))

    def forget(self) -> None:
        """Lose the reserve of sequence numbers, as with a disk; for an engine that does not run."""
        (self._directory / "state" / "sequence-numbers").unlink()

    def ctl(self, *words: str) -> str:
        """Run `sluice-esp ctl`; return what it prints."""
        argv = [str(where.sluice_esp()), "ctl", "--admin", str(self.admin)]
        return str(self._namespace.run(*argv, *words).stdout)

    def status(self) -> dict[str, Any]:
        """SAs and counters."""
        status = json.loads(self.ctl("show", "--json"))
        assert isinstance(status, dict)
        return status

    def sa(self, direction: str, number: int) -> dict[str, Any]:
        """An SA by its number in the shim."""
        (found,) = [
            sa
            for sa in self.status()["sas"]
            if (sa["spec"]["direction"], sa["spec"]["sa"]) == (direction, number)
        ]
        return dict(found)

    def _answers(self) -> bool:
        assert self.process is not None
        self.process.check()
        try:
            self.status()
        except CommandFailed:
            return False
        return True

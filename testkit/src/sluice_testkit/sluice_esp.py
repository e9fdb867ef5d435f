# SPDX-License-Identifier: Apache-2.0
"""Running ESP engines: `sluice-esp` at the other end of a switch's engine port, or the one inside
sluice-switch (`--engine-port`). Both are administered alike.

Depends on namespaces, process, target, controller and where.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from sluice_testkit import where
from sluice_testkit.controller import Controller
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import CommandFailed, Process, Supervisor
from sluice_testkit.target import Target
from sluice_testkit.wait import wait_until


class EspEngineProcess(ABC):
    """An engine in a process whose end it does not survive; its state does."""

    def __init__(self, label: str, directory: Path):
        self._label = label
        self._directory = directory / label
        self._directory.mkdir(mode=0o700)

    @property
    def admin(self) -> Path:
        """Returns the path of the admin socket."""
        return self._directory / "admin.sock"

    @abstractmethod
    def start(self) -> None:
        """Start it and wait until it answers."""

    @abstractmethod
    def kill(self) -> None:
        """End it as a crash would."""

    @abstractmethod
    def ctl(self, *words: str) -> str:
        """Run the engine's command line; return what it prints."""

    def add(self, sas: Iterable[Mapping[str, Any]]) -> None:
        """Give it SAs, by a file that is its owner's alone."""
        path = self._directory / "sas.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(list(sas)), encoding="utf-8")
        self.ctl("add", str(path))

    def forget(self) -> None:
        """Lose the reserve of sequence numbers, as with a disk; for an engine that does not run."""
        (self._directory / "state" / "sequence-numbers").unlink()

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


class SluiceEsp(EspEngineProcess):
    """Runs an engine on `interface`."""

    def __init__(
        self,
        label: str,
        namespace: Namespace,
        interface: str,
        directory: Path,
        supervisor: Supervisor,
    ):
        super().__init__(label, directory)
        self.process: Process | None = None
        self._namespace = namespace
        self._interface = interface
        self._supervisor = supervisor

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

    def ctl(self, *words: str) -> str:
        """Run `sluice-esp ctl`; return what it prints."""
        argv = [str(where.sluice_esp()), "ctl", "--admin", str(self.admin)]
        return str(self._namespace.run(*argv, *words).stdout)

    def _answers(self) -> bool:
        assert self.process is not None
        self.process.check()
        try:
            self.status()
        except CommandFailed:
            return False
        return True


class SwitchEsp(EspEngineProcess):
    """The engine at `port` inside a switch, which is not started yet, and which it lives with."""

    def __init__(
        self, label: str, target: Target, port: int, controller: Controller, directory: Path
    ):
        super().__init__(label, directory)
        self._target = target
        self._controller = controller
        target.options += ["--engine-port", f"{port}@{self.admin}"]
        target.options += ["--engine-state-directory", str(self._directory / "state")]

    def start(self) -> None:
        """Start the switch and wait until it is programmed again."""
        self._target.start()
        self._controller.wait_synced()

    def kill(self) -> None:
        """End the switch as a crash would, and wait until its controller knows."""
        self._target.kill()
        wait_until(lambda: not self._controller.synced(), 20, "the controller to notice")

    def ctl(self, *words: str) -> str:
        """Run `sluice-switch ctl esp`; return what it prints."""
        socket = f"unix:/run/sluice-switch/{self._target.pid}.sock"
        argv = [str(where.sluice_switch()), "ctl", "--admin", socket, "esp"]
        return str(self._target.namespace.run(*argv, *words).stdout)

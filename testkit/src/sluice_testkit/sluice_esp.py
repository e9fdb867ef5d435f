# SPDX-License-Identifier: Apache-2.0
"""Runs ESP engines.

An engine is either `sluice-esp` at the other end of a switch's engine port, or the engine inside
sluice-switch (`--engine-port`). The same commands control both.

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
    """Runs an engine. The engine's state directory stays when its process ends."""

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
        """Starts the engine and waits until it answers."""

    @abstractmethod
    def kill(self) -> None:
        """Kills the engine, which simulates a crash."""

    @abstractmethod
    def ctl(self, *words: str) -> str:
        """Runs the engine's command line and returns its output."""

    def add(self, sas: Iterable[Mapping[str, Any]]) -> None:
        """Adds SAs to the engine. They are passed in a file that only its owner can read."""
        path = self._directory / "sas.json"
        path.touch(mode=0o600)
        path.write_text(json.dumps(list(sas)), encoding="utf-8")
        self.ctl("add", str(path))

    def forget(self) -> None:
        """Deletes the file of reserved sequence numbers, which simulates a lost disk.

        Precondition: the engine does not run.
        """
        (self._directory / "state" / "sequence-numbers").unlink()

    def status(self) -> dict[str, Any]:
        """Returns the engine's SAs and counters."""
        status = json.loads(self.ctl("show", "--json"))
        assert isinstance(status, dict)
        return status

    def sa(self, direction: str, number: int) -> dict[str, Any]:
        """Returns an SA by its direction and by the number that the shim uses for it."""
        (found,) = [
            sa
            for sa in self.status()["sas"]
            if (sa["spec"]["direction"], sa["spec"]["sa"]) == (direction, number)
        ]
        return dict(found)


class SluiceEsp(EspEngineProcess):
    """Runs a `sluice-esp` on `interface`."""

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
        """Starts the engine and waits until it answers."""
        argv = [str(where.sluice_esp()), "--interface", self._interface]
        argv += ["--admin", str(self.admin)]
        argv += ["--state-directory", str(self._directory / "state")]
        self.process = self._supervisor.start(self._label, self._namespace.argv(argv))
        wait_until(self._answers, 20, f"{self._label} to answer")

    def kill(self) -> None:
        """Kills the engine, which simulates a crash."""
        assert self.process is not None
        self.process.kill()
        self.process = None

    def ctl(self, *words: str) -> str:
        """Runs `sluice-esp ctl` and returns its output."""
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
    """Runs the engine inside a switch, at engine port `port`. Precondition: the switch is not
    running.

    The engine starts and ends with the switch.
    """

    def __init__(
        self, label: str, target: Target, port: int, controller: Controller, directory: Path
    ):
        super().__init__(label, directory)
        self._target = target
        self._controller = controller
        target.options += ["--engine-port", f"{port}@{self.admin}"]
        target.options += ["--engine-state-directory", str(self._directory / "state")]

    def start(self) -> None:
        """Starts the switch. Returns when the controller has programmed it again."""
        self._target.start()
        self._controller.wait_synced()

    def kill(self) -> None:
        """Kills the switch, which simulates a crash. Returns when its controller has noticed."""
        self._target.kill()
        wait_until(lambda: not self._controller.synced(), 20, "the controller to notice")

    def ctl(self, *words: str) -> str:
        """Runs `sluice-switch ctl esp` and returns its output."""
        socket = f"unix:/run/sluice-switch/{self._target.pid}.sock"
        argv = [str(where.sluice_switch()), "ctl", "--admin", socket, "esp"]
        return str(self._target.namespace.run(*argv, *words).stdout)

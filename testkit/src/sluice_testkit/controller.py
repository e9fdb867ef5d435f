# SPDX-License-Identifier: Apache-2.0
"""Runs the controller under test: `sluice run` in a namespace. Tests query it by `sluice show` and
by its local API.
"""

import json
import socket
from pathlib import Path
from typing import Any

import yaml

from sluice_testkit import where
from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import Process, Supervisor, run
from sluice_testkit.wait import patient, wait_until

READY = "sluice: ready"


class RequestRefused(AssertionError):
    """The controller refused a request. The message contains the controller's reason."""


class Controller:
    """Runs one controller. `config` is the content of a configuration file, as a mapping.

    In it, the paths of the socket and of the state directory are replaced by paths in the run
    directory. The pipeline and `target` (if given) are added. The rest is used unchanged.
    """

    def __init__(
        self,
        name: str,
        namespace: Namespace,
        config: dict[str, Any],
        directory: Path,
        supervisor: Supervisor,
        *,
        target: str | None = None,
    ):
        self.name = name
        self.namespace = namespace
        self.socket = directory / f"{name}.sock"
        self.config_path = directory / f"{name}.yaml"
        self.config = config | {
            "api": config.get("api", {}) | {"socket": str(self.socket)},
            "state_dir": str(directory / f"{name}-state"),
            "switch": config["switch"] | ({"target": target} if target else {}),
        }
        self.process: Process | None = None
        self._supervisor = supervisor

    @property
    def pid(self) -> int:
        """Process id of the running controller."""
        if self.process is None:
            raise RuntimeError(f"{self.name}'s controller is not running")
        return self.process.pid

    def launch(self, *options: str) -> Process:
        """Starts the controller and returns at once. `options` are options of `sluice run`."""
        self.config_path.write_text(yaml.safe_dump(self.config, sort_keys=False), encoding="utf-8")
        argv = [str(where.sluice()), "run", *options, str(self.config_path)]
        self.process = self._supervisor.start(f"{self.name}-sluice", self.namespace.argv(argv))
        return self.process

    def start(self, *options: str, deadline: float = 30.0) -> None:
        """Starts the controller and waits until it has programmed the interfaces into the switch.

        The controller is ready when its log has a new ready line and its socket exists. Restarts
        append to the same log, so the lines of earlier runs are subtracted.
        """
        path = self._supervisor.directory / f"{self.name}-sluice.log"
        before = path.read_text(encoding="utf-8").count(READY) if path.exists() else 0
        process = self.launch(*options)

        def ready() -> bool:
            process.check()
            return process.log().count(READY) > before and self.socket.exists()

        try:
            wait_until(ready, deadline, f"{READY!r} from {self.name}")
        except AssertionError as error:
            error.add_note(process.tail())
            raise

    def show(self, what: str) -> Any:
        """Returns the parsed output of `sluice show WHAT --json`."""
        return json.loads(self.command("show", what, "--json", "--socket", str(self.socket)))

    def ask(self, **request: object) -> Any:
        """Sends a request ({"command": ...}) to the local API and returns the answer's `data`.

        Raises RequestRefused.
        """
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(patient(30))
            connection.connect(str(self.socket))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile("rb") as answers:
                answer = json.loads(answers.readline())
        if not answer["ok"]:
            raise RequestRefused(f"{self.name} refused {request}: {answer['error']}")
        return answer["data"]

    def command(self, *words: str) -> str:
        """Runs the `sluice` command with these arguments and returns its output."""
        return run([str(where.sluice()), *words]).stdout

    def synced(self) -> bool:
        """Returns whether the switch holds exactly what the controller wants it to hold."""
        done = run(
            [str(where.sluice()), "show", "status", "--json", "--socket", str(self.socket)],
            check=False,
        )
        return done.returncode == 0 and bool(json.loads(done.stdout).get("synced"))

    def wait_synced(self, deadline: float = 30.0) -> None:
        """Waits until the switch holds exactly what the controller wants it to hold."""
        wait_until(self.synced, deadline, f"{self.name} to be synced with its switch", interval=0.1)

    def stop(self) -> None:
        """Ends the controller by SIGTERM."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def kill(self) -> None:
        """Kills the controller, which simulates a crash."""
        if self.process is not None:
            self.process.kill()
            self.process = None

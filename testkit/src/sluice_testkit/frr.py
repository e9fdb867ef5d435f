# SPDX-License-Identifier: Apache-2.0
"""Runs FRR daemons in a namespace, without FRR's init script.

Every instance has its own directories for sockets, PID files and configuration. So any number of
instances can run in parallel, also while the system's own FRR runs. The daemons run in the
foreground under the supervisor. One text configures all daemons of an instance, in the format of
`/etc/frr/frr.conf`.
"""

import json
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import CommandFailed, Process, Supervisor, run
from sluice_testkit.wait import wait_until

DAEMON_DIRECTORY = Path("/usr/lib/frr")
ORDER = ("zebra", "staticd", "bfdd", "bgpd", "ospfd", "ospf6d", "isisd", "vrrpd")
FPM_MODULE = "dplane_fpm_nl"
_STARTS_DAEMON = {
    "router bgp": "bgpd",
    "router ospf": "ospfd",
    "router ospf6": "ospf6d",
    "router isis": "isisd",
    "bfd": "bfdd",
    "ip route": "staticd",
    "ipv6 route": "staticd",
    " vrrp": "vrrpd",
}


def daemons_of(config: str) -> list[str]:
    """Returns the daemons that a configuration needs, in the order in which to start them."""
    needed = {"zebra"}
    for line in config.splitlines():
        for words, daemon in _STARTS_DAEMON.items():
            if re.match(rf"{words}(\s|$)", line):
                needed.add(daemon)
    return [daemon for daemon in ORDER if daemon in needed]


class Frr:
    """Runs FRR. With `fpm`, zebra loads its FPM module; this needs a line `fpm address`."""

    def __init__(
        self,
        name: str,
        namespace: Namespace,
        config: str,
        directory: Path,
        supervisor: Supervisor,
        *,
        fpm: bool = False,
        daemons: Sequence[str] | None = None,
        options: Mapping[str, Sequence[str]] | None = None,
    ):
        """`options` maps a daemon to additional command line options."""
        self.name = name
        self.namespace = namespace
        self.config = config
        self.directory = directory / f"{name}-frr"
        self.daemons = list(daemons) if daemons is not None else daemons_of(config)
        self.processes: dict[str, Process] = {}
        self._supervisor = supervisor
        self._fpm = fpm
        self._options = options or {}

    def start(self) -> None:
        """Starts all daemons, waits until they answer, then loads the configuration."""
        for daemon in ("zebra", *self.daemons):
            if not (DAEMON_DIRECTORY / daemon).exists():
                path = DAEMON_DIRECTORY / daemon
                raise FileNotFoundError(f"{path} does not exist: install package frr (make setup)")
        self.directory.mkdir(exist_ok=True)
        shutil.chown(self.directory, "frr", "frr")
        (self.directory / "frr.conf").write_text(self.config, encoding="utf-8")
        (self.directory / "vtysh.conf").touch()
        for daemon in self.daemons:
            self.start_daemon(daemon)
        self.load(self.directory / "frr.conf")

    def start_daemon(self, daemon: str, config: str = "") -> None:
        """Starts one daemon and waits until vtysh can reach it.

        Without `config`, the daemon starts unconfigured; `load` configures it later.
        """
        here = self.directory
        argv = [str(DAEMON_DIRECTORY / daemon), "--log=stdout", "--log-level=notifications"]
        argv += [f"--vty_socket={here}", f"--socket={here}/zserv"]
        argv += [f"--pid_file={here}/{daemon}.pid"]
        (here / f"{daemon}.conf").write_text(config, encoding="utf-8")
        argv += [f"--config_file={here}/{daemon}.conf"]
        if daemon == "zebra" and self._fpm:
            argv += ["-M", FPM_MODULE]
        if daemon == "bfdd":
            argv.append(f"--bfdctl={here}/bfdd.sock")
        argv += self._options.get(daemon, ())
        process = self._supervisor.start(f"{self.name}-{daemon}", self.namespace.argv(argv))
        self.processes[daemon] = process

        def answers() -> bool:
            process.check()
            return run(self._vtysh("-d", daemon, "-c", "show version"), check=False).returncode == 0

        wait_until(answers, 20, f"{daemon} of {self.name} to answer")

    def load(self, path: Path) -> None:
        """Loads configuration from a file. Raises CommandFailed if FRR refuses a line."""
        done = run(self._vtysh("-f", str(path)), check=False)
        refused = [line for line in done.stdout.splitlines() if re.search(r"^%|[Uu]nknown", line)]
        if done.returncode != 0 or refused:
            raise CommandFailed(f"FRR of {self.name} refused {path}:\n{done.stdout}{done.stderr}")

    def kill_daemon(self, daemon: str) -> None:
        """Kills one daemon, which simulates a crash."""
        self.processes.pop(daemon).kill()

    def vtysh(self, *commands: str) -> str:
        """Runs vtysh commands in order and returns their output."""
        words = [word for command in commands for word in ("-c", command)]
        return run(self._vtysh(*words)).stdout

    def json(self, command: str) -> Any:
        """Runs a `show ... json` command and returns the parsed answer."""
        return json.loads(self.vtysh(command))

    def configure(self, *lines: str) -> None:
        """Runs configuration commands, beginning in vtysh's `configure terminal` mode."""
        printed = self.vtysh("configure terminal", *lines)
        if "%" in printed:
            raise CommandFailed(f"FRR of {self.name} refused {lines}:\n{printed}")

    def stop(self) -> None:
        """Stops the daemons, zebra last."""
        for daemon in reversed(self.daemons):
            if daemon in self.processes:
                self.processes.pop(daemon).stop()

    def _vtysh(self, *words: str) -> list[str]:
        return ["vtysh", f"--vty_socket={self.directory}", f"--config_dir={self.directory}", *words]

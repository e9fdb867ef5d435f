# SPDX-License-Identifier: Apache-2.0
"""Runs a separate Libreswan in a namespace: pluto, controlled by whack.

Debian's package libreswan conflicts with the strongSwan packages. So it is unpacked but not
installed (topo/interop/install). pluto starts its helper programs by absolute paths. The unpacked
files are mounted at these paths, for pluto only. Depends on namespaces, process, wait and where.
"""

from pathlib import Path

from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import CommandFailed, Process, Supervisor, run
from sluice_testkit.wait import wait_until
from sluice_testkit.where import repository

HELPERS = Path("usr/libexec/ipsec")
START = """\
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /usr/libexec
mkdir /run/pluto /{helpers}
mount --bind {root}/{helpers} /{helpers}
exec /{helpers}/pluto --nofork --stderrlog --config {home}/ipsec.conf \\
  --secretsfile {home}/ipsec.secrets --ipsecdir {home} --nssdir {home} \\
  --rundir {home} --no-dnssec
"""


def _unpacked() -> Path:
    return repository() / "build" / "libreswan"


def is_unpacked() -> bool:
    """Returns whether `make interop` has unpacked Debian's package libreswan."""
    return (_unpacked() / HELPERS / "pluto").exists()


class Libreswan:
    """Runs one IKE daemon."""

    def __init__(
        self, label: str, namespace: Namespace, directory: Path, supervisor: Supervisor
    ) -> None:
        self.process: Process | None = None
        self._label = label
        self._namespace = namespace
        self._home = directory / label
        self._home.mkdir()
        self._supervisor = supervisor
        self._libraries = f"LD_LIBRARY_PATH={_unpacked()}/usr/lib/x86_64-linux-gnu"
        run(["certutil", "-N", "-d", f"sql:{self._home}", "--empty-password"])

    def start(self, connections: str, secrets: str) -> None:
        """Starts pluto, which loads the connections that have an `auto=` setting.

        `connections` has the format of ipsec.conf, `secrets` that of ipsec.secrets.
        """
        (self._home / "ipsec.conf").write_text(connections, encoding="utf-8")
        (self._home / "ipsec.secrets").write_text(secrets, encoding="utf-8")
        script = START.format(root=_unpacked(), helpers=HELPERS, home=self._home)
        command = ["unshare", "--mount", "env", self._libraries, "sh", "-ec", script]
        argv = self._namespace.argv(command)
        self.process = self._supervisor.start(self._label, argv)
        wait_until(self._listens, 30, f"{self._label} to answer")

    def kill(self) -> None:
        """Kills the daemon, which simulates a crash. The peer is not notified."""
        assert self.process is not None
        self.process.kill()
        self.process = None

    def ctl(self, *words: str) -> str:
        """Runs whack and returns its output."""
        whack = str(_unpacked() / HELPERS / "whack")
        socket = ("--ctlsocket", str(self._home / "pluto.ctl"))
        return str(self._namespace.run("env", self._libraries, whack, *socket, *words).stdout)

    def _listens(self) -> bool:
        """Returns whether pluto has loaded its connections and listens. It is not enough that pluto
        answers, because it answers before this.
        """
        assert self.process is not None
        self.process.check()
        try:
            return "interface" in self.ctl("--status") and "listening for IKE" in self.process.log()
        except CommandFailed:
            return False

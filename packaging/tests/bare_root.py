# SPDX-License-Identifier: Apache-2.0
"""Makes a bare Debian 12 in a directory, and boots it.

`BareRoot` makes the system with mmdebstrap. Its apt uses only Debian's archive. `Booted` runs the
system's systemd as process 1 of separate PID, mount and cgroup namespaces, in a given network
namespace. So systemd starts units as on a machine, with their sandbox in force. /dev is a directory
with the usual device nodes, as udev creates them. Device cgroups are not in force.
"""

import os
import shutil
import signal
from pathlib import Path

from sluice_testkit.namespaces import Namespace
from sluice_testkit.process import CommandFailed, Supervisor, run
from sluice_testkit.wait import wait_until

SUITE = "bookworm"
FILES = ("etc", "usr", "var/lib/sluice", "var/lib/sluice-switch", "var/lib/sluice-esp")
PACKAGES = Path("root/packages")
"""Directory in the root for package files."""
CGROUPS = Path("/sys/fs/cgroup")
ENVIRONMENT = {
    "DEBIAN_FRONTEND": "noninteractive",
    "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "PYTHONPATH": "",
    "LC_ALL": "C.UTF-8",
}


class BareRoot:
    """A bare Debian 12 in the directory `path`, which must not exist yet."""

    def __init__(self, path: Path):
        self.path = path
        argv = ["mmdebstrap", "--variant=apt", "--include=ca-certificates,systemd,iproute2"]
        run([*argv, SUITE, str(path)], timeout=600)
        (path / PACKAGES).mkdir()

    def remove(self) -> None:
        """Removes the directory with all its files."""
        run(["rm", "-rf", "--one-file-system", str(self.path)])

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command in the system; returns its standard output, then its standard error."""
        argv = ["chroot", str(self.path), *command]
        done = run(argv, check=check, timeout=600, env=ENVIRONMENT)
        return done.stdout + done.stderr

    def apt(self, *words: str) -> str:
        """Runs apt-get with these words, and returns its output."""
        return self.run("apt-get", "-q", "--yes", "--no-install-recommends", *words)

    def put(self, file: Path) -> str:
        """Copies a package file into the system; returns its path in the system."""
        shutil.copy(file, self.path / PACKAGES)
        return f"/{PACKAGES / file.name}"

    def files(self) -> set[str]:
        """Returns the paths of all files and directories below `FILES`, relative to the root."""
        found = set()
        for top in FILES:
            for directory, names, files in os.walk(self.path / top):
                relative = Path(directory).relative_to(self.path)
                found |= {str(relative / name) for name in (*names, *files)}
        return found


# Moves the process into the cgroup $1, then runs the command that is in the other arguments.
JOIN = 'mkdir -p "$1"; echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
UNSHARE = "unshare --cgroup --mount --pid --fork --kill-child --propagation private --uts --ipc"
# Mounts the file systems below the root directory $1 and starts the systemd in it. $2: True if the
# machine has only version 2 of cgroups.
INSIDE = r"""
mount --bind "$1" "$1"
cd "$1"
mount -t proc proc proc
mount -t sysfs sysfs sys
if [ "$2" = True ]; then
  mount -t cgroup2 cgroup2 sys/fs/cgroup
else
  mount -t tmpfs tmpfs sys/fs/cgroup
  mkdir sys/fs/cgroup/systemd
  mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd
fi
for directory in run tmp; do mount -t tmpfs tmpfs $directory; done
mount -t tmpfs -o mode=755 tmpfs dev
mkdir -p dev/net dev/shm dev/pts
while read -r name major minor; do mknod -m 666 dev/$name c $major $minor; done << NODES
null 1 3
zero 1 5
full 1 7
random 1 8
urandom 1 9
tty 5 0
ptmx 5 2
net/tun 10 200
NODES
exec env -i container=sluice-test PATH="$PATH" chroot . /lib/systemd/systemd --log-target=journal
"""


class Booted:
    """A booted system. Call `stop` to end all of its processes."""

    def __init__(self, root: BareRoot, namespace: Namespace, supervisor: Supervisor):
        self.root = root
        unified = (CGROUPS / "cgroup.controllers").exists()
        self._cgroup = CGROUPS / ("" if unified else "systemd") / f"sluice-test-{os.getpid()}"
        boot = [*UNSHARE.split(), "sh", "-ec", INSIDE, "sh", str(root.path), str(unified)]
        argv = ["sh", "-ec", JOIN, "sh", str(self._cgroup), *namespace.argv(boot)]
        process = supervisor.start("systemd", argv, env=ENVIRONMENT)
        self._pid = ""

        def booted() -> bool:
            process.check()
            found = run(["pgrep", "--parent", str(process.pid)], check=False).stdout.split()
            self._pid = found[0] if found else ""
            state = self.run("systemctl", "is-system-running", check=False) if found else ""
            return state.strip() in ("running", "degraded")

        wait_until(booted, 60, "systemd to have booted")

    def run(self, *command: str, check: bool = True) -> str:
        """Runs a command in the system; returns its standard output, then its standard error."""
        argv = ["nsenter", f"--target={self._pid}", "--mount", "--pid", "--net", "--uts", "--ipc"]
        argv += ["--cgroup", "--root", "--wd", *command]
        done = run(argv, check=check, timeout=120, env=ENVIRONMENT)
        return done.stdout + done.stderr

    def start(self, *services: str) -> None:
        """Starts services. If one fails, adds the journal to the error."""
        try:
            self.run("systemctl", "start", *services)
        except CommandFailed as failed:
            failed.add_note(self.run("journalctl", "--no-pager", "--lines=60"))
            raise

    def pid(self, service: str) -> int:
        """Returns the process id of a service's main process, as seen from outside the system."""
        inside = self.property(service, "MainPID")
        for path in Path("/proc").glob("[0-9]*/status"):
            try:
                text = path.read_text(encoding="utf-8")
                root = path.with_name("root").resolve()
            except OSError:  # the process ended
                continue
            numbers = next((x.split() for x in text.splitlines() if x.startswith("NSpid:")), [])
            if root == self.root.path.resolve() and numbers[-1] == inside and len(numbers) > 2:
                return int(path.parent.name)
        raise LookupError(f"{service} has no process {inside}")

    def property(self, service: str, name: str) -> str:
        """Returns a property of a unit (`systemctl show`)."""
        return self.run("systemctl", "show", "--value", f"--property={name}", service).strip()

    def stop(self) -> None:
        """Ends the system with all its processes."""
        if self._pid:
            os.kill(int(self._pid), signal.SIGKILL)
        wait_until(lambda: _remove(self._cgroup), 10, f"{self._cgroup} to be empty")


def _remove(cgroup: Path) -> bool:
    """Removes a cgroup and all cgroups below it. Returns False if a process is still in one of
    them.
    """
    for directory, _, _ in os.walk(cgroup, topdown=False):
        try:
            os.rmdir(directory)
        except OSError:
            return False
    return True

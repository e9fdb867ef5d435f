# SPDX-License-Identifier: Apache-2.0
"""Encodes the owner of a namespace or a directory in its name.

Everything that outlives a process (a named namespace, a directory under the temporary directory) is
called `sl-PID-START-label`. PID is the owner's process id. START is the owner's start time in clock
ticks since boot, because PIDs are reused. So the name alone shows whether the owner still runs.
`sweep` removes the namespaces and directories of owners that have ended.
"""

import contextlib
import os
import re
import shutil
import signal
import subprocess
import tempfile
from pathlib import Path

PREFIX = "sl"
NETNS_DIRECTORY = Path("/run/netns")
_NAME = re.compile(rf"^{PREFIX}-(?P<pid>\d+)-(?P<start>\d+)(-.*)?$")


def start_time(pid: int) -> int | None:
    """Returns a process's start time in clock ticks since boot. None if the process is gone or a
    zombie.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def prefix() -> str:
    """Returns the prefix of all names that this process creates: `sl-PID-START`."""
    return f"{PREFIX}-{os.getpid()}-{start_time(os.getpid())}"


def owner_is_gone(name: str) -> bool:
    """Returns whether `name` has this module's format, and the process that created it no longer
    runs.
    """
    match = _NAME.match(name)
    return match is not None and start_time(int(match["pid"])) != int(match["start"])


def temporary_root() -> Path:
    """Returns the directory that contains the run directories.

    The path must be short, because a Unix socket's path is limited to 107 bytes.
    """
    return Path(tempfile.gettempdir())


def kill_inside(namespace: Path, except_pid: int | None = None) -> None:
    """Kills every process in a network namespace, except `except_pid`.

    Does nothing if the namespace does not exist or is the caller's own.
    """
    wanted = _identity(namespace)
    if wanted is None or wanted == _identity(Path("/proc/self/ns/net")):
        return
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == except_pid:
            continue
        if _identity(entry / "ns" / "net") == wanted:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(entry.name), signal.SIGKILL)


def _identity(namespace: Path) -> tuple[int, int] | None:
    """Returns device and inode of a namespace. None if it does not exist or cannot be read."""
    try:
        found = namespace.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def delete_namespace(name: str) -> None:
    """Kills the processes in a named namespace, then deletes it.

    Does nothing if it does not exist.
    """
    kill_inside(NETNS_DIRECTORY / name)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def sweep() -> list[str]:
    """Removes the namespaces and directories whose owners have ended. Returns their names."""
    removed = []
    if NETNS_DIRECTORY.is_dir():
        for name in sorted(entry.name for entry in NETNS_DIRECTORY.iterdir()):
            if owner_is_gone(name):
                delete_namespace(name)
                removed.append(name)
    for path in sorted(temporary_root().glob(f"{PREFIX}-*")):
        if owner_is_gone(path.name):
            shutil.rmtree(path, ignore_errors=True)
            removed.append(str(path))
    return removed

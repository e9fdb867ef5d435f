# SPDX-License-Identifier: Apache-2.0
"""Encodes the owner of a namespace or a directory in its name.

Everything that outlives a process (a named namespace, a directory under the
temporary directory) is called `sl-PID-START-label`, START being the owner's
start time in clock ticks since boot: a PID alone may be used again. From the
name alone one can tell whether the owner still lives, and `sweep` removes
what dead owners left.
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
    """Start time of a process in clock ticks since boot; None if it is gone or a zombie."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()
    return None if fields[0] in "ZX" else int(fields[19])


def prefix() -> str:
    """The prefix of all names that this process may give: `sl-PID-START`."""
    return f"{PREFIX}-{os.getpid()}-{start_time(os.getpid())}"


def owner_is_gone(name: str) -> bool:
    """True if `name` is one of ours and the process that made it no longer runs."""
    match = _NAME.match(name)
    return match is not None and start_time(int(match["pid"])) != int(match["start"])


def temporary_root() -> Path:
    """Returns the parent of run directories. Short: a Unix socket's path may have 107 bytes."""
    return Path(tempfile.gettempdir())


def kill_inside(namespace: Path, except_pid: int | None = None) -> None:
    """Kill every process in a network namespace, except `except_pid`. A missing one is no error."""
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
    """Returns a namespace's identity, or None if it is gone or may not be read."""
    try:
        found = namespace.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def delete_namespace(name: str) -> None:
    """Kill what runs in a named namespace, then delete it. A missing one is no error."""
    kill_inside(NETNS_DIRECTORY / name)
    subprocess.run(["ip", "netns", "delete", name], capture_output=True)


def sweep() -> list[str]:
    """Remove namespaces and directories of owners that are gone; return their names."""
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

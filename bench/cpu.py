# SPDX-License-Identifier: Apache-2.0
"""CPU time, user and system, of the processes that have a part in forwarding.

The kernel accounts what it does for a packet to whoever runs: to the sender for
the way into the switch, to the switch for the way out, and to ksoftirqd under
load. All of them are counted; what else the machine does is not. The sender is
a child of this process that has ended (sluice-traffic).
"""

from __future__ import annotations

import resource
from pathlib import Path


def process_seconds(pid: int) -> float:
    """CPU time of all threads of a process."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def thread_seconds(pid: int, name: str) -> float:
    """CPU time of the threads of a process whose names begin so."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith(name):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def system_share(pid: int) -> float:
    """The part of a process's CPU time, since it began, that the kernel took for it."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return system / max(1, user + system)


def softirq_threads() -> list[int]:
    """The kernel's softirq threads."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                name = (entry / "comm").read_text()
            except OSError:
                continue
            if name.startswith("ksoftirqd/"):
                found.append(int(entry.name))
    return found


class Meter:
    """CPU time from its making on: of a switch, and of everything that forwarding took."""

    def __init__(self, switch: int):
        self._switch = switch
        self._softirq = softirq_threads()
        self._start = self._read()

    def _read(self) -> tuple[float, float, float]:
        softirq = sum(process_seconds(pid) for pid in self._softirq)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return process_seconds(self._switch), softirq, children.ru_utime + children.ru_stime

    def seconds(self) -> tuple[float, float]:
        """(the switch, all of: the switch, the kernel's threads, the sender)."""
        switch, softirq, sender = (
            now - then for now, then in zip(self._read(), self._start, strict=True)
        )
        return switch, switch + softirq + sender

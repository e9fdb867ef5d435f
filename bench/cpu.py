# SPDX-License-Identifier: Apache-2.0
"""Measures CPU time (user and system) of the processes that take part in forwarding.

The kernel charges its work for a packet to the process that runs at that moment. When a packet
enters the switch, this is the sender; when it leaves the switch, it is the switch. Under load,
ksoftirqd does part of the work. The meter adds up the CPU time of these processes only.

The sender (sluice-traffic) is a child of this process. The meter includes its time only after it
has ended.
"""

from __future__ import annotations

import resource
from pathlib import Path


def process_seconds(pid: int) -> float:
    """Returns the CPU seconds of all threads of a process."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def thread_seconds(pid: int, name: str) -> float:
    """Returns the CPU seconds of the threads of a process whose names begin with `name`."""
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        if (task / "comm").read_text().startswith(name):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def system_share(pid: int) -> float:
    """Returns the fraction of a process's CPU time, since its start, that was spent in the
    kernel.
    """
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    user, system = int(fields[11]), int(fields[12])
    return system / max(1, user + system)


def softirq_threads() -> list[int]:
    """Returns the PIDs of the kernel's softirq threads."""
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
    """Measures CPU time since the meter's creation.

    The meter covers the switch, and all processes that take part in forwarding.
    """

    def __init__(self, switch: int):
        self._switch = switch
        self._softirq = softirq_threads()
        self._start = self._read()

    def _read(self) -> tuple[float, float, float]:
        softirq = sum(process_seconds(pid) for pid in self._softirq)
        children = resource.getrusage(resource.RUSAGE_CHILDREN)
        return process_seconds(self._switch), softirq, children.ru_utime + children.ru_stime

    def seconds(self) -> tuple[float, float]:
        """Returns two values in CPU seconds: the switch alone, and the sum of switch, softirq
        threads and sender.
        """
        switch, softirq, sender = (
            now - then for now, then in zip(self._read(), self._start, strict=True)
        )
        return switch, switch + softirq + sender

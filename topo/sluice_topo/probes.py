# SPDX-License-Identifier: Apache-2.0
"""Queries hosts and kernels for the demo and the end-to-end tests: ping, traceroute, counters."""

import ipaddress
import json
import math
import re
import statistics
from dataclasses import dataclass
from pathlib import Path

from sluice_testkit.namespaces import Namespace


def _is_address(word: str) -> bool:
    try:
        ipaddress.ip_address(word)
    except ValueError:
        return False
    return True


@dataclass(frozen=True)
class Ping:
    """Holds the result of one run of ping.

    Round-trip times are in milliseconds, or None if no request was answered.
    """

    sent: int
    received: int
    average: float | None
    median: float | None
    output: str

    @property
    def lost(self) -> int:
        """Number of requests without an answer."""
        return self.sent - self.received


def ping(
    place: Namespace,
    address: str,
    *,
    count: int = 5,
    interval: float = 0.02,
    size: int = 56,
    options: tuple[str, ...] = (),
    answered: bool = False,
) -> Ping:
    """Pings `address`. `size` is the length of the payload in bytes.

    After the last request, ping waits only for the interval, or for twice the longest round trip.
    An answer that comes later counts as lost.

    With `answered`, ping sends more requests until it has `count` answers. Then only requests
    before the last answered one can count as lost.
    """
    patience = ("-w", str(math.ceil(count * interval) + 5)) if answered else ("-W", "2")
    done = place.run(
        *("ping", "-n", "-c", str(count), "-i", str(interval), *patience, "-s", str(size)),
        *options,
        address,
        check=False,
    )
    text = done.stdout + done.stderr
    numbers = re.search(r"(\d+) packets transmitted, (\d+) received", text)
    sent = int(numbers[1]) if numbers else count
    if answered:
        sent = max(map(int, re.findall(r"icmp_seq=(\d+) ttl=", text)), default=sent)
    times = [float(found) for found in re.findall(r"time=([\d.]+) ms", text)]
    return Ping(
        sent,
        int(numbers[2]) if numbers else 0,
        statistics.fmean(times) if times else None,
        statistics.median(times) if times else None,
        text,
    )


def traceroute(place: Namespace, address: str, *options: str) -> list[set[str]]:
    """Returns the addresses that answered: for each hop, the set of its addresses."""
    family = "-6" if ":" in address else "-4"
    text = place.run("traceroute", family, "-n", "-w", "2", "-q", "3", *options, address).stdout
    hops = []
    for line in text.splitlines()[1:]:
        hops.append({word for word in line.split()[1:] if _is_address(word)})
    return hops


def kernel_forwarded(place: Namespace) -> int:
    """Returns the number of packets that a namespace's kernel has forwarded, IPv4 and IPv6."""
    lines = place.run("cat", "/proc/net/snmp").stdout.splitlines()
    names, values = (line.split()[1:] for line in lines if line.startswith("Ip:"))
    forwarded = int(dict(zip(names, values, strict=True))["ForwDatagrams"])
    for line in place.run("cat", "/proc/net/snmp6").stdout.splitlines():
        name, value = line.split()
        if name == "Ip6OutForwDatagrams":
            forwarded += int(value)
    return forwarded


def interface_packets(place: Namespace, interface: str) -> tuple[int, int]:
    """Returns the number of packets that an interface has received, and that it has sent, as
    counted by the kernel.
    """
    shown = json.loads(place.run("ip", "-s", "-j", "link", "show", "dev", interface).stdout)
    counts = shown[0]["stats64"]
    return counts["rx"]["packets"], counts["tx"]["packets"]


def cpu_seconds(pid: int) -> float:
    """Returns the CPU time that all threads of a process have used, in seconds."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

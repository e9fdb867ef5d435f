# SPDX-License-Identifier: Apache-2.0
"""Runs DPDK's crypto performance tool: AES-128-GCM of the software drivers, in memory.

The tool encrypts the same buffers repeatedly, polls for completion and counts operations per
second. The tool has a processor to itself. The tool does not include ESP, sequence numbers or
anti-replay windows.
"""

from __future__ import annotations

import csv
import os
import shutil
import subprocess
from collections.abc import Sequence

from bench.command import ToolMissing

TOOL = "dpdk-test-crypto-perf"
# DPDK may be built without some of these drivers.
DRIVERS = ("crypto_aesni_gcm", "crypto_aesni_mb", "crypto_openssl")
OPERATIONS = 1_000_000


def command(driver: str, sizes: Sequence[int], operations: int) -> list[str]:
    """Returns the tool's command line."""
    cores = sorted(os.sched_getaffinity(0))[:2]
    if len(cores) < 2:
        raise ToolMissing(f"{TOOL} needs a machine with two processors")
    environment = ["-l", ",".join(map(str, cores)), "--no-huge", "--no-pci", "-m", "256"]
    test = [
        *("--ptest", "throughput", "--devtype", driver, "--optype", "aead"),
        *("--aead-algo", "aes-gcm", "--aead-op", "encrypt", "--aead-key-sz", "16"),
        *("--aead-iv-sz", "12", "--aead-aad-sz", "12", "--digest-sz", "16"),
        *("--buffer-sz", ",".join(map(str, sizes)), "--burst-sz", "32"),
        *("--total-ops", str(operations), "--silent", "--csv-friendly"),
    ]
    words = [TOOL, *environment, "--file-prefix", f"bench{os.getpid()}", "--vdev", driver]
    return [*words, "--", *test]


def rates(driver: str, sizes: Sequence[int], operations: int = OPERATIONS) -> dict[int, float]:
    """Returns operations per second, by buffer size in bytes."""
    if shutil.which(TOOL) is None:
        raise ToolMissing(f"{TOOL} is not installed (Debian: dpdk-dev)")
    done = subprocess.run(
        command(driver, sizes, operations), capture_output=True, text=True, timeout=120
    )
    found = parsed(done.stdout)
    if not found:
        said = (done.stderr + done.stdout).strip().splitlines()
        raise ToolMissing(f"{driver}: {said[-1] if said else 'no output'}")
    return found


def parsed(output: str) -> dict[int, float]:
    """Parses the tool's output: a header that begins with `#`, then one line per buffer size."""
    lines = [line.strip() for line in output.splitlines() if "," in line]
    headers = [line for line in lines if line.startswith("#")]
    if not headers:
        return {}
    names = [name.strip() for name in headers[0].lstrip("#").split(",")]
    rows = csv.DictReader((line for line in lines if line[:1].isdigit()), names)
    return {
        int(row["Buffer Size(B)"]): float(row["Ops(Millions)"]) * 1e6
        for row in rows
        if row.get("Ops(Millions)") is not None
    }


def best(sizes: Sequence[int]) -> dict[int, tuple[float, str]]:
    """Returns, by buffer size in bytes, the rate and name of the fastest driver."""
    found: dict[int, tuple[float, str]] = {}
    problems = []
    for driver in DRIVERS:
        try:
            for size, rate in rates(driver, sizes).items():
                found[size] = max(found.get(size, (0.0, "")), (rate, driver))
        except ToolMissing as missing:
            problems.append(str(missing))
        except subprocess.TimeoutExpired:
            problems.append(f"{driver}: no result in time")
    if not found:
        raise ToolMissing("; ".join(dict.fromkeys(problems)))
    return found

# SPDX-License-Identifier: Apache-2.0
"""Measures strongSwan's ESP in user space (kernel-libipsec), in packets per CPU-second.

Each of two network namespaces runs a charon daemon. The two set up a tunnel by IKEv2, with a shared
secret and AES-128-GCM in UDP. Packets enter the sender's TUN device. The result is the number of
packets that leave the receiver's TUN device, divided by the CPU time of the sending charon (user
and system).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass

from bench.command import ToolMissing
from bench.cpu import process_seconds, system_share
from sluice_testkit import strongswan
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.process import Process

# OpenSSL's AES uses the processor's AES instructions. So its plugin is loaded before those with
# strongSwan's own AES.
ALGORITHMS = ("openssl", *(name for name in strongswan.PLUGINS if name != "openssl"))
LINK = ("10.9.0.1", "10.9.0.2")
INSIDE = ("10.9.1.1", "10.9.2.1")
OVERHEAD = 28  # IPv4 and UDP headers
SECONDS = 2.0

SWANCTL = """
connections {{
  peer {{
    version = 2
    encap = yes
    local_addrs = {local}
    remote_addrs = {remote}
    proposals = aes128gcm16-prfsha256-ecp256
    local {{ auth = psk
      id = {local} }}
    remote {{ auth = psk
      id = {remote} }}
    children {{ net {{
        local_ts = {inside}/32
        remote_ts = {beyond}/32
        esp_proposals = aes128gcm16
    }} }}
  }}
}}
secrets {{ ike {{ secret = 0x5a5a5a5a5a5a5a5a5a5a5a5a }} }}
"""

SENDER = """
import socket, sys, time
source, destination, size, seconds = sys.argv[1:]
output = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
output.bind((source, 0))
data, to, end = bytes(int(size)), (destination, 9), time.monotonic() + float(seconds)
while time.monotonic() < end:
    for _ in range(64):
        try:
            output.sendto(data, to)
        except OSError:
            pass
"""


@dataclass(frozen=True)
class Rate:
    """Holds the packets per CPU-second, and the fraction of charon's CPU time that was system time.
    The fraction counts from the start of charon.
    """

    per_second: float
    system: float


@dataclass(frozen=True)
class TunnelEnd:
    """Holds one end of the tunnel: a namespace with its charon daemon."""

    namespace: Namespace
    charon: Process


def require_installed() -> None:
    """Raises `ToolMissing` with the name of Debian's package if a program is not installed."""
    if not strongswan.is_installed():
        raise ToolMissing(
            "strongSwan is not installed (Debian: strongswan-charon, strongswan-swanctl)"
        )
    if not strongswan.LIBIPSEC.exists():
        raise ToolMissing(
            f"{strongswan.LIBIPSEC} is not installed (Debian: libcharon-extra-plugins)"
        )


def tunnel(lab: Lab) -> tuple[TunnelEnd, TunnelEnd]:
    """Sets up a tunnel between two charon daemons. Raises `ToolMissing` if that fails."""
    require_installed()
    names = [lab.namespace("left"), lab.namespace("right")]
    veth(names[0], "wire", names[1], "wire")
    for namespace, link, inside in zip(names, LINK, INSIDE, strict=True):
        namespace.add_address("wire", f"{link}/24")
        namespace.add_address("lo", f"{inside}/32")
    ends = []
    try:
        for own, namespace in enumerate(names):
            place = (f"charon-{own}", namespace, lab.directory, lab.supervisor)
            daemon = strongswan.StrongSwan(
                *place, kernel=strongswan.USERSPACE_ESP, plugins=ALGORITHMS
            )
            addresses = {"local": LINK[own], "remote": LINK[1 - own]}
            addresses |= {"inside": INSIDE[own], "beyond": INSIDE[1 - own]}
            daemon.start(SWANCTL.format(**addresses))
            namespace.run("ip", "route", "add", f"{INSIDE[1 - own]}/32", "dev", strongswan.TUN)
            assert daemon.process is not None
            ends.append(TunnelEnd(namespace, daemon.process))
        daemon.ctl("--initiate", "--child", "net", "--timeout", "20")
    except AssertionError as why:
        raise ToolMissing(f"no tunnel between two charons: {why}") from why
    return ends[0], ends[1]


def arrived(namespace: Namespace) -> int:
    """Returns the number of packets that a namespace's kernel has received from its TUN device."""
    for line in namespace.run("cat", "/proc/net/dev").stdout.splitlines():
        name, _, counts = line.partition(":")
        if name.strip() == strongswan.TUN:
            return int(counts.split()[1])
    raise ToolMissing(f"charon has made no {strongswan.TUN}")


def measure(left: TunnelEnd, right: TunnelEnd, size: int, seconds: float = SECONDS) -> Rate:
    """Sends packets of `size` bytes for `seconds` seconds, as fast as possible.

    Returns the rate.
    """
    before, cpu = arrived(right.namespace), process_seconds(left.charon.pid)
    words = [sys.executable, "-c", SENDER, INSIDE[0], INSIDE[1], str(size - OVERHEAD)]
    left.namespace.run(*words, str(seconds), timeout=seconds + 30)
    time.sleep(0.2)  # waits for packets under way
    spent = process_seconds(left.charon.pid) - cpu
    came = arrived(right.namespace) - before
    if came == 0:
        raise ToolMissing("no packet came through the tunnel")
    return Rate(came / spent, system_share(left.charon.pid))


def rates(lab: Lab, sizes: Sequence[int], rounds: int) -> dict[int, list[Rate]]:
    """Returns a list of results for each packet size, one result per round. Each round measures all
    sizes.
    """
    found: dict[int, list[Rate]] = {size: [] for size in sizes}
    left, right = tunnel(lab)
    for _ in range(rounds):
        for size in sizes:
            found[size].append(measure(left, right, size))
    return found

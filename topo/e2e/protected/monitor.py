# SPDX-License-Identifier: Apache-2.0
"""Checks that policy lets no packet out in clear. It captures on every link and has a list of
permitted frames.

The links between the routers and t are captured at t's end. So the direction of a frame shows
whether the router or a test has sent it. A frame from a router must be one of these: ESP of a known
tunnel, ARP, neighbour discovery, IKE, or a frame that the test declares as bypassed. Any other
frame fails the test. The monitor does not search rules.

Packets that a test injects contain the mark FORGED. No host and no engine may receive such a
packet. Depends on network.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sluice_testkit.capture import Capture, Filter
from sluice_testkit.esp_engine import ESP
from sluice_testkit.packet import ETHERTYPE_ARP, ICMP, ICMPV6, UDP, Frame

from .network import TUNNEL, WIRES, ProtectedNetwork

FORGED = b"played in clear by a test"
TUNNELS = {(sa.source, sa.destination) for sa in TUNNEL.values()}


def is_esp(frame: Frame) -> bool:
    """Returns whether the frame is ESP between the two end points of a known tunnel."""
    return frame.protocol == ESP and (frame.source, frame.destination) in TUNNELS


def is_arp(frame: Frame) -> bool:
    """Returns whether the frame is ARP."""
    return frame.ethertype == ETHERTYPE_ARP


def is_neighbor_discovery(frame: Frame) -> bool:
    """Returns whether the frame is neighbour discovery with hop limit 255, which shows that it was
    not forwarded.
    """
    return (
        frame.protocol == ICMPV6
        and frame.ttl == 255
        and frame.icmp_type is not None
        and 133 <= frame.icmp_type <= 137
    )


def is_ike(frame: Frame) -> bool:
    """Returns whether the frame is UDP with source port 500 or 4500 and a router's own address as
    source.
    """
    return frame.protocol == UDP and frame.source_port in (500, 4500) and _is_gateway(frame.source)


def _is_gateway(address: str) -> bool:
    return address.startswith(("10.0.", "2001:db8:0:"))


class LeakMonitor:
    """Holds the captures of one test on all links and hosts."""

    def __init__(
        self, wires: dict[str, Capture], hosts: dict[str, Capture], walks: ProtectedNetwork
    ):
        self.wires = wires
        self.hosts = hosts
        self._walks = walks
        self._allowed: list[Filter] = [is_esp, is_arp, is_neighbor_discovery, is_ike]

    def allow(self, matching: Filter) -> None:
        """Permits these frames in this test, because policy bypasses them."""
        self._allowed.append(matching)

    def sent(self, wire: str, matching: Filter | None = None) -> list[Frame]:
        """Returns the frames that the router has sent onto a link."""
        return [f for f in self.wires[wire].frames(matching) if not f.outgoing]

    def esp(self, wire: str) -> int:
        """Returns the number of ESP packets that the router has sent onto a link."""
        return len(self.sent(wire, is_esp))

    def arrived(self, host: str, matching: Filter | None = None) -> list[Frame]:
        """Returns the frames that a host has received."""
        return [f for f in self.hosts[host].frames(matching) if not f.outgoing]

    def check(self) -> None:
        """Fails if a router has sent a frame that is not permitted, or if a host or an engine has
        received a forged packet.
        """
        for wire in self.wires:
            for frame in self.sent(wire):
                seen = any(allowed(frame) for allowed in self._allowed)
                assert seen, f"in clear on the wire of {wire}: {frame}"
        for host in self.hosts:
            for frame in self.arrived(host):
                assert FORGED not in frame.data, f"what a test forged came to {host}: {frame}"
        for name, engine in self._walks.engines.items():
            for frame in [*engine.encrypted, *engine.decrypted]:
                assert FORGED not in frame.data, f"{name} had its engine work on a forged {frame}"


@contextmanager
def monitored(walks: ProtectedNetwork) -> Iterator[LeakMonitor]:
    """Captures while the context is open. Checks the captures when it ends."""
    for engine in walks.engines.values():
        engine.clear()
    with ExitStack() as stack:
        wires = {
            wire: stack.enter_context(Capture(walks.between, interface))
            for wire, interface in WIRES.items()
        }
        hosts = {
            name: stack.enter_context(Capture(host.namespace, "eth0"))
            for name, host in walks.network.hosts.items()
        }
        monitor = LeakMonitor(wires, hosts, walks)
        yield monitor
        monitor.check()


def time_exceeded(monitor: LeakMonitor, host: str, version: int) -> list[Frame]:
    """Returns the ICMP errors (time exceeded) that arrived at a host."""
    wanted = {4: (ICMP, 11), 6: (ICMPV6, 3)}[version]
    return monitor.arrived(host, lambda seen: (seen.protocol, seen.icmp_type) == wanted)

# SPDX-License-Identifier: Apache-2.0
"""Nothing in clear that policy protects or discards: captures on every wire, and who may be seen.

The wires between router and t are witnessed from t's side, so that what a
router sent and what was played to it differ by direction. What a router sent
has to be on a list: ESP of a known tunnel, ARP, neighbour discovery, IKE, and
what a test says that policy bypasses. Whatever else there is fails the test;
no rule is asked a second time here. What tests put on a wire by themselves
carries the mark FORGED, which no host and no engine may ever see.
Depends on network.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from sluice_testkit.capture import Capture, Filter
from sluice_testkit.esp_engine import ESP
from sluice_testkit.packet import ETHERTYPE_ARP, ICMP, ICMPV6, UDP, Frame

from .network import TUNNEL, WIRES, Walks

FORGED = b"played in clear by a test"
TUNNELS = {(sa.source, sa.destination) for sa in TUNNEL.values()}


def is_esp(frame: Frame) -> bool:
    """ESP between two ends of one of the tunnels."""
    return frame.protocol == ESP and (frame.source, frame.destination) in TUNNELS


def is_arp(frame: Frame) -> bool:
    """ARP."""
    return frame.ethertype == ETHERTYPE_ARP


def is_neighbor_discovery(frame: Frame) -> bool:
    """ICMPv6 that cannot have been forwarded, of neighbour discovery's types."""
    return (
        frame.protocol == ICMPV6
        and frame.ttl == 255
        and frame.icmp_type is not None
        and 133 <= frame.icmp_type <= 137
    )


def is_ike(frame: Frame) -> bool:
    """UDP from port 500 or 4500 of a router's own."""
    return frame.protocol == UDP and frame.source_port in (500, 4500) and _is_gateway(frame.source)


def _is_gateway(address: str) -> bool:
    return address.startswith(("10.0.", "2001:db8:0:"))


class Witness:
    """All captures of one test."""

    def __init__(self, wires: dict[str, Capture], hosts: dict[str, Capture], walks: Walks):
        self.wires = wires
        self.hosts = hosts
        self._walks = walks
        self._allowed: list[Filter] = [is_esp, is_arp, is_neighbor_discovery, is_ike]

    def allow(self, matching: Filter) -> None:
        """Policy bypasses these in this test."""
        self._allowed.append(matching)

    def sent(self, wire: str, matching: Filter | None = None) -> list[Frame]:
        """Returns the frames that the router has sent onto a wire so far."""
        return [f for f in self.wires[wire].frames(matching) if not f.outgoing]

    def esp(self, wire: str) -> int:
        """How many ESP packets the router has sent onto a wire so far."""
        return len(self.sent(wire, is_esp))

    def arrived(self, host: str, matching: Filter | None = None) -> list[Frame]:
        """Returns the frames that have come to a host so far."""
        return [f for f in self.hosts[host].frames(matching) if not f.outgoing]

    def check(self) -> None:
        """The verdict."""
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
def witnessing(walks: Walks) -> Iterator[Witness]:
    """Witness a test from its start to its end, and then judge."""
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
        witness = Witness(wires, hosts, walks)
        yield witness
        witness.check()


def time_exceeded(witness: Witness, host: str, version: int) -> list[Frame]:
    """The errors about TTL or hop limit that came to a host."""
    wanted = {4: (ICMP, 11), 6: (ICMPV6, 3)}[version]
    return witness.arrived(host, lambda seen: (seen.protocol, seen.icmp_type) == wanted)

# SPDX-License-Identifier: Apache-2.0
"""What FRR is told to speak, as far as policy has to let it through: BGP and OSPF.

Reads FRR's configuration as its files or `vtysh -c 'show running-config'` have it, and only for
what `sluice spd check` warns about; what it does not know it passes over, since FRR is the judge of
the rest. Pure; depends on model.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sluice.model import Address, Prefix, parse_address

COMMENT = "!"


@dataclass(frozen=True, slots=True)
class BgpPeer:
    """A neighbour by `address`, or (unnumbered) by `interface`. `where` is file and line."""

    where: str
    address: Address | None
    interface: str | None


@dataclass(slots=True)
class Routing:
    """The sessions that are configured, in one VRF or another."""

    peers: list[BgpPeer] = field(default_factory=list)
    ospf_networks: list[tuple[str, Prefix]] = field(default_factory=list)
    ospf_interfaces: dict[str, str] = field(default_factory=dict)
    ospf6_interfaces: dict[str, str] = field(default_factory=dict)
    """Where each is configured: file and line; networks and interfaces with an area."""
    bgp_sources: dict[Address, Address] = field(default_factory=dict)
    """The address that a peer is spoken to from, where one is configured."""


def read_frr(text: str, name: str, routing: Routing) -> None:
    """Adds what FRR's configuration `text` says; `name` is what to call the file."""
    section: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith((COMMENT, "#")):
            continue
        if not line[0].isspace():
            section = words
        where = f"{name}:{number}"
        match section[:2]:
            case ["router", "bgp"]:
                _bgp(words, where, routing)
            case ["router", "ospf"] if words[0] == "network" and len(words) >= 4:
                _network(words[1], where, routing)
            case ["router", "ospf6"] if words[0] == "interface" and "area" in words:
                routing.ospf6_interfaces.setdefault(words[1], where)
            case ["interface", interface]:
                _interface(words, interface, where, routing)


def _bgp(words: list[str], where: str, routing: Routing) -> None:
    """`neighbor 10.0.0.1 remote-as ...` or `... peer-group NAME`; `neighbor eth1 interface ...`."""
    if words[0] != "neighbor" or len(words) < 3:
        return
    name, what = words[1], words[2]
    if what == "interface":
        routing.peers.append(BgpPeer(where, None, name))
        return
    address = _address(name)
    if address is None:
        return  # a peer group
    if what in ("remote-as", "peer-group"):
        if all(peer.address != address for peer in routing.peers):
            routing.peers.append(BgpPeer(where, address, None))
    elif what == "update-source" and len(words) > 3:
        source = _address(words[3])
        if source is not None:  # else an interface, whose addresses are tried anyway
            routing.bgp_sources[address] = source


def _address(text: str) -> Address | None:
    try:
        return parse_address(text)
    except ValueError:
        return None


def _network(text: str, where: str, routing: Routing) -> None:
    try:
        routing.ospf_networks.append((where, Prefix.parse(text)))
    except ValueError:
        return  # FRR says so itself


def _interface(words: list[str], interface: str, where: str, routing: Routing) -> None:
    """`ip ospf area 0` or `ip ospf 1 area 0`; `ipv6 ospf6 area 0`."""
    if words[:2] == ["ip", "ospf"] and "area" in words:
        routing.ospf_interfaces.setdefault(interface, where)
    elif words[:2] == ["ipv6", "ospf6"] and "area" in words:
        routing.ospf6_interfaces.setdefault(interface, where)

# SPDX-License-Identifier: Apache-2.0
"""Finds the BGP and OSPF sessions in FRR's configuration, which policy must allow.

The input is the text of FRR's files or of `vtysh -c 'show running-config'`. The result is used only
for the warnings of `sluice spd check`. Unknown lines are skipped, because FRR itself validates
them. Pure; depends on model.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from sluice.model import Address, Prefix, format_address, parse_address

COMMENT = "!"
BGP_PORT = 179


@dataclass(frozen=True, slots=True)
class BgpPeer:
    """Describes a BGP neighbour, by `address` or (unnumbered) by `interface`.

    `where` is the file and line of the configuration. `port` is the peer's listening port.
    """

    where: str
    address: Address | None
    interface: str | None
    port: int = BGP_PORT


@dataclass(slots=True)
class Routing:
    """Holds the BGP and OSPF sessions that are configured in all VRFs."""

    peers: dict[Address | str, BgpPeer] = field(default_factory=dict)
    """BGP neighbours, by address or, if unnumbered, by interface. The first mention counts."""
    ospf_networks: list[tuple[str, Prefix]] = field(default_factory=list)
    ospf_interfaces: dict[str, str] = field(default_factory=dict)
    ospf6_interfaces: dict[str, str] = field(default_factory=dict)
    """OSPF networks and interfaces with an area, each with file and line of its configuration."""
    bgp_sources: dict[Address, Address] = field(default_factory=dict)
    """Configured source address (`update-source`) of a session, by peer."""
    bgp_ports: dict[str, int] = field(default_factory=dict)
    bgp_shut: set[str] = field(default_factory=set)
    bgp_groups: dict[str, str] = field(default_factory=dict)
    """Ports, shutdowns and groups, by name of the neighbour or peer group in the configuration."""
    ospf_passive: dict[str, bool] = field(default_factory=dict)
    ospf_passive_default: bool = False
    ospf6_passive: set[str] = field(default_factory=set)

    @property
    def has_sessions(self) -> bool:
        """Whether any BGP or OSPF session was found."""
        ospf = (self.ospf_networks, self.ospf_interfaces, self.ospf6_interfaces)
        return bool(self.peers) or any(ospf)

    def speaking_peers(self) -> list[BgpPeer]:
        """Returns the neighbours that are not shut down, with their ports.

        A neighbour may be shut down by its own configuration or by that of its peer group.
        """
        speaking = []
        for peer in self.peers.values():
            name = peer.interface or (format_address(peer.address) if peer.address else "")
            names = (name, self.bgp_groups.get(name, name))
            if self.bgp_shut.isdisjoint(names):
                port = next((self.bgp_ports[one] for one in names if one in self.bgp_ports), None)
                speaking.append(peer if port is None else replace(peer, port=port))
        return speaking

    def is_ospf_passive(self, interface: str) -> bool:
        """Returns whether the interface is passive: OSPF announces it, but forms no adjacencies on
        it."""
        return self.ospf_passive.get(interface, self.ospf_passive_default)


def read_frr(text: str, name: str, routing: Routing) -> None:
    """Adds the sessions of FRR's configuration `text` to `routing`; `name` is the file's name.

    Takes time linear in the text's length.
    """
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
            case ["router", "ospf"]:
                _ospf(words, where, routing)
            case ["router", "ospf6"] if words[0] == "interface" and "area" in words:
                routing.ospf6_interfaces.setdefault(words[1], where)
            case ["interface", interface]:
                _interface(words, interface, where, routing)


def _bgp(words: list[str], where: str, routing: Routing) -> None:
    """Reads `neighbor 10.0.0.1 remote-as ...`, `... peer-group NAME`, `neighbor eth1 interface
    ...`."""
    if words[0] != "neighbor" or len(words) < 3:
        return
    name, what, more = words[1], words[2], words[3:]
    address = _address(name)
    if address is not None:
        name = format_address(address)
    _bgp_settings(name, words[2:], routing)
    if what == "interface":
        routing.peers.setdefault(name, BgpPeer(where, None, name))
        return
    if address is None:
        return  # a peer group, or another setting of an unnumbered neighbour
    if what in ("remote-as", "peer-group"):
        routing.peers.setdefault(address, BgpPeer(where, address, None))
    elif what == "update-source" and more:
        source = _address(more[0])
        if source is not None:  # an interface name is ignored: all own addresses are tried anyway
            routing.bgp_sources[address] = source


def _address(text: str) -> Address | None:
    try:
        return parse_address(text)
    except ValueError:
        return None


def _bgp_settings(name: str, words: list[str], routing: Routing) -> None:
    """Reads the settings that neighbours and peer groups share, and a neighbour's peer group."""
    if words[0] == "shutdown":
        routing.bgp_shut.add(name)
    elif words[0] == "port" and words[1:] and words[1].isdecimal():
        routing.bgp_ports[name] = int(words[1])
    elif "peer-group" in words[:-1]:
        routing.bgp_groups[name] = words[words.index("peer-group") + 1]


def _ospf(words: list[str], where: str, routing: Routing) -> None:
    """Reads `network 10.0.0.0/8 area 0` and `[no] passive-interface eth1` (or `default`)."""
    if words[0] == "network" and len(words) >= 4:
        _network(words[1], where, routing)
        return
    is_passive = words[0] != "no"
    words = words if is_passive else words[1:]
    if words[:1] == ["passive-interface"] and len(words) > 1:
        if words[1] == "default":
            routing.ospf_passive_default = is_passive
        else:
            routing.ospf_passive[words[1]] = is_passive


def _network(text: str, where: str, routing: Routing) -> None:
    try:
        routing.ospf_networks.append((where, Prefix.parse(text)))
    except ValueError:
        return  # FRR itself reports such an error


def _interface(words: list[str], interface: str, where: str, routing: Routing) -> None:
    """Reads `ip ospf area 0`, `ip ospf 1 area 0`, `ipv6 ospf6 area 0`, and the `passive` lines."""
    is_passive = words[0] != "no"
    words = words if is_passive else words[1:]
    if words[:3] == ["ip", "ospf", "passive"]:
        routing.ospf_passive[interface] = is_passive
    elif words[:3] == ["ipv6", "ospf6", "passive"] and is_passive:
        routing.ospf6_passive.add(interface)
    elif words[:2] == ["ip", "ospf"] and "area" in words:
        routing.ospf_interfaces.setdefault(interface, where)
    elif words[:2] == ["ipv6", "ospf6"] and "area" in words:
        routing.ospf6_interfaces.setdefault(interface, where)

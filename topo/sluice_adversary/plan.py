# SPDX-License-Identifier: Apache-2.0
"""Describes the network under attack: one router with three links, and one port for an ESP engine.

    a --- eth1 [ r ] eth2 --- b      eth1: no SPD       engine on port 9
                 eth3 --- c          eth2: SPD east, bundles 1, 2, and 4 without an SA
                                     eth3: SPD south, bundle 3

Behind each link is a site without real hosts. The next hops are permanent neighbours, and one
process at the far ends of the links acts as all hosts. Pure.
"""

import ipaddress
from dataclasses import dataclass
from typing import NamedTuple


def packed(text: str) -> bytes:
    """Returns an address as bytes."""
    return ipaddress.ip_address(text).packed


class Link(NamedTuple):
    """Describes a link, and the router's layer-3 interface on it."""

    name: str
    number: int
    interface: str
    spd: str | None

    @property
    def router_mac(self) -> str:
        """The router's MAC address on this link."""
        return f"02:00:00:00:01:{self.number:02x}"

    @property
    def host_mac(self) -> str:
        """The MAC address that all other stations on this link share."""
        return f"02:00:00:00:02:{self.number:02x}"

    @property
    def port_mac(self) -> str:
        """The MAC address of the router's port device. No station on the link has it."""
        return f"02:00:00:00:03:{self.number:02x}"

    def own(self, version: int) -> str:
        """Returns the router's address on this link."""
        return f"10.{self.number}.0.1" if version == 4 else f"2001:db8:{self.number}::1"

    def next_hop(self, version: int) -> str:
        """Returns the address of the next hop on this link, which leads to the site."""
        return f"10.{self.number}.0.2" if version == 4 else f"2001:db8:{self.number}::2"

    def site(self, version: int) -> str:
        """Returns the prefix of the site behind this link."""
        return f"10.1{self.number}.0.0/24" if version == 4 else f"2001:db8:1{self.number}::/64"

    def host(self, version: int, number: int) -> str:
        """Returns the address of a host in the site behind this link."""
        if version == 4:
            return f"10.1{self.number}.0.{number}"
        return f"2001:db8:1{self.number}::{number:x}"


LINKS = {
    link.name: link
    for link in (
        Link("a", 1, "eth1", None),
        Link("b", 2, "eth2", "east"),
        Link("c", 3, "eth3", "south"),
    )
}
SPDS = tuple(link.spd for link in LINKS.values() if link.spd is not None)
BY_SPD = {link.spd: link for link in LINKS.values() if link.spd is not None}
ERRORS_CHECKED = frozenset({"east"})
"""SPDs configured with `icmp_errors: checked`."""
ENGINE, ENGINE_PORT = "engine", 9
HOSTS = (1, 2, 3, 4)
"""Host numbers in each site, for rules and datagrams."""
SENTINEL_HOST, SENTINEL_PROTOCOL = 250, 254
"""Host number in each site for cleartext sentinels, and the protocol of all sentinels.

A sentinel through a bundle uses the host number plus the bundle's number.
"""
NOWHERE = {4: "10.99.0.1", 6: "2001:db8:99::1"}
"""Addresses without a route."""


@dataclass(frozen=True)
class Bundle:
    """Describes a bundle of SAs. `local` is the router's tunnel address, or None if the bundle has
    no outbound SA.
    """

    number: int
    name: str
    spd: str
    spi: int
    local: str | None
    overhead: int = 77  # AES-GCM over IPv6
    path_mtu: int = 1500


BUNDLES = {
    one.number: one
    for one in (
        Bundle(1, "one", "east", 0x1001, "10.2.0.1"),
        Bundle(2, "two", "east", 0x1002, "2001:db8:2::1"),
        Bundle(3, "three", "south", 0x1003, "10.3.0.1"),
        Bundle(4, "without-sa", "east", 0x1004, None),
    )
}
SPIS = frozenset(bundle.spi for bundle in BUNDLES.values())
OWN = frozenset(packed(link.own(version)) for link in LINKS.values() for version in (4, 6))
_BROADCASTS = frozenset(packed(f"10.{link.number}.0.255") for link in LINKS.values())
_NETWORKS = [
    (ipaddress.ip_network(prefix), link)
    for link in LINKS.values()
    for version in (4, 6)
    for prefix in (
        link.site(version),
        f"10.{link.number}.0.0/24" if version == 4 else f"2001:db8:{link.number}::/64",
    )
]
_LOCAL = [
    ipaddress.ip_network(text)
    for text in ("224.0.0.0/24", "255.255.255.255/32", "fe80::/10", "ff01::/16", "ff02::/16")
]


def is_link_local(address: bytes) -> bool:
    """Returns whether an address is link-local.

    Routers forward no packets from or to such an address (RFC 3927, RFC 4291).
    """
    if len(address) == 4:
        return address[:2] == b"\xa9\xfe"
    return address[0] == 0xFE and address[1] & 0xC0 == 0x80


def is_group(address: bytes) -> bool:
    """Returns whether an address is multicast or the limited broadcast."""
    if len(address) == 4:
        return address[0] >> 4 == 14 or address == b"\xff" * 4
    return address[0] == 0xFF


def is_local(address: bytes) -> bool:
    """Returns whether packets to an address are delivered to the router itself."""
    if address in OWN or address in _BROADCASTS:
        return True
    if not (is_group(address) or is_link_local(address)):
        return False
    return any(ipaddress.ip_address(address) in network for network in _LOCAL)


_routes: dict[bytes, Link | None] = {}


def route(address: bytes) -> Link | None:
    """Returns the link on the route to an address, or None if there is no route."""
    if address not in _routes:
        at = ipaddress.ip_address(address)
        _routes[address] = next((link for network, link in _NETWORKS if at in network), None)
    return _routes[address]

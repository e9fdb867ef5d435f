# SPDX-License-Identifier: Apache-2.0
"""Defines types for a router's interfaces and neighbours, and the addresses of the host that sends
packets to the router.
"""

from __future__ import annotations

from dataclasses import dataclass

HOST_MAC = "02:aa:00:00:00:01"
HOST4 = "10.1.0.99"
HOST6 = "2001:db8:1::99"


@dataclass(frozen=True)
class Interface:
    """Describes a layer-3 interface of the router: a port, a VLAN (0: untagged) and a MAC
    address.
    """

    id: int
    port: int
    mac: str
    vlan: int = 0
    vrf: int = 0
    mtu: int = 1500


@dataclass(frozen=True)
class Nexthop:
    """Describes a neighbour behind an interface."""

    id: int
    interface: Interface
    mac: str


@dataclass(frozen=True)
class Member:
    """Describes a next hop in a group. The member's id equals the next hop's id."""

    nexthop: Nexthop
    weight: int = 1
    watch_port: int | None = None

# SPDX-License-Identifier: Apache-2.0
"""Interfaces and neighbours of a router, and the host that sends to it. Depends on nothing."""

from __future__ import annotations

from dataclasses import dataclass

HOST_MAC = "02:aa:00:00:00:01"
HOST4 = "10.1.0.99"
HOST6 = "2001:db8:1::99"


@dataclass(frozen=True)
class Interface:
    """A layer-3 interface of the router: a VLAN (0: untagged) of a port, and a MAC address."""

    id: int
    port: int
    mac: str
    vlan: int = 0
    vrf: int = 0
    mtu: int = 1500


@dataclass(frozen=True)
class Nexthop:
    """A neighbour behind an interface."""

    id: int
    interface: Interface
    mac: str


@dataclass(frozen=True)
class Member:
    """A next hop in a group. The member's id is the next hop's."""

    nexthop: Nexthop
    weight: int = 1
    watch_port: int | None = None

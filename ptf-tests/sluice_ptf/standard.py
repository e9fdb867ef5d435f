# SPDX-License-Identifier: Apache-2.0
"""Sets up the standard router, with which most tests start.

        port 1 ---- A  10.1.0.1, 2001:db8:1::1     vrf 0
        port 2 ---- B  10.2.0.1, 2001:db8:2::1     vrf 0   neighbour TO_B
        port 3 ---- C  10.3.0.1, 2001:db8:3::1     vrf 0   neighbour TO_C
        port 4 -+-- D  VLAN 100, 10.4.0.1, ...     vrf 0   neighbour TO_D
                +-- E  VLAN 200, 10.2.0.1, ...     vrf 7   neighbour TO_E

TO_B, TO_C and TO_D are the next hops of 10.N.0.0/16 and 2001:db8:N::/48 (N = 2, 3, 4). In vrf 7,
TO_E is the next hop of the prefixes of B.
"""

from __future__ import annotations

from sluice_ptf.network import Interface, Nexthop
from sluice_ptf.router import Router

OTHER_VRF = 7

A = Interface(id=1, port=1, mac="02:00:00:00:01:01")
B = Interface(id=2, port=2, mac="02:00:00:00:01:02")
C = Interface(id=3, port=3, mac="02:00:00:00:01:03")
D = Interface(id=4, port=4, mac="02:00:00:00:01:04", vlan=100)
E = Interface(id=5, port=4, mac="02:00:00:00:01:05", vlan=200, vrf=OTHER_VRF)

TO_B = Nexthop(id=12, interface=B, mac="02:bb:00:00:00:02")
TO_C = Nexthop(id=13, interface=C, mac="02:bb:00:00:00:03")
TO_D = Nexthop(id=14, interface=D, mac="02:bb:00:00:00:04")
TO_E = Nexthop(id=15, interface=E, mac="02:bb:00:00:00:05")


def set_up(router: Router) -> None:
    """Writes the standard router."""
    for interface in (A, B, C, D, E):
        router.interface(interface)
        own = f"10.{_network(interface)}.0.1", f"2001:db8:{_network(interface)}::1"
        router.local(f"{own[0]}/32", f"{own[1]}/128", vrf=interface.vrf)
        router.own_source(*own, vrf=interface.vrf)
    for vrf in (0, OTHER_VRF):
        router.local("224.0.0.0/24", "255.255.255.255/32", vrf=vrf)
        router.local("fe80::/10", "ff01::/16", "ff02::/16", vrf=vrf)
    router.nexthop(TO_B, TO_C, TO_D, TO_E)
    for nexthop in (TO_B, TO_C, TO_D, TO_E):
        network, vrf = _network(nexthop.interface), nexthop.interface.vrf
        router.route(f"10.{network}.0.0/16", vrf=vrf, nexthop_id=nexthop.id)
        router.route(f"2001:db8:{network}::/48", vrf=vrf, nexthop_id=nexthop.id)


def _network(interface: Interface) -> int:
    return 2 if interface is E else interface.id

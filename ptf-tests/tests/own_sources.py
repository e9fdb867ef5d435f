# SPDX-License-Identifier: Apache-2.0
"""Tests that received packets are dropped as martians if their source is an address of this
router.
"""

from scapy.layers.inet6 import ICMPv6EchoRequest, ICMPv6ND_NA, ICMPv6ND_NS
from scapy.layers.l2 import Ether

from sluice_ptf.case import ptf_test
from sluice_ptf.network import HOST_MAC
from sluice_ptf.packets import ip4, ip6, udp, udp_to
from sluice_ptf.policy import IN, Flow, Policy, Verdict
from sluice_ptf.router import Router
from sluice_ptf.standard import TO_B, TO_E, A, B, D, E

V4, V6 = "10.2.0.9", "2001:db8:2::9"
OURS4, OURS6 = "10.1.0.1", "2001:db8:1::1"
ALL_NODES = "ff02::1"


@ptf_test
def from_our_addresses(router: Router) -> None:
    """Drops packets from outside whose source is an address of this router, including IKE."""
    for source in (A, B, D):
        for ours4, ours6 in ((OURS4, OURS6), ("10.3.0.1", "2001:db8:3::1")):
            for dst4, dst6 in ((V4, V6), ("10.4.0.1", "2001:db8:4::1")):
                router.drops(source, udp_to(dst4, src=ours4), "MARTIAN")
                router.drops(source, udp_to(dst6, src=ours6), "MARTIAN")
                for port in (500, 4500):
                    ike = udp(sport=port, dport=port)
                    router.drops(source, ip4(dst4, ike, src=ours4), "MARTIAN")
                    router.drops(source, ip6(dst6, ike, src=ours6), "MARTIAN")


@ptf_test
def an_own_address_is_of_one_vrf(router: Router) -> None:
    """An own address is a valid source in another VRF, where a host may have it."""
    router.forwards(E, udp_to(V4, src=OURS4), TO_E)
    router.drops(E, udp_to(V4, src="10.2.0.1"), "MARTIAN")
    router.forwards(A, udp_to(V4, src="10.1.0.2"), TO_B)


@ptf_test
def it_comes_before_policy(router: Router) -> None:
    """Drops a packet from outside with an own source even if a flow would bypass the packet."""
    policy = Policy(router)
    policy.guard(A, IN)
    policy.flow(IN, Flow(OURS4, V4), Verdict("BYPASS", rule=1))
    router.drops(A, udp_to(V4, src=OURS4), "MARTIAN")


@ptf_test
def duplicate_address_detection_hears_its_answer(router: Router) -> None:
    """Of packets with our address as source, only a neighbour advertisement that answers our
    duplicate address detection is delivered (RFC 4862, 5.4.4).
    """
    group = Ether(src=HOST_MAC, dst="33:33:00:00:00:01")
    answer = ip6(ALL_NODES, ICMPv6ND_NA(tgt=OURS6), src=OURS6, hlim=255)
    router.punts(A, group / answer, "NEIGHBOR_DISCOVERY", stage="LOCAL_DELIVERY")
    for other in (
        ip6(ALL_NODES, ICMPv6ND_NA(tgt=OURS6), src=OURS6, hlim=254),
        ip6(ALL_NODES, ICMPv6ND_NS(tgt=OURS6), src=OURS6, hlim=255),
        ip6(ALL_NODES, ICMPv6EchoRequest(), src=OURS6, hlim=255),
    ):
        router.drops(A, group / other, "MARTIAN")
    router.drops(A, ip6("2001:db8:3::1", ICMPv6ND_NA(), src=OURS6, hlim=255), "MARTIAN")

# SPDX-License-Identifier: Apache-2.0
"""Tests fragments that no correct host sends: overlapping or incomplete headers, and fragments in
fragments.
"""

from scapy.layers.inet6 import ICMPv6ND_NS, IPv6ExtHdrDestOpt, IPv6ExtHdrFragment
from scapy.packet import Raw

from sluice_ptf import raw
from sluice_ptf.case import ptf_test
from sluice_ptf.packets import ip4, ip6, tcp, udp
from sluice_ptf.router import Router
from sluice_ptf.standard import TO_B, A

V4, V6 = "10.2.0.9", "2001:db8:2::9"
OURS6 = "2001:db8:1::1"
DATA = Raw(bytes(24))


@ptf_test
def what_overlaps_the_tcp_header(router: Router) -> None:
    """Drops a TCP fragment with offset 1, which overlaps the TCP header (RFC 3128).

    Other protocols may have such fragments.
    """
    for flags in ("", "MF"):
        router.drops(A, ip4(V4, DATA, proto=6, frag=1, flags=flags), "FRAGMENT_OVERLAP")
        router.forwards(A, ip4(V4, DATA, proto=6, frag=2, flags=flags), TO_B)
        router.forwards(A, ip4(V4, DATA, proto=17, frag=1, flags=flags), TO_B)
    router.drops(A, ip4(V4, DATA, proto=6, frag=1, options=b"\x94\x04\0\0"), "FRAGMENT_OVERLAP")


@ptf_test
def a_header_chain_that_ends_with_the_first_fragment(router: Router) -> None:
    """Drops a first fragment that does not hold all headers (RFC 7112)."""
    chain = IPv6ExtHdrFragment(m=1) / IPv6ExtHdrDestOpt(nh=60)
    router.drops(A, ip6(V6, chain), "FRAGMENT_TOO_SHORT")
    for size in (0, 7):
        first = IPv6ExtHdrFragment(m=1, nh=17) / Raw(bytes(size))
        router.drops(A, ip6(V6, first), "FRAGMENT_TOO_SHORT")
        router.drops(A, ip4(V4, Raw(bytes(size)), proto=6, flags="MF"), "FRAGMENT_TOO_SHORT")
    router.forwards(A, ip4(V4, udp(size=0), flags="MF"), TO_B)
    router.forwards(A, ip4(V4, Raw(bytes(tcp())[:8]), proto=6, flags="MF"), TO_B)


@ptf_test
def a_fragment_of_a_fragment(router: Router) -> None:
    """Drops a fragment inside a fragment as malformed, for any inner offset."""
    for inner in (
        raw.fragment_header(17),
        raw.fragment_header(17, 9),
        raw.fragment_header(17, 0, True),
    ):
        outer = raw.fragment_header(44, 0, True)
        packet = ip6(V6, Raw(outer + inner + bytes(24)), nh=44)
        router.drops(A, packet, "MALFORMED")
    atomic = raw.fragment_header(44)
    first = raw.fragment_header(17, 0, True)
    router.forwards(A, ip6(V6, Raw(atomic + first + raw.datagram(16)), nh=44), TO_B)


@ptf_test
def neighbour_discovery_in_fragments(router: Router) -> None:
    """Drops a first fragment of neighbour discovery as ND_INVALID, also in transit (RFC 6980)."""
    for dst in (OURS6, V6):
        first = ip6(dst, IPv6ExtHdrFragment(m=1) / ICMPv6ND_NS(tgt=OURS6), hlim=255)
        router.drops(A, first, "ND_INVALID")

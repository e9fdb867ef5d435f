# SPDX-License-Identifier: Apache-2.0
"""FRR's configuration, for the sessions that policy has to let through."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sluice.frr import BgpPeer, Routing, read_frr
from sluice.model import Prefix, parse_address

TEXT = """\
! a comment
hostname r1
interface eth1
 ip ospf area 0
 ip ospf hello-interval 1
exit
interface eth2
 ipv6 ospf6 area 0.0.0.0
router bgp 65001 vrf blue
 neighbor upstream peer-group
 neighbor 10.0.1.2 remote-as 65101
 neighbor 10.0.1.2 timers connect 1
 neighbor 2001:db8::2 peer-group upstream
 neighbor eth3 interface remote-as external
 neighbor 10.0.1.2 update-source 10.255.0.1
 neighbor 10.0.1.2 update-source lo
 address-family ipv4 unicast
  neighbor 10.0.1.2 activate
router ospf
 network 10.9.0.0/16 area 0
 network nonsense area 0
router ospf6
 interface eth4 area 0.0.0.0
line vty
"""


def read(text: str) -> Routing:
    routing = Routing()
    read_frr(text, "frr.conf", routing)
    return routing


def test_sessions_with_file_and_line() -> None:
    assert read(TEXT) == Routing(
        [
            BgpPeer("frr.conf:11", parse_address("10.0.1.2"), None),
            BgpPeer("frr.conf:13", parse_address("2001:db8::2"), None),
            BgpPeer("frr.conf:14", None, "eth3"),
        ],
        [("frr.conf:20", Prefix.parse("10.9.0.0/16"))],
        {"eth1": "frr.conf:4"},
        {"eth2": "frr.conf:8", "eth4": "frr.conf:23"},
        {parse_address("10.0.1.2"): parse_address("10.255.0.1")},
    )


WORDS = st.sampled_from(
    ["router", "bgp", "ospf", "ospf6", "interface", "neighbor", "10.0.0.1", "eth1", "area", "0",
     "network", "10.0.0.0/8", "remote-as", " ", "\n", "\n ", "!", "ip", "ipv6"]
)  # fmt: skip


@given(st.lists(WORDS).map(" ".join))
def test_any_text_is_read(text: str) -> None:
    read(text)

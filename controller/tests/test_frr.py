# SPDX-License-Identifier: Apache-2.0
"""Tests the reader of FRR's configuration, which finds the sessions that policy must let pass."""

from __future__ import annotations

import time

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
        {
            parse_address("10.0.1.2"): BgpPeer("frr.conf:11", parse_address("10.0.1.2"), None),
            parse_address("2001:db8::2"): BgpPeer(
                "frr.conf:13", parse_address("2001:db8::2"), None
            ),
            "eth3": BgpPeer("frr.conf:14", None, "eth3"),
        },
        [("frr.conf:20", Prefix.parse("10.9.0.0/16"))],
        {"eth1": "frr.conf:4"},
        {"eth2": "frr.conf:8", "eth4": "frr.conf:23"},
        {parse_address("10.0.1.2"): parse_address("10.255.0.1")},
        bgp_groups={"2001:db8::2": "upstream"},
    )


def test_neighbours_that_are_shut_down_have_no_session() -> None:
    spoken = read(
        "router bgp 65001\n neighbor lazy peer-group\n neighbor lazy remote-as 2\n"
        " neighbor lazy shutdown\n neighbor odd peer-group\n neighbor odd port 1179\n"
        " neighbor 10.0.1.2 peer-group lazy\n neighbor 10.0.1.3 remote-as 3\n"
        " neighbor 10.0.1.3 shutdown message until tomorrow\n neighbor 10.0.1.4 remote-as 4\n"
        " neighbor 10.0.1.4 port 2179\n neighbor eth1 interface peer-group lazy\n"
        " neighbor eth2 interface\n neighbor eth2 interface remote-as external\n"
        " neighbor 2001:DB8:0::5 peer-group odd\n no neighbor eth9 interface remote-as 7\n"
    ).speaking_peers()
    assert spoken == [
        BgpPeer("frr.conf:10", parse_address("10.0.1.4"), None, 2179),
        BgpPeer("frr.conf:13", None, "eth2"),
        BgpPeer("frr.conf:15", parse_address("2001:db8::5"), None, 1179),
    ]


def test_the_first_mention_of_a_neighbour_counts() -> None:
    twice = (
        "router bgp 1\n neighbor 10.0.0.1 remote-as 2\n neighbor 10.0.0.1 peer-group x\n"
        " neighbor eth1 interface\n neighbor eth1 interface peer-group x\n"
    )
    wheres = [peer.where for peer in read(twice).speaking_peers()]
    assert wheres == ["frr.conf:2", "frr.conf:4"]


def test_time_grows_with_the_neighbours_not_with_their_square() -> None:
    """Checks a text of 20,000 neighbours. It takes 0.1 s, but over 10 s if each were compared with
    all others."""
    text = "router bgp 1\n" + "".join(
        f" neighbor 10.{n >> 8}.{n & 255}.1 remote-as 2\n neighbor eth{n} interface\n"
        for n in range(10_000)
    )
    start = time.process_time()
    assert len(read(text).peers) == 20_000
    assert time.process_time() - start < 3


def test_passive_interfaces_of_ospf() -> None:
    some = read("router ospf\n passive-interface eth1\ninterface eth2\n ip ospf passive\n")
    assert [some.is_ospf_passive(f"eth{n}") for n in (1, 2, 3)] == [True, True, False]
    most = read("router ospf\n passive-interface default\n no passive-interface eth1\n")
    assert [most.is_ospf_passive(f"eth{n}") for n in (1, 2)] == [False, True]
    most = read("router ospf\n passive-interface default\ninterface eth1\n no ip ospf passive\n")
    assert [most.is_ospf_passive(f"eth{n}") for n in (1, 2)] == [False, True]
    assert read("interface eth1\n ipv6 ospf6 passive\n").ospf6_passive == {"eth1"}


WORDS = st.sampled_from(
    ["router", "bgp", "ospf", "ospf6", "interface", "neighbor", "10.0.0.1", "eth1", "area", "0",
     "network", "10.0.0.0/8", "remote-as", " ", "\n", "\n ", "!", "ip", "ipv6"]
)  # fmt: skip


@given(st.lists(WORDS).map(" ".join))
def test_any_text_is_read(text: str) -> None:
    read(text)

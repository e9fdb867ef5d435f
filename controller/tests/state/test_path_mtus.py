# SPDX-License-Identifier: Apache-2.0
"""Tests path MTUs.

A path MTU is the smallest of the configured value, the links' MTUs and the reported MTUs.
"""

from __future__ import annotations

from sluice.model import parse_address
from sluice.state.path_mtus import (
    PEERS_PER_REVIEW,
    PathMtu,
    PathMtus,
    Peer,
    ReportedMtu,
)

PEER, OTHER = Peer(0, parse_address("192.0.2.1")), Peer(0, parse_address("192.0.2.2"))
SENDER = parse_address("192.0.2.9")
BUNDLE, ANOTHER = 5, 6
REPORT_LIFETIME = 600.0


class Links:
    """Simulates interfaces and routes, which a test may change."""

    def __init__(self) -> None:
        self.mtus = {1: 1500, 2: 1400, 3: 9000}
        self.routes: dict[Peer, frozenset[int]] = {PEER: frozenset({1})}
        self.looked = 0
        self.path_mtus = PathMtus(self._interfaces_to, self.mtus.get)

    def _interfaces_to(self, vrf: int, address: bytes) -> frozenset[int]:
        self.looked += 1
        return self.routes.get(Peer(vrf, address), frozenset())

    def of(self, peer: Peer = PEER, configured: int = 1500, bundle: int = BUNDLE) -> PathMtu:
        return self.path_mtus.of(bundle, peer, configured)

    def tell(self, mtu: int, now: float = 0.0, configured: int = 1500) -> bool:
        reported = ReportedMtu(mtu, SENDER, now + REPORT_LIFETIME)
        return self.path_mtus.report(BUNDLE, PEER, configured, reported)


def test_the_configuration_is_the_upper_bound() -> None:
    links = Links()
    assert links.of(configured=1450) == PathMtu(1450)
    links.routes[OTHER] = frozenset({3})
    assert links.of(OTHER, 1500) == PathMtu(1500), "a link with a larger MTU raises no path MTU"


def test_the_smallest_link_of_all_ways_bounds() -> None:
    links = Links()
    links.routes[PEER] = frozenset({1, 2, 3, 77})
    assert links.of() == PathMtu(1400, 2)


def test_a_peer_without_a_route_has_what_is_configured() -> None:
    assert Links().of(OTHER) == PathMtu(1500)


def test_a_links_mtu_counts_at_once_and_a_route_with_the_next_review() -> None:
    links = Links()
    assert links.of().mtu == 1500
    links.mtus[1] = 1300
    assert links.of() == PathMtu(1300, 1)
    links.routes[PEER] = frozenset({2})
    assert links.of() == PathMtu(1300, 1)
    assert links.path_mtus.review({PEER}, 0.0)
    assert links.of() == PathMtu(1400, 2)
    assert not links.path_mtus.review({PEER}, 0.0)


def test_an_error_lowers_and_is_forgotten() -> None:
    links = Links()
    assert links.tell(1350)
    assert links.of() == PathMtu(1350, reported=ReportedMtu(1350, SENDER, REPORT_LIFETIME))
    assert not links.path_mtus.review({PEER}, REPORT_LIFETIME - 1)
    assert links.path_mtus.review({PEER}, REPORT_LIFETIME)
    assert links.of() == PathMtu(1500)


def test_an_error_never_raises() -> None:
    links = Links()
    assert not links.tell(1500)
    assert not links.tell(1501)
    assert links.tell(1350)
    assert not links.tell(1351)
    assert links.of().mtu == 1350
    assert links.tell(1350, now=100.0), "the path MTU is confirmed"
    assert not links.path_mtus.review({PEER}, REPORT_LIFETIME)
    assert links.of().mtu == 1350
    links.mtus[1] = 1320
    assert links.of() == PathMtu(1320, 1), "the smallest value applies"


def test_an_error_is_about_one_bundle_and_peer() -> None:
    links = Links()
    links.tell(1350)
    assert links.of(bundle=ANOTHER) == links.of(OTHER) == PathMtu(1500)


def test_what_no_sa_leads_to_is_forgotten() -> None:
    links = Links()
    links.tell(1350)
    links.of(OTHER)
    assert links.path_mtus.review({OTHER}, 0.0)
    assert links.of() == PathMtu(1500)


def test_a_review_looks_at_some_peers_and_comes_round() -> None:
    links = Links()
    peers = [Peer(1, number.to_bytes(4, "big")) for number in range(PEERS_PER_REVIEW + 10)]
    for peer in peers:
        links.of(peer)
    links.routes = {peer: frozenset({2}) for peer in peers}
    links.looked = 0
    assert links.path_mtus.review(set(peers), 0.0)
    assert links.looked == PEERS_PER_REVIEW
    assert links.path_mtus.review(set(peers), 0.0)
    assert {links.of(peer).mtu for peer in peers} == {1400}

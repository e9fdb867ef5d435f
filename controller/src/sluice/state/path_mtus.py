# SPDX-License-Identifier: Apache-2.0
"""Computes path MTUs: the length of the longest ESP packet for the path to a peer (RFC 4301, 8.2).

A path MTU is the smallest of:

- the configured path MTU of the bundle;
- the MTUs of the interfaces through which the routes lead to the peer;
- the MTU that an authentic ICMP error has reported for the bundle (RFC 1191, RFC 8201).

Invariants: an ICMP error never raises a path MTU. It never lowers the MTU for packets inside ESP
below `MIN_INNER_MTU`. It affects only the bundle that carried the error. It expires after the
configured time (`limits.path_mtu_seconds`), and then longer packets are tried again.

Pure; depends on model. The caller decides which errors are authentic (`path_mtu_errors`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from itertools import islice
from typing import NamedTuple

from sluice.model import Address

MIN_INNER_MTU = 1280
"""Lower limit of the MTU inside of ESP, in bytes. A smaller reported MTU counts as this one. IPv6
hosts do not reduce their packets below this size (RFC 8200, section 5)."""
PEERS_PER_REVIEW = 256
"""Maximum number of peers whose routes one `review` looks up."""


class Peer(NamedTuple):
    """Holds the remote address of SAs, and the VRF of their ESP packets."""

    vrf: int
    address: Address


class ReportedMtu(NamedTuple):
    """Holds the MTU that an ICMP error reported (in bytes of an IP packet), the error's sender, and
    the time at which the report expires."""

    mtu: int
    sender: Address
    until: float


class PathMtu(NamedTuple):
    """Holds a path MTU in bytes of an IP packet, and where it comes from.

    The path MTU comes from an ICMP error (`reported`) or from an interface (`l3_if`). If both
    fields are None, it comes from the configuration.
    """

    mtu: int
    l3_if: int | None = None
    reported: ReportedMtu | None = None


class PathMtus:
    """Holds all path MTUs.

    `interfaces_to(vrf, address)` returns the interfaces through which routes lead to an address.
    `mtu_of(l3_if)` returns the MTU of an interface in bytes, or None if there is no such interface.
    """

    def __init__(
        self,
        interfaces_to: Callable[[int, Address], Collection[int]],
        mtu_of: Callable[[int], int | None],
    ) -> None:
        self._interfaces_to = interfaces_to
        self._mtu_of = mtu_of
        self._interfaces: dict[Peer, Collection[int]] = {}
        """The interfaces that lead to each peer. The least recently looked up peer is first."""
        self._reported: dict[tuple[int, Peer], ReportedMtu] = {}

    def of(self, bundle: int, peer: Peer, configured: int) -> PathMtu:
        """Returns the path MTU of a bundle. `peer` is the remote end of the bundle's SAs."""
        found = PathMtu(configured)
        if peer not in self._interfaces:
            self._interfaces[peer] = self._interfaces_to(*peer)
        for l3_if in self._interfaces[peer]:
            mtu = self._mtu_of(l3_if)
            if mtu is not None and mtu < found.mtu:
                found = PathMtu(mtu, l3_if)
        reported = self._reported.get((bundle, peer))
        if reported is not None and reported.mtu < found.mtu:
            found = PathMtu(reported.mtu, reported=reported)
        return found

    def report(self, bundle: int, peer: Peer, configured: int, reported: ReportedMtu) -> bool:
        """Records the MTU from an authentic error.

        Returns True if the error lowers the path MTU, or confirms the MTU that an earlier error
        reported. Ignores any other error and returns False.
        """
        before = self.of(bundle, peer, configured)
        if reported.mtu > before.mtu or (reported.mtu == before.mtu and before.reported is None):
            return False
        self._reported[bundle, peer] = reported
        return True

    def review(self, peers: Collection[Peer], now: float) -> bool:
        """Looks up the routes to the next `PEERS_PER_REVIEW` peers again. Deletes expired errors,
        and peers that are not in `peers`.

        Returns whether anything changed.
        """
        changed = False
        for peer in self._interfaces.keys() - peers:
            del self._interfaces[peer]
        for peer in [*islice(self._interfaces, PEERS_PER_REVIEW)]:
            before, after = self._interfaces.pop(peer), self._interfaces_to(*peer)
            self._interfaces[peer] = after
            changed |= before != after
        for key, reported in [*self._reported.items()]:
            if now >= reported.until or key[1] not in peers:
                del self._reported[key]
                changed = True
        return changed

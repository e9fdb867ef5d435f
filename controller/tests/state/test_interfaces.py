# SPDX-License-Identifier: Apache-2.0
"""Tests the router's layer-3 interfaces: which of them admit packets, their own addresses,
connected prefixes and MTU."""

from __future__ import annotations

from scenes import (
    Desired,
    address,
    ifindex,
    link,
    neighbor,
    no_address,
    slot,
)
from sluice.entities import (
    LOCAL,
    Attachment,
    Egress,
    EntityKind,
    L3Interface,
    Nexthop,
)
from sluice.model import (
    LinkRemoved,
)
from state.forwarding import GW1


def test_the_configuration_alone_admits_and_egresses() -> None:
    wanted = Desired()
    mac_1 = bytes.fromhex("020000000101")
    assert wanted.entities[EntityKind.L3_INTERFACE, Attachment(1, 0)] == L3Interface(1, 0)
    assert wanted.entities[EntityKind.EGRESS_INTERFACE, 1] == Egress(1, 0, mac_1, 1500)
    assert wanted.entities[EntityKind.LOCAL_PREFIX, slot("ff02::/16")] == LOCAL


def test_an_address_is_local_and_its_prefix_gleans(wanted: Desired) -> None:
    assert wanted.entities[EntityKind.LOCAL_PREFIX, slot("10.0.1.1/32")] == LOCAL
    assert wanted.entities[EntityKind.LOCAL_PREFIX, slot("10.0.1.255/32")] == LOCAL
    assert wanted.nexthop("10.0.1.0/24") == Nexthop(1, None, None, True)
    wanted.apply(no_address(1, "10.0.1.1/24"))
    assert (EntityKind.LOCAL_PREFIX, slot("10.0.1.1/32")) not in wanted.entities
    assert (EntityKind.LOCAL_PREFIX, slot("10.0.1.255/32")) not in wanted.entities
    assert wanted.target("10.0.1.0/24") is None


def test_an_address_before_its_link() -> None:
    wanted = Desired()
    wanted.apply(address(1, "10.0.1.1/24"))
    assert wanted.target("10.0.1.0/24") is None
    wanted.apply(link(1))
    assert wanted.nexthop("10.0.1.0/24").l3_if == 1
    assert wanted.entities[EntityKind.LOCAL_PREFIX, slot("10.0.1.1/32")] == LOCAL


def test_an_interface_taken_down_admits_nothing(wanted: Desired) -> None:
    wanted.apply(link(1, up=False))
    assert (EntityKind.L3_INTERFACE, Attachment(1, 0)) not in wanted.entities
    wanted.apply(link(1))
    assert (EntityKind.L3_INTERFACE, Attachment(1, 0)) in wanted.entities


def test_mtu_follows_the_kernel(wanted: Desired) -> None:
    wanted.apply(link(1, mtu=1400))
    egress = wanted.entities[EntityKind.EGRESS_INTERFACE, 1]
    assert isinstance(egress, Egress)
    assert egress.mtu == 1400


def test_a_removed_tap_takes_everything_with_it(wanted: Desired) -> None:
    wanted.apply(neighbor(1, GW1, 1), LinkRemoved(ifindex(1)))
    assert wanted.target(f"{GW1}/32") is None
    assert wanted.target("10.0.1.0/24") is None
    assert (EntityKind.L3_INTERFACE, Attachment(1, 0)) not in wanted.entities

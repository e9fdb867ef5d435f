# SPDX-License-Identifier: Apache-2.0
"""Tests when an engine counts as down: when the network device of its port, or the port itself, is
down or absent.

For an engine without a device, only its port matters.
"""

from __future__ import annotations

from sluice.entities import ENGINE_DOWN, EnginePort, EntityChanges, EntityKind
from sluice.model import LinkChanged, LinkRemoved
from sluice.state.engine_links import EngineLinks, EngineSpec

WATCHED, UNWATCHED = EngineSpec(1, 9, "port9"), EngineSpec(2, 8, None)


def link(name: str = "port9", *, up: bool = True, carrier: bool = True) -> LinkChanged:
    return LinkChanged(5, name, up, carrier, 1500, bytes(6))


def engines(changes: EntityChanges) -> dict[object, object]:
    return dict(changes.by_kind.get(EntityKind.ENGINE, {}).items())


def test_engines_are_up_until_the_kernel_has_told_of_all_links() -> None:
    """Checks that engines count as up until the kernel has reported all links.

    Otherwise a restart of the controller would drop packets for engines that work.
    """
    links = EngineLinks([WATCHED, UNWATCHED])
    assert engines(links.start()) == {1: EnginePort(9), 2: EnginePort(8)}
    assert engines(links.apply([link("other"), link()])) == {}
    assert engines(links.complete_link_dump()) == {}


def test_a_device_that_is_not_there_is_down() -> None:
    links = EngineLinks([WATCHED, UNWATCHED])
    links.start()
    links.apply([link("other")])
    assert engines(links.complete_link_dump()) == {1: ENGINE_DOWN}
    assert engines(links.complete_link_dump()) == {}
    assert engines(links.apply([link()])) == {1: EnginePort(9)}


def test_it_goes_and_comes_with_its_device() -> None:
    links = EngineLinks([WATCHED])
    links.apply([link()])
    for gone in (link(up=False), link(carrier=False), LinkRemoved(5)):
        assert engines(links.apply([gone])) == {1: ENGINE_DOWN}
        assert engines(links.apply([gone])) == {}
        assert engines(links.apply([link()])) == {1: EnginePort(9)}


def test_it_goes_and_comes_with_the_switch_s_port() -> None:
    """Checks that an engine goes down and comes up with its port in the switch, whether it has a
    device or not.
    """
    links = EngineLinks([WATCHED, UNWATCHED])
    links.start()
    links.apply([link()])
    assert engines(links.ports_changed({1: True, 8: True, 9: True})) == {}
    assert engines(links.ports_changed({1: True, 9: True})) == {2: ENGINE_DOWN}
    assert engines(links.ports_changed({1: True, 9: False})) == {1: ENGINE_DOWN}
    assert engines(links.ports_changed({8: True, 9: True})) == {1: EnginePort(9), 2: EnginePort(8)}


def test_a_switch_that_does_not_tell_its_ports_has_them() -> None:
    links = EngineLinks([UNWATCHED])
    assert engines(links.ports_changed({})) == {2: ENGINE_DOWN}
    assert engines(links.ports_changed(None)) == {2: EnginePort(8)}


def test_the_device_and_the_port_must_both_be_there() -> None:
    links = EngineLinks([WATCHED])
    links.apply([link()])
    assert engines(links.ports_changed({})) == {1: ENGINE_DOWN}
    assert engines(links.apply([link(up=False)])) == {1: ENGINE_DOWN}
    assert engines(links.ports_changed({9: True})) == {}
    assert engines(links.apply([link()])) == {1: EnginePort(9)}

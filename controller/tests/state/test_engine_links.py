# SPDX-License-Identifier: Apache-2.0
"""An engine whose port's device is down or absent is down; one without a device is there."""

from __future__ import annotations

from sluice.entities import ENGINE_DOWN, Changes, EnginePort, Kind
from sluice.model import LinkChanged, LinkRemoved
from sluice.state.engine_links import EngineLinks, EngineSpec

WATCHED, UNWATCHED = EngineSpec(1, 9, "port9"), EngineSpec(2, 8, None)


def link(name: str = "port9", *, up: bool = True, carrier: bool = True) -> LinkChanged:
    return LinkChanged(5, name, up, carrier, 1500, bytes(6))


def engines(changes: Changes) -> dict[object, object]:
    return dict(changes.by_kind.get(Kind.ENGINE, {}).items())


def test_what_is_watched_is_down_until_its_device_is_up() -> None:
    links = EngineLinks([WATCHED, UNWATCHED])
    assert engines(links.start()) == {1: ENGINE_DOWN, 2: EnginePort(8)}
    assert (links.is_up(1), links.is_up(2), links.is_up(3)) == (False, True, False)
    assert engines(links.apply([link("other")])) == {}
    assert engines(links.apply([link(carrier=False)])) == {}
    assert engines(links.apply([link()])) == {1: EnginePort(9)}
    assert links.is_up(1)


def test_it_goes_with_its_device() -> None:
    links = EngineLinks([WATCHED])
    for gone in (link(up=False), link(carrier=False), LinkRemoved(5)):
        assert engines(links.apply([link()])) == {1: EnginePort(9)}
        assert engines(links.apply([gone])) == {1: ENGINE_DOWN}
        assert engines(links.apply([gone])) == {}

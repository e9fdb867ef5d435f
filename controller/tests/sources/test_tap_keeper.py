# SPDX-License-Identifier: Apache-2.0
"""The keeper: a controller that ends does not take the carrier of the interfaces with it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_namespace import ip, network_namespace, poll_until
from sluice._native import TapSet
from sluice.model import KernelEvent, LinkChanged, LinkRemoved
from sluice.sources.device import Devices
from sluice.sources.kernel import KernelMonitor
from sluice.sources.tap_keeper import TapKeeper

MAC = "02:00:00:00:01:01"


@pytest.fixture
def monitor() -> Iterator[KernelMonitor]:
    with network_namespace():
        monitor = KernelMonitor()
        monitor.start()
        poll_until(monitor, lambda _: monitor.synced)
        yield monitor
        monitor.close()


def controller_taps() -> TapSet:
    taps = TapSet()
    taps.set_up(taps.add("eth1", 1500, MAC), True)
    return taps


def carriers(events: list[KernelEvent]) -> list[bool]:
    return [e.carrier for e in events if isinstance(e, LinkChanged) and e.name == "eth1" and e.up]


def test_a_restart_within_the_grace_is_not_seen_on_the_link(monitor: KernelMonitor) -> None:
    taps = controller_taps()
    keeper = TapKeeper.start(["eth1"], grace=20)
    ip("neigh add 10.1.1.2 lladdr 02:00:00:00:00:aa dev eth1 nud permanent")
    before = poll_until(monitor, carriers)
    ifindex = socket.if_nametoindex("eth1")
    keeper.close()
    taps.close()
    again = controller_taps()
    ip("link add marker type veth peer name marker2")
    after = poll_until(
        monitor,
        lambda events: any(isinstance(e, LinkChanged) and e.name == "marker" for e in events),
    )
    assert socket.if_nametoindex("eth1") == ifindex
    assert Devices().has_carrier("eth1")
    assert False not in carriers(before + after)
    assert not [event for event in after if not isinstance(event, LinkChanged)]
    again.close()


def test_after_the_grace_the_interfaces_go(monitor: KernelMonitor) -> None:
    taps = controller_taps()
    keeper = TapKeeper.start(["eth1"], grace=0.1)
    poll_until(monitor, carriers)
    ifindex = socket.if_nametoindex("eth1")
    keeper.close()
    taps.close()
    poll_until(monitor, lambda events: LinkRemoved(ifindex) in events)


def test_a_keeper_imports_nothing_from_where_the_controller_was_started(
    monitor: KernelMonitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may be a directory in which every user can leave a module."""
    for name in ("struct.py", "fcntl.py", "sluice/__init__.py", "signal.py"):
        planted = tmp_path / name
        planted.parent.mkdir(exist_ok=True)
        planted.write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    taps = controller_taps()
    keeper = TapKeeper.start(["eth1"], grace=0.1)
    keeper.close()
    taps.close()
    assert not (tmp_path / "imported").exists()
    poll_until(monitor, lambda events: any(isinstance(event, LinkRemoved) for event in events))


def test_a_keeper_that_cannot_hold_a_tap_says_so(monitor: KernelMonitor) -> None:
    ip("link add eth1 type veth peer name eth2")
    with pytest.raises(OSError, match=r"eth1: .*Invalid argument"):
        TapKeeper.start(["eth1"])
    assert monitor.fileno() >= 0

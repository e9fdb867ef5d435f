# SPDX-License-Identifier: Apache-2.0
"""Tests the keeper, a process that holds the TAPs so that interfaces keep their carrier when a
controller ends.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sluice_testkit.wait import wait_until

from keepers import start_keeper
from kernel_namespace import ip, network_namespace, poll_until
from sluice._native import TapSet
from sluice.model import KernelEvent, LinkChanged, LinkRemoved
from sluice.sources import queues
from sluice.sources.device import Devices
from sluice.sources.kernel import KernelMonitor
from sluice.sources.links import queues_of
from sluice.sources.tap_keeper import TapKeeper, reap

MAC = "02:00:00:00:01:01"
DEADLINE = 20


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


def queue(taps: TapSet) -> dict[str, int]:
    return {"eth1": taps.queue(socket.if_nametoindex("eth1"))}


def carriers(events: list[KernelEvent]) -> list[bool]:
    return [e.carrier for e in events if isinstance(e, LinkChanged) and e.name == "eth1" and e.up]


def test_a_restart_within_the_grace_is_not_seen_on_the_link(monitor: KernelMonitor) -> None:
    taps = controller_taps()
    keeper = start_keeper(queue(taps), grace=20)
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
    keeper = start_keeper(queue(taps), grace=0.1)
    poll_until(monitor, carriers)
    ifindex = socket.if_nametoindex("eth1")
    keeper.close()
    taps.close()
    poll_until(monitor, lambda events: LinkRemoved(ifindex) in events)


def test_a_keeper_imports_nothing_from_where_the_controller_was_started(
    monitor: KernelMonitor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks that a keeper imports no module from the controller's working directory.

    Other users may be able to write to that directory.
    """
    for name in ("struct.py", "fcntl.py", "sluice/__init__.py", "signal.py"):
        planted = tmp_path / name
        planted.parent.mkdir(exist_ok=True)
        planted.write_text(f"open({str(tmp_path / 'imported')!r}, 'w')\nraise SystemExit(9)\n")
    monkeypatch.chdir(tmp_path)
    taps = controller_taps()
    keeper = start_keeper(queue(taps), grace=0.1)
    keeper.close()
    taps.close()
    assert not (tmp_path / "imported").exists()
    poll_until(monitor, lambda events: any(isinstance(event, LinkRemoved) for event in events))


def test_a_keeper_that_has_died_is_not_given_a_queue(monitor: KernelMonitor) -> None:
    keeper = TapKeeper.launch()
    os.kill(keeper.pid, signal.SIGKILL)
    os.waitpid(keeper.pid, 0)
    with closing(keeper), closing(controller_taps()) as taps, pytest.raises(BrokenPipeError):
        keeper.hold(queue(taps))
    assert monitor.fileno() >= 0


def test_the_end_of_a_keeper_is_noticed_and_not_that_of_one_let_go() -> None:
    async def watched(ends: bool) -> list[str]:
        said: list[str] = []
        keeper = start_keeper({}, grace=0)
        keeper.watch(lambda: said.append("ended"))
        if ends:
            os.kill(keeper.pid, signal.SIGKILL)
        else:
            keeper.close()
        pid = os.pidfd_open(keeper.pid)
        asyncio.get_running_loop().add_reader(pid, said.append, "gone")
        while "gone" not in said or (ends and "ended" not in said):
            await asyncio.sleep(0.01)
        asyncio.get_running_loop().remove_reader(pid)
        os.close(pid)
        keeper.close()
        return said

    async def within(ends: bool) -> set[str]:
        return set(await asyncio.wait_for(watched(ends), DEADLINE))

    assert asyncio.run(within(True)) == {"gone", "ended"}
    assert asyncio.run(within(False)) == {"gone"}


def test_keepers_that_were_let_go_and_ended_are_reaped() -> None:
    keeper = TapKeeper.launch()
    keeper.close()
    pidfd = os.pidfd_open(keeper.pid)
    try:
        assert select.select([pidfd], [], [], DEADLINE)[0]
        reap()
        with pytest.raises(ProcessLookupError):
            os.kill(keeper.pid, 0)
    finally:
        os.close(pidfd)


def test_the_queue_is_kept_before_the_keeper_has_started(monitor: KernelMonitor) -> None:
    taps = controller_taps()
    keeper = TapKeeper.launch(grace=20)
    os.kill(keeper.pid, signal.SIGSTOP)
    try:
        keeper.hold(queue(taps))
        ifindex = socket.if_nametoindex("eth1")
        taps.close()
        assert socket.if_nametoindex("eth1") == ifindex
        assert queues_of("eth1") == (0, 1)
    finally:
        os.kill(keeper.pid, signal.SIGKILL)
        os.waitpid(keeper.pid, 0)
        keeper.close()
    poll_until(monitor, lambda events: LinkRemoved(ifindex) in events)


def test_the_queue_of_a_controller_that_was_killed_is_detached(monitor: KernelMonitor) -> None:
    """Checks that the keeper detaches the TAP queue of a killed controller, if the controller left
    no tables for a stand-in.

    If an attached queue is not read, frames that the kernel puts there never reach the next
    controller.
    """
    taps = controller_taps()
    keeper = start_keeper(queue(taps), grace=20)
    left = os.dup(taps.queue(socket.if_nametoindex("eth1")))
    try:
        assert queues_of("eth1") == (1, 0)
        keeper.close()
        wait_until(lambda: queues_of("eth1") == (0, 1), DEADLINE)
    finally:
        os.kill(keeper.pid, signal.SIGKILL)
        os.waitpid(keeper.pid, 0)
        os.close(left)
        taps.close()
    assert monitor.fileno() >= 0


def test_as_many_taps_as_there_may_be_are_kept() -> None:
    """Checks that the keeper receives all TAPs when there are as many as a configuration can have.

    Their descriptors need several messages.
    """
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with closing(ends[0]) as sender, closing(ends[1]) as receiver:
        names = [f"eth{number:012}" for number in range(401)]
        queues.send(sender, dict.fromkeys(names, sender.fileno()))
        received = queues.receive(receiver)
        assert received is not None
        assert list(received) == names
        assert len(set(received.values())) == len(names)
        for descriptor in received.values():
            os.close(descriptor)


def test_who_dies_while_sending_has_sent_nothing() -> None:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with closing(ends[1]) as receiver, Path("/dev/null").open() as queue:
        with closing(ends[0]) as sender:
            socket.send_fds(sender, [b"eth1"], [queue.fileno()])
        assert queues.receive(receiver) is None

# SPDX-License-Identifier: Apache-2.0
"""Tests TapSet with real TAPs, in a network namespace of the test. Needs root."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from sluice_testkit.wait import wait_until

from kernel_namespace import network_namespace
from native.drain import DEADLINE, readable
from sluice._native import P4RuntimeClient, TapSet
from sluice.fast_path import FastPath
from sluice.sources.device import CLONE_DEVICE, IFF_MULTI_QUEUE, IFF_NO_PI, IFF_TAP, TUNSETIFF
from sluice.sources.links import queues_of
from sluice.sources.queues import IFREQ, detach
from test_punts import SCHEMA

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

MAC = "02:00:00:00:00:01"
ETHERTYPE = 0x88B5  # local experimental EtherType (IEEE 802)


@pytest.fixture(autouse=True)
def namespace() -> Iterator[None]:
    with network_namespace():
        yield


@pytest.fixture
def taps() -> Iterator[TapSet]:
    with closing(TapSet(queue_limit=100)) as taps:
        yield taps


@pytest.fixture
def up(taps: TapSet) -> Callable[[str], int]:
    """Returns a function that adds a TAP and sets it up.

    IPv6 is off, so the TAP sends no frames by itself.
    """

    def add(name: str) -> int:
        index = taps.add(name, 1500, MAC)
        with open(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6", "w") as file:
            file.write("1")
        taps.set_up(index, True)
        return index

    return add


def link(name: str) -> dict[str, Any]:
    """Returns the parsed output of `ip -details -json link show`."""
    command = ["ip", "-details", "-json", "link", "show", name]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, Any] = json.loads(output)[0]
    return found


def exists(name: str) -> bool:
    return name in [found for _, found in socket.if_nameindex()]


def host_socket(name: str) -> socket.socket:
    """Opens a packet socket on a TAP's network interface in the host, for frames of the test's
    EtherType.
    """
    side = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETHERTYPE))
    side.bind((name, ETHERTYPE))
    side.settimeout(DEADLINE)
    return side


def frame(number: int, size: int = 60) -> bytes:
    header = bytes.fromhex("020000000001020000000002") + ETHERTYPE.to_bytes(2, "big")
    return header + number.to_bytes(4, "big") + bytes(size - len(header) - 4)


def read(taps: TapSet, count: int) -> list[tuple[int, bytes]]:
    frames: list[tuple[int, bytes]] = []
    while len(frames) < count:
        assert readable(taps.fileno(), DEADLINE)
        frames.extend(taps.read(7))
    return frames


def test_an_interface_is_as_asked_and_goes_with_remove(taps: TapSet) -> None:
    index = taps.add("tap-a", 1400, "02:00:00:00:0a:0b")
    found = link("tap-a")
    assert (found["ifindex"], found["mtu"], found["address"]) == (index, 1400, "02:00:00:00:0a:0b")
    assert found["linkinfo"]["info_data"]["type"] == "tap"
    assert "UP" not in found["flags"]
    taps.remove(index)
    assert not exists("tap-a")
    with pytest.raises(ValueError, match="is not in this TapSet"):
        taps.remove(index)


def test_up_and_carrier_are_independent(taps: TapSet) -> None:
    index = taps.add("tap-a", 1500, MAC)
    taps.set_carrier(index, False)
    taps.set_up(index, True)
    wait_until(lambda: link("tap-a")["operstate"] == "DOWN", DEADLINE)
    assert {"UP", "NO-CARRIER"} <= set(link("tap-a")["flags"])
    taps.set_carrier(index, True)
    wait_until(lambda: "LOWER_UP" in link("tap-a")["flags"], DEADLINE)
    taps.set_up(index, False)
    assert "UP" not in link("tap-a")["flags"]


def read_until(taps: TapSet, last: bytes) -> list[tuple[int, bytes]]:
    """Reads frames until `last` was read, and returns them all."""
    frames: list[tuple[int, bytes]] = []
    while last not in [data for _, data in frames]:
        frames += read(taps, 1)
    return frames


def test_an_interface_of_each_namespace_is_another(taps: TapSet, up: Callable[[str], int]) -> None:
    """Checks that `base` makes interface indexes unique.

    Two namespaces may use the same index for different interfaces.
    """
    here = up("tap-a")
    with host_socket("tap-a") as at_home, network_namespace():
        there = taps.add("tap-a", 1500, MAC, base=1 << 24)
        assert there == (1 << 24) + socket.if_nametoindex("tap-a") == (1 << 24) + here
        taps.set_up(there, True)
        with host_socket("tap-a") as far:
            assert taps.write([(here, frame(1)), (there, frame(2))]) == 2
            assert (at_home.recv(2000), far.recv(2000)) == (frame(1), frame(2))
            far.send(frame(3))
            assert (there, frame(3)) in read_until(taps, frame(3))
    taps.remove(there)
    assert link("tap-a")["ifindex"] == here
    with pytest.raises(ValueError, match="invalid input"):
        taps.add("tap-b", 1500, MAC, base=(1 << 32) - 1)


def test_frames_go_both_ways_in_order(taps: TapSet, up: Callable[[str], int]) -> None:
    first, second = up("tap-a"), up("tap-b")
    with host_socket("tap-a") as a, host_socket("tap-b") as b:
        for number in range(50):
            a.send(frame(number))
            b.send(frame(number, 1514))
        got = read(taps, 100)
        assert [data for index, data in got if index == first] == [frame(n) for n in range(50)]
        expected = [frame(n, 1514) for n in range(50)]
        assert [data for index, data in got if index == second] == expected
        assert not readable(taps.fileno())

        written = [(first if number % 2 else second, frame(number)) for number in range(50)]
        assert taps.write(written) == 50
        assert [a.recv(2000) for _ in range(25)] == [frame(n) for n in range(1, 50, 2)]
        assert [b.recv(2000) for _ in range(25)] == [frame(n) for n in range(0, 50, 2)]
    stats = taps.stats()
    assert (stats[first]["rx_frames"], stats[first]["rx_bytes"]) == (50, 50 * 60)
    assert (stats[second]["tx_frames"], stats[second]["tx_bytes"]) == (25, 25 * 60)


def test_one_flooded_interface_drops_its_own_frames_only(
    taps: TapSet, up: Callable[[str], int]
) -> None:
    flooded, quiet = up("tap-a"), up("tap-b")
    with host_socket("tap-a") as a, host_socket("tap-b") as b:
        for number in range(300):
            a.send(frame(number))
        wait_until(lambda: taps.stats()[flooded]["rx_frames"] == 300, DEADLINE)
        b.send(frame(7))
        wait_until(lambda: taps.stats()[quiet]["rx_frames"] == 1, DEADLINE)
    got = read(taps, 101)
    assert got == [(flooded, frame(number)) for number in range(100)] + [(quiet, frame(7))]
    assert taps.stats()[flooded]["rx_dropped"] == 200
    assert taps.stats()[quiet]["rx_dropped"] == 0


def test_what_the_host_does_not_take_is_counted_by_name(
    taps: TapSet, up: Callable[[str], int]
) -> None:
    down, fine = taps.add("tap-a", 1500, MAC), up("tap-b")
    frames = [(down, frame(1)), (999_999, frame(2)), (fine, b"short"), (fine, frame(3))]
    assert taps.write(frames) == 1
    stats = taps.stats()
    assert stats[down]["tx_dropped_down"] == 1
    assert stats[fine]["tx_errors"] == 1
    assert stats[0]["tx_unknown_interface"] == 1


def test_an_interface_that_somebody_deletes_is_left_alone(
    taps: TapSet, up: Callable[[str], int]
) -> None:
    gone, fine = up("tap-a"), up("tap-b")
    subprocess.run(["ip", "link", "delete", "tap-a"], check=True)
    wait_until(lambda: taps.stats()[gone]["rx_errors"] == 1, DEADLINE)
    with host_socket("tap-b") as b:
        b.send(frame(1))
        assert read(taps, 1) == [(fine, frame(1))]
    taps.remove(gone)
    again = up("tap-a")
    assert exists("tap-a")
    assert again != fine


def test_a_persistent_interface_survives_and_is_taken_over() -> None:
    with closing(TapSet()) as taps:
        index = taps.add("tap-p", 1500, MAC, True)
    assert exists("tap-p")
    with closing(TapSet()) as taps:
        assert taps.add("tap-p", 1500, MAC) == index
    assert not exists("tap-p")


def test_close_removes_everything(taps: TapSet) -> None:
    taps.add("tap-a", 1500, MAC)
    taps.close()
    taps.close()
    assert not exists("tap-a")
    with pytest.raises(ConnectionError, match="closed"):
        taps.add("tap-a", 1500, MAC)


@pytest.mark.parametrize(
    ("arguments", "error", "problem"),
    [
        (("a/b", 1500, MAC), ValueError, "no interface name"),
        (("sixteen-bytes-ab", 1500, MAC), ValueError, "no interface name"),
        (("tap-a", 1500, "02:00"), ValueError, "no MAC address"),
        (("tap-a", 1500, "03:00:00:00:00:01"), ValueError, "multicast"),
        (("tap-a", 10, MAC), OSError, "setting the MTU of tap-a: Invalid argument"),
        (("lo", 1500, MAC), OSError, "creating the TAP lo"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    taps: TapSet, arguments: tuple[str, int, str], error: type[Exception], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        taps.add(*arguments, True)
    assert not exists("tap-a")


def test_a_name_in_use_is_refused_with_its_errno(taps: TapSet) -> None:
    subprocess.run(
        ["ip", "link", "add", "tap-a", "type", "veth", "peer", "name", "tap-b"], check=True
    )
    with pytest.raises(OSError, match="tap-a") as caught:
        taps.add("tap-a", 1500, MAC)
    assert caught.value.errno == errno.EINVAL


def test_a_tap_outlives_a_set_while_another_holds_it(taps: TapSet) -> None:
    with closing(TapSet()) as first:
        index = first.add("tap-a", 1500, MAC)
        assert taps.add("tap-a", 1500, MAC) == index
    assert exists("tap-a")


class Resting:
    """Holds a TapSet whose queues start detached (`rests`), and a P4Runtime session that uses its
    fast path."""

    def __init__(self, stack: ExitStack) -> None:
        self.fast_path = FastPath(SCHEMA, remembers=False)
        self.taps = TapSet(fast_path=self.fast_path.native, rests=True)
        stack.callback(self.taps.close)
        self.client = P4RuntimeClient("127.0.0.1:1", 1, (0, 1), fast_path=self.fast_path.native)
        stack.callback(self.client.close)

    def wake(self) -> None:
        self.client.set_packet_metadata(SCHEMA.packet_in, SCHEMA.packet_out)


@pytest.fixture
def resting() -> Iterator[Resting]:
    with ExitStack() as stack:
        yield Resting(stack)


def test_a_set_that_rests_leaves_frames_to_whoever_has_the_tap_open(
    up: Callable[[str], int], taps: TapSet, resting: Resting
) -> None:
    index = up("tap-a")
    assert resting.taps.add("tap-a", 1500, MAC) == index
    assert queues_of("tap-a") == (1, 1)
    with closing(host_socket("tap-a")) as host:
        for number in range(50):  # frames differ in size but not in address
            host.send(frame(number, 60 + number))
        assert [number_of(got) for _, got in read(taps, 50)] == list(range(50))
        resting.wake()
        taps.close()
        assert queues_of("tap-a") == (1, 0)
        host.send(frame(50))
        assert number_of(read(resting.taps, 1)[0][1]) == 50


def test_a_set_that_rests_sets_the_carrier_and_rests_on(resting: Resting) -> None:
    index = resting.taps.add("tap-a", 1500, MAC)
    resting.taps.set_up(index, True)
    for carrier in (False, True):
        resting.taps.set_carrier(index, carrier)
        wait_until(partial(has_carrier, "tap-a", carrier), DEADLINE)
        assert queues_of("tap-a") == (0, 1)


def test_a_set_that_rests_leaves_the_carrier_that_is_there_alone(resting: Resting) -> None:
    """Checks that no notification follows when the carrier is set to the state that it already has.

    This matters because the kernel notifies its listeners and walks its whole IPv6 FIB whenever a
    queue is attached or detached.
    """
    index = resting.taps.add("tap-a", 1500, MAC)
    resting.taps.set_up(index, True)
    for carrier, state in ((False, "DOWN"), (True, "UP")):
        resting.taps.set_carrier(index, carrier)
        # The state is visible after the kernel has notified all listeners.
        wait_until(partial(is_in_state, "tap-a", state), DEADLINE)
    with closing(link_events()) as events:
        resting.taps.set_carrier(index, True)
        with pytest.raises(BlockingIOError):
            events.recv(1 << 16)
        resting.taps.set_carrier(index, False)
        assert events.recv(1 << 16)


def test_a_set_cannot_rest_for_ever() -> None:
    with pytest.raises(ValueError, match="rests needs a fast path"):
        TapSet(rests=True)


def test_who_joins_a_tap_changes_nothing_of_it(taps: TapSet, up: Callable[[str], int]) -> None:
    index = up("tap-a")
    before = link("tap-a")
    with closing(TapSet()) as others, opened("tap-a") as queue:
        detach([queue])
        others.join("tap-a", index, queue)
        assert queues_of("tap-a") == (2, 0)
        others.remove(index)
        assert queues_of("tap-a") == (1, 1)
    assert queues_of("tap-a") == (1, 0)
    after = link("tap-a")
    for key in ("ifindex", "mtu", "address", "flags", "operstate"):
        assert after[key] == before[key]


def test_another_interface_of_the_name_is_not_joined(taps: TapSet) -> None:
    index = taps.add("tap-a", 1500, MAC)
    with closing(TapSet()) as others, opened("tap-b") as queue:
        with pytest.raises(ValueError, match="not interface"):
            others.join("tap-b", index, queue)
        with pytest.raises(ValueError, match="the queue does not belong to tap-a"):
            others.join("tap-a", index, queue)


def test_a_queue_that_is_open_is_taken_over(taps: TapSet) -> None:
    with opened("tap-a") as queue:
        index = taps.add("tap-a", 1500, MAC, queue=queue)
        assert queues_of("tap-a") == (1, 0)
    taps.set_up(index, True)
    with closing(host_socket("tap-a")) as host:
        taps.write([(index, frame(1))])
        assert number_of(host.recv(2048)) == 1


def test_what_is_no_queue_is_refused(taps: TapSet) -> None:
    with Path("/dev/null").open() as file, pytest.raises(OSError, match="interface of a queue"):
        taps.add("tap-a", 1500, MAC, queue=file.fileno())
    with pytest.raises(OSError, match="taking over a queue"):
        taps.add("tap-a", 1500, MAC, queue=1 << 20)
    with pytest.raises(ValueError, match="is not in this TapSet"):
        taps.queue(1)


def test_what_is_let_go_is_not_read_any_more_while_another_has_its_queue(
    taps: TapSet, up: Callable[[str], int]
) -> None:
    """Checks that the set stops reading the queue of a TAP that it has removed.

    The queue still exists if another process has it open. Then frames in the queue would wake the
    reading thread again and again.
    """
    index = up("tap-a")
    kept = os.dup(taps.queue(index))
    try:
        taps.remove(index)
        assert queues_of("tap-a") == (0, 1)
        other = up("tap-b")
        with closing(host_socket("tap-b")) as host:
            host.send(frame(2))
            assert read(taps, 1)[0][0] == other
    finally:
        os.close(kept)


@contextmanager
def opened(name: str) -> Iterator[int]:
    """Opens a queue of a TAP as another process would, and yields it."""
    queue = os.open(CLONE_DEVICE, os.O_RDWR)
    try:
        flags = IFF_TAP | IFF_NO_PI | IFF_MULTI_QUEUE
        fcntl.ioctl(queue, TUNSETIFF, IFREQ.pack(name.encode(), flags))
        yield queue
    finally:
        os.close(queue)


def has_carrier(name: str, expected: bool) -> bool:
    return ("LOWER_UP" in link(name)["flags"]) == expected


def is_in_state(name: str, expected: str) -> bool:
    return bool(link(name)["operstate"] == expected)


def link_events() -> socket.socket:
    """Opens a socket that receives link notifications in this network namespace."""
    opened = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_NONBLOCK, 0)
    opened.bind((0, 1))  # RTMGRP_LINK
    return opened


def number_of(one: bytes) -> int:
    return int.from_bytes(one[14:18], "big")

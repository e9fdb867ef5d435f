# SPDX-License-Identifier: Apache-2.0
"""Tests namespaces, links and captures. Needs root."""

import os
import socket
from pathlib import Path

import pytest

from sluice_testkit import owner
from sluice_testkit.capture import Capture
from sluice_testkit.namespaces import Lab, Namespace, veth
from sluice_testkit.packet import ICMP
from sluice_testkit.process import run
from sluice_testkit.wait import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")


@pytest.fixture
def pair(lab: Lab) -> tuple[Namespace, Namespace]:
    one, two = lab.namespace("one"), lab.namespace("two")
    veth(one, "left", two, "right")
    one.add_address("left", "192.0.2.1/24", "2001:db8::1/64")
    two.add_address("right", "192.0.2.2/24", "2001:db8::2/64")
    return one, two


def test_two_namespaces_reach_each_other(pair: tuple[Namespace, Namespace]) -> None:
    for address in ("192.0.2.2", "2001:db8::2"):
        pair[0].run("ping", "-c", "1", "-W", "2", address)


def test_offloads_are_off(pair: tuple[Namespace, Namespace]) -> None:
    features = pair[1].run("ethtool", "-k", "right").stdout
    for feature in ("tx-checksumming", "generic-segmentation-offload", "generic-receive-offload"):
        assert f"{feature}: off" in features


def test_the_ends_of_a_pair_have_different_indexes(pair: tuple[Namespace, Namespace]) -> None:
    """Checks that the ends of a veth pair have different interface indexes.

    With equal indexes, the kernel would report a lost carrier late (see `veth`).
    """
    one, two = pair
    left = one.inside(lambda: socket.if_nametoindex("left"))
    right = two.inside(lambda: socket.if_nametoindex("right"))
    assert left != right


def test_two_labs_use_the_same_labels() -> None:
    with Lab() as first, Lab() as second:
        places = [lab.namespace("same") for lab in (first, second)]
        assert places[0].path != places[1].path
        assert first.directory != second.directory


def test_leaving_a_lab_leaves_nothing() -> None:
    with Lab() as lab:
        place = lab.namespace("gone")
        lab.supervisor.start("sleeper", place.argv(["sleep", "600"]))
        directory = lab.directory
    assert not place.path.exists()
    assert not directory.exists()


def test_a_socket_lives_where_it_was_opened(pair: tuple[Namespace, Namespace]) -> None:
    with pair[0].socket(socket.AF_INET, socket.SOCK_DGRAM) as opened:
        opened.bind(("192.0.2.1", 0))
    with (
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as outside,
        pytest.raises(OSError, match="assign"),
    ):
        outside.bind(("192.0.2.1", 0))


def test_a_silenced_interface_says_nothing(lab: Lab) -> None:
    place = lab.namespace("silent")
    veth(place, "port0", place, "test0", up=False)
    for name in ("port0", "test0"):
        place.silence(name)
    with Capture(place, "test0") as capture:
        for name in ("port0", "test0"):
            place.link_up(name)
        with place.socket(socket.AF_PACKET, socket.SOCK_RAW) as sender:
            sender.bind(("port0", 0))
            sender.send(b"\xff" * 12 + b"\x88\xb5" + bytes(46))
        capture.wait_for(lambda frame: frame.ethertype == 0x88B5)
        assert capture.count(lambda frame: frame.ethertype != 0x88B5) == 0


def test_a_capture_sees_both_directions(pair: tuple[Namespace, Namespace], tmp_path: Path) -> None:
    one, two = pair
    with Capture(two, "right", lambda frame: frame.protocol == ICMP) as capture:
        one.run("ping", "-c", "3", "-i", "0.05", "-W", "2", "192.0.2.2")
        requests = capture.wait_for(lambda frame: frame.icmp_type == 8, count=3)
        replies = capture.wait_for(lambda frame: frame.icmp_type == 0, count=3)
        assert {frame.outgoing for frame in requests} == {False}
        assert {frame.outgoing for frame in replies} == {True}
        capture.write_pcap(tmp_path / "seen.pcap")
    count = run(["tcpdump", "-r", str(tmp_path / "seen.pcap"), "-n"]).stdout.count("ICMP echo")
    assert count == 6


def test_the_namespace_of_a_process(pair: tuple[Namespace, Namespace], lab: Lab) -> None:
    process = lab.supervisor.start("sleeper", pair[0].argv(["sleep", "600"]))
    wait_until(lambda: "sleep" in Path(f"/proc/{process.pid}/comm").read_text(), 5)
    seen = Namespace.of_process("one", process.pid).run("ip", "-brief", "link").stdout
    assert "left" in seen


def test_sweeping_takes_only_what_dead_owners_left() -> None:
    dead = f"{owner.PREFIX}-{os.getpid()}-1-leftover"
    run(["ip", "netns", "add", dead])
    directory = owner.temporary_root() / dead
    directory.mkdir()
    with Lab() as lab:
        place = lab.namespace("alive")
        assert place.path.exists()
        assert not (owner.NETNS_DIRECTORY / dead).exists()
        assert not directory.exists()
        assert owner.sweep() == []

# SPDX-License-Identifier: Apache-2.0
"""Tests that FRR daemons run in namespaces, and that zebra's FPM messages and netlink notifications
are recorded. Needs root and FRR.
"""

import os
from pathlib import Path

import pytest

from sluice_testkit.frr import Frr, daemons_of
from sluice_testkit.namespaces import Lab
from sluice_testkit.process import CommandFailed
from sluice_testkit.record import FpmRecorder, NetlinkRecorder, read_recording
from sluice_testkit.wait import wait_until

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces need root")

STATIC = """
hostname one
no fpm use-next-hop-groups
fpm address 127.0.0.1 port 2620
interface lo
 ip address 192.0.2.1/32
ip route 198.51.100.0/24 blackhole
"""


def test_a_configuration_says_which_daemons_it_needs() -> None:
    assert daemons_of("hostname x\n") == ["zebra"]
    assert daemons_of(STATIC) == ["zebra", "staticd"]
    assert daemons_of("router ospf6\nrouter bgp 1\n") == ["zebra", "bgpd", "ospf6d"]
    assert daemons_of("router ospf\n") == ["zebra", "ospfd"]
    assert daemons_of("interface eth1\n vrrp 5\n") == ["zebra", "vrrpd"]


@needs_root
def test_zebra_sends_its_routes_over_fpm(lab: Lab, tmp_path: Path) -> None:
    place = lab.namespace("one")
    with FpmRecorder(place, tmp_path / "fpm") as recorder:
        frr = Frr("one", place, STATIC, lab.directory, lab.supervisor, fpm=True)
        frr.start()
        route = bytes([198, 51, 100, 0])
        wait_until(
            lambda: route in b"".join(data for _, data in read_recording(recorder.path)),
            20,
            "the static route over FPM",
        )
        frr.stop()
    first = next(read_recording(tmp_path / "fpm"))[1]
    assert first[:2] == b"\x01\x01"  # FPM version 1, netlink


@needs_root
def test_a_refused_line_is_an_error(lab: Lab) -> None:
    frr = Frr("one", lab.namespace("one"), "router nothing\n", lab.directory, lab.supervisor)
    with pytest.raises(CommandFailed, match="router nothing"):
        frr.start()


@needs_root
def test_netlink_notifications_are_recorded(lab: Lab, tmp_path: Path) -> None:
    place = lab.namespace("one")
    with NetlinkRecorder(place, tmp_path / "netlink") as recorder:
        place.add_address("lo", "192.0.2.7/32")
        address = bytes([192, 0, 2, 7])
        wait_until(
            lambda: address in b"".join(data for _, data in read_recording(recorder.path)),
            10,
            "the address",
        )

# SPDX-License-Identifier: Apache-2.0
"""Tests VRF devices. The controller creates them if the kernel supports them. Before interfaces
join, it closes every path by which packets could leave a VRF.

Some tests simulate the kernel. Other tests need a real kernel with VRF devices, such as Debian's:
`make prove-vrfs` runs them.
"""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import packets
from kernel_namespace import ip, ip_shows, network_namespace, set_sysctl, sysctl
from sluice.config import VrfConfig
from sluice.model import HostFrame, LinkChanged, parse_address
from sluice.sources import vrf_devices
from sluice.sources.interface_settings import configure_interface, restore
from sluice.sources.vrf_devices import LAST_METRIC, LOCAL_TABLE, RoutingRule, VrfDevices
from sluice.wire import packet as wire
from sluice.wire.netlink import NLM_F_DUMP, NLM_F_EXCL, U32, Message, attribute, attributes
from sluice.wire.routes import RTA_PRIORITY, RTA_TABLE, RTM_NEWROUTE, RTMSG, RTPROT_KERNEL
from sluice.wire.rtnetlink import (
    IFF_UP,
    IFINFOMSG,
    IFLA_IFNAME,
    IFLA_INFO_DATA,
    IFLA_INFO_KIND,
    IFLA_LINKINFO,
    IFLA_MASTER,
    IFLA_VRF_TABLE,
    RTM_GETLINK,
    RTM_NEWLINK,
)
from sources.test_host import PEER_MAC, Host, echo_request, interface

DEFAULT = VrfConfig("default", 0, 254)
RED = VrfConfig("red", 1, 100, device="red")
BLUE = VrfConfig("blue", 2, 2000, device="blue")
VRFS = (DEFAULT, RED, BLUE)
TABLES = {vrf.table: vrf.id for vrf in VRFS}
FAMILIES = (socket.AF_INET, socket.AF_INET6)
KERNELS_RULES = [RoutingRule(0, LOCAL_TABLE), RoutingRule(32766, 254), RoutingRule(32767, 253)]


class FakeKernel:
    """Simulates the kernel's links, rules and routes. `actions` lists the changes in order."""

    def __init__(self, *, has_vrfs: bool = True) -> None:
        self.has_vrfs = has_vrfs
        self.links = {1: LinkChanged(1, "lo", True, True, 65536, bytes(6))}
        self.rules = {family: list(KERNELS_RULES) for family in FAMILIES}
        self.routes: set[tuple[int, int, int, int]] = set()
        self.actions: list[str] = []
        self.loud: dict[str, list[str]] = {}
        """Settings that were changed, by device."""

    def ask(self, kind: int, flags: int, body: bytes, what: str) -> list[Message]:
        if kind == RTM_GETLINK:
            assert flags & NLM_F_DUMP == NLM_F_DUMP
            return [answer(RTM_NEWLINK, link_body(link)) for link in self.links.values()]
        if kind == RTM_NEWLINK:
            self._set_link(body)
        elif kind == RTM_NEWROUTE:
            self._add_route(body)
        else:
            return self._rule(kind, flags, body)
        return []

    def add_link(self, name: str, vrf_table: int | None = None, *, up: bool = False) -> int:
        ifindex = max(self.links) + 1
        link = LinkChanged(ifindex, name, up, False, 1500, bytes(6), vrf_table=vrf_table)
        self.links[ifindex] = link
        return ifindex

    def _set_link(self, body: bytes) -> None:
        _, _, _, ifindex, flags, _ = IFINFOMSG.unpack_from(body)
        attrs = attributes(body, IFINFOMSG.size)
        if ifindex == 0:
            if not self.has_vrfs:
                raise OSError(errno.EOPNOTSUPP, "Operation not supported")
            info = attributes(attrs[IFLA_LINKINFO], 0)
            assert info[IFLA_INFO_KIND] == b"vrf"
            (table,) = U32.unpack(attributes(info[IFLA_INFO_DATA], 0)[IFLA_VRF_TABLE])
            name = attrs[IFLA_IFNAME].rstrip(b"\0").decode()
            self.add_link(name, vrf_table=table)
            self.actions.append(f"add {name}")
            return
        link = self.links[ifindex]
        if IFLA_MASTER in attrs:
            (master,) = U32.unpack(attrs[IFLA_MASTER])
            self.links[ifindex] = replace(link, master=master or None)
            self.actions.append(f"{link.name} joins {master}")
        if flags & IFF_UP:
            self.links[ifindex] = replace(link, up=True)
            self.actions.append(f"{link.name} up")

    def _add_route(self, body: bytes) -> None:
        family, length, _, _, _, protocol, _, form, _ = RTMSG.unpack_from(body)
        attrs = attributes(body, RTMSG.size)
        (table,), (metric,) = U32.unpack(attrs[RTA_TABLE]), U32.unpack(attrs[RTA_PRIORITY])
        assert (length, metric, protocol) == (0, LAST_METRIC, RTPROT_KERNEL)
        if (family, table, form, metric) in self.routes:
            raise FileExistsError(errno.EEXIST, "File exists")
        self.routes.add((family, table, form, metric))

    def _rule(self, kind: int, flags: int, body: bytes) -> list[Message]:
        family, *_ = vrf_devices.FIB_RULE_HDR.unpack_from(body)
        rules = self.rules[family]
        if kind == vrf_devices.RTM_GETRULE:
            return [answer(vrf_devices.RTM_NEWRULE, rule_body(family, rule)) for rule in rules]
        rule = vrf_devices._read_rule(with_table(body))
        if kind == vrf_devices.RTM_DELRULE:
            rules.remove(rule)
        elif rule in rules and flags & NLM_F_EXCL:
            raise FileExistsError(errno.EEXIST, "File exists")
        else:
            rules.append(rule)
            # The sort is stable: of two rules with equal priorities, the older one is first.
            rules.sort(key=lambda each: each.priority)
        assert any(each.table == LOCAL_TABLE for each in rules)
        return []


def answer(kind: int, body: bytes) -> Message:
    return Message(kind, 0, 1, 0, body, 0)


def link_body(link: LinkChanged) -> bytes:
    body = IFINFOMSG.pack(0, 0, 0, link.ifindex, IFF_UP if link.up else 0, 0)
    body += attribute(IFLA_IFNAME, link.name.encode() + b"\0")
    if link.master is not None:
        body += attribute(IFLA_MASTER, U32.pack(link.master))
    if link.vrf_table is not None:
        data = attribute(IFLA_VRF_TABLE, U32.pack(link.vrf_table))
        info = attribute(IFLA_INFO_KIND, b"vrf\0") + attribute(IFLA_INFO_DATA, data)
        body += attribute(IFLA_LINKINFO, info)
    return body


def with_table(body: bytes) -> bytes:
    """Encodes a rule as the kernel does, with the table also in an attribute."""
    table = vrf_devices.FIB_RULE_HDR.unpack_from(body)[4]
    return body + attribute(vrf_devices.FRA_TABLE, U32.pack(table))


def rule_body(family: int, rule: RoutingRule) -> bytes:
    """Encodes a rule as the kernel does. The priority 0 has no attribute."""
    body = vrf_devices.FIB_RULE_HDR.pack(family, 0, 0, 0, rule.table, 0, 0, 1, 0)
    body += attribute(vrf_devices.FRA_TABLE, U32.pack(rule.table))
    if rule.priority:
        body += attribute(vrf_devices.FRA_PRIORITY, U32.pack(rule.priority))
    return body + (attribute(vrf_devices.FRA_L3MDEV, b"\1") if rule.to_vrfs else b"")


@pytest.fixture
def kernel() -> FakeKernel:
    return FakeKernel()


def devices_in(kernel: FakeKernel, directory: Path) -> VrfDevices:
    def configure_interface(name: str) -> None:
        kernel.actions.append(f"configure_interface {name}")

    return VrfDevices(
        kernel.ask, configure_interface, directory, lambda name: kernel.loud.pop(name, [])
    )


def test_each_vrf_gets_a_device_that_is_closed_before_it_is_up(
    kernel: FakeKernel, tmp_path: Path
) -> None:
    devices_in(kernel, tmp_path).prepare(VRFS)
    assert kernel.actions == [
        *("add red", "configure_interface red", "red up"),
        *("add blue", "configure_interface blue", "blue up"),
    ]
    assert [(link.name, link.vrf_table) for link in kernel.links.values()] == [
        ("lo", None),
        ("red", 100),
        ("blue", 2000),
    ]
    unreachable = 7
    assert kernel.routes == {
        (family, table, unreachable, LAST_METRIC) for family in FAMILIES for table in (100, 2000)
    }
    for name in ("raw_l3mdev_accept", "udp_l3mdev_accept"):
        assert (tmp_path / name).read_text() == "0"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            KERNELS_RULES,
            [RoutingRule(0, to_vrfs=True), *KERNELS_RULES],
        ),
        (  # as after the kernel has created the first VRF device
            [RoutingRule(0, LOCAL_TABLE), RoutingRule(1000, to_vrfs=True), *KERNELS_RULES[1:]],
            [
                *(
                    RoutingRule(0, to_vrfs=True),
                    RoutingRule(0, LOCAL_TABLE),
                    RoutingRule(1000, to_vrfs=True),
                ),
                *KERNELS_RULES[1:],
            ],
        ),
        (  # rules that are already in the right order
            [RoutingRule(1000, to_vrfs=True), RoutingRule(32765, LOCAL_TABLE), *KERNELS_RULES[1:]],
            [RoutingRule(1000, to_vrfs=True), RoutingRule(32765, LOCAL_TABLE), *KERNELS_RULES[1:]],
        ),
        (  # the rules left by a controller that was killed before the deletion
            [RoutingRule(0, LOCAL_TABLE), RoutingRule(0, to_vrfs=True)],
            [RoutingRule(0, to_vrfs=True), RoutingRule(0, LOCAL_TABLE)],
        ),
        (
            [
                RoutingRule(0, LOCAL_TABLE),
                RoutingRule(0, to_vrfs=True),
                RoutingRule(0, LOCAL_TABLE),
            ],
            [RoutingRule(0, to_vrfs=True), RoutingRule(0, LOCAL_TABLE)],
        ),
        (  # another program has deleted the rules
            [RoutingRule(32766, 254)],
            [RoutingRule(0, to_vrfs=True), RoutingRule(0, LOCAL_TABLE), RoutingRule(32766, 254)],
        ),
        (
            [RoutingRule(0, to_vrfs=True), RoutingRule(32766, 254)],
            [RoutingRule(0, to_vrfs=True), RoutingRule(0, LOCAL_TABLE), RoutingRule(32766, 254)],
        ),
        (
            [RoutingRule(10, LOCAL_TABLE), RoutingRule(20, 7)],
            [RoutingRule(9, to_vrfs=True), RoutingRule(10, LOCAL_TABLE), RoutingRule(20, 7)],
        ),
    ],
)
def test_a_vrfs_table_is_asked_before_the_local_one(
    kernel: FakeKernel, tmp_path: Path, before: list[RoutingRule], after: list[RoutingRule]
) -> None:
    kernel.rules = {family: list(before) for family in FAMILIES}
    for _ in range(2):
        devices_in(kernel, tmp_path).prepare(VRFS)
        assert kernel.rules == dict.fromkeys(FAMILIES, after)


def test_the_real_kernel_keeps_rules_of_others_behind_the_local_table() -> None:
    with network_namespace():
        for _ in range(2):
            for family in FAMILIES:
                VrfDevices()._put_vrfs_before_local(family)
        for version in ("-4", "-6"):
            ip(f"{version} rule add fwmark 7 table 7")  # a rule without priority
            first, second, third, *others = ip_shows(f"{version} -details rule").splitlines()
            assert (first[:2], second[:2]) == ("0:", "0:")
            assert "l3mdev" in first
            assert "lookup local" in second
            assert all("proto kernel" in rule for rule in (first, second))
            assert "fwmark 0x7" in third
            assert not any("local" in rule for rule in others)


def test_without_vrf_devices_nothing_is_changed(tmp_path: Path) -> None:
    kernel = FakeKernel(has_vrfs=False)
    devices = devices_in(kernel, tmp_path)
    assert not devices.prepare(VRFS)
    kernel.add_link("eth3")
    devices.join("eth3", RED.id)
    assert (kernel.actions, kernel.routes, list(tmp_path.iterdir())) == ([], set(), [])
    assert kernel.rules == dict.fromkeys(FAMILIES, KERNELS_RULES)


def test_without_vrfs_the_kernel_is_not_asked(tmp_path: Path) -> None:
    kernel = FakeKernel(has_vrfs=False)
    devices_in(kernel, tmp_path).prepare([DEFAULT])
    assert kernel.actions == []


def test_a_device_of_the_table_is_taken_whatever_its_name(
    kernel: FakeKernel, tmp_path: Path
) -> None:
    mine = kernel.add_link("vrf-red", vrf_table=100, up=True)
    tap = kernel.add_link("eth3")
    devices = devices_in(kernel, tmp_path)
    devices.prepare([RED])
    devices.join("eth3", RED.id)
    assert kernel.actions == ["configure_interface vrf-red", f"eth3 joins {mine}"]
    assert kernel.links[tap].master == mine


class TestRecheck:
    """Tests that the recheck repairs leaks between VRFs that another program has opened."""

    @pytest.fixture
    def devices(self, kernel: FakeKernel, tmp_path: Path) -> VrfDevices:
        devices = devices_in(kernel, tmp_path)
        assert devices.prepare(VRFS)
        kernel.actions.clear()
        return devices

    def test_what_is_as_it_was_is_no_news(self, kernel: FakeKernel, devices: VrfDevices) -> None:
        devices.recheck()
        assert devices.repairs == {}
        assert kernel.actions == []

    @pytest.mark.parametrize("family", FAMILIES)
    def test_the_rules_are_put_back(
        self, kernel: FakeKernel, devices: VrfDevices, family: socket.AddressFamily
    ) -> None:
        before = list(kernel.rules[family])
        kernel.rules[family] = [rule for rule in before if not rule.to_vrfs]
        devices.recheck()
        assert kernel.rules[family] == before
        (problem,) = devices.repairs
        assert "routing rule of VRFs did not come first" in problem

    def test_the_tables_end_again(self, kernel: FakeKernel, devices: VrfDevices) -> None:
        before = set(kernel.routes)
        kernel.routes = {route for route in before if route[1] != RED.table}
        devices.recheck()
        assert kernel.routes == before
        assert devices.repairs == {
            f"repaired: {ip} table 100 had no unreachable default route": 1
            for ip in ("IPv4", "IPv6")
        }

    def test_sockets_of_no_vrf_hear_of_none_again(
        self, tmp_path: Path, devices: VrfDevices
    ) -> None:
        (tmp_path / "udp_l3mdev_accept").write_text("1\n")
        devices.recheck()
        devices.recheck()
        assert (tmp_path / "udp_l3mdev_accept").read_text() == "0"
        assert devices.repairs == {"repaired: net.ipv4.udp_l3mdev_accept was not 0": 1}

    def test_a_device_is_silent_and_up_again(self, kernel: FakeKernel, devices: VrfDevices) -> None:
        red = next(link for link in kernel.links.values() if link.name == "red")
        kernel.links[red.ifindex] = replace(red, up=False)
        kernel.loud["red"] = ["net.ipv4.conf.red.forwarding was not 0"]
        devices.recheck()
        assert kernel.links[red.ifindex].up
        assert devices.repairs == {
            "repaired: net.ipv4.conf.red.forwarding was not 0": 1,
            "repaired: VRF device red was down": 1,
        }

    def test_a_device_that_is_gone_is_said(self, kernel: FakeKernel, devices: VrfDevices) -> None:
        red = next(link for link in kernel.links.values() if link.name == "red")
        del kernel.links[red.ifindex]
        devices.recheck()
        devices.recheck()
        assert devices.missing == ("red",)
        assert devices.repairs == {}


def test_settings_of_a_device_that_somebody_changed_are_restored() -> None:
    with network_namespace():
        ip("tuntap add eth1 mode tap")
        configure_interface("eth1")
        assert restore("eth1") == []
        set_sysctl("ipv4/conf/eth1/forwarding", "1")
        set_sysctl("ipv6/conf/eth1/accept_ra", "2")
        assert restore("eth1") == [
            "net.ipv4.conf.eth1.forwarding was not 0",
            "net.ipv6.conf.eth1.accept_ra was not 0",
        ]
        assert sysctl("ipv4/conf/eth1/forwarding") == sysctl("ipv6/conf/eth1/accept_ra") == "0"


@pytest.mark.parametrize("vrf_table", [None, 300])
def test_another_device_of_that_name_is_left_alone(
    kernel: FakeKernel, tmp_path: Path, vrf_table: int | None
) -> None:
    kernel.add_link("red", vrf_table)
    with pytest.raises(OSError, match="is not a VRF device of table 100; remove it, or give"):
        devices_in(kernel, tmp_path).prepare(VRFS)
    assert kernel.actions == []


def test_an_interface_that_is_in_its_vrf_is_not_touched(kernel: FakeKernel, tmp_path: Path) -> None:
    """Checks that an interface that is already in its VRF is left alone.

    To join it again would set the interface down and up, which ends the sessions of routing
    protocols.
    """
    for name in ("eth1", "eth3"):
        kernel.add_link(name)
    for start in range(2):
        devices = devices_in(kernel, tmp_path)
        devices.prepare(VRFS)
        kernel.actions.clear()
        devices.join("eth1", DEFAULT.id)
        devices.join("eth3", RED.id)
        assert len(kernel.actions) == 1 - start


def test_an_interface_that_moved_to_the_default_vrf_leaves_the_device(
    kernel: FakeKernel, tmp_path: Path
) -> None:
    tap = kernel.add_link("eth3")
    devices = devices_in(kernel, tmp_path)
    devices.prepare(VRFS)
    devices.join("eth3", RED.id)
    devices.join("eth3", DEFAULT.id)
    assert kernel.links[tap].master is None


# --- the kernel ----------------------------------------------------------------------------------


@pytest.fixture
def devices() -> Iterator[VrfDevices]:
    with network_namespace():
        devices = VrfDevices()
        devices.prepare(VRFS)
        if "red" not in ip_shows("-brief link"):
            pytest.skip(f"kernel {os.uname().release} has no VRF devices (make prove-vrfs)")
        yield devices


@pytest.fixture
def host(devices: VrfDevices) -> Iterator[Host]:
    """Yields a host with eth1 (default VRF), eth3 (red), eth5 (blue).

    All three interfaces have the same addresses.
    """
    running = Host(join=devices.join, tables=TABLES)
    addresses = interface(1).addresses
    for number, vrf in ((1, DEFAULT), (3, RED), (5, BLUE)):
        running.interfaces.add(replace(interface(number, vrf=vrf), addresses=addresses))
        ip(f"neighbour replace 10.0.1.9 lladdr {PEER_MAC.hex(':')} dev eth{number}")
    holders = running.interfaces._own
    running.until(lambda: len(holders.get(parse_address("10.0.1.1"), ())) == 3)
    running.until(lambda: "tentative" not in ip_shows("address"))
    yield running
    running.close()


def test_the_real_kernels_devices_are_closed(host: Host) -> None:
    assert host.interfaces.vrf_devices == {1: "red", 2: "blue"}
    assert (sysctl("ipv4/conf/red/forwarding"), sysctl("ipv4/conf/red/rp_filter")) == ("0", "0")
    assert sysctl("ipv4/tcp_l3mdev_accept") == sysctl("ipv4/udp_l3mdev_accept") == "0"
    assert sysctl("ipv4/raw_l3mdev_accept") == "0"
    for family in ("-4", "-6"):
        first, second, *_ = ip_shows(f"{family} rule").splitlines()
        assert "l3mdev" in first
        assert "lookup local" in second
        assert f"metric {LAST_METRIC}" in ip_shows(f"{family} route show table 100 default")


@pytest.mark.parametrize("l3_if", [1, 3, 5])
def test_a_ping_is_answered_where_it_was_asked(host: Host, l3_if: int) -> None:
    request = packets.ipv4("10.0.1.9", "10.0.1.1", echo_request(b"where"), wire.ICMP)
    host.interfaces.deliver([(l3_if, packets.ethernet(request, destination=mac_of(l3_if)))])
    reply = host.sent(lambda frame: b"where" in frame.frame)
    assert (reply.l3_if, reply.frame[:6]) == (l3_if, PEER_MAC)
    assert leaves_by(host, b"where") == {l3_if}


def test_a_server_is_asked_in_its_own_vrf_only(host: Host) -> None:
    """Checks that each of three servers on the same port, one per VRF, gets only the requests of
    its VRF.

    The server of the default VRF is bound to no device.
    """
    servers = {1: server(None), 3: server("red"), 5: server("blue")}
    question = b"\x11\x11" + (7000).to_bytes(2, "big") + (8 + 3).to_bytes(2, "big") + bytes(2)
    for l3_if in servers:
        packet = packets.ipv4("10.0.1.9", "10.0.1.1", question + b"to%d" % l3_if, wire.UDP)
        host.interfaces.deliver([(l3_if, packets.ethernet(packet, destination=mac_of(l3_if)))])
    for l3_if, asked in servers.items():
        with asked:
            heard, peer = asked.recvfrom(100)
            assert heard == b"to%d" % l3_if
            asked.sendto(b"answer" + heard, peer)
    for l3_if in servers:
        mark = b"answerto%d" % l3_if
        host.until(lambda: leaves_by(host, mark))  # noqa: B023
        assert leaves_by(host, mark) == {l3_if}


def test_a_raw_socket_of_no_vrf_is_the_default_vrfs(host: Host) -> None:
    """Checks that a raw socket that is bound to no VRF receives only packets of the default VRF.

    ospfd has such a socket. Otherwise it would answer packets of other VRFs in the default VRF.
    """
    ospf = 89
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, ospf) as raw:
        raw.settimeout(60)
        for l3_if in (3, 5, 1):
            packet = packets.ipv4("10.0.1.9", "10.0.1.1", b"hello from %d" % l3_if, ospf)
            host.interfaces.deliver([(l3_if, packets.ethernet(packet, destination=mac_of(l3_if)))])
        assert raw.recv(100)[20:] == b"hello from 1"


def test_an_address_of_the_default_vrf_is_another_hosts_in_red(host: Host) -> None:
    ip("address add 10.0.1.77/32 dev eth1")
    ip(f"neighbour replace 10.0.1.77 lladdr {PEER_MAC.hex(':')} dev eth3")
    with server("red") as sender:
        sender.sendto(b"to the other", ("10.0.1.77", 9))
    host.until(lambda: leaves_by(host, b"to the other"))
    assert leaves_by(host, b"to the other") == {3}


def test_what_has_no_route_in_its_vrf_does_not_leave_in_the_default_one(host: Host) -> None:
    ip("route add default via 10.0.1.9 dev eth1")
    with server("red") as sender, pytest.raises(OSError, match=r"unreachable|No route"):
        sender.sendto(b"lost", ("203.0.113.1", 9))
    with server(None) as sender:
        sender.sendto(b"found", ("203.0.113.1", 9))
    host.sent(lambda frame: b"found" in frame.frame)
    assert not leaves_by(host, b"lost")


def test_preparing_and_joining_again_changes_nothing(host: Host) -> None:
    """Checks that a second start, with the same VRFs and interfaces, changes nothing in the kernel.

    If a restart set a host interface down, the sessions of routing protocols would end.
    """
    before = [ip_shows(what) for what in ("rule", "-6 rule", "route show table all")]
    host.step()
    host.events.clear()
    again = VrfDevices()
    again.prepare(VRFS)
    for name, vrf in (("eth1", DEFAULT), ("eth3", RED), ("eth5", BLUE)):
        again.join(name, vrf.id)
    assert [ip_shows(what) for what in ("rule", "-6 rule", "route show table all")] == before
    ip("link set lo mtu 60000")  # this notification comes after all earlier ones
    host.until(lambda: any(isinstance(event, LinkChanged) for event in host.events))
    links = [event.name for event in host.events if isinstance(event, LinkChanged)]
    assert links == ["lo"]


def test_an_interface_that_leaves_its_vrf_is_closed_again(host: Host) -> None:
    ip("link set eth3 nomaster")
    host.until(lambda: host.interfaces.vrf_devices == {1: None, 2: "blue"})
    packet = packets.ipv4("10.0.1.9", "10.0.1.1", b"\x11\x11\x1b\x58\0\x08\0\0", wire.UDP)
    for l3_if in (1, 3, 5):
        host.interfaces.deliver([(l3_if, packets.ethernet(packet, destination=mac_of(l3_if)))])
    assert host.interfaces.counters["to_host_of_a_service_without_vrfs"] == 1
    ip("link set eth3 master red")
    host.until(lambda: host.interfaces.vrf_devices == {1: "red", 2: "blue"})


def server(device: str | None) -> socket.socket:
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # for several servers
    if device is not None:
        opened.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
    opened.bind(("", 7000))
    opened.settimeout(60)
    return opened


def mac_of(l3_if: int) -> bytes:
    return interface(l3_if).mac


def leaves_by(host: Host, mark: bytes) -> set[int]:
    def has_mark(frame: HostFrame) -> bool:
        return mark in frame.frame

    host.step()
    return {frame.l3_if for frame in filter(has_mark, host.frames)}

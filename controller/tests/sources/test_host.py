# SPDX-License-Identifier: Apache-2.0
"""Tests that host interfaces pass only the host's own packets between kernel and switch.

Most tests use the real kernel, in their own network namespace.
"""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import Struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import packets
from kernel_namespace import DEADLINE, ip, ip_shows, network_namespace, set_sysctl, sysctl
from sluice._native import TapSet
from sluice.config import InterfaceConfig, VrfConfig
from sluice.fast_path import FastPath
from sluice.fragment import fragment_ipv4
from sluice.icmp import IcmpErrorKind, error_for
from sluice.model import (
    AddressAdded,
    AddressRemoved,
    HostFrame,
    InterfaceAddress,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    parse_address,
    parse_mac,
)
from sluice.sources.device import Devices
from sluice.sources.host import HostInterfaces
from sluice.sources.interface_settings import configure_interface
from sluice.sources.kernel import KernelMonitor
from sluice.sources.neighbor_probe import NeighborProbe
from sluice.wire import packet as wire
from test_punts import SCHEMA
from wire.strategies import damaged

# Fields: type, code, checksum, identifier, sequence number.
ICMP_ECHO = Struct("!BBHHH")
VRF = VrfConfig("default", 0, 254)
PEER_MAC = packets.HOST_MAC


def interface(number: int, device: str | None = None, vrf: VrfConfig = VRF) -> InterfaceConfig:
    return InterfaceConfig(
        name=f"eth{number}",
        l3_if=number,
        port=number,
        vlan=0,
        mac=parse_mac(f"02:00:00:00:01:0{number}"),
        mtu=1500,
        addresses=(
            InterfaceAddress.parse(f"10.0.{number}.1/24"),
            InterfaceAddress.parse(f"2001:db8:{number}::1/64"),
        ),
        vrf=vrf,
        device=device,
    )


class WatchedTaps:
    """Wraps the TAPs, and records each frame from the host that the fast path would send."""

    def __init__(self, taps: TapSet, fast_path: FastPath) -> None:
        self._taps, self._fast_path = taps, fast_path
        self.would_pass: list[tuple[int, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._taps, name)

    def read(self, max_frames: int) -> list[tuple[int, bytes]]:
        frames = self._taps.read(max_frames)
        native = self._fast_path.native
        self.would_pass += [one for one in frames if native.would_send(*one) is not None]
        return frames


class Host:
    """Runs the host interfaces eth1 and eth2 in a namespace, with the kernel monitor.

    Checks that the host interfaces also pass each frame that the fast path would send.
    """

    def __init__(
        self,
        join: Callable[[str, int], None] = lambda _, __: None,
        tables: dict[int, int] | None = None,
    ) -> None:
        probe = NeighborProbe()
        self.monitor = KernelMonitor(probe=probe)
        self.taps = TapSet()
        fast_path = FastPath(SCHEMA, remembers=True)
        self.watched: Any = WatchedTaps(self.taps, fast_path)
        self.interfaces = HostInterfaces(
            self.watched,
            self.monitor,
            is_probe=lambda _, frame: probe.is_probe(frame),
            join=join,
            tables=tables,
            on_change=fast_path.publish,
        )
        self.monitor.start()
        self.frames: list[HostFrame] = []
        self.events: list[KernelEvent] = []
        self.carrier: dict[int, bool] = {}

    def step(self) -> None:
        """Handles all pending events, as the controller's loop does."""
        while events := self.monitor.poll(64):
            self.events += events
            for event in events:
                self.interfaces.apply(event)
                if isinstance(event, LinkChanged):
                    self.carrier[event.ifindex] = event.carrier
        self.interfaces.publish()
        while frames := self.interfaces.poll(16):
            self.frames += frames
            left = {(self.interfaces.ifindex(l3_if), frame) for l3_if, frame in frames}
            assert left.issuperset(self.watched.would_pass)
            self.watched.would_pass.clear()
        assert not self.watched.would_pass

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + DEADLINE
        while True:
            self.step()
            if condition():
                return
            left = end - time.monotonic()
            assert left > 0, f"not within {DEADLINE} s; {self.interfaces.counters}"
            # Also check at intervals: some conditions, such as a sysctl or an address's state,
            # cause no event on these descriptors.
            descriptors = [self.monitor.fileno(), self.interfaces.fileno()]
            select.select(descriptors, [], [], min(left, 0.1))

    def sent(self, wanted: Callable[[HostFrame], bool]) -> HostFrame:
        """Waits for the first frame of the host that `wanted` accepts, and returns it."""
        self.until(lambda: any(map(wanted, self.frames)))
        return next(filter(wanted, self.frames))

    def close(self) -> None:
        self.interfaces.close()
        self.taps.close()
        self.monitor.close()


@pytest.fixture
def host() -> Iterator[Host]:
    with network_namespace():
        running = Host()
        for number in (1, 2):
            running.interfaces.add(interface(number))
        running.until(lambda: running.interfaces.is_own(parse_address("2001:db8:2::1")))
        yield running
        running.close()


def resolve_peer(number: int = 1) -> None:
    for address in (f"10.0.{number}.9", f"2001:db8:{number}::9"):
        ip(f"neigh replace {address} lladdr {PEER_MAC.hex(':')} dev eth{number} nud permanent")


def ipv4_of(frame: HostFrame) -> wire.IPv4 | None:
    if frame.frame[12:14] != b"\x08\x00":
        return None
    return wire.parse_ipv4(wire.ip_payload(frame.frame))


def echo_request(payload: bytes = b"ping") -> bytes:
    message = ICMP_ECHO.pack(8, 0, 0, 7, 1) + payload
    checksum = wire.internet_checksum(message)
    return ICMP_ECHO.pack(8, 0, checksum, 7, 1) + payload


# --- interface settings ------------------------------------------------------------------------


def test_an_interface_neither_forwards_nor_learns(host: Host) -> None:
    conf = "ipv4/conf/eth1/{}"
    for name in ("forwarding", "accept_redirects", "send_redirects", "accept_source_route"):
        assert sysctl(conf.format(name)) == "0"
    conf = "ipv6/conf/eth1/{}"
    for name in ("accept_ra", "accept_redirects", "autoconf", "accept_source_route"):
        assert sysctl(conf.format(name)) == "0"
    assert sysctl("ipv6/conf/all/forwarding") == "0"


@pytest.mark.parametrize(("everywhere", "here"), [("0", "0"), ("1", "2"), ("2", "0")])
def test_the_reverse_path_is_not_asked_for(host: Host, everywhere: str, here: str) -> None:
    set_sysctl("ipv4/conf/all/rp_filter", everywhere)
    configure_interface("eth1")
    assert sysctl("ipv4/conf/eth1/rp_filter") == here


def test_an_interface_that_is_not_there_is_an_error_that_names_the_setting() -> None:
    with network_namespace(), pytest.raises(OSError, match="cannot set forwarding of interface no"):
        configure_interface("no")


def test_no_router_solicitations_are_sent(host: Host) -> None:
    host.until(lambda: "ff02::2" in groups("eth1"))  # a router joins the all-routers group
    host.sent(lambda frame: frame.frame[12:14] == b"\x86\xdd")
    assert not [frame for frame in host.frames if frame.frame[54:55] == b"\x85"]


def groups(device: str) -> set[str]:
    """Returns the IPv6 multicast groups that an interface has joined."""
    with open("/proc/thread-self/net/igmp6") as file:
        lines = [line.split() for line in file]
    return {
        socket.inet_ntop(socket.AF_INET6, bytes.fromhex(words[2]))
        for words in lines
        if words[1] == device
    }


# --- packets of the host -------------------------------------------------------------------------


def test_the_host_answers_a_ping_through_its_interface(host: Host) -> None:
    resolve_peer()
    request = packets.ipv4("10.0.1.9", "10.0.1.1", echo_request(), wire.ICMP)
    assert host.interfaces.deliver([(1, packets.ethernet(request, vlan=100))]) == 1
    answer = host.sent(lambda frame: (ip := ipv4_of(frame)) is not None and ip.protocol == 1)
    assert answer.l3_if == 1
    assert answer.frame[:12] == PEER_MAC + interface(1).mac
    assert wire.ip_payload(answer.frame)[28:] == b"ping"


def test_the_host_asks_for_its_neighbour_by_arp(host: Host) -> None:
    request = packets.ipv4("10.0.2.9", "10.0.2.1", echo_request(), wire.ICMP)
    frame = packets.ethernet(request, destination=interface(2).mac)
    host.interfaces.deliver([(2, frame)])
    arp = host.sent(lambda frame: frame.frame[12:14] == b"\x08\x06")
    assert (arp.l3_if, arp.frame[28:32]) == (2, parse_address("10.0.2.1"))


@pytest.mark.parametrize("address", ["10.0.1.9", "2001:db8:1::9"])
def test_probes_of_neighbours_do_their_work_and_never_leave(host: Host, address: str) -> None:
    for name in ("ipv4/neigh/eth1/{}", "ipv6/neigh/eth1/{}"):
        set_sysctl(name.format("delay_first_probe_time"), "0")
    ifindex = host.interfaces.ifindex(1)
    assert ifindex is not None
    # The kernel sends no neighbour solicitation until its own address has passed duplicate address
    # detection.
    host.until(lambda: "tentative" not in ip_shows("address show dev eth1"))
    ip(f"neigh replace {address} lladdr {PEER_MAC.hex(':')} dev eth1 nud stale")
    host.step()
    host.monitor.use_neighbor(ifindex, parse_address(address))
    host.sent(lambda frame: frame.frame[:6] == PEER_MAC)  # a probe
    assert host.interfaces.counters["from_host_neighbor_probe"] == 1
    assert not [frame for frame in host.frames if is_udp(frame.frame)]


def is_udp(frame: bytes) -> bool:
    return {b"\x08\x00": frame[23:24], b"\x86\xdd": frame[20:21]}.get(frame[12:14]) == b"\x11"


def test_datagrams_of_others_are_no_probes(host: Host) -> None:
    resolve_peer()
    for family, address in ((socket.AF_INET, "10.0.1.9"), (socket.AF_INET6, "2001:db8:1::9")):
        with socket.socket(family, socket.SOCK_DGRAM) as udp:
            udp.sendto(b"", (address, 9))
        host.sent(lambda frame: is_udp(frame.frame))
        host.frames.clear()
    assert host.interfaces.counters["from_host_neighbor_probe"] == 0


def test_the_host_reassembles_our_fragments(host: Host) -> None:
    resolve_peer()
    data = bytes(range(256)) * 5
    request = packets.ipv4("10.0.1.9", "10.0.1.1", echo_request(data), wire.ICMP)
    fragments = fragment_ipv4(request, 300)
    host.interfaces.deliver([(1, packets.ethernet(part)) for part in fragments])
    answer = host.sent(lambda frame: (ip := ipv4_of(frame)) is not None and ip.protocol == 1)
    assert wire.ip_payload(answer.frame)[28:] == data


@pytest.mark.parametrize(
    ("family", "target", "router", "via"),
    [
        (socket.AF_INET, "198.51.100.1", "10.0.9.9", "10.0.1.9"),
        (socket.AF_INET6, "2001:db8:99::1", "2001:db8:9::9", "2001:db8:1::9"),
    ],
)
def test_the_host_believes_our_icmp_errors(
    host: Host, family: int, target: str, router: str, via: str
) -> None:
    """Checks that the host accepts the controller's ICMP errors.

    The kernel verifies checksums and the quoted packet before it notifies the socket.
    """
    resolve_peer()
    ip(f"{'-6 ' if ':' in target else ''}route add {target} via {via}")
    host.until(lambda: connected(family, host))
    far = parse_address(target)
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        udp.connect((target, 33434))
        udp.send(b"x")
        sent = host.sent(lambda frame: far in frame.frame)
        error = error_for(sent.frame, IcmpErrorKind.PROHIBITED, parse_address(router))
        assert isinstance(error, bytes)
        host.interfaces.deliver([(1, packets.ethernet(error))])
        host.until(lambda: udp.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))


def connected(family: int, host: Host) -> bool:
    """Returns whether the host has a source address of this family that it can use.

    An IPv6 address can be used only after duplicate address detection.
    """
    if family == socket.AF_INET:
        return True
    with socket.socket(family, socket.SOCK_DGRAM) as udp:
        try:
            udp.bind(("2001:db8:1::1", 0))
        except OSError:
            return False
    return True


def test_an_ipv6_address_is_usable_and_we_are_a_router(host: Host) -> None:
    host.until(lambda: connected(socket.AF_INET6, host))
    resolve_peer()
    target, source = "2001:db8:1::1", "2001:db8:1::9"
    body = bytes(4) + parse_address(target) + b"\1\1" + PEER_MAC
    pseudo = wire.pseudo_header(parse_address(source), parse_address(target), 28 + 4, wire.ICMPV6)
    checksum = wire.internet_checksum(pseudo + b"\x87\0\0\0" + body)
    solicitation = b"\x87\0" + checksum.to_bytes(2, "big") + body
    frame = packets.ethernet(packets.ipv6(source, target, solicitation, wire.ICMPV6, 255))
    host.interfaces.deliver([(1, frame)])
    answer = host.sent(lambda frame: frame.frame[54:55] == b"\x88")
    assert answer.frame[58] & 0xC0 == 0xC0  # flags: router, solicited


# --- packets in transit ---------------------------------------------------------------------------


def transit_frames() -> list[bytes]:
    return [
        packets.ethernet(packets.ipv4("10.0.1.9", "10.0.2.9", b"transit")),
        packets.ethernet(packets.ipv6("2001:db8:1::9", "2001:db8:2::9", b"transit")),
    ]


def is_transit(frame: HostFrame) -> bool:
    return b"transit" in frame.frame


def marker(host: Host) -> None:
    """Waits until the kernel has processed all earlier frames: delivers a ping, and waits for the
    answer.
    """
    host.frames.clear()
    request = packets.ipv4("10.0.1.9", "10.0.1.1", echo_request(b"marker"), wire.ICMP)
    host.interfaces.deliver([(1, packets.ethernet(request))])
    host.sent(lambda frame: b"marker" in frame.frame)


def test_the_kernel_does_not_forward(host: Host) -> None:
    resolve_peer(1)
    resolve_peer(2)
    host.interfaces.deliver([(1, frame) for frame in transit_frames()])
    marker(host)
    assert host.interfaces.counters["from_host_foreign_source"] == 0
    assert not any(map(is_transit, host.frames))


def test_nothing_leaks_when_somebody_switches_forwarding_on(host: Host) -> None:
    set_sysctl("ipv4/conf/all/forwarding", "1")
    set_sysctl("ipv6/conf/all/forwarding", "1")
    resolve_peer(1)
    resolve_peer(2)
    host.until(lambda: connected(socket.AF_INET6, host))
    host.interfaces.deliver([(1, frame) for frame in transit_frames()])
    host.until(lambda: host.interfaces.counters["from_host_foreign_source"] == 2)
    marker(host)
    assert not any(map(is_transit, host.frames))


# --- carrier -------------------------------------------------------------------------------------


def test_the_carrier_follows_the_ports_device(host: Host) -> None:
    ifindex = host.interfaces.add(interface(3, device="port3"))
    host.until(lambda: host.carrier.get(ifindex) is False)
    ip("link add port3 type veth peer name far3")
    ip("link set port3 up")
    ip("link set far3 up")
    host.until(lambda: host.carrier[ifindex])
    ip("link set far3 down")
    host.until(lambda: not host.carrier[ifindex])
    ip("link set far3 up")
    host.until(lambda: host.carrier[ifindex])
    ip("link set port3 name other3")
    host.until(lambda: not host.carrier[ifindex])


def test_addresses_survive_a_loss_of_carrier(host: Host) -> None:
    ip("link add port3 type veth peer name far3")
    ip("link set port3 up")
    ip("link set far3 up")
    ifindex = host.interfaces.add(interface(3, device="port3"))
    host.until(lambda: host.carrier.get(ifindex))
    ip("link set far3 down")
    host.until(lambda: not host.carrier[ifindex])
    assert host.interfaces.is_own(parse_address("2001:db8:3::1"))
    ip("link set eth3 down")
    ip("link set eth3 up")
    host.step()
    assert host.interfaces.is_own(parse_address("2001:db8:3::1"))


def test_two_controllers_cannot_have_one_interface(host: Host) -> None:
    other = HostInterfaces(host.taps, host.monitor)
    with pytest.raises(OSError, match="another controller") as caught:
        other.add(interface(1))
    assert caught.value.errno == errno.EBUSY
    host.interfaces.close()
    other.add(interface(1))
    other.close()


# --- without a kernel -----------------------------------------------------------------------------


class FakeTaps:
    """Records calls. Interface number N has ifindex 10 + N."""

    def __init__(self) -> None:
        self.carrier: dict[int, bool] = {}
        self.to_read: list[tuple[int, bytes]] = []
        self.removed: list[int] = []

    def add(
        self,
        name: str,
        mtu: int,
        mac: str,
        persist: bool = False,
        base: int = 0,
        queue: int | None = None,
    ) -> int:
        return base + 10 + int(name.removeprefix("eth"))

    def remove(self, index: int) -> None:
        self.removed.append(index)

    def set_up(self, index: int, up: bool) -> None:
        pass

    def set_carrier(self, index: int, up: bool) -> None:
        self.carrier[index] = up

    def fileno(self) -> int:
        return -1

    def read(self, max_frames: int) -> list[tuple[int, bytes]]:
        frames, self.to_read = self.to_read[:max_frames], self.to_read[max_frames:]
        return frames

    def write(self, frames: list[tuple[int, bytes]]) -> int:
        return len(frames)


class FakeAddresses:
    def __init__(self) -> None:
        self.removed: list[tuple[int, str]] = []

    def add_address(self, ifindex: int, address: InterfaceAddress) -> None:
        pass

    def remove_address(self, ifindex: int, address: InterfaceAddress) -> None:
        self.removed.append((ifindex, str(address)))


class FakeDevices(Devices):
    """Fakes the access to devices, and changes none. `refuse` makes the configuration of a device
    fail.
    """

    def __init__(self, *, refuse: bool = False) -> None:
        super().__init__()
        self.refuse = refuse
        self.claimed: set[str] = set()

    def claim(self, name: str) -> None:
        self.claimed.add(name)

    def release(self, name: str) -> None:
        self.claimed.remove(name)

    @contextmanager
    def reserved(self, name: str) -> Iterator[int]:
        yield 0

    def configure_interface(self, name: str) -> None:
        if self.refuse:
            raise PermissionError

    def has_carrier(self, name: str) -> bool:
        return False


def fake_host(device: str | None = None) -> tuple[HostInterfaces, FakeTaps]:
    taps = FakeTaps()
    interfaces = HostInterfaces(taps, FakeAddresses(), FakeDevices())
    interfaces.add(interface(1, device))
    interfaces.apply(AddressAdded(11, InterfaceAddress.parse("10.0.1.1/24")))
    return interfaces, taps


LOOSE = bytes.fromhex("8307040a090009")
# A loose source route, preceded by more options than the pipeline can parse.
FAR_LOOSE = b"\1" * 13 + LOOSE


def from_host(packet: bytes, vlan: int | None = None) -> bytes:
    """Returns a frame with this packet as the kernel sends it on eth1."""
    frame = packets.ethernet(packet, vlan, PEER_MAC)
    return frame[:6] + interface(1).mac + frame[12:]


OWN = from_host(packets.ipv4("10.0.1.1", "10.0.1.9"))
ISIS = bytes(12) + b"\x00\x20\xfe\xfe\x03" + bytes(40)


ESP_MARK, IKE_MARK = b"\0\0\x10\1", bytes(4)
"""First four bytes of a UDP payload: ESP with SPI 0x1001, and IKE on port 4500 (RFC 3948)."""


def in_udp(payload: bytes) -> bytes:
    """Returns a UDP message from port 4500 to a peer behind a NAT. The NAT has given the peer
    another port."""
    return (4500).to_bytes(2, "big") + (5500).to_bytes(2, "big") + bytes(4) + payload


@pytest.mark.parametrize(
    ("frame", "refused_as"),
    [
        (OWN, None),
        (from_host(packets.ipv4("0.0.0.0", "255.255.255.255")), None),
        (from_host(packets.ipv6("::", "ff02::1:ff00:1")), None),
        (bytes(12) + b"\x08\x06" + bytes(28), None),
        (bytes(12) + b"\x88\xcc" + bytes(28), None),
        (ISIS, None),
        (from_host(packets.ipv4("10.0.1.9", "10.0.1.1")), "foreign_source"),
        (from_host(packets.ipv6("2001:db8::9", "2001:db8::1")), "foreign_source"),
        (from_host(packets.ipv4("10.0.1.1", "10.0.1.9"), vlan=3), "tagged"),
        (bytes(12) + b"\x88\x47" + bytes(28), "other_protocol"),
        (bytes(12) + b"\x00\x20\x42\x42\x03" + bytes(40), "other_protocol"),
        (OWN[:20], "ipv4_truncated"),
        (OWN[:6] + PEER_MAC + OWN[12:], "foreign_ethernet_source"),
        (from_host(packets.ipv4("10.0.1.1", "10.0.1.9", options=LOOSE + b"\1")), "source_route"),
        (from_host(packets.ipv4("10.0.1.1", "10.0.1.9", options=FAR_LOOSE)), "source_route"),
        (from_host(packets.ipv4("10.0.1.1", "10.0.1.9", options=b"\x94\4\0\0")), None),
        (b"short", "ethernet_truncated"),
        (from_host(packets.ipv4("10.0.1.1", "10.0.1.9", bytes(16), 50)), "esp_of_the_kernel"),
        (
            from_host(packets.ipv4("10.0.1.1", "10.0.1.9", in_udp(ESP_MARK), 17)),
            "esp_of_the_kernel",
        ),
        (from_host(packets.ipv4("10.0.1.1", "10.0.1.9", in_udp(IKE_MARK))), None),
    ],
)
def test_what_may_leave(frame: bytes, refused_as: str | None) -> None:
    interfaces, taps = fake_host()
    taps.to_read = [(11, frame)]
    assert interfaces.poll(10) == ([HostFrame(1, frame)] if refused_as is None else [])
    assert interfaces.counters[f"from_host_{refused_as}"] == (refused_as is not None)


def test_an_address_that_went_is_foreign() -> None:
    interfaces, taps = fake_host()
    interfaces.apply(AddressAdded(12, InterfaceAddress.parse("10.0.1.1/32")))
    interfaces.apply(AddressRemoved(11, InterfaceAddress.parse("10.0.1.1/24")))
    assert interfaces.is_own(parse_address("10.0.1.1"))
    interfaces.apply(LinkRemoved(12))
    taps.to_read = [(11, OWN)]
    assert interfaces.poll(10) == []


def test_an_address_of_an_earlier_configuration_goes() -> None:
    kernel = FakeAddresses()
    interfaces = HostInterfaces(FakeTaps(), kernel, FakeDevices())
    interfaces.add(interface(1))
    for ifindex, text, ours in (
        (11, "10.0.1.1/24", True),
        (11, "10.9.9.9/24", True),
        (11, "10.8.8.8/24", False),  # added by FRR or an operator
        (5, "10.7.7.7/24", True),  # address of another controller's interface
    ):
        interfaces.apply(AddressAdded(ifindex, InterfaceAddress.parse(text), ours))
    assert kernel.removed == [(11, "10.9.9.9/24")]


def test_refused_frames_do_not_hide_what_comes_after_them() -> None:
    interfaces, taps = fake_host()
    taps.to_read = [(11, b"short")] * 5 + [(11, OWN)]
    assert interfaces.poll(2) == [HostFrame(1, OWN)]


def test_a_frame_for_an_interface_that_is_not_there_is_counted() -> None:
    interfaces, _ = fake_host()
    assert interfaces.deliver([(1, OWN), (9, OWN)]) == 1
    assert interfaces.counters["to_host_without_interface"] == 1


def test_the_carrier_waits_for_the_device_and_goes_with_it() -> None:
    interfaces, taps = fake_host(device="port1")
    assert taps.carrier == {11: False}
    for up, carrier, expected in ((True, True, True), (True, False, False), (True, True, True)):
        interfaces.apply(LinkChanged(5, "port1", up, carrier, 1500, bytes(6)))
        assert taps.carrier == {11: expected}
    interfaces.apply(LinkRemoved(5))
    assert taps.carrier == {11: False}


def test_an_interface_whose_settings_fail_is_not_kept() -> None:
    taps = FakeTaps()
    devices = FakeDevices(refuse=True)
    interfaces = HostInterfaces(taps, FakeAddresses(), devices)
    with pytest.raises(PermissionError):
        interfaces.add(interface(1))
    assert taps.removed == [11]
    assert devices.claimed == set()
    assert interfaces.ifindex(1) is None


@given(st.lists(st.one_of(st.binary(max_size=80), damaged([OWN, *transit_frames(), ISIS]))))
def test_any_frames_pass_or_are_counted(frames: list[bytes]) -> None:
    interfaces, taps = fake_host()
    taps.to_read = [(11, frame) for frame in frames]
    passed = 0
    while batch := interfaces.poll(3):
        passed += len(batch)
    refused = interfaces.counters.total() - interfaces.counters["from_host"]
    assert passed + refused == len(frames)

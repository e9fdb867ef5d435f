# SPDX-License-Identifier: Apache-2.0
"""Tests the kernel monitor with the real kernel, in its own network namespace."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import pytest

from kernel_namespace import Tap, ip, ip_shows, network_namespace, poll_until, set_sysctl
from sluice.model import (
    AddressAdded,
    AddressRemoved,
    InterfaceAddress,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    NeighborChanged,
    NeighborState,
    parse_address,
    parse_mac,
)
from sluice.sources.kernel import KernelMonitor

PEER_MAC = parse_mac("02:00:00:00:00:aa")
ADDRESS = InterfaceAddress.parse("10.1.1.1/24")
PEER = parse_address("10.1.1.2")
PEER_V6 = parse_address("2001:db8:1::2")


@pytest.fixture
def tap() -> Iterator[Tap]:
    with network_namespace():
        device = Tap("t1")
        # With these settings a silent neighbour fails after 3 probes in 0.3 s instead of 3 s.
        set_sysctl("ipv4/neigh/t1/retrans_time_ms", "100")
        set_sysctl("ipv6/neigh/t1/retrans_time_ms", "100")
        ip("link set t1 up")
        yield device
        device.close()


@pytest.fixture
def monitor(tap: Tap) -> Iterator[KernelMonitor]:
    with_start = KernelMonitor()
    with_start.start()
    yield with_start
    with_start.close()


def synced(monitor: KernelMonitor) -> list[KernelEvent]:
    return poll_until(monitor, lambda _: monitor.synced)


def has(event: KernelEvent) -> Callable[[list[KernelEvent]], object]:
    return lambda events: event in events


def neighbor_is(
    state: NeighborState, address: bytes = PEER
) -> Callable[[list[KernelEvent]], NeighborChanged | None]:
    def find(events: list[KernelEvent]) -> NeighborChanged | None:
        for event in events:
            if isinstance(event, NeighborChanged) and (event.address, event.state) == (
                address,
                state,
            ):
                return event
        return None

    return find


def test_the_start_shows_links_and_addresses(tap: Tap, monitor: KernelMonitor) -> None:
    ip("addr add 10.1.1.1/24 dev t1")
    events = synced(monitor)
    (link,) = [e for e in events if isinstance(e, LinkChanged) and e.name == "t1"]
    assert (link.ifindex, link.up, link.mac) == (tap.ifindex, True, parse_mac("02:00:00:00:01:01"))
    assert AddressAdded(tap.ifindex, ADDRESS) in events
    assert AddressAdded(1, InterfaceAddress.parse("127.0.0.1/8")) in events


def test_addresses_come_and_go(tap: Tap, monitor: KernelMonitor) -> None:
    synced(monitor)
    for address in (ADDRESS, InterfaceAddress.parse("2001:db8:1::1/64")):
        monitor.add_address(tap.ifindex, address)
        poll_until(monitor, has(AddressAdded(tap.ifindex, address, ours=True)))
        monitor.remove_address(tap.ifindex, address)
        poll_until(monitor, has(AddressRemoved(tap.ifindex, address)))
    assert not monitor.counters


def test_an_address_may_be_added_twice(tap: Tap, monitor: KernelMonitor) -> None:
    synced(monitor)
    monitor.add_address(tap.ifindex, ADDRESS)
    monitor.add_address(tap.ifindex, ADDRESS)
    added = AddressAdded(tap.ifindex, ADDRESS, ours=True)
    assert poll_until(monitor, has(added)).count(added) == 1
    assert not monitor.counters


def test_a_point_to_point_address_is_a_host_address(tap: Tap, monitor: KernelMonitor) -> None:
    ip("addr add 10.2.2.1 peer 10.2.2.9 dev t1")
    own = InterfaceAddress.parse("10.2.2.1/32")
    assert AddressAdded(tap.ifindex, own) in synced(monitor)


def test_a_refused_request_is_counted_by_its_error(monitor: KernelMonitor) -> None:
    synced(monitor)
    monitor.add_address(4711, ADDRESS)
    poll_until(monitor, lambda _: monitor.counters)
    assert monitor.counters == {"request_failed_ENODEV": 1}


def test_carrier_and_administrative_state(monitor: KernelMonitor) -> None:
    ip("link add v1 type veth peer name v2")
    ip("link set v1 up")

    def link_is(name: str, up: bool, carrier: bool) -> Callable[[list[KernelEvent]], bool]:
        return lambda events: any(
            isinstance(e, LinkChanged) and (e.name, e.up, e.carrier) == (name, up, carrier)
            for e in events
        )

    poll_until(monitor, link_is("v1", True, False))
    ip("link set v2 up")
    poll_until(monitor, link_is("v1", True, True))
    ip("link set v1 down")
    poll_until(monitor, link_is("v1", False, False))


def test_a_removed_link_is_gone(monitor: KernelMonitor) -> None:
    ip("link add v1 type veth peer name v2")
    events = synced(monitor)
    (link,) = [e for e in events if isinstance(e, LinkChanged) and e.name == "v1"]
    ip("link del v1")
    poll_until(monitor, has(LinkRemoved(link.ifindex)))


# --- neighbours ----------------------------------------------------------------------------------


def arp_reply(request: bytes) -> bytes:
    sender_mac, sender, target = request[22:28], request[28:32], request[38:42]
    arp = request[14:20] + b"\0\2" + PEER_MAC + target + sender_mac + sender
    return sender_mac + PEER_MAC + b"\x08\x06" + arp


def is_arp_request(frame: bytes) -> bool:
    return frame[12:14] == b"\x08\x06" and frame[20:22] == b"\0\1"


def is_solicitation(frame: bytes) -> bool:
    target = frame[62:78]
    return frame[12:14] == b"\x86\xdd" and frame[54] == 135 and target == PEER_V6


def test_use_resolves_a_neighbour(tap: Tap, monitor: KernelMonitor) -> None:
    monitor.add_address(tap.ifindex, ADDRESS)
    synced(monitor)
    monitor.use_neighbor(tap.ifindex, PEER)
    tap.write(arp_reply(tap.read(is_arp_request)))
    expected = NeighborChanged(tap.ifindex, PEER, PEER_MAC, NeighborState.REACHABLE)
    poll_until(monitor, has(expected))


def test_a_neighbour_that_does_not_answer_fails_and_may_be_tried_again(
    tap: Tap, monitor: KernelMonitor
) -> None:
    monitor.add_address(tap.ifindex, ADDRESS)
    synced(monitor)
    for _ in range(2):
        monitor.use_neighbor(tap.ifindex, PEER)
        tap.read(is_arp_request)
        events = poll_until(monitor, neighbor_is(NeighborState.FAILED))
        failed = neighbor_is(NeighborState.FAILED)(events)
        assert failed is not None
        assert failed.mac is None


def test_use_confirms_a_stale_neighbour(tap: Tap, monitor: KernelMonitor) -> None:
    set_sysctl("ipv4/neigh/t1/delay_first_probe_time", "0")
    monitor.add_address(tap.ifindex, ADDRESS)
    synced(monitor)
    ip(f"neigh add 10.1.1.2 lladdr {PEER_MAC.hex(':')} dev t1 nud stale")
    poll_until(monitor, neighbor_is(NeighborState.STALE))
    monitor.use_neighbor(tap.ifindex, PEER)
    tap.write(arp_reply(tap.read(is_arp_request)))
    events = poll_until(monitor, neighbor_is(NeighborState.REACHABLE))
    # In all these states, the neighbour's MAC address stays known, so packets can be sent to it.
    assert all(e.mac == PEER_MAC for e in events if isinstance(e, NeighborChanged))


KEPT_ENTRIES = pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("nud permanent", "PERMANENT"),
        ("nud noarp", "NOARP"),
        ("nud stale extern_learn", "extern_learn STALE"),
        ("managed", "managed"),
    ],
)


def entry(address: str = "10.1.1.2") -> str:
    """Returns the neighbour's entry as `ip neigh` prints it, in any state."""
    return ip_shows(f"neigh show {address} dev t1 nud all")


@KEPT_ENTRIES
def test_entries_that_others_keep_are_left_alone(
    tap: Tap, monitor: KernelMonitor, form: str, shown: str
) -> None:
    monitor.add_address(tap.ifindex, ADDRESS)
    synced(monitor)
    ip(f"neigh add 10.1.1.2 lladdr {PEER_MAC.hex(':')} dev t1 {form}")
    poll_until(monitor, lambda events: any(isinstance(e, NeighborChanged) for e in events))
    monitor.use_neighbor(tap.ifindex, PEER)
    monitor.poll(64)
    assert shown in entry()
    assert monitor.counters == {"neighbors_left_alone": 1}


@KEPT_ENTRIES
def test_an_entry_made_behind_the_monitors_back_keeps_its_kind(
    tap: Tap, monitor: KernelMonitor, form: str, shown: str
) -> None:
    """Checks that the monitor's request to resolve a neighbour leaves the flags of an existing
    entry unchanged.

    The monitor does not know the entry: another program creates it after the monitor's last read.
    """
    monitor.add_address(tap.ifindex, ADDRESS)
    synced(monitor)
    ip(f"neigh add 10.1.1.2 lladdr {PEER_MAC.hex(':')} dev t1 {form}")
    monitor.use_neighbor(tap.ifindex, PEER)
    assert shown in entry()
    monitor.start()
    synced(monitor)  # the answers to the dump come after the answer to the request
    assert shown in entry()


@pytest.mark.parametrize("before", [NeighborState.FAILED, NeighborState.STALE])
def test_an_entry_made_permanent_behind_the_monitors_back_stays_so(
    tap: Tap, monitor: KernelMonitor, before: NeighborState
) -> None:
    """Checks that the monitor's request to resolve a neighbour leaves a permanent entry permanent.

    The monitor does not know that the entry is permanent: another program changes it just before
    the request. zebra does this with 169.254.0.1 for BGP unnumbered.
    """
    monitor.add_address(tap.ifindex, ADDRESS)
    synced(monitor)
    if before is NeighborState.STALE:
        ip(f"neigh add 10.1.1.2 lladdr {PEER_MAC.hex(':')} dev t1 nud stale")
    else:
        monitor.use_neighbor(tap.ifindex, PEER)
    poll_until(monitor, neighbor_is(before))
    ip(f"neigh replace 10.1.1.2 lladdr {PEER_MAC.hex(':')} dev t1 nud permanent")
    monitor.use_neighbor(tap.ifindex, PEER)
    monitor.start()
    events = synced(monitor)
    assert "PERMANENT" in entry()
    expected = NeighborChanged(tap.ifindex, PEER, PEER_MAC, NeighborState.PERMANENT)
    assert [e for e in events if isinstance(e, NeighborChanged)] == [expected]


def test_ipv6_neighbours_are_left_alone_too(tap: Tap, monitor: KernelMonitor) -> None:
    ip("addr add 2001:db8:1::1/64 dev t1 nodad")
    synced(monitor)
    ip(f"neigh add 2001:db8:1::2 lladdr {PEER_MAC.hex(':')} dev t1 nud permanent")
    monitor.use_neighbor(tap.ifindex, PEER_V6)
    monitor.start()
    synced(monitor)
    assert "PERMANENT" in entry("2001:db8:1::2")


def test_a_failed_neighbour_outside_of_all_prefixes_is_tried_again(
    tap: Tap, monitor: KernelMonitor
) -> None:
    monitor.add_address(tap.ifindex, ADDRESS)
    synced(monitor)
    gateway = parse_address("169.254.0.1")
    for _ in range(2):
        tap.drain()
        monitor.use_neighbor(tap.ifindex, gateway)
        tap.read(lambda frame: is_arp_request(frame) and frame[38:42] == gateway)
        poll_until(monitor, neighbor_is(NeighborState.FAILED, gateway))


def test_use_solicits_an_ipv6_neighbour(tap: Tap, monitor: KernelMonitor) -> None:
    ip("addr add 2001:db8:1::1/64 dev t1 nodad")
    synced(monitor)
    # The requests have no effect until the link-local address has passed duplicate address
    # detection.
    while not any(is_solicitation(frame) for frame in tap.drain()):
        monitor.use_neighbor(tap.ifindex, PEER_V6)
        poll_until(monitor, neighbor_is(NeighborState.FAILED, PEER_V6))


def test_a_removed_neighbour_is_none(tap: Tap, monitor: KernelMonitor) -> None:
    ip("addr add 10.1.1.1/24 dev t1")
    ip(f"neigh add 10.1.1.2 lladdr {PEER_MAC.hex(':')} dev t1 nud permanent")
    expected = NeighborChanged(tap.ifindex, PEER, PEER_MAC, NeighborState.PERMANENT)
    assert expected in synced(monitor)
    ip("neigh del 10.1.1.2 dev t1")
    poll_until(monitor, has(NeighborChanged(tap.ifindex, PEER, None, NeighborState.NONE)))


@pytest.mark.parametrize("mac", ["01:00:5e:00:00:01", "ff:ff:ff:ff:ff:ff", "00:00:00:00:00:00"])
def test_a_mac_address_that_no_host_has_is_not_believed(
    tap: Tap, monitor: KernelMonitor, mac: str
) -> None:
    synced(monitor)
    ip(f"neigh add 10.1.1.2 lladdr {mac} dev t1 nud stale")
    poll_until(monitor, has(NeighborChanged(tap.ifindex, PEER, None, NeighborState.FAILED)))
    # A permanent entry with a group MAC is intended: some clusters receive at a group address.
    ip(f"neigh replace 10.1.1.2 lladdr {mac} dev t1 nud permanent")
    octets = bytes.fromhex(mac.replace(":", ""))
    wanted = NeighborChanged(tap.ifindex, PEER, octets, NeighborState.PERMANENT)
    poll_until(monitor, has(wanted))


def test_groups_and_broadcasts_are_no_neighbours(tap: Tap, monitor: KernelMonitor) -> None:
    monitor.add_address(tap.ifindex, ADDRESS)
    events = synced(monitor)
    for target in ("10.1.1.255", "224.0.0.5"):
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp:
            udp.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
            udp.setsockopt(socket.SOL_IP, socket.IP_MULTICAST_IF, ADDRESS.address)
            udp.sendto(b"x", (target, 9))
    assert "NOARP" in ip_shows("neigh show nud noarp")
    monitor.start()
    events += synced(monitor)
    assert not [event for event in events if isinstance(event, NeighborChanged)]


# --- lost messages -------------------------------------------------------------------------------


def addresses_after(events: list[KernelEvent], ifindex: int) -> set[str]:
    found: set[str] = set()
    for event in events:
        if isinstance(event, AddressAdded) and event.ifindex == ifindex:
            found.add(str(event.address))
        elif isinstance(event, AddressRemoved) and event.ifindex == ifindex:
            found.remove(str(event.address))
    return found


def test_what_happened_in_an_overrun_is_made_up_for(tap: Tap) -> None:
    monitor = KernelMonitor(receive_buffer=1 << 14)
    monitor.start()
    ip("addr add 10.9.0.1/32 dev t1")
    ip("link add v1 type veth peer name v2")
    events = synced(monitor)
    (link,) = [e for e in events if isinstance(e, LinkChanged) and e.name == "v1"]
    # The monitor does not read meanwhile, so these messages overflow its socket's buffer.
    batch = [f"addr add 10.8.{i // 250}.{i % 250}/32 dev t1" for i in range(1000)]
    ip("-batch -", lines="\n".join([*batch, "addr del 10.9.0.1/32 dev t1", "link del v1"]))
    events += poll_until(monitor, lambda _: monitor.counters["overruns"])
    events += synced(monitor)
    expected = {f"10.8.{i // 250}.{i % 250}/32" for i in range(1000)}
    found = {text for text in addresses_after(events, tap.ifindex) if "." in text}
    assert found == expected
    assert LinkRemoved(link.ifindex) in events
    monitor.close()


def test_a_start_while_a_dump_is_under_way_begins_again(monitor: KernelMonitor) -> None:
    monitor.start()
    monitor.start()
    events = synced(monitor)
    assert len([e for e in events if isinstance(e, LinkChanged) and e.name == "lo"]) == 1
    assert not monitor.counters

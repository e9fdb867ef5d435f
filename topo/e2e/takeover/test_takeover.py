# SPDX-License-Identifier: Apache-2.0
"""Tests that the switch forwards after `sluice up`, that the kernel forwards again after the end of
the takeover for any reason, and that sessions survive both.
"""

import shutil
import time
from contextlib import ExitStack

import pytest

from sluice_testkit.capture import Capture
from sluice_testkit.packet import UDP
from sluice_topo import probes
from sluice_topo.kernel_router import PROCESSES, RUN_DIRECTORY, KernelRouter, address, sessions_of
from sluice_topo.traffic import PORT, UdpFlows

RATE = 500.0


@pytest.mark.parametrize("version", [4, 6])
def test_switch_forwards_each_packet_once(router: KernelRouter, version: int) -> None:
    h1, h2 = router.hosts[:2]
    router.up()
    before, kernel = router.switch_packets(), probes.kernel_forwarded(router.namespace)
    with Capture(
        h2.namespace, "eth0", lambda frame: frame.protocol == UDP and not frame.outgoing
    ) as capture:
        with UdpFlows(h1, h2, version) as traffic:
            traffic.wait_for_more(500)
            outcome = traffic.stop()
        arrived = capture.count(lambda frame: frame.destination_port == PORT)
    assert outcome.lost == 0
    assert arrived == outcome.sent
    assert router.switch_packets() - before >= outcome.sent
    assert probes.kernel_forwarded(router.namespace) == kernel


def test_sessions_survive_up_and_down_without_loss(router: KernelRouter) -> None:
    h1, h2 = router.hosts[:2]
    with ExitStack() as stack:
        sessions = [stack.enter_context(one) for one in sessions_of(router)]
        traffic = stack.enter_context(UdpFlows(h1, h2, rate=RATE))
        traffic.wait_for_more(100)
        router.up()
        before = router.switch_packets()
        traffic.wait_for_more(100)
        for session in sessions:
            session.exchange(20)
        assert router.switch_packets() > before
        router.down()
        traffic.wait_for_more(100)
        for session in sessions:
            session.exchange(20)
        outcome = traffic.stop()
    print(f"lost in both transitions: {outcome.lost} of {outcome.sent}")
    assert outcome.lost == 0


@pytest.mark.parametrize("process", PROCESSES)
def test_kernel_forwards_at_once_after_a_kill(router: KernelRouter, process: str) -> None:
    h1, h2 = router.hosts[:2]
    with ExitStack() as stack:
        sessions = [stack.enter_context(one) for one in sessions_of(router)]
        router.up()
        traffic = stack.enter_context(UdpFlows(h1, h2, rate=RATE))
        traffic.wait_for_more(200)
        router.kill(process)
        traffic.wait_for_more(500)
        for session in sessions:
            session.exchange(20)
        outcome = traffic.stop()
    print(f"{process} killed: lost {outcome.lost} of {outcome.sent}, {outcome.outage:.3f} s")
    assert outcome.lost <= RATE / 2
    assert outcome.outage < 0.5
    router.wait_for_end()
    kernel = probes.kernel_forwarded(router.namespace)
    assert probes.ping(h1.namespace, h2.address(4)).lost == 0
    assert probes.kernel_forwarded(router.namespace) > kernel
    if process != "supervisor":
        assert f"the {process} has ended" in router.log


def test_takeover_begins_again_after_a_killed_supervisor(router: KernelRouter) -> None:
    """A killed supervisor leaves files and filters behind. They do not disturb a new takeover."""
    router.up()
    router.kill("supervisor")
    router.wait_for_end()
    router.up()
    before = router.switch_packets()
    assert probes.ping(router.hosts[0].namespace, router.hosts[1].address(4)).lost == 0
    assert router.switch_packets() > before
    router.down()
    assert not router.namespace.run("tc", "qdisc", "show", "dev", "eth1", "clsact").stdout


@pytest.mark.parametrize("version", [4, 6])
def test_host_keeps_its_own_packets(router: KernelRouter, version: int) -> None:
    """Packets to each of the router's addresses, and from the router, pass without the switch."""
    h1, h2 = router.hosts[:2]
    router.up()
    before = router.switch_packets()
    for own in (address(1, 1, version), address(2, 1, version)):
        assert probes.ping(h1.namespace, own).lost == 0
    assert probes.ping(router.namespace, h2.address(version)).lost == 0
    assert router.switch_packets() == before


def test_new_address_of_the_host(router: KernelRouter) -> None:
    router.up()
    router.namespace.add_address("lo", "192.0.2.7/32")
    # The switch has no route to the new address. Until the BPF programs leave its packets to the
    # kernel, packets may be lost.
    before = time.monotonic()
    while probes.ping(router.hosts[0].namespace, "192.0.2.7", count=1).lost:
        assert time.monotonic() - before < 10, "the host does not get packets to its new address"
    packets = router.switch_packets()
    assert probes.ping(router.hosts[0].namespace, "192.0.2.7").lost == 0
    assert router.switch_packets() == packets


def test_expired_packets_are_answered(router: KernelRouter) -> None:
    h1, h2 = router.hosts[:2]
    router.up()
    for version in (4, 6):
        hops = probes.traceroute(h1.namespace, h2.address(version))
        assert hops == [{address(1, 1, version)}, {h2.address(version)}]


def test_interface_that_was_not_taken_over(router: KernelRouter) -> None:
    """The kernel forwards between an interface that is taken over and one that is not, in both
    directions.
    """
    h1, _, h3 = router.hosts
    router.up()
    kernel, switch = probes.kernel_forwarded(router.namespace), router.switch_packets()
    for version in (4, 6):
        assert probes.ping(h1.namespace, h3.address(version)).lost == 0
        assert probes.ping(h3.namespace, h1.address(version)).lost == 0
    assert probes.kernel_forwarded(router.namespace) >= kernel + 40
    assert router.switch_packets() == switch


def test_neighbour_is_resolved_by_the_kernel(router: KernelRouter) -> None:
    """A first packet to a host whose neighbour entry is missing waits until the kernel has resolved
    the host by ARP or ND.
    """
    h1, h2 = router.hosts[:2]
    for version in (4, 6):
        router.namespace.run("ip", f"-{version}", "neigh", "flush", "dev", "eth2")
    router.up()
    for version in (4, 6):
        assert probes.ping(h1.namespace, h2.address(version), count=3).lost == 0


def test_no_probe_leaves_the_router(router: KernelRouter) -> None:
    """While a flow is in use, its next hop is confirmed only by ARP or ND. The datagrams by which
    the controller starts this do not leave the router.
    """
    h1, h2 = router.hosts[:2]
    router.namespace.sysctl(ipv4__neigh__eth2__base_reachable_time_ms=1000)
    router.up()
    discard = 9
    with (
        Capture(
            h2.namespace,
            "eth0",
            lambda frame: frame.protocol == UDP and frame.destination_port == discard,
        ) as capture,
        UdpFlows(h1, h2) as traffic,
    ):
        traffic.wait_for_more(2500)
        assert capture.count() == 0
        assert traffic.stop().lost == 0


def test_down_without_a_takeover(router: KernelRouter) -> None:
    done = router.command("down", check=False)
    assert done.returncode == 1
    assert f"no takeover called {router.name} runs here" in done.stderr


def test_two_takeovers_of_one_interface(router: KernelRouter) -> None:
    router.up()
    again = router.command("up", "eth1", check=False)
    assert again.returncode == 1
    assert "runs; end it first: `sluice down" in again.stderr
    other = router.command("up", "eth1", "--name", f"{router.name}-2", name=False, check=False)
    assert other.returncode == 1
    assert "another controller has this interface" in other.stderr
    shutil.rmtree(RUN_DIRECTORY / f"{router.name}-2.up")


def test_reload_says_that_there_is_no_file(router: KernelRouter) -> None:
    router.up()
    done = router.command("reload", "--socket", str(router.socket), name=False, check=False)
    assert done.returncode == 1
    assert "there is no file to read" in done.stderr


def test_nothing_is_left_after_down(router: KernelRouter) -> None:
    links = router.namespace.run("ip", "-br", "link").stdout
    router.up()
    assert router.down() == "the kernel forwards\n"
    router.wait_for_end()
    assert router.namespace.run("ip", "-br", "link").stdout == links
    assert not router.socket.exists()
    qdiscs = router.namespace.run("tc", "qdisc", "show").stdout
    assert "clsact" not in qdiscs

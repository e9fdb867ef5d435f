# SPDX-License-Identifier: Apache-2.0
"""Tests that the tables of the steering programs follow the host, with the real kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from kernel_namespace import DEADLINE, ip, network_namespace, set_sysctl
from sluice.model import Prefix
from sluice.sources import host_survey
from sluice.sources.links import ask
from sluice.sources.steering import Steering, port_entry
from sluice.state.router_plan import plan
from sluice.up.steered_host import SteeredHost
from sluice.wire import tc
from sluice.wire.netlink import NLM_F_ACK, NLM_F_CREATE, NLM_F_EXCL

V1, PORT = 10, 77
NAMES = ("v1",)


@pytest.fixture
def steering() -> Iterator[Steering]:
    with network_namespace():
        ip(f"link add v1 index {V1} type veth peer name v2")
        ip("link set v1 up")
        ip("link set v2 up")
        ip("addr add 10.0.1.1/24 dev v1")
        set_sysctl("ipv4/ip_forward", "1")
        set_sysctl("ipv6/conf/all/forwarding", "1")
        with closing(Steering()) as made:
            yield made


@pytest.fixture
def host(steering: Steering) -> Iterator[SteeredHost]:
    planned = plan(host_survey.survey(), NAMES)
    assert planned.problems == ()
    with closing(SteeredHost(NAMES, planned, steering, {V1: PORT})) as made:
        poll_until(made, lambda: made.is_settled)
        steering.switch_on(True)
        yield made


def poll_until(host: SteeredHost, done: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    host.poll()
    while not done():
        assert time.monotonic() < end, host.problems
        host.poll()


def is_on(steering: Steering) -> bool:
    return steering.is_on


def test_policy_is_read_while_a_comparison_is_under_way(
    host: SteeredHost, steering: Steering
) -> None:
    lines = [f"route add 203.{n >> 8}.{n & 255}.0/24 via 10.0.1.2" for n in range(6000)]
    ip("-batch -", lines="\n".join(lines))
    poll_until(host, lambda: host.routes.count > 6000 and host.is_settled)
    host.routes.feed._compare_again()
    poll_until(host, lambda: host.routes.feed._dump is not None)
    host.poll()
    assert not host.is_settled
    assert is_on(steering)
    ip("xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir fwd action block")
    host.poll()
    assert not is_on(steering)
    assert host.routes.feed._dump is not None
    assert host.problems


def test_steering_goes_on_after_a_harmless_policy(host: SteeredHost, steering: Steering) -> None:
    ip("xfrm policy add src 10.1.0.0/16 dst 10.2.0.0/16 dir fwd action allow")
    host.poll()
    assert steering.is_on
    assert host.problems == []


def test_filter_that_appears_later(host: SteeredHost, steering: Steering) -> None:
    body = tc.clsact(V1)
    ask(tc.RTM_NEWQDISC, NLM_F_ACK | NLM_F_CREATE | NLM_F_EXCL, body, "v1")
    host.poll()
    assert not is_on(steering)
    assert "v1: has an ingress or clsact qdisc" in host.problems[0]


def test_tcx_program_that_appears_later(host: SteeredHost, steering: Steering) -> None:
    for program in (steering._entry, steering._silent):  # one program is the takeover's own
        steering._hook(V1, tc.Hook.INGRESS, program)
    poll_until(host, lambda: host.problems)
    assert "v1: has an ingress or clsact qdisc, or a tcx program" in host.problems[0]


def test_ipv6_is_switched_off_on_an_interface(host: SteeredHost, steering: Steering) -> None:
    assert steering._port_entries == entries(ipv6=True)
    ip("-6 addr flush dev v1")
    host.poll()
    set_sysctl("ipv6/conf/v1/disable_ipv6", "1")
    poll_until(host, lambda: steering._port_entries == entries(ipv6=False))
    assert host.problems == []


def entries(*, ipv6: bool) -> dict[bytes, bytes]:
    (link,) = (one for one in host_survey.read_links() if one.index == V1)
    return dict([port_entry(V1, 0, link.mac, PORT, ipv4=True, ipv6=ipv6)])


def test_best_route_alone_says_whether_packets_are_encapsulated(host: SteeredHost) -> None:
    prefix = Prefix.parse("198.51.100.0/24")
    ip("route add 198.51.100.0/24 encap ip id 7 dst 10.0.1.9 via 10.0.1.2 dev v1 metric 10")
    ip("route add 198.51.100.0/24 via 10.0.1.2 metric 20")
    poll_until(host, lambda: host.is_settled)
    assert prefix in host.routes.foreign
    ip("route delete 198.51.100.0/24 metric 10")
    poll_until(host, lambda: host.is_settled)
    assert prefix not in host.routes.foreign

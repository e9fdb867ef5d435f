# SPDX-License-Identifier: Apache-2.0
"""Tests the XFRM monitor with the real kernel, in its own network namespace.

Tests of states need a kernel with ESP: `make interop` runs them.
"""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from kernel_namespace import ip, network_namespace
from sluice.model import Prefix, parse_address
from sluice.sources.xfrm import XfrmMonitor
from sluice.wire import xfrm
from sluice.wire.netlink import HEADER, NLM_F_DUMP, NLM_F_REQUEST, message, messages
from sluice.xfrm_model import (
    Defaults,
    KernelPolicy,
    KernelSelector,
    PolicyAction,
    PolicyDirection,
    PortMatch,
    Template,
)
from wire import xfrm_messages as kernel

LOCAL, REMOTE = parse_address("10.0.1.1"), parse_address("10.0.2.1")
SITES = "src 10.1.0.0/16 dst 10.2.0.0/16"
TEMPLATE = "tmpl src 10.0.1.1 dst 10.0.2.1 proto esp reqid 7 mode tunnel"
DEADLINE = 10.0


@pytest.fixture
def namespace() -> Iterator[None]:
    with network_namespace():
        yield


@pytest.fixture
def monitor(namespace: None) -> Iterator[XfrmMonitor]:
    monitor = XfrmMonitor()
    monitor.start()
    yield monitor
    monitor.close()


def poll_until(monitor: XfrmMonitor, done: Callable[[], object]) -> None:
    end = time.monotonic() + DEADLINE
    while not (monitor.synced and done()):
        left = end - time.monotonic()
        assert left > 0, f"{monitor.policies} {monitor.counters}"
        select.select([monitor], [], [], left)
        monitor.poll()


def the_policy(monitor: XfrmMonitor) -> KernelPolicy:
    (policy,) = monitor.policies.values()
    return policy


def test_policies_that_are_there_at_start_and_their_defaults(namespace: None) -> None:
    ip(f"xfrm policy add {SITES} dir out priority 5 {TEMPLATE}")
    ip("xfrm policy add src 10.9.0.0/16 dst 10.8.0.1/32 proto udp dport 53 dir fwd action block")
    ip("xfrm policy setdefault in accept fwd block out accept")
    monitor = XfrmMonitor()
    monitor.start()
    protect, block = sorted(monitor.policies.values(), key=lambda one: one.direction)
    assert protect._replace(key=block.key) == KernelPolicy(
        block.key,
        PolicyDirection.OUT,
        5,
        PolicyAction.ALLOW,
        KernelSelector(Prefix.parse("10.1.0.0/16"), Prefix.parse("10.2.0.0/16"), 0),
        (Template(LOCAL, REMOTE, 50, 0, 7, 1, False),),
    )
    assert (block.direction, block.action) == (PolicyDirection.FWD, PolicyAction.BLOCK)
    assert block.selector.destination_port == PortMatch(53, 0xFFFF)
    assert monitor.defaults == Defaults(forward=PolicyAction.BLOCK)
    monitor.close()


def test_policies_that_come_change_and_go(monitor: XfrmMonitor) -> None:
    assert not monitor.policies
    ip(f"xfrm policy add {SITES} dir out {TEMPLATE}")
    poll_until(monitor, lambda: monitor.policies)
    before = the_policy(monitor)
    ip(f"xfrm policy update {SITES} dir out action block")
    poll_until(monitor, lambda: the_policy(monitor).action == PolicyAction.BLOCK)
    assert the_policy(monitor).key == before.key
    ip(f"xfrm policy delete {SITES} dir out")
    poll_until(monitor, lambda: not monitor.policies)


def test_a_flush_and_new_defaults(monitor: XfrmMonitor) -> None:
    for number in range(5):
        ip(f"xfrm policy add src 10.{number}.0.0/16 dst 10.9.0.0/16 dir in action block")
    poll_until(monitor, lambda: len(monitor.policies) == 5)
    ip("xfrm policy flush")
    poll_until(monitor, lambda: not monitor.policies)
    ip("xfrm policy setdefault in block fwd block out block")
    poll_until(monitor, lambda: monitor.defaults == Defaults(*3 * [PolicyAction.BLOCK]))


def test_policies_of_a_socket_are_left_out(monitor: XfrmMonitor) -> None:
    """Checks that the monitor skips policies that apply to a single socket (IP_XFRM_POLICY).

    IKE daemons set such policies on their own sockets.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as own:
        body = bytearray(xfrm.POLICY_SIZE)
        body[40] = socket.AF_INET
        body[xfrm.POLICY_SIZE - 8] = PolicyDirection.OUT
        own.setsockopt(socket.SOL_IP, 17, bytes(body))
        ip(f"xfrm policy add {SITES} dir out {TEMPLATE}")
        poll_until(monitor, lambda: monitor.policies)
        assert the_policy(monitor).templates
        fresh = XfrmMonitor()
        fresh.start()
        assert fresh.policies == monitor.policies
        assert fresh.counters["messages of no interest"] >= 1
        fresh.close()


def test_what_was_lost_is_read_anew(namespace: None) -> None:
    """Checks that the monitor reads all policies again after messages were lost.

    So many policies are added and deleted here that the messages overflow the socket's buffer.
    """
    ip("xfrm policy add src 10.0.0.0/16 dst 10.9.0.0/16 dir in action block")
    monitor = XfrmMonitor(receive_buffer=4096)
    monitor.start()
    lines = ["xfrm policy delete src 10.0.0.0/16 dst 10.9.0.0/16 dir in"]
    lines += [
        f"xfrm policy add src 10.{number}.0.0/16 dst 10.9.0.0/16 dir in action block"
        for number in range(1, 100)
    ]
    ip("-batch -", lines="\n".join(lines))
    poll_until(monitor, lambda: len(monitor.policies) == 99)
    assert monitor.counters["overruns"] > 0
    assert all(
        one.selector.source != Prefix.parse("10.0.0.0/16") for one in monitor.policies.values()
    )
    monitor.close()


def test_a_message_that_a_process_sends_is_not_the_kernels(monitor: XfrmMonitor) -> None:
    """Checks that the monitor ignores messages that another process sends.

    A process with CAP_NET_ADMIN can send to any netlink port, and could thus disable policies.
    """
    ip(f"xfrm policy add {SITES} dir out {TEMPLATE}")
    poll_until(monitor, lambda: monitor.policies)
    before = the_policy(monitor)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6) as process:
        for kind, body in (
            (xfrm.XFRM_MSG_DELPOLICY, kernel.policy_gone(before)),
            (xfrm.XFRM_MSG_NEWPOLICY, kernel.policy(before._replace(templates=()))),
        ):
            process.sendto(message(kind, 0, 0, body), (monitor._socket.port, 0))
    poll_until(monitor, lambda: monitor.counters["messages of other processes"] == 2)
    assert the_policy(monitor) == before


def test_a_kernel_that_refuses_a_dump_is_read_again_when_asked(
    monitor: XfrmMonitor, monkeypatch: pytest.MonkeyPatch
) -> None:
    ip(f"xfrm policy add {SITES} dir out {TEMPLATE}")
    poll_until(monitor, lambda: monitor.policies)
    with monkeypatch.context() as patch:
        unknown = partial(message, 0x3F, NLM_F_REQUEST | NLM_F_DUMP, body=b"")
        patch.setattr("sluice.sources.xfrm.DUMPS", 3 * (lambda number: unknown(sequence=number),))
        monitor.read_again()
        while not monitor.is_refused:
            assert select.select([monitor], [], [], DEADLINE)[0]
            changed = monitor.poll()
    assert changed, "the monitor must report the change"
    assert not monitor.synced
    monitor.read_again()
    poll_until(monitor, lambda: monitor.policies)
    assert not monitor.is_refused


def test_an_acquire_reaches_all_who_negotiate_keys(monitor: XfrmMonitor) -> None:
    """Checks that an IKE daemon receives an acquire.

    The acquire has the template's reqid and the packet's selectors.
    """
    ip(f"xfrm policy add {SITES} dir out {TEMPLATE}")
    poll_until(monitor, lambda: monitor.policies)
    daemon = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
    daemon.bind((0, 1 << 0))  # XFRMNLGRP_ACQUIRE
    daemon.settimeout(DEADLINE)
    flow = KernelSelector(
        Prefix.parse("10.1.0.5/32"),
        Prefix.parse("10.2.0.7/32"),
        6,
        PortMatch(40000, 0xFFFF),
        PortMatch(443, 0xFFFF),
    )
    monitor.acquire(the_policy(monitor), flow)
    (heard,) = messages(daemon.recv(1 << 16))
    assert heard.type == xfrm.XFRM_MSG_ACQUIRE
    assert heard.body[40:96] == xfrm.encode_selector(flow)
    policy, template = the_policy(monitor), the_policy(monitor).templates[0]
    assert heard.body[96 : 96 + 56] == xfrm.encode_selector(policy.selector)
    at = xfrm.ID.size + 16 + 56 + xfrm.POLICY_SIZE + 16 + 4
    assert heard.body[at : at + 48] == xfrm.encode_template(template)[:48]
    poll_until(monitor, lambda: True)
    assert not [name for name in monitor.counters if "failed" in name]
    daemon.close()


def test_a_request_that_the_kernel_refuses_is_counted(monitor: XfrmMonitor) -> None:
    ip(f"xfrm policy add {SITES} dir out {TEMPLATE}")
    poll_until(monitor, lambda: monitor.policies)
    wrong = the_policy(monitor)._replace(action=9)
    monitor.acquire(wrong, wrong.selector)
    poll_until(monitor, lambda: monitor.counters["request_failed_EINVAL"])
    assert HEADER.size == 16

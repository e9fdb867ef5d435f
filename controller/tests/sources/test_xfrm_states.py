# SPDX-License-Identifier: Apache-2.0
"""Tests the XFRM monitor with a kernel with ESP: states, their lifetimes, and reported usage.

If this machine's kernel has no ESP, `make interop` runs the tests on a kernel with ESP.
"""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator

import pytest

from kernel_namespace import ip, ip_shows, network_namespace
from sluice.model import parse_address
from sluice.sources.xfrm import XfrmMonitor
from sluice.wire import xfrm
from sluice.wire.netlink import messages
from sluice.xfrm_model import (
    Encapsulation,
    KernelAlgorithm,
    KernelLimits,
    KernelState,
    SecretKey,
    StateKey,
    Usage,
)
from sources.test_xfrm import DEADLINE, poll_until

HERE, THERE = parse_address("10.0.1.1"), parse_address("10.0.2.1")
KEY = bytes(range(20))
STATE = "src 10.0.1.1 dst 10.0.2.1 proto esp spi 0x1000"
GCM = f"aead rfc4106(gcm(aes)) 0x{KEY.hex()} 128"


def has_esp() -> bool:
    """Returns whether the kernel accepts ESP states. The kernel may load a module for this."""
    with network_namespace():
        made = subprocess.run(
            ["ip", "xfrm", "state", "add", *STATE.split(), "mode", "tunnel", *GCM.split()],
            check=False,
            capture_output=True,
        )
        return made.returncode == 0


pytestmark = pytest.mark.skipif(not has_esp(), reason="the kernel has no ESP")


@pytest.fixture
def monitor() -> Iterator[XfrmMonitor]:
    with network_namespace():
        monitor = XfrmMonitor()
        monitor.start()
        yield monitor
        monitor.close()


def add(monitor: XfrmMonitor, *words: str) -> KernelState:
    ip(" ".join(("xfrm state add", STATE, *words)))
    poll_until(monitor, lambda: monitor.states)
    return the_state(monitor)


def the_state(monitor: XfrmMonitor) -> KernelState:
    (state,) = monitor.states.values()
    return state


def test_a_state_as_it_was_made(monitor: XfrmMonitor) -> None:
    state = add(
        monitor,
        *("reqid 7 mode tunnel flag esn replay-window 256", GCM),
        "limit byte-soft 1000 limit byte-hard 2000 limit time-hard 3600",
    )
    assert state.key == StateKey(THERE, 0x1000, 50)
    assert (state.source, state.reqid, state.mode) == (HERE, 7, 1)
    assert state.flags & xfrm.XFRM_STATE_ESN
    assert state.aead == KernelAlgorithm("rfc4106(gcm(aes))", SecretKey(KEY), 128)
    assert state.replay_window == 256
    assert state.soft.bytes == 1000
    assert state.hard == KernelLimits(bytes=2000, seconds=3600)
    assert not state.is_larval
    fresh = XfrmMonitor()
    fresh.start()
    assert fresh.states == monitor.states
    fresh.close()


def test_a_state_in_udp_with_two_algorithms(monitor: XfrmMonitor) -> None:
    state = add(
        monitor,
        f"reqid 7 mode tunnel enc cbc(aes) 0x{bytes(16).hex()}",
        f"auth-trunc hmac(sha256) 0x{bytes(32).hex()} 128",
        "encap espinudp 4500 4501 0.0.0.0",
    )
    assert state.encryption == KernelAlgorithm("cbc(aes)", SecretKey(bytes(16)))
    assert state.integrity == KernelAlgorithm("hmac(sha256)", SecretKey(bytes(32)), 128)
    assert state.encapsulation == Encapsulation(2, 4500, 4501)


def test_states_go_by_deletion_and_by_flush(monitor: XfrmMonitor) -> None:
    add(monitor, "mode tunnel", GCM)
    ip(f"xfrm state delete {STATE[: STATE.index(' proto')]} proto esp spi 0x1000")
    poll_until(monitor, lambda: not monitor.states)
    add(monitor, "mode tunnel", GCM)
    ip("xfrm state flush")
    poll_until(monitor, lambda: not monitor.states)


def test_an_spi_that_is_being_negotiated_is_larval(monitor: XfrmMonitor) -> None:
    ip("xfrm state allocspi src 10.0.2.1 dst 10.0.1.1 proto esp min 0x2000 max 0x2000")
    fresh = XfrmMonitor()
    fresh.start()
    assert the_state(fresh).is_larval
    fresh.close()


def test_usage_that_is_reported_is_the_kernels(monitor: XfrmMonitor) -> None:
    state = add(monitor, "mode tunnel", GCM)
    usage = Usage(123456, 789, state.usage.added, state.usage.added)
    monitor.report_usage(state, usage)
    shown = ip_shows("-s xfrm state")
    assert "123456(bytes), 789(packets)" in shown
    poll_until(monitor, lambda: True)
    assert not [name for name in monitor.counters if "failed" in name]
    assert monitor.states  # the usage is not a change of the state
    assert the_state(monitor).sequence == 0


@pytest.mark.parametrize("hard", [False, True])
def test_a_lifetime_that_the_engine_saw_reaches_key_managers(
    monitor: XfrmMonitor, hard: bool
) -> None:
    """Checks that an IKE daemon is told when the engine reports the end of an SA's lifetime, so
    that it renews the SA.
    """
    state = add(monitor, "mode tunnel reqid 7", GCM)
    daemon = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 6)
    daemon.bind((0, 1 << (xfrm.XFRMNLGRP_EXPIRE - 1)))
    daemon.settimeout(DEADLINE)
    monitor.expire(state, hard=hard)
    (heard,) = messages(daemon.recv(1 << 16))
    assert heard.type == xfrm.XFRM_MSG_EXPIRE
    assert heard.body[xfrm.STATE_SIZE] == hard
    assert heard.body[xfrm.SELECTOR_SIZE :][:4] == THERE
    poll_until(monitor, lambda: not monitor.states or not hard)
    assert ("0x00001000" in ip_shows("xfrm state")) is not hard
    daemon.close()


def test_a_state_that_reaches_its_hard_time_goes(monitor: XfrmMonitor) -> None:
    add(monitor, "mode tunnel", GCM, "limit time-hard 1")
    poll_until(monitor, lambda: not monitor.states)

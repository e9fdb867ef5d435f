# SPDX-License-Identifier: Apache-2.0
"""Tests the host interfaces for `sluice up`, which carry no packets of the host."""

from __future__ import annotations

import select

from sluice.sources.kernel_host import KernelHost


def test_no_packet_passes() -> None:
    host = KernelHost()
    assert host.deliver([(1, b"frame"), (2, b"frame")]) == 0
    assert host.counters["to_host_of_an_address_that_is_new"] == 2
    assert host.poll(64) == []
    assert host.vrf_devices == {}
    assert select.select([host.fileno()], [], [], 0) == ([], [], [])
    host.close()

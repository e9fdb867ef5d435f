# SPDX-License-Identifier: Apache-2.0
"""The veth pairs between a switch and its tester, in one namespace."""

from __future__ import annotations

from sluice_testkit.namespaces import Namespace, veth

PORTS = (1, 2, 3, 4)
VETH_MTU = 9000


def far_ends(prefix: str = "test") -> dict[int, str]:
    """The interfaces by which the test reaches the ports of the switch."""
    return {port: f"{prefix}{port}" for port in PORTS}


def plug(namespace: Namespace, prefix: str = "test") -> dict[int, str]:
    """Makes the pairs, silent at both ends; returns the switch's end of each port."""
    switch_ends = {}
    for port, far_end in far_ends(prefix).items():
        switch_ends[port] = f"{prefix}-switch{port}"
        veth(namespace, switch_ends[port], namespace, far_end, mtu=VETH_MTU)
        namespace.silence(far_end)
    return switch_ends

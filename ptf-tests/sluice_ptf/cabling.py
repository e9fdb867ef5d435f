# SPDX-License-Identifier: Apache-2.0
"""Creates the veth pairs between a switch and its tester, in one namespace."""

from __future__ import annotations

from sluice_testkit.namespaces import Namespace, veth

PORTS = (1, 2, 3, 4)
VETH_MTU = 9000


def far_ends(prefix: str = "test") -> dict[int, str]:
    """Returns the interface at the tester's end of each port of the switch."""
    return {port: f"{prefix}{port}" for port in PORTS}


def plug(namespace: Namespace, prefix: str = "test") -> dict[int, str]:
    """Creates the veth pairs. Returns the interface at the switch's end of each port.

    The kernel itself sends nothing on the pairs.
    """
    switch_ends = {}
    for port, far_end in far_ends(prefix).items():
        switch_ends[port] = f"{prefix}-switch{port}"
        veth(namespace, switch_ends[port], namespace, far_end, mtu=VETH_MTU)
        namespace.silence(far_end)
    return switch_ends

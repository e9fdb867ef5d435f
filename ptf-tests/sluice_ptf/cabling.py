# SPDX-License-Identifier: Apache-2.0
"""Creates the veth pairs between a switch and its tester, in one namespace."""

from __future__ import annotations

from sluice_testkit.namespaces import Namespace, veth

PORTS = (1, 2, 3, 4)
VETH_MTU = 9000


def far_ends(prefix: str = "test") -> dict[int, str]:
    """Returns the tester's interface for each port of the switch."""
    return {port: f"{prefix}{port}" for port in PORTS}


def plug(namespace: Namespace, prefix: str = "test") -> dict[int, str]:
    """Creates the veth pairs. Returns the switch's interface for each port.

    The kernel does not send on these interfaces.
    """
    switch_ends = {}
    for port, far_end in far_ends(prefix).items():
        switch_ends[port] = f"{prefix}-switch{port}"
        veth(namespace, switch_ends[port], namespace, far_end, mtu=VETH_MTU)
        namespace.silence(far_end)
    return switch_ends

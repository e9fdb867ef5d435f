# SPDX-License-Identifier: Apache-2.0
"""Numbers of network namespaces, and interface indexes that are unique over all of them.

The kernel counts the interfaces of each network namespace from 1. The controller knows an interface
by its index there plus `base` of its namespace. Namespace 0 is the one that the controller runs in;
a VRF that has one of its own gives it the VRF's number.

Invariant: outside of `sources` every interface index is such a sum. Depends on model.
"""

from __future__ import annotations

from dataclasses import replace

from sluice.model import (
    AddressAdded,
    AddressRemoved,
    KernelEvent,
    LinkChanged,
    LinkRemoved,
    NeighborChanged,
)

HOME = 0
"""The namespace that the controller runs in."""
_SHIFT = 24
INDEX_LIMIT = 1 << _SHIFT
"""Indexes in a namespace are below it; the kernel counts them up from 1."""
LAST_NAMESPACE = (1 << 32 - _SHIFT) - 1


def base(namespace: int) -> int:
    """Returns what is added to the kernel's indexes of a namespace."""
    return namespace << _SHIFT


def namespace_of(index: int) -> int:
    """Returns the namespace of an interface."""
    return index >> _SHIFT


def local(index: int) -> int:
    """Returns the kernel's index of an interface, in its namespace."""
    return index & INDEX_LIMIT - 1


def from_namespace(event: KernelEvent, namespace: int) -> KernelEvent:
    """Returns an event of a namespace with indexes that are unique."""
    if namespace == HOME:
        return event
    step = base(namespace)
    match event:
        case LinkChanged(ifindex, macvlan_on=below, master=master):
            return replace(
                event,
                ifindex=ifindex + step,
                # Both are in the same namespace: wire.rtnetlink gives no other.
                macvlan_on=None if below is None else below + step,
                master=None if master is None else master + step,
            )
        case LinkRemoved() | AddressAdded() | AddressRemoved() | NeighborChanged():
            return replace(event, ifindex=event.ifindex + step)

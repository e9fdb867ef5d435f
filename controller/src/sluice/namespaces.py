# SPDX-License-Identifier: Apache-2.0
"""Numbers network namespaces, and makes interface indexes unique across them.

The kernel numbers the interfaces of each network namespace from 1. The controller uses the sum of
the kernel's index and the namespace's `base`. Namespace 0 is the controller's own. The namespace of
a VRF has the VRF's number.

Invariant: outside `sources`, every interface index is such a sum. Depends on model.
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

OWN_NAMESPACE = 0
"""The namespace that the controller runs in."""
_SHIFT = 24
INDEX_LIMIT = 1 << _SHIFT
"""Upper bound (exclusive) of the kernel's indexes in a namespace, which count up from 1."""
LAST_NAMESPACE = (1 << 32 - _SHIFT) - 1


def base(namespace: int) -> int:
    """Returns the offset that is added to the kernel's indexes of a namespace."""
    return namespace << _SHIFT


def namespace_of(index: int) -> int:
    """Returns the namespace of an interface."""
    return index >> _SHIFT


def local(index: int) -> int:
    """Returns the kernel's index of an interface, in its namespace."""
    return index & INDEX_LIMIT - 1


def from_namespace(event: KernelEvent, namespace: int) -> KernelEvent:
    """Returns a copy of an event of a namespace, with unique interface indexes."""
    if namespace == OWN_NAMESPACE:
        return event
    step = base(namespace)
    match event:
        case LinkChanged(ifindex, macvlan_on=below, master=master):
            return replace(
                event,
                ifindex=ifindex + step,
                # Both interfaces are in the same namespace, because wire.rtnetlink drops references
                # to others.
                macvlan_on=None if below is None else below + step,
                master=None if master is None else master + step,
            )
        case LinkRemoved() | AddressAdded() | AddressRemoved() | NeighborChanged():
            return replace(event, ifindex=event.ifindex + step)

# SPDX-License-Identifier: Apache-2.0
"""Records flows in native code. A flow takes about 100 bytes and no Python object.

`NativeFlowCache` has the methods of `flow_cache.FlowCache`, its specification. Methods that may
return very many flows return sequences that make Python's tuples on demand. The time of an
operation on one flow is bounded for any number of flows, because the index of the flows grows in
small steps.

`flow_queue` returns a queue for the writes of many lists. Native code puts the flows of first
packets into this queue without making Python keys. Depends on policy.model, flow_cache and
`sluice._native`.
"""

from __future__ import annotations

from collections.abc import Mapping

from sluice import _native
from sluice.policy.model import Action, FlowKey, FragmentClass
from sluice.state.flow_cache import (
    FlowOperation,
    FlowVerdict,
    FlowWrite,
    FlowWriteResult,
    OfferResult,
    RankedFlow,
)

FLOW_TYPES = _native.FlowTypes(
    key=FlowKey,
    verdict=FlowVerdict,
    write=FlowWrite,
    ranked=RankedFlow,
    fragments=(FragmentClass.WHOLE, FragmentClass.FIRST, FragmentClass.LATER),
    actions=(Action.BYPASS, Action.DISCARD, Action.PROTECT),
    operations=(FlowOperation.INSERT, FlowOperation.MODIFY, FlowOperation.DELETE),
    offers=(
        OfferResult.INSTALLED,
        OfferResult.KNOWN,
        OfferResult.UNDER_WAY,
        OfferResult.OFF,
        OfferResult.STALE,
        OfferResult.FULL,
        OfferResult.HELD,
        OfferResult.UNREAD,
    ),
    results=(
        FlowWriteResult.DONE,
        FlowWriteResult.EXISTS,
        FlowWriteResult.ABSENT,
        FlowWriteResult.FAILED,
    ),
)
"""The types of flows, as native code needs them. The order of enumeration members matters."""


class NativeFlowCache(_native.FlowCache):
    """Records the flows of one list, like `flow_cache.FlowCache`."""

    __slots__ = ()

    def __new__(cls, capacity: int, epoch: int, *, enabled: bool = True) -> NativeFlowCache:
        """Creates an empty cache. `capacity` counts all entries, including stale ones."""
        return super().__new__(cls, FLOW_TYPES, capacity, epoch, enabled)


def flow_queue(caches: Mapping[int, NativeFlowCache]) -> _native.FlowQueue:
    """Returns an empty queue for the flow writes of these caches. `caches` is keyed by list id."""
    return _native.FlowQueue(FLOW_TYPES, dict(caches))

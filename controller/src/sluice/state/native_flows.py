# SPDX-License-Identifier: Apache-2.0
"""Records flows in native code: about 100 bytes for a flow, and no Python object.

`NativeFlowCache` has the methods of `flow_cache.FlowCache`, its specification. Methods that may
return very many flows return sequences that make Python's tuples on demand. No method takes long
for one flow, however many flows there are: the index of the flows grows in small steps.

`flow_queue` returns a queue of the writes of many lists. The queue also takes in the flows of first
packets, without making their keys. Depends on policy.model, flow_cache and `sluice._native`.
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
    """Returns an empty queue of the writes of these caches' flows. The keys are list ids."""
    return _native.FlowQueue(FLOW_TYPES, dict(caches))

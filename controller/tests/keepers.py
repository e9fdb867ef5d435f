# SPDX-License-Identifier: Apache-2.0
"""Starts keepers: processes that hold the TAPs while no controller runs."""

from __future__ import annotations

from collections.abc import Mapping

from sluice.sources.handover import Handover
from sluice.sources.tap_keeper import GRACE_SECONDS, TapKeeper


def start_keeper(
    queues: Mapping[str, int], grace: float = GRACE_SECONDS, handover: Handover | None = None
) -> TapKeeper:
    """Starts a keeper that holds these TAP queues. The keys are the names of the TAPs."""
    keeper = TapKeeper.launch(grace, handover)
    try:
        keeper.hold(queues)
    except OSError:
        keeper.close()
        raise
    return keeper

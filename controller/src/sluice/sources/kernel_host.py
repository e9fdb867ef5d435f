# SPDX-License-Identifier: Apache-2.0
"""Replaces `sources.host` where the kernel keeps its own interfaces (`sluice up`).

The kernel receives the packets for this host from the network cards, and sends its own packets
there. So none of these packets passes the controller, and there are no TAPs. A packet for this host
reaches the switch only if the host got its address a moment ago. Such a packet is dropped and
counted.

Implements `inputs.HostInput`.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping

from sluice.model import HostFrame, KernelEvent


class KernelHost:
    """Has the interface of `HostInterfaces`, but neither provides nor accepts frames."""

    def __init__(self) -> None:
        self.counters: Counter[str] = Counter()
        self._never = os.eventfd(0, os.EFD_CLOEXEC)

    def fileno(self) -> int:
        """Returns a descriptor that is never readable."""
        return self._never

    def poll(self, limit: int) -> list[HostFrame]:
        """Returns an empty list."""
        return []

    def deliver(self, frames: Iterable[tuple[int, bytes]]) -> int:
        """Drops and counts the frames. Returns 0."""
        self.counters["to_host_of_an_address_that_is_new"] += sum(1 for _ in frames)
        return 0

    def apply(self, event: KernelEvent) -> None:
        """Does nothing: the kernel's interfaces are the host's interfaces."""

    @property
    def vrf_devices(self) -> Mapping[int, str | None]:
        """Returns an empty mapping: there is only the default VRF."""
        return {}

    def publish(self) -> None:
        """Does nothing."""

    def close(self) -> None:
        """Closes the descriptor."""
        os.close(self._never)

# SPDX-License-Identifier: Apache-2.0
"""Reads and changes the IPsec policy of a running P4 router, through the controller's local API.

This is faster than the `sluice` command, because no process is started. So `commit` returns as soon
as the controller has answered.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sluice_testkit.controller import Controller


@dataclass(frozen=True)
class RuleCounts:
    """Holds the number of packets that matched a rule: by searches of the controller, and by flow
    cache hits.
    """

    searched: int
    hits: int

    def __sub__(self, earlier: "RuleCounts") -> "RuleCounts":
        return RuleCounts(self.searched - earlier.searched, self.hits - earlier.hits)


@dataclass(frozen=True)
class Fates:
    """Counts the packets that the outbound lists have dropped, by reason, since the controller's
    start.
    """

    discarded_by_switch: int
    discarded_by_controller: int
    stale: int
    without_sa: int

    @property
    def all(self) -> int:
        """The sum over all reasons."""
        by_policy = self.discarded_by_switch + self.discarded_by_controller
        return by_policy + self.stale + self.without_sa

    def __sub__(self, earlier: "Fates") -> "Fates":
        return Fates(
            self.discarded_by_switch - earlier.discarded_by_switch,
            self.discarded_by_controller - earlier.discarded_by_controller,
            self.stale - earlier.stale,
            self.without_sa - earlier.without_sa,
        )


class SpdControl:
    """Reads and changes one SPD of a controller."""

    def __init__(self, controller: Controller, spd: str):
        self._ask = controller.ask
        self.spd = spd

    def commit(self, file: Path) -> tuple[float, float]:
        """Commits a file. Returns when the request was sent and when the answer arrived, in seconds
        (monotonic clock).
        """
        text = file.read_text(encoding="utf-8")
        asked = time.monotonic()
        self._ask(command="spd commit", files=[{"name": file.name, "text": text}])
        return asked, time.monotonic()

    def cache(self, on: bool) -> None:
        """Switches the SPD's flow cache on or off."""
        self._ask(command=f"flow-cache {'on' if on else 'off'}", spd=self.spd)

    def rule(self, name: str) -> RuleCounts:
        """Returns the counts of an outbound rule. They are zero if the list has no such rule."""
        lists = self._ask(command="show", what="spd", spd=self.spd)
        outbound = next(one for one in lists if one["direction"] == "outbound")
        found = next((rule for rule in outbound["rules"] if rule["name"] == name), None)
        return RuleCounts(found["searched"], found["hits"]) if found else RuleCounts(0, 0)

    def flow(self, source_port: int, destination_port: int) -> dict[str, Any] | None:
        """Returns the valid outbound flow between these ports, or None if the switch does not have
        it.
        """
        ports = source_port, destination_port
        for flow in self._ask(command="show", what="flows", spd=self.spd):
            found = flow["source_port"], flow["destination_port"]
            wanted = flow["direction"] == "outbound" and found == ports
            if wanted and not flow["stale"] and flow["packets"] is not None:
                return dict(flow)
        return None

    def fates(self) -> Fates:
        """Returns the numbers of packets that the outbound lists have dropped, by reason."""
        counters = self._ask(command="show", what="counters")
        drops = {name: count["packets"] for name, count in counters["switch_drops"].items()}
        by_cpu = sum(
            count
            for part in counters["controller"].values()
            for name, count in part.items()
            if name == "dropped: policy discards outbound"
        )
        return Fates(
            drops.get("OUTBOUND_DISCARD", 0),
            by_cpu,
            drops.get("STALE_VERDICT", 0),
            drops.get("NO_SA", 0),
        )

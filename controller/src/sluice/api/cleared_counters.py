# SPDX-License-Identifier: Apache-2.0
"""Resets the counts that `show` displays, for `sluice clear counters`.

The counters themselves are not reset, because Prometheus metrics must not decrease. Instead, each
view subtracts the values that the counters had at the last clearing. Pure.
"""

from __future__ import annotations

from typing import Any

COUNTED = {
    "counters": ("switch_drops", "controller"),
    "punts": ("results", "held_packets"),
    "reason": ("to_cpu", "metered_away", "queue_full", "handled"),
    "interface": ("received", "sent"),
}
"""For each view, the keys whose values are counts or contain only counts."""


class ClearedCounters:
    """Holds the views' counter values at the last clearing. Empty before the first clearing."""

    def __init__(self) -> None:
        self.at: float | None = None
        self._before: dict[str, Any] = {}

    def clear(
        self,
        now: float,
        *,
        counters: dict[str, Any],
        punts: dict[str, Any],
        interfaces: list[dict[str, Any]],
    ) -> None:
        """Records the current values of these views. Later views show the difference from them."""
        self.at = now
        by_name = {one["name"]: one for one in interfaces}
        self._before = {"counters": counters, "punts": punts, "interfaces": by_name}

    def counters(self, view: dict[str, Any]) -> dict[str, Any]:
        """Returns the view `counters` with counts since the last clearing."""
        return _since(view, self._before.get("counters"), COUNTED["counters"])

    def punts(self, view: dict[str, Any]) -> dict[str, Any]:
        """Returns the view `punts` with counts since the last clearing."""
        before = self._before.get("punts") or {"reasons": {}}
        reasons = {
            name: _since(reason, before["reasons"].get(name), COUNTED["reason"])
            for name, reason in view["reasons"].items()
        }
        return _since(view, before, COUNTED["punts"]) | {"reasons": reasons}

    def interfaces(self, view: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Returns the view `interfaces` with counts since the last clearing."""
        before = self._before.get("interfaces", {})
        return [_since(one, before.get(one["name"]), COUNTED["interface"]) for one in view]


def _since(
    view: dict[str, Any], before: dict[str, Any] | None, keys: tuple[str, ...]
) -> dict[str, Any]:
    before = before or {}
    return view | {key: _less(view[key], before.get(key)) for key in keys}


def _less(now: Any, before: Any) -> Any:
    """Returns the counts in `now` minus those in `before`.

    If a count is lower than before, the switch has restarted. Then returns the count unchanged.
    """
    if isinstance(now, dict) and isinstance(before, dict):
        return {name: _less(count, before.get(name)) for name, count in now.items()}
    if isinstance(now, int) and isinstance(before, int) and now >= before:
        return now - before
    return now

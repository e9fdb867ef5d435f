# SPDX-License-Identifier: Apache-2.0
"""Decides which lists are in the switch's rule tables. The mode of their SPD decides, and in mode
`auto` also their length.

Mode `auto` uses the tables for a list whose rules all fit, because then no packet needs a search by
the controller. Two limits keep the tables from slowing the router down:

- BMv2 compares each packet with all entries of a rule table, so `auto` fills a table only up to
  `SCANNED_ENTRIES`. sluice-switch compiles the entries to a classifier, whose rate hardly depends
  on their number (`make bench-spd-cache`).
- A commit writes all entries of a list again, so `auto` uses the tables only for lists of at most
  `REWRITTEN_ENTRIES`.

Mode `auto` never uses the tables for a mirrored SPD:

- A mirrored list ends with the kernel's defaults, which the tables cannot hold
  (`state.rule_tables`). So some packets would always need a search by the controller.
- Each tunnel that an IKE daemon sets up or takes down changes the list. With the tables, the cost
  of such a change would grow with the number of tunnels.

Pure. Depends on policy.config, connection_config and state.rule_tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sluice.connection_config import BMV2
from sluice.policy.config import LookupMode, SpdConfig
from sluice.policy.model import Direction
from sluice.state.rule_tables import CompiledList, EntryCounts
from sluice.state.spd import PolicyList

SCANNED_ENTRIES = 1_000
"""Entries of a rule table of BMv2 that mode `auto` uses at most, for all lists together.

With this many entries BMv2 needs 10 to 25 % more CPU time for a packet than with 10, and with
10,000 entries 150 % more (`python -m bench.table_bounds lookup`).
"""
REWRITTEN_ENTRIES = 2_000
"""Entries of one list, for each family, that mode `auto` writes to the rule tables at most.

With this many entries, a commit of one rule takes three times as long as with the flow cache, and
is in force within some 0.3 s (`python -m bench.table_bounds commit`).
"""
SETS_OF_A_LIST = 2
"""Number of rule sets that a list has during a commit: the old and the new one."""


class Choice(NamedTuple):
    """Holds the mode in which a list is enforced, and the reason in words.

    `why` is the empty text for `mode: cache`.
    """

    mode: LookupMode
    why: str


class TableUse:
    """Decides how much of the rule tables each list uses.

    `spds` are the configured SPDs by name. `sizes` are the sizes of the rule tables, in entries.
    `target` is the switch's target, as configured.
    """

    def __init__(
        self, spds: Mapping[str, SpdConfig], sizes: Mapping[Direction, EntryCounts], target: str
    ) -> None:
        self._spds = spds
        self._sizes = sizes
        self._is_scanned = target == BMV2

    def is_used(self, spd: str) -> bool:
        """Returns whether an SPD's rules may be in the rule tables."""
        config = self._spds[spd]
        if config.mode is LookupMode.AUTO:
            return not config.is_mirrored
        return config.mode is not LookupMode.CACHE

    def capacity(self, spd: str, direction: Direction) -> EntryCounts:
        """Returns the number of entries that a list may use.

        All lists share the tables equally. Each list needs room for two sets: one in force and a
        new one.
        """
        shares = SETS_OF_A_LIST * max(1, sum(map(self.is_used, self._spds)))
        is_auto = self._spds[spd].mode is LookupMode.AUTO

        def share(size: int) -> int:
            if not is_auto:
                return size // shares
            usable = min(size, SCANNED_ENTRIES) if self._is_scanned else size
            return min(usable // shares, REWRITTEN_ENTRIES)

        size = self._sizes[direction]
        return EntryCounts(share(size.ipv4), share(size.ipv6))

    def is_worthwhile(self, spd: str, compiled: CompiledList) -> bool:
        """Returns whether these entries of a list belong in the rule tables."""
        if self._spds[spd].mode is LookupMode.AUTO:
            return compiled.is_complete
        return bool(compiled.entries)

    def choice(self, state: PolicyList, compiled: CompiledList | None, *, held: bool) -> Choice:
        """Returns the mode in which a list is enforced, and why.

        `compiled` has the rules that fit into the tables, or is None if they are not known. `held`:
        the switch holds these rules.
        """
        config = self._spds[state.spd]
        rules = len(state.rules)
        if held and compiled is not None:
            is_auto = config.mode is LookupMode.AUTO
            part = "all" if compiled.is_complete else f"the first {compiled.rules:,} of"
            mode = LookupMode.CACHE_AND_RULES if is_auto else config.mode
            return Choice(mode, f"{part} {rules:,} rules in the tables")
        mode = LookupMode.RULES if config.mode is LookupMode.RULES else LookupMode.CACHE
        if config.mode is LookupMode.CACHE:
            return Choice(mode, "")
        if not self.is_used(state.spd):
            return Choice(mode, "since the rules come from the kernel")
        if compiled is None or compiled.is_complete:
            return Choice(mode, "since the switch does not hold the entries")
        capacity = self.capacity(state.spd, state.direction)
        part = f"only the first {compiled.rules:,} of {rules:,} rules"
        if compiled.rules == rules:
            part = "the rules without the final discard"
        share = f"{capacity.ipv4:,} IPv4 and {capacity.ipv6:,} IPv6 entries"
        return Choice(mode, f"since {part} fit into its share of {share}")

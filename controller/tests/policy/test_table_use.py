# SPDX-License-Identifier: Apache-2.0
"""Tests which lists are in the rule tables on each target, and the reasons that operators see."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sluice.connection_config import BMV2
from sluice.policy.config import LookupMode, SpdConfig
from sluice.policy.model import TCP, Action, Direction, NumberRange, Rule
from sluice.policy.table_use import (
    REWRITTEN_ENTRIES,
    SCANNED_ENTRIES,
    SETS_OF_A_LIST,
    Choice,
    TableUse,
)
from sluice.state.rule_tables import CompiledList, EntryCounts, compile_list
from sluice.state.spd import PolicyList, SpdTable

SIZE = 131_072
OURS = "sluice-switch"
AUTO, CACHE, RULES, BOTH = (
    LookupMode.AUTO,
    LookupMode.CACHE,
    LookupMode.RULES,
    LookupMode.CACHE_AND_RULES,
)


def use_of(target: str, *modes: LookupMode, is_mirrored: bool = False) -> TableUse:
    """Returns a TableUse for SPDs with these modes. The SPDs are named `0`, `1`, ..."""
    spds = {
        str(number): SpdConfig(str(number), None, {}, mode=mode, is_mirrored=is_mirrored)
        for number, mode in enumerate(modes)
    }
    return TableUse(spds, dict.fromkeys(Direction, EntryCounts(SIZE, SIZE // 2)), target)


def listed(rules: int, spd: str = "0") -> PolicyList:
    """Returns a list. Each rule takes one entry of each family."""
    table = SpdTable({})
    name = (spd, Direction.OUTBOUND)
    numbered = (
        Rule(f"p{n}", Action.BYPASS, protocol=(TCP,), destination_port=(NumberRange(n, n),))
        for n in range(1, rules + 1)
    )
    table.apply(table.plan_commit({name: tuple(numbered)}))
    state = table.list_of(*name)
    assert state is not None
    return state


def compiled(use: TableUse, state: PolicyList) -> CompiledList:
    return compile_list(state, use.capacity(state.spd, state.direction))


def choice(use: TableUse, state: PolicyList) -> Choice:
    """Returns the choice if the switch accepts all entries."""
    found = compiled(use, state)
    return use.choice(state, found, held=use.is_worthwhile(state.spd, found))


def test_pinned_lists_share_the_tables_and_a_list_uses_half_of_its_share() -> None:
    use = use_of(OURS, BOTH, RULES, CACHE)
    assert use.capacity("0", Direction.INBOUND) == EntryCounts(SIZE // 4, SIZE // 8)
    assert not use.is_used("2")


@pytest.mark.parametrize(("target", "spds"), [(OURS, 1), (OURS, 100), (BMV2, 1), (BMV2, 4)])
def test_auto_bounds_the_room_of_a_list(target: str, spds: int) -> None:
    use = use_of(target, *[AUTO] * spds)
    room = use.capacity("0", Direction.OUTBOUND)
    usable = SIZE if target == OURS else SCANNED_ENTRIES
    assert room.ipv4 == min(usable // (SETS_OF_A_LIST * spds), REWRITTEN_ENTRIES)
    if target == BMV2:  # two sets of each list must fit
        assert SETS_OF_A_LIST * spds * room.ipv4 <= SCANNED_ENTRIES


def test_a_pinned_list_is_not_bounded_on_bmv2() -> None:
    assert use_of(BMV2, BOTH).capacity("0", Direction.OUTBOUND).ipv4 == SIZE // 2


@pytest.mark.parametrize("target", [OURS, BMV2])
def test_auto_uses_the_tables_for_whole_lists_only(target: str) -> None:
    use = use_of(target, AUTO)
    room = use.capacity("0", Direction.OUTBOUND).ipv4
    rest = len(compiled(use, listed(0)).entries) // 2  # the entries of the final discard
    fitting, longer = room - rest, room - rest + 1
    assert choice(use, listed(fitting)) == (BOTH, f"all {fitting:,} rules in the tables")
    assert choice(use, listed(longer)) == (
        CACHE,
        f"since the rules without the final discard fit into its share of {room:,} IPv4 and"
        f" {room:,} IPv6 entries",
    )
    assert choice(use, listed(room + 1)) == (
        CACHE,
        f"since only the first {room:,} of {room + 1:,} rules fit into its share of {room:,} IPv4"
        f" and {room:,} IPv6 entries",
    )


def test_a_pinned_list_uses_the_tables_for_its_first_rules() -> None:
    state = listed(3)
    part = compile_list(state, EntryCounts(2, 2))
    assert use_of(OURS, BOTH).choice(state, part, held=True) == (
        BOTH,
        "the first 2 of 3 rules in the tables",
    )
    assert choice(use_of(OURS, RULES), state) == (RULES, "all 3 rules in the tables")
    assert use_of(OURS, CACHE).choice(state, None, held=False) == (CACHE, "")


@pytest.mark.parametrize(("mode", "expected"), [(AUTO, CACHE), (BOTH, CACHE), (RULES, RULES)])
def test_a_list_whose_entries_the_switch_does_not_hold(
    mode: LookupMode, expected: LookupMode
) -> None:
    use, state = use_of(OURS, mode), listed(3)
    for found in (None, compiled(use, state)):
        assert use.choice(state, found, held=False) == (
            expected,
            "since the switch does not hold the entries",
        )


def test_a_mirrored_spd_uses_the_tables_only_if_pinned() -> None:
    """Unless it is pinned, it does not reduce the shares of other lists either."""
    use = use_of(OURS, AUTO, is_mirrored=True)
    assert not use.is_used("0")
    assert use.choice(listed(1), None, held=False) == (
        CACHE,
        "since the rules come from the kernel",
    )
    assert use_of(OURS, BOTH, is_mirrored=True).is_used("0")
    spds = {
        "0": SpdConfig("0", None, {}),
        "1": replace(SpdConfig("1", None, {}), is_mirrored=True),
    }
    sizes = dict.fromkeys(Direction, EntryCounts(1_000, 1_000))
    assert TableUse(spds, sizes, OURS).capacity("0", Direction.INBOUND) == EntryCounts(500, 500)

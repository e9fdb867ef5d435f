# SPDX-License-Identifier: Apache-2.0
"""Which routes a switch without them gets first, and that none is lost on the way."""

from __future__ import annotations

import asyncio

from scenes import slot
from sluice.entities import BLACKHOLE, Key, Target, TargetKind, Value
from sluice.table_order import SLICE, in_order

LEG = Target(TargetKind.NEXTHOP, 4)


def test_what_drops_comes_first_and_short_prefixes_before_long_ones() -> None:
    texts = [
        "20.0.1.0/24",
        "0.0.0.0/0",
        "20.0.0.0/12",
        "2001:db8::/32",
        "20.0.2.0/24",
        "21.0.0.0/9",
    ]
    desired: dict[Key, Value] = {slot(text): LEG for text in texts}
    desired[slot("22.0.0.0/16")] = BLACKHOLE
    order = ["22.0.0.0/16", "0.0.0.0/0", "21.0.0.0/9", "20.0.0.0/12", "2001:db8::/32"]
    parts = asyncio.run(in_order(desired, {}))[::-1]
    assert parts[:5] == [[slot(text)] for text in order]
    assert len(parts) == 6
    assert {*parts[5]} == {slot("20.0.1.0/24"), slot("20.0.2.0/24")}


def test_all_is_there_once_but_what_the_switch_holds() -> None:
    keys: list[Key] = [slot(f"20.{n >> 8}.{n & 255}.0/24") for n in range(3 * SLICE)]
    desired: dict[Key, Value] = dict.fromkeys(keys, LEG)
    held: dict[Key, Value] = dict.fromkeys(keys[:100], LEG)
    held[keys[100]] = BLACKHOLE
    parts = asyncio.run(in_order(desired, held))
    found = [key for part in parts for key in part]
    assert len(found) == len(set(found))
    assert set(found) == set(keys[100:])

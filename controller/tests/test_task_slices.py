# SPDX-License-Identifier: Apache-2.0
"""Tests that long walks run in slices."""

from __future__ import annotations

import asyncio

from sluice.task_slices import drained


def test_what_is_drained_is_given_once_and_forgotten_at_once() -> None:
    async def scenario() -> None:
        items, found, left = list(range(10)), [], []
        async for part in drained(items, 4):
            found.append(part)
            left.append(len(items))
        assert found == [[6, 7, 8, 9], [2, 3, 4, 5], [0, 1]]
        assert left == [6, 2, 0]

    asyncio.run(scenario())

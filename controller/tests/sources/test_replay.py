# SPDX-License-Identifier: Apache-2.0
"""Tests how the end of zebra's replay is detected, and that routes stay if the kernel has them."""

from __future__ import annotations

from sluice.model import (
    FpmSessionClosed,
    FpmSessionOpened,
    Prefix,
    Route,
    RouteDeleted,
    RouteKey,
    RouteUpdated,
)
from sluice.sources.replay import ReplayGate

A, B = (RouteKey(254, Prefix.parse(text)) for text in ("10.1.0.0/16", "10.2.0.0/16"))


def opened(quiet: float = 3.0) -> ReplayGate:
    gate = ReplayGate(quiet, ask_again_seconds=30.0)
    gate.note(FpmSessionOpened("peer"), 100.0)
    return gate


def test_nothing_is_due_without_a_session() -> None:
    assert ReplayGate(3.0).due is None
    gate = opened()
    gate.note(FpmSessionClosed("gone"), 101.0)
    assert gate.due is None


def test_every_event_puts_it_off() -> None:
    gate = opened()
    assert gate.due == 103.0
    gate.note(RouteDeleted(A), 102.0)
    assert gate.due == 105.0


def test_what_waits_to_be_read_puts_it_off() -> None:
    gate = opened()
    gate.unread(104.0)
    assert gate.due == 107.0
    gate.settled(0, 107.0)
    gate.unread(108.0)
    assert gate.due is None


def test_while_the_kernel_disagrees_events_bring_the_question_forward() -> None:
    gate = opened()
    gate.settled(1, 103.0)
    gate.note(RouteDeleted(B), 105.0)
    assert gate.due == 108.0


def test_when_nothing_was_kept_all_is_settled() -> None:
    gate = opened()
    gate.settled(0, 106.0)
    assert gate.due is None


def test_what_the_kernel_holds_is_asked_about_again() -> None:
    gate = opened()
    gate.settled(1, 106.0)
    assert gate.due == 136.0
    gate.settled(0, 136.0)
    assert gate.due is None


def test_routes_of_a_vrfs_table_that_a_replay_left_out_are_the_kernels() -> None:
    static, boot = 196, 3
    keys = [RouteKey(table, A.prefix) for table in (254, 100, 100, 100, 77)]
    keys[2] = keys[2]._replace(prefix=B.prefix)
    keys[3] = keys[3]._replace(prefix=Prefix.parse("10.3.0.0/16"))
    protocols = (static, static, boot, static, static)
    kernel = [Route(key, protocol, 20, ()) for key, protocol in zip(keys, protocols, strict=True)]
    gate = ReplayGate(3.0, tables=frozenset({100}))
    named = {keys[3]}
    assert gate.left_out(kernel, named.__contains__) == [RouteUpdated(kernel[1])]
    assert ReplayGate(3.0).left_out(kernel, named.__contains__) == []

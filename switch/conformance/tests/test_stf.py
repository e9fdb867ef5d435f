# SPDX-License-Identifier: Apache-2.0
"""Tests the parser of STF: the result of each statement, and the lines that are no statement."""

import pytest

from sluice_conformance import stf


def one(line: str) -> stf.Statement:
    ((_, statement),) = stf.parse(line)
    return statement


def test_comments_blank_lines_and_line_numbers() -> None:
    text = "# nothing\n\nwait # for it\n  WAIT\n"
    assert stf.parse(text) == [(3, stf.Wait()), (4, stf.Wait())]


def test_add_with_keys_and_arguments() -> None:
    assert one("add tab1 eth.dst:0xa1 vlan.vid:7 act(port:2, idx:10)") == stf.Add(
        table="tab1",
        priority=None,
        keys=(("eth.dst", "0xa1"), ("vlan.vid", "7")),
        call=stf.Call("act", (("port", "2"), ("idx", "10"))),
    )


def test_add_with_priority_stars_and_label() -> None:
    assert one("add t 503 data.f1:0x**01 c.set(val:0b1) = A") == stf.Add(
        table="t",
        priority=503,
        keys=(("data.f1", "0x**01"),),
        call=stf.Call("c.set", (("val", "0b1"),)),
        label="A",
    )


def test_names_with_indices_dollars_and_quotes() -> None:
    added = one('add "c.t" 100 extra$0.h:0x25** stack[1].f:3 "$valid$":1 "c.a"("p":0x3)')
    assert isinstance(added, stf.Add)
    assert added.table == "c.t"
    assert [name for name, _ in added.keys] == ["extra$0.h", "stack[1].f", "$valid$"]
    assert added.call == stf.Call("c.a", (("p", "0x3"),))


def test_prefixes_and_ranges_are_kept_as_written() -> None:
    added = one("add t a:0x0a000000/8 b:1->5 c:1..5 act()")
    assert isinstance(added, stf.Add)
    assert [value for _, value in added.keys] == ["0x0a000000/8", "1->5", "1..5"]


def test_an_entry_without_keys() -> None:
    assert one("add t act()") == stf.Add("t", None, (), stf.Call("act", ()))


def test_setdefault() -> None:
    assert one("setdefault t c.act(x:1)") == stf.SetDefault("t", stf.Call("c.act", (("x", "1"),)))


def test_packets_are_hexadecimal_with_any_spaces() -> None:
    assert one("packet 3 00 0A0b  ff") == stf.Packet(3, b"\x00\x0a\x0b\xff")


@pytest.mark.parametrize(
    ("line", "expect"),
    [
        ("expect 2 00** AB", stf.Expect(2, "00**ab", whole=False)),
        ("expect 2 00** AB $", stf.Expect(2, "00**ab", whole=True)),
        ("expect 2 00$", stf.Expect(2, "00", whole=True)),
        ("expect 2", stf.Expect(2, None, whole=False)),
    ],
)
def test_expect(line: str, expect: stf.Expect) -> None:
    assert one(line) == expect


@pytest.mark.parametrize(
    ("line", "check"),
    [
        ("check_counter c(10)", stf.CheckCounter("c", 10, None, "==", 0)),
        ("check_counter c(10) packets == 2", stf.CheckCounter("c", 10, "packets", "==", 2)),
        ("check_counter c($A) BYTES >= 39", stf.CheckCounter("c", "$A", "bytes", ">=", 39)),
    ],
)
def test_check_counter(line: str, check: stf.CheckCounter) -> None:
    assert one(line) == check


def test_replication() -> None:
    text = "mirroring_add 5 4\nmirroring_add_mc 8 3\nmc_mgrp_create 3\nmc_node_create 400 6 7\n"
    statements = [statement for _, statement in stf.parse(text + "mc_node_associate 3 0")]
    assert statements == [
        stf.MirrorTo(5, 4),
        stf.MirrorToGroup(8, 3),
        stf.CreateGroup(3),
        stf.CreateNode(400, (6, 7)),
        stf.Associate(3, 0),
    ]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("frobnicate 1", "'frobnicate' is not a statement"),
        ("packet 1 0", "fromhex"),
        ("packet x 00", "int"),
        ("expect 1 0g", "not hexadecimal digits"),
        ("add t a:1 act", "not add TABLE"),
        ("add t act(a:1 b)", "not a list"),
        ("setdefault t act", "not ACTION"),
        ("mirroring_add 1", "needs 2 numbers"),
        ("check_counter c", "not check_counter"),
    ],
)
def test_what_is_no_statement(line: str, says: str) -> None:
    with pytest.raises(stf.StfError, match=r"^line 2: ") as error:
        stf.parse(f"\n{line}\n")
    assert says in str(error.value)


@pytest.mark.parametrize(
    ("text", "value"), [("10", 10), ("0x1F", 31), ("0b101", 5), ("0o17", 15), ("007", 7)]
)
def test_numbers(text: str, value: int) -> None:
    assert stf.number(text) == value

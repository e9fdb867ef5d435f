# SPDX-License-Identifier: Apache-2.0
"""Tests the encoding of long lists in blocks. The record and the history share the blocks'
files."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sluice.policy.encoded_rules import LONGEST_SHORT, EncodedRules, digests_of
from sluice.policy.history import CommitHistory, HistoryError
from sluice.policy.model import Action, Direction, NumberRange, Rule
from sluice.policy.spdstore import SpdStore, SpdStoreError
from sluice.state.spd import SpdTable

NAME = "corp", Direction.OUTBOUND
RULES = tuple(
    Rule(
        f"rule-{number}", Action.BYPASS, protocol=(17,), source_port=(NumberRange(number, number),)
    )
    for number in range(2 * LONGEST_SHORT)
)
EDITED = (*RULES[:5000], RULES[0]._replace(name="new"), *RULES[5000:])


def blocks_in(directory: Path) -> set[str]:
    return {path.name for path in (directory / "blocks").iterdir()}


def test_a_short_list_is_an_array_and_a_long_one_has_blocks(tmp_path: Path) -> None:
    encoded = EncodedRules(tmp_path)
    short = json.loads(encoded.of(NAME, RULES[:LONGEST_SHORT]))
    assert len(short) == LONGEST_SHORT
    assert not (tmp_path / "blocks").exists()
    text = encoded.of(NAME, RULES)
    assert len(digests_of(json.loads(text))) > 1
    for listed in (short, json.loads(text)):
        assert EncodedRules(tmp_path).decode(listed) == RULES[: len(encoded.decode(listed))]


def test_an_edit_adds_few_blocks(tmp_path: Path) -> None:
    encoded = EncodedRules(tmp_path)
    encoded.of(NAME, RULES)
    before = blocks_in(tmp_path)
    text = encoded.of(NAME, EDITED)
    assert 1 <= len(blocks_in(tmp_path) - before) <= 2
    assert EncodedRules(tmp_path).of(NAME, EDITED) == text
    assert encoded.decode(json.loads(text)) == EDITED


def test_after_a_restart_only_changed_blocks_are_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = EncodedRules(tmp_path).of(NAME, RULES)
    restarted = EncodedRules(tmp_path)
    restarted.decode(json.loads(text), NAME)
    encoded: list[Rule] = []

    def encode(rule: Rule) -> str:
        encoded.append(rule)
        return rule.name

    monkeypatch.setattr("sluice.policy.encoded_rules._encode", encode)
    restarted.of(NAME, EDITED)
    assert 0 < len(encoded) < len(RULES)


def test_blocks_without_a_user_are_removed_and_written_again(tmp_path: Path) -> None:
    encoded = EncodedRules(tmp_path)
    encoded.use("record", digests_of(json.loads(encoded.of(NAME, RULES))))
    used = blocks_in(tmp_path)
    encoded.of(NAME, EDITED)
    encoded.remove_unused()
    assert blocks_in(tmp_path) == used
    assert encoded.decode(json.loads(encoded.of(NAME, EDITED))) == EDITED


def test_record_and_history_of_a_long_list(tmp_path: Path) -> None:
    encoded = EncodedRules(tmp_path)
    table, store, history = (
        SpdTable({}),
        SpdStore(tmp_path, encoded),
        CommitHistory(tmp_path, encoded),
    )
    before: dict[Direction, tuple[Rule, ...]] = dict.fromkeys(Direction, ())
    for rules in (RULES, EDITED):
        commit = table.plan_commit({NAME: rules})
        store.prepare(table.record_with(commit))
        store.save(table.record_with(commit))
        table.apply(commit)
        after: dict[Direction, tuple[Rule, ...]]
        after = {Direction.INBOUND: (), Direction.OUTBOUND: rules}
        history.append("commit", {"corp": after}, {"corp": before})
        before = after
    (state,) = table.lists.values()
    (loaded,) = SpdStore(tmp_path).load().lists
    assert loaded.rules == EDITED
    assert dict(loaded.rule_ids) == dict(state.numbers)
    assert loaded == state.record()
    restarted = CommitHistory(tmp_path)
    assert restarted.rules_after(1, ["corp"])["corp"][Direction.OUTBOUND] == RULES
    assert restarted.rules_after(2, ["corp"])["corp"][Direction.OUTBOUND] == EDITED

    restored = SpdTable({})
    restored.restore(SpdStore(tmp_path).load(), ["corp"])
    (again,) = restored.plan_commit({NAME: EDITED}).lists
    assert again.rule_ids == state.rule_ids


@pytest.mark.parametrize("damage", ["missing", "changed", "cut"])
def test_a_damaged_block_is_reported(tmp_path: Path, damage: str) -> None:
    encoded = EncodedRules(tmp_path)
    table, store, history = (
        SpdTable({}),
        SpdStore(tmp_path, encoded),
        CommitHistory(tmp_path, encoded),
    )
    store.save(table.record_with(table.plan_commit({NAME: RULES})))
    rules: dict[Direction, tuple[Rule, ...]]
    rules = {Direction.INBOUND: (), Direction.OUTBOUND: RULES}
    history.append("commit", {"corp": rules}, {"corp": rules})
    path, other = sorted((tmp_path / "blocks").iterdir())[:2]
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(other.read_bytes() if damage == "changed" else path.read_bytes()[:-9])
    with pytest.raises(SpdStoreError, match=path.name if damage == "missing" else "damaged"):
        store.load()
    with pytest.raises(HistoryError):
        history.rules_after(1, ["corp"])

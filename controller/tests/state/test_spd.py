# SPDX-License-Identifier: Apache-2.0
"""Tests the plan of a commit: which lists change, which rules keep their numbers, and that no
number is given to two rules."""

from __future__ import annotations

import pytest

from sluice.model import parse_address
from sluice.policy.model import (
    OPAQUE,
    TCP,
    UDP,
    Action,
    Direction,
    NumberRange,
    Rule,
    Scope,
    Selectors,
)
from sluice.state.rule_ids import TooManyRulesError
from sluice.state.spd import (
    MAXIMUM_COUNT,
    MAXIMUM_LIST_ID,
    Commit,
    ListVersion,
    SpdRecord,
    SpdTable,
    TooManyListsError,
    advance,
    fingerprint,
)

OUT, IN = Direction.OUTBOUND, Direction.INBOUND
WEB = Rule("web", Action.PROTECT, "branch", protocol=(TCP,))
DNS = Rule("dns", Action.BYPASS, protocol=(UDP,))
REST = Rule("rest", Action.DISCARD)
PACKET = Selectors(parse_address("10.0.0.1"), parse_address("10.0.0.2"), TCP, 1, 2, None, False)
BUNDLES = {"branch": 7}


def table() -> SpdTable:
    spd = SpdTable(BUNDLES)
    spd.apply(spd.plan_commit({("corp", OUT): [WEB, DNS], ("corp", IN): [REST]}))
    return spd


def commit(spd: SpdTable, *rules: Rule) -> Commit:
    planned = spd.plan_commit({("corp", OUT): rules})
    spd.apply(planned)
    return planned


def outbound_ids(spd: SpdTable) -> dict[str, int]:
    state = spd.list_of("corp", OUT)
    assert state is not None
    return dict(zip((rule.name for rule in state.rules), state.rule_ids, strict=True))


def version(spd: SpdTable, direction: Direction = OUT) -> ListVersion:
    state = spd.list_of("corp", direction)
    assert state is not None
    return state.version


def test_a_search_gives_rule_action_and_bundle() -> None:
    outbound = table().list_of("corp", OUT)
    assert outbound is not None
    assert outbound.search(PACKET) == (1, Action.PROTECT, 7)
    assert outbound.search(PACKET._replace(protocol=UDP)) == (2, Action.BYPASS, 0)
    assert outbound.search(PACKET._replace(protocol=50)) == (3, Action.DISCARD, 0)


def test_every_list_has_a_number_for_its_own_final_discard() -> None:
    spd = table()
    assert [state.final_id for state in spd.lists.values()] == [3, 5]
    assert not {3, 5} & {one for state in spd.lists.values() for one in state.rule_ids}
    commit(spd, DNS)
    # The final discard keeps its number, so its hit counter is not reset.
    assert spd.lists[1].final_id == 3


def test_lists_have_ids_of_their_own_and_start_at_one() -> None:
    spd = table()
    assert {state.list_id for state in spd.lists.values()} == {1, 2}
    assert version(spd) == version(spd, IN) == ListVersion(1, 1)


def test_a_commit_changes_only_lists_whose_rules_changed() -> None:
    spd = table()
    planned = spd.plan_commit({("corp", OUT): [DNS, WEB], ("corp", IN): [REST]})
    assert [state.name for state in planned.lists] == [("corp", OUT)]
    assert planned.spds == ("corp",)
    assert version(spd) == ListVersion(1, 1)  # the plan is not applied yet
    spd.apply(planned)
    assert version(spd) == ListVersion(2, 2)
    assert version(spd, IN) == ListVersion(1, 1)
    assert spd.plan_commit({("corp", OUT): [DNS, WEB]}) == Commit(())


def test_a_plan_that_failed_does_not_give_its_numbers_back() -> None:
    spd = table()
    spd.plan_commit({("corp", OUT): [DNS]})
    commit(spd, DNS)
    assert version(spd) == ListVersion(3, 3)


def test_unchanged_rules_keep_their_ids_and_others_get_unused_ones() -> None:
    spd = table()
    assert outbound_ids(spd) == {"web": 1, "dns": 2}
    changed = DNS._replace(protocol=(UDP, TCP))
    planned = commit(spd, REST, changed, WEB)
    assert outbound_ids(spd) == {"rest": 6, "dns": 7, "web": 1}
    assert planned.rule_ids.fresh == {("corp", Direction.OUTBOUND): (6, 7)}
    assert planned.rule_ids.released == (2,)


def test_audit_is_part_of_a_rule_and_changes_no_other_rules_fingerprint() -> None:
    ports = (NumberRange(80, 80),)
    web = WEB._replace(destination_port=ports, icmp=OPAQUE)
    # This fingerprint is from a version in which rules had no key `audit`. It must not change,
    # because rules on disk are found by their fingerprint, and so keep their numbers.
    assert fingerprint(web) == "a1f683ffca6b9c75ad878e26a906f33c"
    assert fingerprint(REST._replace(audit=True)) != fingerprint(REST)
    # This fingerprint is from a version in which rules had no mobility types.
    rejecting = web._replace(action=Action.DISCARD, bundle=None, reject=True, scope=Scope.OWN)
    assert fingerprint(rejecting) == "56cc04f5b5827a0e0aad3aeecfc3bc64"
    assert fingerprint(WEB._replace(mobility_type=OPAQUE)) != fingerprint(WEB)
    spd = table()
    before = outbound_ids(spd)
    commit(spd, WEB, DNS._replace(action=Action.DISCARD, audit=True))
    after = outbound_ids(spd)
    assert after["web"] == before["web"]
    assert after["dns"] != before["dns"]


def test_a_bump_keeps_rules_and_retires_flows() -> None:
    spd = table()
    state = spd.list_of("corp", OUT)
    assert state is not None
    spd.apply(spd.plan_bump([state.list_id]))
    assert version(spd) == ListVersion(2, 2)
    assert outbound_ids(spd) == {"web": 1, "dns": 2}


def test_clearing_retires_flows_and_no_answer_under_way() -> None:
    spd = table()
    spd.apply(spd.plan_clear([1]))
    assert version(spd) == ListVersion(2, 1)
    spd.plan_bump([1])  # the plan is never applied
    spd.apply(spd.plan_clear([1]))
    assert version(spd) == ListVersion(4, 1)
    commit(spd, DNS)
    assert version(spd) == ListVersion(5, 3)


def test_another_number_for_a_bundle_is_another_policy() -> None:
    before = table()
    spd = SpdTable({"branch": 8})
    spd.restore(before.record_with(Commit(())), ["corp"])
    planned = spd.plan_start(
        {("corp", OUT): [WEB, DNS]}, {1: ListVersion(1, 1), 2: ListVersion(1, 1)}
    )
    assert [state.version for state in planned.lists] == [ListVersion(2, 2)]


# -- restart


def restarted(
    rules: list[Rule], found: dict[int, ListVersion], *observed: tuple[int, ListVersion]
) -> tuple[SpdTable, Commit]:
    record = table().record_with(Commit(()))
    spd = SpdTable(BUNDLES)
    spd.restore(record, ["corp"])
    for list_id, seen in (*found.items(), *observed):
        spd.observe(list_id, seen)
    return spd, spd.plan_start({("corp", OUT): rules, ("corp", IN): [REST]}, found)


FOUND = {1: ListVersion(1, 1), 2: ListVersion(1, 1)}


def test_a_restart_that_finds_everything_as_it_was_changes_nothing() -> None:
    spd, planned = restarted([WEB, DNS], FOUND)
    assert planned == Commit(())
    assert outbound_ids(spd) == {"web": 1, "dns": 2}
    state = spd.list_of("corp", OUT)
    assert state is not None
    assert state.search(PACKET) == (1, Action.PROTECT, 7)


def test_a_restart_with_other_rules_bumps_and_keeps_the_ids_of_rules_that_stayed() -> None:
    spd, planned = restarted([DNS], FOUND)
    spd.apply(planned)
    assert version(spd) == ListVersion(2, 2)
    assert outbound_ids(spd) == {"dns": 2}


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        ({2: ListVersion(1, 1)}, ListVersion(2, 2)),  # list 1 is missing in the switch
        ({1: ListVersion(1, 2), 2: ListVersion(1, 1)}, ListVersion(2, 3)),
        (
            {1: ListVersion(9, 1), 2: ListVersion(1, 1)},
            ListVersion(10, 2),
        ),  # the record on disk is older than the list in the switch
    ],
)
def test_a_restart_that_finds_other_numbers_bumps_above_all(
    found: dict[int, ListVersion], expected: ListVersion
) -> None:
    spd, planned = restarted([WEB, DNS], found)
    spd.apply(planned)
    assert version(spd) == expected
    assert version(spd, IN) == ListVersion(1, 1)


def test_a_flow_from_an_epoch_that_the_disk_does_not_know_forces_a_bump() -> None:
    spd, planned = restarted([WEB, DNS], FOUND, (1, ListVersion(5, 0)))
    spd.apply(planned)
    state = spd.lists[1]
    assert state.version.epoch == 6


def test_another_spd_gets_list_ids_that_nobody_had() -> None:
    spd = SpdTable(BUNDLES)
    spd.restore(table().record_with(Commit(())), ["other"])
    planned = spd.plan_start({("other", OUT): [WEB]}, FOUND)
    assert [(state.list_id, state.version) for state in planned.lists] == [(3, ListVersion(1, 1))]
    record = spd.record_with(planned)
    assert record.issued == {1: ListVersion(1, 1), 2: ListVersion(1, 1)}
    assert [one.spd for one in record.lists] == ["other"]


def test_a_list_id_that_changes_hands_goes_on_counting() -> None:
    spd = SpdTable(BUNDLES, maximum_list_id=2)
    spd.restore(table().record_with(Commit(())), ["other"])
    planned = spd.plan_start({("other", OUT): [WEB]}, FOUND)
    assert [(state.list_id, state.version) for state in planned.lists] == [(1, ListVersion(2, 2))]
    assert spd.record_with(planned).issued == {2: ListVersion(1, 1)}


def test_the_record_has_the_rules_and_the_numbers_of_plans_that_failed() -> None:
    spd = table()
    generated = Rule("generated:x", Action.BYPASS, generated=True)
    commit(spd, generated, WEB)
    spd.plan_commit({("corp", OUT): [DNS]})  # the plan is never applied
    record = spd.record_with(Commit(()))
    assert {one.direction: one.rules for one in record.lists} == {OUT: (WEB,), IN: (REST,)}
    assert record.issued == {1: ListVersion(3, 3)}
    again = SpdTable(BUNDLES)
    again.restore(record, ["corp"])
    planned = again.plan_start({("corp", OUT): [generated, WEB]}, {1: ListVersion(2, 2)})
    assert [state.version for state in planned.lists] == [ListVersion(4, 4)]


# -- limits


def test_counts_never_become_zero() -> None:
    assert advance(0) == 1
    assert advance(MAXIMUM_COUNT) == 1


def test_too_many_lists_are_refused() -> None:
    spd = SpdTable({})
    spd.apply(spd.plan_commit({(f"spd{i}", OUT): [REST] for i in range(MAXIMUM_LIST_ID)}))
    with pytest.raises(TooManyListsError):
        spd.plan_commit({("one more", OUT): [REST]})


def test_a_restart_with_too_few_counters_is_refused() -> None:
    spd = SpdTable(BUNDLES, maximum_rule_id=4)
    spd.restore(table().record_with(Commit(())), ["corp"])
    with pytest.raises(TooManyRulesError, match="more than 4 rules"):
        spd.plan_start({("corp", OUT): [WEB, DNS], ("corp", IN): [REST]}, FOUND)


def test_an_empty_record_restores_nothing() -> None:
    spd = SpdTable({})
    spd.restore(SpdRecord(), ["corp"])
    planned = spd.plan_start({("corp", OUT): [REST]}, {})
    assert [state.version for state in planned.lists] == [ListVersion(1, 1)]

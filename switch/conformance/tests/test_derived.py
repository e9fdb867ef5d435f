# SPDX-License-Identifier: Apache-2.0
"""Tests that P4Info is derived correctly from BMv2 JSON."""

from typing import Any

import pytest

from sluice_conformance import derived


def bmv2() -> dict[str, Any]:
    """Returns the JSON of two tables. The action `act` was copied for each of them."""
    return {
        "header_types": [{"name": "h_t", "fields": [["f", 9, False], ["v", "*"]]}],
        "headers": [{"name": "h", "header_type": "h_t"}],
        "actions": [
            {"name": "act", "id": 0, "runtime_data": [{"name": "port", "bitwidth": 9}]},
            {"name": "act", "id": 1, "runtime_data": [{"name": "port", "bitwidth": 9}]},
        ],
        "pipelines": [
            {
                "tables": [
                    {
                        "name": "t",
                        "key": [
                            {"match_type": "ternary", "name": "h.f", "target": ["h", "f"]},
                            {"match_type": "valid", "target": ["h", "$valid$"]},
                        ],
                        "actions": ["act"],
                        "max_size": 16,
                    }
                ]
            },
            {"tables": [{"name": "u", "key": [], "actions": ["act"], "max_size": 1}]},
        ],
        "counter_arrays": [
            {"name": "of_entries", "is_direct": True, "binding": "t"},
            {"name": "indexed", "is_direct": False, "size": 4},
        ],
    }


def test_tables_actions_and_counters() -> None:
    made = derived.p4info(bmv2())
    t, u = made.tables
    assert [(f.name, f.bitwidth) for f in t.match_fields] == [("h.f", 9), ("h.$valid$", 1)]
    assert [action.preamble.name for action in made.actions] == ["act"]
    assert t.action_refs[0].id == u.action_refs[0].id == made.actions[0].preamble.id
    assert made.direct_counters[0].direct_table_id == t.preamble.id
    assert list(t.direct_resource_ids) == [made.direct_counters[0].preamble.id]
    assert made.counters[0].size == 4


def test_action_profiles_are_not_derived() -> None:
    with pytest.raises(ValueError, match="action profiles"):
        derived.p4info(bmv2() | {"action_profiles": [{}]})

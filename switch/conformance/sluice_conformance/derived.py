# SPDX-License-Identifier: Apache-2.0
"""Makes P4Info from BMv2 JSON, for programs for which p4c makes none.

Depends on P4Info's protobuf. p4c makes no P4Info if it has copied a P4_14 action for several
tables, because the copies have the same name. This is no problem for p4c's own test runner, because
BMv2's command line needs no P4Info. The derived P4Info has only what scripts use: tables, actions
by name, counters.
"""

from __future__ import annotations

from typing import Any

from p4.config.v1 import p4info_pb2

# First id of each kind of object (P4Runtime 1.5, section 6.3).
_TABLE, _ACTION = 0x02_000001, 0x01_000001
_COUNTER, _DIRECT_COUNTER = 0x12_000001, 0x13_000001
_MATCH_KINDS = {"valid": "EXACT"}


def p4info(bmv2: dict[str, Any]) -> Any:
    """Returns the P4Info of a program without action profiles. Raises ValueError if it has any."""
    if bmv2.get("action_profiles"):
        raise ValueError("no P4Info is derived for a program with action profiles")
    made = p4info_pb2.P4Info()
    made.pkg_info.arch = "v1model"
    actions = _actions(made, bmv2["actions"])
    tables = [table for pipeline in bmv2["pipelines"] for table in pipeline["tables"]]
    direct = {c["binding"]: c for c in bmv2["counter_arrays"] if c["is_direct"]}
    for index, table in enumerate(tables):
        info = made.tables.add()
        _name(info.preamble, _TABLE + index, table["name"])
        for number, key in enumerate(table["key"], 1):
            kind = _MATCH_KINDS.get(key["match_type"], key["match_type"].upper())
            info.match_fields.add(
                id=number,
                name=_key_name(key),
                bitwidth=_width(bmv2, key["target"]),
                match_type=p4info_pb2.MatchField.MatchType.Value(kind),
            )
        for name in dict.fromkeys(table["actions"]):
            info.action_refs.add(id=actions[name])
        info.size = table["max_size"]
        if table["name"] in direct:
            counter = made.direct_counters.add(direct_table_id=info.preamble.id)
            _name(counter.preamble, _DIRECT_COUNTER + index, direct[table["name"]]["name"])
            counter.spec.unit = p4info_pb2.CounterSpec.BOTH
            info.direct_resource_ids.append(counter.preamble.id)
    indexed = [counter for counter in bmv2["counter_arrays"] if not counter["is_direct"]]
    for index, array in enumerate(indexed):
        counter = made.counters.add(size=array["size"])
        _name(counter.preamble, _COUNTER + index, array["name"])
        counter.spec.unit = p4info_pb2.CounterSpec.BOTH
    return made


def _actions(made: Any, actions: list[dict[str, Any]]) -> dict[str, int]:
    """Adds one action for each name, because all copies of an action are equal. Returns the ids by
    name.
    """
    ids: dict[str, int] = {}
    for action in actions:
        if action["name"] in ids:
            continue
        info = made.actions.add()
        ids[action["name"]] = _ACTION + len(ids)
        _name(info.preamble, ids[action["name"]], action["name"])
        for number, param in enumerate(action["runtime_data"], 1):
            info.params.add(id=number, name=param["name"], bitwidth=param["bitwidth"])
    return ids


def _name(preamble: Any, identifier: int, name: str) -> None:
    preamble.id, preamble.name, preamble.alias = identifier, name, name.rpartition(".")[2]


def _key_name(key: dict[str, Any]) -> str:
    target = key["target"]
    return str(key.get("name") or (target if isinstance(target, str) else ".".join(target)))


def _width(bmv2: dict[str, Any], target: Any) -> int:
    if isinstance(target, str) or target[1] == "$valid$":
        return 1
    header, field = target
    types = {kind["name"]: kind for kind in bmv2["header_types"]}
    (kind,) = (h["header_type"] for h in bmv2["headers"] if h["name"] == header)
    return next(int(width) for name, width, *_ in types[kind]["fields"] if name == field)

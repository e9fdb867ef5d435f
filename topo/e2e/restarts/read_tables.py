# SPDX-License-Identifier: Apache-2.0
"""Prints the contents of a switch. It reads them as a P4Runtime client that is independent of the
controller.

    python read_tables.py ADDRESS P4INFO

The output is one JSON object. It maps each table to a list of entries. An entry has `match` and
`params` by P4 name, with values in hexadecimal, and the prefix length as `length`. The key `groups`
has the members of the next-hop selector's groups. The program decodes entries with P4Info only, and
shares no code with the controller.
"""

import json
import sys
from pathlib import Path
from typing import Any

import grpc
from finsy.proto import p4i, p4r
from google.protobuf import text_format

READ = "/p4.v1.P4Runtime/Read"
TABLES = ("ipv4_fib", "ipv6_fib", "nexthop", "egress_interface", "local_ipv4", "local_ipv6")
SELECTOR = "nexthop_selector"
MAX_MESSAGE = 64 << 20


def main(address: str, p4info: str) -> None:
    """Reads all tables once and prints them."""
    info = text_format.Parse(Path(p4info).read_text(encoding="utf-8"), p4i.P4Info())
    tables = {table.preamble.alias: table for table in info.tables}
    (selector,) = (one for one in info.action_profiles if one.preamble.alias == SELECTOR)
    wanted = [
        p4r.Entity(table_entry=p4r.TableEntry(table_id=tables[name].preamble.id)) for name in TABLES
    ]
    of_selector = selector.preamble.id
    wanted += [
        p4r.Entity(action_profile_group=p4r.ActionProfileGroup(action_profile_id=of_selector))
    ]
    shown: dict[str, Any] = {name: [] for name in TABLES} | {"groups": {}}
    names = {tables[name].preamble.id: name for name in TABLES}
    actions = {action.preamble.id: action for action in info.actions}
    for entity in read(address, wanted):
        if entity.WhichOneof("entity") == "action_profile_group":
            group = entity.action_profile_group
            shown["groups"][f"{group.group_id:x}"] = {
                f"{member.member_id:x}": member.weight for member in group.members
            }
        elif not entity.table_entry.is_default_action:
            name = names[entity.table_entry.table_id]
            shown[name].append(spell(entity.table_entry, tables[name], actions))
    json.dump(shown, sys.stdout)


def read(address: str, entities: list[Any]) -> list[Any]:
    """Reads entities of these types and returns all that the switch sends."""
    # The default authority would be the path of the Unix socket, which HTTP/2 does not accept.
    options = [
        ("grpc.default_authority", "localhost"),
        ("grpc.max_receive_message_length", MAX_MESSAGE),
    ]
    with grpc.insecure_channel(address, options=options) as channel:
        call = channel.unary_stream(
            READ, p4r.ReadRequest.SerializeToString, p4r.ReadResponse.FromString
        )
        request = p4r.ReadRequest(device_id=1, entities=entities)
        return [entity for response in call(request, timeout=60) for entity in response.entities]


def spell(entry: Any, table: Any, actions: dict[int, Any]) -> dict[str, Any]:
    """Converts a table entry to JSON, with the names of fields, action and parameters."""
    fields = {field.id: field for field in table.match_fields}
    match: dict[str, str] = {}
    length = None
    for one in entry.match:
        value = one.lpm.value if one.HasField("lpm") else one.exact.value
        match[fields[one.field_id].name] = value.hex()
        if one.HasField("lpm"):
            length = one.lpm.prefix_len
    action = entry.action.action
    known = actions.get(action.action_id)
    params = {} if known is None else {param.id: param.name for param in known.params}
    return {
        "match": match,
        "length": length,
        "action": None if known is None else known.preamble.alias.rpartition(".")[2],
        "params": {params[param.param_id]: param.value.hex() for param in action.params},
    }


if __name__ == "__main__":
    main(*sys.argv[1:])

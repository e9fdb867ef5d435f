// SPDX-License-Identifier: Apache-2.0
//! The test program, which has one table of each kind, a selector and a profile.

#![allow(dead_code)] // each test file uses its own part

use std::sync::Arc;

use serde_json::{Value as Json, json};
use sluice_program::{ActionId, Program, TableId};
use sluice_tables::{ActionCall, EntryAction, EntrySpec, KeyField, Store};

/// Returns the program. It has headers, one parser state, tables, and the mandatory parts of a v1model program.
pub(crate) fn program() -> Arc<Program> {
    let tables: Vec<Json> = vec![
        table("exact", "exact", &["exact", "exact"], json!({})),
        table("lpm", "lpm", &["exact", "lpm"], json!({})),
        table("ternary", "ternary", &["ternary", "ternary"], json!({})),
        table("range", "range", &["range", "exact"], json!({})),
        table("small", "exact", &["exact"], json!({"max_size": 2})),
        table(
            "timed",
            "exact",
            &["exact"],
            json!({"support_timeout": true, "with_counters": true}),
        ),
        table(
            "constant",
            "exact",
            &["exact"],
            json!({"entries": [{
                "match_key": [{"match_type": "exact", "key": "0x07"}],
                "action_entry": {"action_id": 1, "action_data": ["0x09"]},
                "priority": 1
            }], "default_entry": {"action_id": 0, "action_const": true, "action_data": [], "action_entry_const": true}}),
        ),
        table(
            "selected",
            "exact",
            &["exact"],
            json!({"type": "indirect_ws", "action_profile": "selector"}),
        ),
        table(
            "member",
            "exact",
            &["exact"],
            json!({"type": "indirect", "action_profile": "profile"}),
        ),
        table(
            "six",
            "lpm",
            &["exact", "lpm"],
            json!({"key": [
                {"match_type": "exact", "name": "k0", "target": ["h", "k0"], "mask": null},
                {"match_type": "lpm", "name": "k1", "target": ["h", "six"], "mask": null}]}),
        ),
        table(
            "wide",
            "lpm",
            &["lpm"],
            json!({"key": [{"match_type": "lpm", "name": "k0", "target": ["h", "wide"], "mask": null}]}),
        ),
        table(
            "huge",
            "range",
            &[],
            json!({"key": [
                {"match_type": "range", "name": "k0", "target": ["h", "k0"], "mask": null},
                {"match_type": "ternary", "name": "k1", "target": ["h", "huge"], "mask": null}]}),
        ),
    ];
    let json = json!({
        "__meta__": {"version": [2, 23]},
        "header_types": [
            {"name": "standard_metadata", "id": 0, "fields": [
                ["ingress_port", 9, false], ["egress_spec", 9, false], ["egress_port", 9, false],
                ["instance_type", 32, false], ["packet_length", 32, false], ["_padding", 5, false]]},
            {"name": "h_t", "id": 1, "fields": [["k0", 16, false], ["k1", 32, false], ["wide", 160, false], ["six", 128, false], ["huge", 4160, false]]}
        ],
        "headers": [
            {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": true},
            {"name": "h", "id": 1, "header_type": "h_t", "metadata": false}
        ],
        "errors": [["NoError", 0]],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [
            {"name": "start", "id": 0, "parser_ops": [], "transition_key": [],
             "transitions": [{"type": "default", "value": null, "mask": null, "next_state": null}]}]}],
        "parse_vsets": [{"name": "set", "id": 0, "compressed_bitwidth": 16, "max_size": 2}],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h"]}],
        "actions": [
            {"name": "NoAction", "id": 0, "runtime_data": [], "primitives": []},
            {"name": "set", "id": 1, "runtime_data": [{"name": "value", "bitwidth": 9}], "primitives": []},
            {"name": "unused", "id": 2, "runtime_data": [], "primitives": []}
        ],
        "pipelines": [
            {"name": "ingress", "id": 0, "init_table": null, "tables": tables, "conditionals": [],
             "action_profiles": [
                {"name": "selector", "id": 0, "max_size": 8, "selector": {"algo": "crc16", "input": []}},
                {"name": "profile", "id": 1, "max_size": 2}]},
            {"name": "egress", "id": 1, "init_table": null, "tables": [], "conditionals": []}
        ]
    });
    Arc::new(Program::from_json(json.to_string().as_bytes()).expect("the test program loads"))
}

fn table(name: &str, kind: &str, keys: &[&str], more: Json) -> Json {
    let key: Vec<Json> = keys
        .iter()
        .enumerate()
        .map(|(index, kind)| {
            let field = format!("k{index}");
            json!({"match_type": kind, "name": field, "target": ["h", field], "mask": null})
        })
        .collect();
    let mut table = json!({
        "name": name, "id": 0, "match_type": kind, "type": "simple", "max_size": 1024, "key": key,
        "action_ids": [0, 1], "actions": ["NoAction", "set"],
        "next_tables": {"NoAction": null, "set": null}
    });
    let object = table.as_object_mut().expect("it is an object");
    object.extend(more.as_object().expect("it is an object").clone());
    table
}

pub(crate) fn store() -> Store {
    Store::new(program())
}

pub(crate) fn id(store: &Store, name: &str) -> TableId {
    store
        .program()
        .table_by_name(name)
        .expect("the test program has this table")
}

pub(crate) fn set(value: u8) -> ActionCall {
    ActionCall {
        action: ActionId(1),
        params: vec![vec![value]],
    }
}

pub(crate) fn entry(key: Vec<KeyField>, priority: i32, value: u8) -> EntrySpec {
    with(key, priority, EntryAction::Direct(set(value)))
}

pub(crate) fn with(key: Vec<KeyField>, priority: i32, action: EntryAction) -> EntrySpec {
    EntrySpec {
        key,
        priority,
        action,
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Vec::new(),
    }
}

pub(crate) fn exact(value: u32) -> KeyField {
    KeyField::Exact(value.to_be_bytes().to_vec())
}

pub(crate) fn lpm(value: u32, prefix_len: u32) -> KeyField {
    match prefix_len {
        0 => KeyField::DontCare,
        _ => KeyField::Lpm {
            value: value.to_be_bytes().to_vec(),
            prefix_len,
        },
    }
}

/// Looks up a packet's key. Returns the parameter of the action `set`, or `None` on a miss.
pub(crate) fn look_up(store: &Store, table: &str, key: &[u8], hash: u64) -> Option<u64> {
    let mut reader = store.reader();
    let replica = reader.pin();
    let found = replica.lookup(id(store, table), key, || hash);
    found
        .action
        .filter(|_| found.hit)
        .map(|action| action.params[0])
}

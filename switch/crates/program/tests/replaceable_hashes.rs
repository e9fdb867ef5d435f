// SPDX-License-Identifier: Apache-2.0
//! Checks that a hash is marked as replaceable if and only if nothing except selectors uses it.

use serde_json::{Value, json};
use sluice_program::Program;

/// Returns a program that hashes a field of the packet into a metadata field, and adds a number to it. A selector uses
/// the sum.
fn balanced() -> Value {
    json!({
        "__meta__": {"version": [2, 23]},
        "program": "balanced.p4",
        "header_types": [
            {"name": "standard_metadata", "id": 0, "fields": [
                ["ingress_port", 9, false], ["egress_spec", 9, false], ["egress_port", 9, false],
                ["instance_type", 32, false], ["packet_length", 32, false], ["_padding", 5, false]]},
            {"name": "m_t", "id": 1, "fields": [["hash", 32, false], ["copy", 32, false]]},
            {"name": "h_t", "id": 2, "fields": [["flow", 32, false], ["mark", 32, false]]}
        ],
        "headers": [
            {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": true},
            {"name": "m", "id": 1, "header_type": "m_t", "metadata": true},
            {"name": "h", "id": 2, "header_type": "h_t", "metadata": false}
        ],
        "errors": [["NoError", 1], ["PacketTooShort", 2]],
        "calculations": [{"name": "calc", "id": 0, "algo": "crc32", "input": [field("h", "flow")]}],
        "learn_lists": [], "field_lists": [], "checksums": [],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [
            {"name": "start", "id": 0, "parser_ops": [], "transition_key": [],
             "transitions": [{"type": "default", "value": null, "mask": null, "next_state": null}]}]}],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h"]}],
        "actions": [{"name": "balance", "id": 0, "runtime_data": [], "primitives": [
            hash_to("m", "hash"),
            assign("m", "hash", expression("+", field("m", "hash"), hex("0x5")))
        ]}],
        "pipelines": [
            {"name": "ingress", "id": 0, "init_table": "t",
             "action_profiles": [{"name": "p", "id": 0, "max_size": 16, "selector": {
                 "algo": "crc16", "input": [field("m", "hash")]}}],
             "conditionals": [{"name": "c", "id": 0, "true_next": null, "false_next": null,
                 "expression": expression("==", field("h", "flow"), hex("0x1"))}],
             "tables": [
                {"name": "t", "id": 0, "match_type": "exact", "type": "simple", "max_size": 8,
                 "key": [{"match_type": "exact", "name": "key", "target": ["h", "flow"], "mask": null}],
                 "action_ids": [0], "actions": ["balance"], "next_tables": {"balance": "c"}}]},
            {"name": "egress", "id": 1, "init_table": null, "tables": [], "conditionals": []}
        ]
    })
}

fn field(header: &str, name: &str) -> Value {
    json!({"type": "field", "value": [header, name]})
}

fn hex(value: &str) -> Value {
    json!({"type": "hexstr", "value": value})
}

fn expression(op: &str, left: Value, right: Value) -> Value {
    json!({"type": "expression", "value": {"op": op, "left": left, "right": right}})
}

fn hash_to(header: &str, name: &str) -> Value {
    let calculation = json!({"type": "calculation", "value": "calc"});
    let parameters = [
        field(header, name),
        hex("0x0"),
        calculation,
        hex("0x100000000"),
    ];
    json!({"op": "modify_field_with_hash_based_offset", "parameters": parameters})
}

fn assign(header: &str, name: &str, value: Value) -> Value {
    json!({"op": "assign", "parameters": [field(header, name), value]})
}

/// Changes the program that [`balanced`] returns. Returns whether the calculation of the changed program is marked as
/// replaceable.
fn replaceable(change: impl FnOnce(&mut Value)) -> bool {
    let mut json = balanced();
    change(&mut json);
    let program = Program::from_json(json.to_string().as_bytes());
    program.expect("a program").calculations[0].replaceable
}

fn push(list: &mut Value, value: Value) {
    list.as_array_mut().expect("a list").push(value);
}

#[test]
fn a_hash_is_replaceable_if_only_a_selector_uses_its_value() {
    assert!(replaceable(|_| {}));
    for algorithm in ["crc16", "xxh64"] {
        assert!(replaceable(
            |json| json["calculations"][0]["algo"] = algorithm.into()
        ));
    }
}

#[test]
fn a_hash_that_does_more_than_spread_flows_is_not_replaceable() {
    for algorithm in ["xor16", "csum16", "identity", "random"] {
        assert!(!replaceable(
            |json| json["calculations"][0]["algo"] = algorithm.into()
        ));
    }
    assert!(!replaceable(|json| {
        json["pipelines"][0]["action_profiles"][0]["selector"]["algo"] = "identity".into();
    }));
}

#[test]
fn a_hash_is_not_replaceable_if_operations_use_its_value() {
    let uses = [
        assign("m", "copy", field("m", "hash")),
        assign("h", "mark", expression("+", field("m", "hash"), hex("0x1"))),
        json!({"op": "assign_header", "parameters": [
            {"type": "header", "value": "m"}, {"type": "header", "value": "m"}]}),
        json!({"op": "truncate", "parameters": [field("m", "hash")]}),
        json!({"op": "log_msg", "parameters": [
            {"type": "string", "value": "{}"}, {"type": "parameters_vector", "value": [field("m", "hash")]}]}),
        // The same calculation serves two fields: a field of a packet header, or a field that no selector uses.
        hash_to("h", "mark"),
        hash_to("m", "copy"),
    ];
    for op in uses {
        let name = op.to_string();
        let replaceable = replaceable(|json| push(&mut json["actions"][0]["primitives"], op));
        assert!(!replaceable, "{name}");
    }
    let more = expression("^", field("m", "hash"), field("m", "copy"));
    assert!(replaceable(|json| {
        push(
            &mut json["actions"][0]["primitives"],
            assign("m", "hash", more),
        );
    }));
}

#[test]
fn a_hash_is_not_replaceable_if_keys_conditions_or_lists_use_its_value() {
    let target = json!(["m", "hash"]);
    assert!(!replaceable(|json| {
        json["pipelines"][0]["tables"][0]["key"][0]["target"] = target.clone();
    }));
    assert!(!replaceable(|json| {
        let condition = expression("==", field("m", "hash"), hex("0x1"));
        json["pipelines"][0]["conditionals"][0]["expression"] = condition;
    }));
    assert!(!replaceable(|json| {
        let key = json!([{"type": "field", "value": target}]);
        json["parsers"][0]["parse_states"][0]["transition_key"] = key;
    }));
    for list in ["learn_lists", "field_lists"] {
        assert!(!replaceable(|json| {
            push(
                &mut json[list],
                json!({"name": "list", "id": 1, "elements": [field("m", "hash")]}),
            );
        }));
    }
    assert!(!replaceable(|json| {
        push(
            &mut json["calculations"],
            json!({"name": "other", "id": 1, "algo": "crc32", "input": [field("m", "hash")]}),
        );
    }));
}

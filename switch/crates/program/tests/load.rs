// SPDX-License-Identifier: Apache-2.0
//! Tests which programs the loader accepts. Refused programs yield an error with the construct's name and its location
//! in the JSON and in the P4 source.

use serde_json::{Value, json};
use sluice_program::action::LValue;
use sluice_program::expr::{Arith, ArithOp, Bool, Data, NumberClass};
use sluice_program::{FieldSlot, LoadError, Op, Program};

/// Returns the smallest v1model program, with one header, one action and one table.
fn minimal() -> Value {
    json!({
        "__meta__": {"version": [2, 23]},
        "program": "minimal.p4",
        "header_types": [
            {"name": "standard_metadata", "id": 0, "fields": [
                ["ingress_port", 9, false], ["egress_spec", 9, false], ["egress_port", 9, false],
                ["instance_type", 32, false], ["packet_length", 32, false], ["_padding", 5, false]]},
            {"name": "h_t", "id": 1, "fields": [["a", 4, false], ["b", 12, false], ["c", 32, false], ["s", 16, true]]}
        ],
        "headers": [
            {"name": "standard_metadata", "id": 0, "header_type": "standard_metadata", "metadata": true},
            {"name": "h", "id": 1, "header_type": "h_t", "metadata": false}
        ],
        "errors": [["NoError", 1], ["PacketTooShort", 2]],
        "parsers": [{"name": "parser", "id": 0, "init_state": "start", "parse_states": [
            {"name": "start", "id": 0, "parser_ops": [], "transition_key": [],
             "transitions": [{"type": "default", "value": null, "mask": null, "next_state": null}]}]}],
        "deparsers": [{"name": "deparser", "id": 0, "order": ["h"]}],
        "actions": [{"name": "act", "id": 0, "runtime_data": [{"name": "x", "bitwidth": 16}], "primitives": []}],
        "pipelines": [
            {"name": "ingress", "id": 0, "init_table": "t", "conditionals": [], "tables": [
                {"name": "t", "id": 0, "match_type": "exact", "type": "simple", "max_size": 8,
                 "source_info": {"filename": "minimal.p4", "line": 17, "column": 3, "source_fragment": "t"},
                 "key": [{"match_type": "exact", "name": "h.a", "target": ["h", "a"], "mask": null}],
                 "action_ids": [0], "actions": ["act"], "next_tables": {"act": null}}]},
            {"name": "egress", "id": 1, "init_table": null, "tables": [], "conditionals": []}
        ]
    })
}

fn load(json: &Value) -> Result<Program, LoadError> {
    Program::from_json(json.to_string().as_bytes())
}

fn refused(json: &Value) -> LoadError {
    load(json).expect_err("this must not load")
}

/// Loads an action with these primitives, and returns its operations.
fn ops(primitives: Value) -> Result<Vec<Op>, LoadError> {
    let mut json = minimal();
    json["actions"][0]["primitives"] = primitives;
    load(&json).map(|program| program.actions[0].ops.clone())
}

fn field(name: &str) -> Value {
    json!({"type": "field", "value": ["h", name]})
}

fn hex(value: &str) -> Value {
    json!({"type": "hexstr", "value": value})
}

fn binary(op: &str, left: Value, right: Value) -> Value {
    json!({"type": "expression", "value": {"op": op, "left": left, "right": right}})
}

/// Loads the assignment `h.c = value`, and returns the expression of the value.
fn assigned(value: Value) -> Arith {
    let ops = ops(json!([{"op": "assign", "parameters": [field("c"), value]}])).unwrap();
    match &ops[0] {
        Op::Assign(LValue::Field(_), value) => value.clone(),
        Op::Move { from, .. } => Arith::from(Data::Field(*from)),
        other => panic!("not an assignment: {other:?}"),
    }
}

#[test]
fn the_smallest_program_loads_with_every_name_resolved() {
    let program = load(&minimal()).unwrap();
    assert_eq!(program.name, "minimal.p4");
    let table = program.table(program.table_by_name("t").unwrap());
    assert_eq!(table.key_bytes, 1);
    assert_eq!(table.actions, [program.action_by_name("act").unwrap()]);
    assert!(table.ingress);
    assert_eq!(table.source.as_ref().unwrap().to_string(), "minimal.p4:17");
    assert_eq!(program.core_errors.packet_too_short, 2);
}

#[test]
fn a_packet_header_keeps_its_bits_and_metadata_gets_whole_bytes() {
    let program = load(&minimal()).unwrap();
    let header = program.header_by_name("h").unwrap();
    let start = program.header(header).offset as usize * 8;
    assert_eq!(
        program.slot_by_name("h", "a"),
        Some(FieldSlot::at(start, 4, false))
    );
    assert_eq!(
        program.slot_by_name("h", "b"),
        Some(FieldSlot::at(start + 4, 12, false))
    );
    assert_eq!(
        program.slot_by_name("h", "s"),
        Some(FieldSlot::at(start + 48, 16, true))
    );
    // The field has nine bits, which are right-aligned in two bytes.
    assert_eq!(
        program.standard_metadata.ingress_port,
        FieldSlot::at(7, 9, false)
    );
    assert_eq!(
        program.standard_metadata.egress_spec,
        FieldSlot::at(16 + 7, 9, false)
    );
}

#[test]
fn versions_that_are_not_known_are_refused() {
    for (version, good) in [
        ([2, 0], true),
        ([2, 24], true),
        ([2, 25], false),
        ([3, 0], false),
    ] {
        let mut json = minimal();
        json["__meta__"]["version"] = json!(version);
        assert_eq!(load(&json).is_ok(), good, "{version:?}");
    }
}

#[test]
fn an_error_says_what_and_where() {
    let mut json = minimal();
    json["pipelines"][0]["tables"][0]["key"][0]["match_type"] = json!("fuzzy");
    let error = refused(&json);
    assert_eq!(
        error.to_string(),
        "minimal.p4:17: the match kind \"fuzzy\" is not supported by this switch \
         (at pipelines[0].tables[0].key[0].match_type of the BMv2 JSON)"
    );
}

#[test]
fn every_unknown_name_is_an_error() {
    for (pointer, value) in [
        ("/headers/1/header_type", json!("nothing")),
        ("/parsers/0/init_state", json!("nothing")),
        ("/deparsers/0/order/0", json!("nothing")),
        ("/pipelines/0/init_table", json!("nothing")),
        (
            "/pipelines/0/tables/0/key/0/target",
            json!(["h", "nothing"]),
        ),
        (
            "/pipelines/0/tables/0/key/0/target",
            json!(["nothing", "a"]),
        ),
        ("/pipelines/0/tables/0/action_ids/0", json!(7)),
        ("/pipelines/0/tables/0/next_tables/act", json!("nothing")),
        ("/pipelines/0/tables/0/type", json!("nothing")),
    ] {
        let mut json = minimal();
        *json.pointer_mut(pointer).unwrap() = value;
        let error = refused(&json);
        assert!(!error.path().is_empty(), "{pointer}: {error}");
    }
}

#[test]
fn bytes_that_are_no_program_are_an_error() {
    for text in [
        "",
        "{",
        "[]",
        "null",
        "{}",
        "\"x\"",
        "{\"header_types\": 3}",
    ] {
        Program::from_json(text.as_bytes()).expect_err(text);
    }
    let deep = "[".repeat(100_000);
    Program::from_json(deep.as_bytes()).expect_err("nested too deeply");
}

#[test]
fn removing_any_member_never_panics() {
    fn paths(value: &Value, path: &str, out: &mut Vec<String>) {
        match value {
            Value::Object(members) => {
                for (key, member) in members {
                    out.push(format!("{path}/{key}"));
                    paths(member, &format!("{path}/{key}"), out);
                }
            }
            Value::Array(items) => {
                for (index, item) in items.iter().enumerate() {
                    out.push(format!("{path}/{index}"));
                    paths(item, &format!("{path}/{index}"), out);
                }
            }
            _ => {}
        }
    }
    let mut all = Vec::new();
    paths(&minimal(), "", &mut all);
    for path in all {
        for value in [
            Value::Null,
            json!(-1),
            json!(1e30),
            json!("-0x"),
            json!([]),
            json!({}),
        ] {
            let mut json = minimal();
            *json.pointer_mut(&path).unwrap() = value;
            let _ = load(&json);
        }
    }
}

#[test]
fn control_flow_with_a_cycle_is_refused() {
    let mut json = minimal();
    json["pipelines"][0]["tables"][0]["next_tables"]["act"] = json!("t");
    assert!(refused(&json).message().contains("cycle"));
}

#[test]
fn jumps_stay_inside_their_action() {
    let jump = |target: &str| json!([{"op": "_jump", "parameters": [hex(target)]}]);
    assert_eq!(ops(jump("0x1")).unwrap(), [Op::Jump(1)]);
    assert!(ops(jump("0x2")).is_err());
}

#[test]
fn a_primitive_that_is_not_there_is_named() {
    let error = ops(json!([{"op": "levitate", "parameters": []}])).unwrap_err();
    assert!(error.message().contains("\"levitate\""));
}

#[test]
fn a_slice_is_a_narrower_field() {
    let shifted = binary(">>", field("c"), hex("0x8"));
    let slice = binary("&", shifted, hex("0xff"));
    let program = load(&minimal()).unwrap();
    let c = program.slot_by_name("h", "c").unwrap();
    assert_eq!(assigned(slice).data, Data::Field(c.slice(8, 8).unwrap()));
    let whole = binary("&", field("c"), hex("0xffffffff"));
    assert_eq!(assigned(whole).data, Data::Field(c));
}

#[test]
fn a_masked_left_shift_needs_no_wide_intermediate() {
    let shift = binary("<<", field("c"), field("b"));
    assert_eq!(assigned(shift.clone()).class, NumberClass::Big);
    let masked = assigned(binary("&", shift, hex("0xffffffff")));
    assert!(matches!(masked.data, Data::ShlMod(_, 32)));
    assert_eq!(masked.class, NumberClass::I64);
}

#[test]
fn the_number_class_holds_every_intermediate_value() {
    let product = binary("*", field("c"), field("c"));
    let classes = [
        (binary("+", field("c"), field("c")), NumberClass::I64),
        (product.clone(), NumberClass::I128),
        (
            binary("*", product.clone(), product.clone()),
            NumberClass::I256,
        ),
        (
            binary("*", product.clone(), binary("*", product.clone(), product)),
            NumberClass::I256,
        ),
    ];
    for (expression, class) in classes {
        assert_eq!(assigned(expression.clone()).class, class, "{expression}");
    }
    let wide = binary("<<", field("c"), hex("0xff"));
    assert_eq!(assigned(wide).class, NumberClass::Big);
}

#[test]
fn unary_minus_is_a_subtraction_from_zero() {
    let negative =
        json!({"type": "expression", "value": {"op": "-", "left": null, "right": field("c")}});
    let Data::Arith(ArithOp::Sub, operands) = assigned(negative).data else {
        panic!("not a subtraction")
    };
    assert_eq!(operands.0, Data::constant(0));
}

#[test]
fn a_condition_that_was_cast_to_an_integer_is_a_condition_again() {
    let valid = json!({"type": "field", "value": ["h", "$valid$"]});
    let as_bool =
        json!({"type": "expression", "value": {"op": "d2b", "left": null, "right": valid}});
    let as_data =
        json!({"type": "expression", "value": {"op": "b2d", "left": null, "right": as_bool}});
    let ops = ops(json!([{"op": "_jump_if_zero", "parameters": [as_data, hex("0x1")]}])).unwrap();
    assert!(matches!(ops[0], Op::JumpUnless(Bool::Valid(_), 1)));
}

#[test]
fn expressions_nested_without_end_are_refused() {
    let mut expression = field("c");
    for _ in 0..400 {
        expression =
            json!({"type": "expression", "value": {"op": "~", "left": null, "right": expression}});
    }
    assert!(ops(json!([{"op": "assign", "parameters": [field("c"), expression]}])).is_err());
}

#[test]
fn constant_entries_and_defaults_must_fit() {
    let mut json = minimal();
    json["pipelines"][0]["tables"][0]["default_entry"] = json!({"action_id": 0, "action_const": false, "action_data": ["0x10000"], "action_entry_const": false});
    assert!(refused(&json).message().contains("does not fit 16 bits"));
    let mut json = minimal();
    json["pipelines"][0]["tables"][0]["entries"] = json!([{
        "match_key": [{"match_type": "exact", "key": "0x10"}],
        "action_entry": {"action_id": 0, "action_data": ["0x1"]}, "priority": 1}]);
    assert!(refused(&json).message().contains("does not fit 4 bits"));
}

#[test]
fn p4_14_arithmetic_is_that_of_expressions() {
    let assign = |value| json!([{"op": "assign", "parameters": [field("c"), value]}]);
    let call = |op, parameters| json!([{"op": op, "parameters": parameters}]);
    for (primitive, operator) in [
        ("add", "+"),
        ("subtract", "-"),
        ("bit_and", "&"),
        ("bit_or", "|"),
        ("bit_xor", "^"),
        ("shift_left", "<<"),
        ("shift_right", ">>"),
    ] {
        let parameters = json!([field("c"), field("a"), field("b")]);
        let expected = ops(assign(binary(operator, field("a"), field("b"))));
        assert_eq!(ops(call(primitive, parameters)), expected, "{primitive}");
    }
    for (primitive, operator) in [("add_to_field", "+"), ("subtract_from_field", "-")] {
        let expected = ops(assign(binary(operator, field("c"), field("b"))));
        let parameters = json!([field("c"), field("b")]);
        assert_eq!(ops(call(primitive, parameters)), expected, "{primitive}");
    }
}

#[test]
fn a_log_message_may_have_no_arguments() {
    let log = |arguments: Value| {
        ops(json!([{"op": "log_msg", "parameters": [
            {"type": "string", "value": "here"},
            {"type": "parameters_vector", "value": arguments}]}]))
    };
    assert_eq!(log(json!({})), log(json!([])));
    assert!(log(json!({"type": "field"})).is_err());
}

// Programs that a fuzzer found. Earlier versions accepted them, and then the switch panicked.

#[test]
fn fuzz_a_field_of_the_architecture_is_no_wider_than_it_can_set() {
    let mut json = minimal();
    json["header_types"][0]["fields"][1][1] = json!(9 + 152);
    let error = refused(&json);
    assert_eq!(
        error.message(),
        "standard_metadata.egress_spec of 161 bits: the architecture sets at most 64"
    );
}

#[test]
fn fuzz_an_error_with_the_largest_value_leaves_room_for_others() {
    let mut json = minimal();
    json["errors"][0][1] = json!(u32::MAX);
    assert_eq!(refused(&json).path(), "errors[0][1]");
}

#[test]
fn fuzz_arrays_that_take_gigabytes_are_refused_and_not_allocated() {
    let mut json = minimal();
    json["meter_arrays"] = json!([{"name": "m", "type": "packets", "size": 1 << 26}]);
    let message = refused(&json).message().to_owned();
    assert!(message.contains("take 8192 MiB"), "{message}");
}

#[test]
fn programs_of_other_architectures_are_refused_in_plain_words() {
    for (name, architecture) in [
        ("psa_ingress_parser_input_metadata", "a PSA program"),
        ("pna_main_parser_input_metadata", "a PNA program"),
    ] {
        let header = json!({"name": name, "id": 2, "header_type": name, "metadata": true});
        let ty = json!({"name": name, "id": 2, "fields": [["ingress_port", 32, false]]});
        // Tests a program that declares the metadata header and one that does not, because p4c leaves out unused
        // headers. Neither program has standard_metadata.
        for with_header in [true, false] {
            let mut json = minimal();
            json["header_types"].as_array_mut().unwrap()[0] = ty.clone();
            json["headers"] = if with_header {
                json!([header])
            } else {
                json!([])
            };
            let error = refused(&json).to_string();
            assert!(
                error.contains(architecture) && error.contains("v1model"),
                "{error}"
            );
        }
    }
}

/// Checks that programs for other architectures are recognized by the names of their parsers, and refused. p4c of 2019
/// left the intrinsic metadata out of programs that did not read it, so its types cannot be used to recognize such
/// programs.
#[test]
fn programs_of_other_architectures_are_known_by_their_parsers() {
    for (name, architecture) in [
        ("ingress_parser", "a PSA program"),
        ("egress_parser", "a PSA program"),
        ("main_parser", "a PNA program"),
    ] {
        let mut json = minimal();
        json["parsers"][0]["name"] = json!(name);
        json["headers"] = json!([]);
        let error = refused(&json).to_string();
        assert!(
            error.contains(architecture) && error.contains("v1model"),
            "{error}"
        );
    }
}

#[test]
fn what_is_of_no_width_is_taken_out() {
    let mut json = minimal();
    json["header_types"][1]["fields"]
        .as_array_mut()
        .unwrap()
        .insert(1, json!(["none", 0, false]));
    json["actions"][0]["runtime_data"] = json!([
        {"name": "nothing", "bitwidth": 0}, {"name": "x", "bitwidth": 16}, {"name": "y", "bitwidth": 32}]);
    let param = |index: u32| json!({"type": "runtime_data", "value": index});
    let assign = |to: Value, from: Value| json!({"op": "assign", "parameters": [to, from]});
    json["actions"][0]["primitives"] = json!([
        assign(field("none"), param(0)),
        assign(field("c"), param(2)),
        assign(field("b"), field("none")),
        assign(field("a"), param(0)),
    ]);
    let program = load(&json).unwrap();
    let mut expected = minimal();
    expected["actions"][0]["runtime_data"] =
        json!([{"name": "x", "bitwidth": 16}, {"name": "y", "bitwidth": 32}]);
    let zero = json!({"type": "hexstr", "value": "0x0"});
    expected["actions"][0]["primitives"] = json!([
        assign(field("c"), param(1)),
        assign(field("b"), zero.clone()),
        assign(field("a"), zero),
    ]);
    assert_eq!(program, load(&expected).unwrap());
}

// SPDX-License-Identifier: Apache-2.0
//! Checks with random programs that expressions have the same results in native code and in the interpreter.
//!
//! A program is a sequence of conditions, with assignments for both outcomes. Operands are header and metadata fields
//! of random widths, signed and unsigned. A packet consists of the header only. The sent packet shows the values of all
//! fields. If the results differ, the program is shrunk to the smallest one that shows the difference. PROPTEST_CASES
//! sets the number of programs.

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};
use serde_json::{Value, json};
use sluice_engine::{Config, Engine, PacketIn, Sink, TrafficManager};
use sluice_interpreter::Interpreter;
use sluice_native::{Code, Native};
use sluice_program::{DigestId, Program};
use sluice_tables::Store;

/// Number of random programs that the test runs by default.
const PROGRAMS: u32 = 96;
/// Number of header fields (`FIELDS`) and of metadata fields (`LOCALS`).
const FIELDS: usize = 6;
const LOCALS: usize = 4;
/// A compiled program that supplies all parts that the test does not replace. Any program without tables can be used.
const BASE: &str = include_str!("../../../programs/build/arithmetic_unsigned.json");

/// A field's type: its width in bits, and whether it is signed.
type FieldType = (u16, bool);

/// An assignment: the number of the target field, as in [`field`], and the value.
type Assignment = (usize, Value);

/// A condition, the assignments if it is true, and the assignments if it is false.
type Step = (Value, Vec<Assignment>, Vec<Assignment>);

#[derive(Clone, Debug)]
struct Case {
    fields: Vec<FieldType>,
    locals: Vec<FieldType>,
    steps: Vec<Step>,
    packets: Vec<Vec<u8>>,
}

fn operation(op: &str, left: &Value, right: &Value) -> Value {
    json!({"type": "expression", "value": {"op": op, "left": left, "right": right}})
}

fn unary(op: &str, right: &Value) -> Value {
    json!({"type": "expression", "value": {"op": op, "left": null, "right": right}})
}

fn choose(condition: &Value, left: &Value, right: &Value) -> Value {
    let parts = json!({"op": "?", "left": left, "right": right, "cond": condition});
    json!({"type": "expression", "value": parts})
}

fn number(value: i128) -> Value {
    let sign = if value < 0 { "-" } else { "" };
    json!({"type": "hexstr", "value": format!("{sign}{:#x}", value.unsigned_abs())})
}

/// Returns a field by number: header fields first, then metadata.
fn field(index: usize) -> Value {
    match index.checked_sub(FIELDS) {
        None => json!({"type": "field", "value": ["calc", format!("f{index}")]}),
        Some(local) => json!({"type": "field", "value": ["scalars", format!("m{local}")]}),
    }
}

fn field_type() -> impl Strategy<Value = FieldType> {
    let bits = prop_oneof![
        3 => 1_u16..=64,
        2 => prop::sample::select(vec![8_u16, 16, 32, 48, 64, 128]),
        2 => 65_u16..=128,
        1 => 129_u16..=300,
    ];
    // A signed field has a sign bit and at least one other bit.
    (bits, any::<bool>()).prop_map(|(bits, signed)| (bits.max(1 + u16::from(signed)), signed))
}

fn constant() -> impl Strategy<Value = Value> {
    let edge = (0_u32..=120, -1_i128..=1).prop_map(|(bits, more)| (1_i128 << bits) + more);
    prop_oneof![-2_i128..=9, edge.clone(), edge.prop_map(|value| -value)].prop_map(number)
}

/// Generates conditions over numbers.
fn condition(
    numbers: impl Strategy<Value = Value> + Clone + 'static,
) -> impl Strategy<Value = Value> + Clone {
    let compare = prop::sample::select(vec!["==", "!=", "<", "<=", ">", ">="]);
    let single = prop_oneof![
        4 => (compare, numbers.clone(), numbers.clone())
            .prop_map(|(op, left, right)| operation(op, &left, &right)),
        1 => numbers.prop_map(|right| unary("d2b", &right)),
    ];
    let single = single.boxed();
    let logic = prop::sample::select(vec!["and", "or", "=="]);
    prop_oneof![
        3 => single.clone(),
        1 => single.clone().prop_map(|right| unary("not", &right)),
        2 => (logic, single.clone(), single)
            .prop_map(|(op, left, right)| operation(op, &left, &right)),
    ]
    .boxed()
}

/// Generates integer expressions with all operators. Computed shift counts are below 64: otherwise intermediate values
/// could have thousands of bits.
fn numbers() -> impl Strategy<Value = Value> + Clone {
    let leaf = prop_oneof![
        4 => (0..FIELDS + LOCALS).prop_map(field),
        1 => constant(),
    ];
    let deeper = |inner: BoxedStrategy<Value>| {
        let ops = prop::sample::select(vec!["+", "-", "*", "/", "%", "&", "|", "^"]);
        let shifts = prop::sample::select(vec!["<<", ">>"]);
        let casts = prop::sample::select(vec!["two_comp_mod", "usat_cast", "sat_cast"]);
        prop_oneof![
            4 => (ops, inner.clone(), inner.clone())
                .prop_map(|(op, left, right)| operation(op, &left, &right)),
            2 => (shifts, inner.clone(), inner.clone()).prop_map(|(op, left, count)| {
                let count = operation("usat_cast", &count, &number(6));
                operation(op, &left, &count)
            }),
            1 => (inner.clone(), 0_i128..=200).prop_map(|(left, count)| {
                operation("<<", &left, &number(count))
            }),
            1 => (inner.clone(), 0_i128..=200).prop_map(|(left, count)| {
                operation(">>", &left, &number(count))
            }),
            3 => (casts, inner.clone(), 1_i128..=140)
                .prop_map(|(op, left, bits)| operation(op, &left, &number(bits))),
            // A mask, as p4c emits it for arithmetic of fixed width.
            2 => (inner.clone(), 1_u32..=120)
                .prop_map(|(left, bits)| operation("&", &left, &number((1 << bits) - 1))),
            1 => inner.clone().prop_map(|right| unary("~", &right)),
            1 => condition(inner.clone()).prop_map(|right| unary("b2d", &right)),
            1 => (condition(inner.clone()), inner.clone(), inner)
                .prop_map(|(condition, left, right)| choose(&condition, &left, &right)),
        ]
        .boxed()
    };
    leaf.boxed().prop_recursive(4, 20, 3, deeper).boxed()
}

fn case() -> impl Strategy<Value = Case> {
    let assignments = || vec((0..FIELDS + LOCALS, numbers()), 0..3);
    let step = (condition(numbers()), assignments(), assignments());
    let widths = (vec(field_type(), FIELDS), vec(field_type(), LOCALS));
    (widths, vec(step, 1..5)).prop_flat_map(|((fields, locals), steps)| {
        let packet = prop_oneof![
            3 => vec(any::<u8>(), bytes(&fields)),
            1 => vec(prop::sample::select(vec![0, 0xff_u8, 0x80, 1]), bytes(&fields)),
        ];
        vec(packet, 6).prop_map(move |packets| Case {
            fields: fields.clone(),
            locals: locals.clone(),
            steps: steps.clone(),
            packets,
        })
    })
}

/// Returns the length in bytes of a header with these fields.
fn bytes(fields: &[FieldType]) -> usize {
    let bits = fields.iter().map(|(width, _)| usize::from(*width));
    bits.sum::<usize>().div_ceil(8)
}

/// Declares the fields of a header type, with padding to whole bytes.
fn declared(prefix: char, fields: &[FieldType]) -> Value {
    let named = fields.iter().enumerate();
    let mut declared: Vec<Value> = named
        .map(|(index, (width, signed))| json!([format!("{prefix}{index}"), width, signed]))
        .collect();
    let bits: usize = fields.iter().map(|(width, _)| usize::from(*width)).sum();
    if !bits.is_multiple_of(8) {
        declared.push(json!(["padding", 8 - bits % 8, false]));
    }
    declared.into()
}

fn action(name: &str, id: usize, assignments: &[Assignment]) -> Value {
    let assign =
        |(to, value): &Assignment| json!({"op": "assign", "parameters": [field(*to), value]});
    let primitives: Vec<Value> = assignments.iter().map(assign).collect();
    json!({"name": name, "id": id, "runtime_data": [], "primitives": primitives})
}

/// Declares a table without a key that runs an action.
fn table(action: &str, id: usize, next: Option<&str>) -> Value {
    json!({
        "name": format!("t_{action}"), "id": id, "key": [], "match_type": "exact", "type": "simple",
        "max_size": 1, "with_counters": false, "support_timeout": false, "direct_meters": null,
        "action_ids": [id], "actions": [action], "base_default_next": next,
        "next_tables": {action: next},
        "default_entry": {
            "action_id": id, "action_const": true, "action_data": [], "action_entry_const": true
        },
    })
}

/// Returns the program as BMv2 JSON.
fn program(case: &Case) -> Value {
    let mut program: Value = serde_json::from_str(BASE).expect("the program was compiled");
    program["header_types"][0]["fields"] = declared('m', &case.locals);
    program["header_types"][2]["fields"] = declared('f', &case.fields);
    let (mut actions, mut tables, mut conditionals) = (Vec::new(), Vec::new(), Vec::new());
    for (index, (condition, then, otherwise)) in case.steps.iter().enumerate() {
        let after = match index + 1 {
            last if last == case.steps.len() => "t_show".to_owned(),
            next => format!("c{next}"),
        };
        let (yes, no) = (format!("yes{index}"), format!("no{index}"));
        for (name, assignments) in [(&yes, then), (&no, otherwise)] {
            tables.push(table(name, actions.len(), Some(&after)));
            actions.push(action(name, actions.len(), assignments));
        }
        conditionals.push(json!({
            "name": format!("c{index}"), "id": index, "expression": condition,
            "true_next": format!("t_{yes}"), "false_next": format!("t_{no}"),
        }));
    }
    // Finally adds the metadata to the header fields by xor, so that the sent packet shows it.
    let show: Vec<Assignment> = (0..LOCALS)
        .map(|local| (local, operation("^", &field(local), &field(FIELDS + local))))
        .collect();
    tables.push(table("show", actions.len(), None));
    actions.push(action("show", actions.len(), &show));
    program["actions"] = actions.into();
    program["pipelines"][0]["init_table"] = "c0".into();
    program["pipelines"][0]["tables"] = tables.into();
    program["pipelines"][0]["conditionals"] = conditionals.into();
    program
}

/// A sink that collects the sent packets.
#[derive(Default)]
struct Sent(Vec<Vec<u8>>);

impl Sink for Sent {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        self.0.push(data.to_vec());
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

fn run(store: &Store, engine: impl Engine, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (mut switch, mut reader) = (TrafficManager::new(engine), store.reader());
    let mut sent = Sent::default();
    for data in packets {
        let packet = PacketIn {
            data,
            port: 1,
            now_us: 0,
        };
        switch.process(&reader.pin(), store.externs(), packet, &mut sent);
    }
    sent.0
}

fn engines_agree(case: &Case) -> Result<(), TestCaseError> {
    let json = serde_json::to_vec(&program(case)).expect("it is JSON");
    let program = match Program::from_json(&json) {
        Ok(program) => Arc::new(program),
        Err(error) => return Err(TestCaseError::fail(format!("not loaded: {error}"))),
    };
    let config = Config::default();
    let (code, report) = Code::compile(&program, &config)
        .map_err(|error| TestCaseError::fail(format!("not compiled: {error}")))?;
    prop_assert_eq!(report.not_compiled, Vec::<String>::new());
    let store = Store::new(Arc::clone(&program));
    let wanted = run(
        &store,
        Interpreter::new(Arc::clone(&program), config.clone()),
        &case.packets,
    );
    let got = run(&store, Native::new(code, config), &case.packets);
    prop_assert_eq!(wanted.len(), case.packets.len(), "a packet was not sent");
    prop_assert_eq!(wanted, got);
    Ok(())
}

#[test]
fn random_expressions_give_the_same_in_both_engines() {
    let cases = std::env::var("PROPTEST_CASES").ok();
    let cases = cases.and_then(|cases| cases.parse().ok());
    let config = ProptestConfig {
        cases: cases.unwrap_or(PROGRAMS),
        failure_persistence: None,
        max_shrink_iters: 20_000,
        ..ProptestConfig::default()
    };
    let random = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(config, random);
    match runner.run(&case(), |case| engines_agree(&case)) {
        Ok(()) => {}
        Err(TestError::Fail(why, case)) => {
            let program = serde_json::to_string(&case.steps).expect("it is JSON");
            panic!(
                "{why}\n{:?} {:?}\n{program}\n{:?}",
                case.fields, case.locals, case.packets
            );
        }
        Err(error) => panic!("{error}"),
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Mutates JSON. The result is still JSON, but it has wrong ids, names, numbers, lengths or references at one to four
//! positions.

use std::collections::HashMap;

use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::random::Random;

/// Members that do not influence the program's behaviour.
const IGNORED: [&str; 3] = ["source_info", "pragmas", "__meta__"];

/// Members that name the next node of a program.
const NEXT: [&str; 6] = [
    "base_default_next",
    "true_next",
    "false_next",
    "init_table",
    "next_state",
    "init_state",
];

const NUMBERS: [i64; 10] = [
    0,
    1,
    -1,
    2,
    8,
    255,
    65_536,
    i32::MAX as i64,
    u32::MAX as i64,
    i64::MAX,
];

const STRINGS: [&str; 12] = [
    "",
    "0x",
    "0x00",
    "0xff",
    "-0x01",
    "0xffffffffffffffffffffffffffffffffffff",
    "zz",
    "drop",
    "NoAction",
    "exact",
    "$valid$",
    "d2b",
];

/// Mutates JSON. Returns `None` if the input is not JSON.
pub(super) fn mutate(random: &mut Random, input: &[u8], other: &[u8]) -> Option<Vec<u8>> {
    let mut value = parse(input)?;
    let donor = if random.one_in(16) {
        parse(other)
    } else {
        None
    };
    let mut known = Known::default();
    known.learn(donor.as_ref().unwrap_or(&value), "");
    for _ in 0..1 + random.below(4) {
        let nodes = count(&value);
        let chosen = random.below(nodes);
        visit(&mut value, "", &mut { chosen }, &mut |key, node| {
            change(random, &known, key, node);
        });
    }
    serde_json::to_vec(&value).ok()
}

fn parse(input: &[u8]) -> Option<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(input);
    deserializer.disable_recursion_limit();
    let depth = input.iter().filter(|byte| matches!(byte, b'[' | b'{'));
    // A mutation may nest values deeper than the parser allows. Deeply nested inputs are no longer mutated as JSON.
    if depth.count() > 1 << 18 {
        return None;
    }
    Value::deserialize(&mut deserializer).ok()
}

/// Scalars, grouped by the name of the member that has them. When a member gets a new value, it is one of the scalars
/// of members with the same name.
#[derive(Default)]
struct Known(HashMap<String, Vec<Value>>);

impl Known {
    fn learn(&mut self, value: &Value, key: &str) {
        match value {
            Value::Array(items) => items.iter().for_each(|item| self.learn(item, key)),
            Value::Object(members) => {
                for (key, member) in members.iter().filter(|(key, _)| !ignored(key)) {
                    self.learn(member, key);
                }
            }
            scalar => match self.0.get_mut(key) {
                Some(values) => values.push(scalar.clone()),
                None => drop(self.0.insert(key.to_owned(), vec![scalar.clone()])),
            },
        }
    }

    fn any(&self, random: &mut Random, key: &str) -> Value {
        let values = self.0.get(key).filter(|values| !values.is_empty());
        values.map_or(Value::Null, |values| random.pick(values).clone())
    }
}

fn ignored(key: &str) -> bool {
    IGNORED.contains(&key)
}

/// Counts the values that can be changed.
fn count(value: &Value) -> usize {
    1 + match value {
        Value::Array(items) => items.iter().map(count).sum(),
        Value::Object(members) => {
            let members = members.iter().filter(|(key, _)| !ignored(key));
            members.map(|(_, member)| count(member)).sum()
        }
        _ => 0,
    }
}

/// Changes the n-th value. Returns whether there is such a value.
fn visit(
    value: &mut Value,
    key: &str,
    n: &mut usize,
    change: &mut dyn FnMut(&str, &mut Value),
) -> bool {
    if *n == 0 {
        change(key, value);
        return true;
    }
    *n -= 1;
    match value {
        Value::Array(items) => items.iter_mut().any(|item| visit(item, key, n, change)),
        Value::Object(members) => {
            let mut members = members.iter_mut().filter(|(key, _)| !ignored(key));
            members.any(|(key, member)| visit(member, key, n, change))
        }
        _ => false,
    }
}

fn change(random: &mut Random, known: &Known, key: &str, node: &mut Value) {
    match random.below(24) {
        0 => *node = Value::Null,
        1 => *node = any_scalar(random),
        2 => nest(random, node),
        3 => {
            let key = *random.pick(&NEXT);
            *node = known.any(random, key);
        }
        _ => match node {
            Value::Array(items) => change_items(random, items),
            Value::Object(members) => change_members(random, known, members),
            _ if random.one_in(2) => *node = known.any(random, key),
            Value::Bool(flag) => *flag = !*flag,
            Value::Number(number) => *node = near(random, number),
            Value::String(text) => *node = like(random, text),
            Value::Null => *node = known.any(random, key),
        },
    }
}

fn any_scalar(random: &mut Random) -> Value {
    match random.below(4) {
        0 => json!(random.pick(&NUMBERS)),
        1 => json!(random.one_in(2)),
        2 => json!(0.5),
        _ => json!(random.pick(&STRINGS)),
    }
}

fn near(random: &mut Random, number: &serde_json::Number) -> Value {
    let number = number.as_i64().unwrap_or(0);
    json!(match random.below(4) {
        0 => number.wrapping_add(1),
        1 => number.wrapping_sub(1),
        2 => number.wrapping_mul(1 << random.below(24)),
        _ => *random.pick(&NUMBERS),
    })
}

fn like(random: &mut Random, text: &str) -> Value {
    json!(match random.below(4) {
        0 => (*random.pick(&STRINGS)).to_owned(),
        1 => format!("{text}{text}"),
        2 => format!("-{text}"),
        _ => format!("0x{:x}", random.next_u64() >> random.below(64)),
    })
}

/// Wraps the value in arrays or expressions, sometimes deeper than the parser allows.
fn nest(random: &mut Random, node: &mut Value) {
    let depth = if random.one_in(8) {
        500 + random.below(1000)
    } else {
        1 + random.below(4)
    };
    let expression = random.one_in(2);
    for _ in 0..depth {
        let inner = std::mem::take(node);
        *node = if expression {
            json!({"type": "expression", "value": {"op": "~", "left": null, "right": inner}})
        } else {
            Value::Array(vec![inner])
        };
    }
}

fn change_items(random: &mut Random, items: &mut Vec<Value>) {
    let length = items.len();
    let (one, two) = (random.below(length), random.below(length));
    match random.below(6) {
        _ if items.is_empty() => items.push(any_scalar(random)),
        0 => drop(items.remove(one)),
        1 => items.push(items[one].clone()),
        2 => items.swap(one, two),
        3 => items.truncate(one),
        4 => items[one] = items[two].clone(),
        _ => items.insert(one, any_scalar(random)),
    }
}

fn change_members(random: &mut Random, known: &Known, members: &mut Map<String, Value>) {
    let keys: Vec<String> = members
        .keys()
        .filter(|key| !ignored(key))
        .cloned()
        .collect();
    if keys.is_empty() {
        return;
    }
    let (one, two) = (random.pick(&keys).clone(), random.pick(&keys).clone());
    match random.below(5) {
        0 => drop(members.remove(&one)),
        1 => {
            let value = members[&two].clone();
            members.insert(one, value);
        }
        2 => {
            let value = members.remove(&one).unwrap_or_default();
            members.insert(format!("{one}_"), value);
        }
        3 => {
            // Replaces the reference to the next node by any node's name, so that loops occur.
            let value = known.any(random, "name");
            let next = keys.iter().find(|key| NEXT.contains(&key.as_str()));
            members.insert(next.unwrap_or(&one).clone(), value);
        }
        _ => {
            let value = known.any(random, &one);
            members.insert(one, value);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_out_is_json_and_differs() {
        let input = br#"{"a": [1, {"name": "x", "id": 3}], "init_table": "x"}"#;
        let mut random = Random::new(7);
        let mut different = 0;
        for _ in 0..200 {
            let output = mutate(&mut random, input, b"{}").expect("the input is JSON");
            let value = parse(&output).expect("the output is JSON");
            different += usize::from(value != parse(input).expect("the input is JSON"));
        }
        assert!(different > 150, "{different}");
    }

    #[test]
    fn what_is_no_json_is_left_to_others() {
        assert_eq!(mutate(&mut Random::new(1), b"{", b""), None);
    }
}

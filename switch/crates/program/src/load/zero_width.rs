// SPDX-License-Identifier: Apache-2.0
//! Removes fields and parameters of type `bit<0>`, whose value is always 0. They are removed from the JSON before the
//! program is read, so that no other module has to handle a width of 0.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

/// Removed fields, each as the name of its header or stack and the name of the field.
type Fields = HashSet<(String, String)>;

/// Removes all fields and parameters of zero width from the program.
pub(super) fn remove(root: &mut Value) {
    let fields = fields(root);
    let has_params = |action: &Value| list(&action["runtime_data"]).any(is_empty_param);
    if fields.is_empty() && !list(&root["actions"]).any(has_params) {
        return;
    }
    for ty in items(&mut root["header_types"]) {
        if let Some(fields) = ty["fields"].as_array_mut() {
            fields.retain(|field| !is_empty_field(field));
        }
    }
    for action in items(&mut root["actions"]) {
        let places = take_params(action);
        clean(&mut action["primitives"], &fields, &places);
    }
    clean(root, &fields, &HashMap::new());
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn items(value: &mut Value) -> impl Iterator<Item = &mut Value> {
    value.as_array_mut().into_iter().flatten()
}

fn is_empty_field(field: &Value) -> bool {
    field[1] == 0
}

fn is_empty_param(param: &Value) -> bool {
    param["bitwidth"] == 0
}

fn fields(root: &Value) -> Fields {
    let mut types = HashMap::new();
    for ty in list(&root["header_types"]) {
        let empty = list(&ty["fields"]).filter(|field| is_empty_field(field));
        let names: Vec<_> = empty.filter_map(|field| field[0].as_str()).collect();
        if let (Some(name), false) = (ty["name"].as_str(), names.is_empty()) {
            types.insert(name, names);
        }
    }
    let instances = list(&root["headers"]).chain(list(&root["header_stacks"]));
    let of = |instance: &Value| {
        let name = instance["name"].as_str()?.to_owned();
        let fields = types.get(instance["header_type"].as_str()?)?.clone();
        Some(
            fields
                .into_iter()
                .map(move |field| (name.clone(), field.to_owned())),
        )
    };
    instances.filter_map(of).flatten().collect()
}

/// Removes parameters of zero width from an action. Maps each old index to the new one, or to `None` if the parameter
/// was removed.
fn take_params(action: &mut Value) -> HashMap<u64, Option<u64>> {
    let Some(params) = action["runtime_data"].as_array_mut() else {
        return HashMap::new();
    };
    let (mut places, mut next) = (HashMap::new(), 0);
    if params.iter().any(is_empty_param) {
        for (index, param) in (0..).zip(params.iter()) {
            let stays = !is_empty_param(param);
            places.insert(index, stays.then_some(next));
            next += u64::from(stays);
        }
        params.retain(|param| !is_empty_param(param));
    }
    places
}

fn is_reference(value: &Value, fields: &Fields) -> bool {
    let names = || {
        Some((
            value["value"][0].as_str()?.into(),
            value["value"][1].as_str()?.into(),
        ))
    };
    let field = value["type"] == "field" || value["type"] == "stack_field";
    field && names().is_some_and(|names| fields.contains(&names))
}

/// Returns whether an operation assigns to a removed field.
fn assigns(operation: &Value, fields: &Fields) -> bool {
    let assigns = operation["op"] == "assign" || operation["op"] == "set";
    assigns && is_reference(&operation["parameters"][0], fields)
}

/// Replaces references to removed fields and parameters by 0, and removes assignments to them.
fn clean(value: &mut Value, fields: &Fields, params: &HashMap<u64, Option<u64>>) {
    if is_reference(value, fields) {
        *value = json!({"type": "hexstr", "value": "0x0"});
        return;
    }
    match value {
        Value::Array(items) => {
            items.retain(|item| !assigns(item, fields));
            for item in items {
                clean(item, fields, params);
            }
        }
        Value::Object(members) => {
            let param = members.get("type").is_some_and(|ty| ty == "runtime_data");
            let place = members
                .get("value")
                .and_then(Value::as_u64)
                .filter(|_| param);
            match place.and_then(|place| params.get(&place)) {
                Some(Some(place)) => drop(members.insert("value".into(), json!(place))),
                Some(None) => *value = json!({"type": "hexstr", "value": "0x0"}),
                None => {
                    for member in members.values_mut() {
                        clean(member, fields, params);
                    }
                }
            }
        }
        _ => {}
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Reads tables, conditions, action profiles and control flow. Refuses control flow with cycles.

use std::collections::HashMap;

use super::actions::Actions;
use super::cursor::{Cursor, Result};
use super::expressions::Expressions;
use super::externs;
use super::loader::Loader;
use super::references::FieldName;
use crate::action::Action;
use crate::control::{
    Conditional, Key, KeySource, MatchKind, Next, Node, Pipeline, Profile, Selector, Table,
    TableDefault, TableEntry, TableKeyValue,
};
use crate::externs::{Counter, Meter};
use crate::ids::*;

pub(super) struct Pipelines {
    pub(super) ingress: Pipeline,
    pub(super) egress: Pipeline,
    pub(super) tables: Vec<Table>,
    pub(super) conditionals: Vec<Conditional>,
    pub(super) profiles: Vec<Profile>,
    pub(super) counters: Vec<Counter>,
    pub(super) meters: Vec<Meter>,
}

/// The objects to which the JSON of one pipeline refers by name.
struct Names<'a> {
    nodes: HashMap<&'a str, Node>,
    profiles: HashMap<&'a str, ProfileId>,
    ingress: bool,
}

impl Loader {
    pub(super) fn pipelines(
        &self,
        root: &Cursor<'_>,
        actions: &Actions,
        counters: Vec<Counter>,
        meters: Vec<Meter>,
    ) -> Result<Pipelines> {
        let mut all = Pipelines {
            ingress: Pipeline::default(),
            egress: Pipeline::default(),
            tables: Vec::new(),
            conditionals: Vec::new(),
            profiles: Vec::new(),
            counters,
            meters,
        };
        for json in root.at("pipelines")?.items()? {
            let name = json.at("name")?.str()?;
            let ingress = match name {
                "ingress" => true,
                "egress" => false,
                _ => return Err(json.unsupported(format!("a pipeline called \"{name}\""))),
            };
            let pipeline = self.pipeline(&json, ingress, actions, &mut all)?;
            *(if ingress {
                &mut all.ingress
            } else {
                &mut all.egress
            }) = pipeline;
        }
        self.bind_direct_counters(root, &mut all)?;
        find_copies(&mut all.tables, &actions.actions);
        Ok(all)
    }

    fn pipeline(
        &self,
        json: &Cursor<'_>,
        ingress: bool,
        actions: &Actions,
        all: &mut Pipelines,
    ) -> Result<Pipeline> {
        if let Some(call) = json.list("action_calls")?.first() {
            return Err(call.unsupported("\"action_calls\" (p4c does not emit them)"));
        }
        let mut names = Names {
            nodes: HashMap::new(),
            profiles: HashMap::new(),
            ingress,
        };
        for profile in json.list("action_profiles")? {
            let name = profile.at("name")?.str()?;
            names
                .profiles
                .insert(name, ProfileId::new(all.profiles.len()));
            all.profiles.push(self.profile(&profile)?);
        }
        let tables = json.list("tables")?;
        for (index, table) in tables.iter().enumerate() {
            let id = TableId::new(all.tables.len() + index);
            names
                .nodes
                .insert(table.at("name")?.str()?, Node::Table(id));
        }
        let conditionals = json.list("conditionals")?;
        for (index, conditional) in conditionals.iter().enumerate() {
            let id = ConditionalId::new(all.conditionals.len() + index);
            names
                .nodes
                .insert(conditional.at("name")?.str()?, Node::Conditional(id));
        }
        for table in &tables {
            all.tables.push(self.table(table, &names, actions)?);
        }
        for conditional in &conditionals {
            all.conditionals
                .push(self.conditional(conditional, &names)?);
        }
        let first = names.next(json.get("init_table").as_ref())?;
        refuse_cycles(json, first, all)?;
        Ok(Pipeline { first })
    }

    fn profile(&self, json: &Cursor<'_>) -> Result<Profile> {
        let selector = match json.get("selector") {
            Some(selector) => Some(Selector {
                algorithm: externs::algorithm(&selector.at("algo")?)?,
                input: self.headers.calculation_inputs(&selector.at("input")?)?,
            }),
            None => None,
        };
        Ok(Profile {
            name: json.name()?,
            max_size: json.at("max_size")?.usize()?,
            selector,
        })
    }

    fn conditional(&self, json: &Cursor<'_>, names: &Names<'_>) -> Result<Conditional> {
        Ok(Conditional {
            name: json.name()?,
            condition: Expressions::new(self, &[]).bool(&json.at("expression")?)?,
            if_true: names.next(json.get("true_next").as_ref())?,
            if_false: names.next(json.get("false_next").as_ref())?,
            source: json.source(),
        })
    }

    fn table(&self, json: &Cursor<'_>, names: &Names<'_>, actions: &Actions) -> Result<Table> {
        let key = self.table_key(json)?;
        let kind = match_kind(&json.at("match_type")?)?;
        let key_bytes = key.iter().map(Key::bytes).sum();
        let mut ids = Vec::new();
        for id in json.list("action_ids")? {
            ids.push(actions.by_json_id(&id)?);
        }
        let profile = match json.at("type")?.str()? {
            "simple" => None,
            "indirect" | "indirect_ws" => {
                let name = json.at("action_profile")?;
                Some(*names.profiles.get(name.str()?).ok_or_else(|| {
                    name.error("there is no action profile with this name in this pipeline")
                })?)
            }
            other => return Err(json.unsupported(format!("a table of type \"{other}\""))),
        };
        let default = json
            .get("default_entry")
            .map(|default| actions.default(&default))
            .transpose()?;
        let entries = json
            .list("entries")?
            .iter()
            .map(|entry| table_entry(entry, &key, actions))
            .collect::<Result<Vec<_>>>()?;
        let (next, on_hit, on_miss) = names.next_tables(json, actions)?;
        let next_any = match next.split_first() {
            Some(((_, first), rest)) if rest.iter().all(|(_, next)| next == first) => Some(*first),
            _ => None,
        };
        Ok(Table {
            name: json.name()?,
            key_bytes,
            kind,
            actions: ids,
            copies: Vec::new(),
            profile,
            max_size: json.get("max_size").map_or(Ok(1024), |size| size.usize())?,
            counter: None,
            with_counters: json.flag("with_counters")?,
            support_timeout: json.flag("support_timeout")?,
            meter: None,
            default,
            const_entries: json.get("entries").is_some(),
            entries,
            next,
            next_any,
            on_hit,
            on_miss,
            base_default: names.next(json.get("base_default_next").as_ref())?,
            ingress: names.ingress,
            source: json.source(),
            key,
        })
    }

    fn table_key(&self, json: &Cursor<'_>) -> Result<Vec<Key>> {
        let mut key = Vec::new();
        let mut offset = 0;
        let mut prefixes = 0;
        for field in json.list("key")? {
            let target = field.at("target")?;
            let kind_name = field.at("match_type")?;
            let valid = kind_name.str()? == "valid";
            let (source, width) = if valid {
                let name = if target.is_array() {
                    target.nth(0)?
                } else {
                    target.clone()
                };
                (KeySource::Valid(self.headers.header_named(&name)?), 1)
            } else {
                self.key_source(&target)?
            };
            let kind = if valid {
                MatchKind::Exact
            } else {
                match_kind(&kind_name)?
            };
            prefixes += usize::from(kind == MatchKind::Lpm);
            if prefixes > 1 {
                return Err(field.error("a table can have only one lpm field"));
            }
            let bytes = usize::from(width).div_ceil(8);
            let mask = field
                .get("mask")
                .map(|mask| mask.hex_bytes(bytes))
                .transpose()?;
            let name = match field.get("name") {
                Some(name) => name.str()?.to_owned(),
                None if target.is_array() => {
                    format!("{}.{}", target.nth(0)?.str()?, target.nth(1)?.str()?)
                }
                None => target.str()?.to_owned(),
            };
            key.push(Key {
                name,
                kind,
                width,
                source,
                mask,
                offset,
            });
            offset += bytes;
        }
        Ok(key)
    }

    fn key_source(&self, target: &Cursor<'_>) -> Result<(KeySource, u16)> {
        Ok(match self.headers.field_named(target)? {
            FieldName::Field(header, slot) => {
                let metadata = self.headers.headers[header.index()].metadata;
                let source = if metadata {
                    KeySource::Metadata(slot)
                } else {
                    KeySource::Field(header, slot)
                };
                (source, slot.width)
            }
            FieldName::Valid(header) => (KeySource::Valid(header), 1),
            FieldName::Varbit(_) => return Err(target.unsupported("a varbit field as a key")),
        })
    }

    /// Connects each direct counter and each direct meter with its table, which the JSON calls its binding. Also
    /// connects each direct meter with the field that receives the colour.
    fn bind_direct_counters(&self, root: &Cursor<'_>, all: &mut Pipelines) -> Result<()> {
        for (index, json) in root.list("counter_arrays")?.iter().enumerate() {
            if let Some(table) = bound_table(json, &all.tables)? {
                all.counters[index].table = Some(table);
                all.tables[table.index()].counter = Some(CounterId::new(index));
            }
        }
        for (index, json) in root.list("meter_arrays")?.iter().enumerate() {
            if let Some(table) = bound_table(json, &all.tables)? {
                let target = self.headers.slot_named(&json.at("result_target")?)?;
                all.meters[index].table = Some(table);
                all.tables[table.index()].meter = Some((MeterId::new(index), target));
            }
        }
        Ok(())
    }
}

fn bound_table(json: &Cursor<'_>, tables: &[Table]) -> Result<Option<TableId>> {
    if !json.flag("is_direct")? {
        return Ok(None);
    }
    let Some(name) = json.get("binding") else {
        return Ok(None);
    };
    let text = name.str()?;
    let index = tables
        .iter()
        .position(|table| table.name == text)
        .ok_or_else(|| name.error(format!("there is no table called {text}")))?;
    Ok(Some(TableId::new(index)))
}

fn match_kind(name: &Cursor<'_>) -> Result<MatchKind> {
    Ok(match name.str()? {
        "exact" | "valid" => MatchKind::Exact,
        "lpm" => MatchKind::Lpm,
        "ternary" => MatchKind::Ternary,
        "range" => MatchKind::Range,
        "optional" => MatchKind::Optional,
        other => return Err(name.unsupported(format!("the match kind \"{other}\""))),
    })
}

fn table_entry(json: &Cursor<'_>, key: &[Key], actions: &Actions) -> Result<TableEntry> {
    let values = json.at("match_key")?.items()?;
    if values.len() != key.len() {
        return Err(json.error(format!("{} key fields are expected", key.len())));
    }
    let key = key
        .iter()
        .zip(&values)
        .map(|(field, value)| entry_value(value, field))
        .collect::<Result<_>>()?;
    let entry = json.at("action_entry")?;
    let (action, params) = actions.call(&entry)?;
    let priority = json
        .get("priority")
        .map_or(Ok(0), |priority| priority.u32())?;
    Ok(TableEntry {
        key,
        priority,
        action,
        params,
    })
}

fn entry_value(json: &Cursor<'_>, field: &Key) -> Result<TableKeyValue> {
    use MatchKind::{Exact, Lpm, Optional, Range, Ternary};
    let hex = |name| json.at(name)?.hex_bits(field.width);
    let kind = json.at("match_type")?;
    Ok(match (kind.str()?, field.kind) {
        ("valid", Exact) => {
            let value = json.at("key")?;
            TableKeyValue::Exact(match value.bool() {
                Ok(valid) => vec![u8::from(valid)],
                Err(_) => value.hex_bits(1)?,
            })
        }
        ("exact", Exact | Ternary | Optional) => TableKeyValue::Exact(hex("key")?),
        ("lpm", Lpm | Ternary) => {
            let length = json.at("prefix_length")?;
            match length.u32()? {
                bits if bits <= u32::from(field.width) => TableKeyValue::Lpm(hex("key")?, bits),
                bits => return Err(length.error(format!("a prefix of {bits} bits is too long"))),
            }
        }
        ("ternary", Ternary) => TableKeyValue::Ternary(hex("key")?, hex("mask")?),
        ("range", Range) => {
            let (low, high) = (hex("start")?, hex("end")?);
            if low > high {
                return Err(json.error("the range is empty"));
            }
            TableKeyValue::Range(low, high)
        }
        ("optional", Optional | Ternary) => {
            TableKeyValue::Optional(json.get("key").map(|_| hex("key")).transpose()?)
        }
        (other, kind) => {
            return Err(json.error(format!("a value of kind \"{other}\" for a {kind:?} field")));
        }
    })
}

impl Actions {
    fn by_json_id(&self, id: &Cursor<'_>) -> Result<ActionId> {
        let number = id.u32()?;
        let found = self.ids.get(&number).copied();
        found.ok_or_else(|| id.error(format!("there is no action with id {number}")))
    }

    /// Reads an action and the values of its parameters.
    fn call(&self, json: &Cursor<'_>) -> Result<(ActionId, Vec<Vec<u8>>)> {
        let action = self.by_json_id(&json.at("action_id")?)?;
        let params = &self.actions[action.index()].params;
        let values = json.list("action_data")?;
        if values.len() != params.len() {
            return Err(json.error(format!("{} parameters are expected", params.len())));
        }
        let values = params
            .iter()
            .zip(&values)
            .map(|(param, value)| value.hex_bits(param.slot.width))
            .collect::<Result<_>>()?;
        Ok((action, values))
    }

    fn default(&self, json: &Cursor<'_>) -> Result<TableDefault> {
        let (action, params) = self.call(json)?;
        Ok(TableDefault {
            action,
            params,
            const_action: json.flag("action_const")?,
            const_entry: json.flag("action_entry_const")?,
        })
    }
}

type NextTables = (Vec<(ActionId, Next)>, Option<Next>, Option<Next>);

impl Names<'_> {
    fn next(&self, name: Option<&Cursor<'_>>) -> Result<Next> {
        let Some(name) = name else { return Ok(None) };
        let text = name.str()?;
        let node = self.nodes.get(text).copied();
        node.map(Some)
            .ok_or_else(|| name.error(format!("there is no table or condition {text}")))
    }

    /// Reads `next_tables`. Its keys are action names, or `__HIT__` and `__MISS__`.
    fn next_tables(&self, json: &Cursor<'_>, actions: &Actions) -> Result<NextTables> {
        let (mut next, mut on_hit, mut on_miss) = (Vec::new(), None, None);
        for (key, value) in json.at("next_tables")?.members()? {
            let node = self.next(Some(&value).filter(|value| !value.is_null()))?;
            match key {
                "__HIT__" => on_hit = Some(node),
                "__MISS__" => on_miss = Some(node),
                // If several tables use an action, p4c makes a copy with the same name for each table. A member of a
                // profile that the tables share may refer to another table's copy.
                name => {
                    let ids = actions.actions.iter().enumerate();
                    let named = ids.filter(|(_, action)| action.name == name);
                    next.extend(named.map(|(index, _)| (ActionId::new(index), node)));
                }
            }
        }
        Ok((next, on_hit, on_miss))
    }
}

/// Refuses control flow with cycles. Walks the steps depth-first, and fails at a step that is already on the current
/// path.
fn refuse_cycles(json: &Cursor<'_>, first: Next, all: &Pipelines) -> Result<()> {
    #[derive(Clone, Copy, PartialEq)]
    enum Mark {
        New,
        Open,
        Done,
    }
    let index = |node: Node| match node {
        Node::Table(id) => id.index(),
        Node::Conditional(id) => all.tables.len() + id.index(),
    };
    let mut marks = vec![Mark::New; all.tables.len() + all.conditionals.len()];
    let mut stack: Vec<(Node, bool)> = first.into_iter().map(|node| (node, false)).collect();
    while let Some((node, leaving)) = stack.pop() {
        let mark = &mut marks[index(node)];
        match (*mark, leaving) {
            (_, true) => *mark = Mark::Done,
            (Mark::Done, false) => {}
            (Mark::Open, false) => return Err(json.error("the control flow has a cycle")),
            (Mark::New, false) => {
                *mark = Mark::Open;
                stack.push((node, true));
                stack.extend(
                    successors(node, all)
                        .into_iter()
                        .flatten()
                        .map(|n| (n, false)),
                );
            }
        }
    }
    Ok(())
}

fn successors(node: Node, all: &Pipelines) -> Vec<Next> {
    match node {
        Node::Table(id) => {
            let table = &all.tables[id.index()];
            let by_action = table.next.iter().map(|(_, next)| *next);
            let others = [
                table.on_hit.flatten(),
                table.on_miss.flatten(),
                table.base_default,
            ];
            by_action.chain(others).collect()
        }
        Node::Conditional(id) => {
            let conditional = &all.conditionals[id.index()];
            vec![conditional.if_true, conditional.if_false]
        }
    }
}

/// Fills [`Table::copies`]. If several tables share an action profile, finds for each of them the other tables'
/// copies of its own actions. Copies of one action have equal names.
fn find_copies(tables: &mut [Table], actions: &[Action]) {
    let name = |id: &ActionId| &actions[id.index()].name;
    for index in 0..tables.len() {
        let table = &tables[index];
        let sharing = tables
            .iter()
            .filter(|other| table.profile.is_some() && other.profile == table.profile);
        let others = sharing.flat_map(|other| &other.actions);
        let copies = others
            .filter(|other| !table.actions.contains(other))
            .filter_map(|other| {
                let own = table.actions.iter().find(|own| name(own) == name(other));
                own.map(|own| (*other, *own))
            });
        tables[index].copies = copies.collect();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Holds P4Info in a form that suits the generation of updates. This form is independent of the server's own
//! representation.

use std::collections::BTreeMap;

use sluice_p4runtime::proto::config::v1::action_profile::SelectorSizeSemantics;
use sluice_p4runtime::proto::config::v1::{
    self as config, P4Info, Preamble, action_ref, match_field,
};

pub(super) use match_field::MatchType;

/// A match field.
#[derive(Clone, Debug)]
pub(super) struct Field {
    pub(super) id: u32,
    pub(super) kind: MatchType,
    pub(super) width: usize,
}

/// A table.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) id: u32,
    pub(super) fields: Vec<Field>,
    /// Ids of actions that entries may have.
    pub(super) actions: Vec<u32>,
    /// Ids of actions that the default entry may have.
    pub(super) defaults: Vec<u32>,
    pub(super) profile: Option<u32>,
    pub(super) size: usize,
    pub(super) constant: bool,
    pub(super) constant_default: bool,
    pub(super) idle_timeout: bool,
    pub(super) counter: bool,
    pub(super) meter: bool,
}

impl Table {
    pub(super) fn needs_priority(&self) -> bool {
        self.fields
            .iter()
            .any(|field| !matches!(field.kind, MatchType::Exact | MatchType::Lpm))
    }
}

/// An action profile or selector.
#[derive(Clone, Debug)]
pub(super) struct Profile {
    pub(super) id: u32,
    /// Ids of actions that members may have.
    pub(super) actions: Vec<u32>,
    pub(super) selector: bool,
    pub(super) size: usize,
    /// Maximum sum of the weights in a group.
    pub(super) max_group_size: u32,
    pub(super) sum_of_members: bool,
}

/// An array of counters, meters or registers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Array {
    pub(super) id: u32,
    pub(super) size: usize,
    /// Width of a register's cells in bits.
    pub(super) width: usize,
}

/// All objects of a program that updates can name.
#[derive(Clone, Debug, Default)]
pub(super) struct Info {
    pub(super) tables: BTreeMap<u32, Table>,
    /// Ids and widths of each action's parameters.
    pub(super) actions: BTreeMap<u32, Vec<(u32, usize)>>,
    pub(super) profiles: BTreeMap<u32, Profile>,
    pub(super) counters: Vec<Array>,
    pub(super) meters: Vec<Array>,
    pub(super) registers: Vec<Array>,
    /// Id, fields and size of each value set.
    pub(super) value_sets: Vec<(u32, Vec<Field>, usize)>,
    pub(super) digests: Vec<u32>,
}

/// Maximum number of cells in an array. Larger arrays are left out, because reading them after each batch takes too
/// long.
const MAX_CELLS: i64 = 64;

fn id(preamble: &Option<Preamble>) -> u32 {
    preamble.as_ref().map_or(0, |preamble| preamble.id)
}

fn fields(fields: &[config::MatchField]) -> Vec<Field> {
    let field = |field: &config::MatchField| Field {
        id: field.id,
        kind: match field.r#match {
            Some(match_field::Match::MatchType(kind)) => {
                MatchType::try_from(kind).unwrap_or(MatchType::Unspecified)
            }
            _ => MatchType::Unspecified,
        },
        width: field.bitwidth as usize,
    };
    fields.iter().map(field).collect()
}

impl Info {
    /// Converts P4Info to this form.
    pub(super) fn new(info: &P4Info) -> Self {
        let tables: BTreeMap<_, _> = info
            .tables
            .iter()
            .map(|table| (id(&table.preamble), self::table(info, table)))
            .collect();
        let profiles = info.action_profiles.iter();
        let profiles =
            profiles.map(|profile| (id(&profile.preamble), self::profile(&tables, profile)));
        let params = |action: &config::Action| {
            let params = action.params.iter();
            params.map(|p| (p.id, p.bitwidth as usize)).collect()
        };
        let actions = info.actions.iter();
        Self {
            profiles: profiles.collect(),
            tables,
            actions: actions.map(|a| (id(&a.preamble), params(a))).collect(),
            counters: arrays(info.counters.iter().map(|c| (id(&c.preamble), c.size, 0))),
            meters: arrays(info.meters.iter().map(|m| (id(&m.preamble), m.size, 0))),
            registers: arrays(info.registers.iter().filter_map(register)),
            value_sets: info
                .value_sets
                .iter()
                .map(|set| (id(&set.preamble), fields(&set.r#match), set.size as usize))
                .collect(),
            digests: info.digests.iter().map(|d| id(&d.preamble)).collect(),
        }
    }
}

fn arrays(all: impl Iterator<Item = (u32, i64, usize)>) -> Vec<Array> {
    all.filter(|(_, size, _)| (1..=MAX_CELLS).contains(size))
        .map(|(id, size, width)| Array {
            id,
            size: size as usize,
            width,
        })
        .collect()
}

/// Returns id, size and width of a register whose cells are plain bit strings; `None` for others.
fn register(register: &config::Register) -> Option<(u32, i64, usize)> {
    use config::p4_bitstring_like_type_spec::TypeSpec;
    let spec = register.type_spec.as_ref()?.type_spec.as_ref()?;
    let config::p4_data_type_spec::TypeSpec::Bitstring(spec) = spec else {
        return None;
    };
    let Some(TypeSpec::Bit(bit)) = &spec.type_spec else {
        return None;
    };
    let width = usize::try_from(bit.bitwidth).ok()?;
    Some((id(&register.preamble), register.size.into(), width))
}

fn table(info: &P4Info, table: &config::Table) -> Table {
    let own = id(&table.preamble);
    let of_scope = |scope: action_ref::Scope| {
        let unwanted = i32::from(scope);
        let refs = table.action_refs.iter();
        refs.filter(|r| r.scope != unwanted).map(|r| r.id).collect()
    };
    Table {
        id: own,
        fields: fields(&table.match_fields),
        actions: of_scope(action_ref::Scope::DefaultOnly),
        defaults: of_scope(action_ref::Scope::TableOnly),
        profile: (table.implementation_id != 0).then_some(table.implementation_id),
        size: usize::try_from(table.size).unwrap_or(0),
        constant: table.is_const_table,
        constant_default: table.const_default_action_id != 0,
        idle_timeout: table.idle_timeout_behavior != 0,
        counter: info
            .direct_counters
            .iter()
            .any(|c| c.direct_table_id == own),
        meter: info.direct_meters.iter().any(|m| m.direct_table_id == own),
    }
}

fn profile(tables: &BTreeMap<u32, Table>, profile: &config::ActionProfile) -> Profile {
    let user = profile.table_ids.iter().find_map(|id| tables.get(id));
    Profile {
        id: id(&profile.preamble),
        actions: user.map_or_else(Vec::new, |table| table.actions.clone()),
        selector: profile.with_selector,
        size: usize::try_from(profile.size).unwrap_or(0),
        max_group_size: match profile.max_group_size {
            0 => u32::try_from(profile.size).unwrap_or(u32::MAX),
            size => size as u32,
        },
        sum_of_members: matches!(
            profile.selector_size_semantics,
            Some(SelectorSizeSemantics::SumOfMembers(_))
        ),
    }
}

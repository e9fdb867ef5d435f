// SPDX-License-Identifier: Apache-2.0
//! Pipelines: tables, conditions, and the control flow between them.

use crate::error::SourceInfo;
use crate::expr::Bool;
use crate::externs::HashAlgorithm;
use crate::ids::{ActionId, ConditionalId, CounterId, HeaderId, MeterId, ProfileId, TableId};
use crate::layout::Slot;

/// The next step; `None` ends the pipeline.
pub type Next = Option<Node>;

/// A step of a pipeline.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Apply a table.
    Table(TableId),
    /// Evaluate a condition.
    Conditional(ConditionalId),
}

/// A pipeline: ingress or egress.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pipeline {
    /// The first step.
    pub first: Next,
}

/// An `if`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditional {
    /// Name given by p4c.
    pub name: String,
    /// The condition.
    pub condition: Bool,
    /// Next step when true.
    pub if_true: Next,
    /// Next step when false.
    pub if_false: Next,
    /// Location in the P4 source.
    pub source: Option<SourceInfo>,
}

/// Match kind of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// Equal.
    Exact,
    /// Longest prefix.
    Lpm,
    /// Value under mask.
    Ternary,
    /// Between two bounds, both included.
    Range,
    /// Equal, or anything.
    Optional,
}

impl MatchKind {
    /// Whether entries with such a field require a priority (P4Runtime 1.5, section 9.1.1).
    pub fn needs_priority(self) -> bool {
        matches!(self, Self::Ternary | Self::Range | Self::Optional)
    }
}

/// A key field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name, as in P4Info's match field.
    pub name: String,
    /// Match kind.
    pub kind: MatchKind,
    /// Width in bits.
    pub width: u16,
    /// Source of the value.
    pub source: KeySource,
    /// A constant mask applied to the packet's value, of (width + 7) / 8 bytes.
    pub mask: Option<Vec<u8>>,
    /// Offset of the first byte in the lookup key; every field is padded to whole bytes.
    pub offset: usize,
}

impl Key {
    /// Returns the number of bytes in the lookup key.
    pub fn bytes(&self) -> usize {
        usize::from(self.width).div_ceil(8)
    }
}

/// Source of a key field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A field; 0 when its header is not valid.
    Field(HeaderId, Slot),
    /// A metadata field.
    Metadata(Slot),
    /// Validity of a header, as one bit.
    Valid(HeaderId),
}

/// A table's default entry, which runs on a miss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefault {
    /// The action.
    pub action: ActionId,
    /// Its parameters, big-endian bytes of (width + 7) / 8 each.
    pub params: Vec<Vec<u8>>,
    /// The control plane cannot set another action.
    pub const_action: bool,
    /// The control plane cannot change the parameters either.
    pub const_entry: bool,
}

/// A value of a constant entry's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableKeyValue {
    /// Exact value.
    Exact(Vec<u8>),
    /// Value and prefix length.
    Lpm(Vec<u8>, u32),
    /// Value and mask.
    Ternary(Vec<u8>, Vec<u8>),
    /// Bounds.
    Range(Vec<u8>, Vec<u8>),
    /// Value, or anything.
    Optional(Option<Vec<u8>>),
}

/// An entry of the program.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// One value for each key field.
    pub key: Vec<TableKeyValue>,
    /// As in the JSON: a lower number wins.
    pub priority: u32,
    /// The action.
    pub action: ActionId,
    /// Its parameters.
    pub params: Vec<Vec<u8>>,
}

/// A match-action table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name, as in P4Info's `preamble.name`.
    pub name: String,
    /// Key fields; none for a table that only has a default action.
    pub key: Vec<Key>,
    /// Bytes of the lookup key.
    pub key_bytes: usize,
    /// Match kind of the whole key.
    pub kind: MatchKind,
    /// Actions that entries may have.
    pub actions: Vec<ActionId>,
    /// For actions of other tables that share its action profile: the copy of this table. p4c makes a copy of an action
    /// for every table that uses it, and a member names one of the copies.
    pub copies: Vec<(ActionId, ActionId)>,
    /// The implementation, if entries refer to members or groups.
    pub profile: Option<ProfileId>,
    /// Declared number of entries.
    pub max_size: usize,
    /// Whether it has a direct counter.
    pub counter: Option<CounterId>,
    /// `with_counters` of the JSON.
    pub with_counters: bool,
    /// Whether entries may have idle timeouts.
    pub support_timeout: bool,
    /// Its direct meter, and the field that receives the colour.
    pub meter: Option<(MeterId, Slot)>,
    /// The default entry, if the program defines one.
    pub default: Option<TableDefault>,
    /// Entries of the program.
    pub entries: Vec<TableEntry>,
    /// The control plane cannot change the entries.
    pub const_entries: bool,
    /// Next step by action, if neither `on_hit` nor `on_miss` is set.
    pub next: Vec<(ActionId, Next)>,
    /// Next step after any action, if it is the same for all.
    pub next_any: Option<Next>,
    /// Next step after a hit, whatever the action.
    pub on_hit: Option<Next>,
    /// Next step after a miss, whatever the action.
    pub on_miss: Option<Next>,
    /// Next step after a miss when there is no default action.
    pub base_default: Next,
    /// Whether it belongs to the ingress pipeline.
    pub ingress: bool,
    /// Location in the P4 source.
    pub source: Option<SourceInfo>,
}

impl Table {
    /// Whether entries have a priority.
    pub fn needs_priority(&self) -> bool {
        self.key.iter().any(|key| key.kind.needs_priority())
    }

    /// Returns the table's own copy of the action that a member names.
    #[inline]
    pub fn own_copy(&self, action: ActionId) -> ActionId {
        let mut copies = self.copies.iter();
        copies
            .find(|(other, _)| *other == action)
            .map_or(action, |(_, own)| *own)
    }

    /// Returns the next step after `action` on a hit or a miss.
    #[inline]
    pub fn next_after(&self, action: Option<ActionId>, hit: bool) -> Next {
        match (hit, self.on_hit, self.on_miss) {
            (true, Some(next), _) | (false, _, Some(next)) => next,
            _ => match (action, self.next_any) {
                (None, _) => self.base_default,
                (Some(_), Some(next)) => next,
                (Some(action), None) => {
                    let known = self.next.iter().find(|(id, _)| *id == action);
                    known.map_or(self.base_default, |(_, next)| *next)
                }
            },
        }
    }
}

/// Selection of a group's member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The hash.
    pub algorithm: HashAlgorithm,
    /// The input of the hash.
    pub input: Vec<crate::externs::CalculationInput>,
}

/// An action profile or action selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name, as in P4Info.
    pub name: String,
    /// Declared number of members (or, for a selector, of member slots).
    pub max_size: usize,
    /// Present in a selector.
    pub selector: Option<Selector>,
}

// SPDX-License-Identifier: Apache-2.0
//! Defines pipelines: tables, conditions, and the control flow between them.

use crate::error::SourceInfo;
use crate::expr::Bool;
use crate::externs::HashAlgorithm;
use crate::ids::{ActionId, ConditionalId, CounterId, HeaderId, MeterId, ProfileId, TableId};
use crate::layout::FieldSlot;

/// The next step of a pipeline. `None` ends the pipeline.
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

/// An `if` statement of a pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conditional {
    /// Name given by p4c.
    pub name: String,
    /// The condition.
    pub condition: Bool,
    /// Next step if the condition is true.
    pub if_true: Next,
    /// Next step if the condition is false.
    pub if_false: Next,
    /// Location in the P4 source.
    pub source: Option<SourceInfo>,
}

/// Match kind of a key field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchKind {
    /// The value must be equal.
    Exact,
    /// The entry with the longest matching prefix wins.
    Lpm,
    /// The value and the entry's value must be equal in the bits that the mask selects.
    Ternary,
    /// The value must be between two bounds, both included.
    Range,
    /// The value must be equal, unless the entry matches any value of the field.
    Optional,
}

impl MatchKind {
    /// Returns whether entries with a field of this kind require a priority (P4Runtime 1.5, section 9.1.1).
    pub fn needs_priority(self) -> bool {
        matches!(self, Self::Ternary | Self::Range | Self::Optional)
    }
}

/// A field of a table's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    /// Name, equal to the name of the match field in P4Info.
    pub name: String,
    /// Match kind.
    pub kind: MatchKind,
    /// Width in bits.
    pub width: u16,
    /// Source of the value.
    pub source: KeySource,
    /// Constant mask applied to the packet's value. It has (width + 7) / 8 bytes.
    pub mask: Option<Vec<u8>>,
    /// Offset of the field's first byte in the lookup key. Each field is padded to whole bytes.
    pub offset: usize,
}

impl Key {
    /// Returns the number of bytes that the field takes in the lookup key.
    pub fn bytes(&self) -> usize {
        usize::from(self.width).div_ceil(8)
    }
}

/// Source of a key field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySource {
    /// A field of a header. If the header is not valid, the value is 0.
    Field(HeaderId, FieldSlot),
    /// A metadata field.
    Metadata(FieldSlot),
    /// Validity of a header, as a single bit.
    Valid(HeaderId),
}

/// A table's default entry, which runs on a miss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableDefault {
    /// The action.
    pub action: ActionId,
    /// Parameters of the action, each as (width + 7) / 8 big-endian bytes.
    pub params: Vec<Vec<u8>>,
    /// True if the control plane cannot set another action.
    pub const_action: bool,
    /// True if the control plane cannot change the action's parameters either.
    pub const_entry: bool,
}

/// The value of one key field, in an entry that the P4 program defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TableKeyValue {
    /// Exact value.
    Exact(Vec<u8>),
    /// Value and prefix length.
    Lpm(Vec<u8>, u32),
    /// Value and mask.
    Ternary(Vec<u8>, Vec<u8>),
    /// Lower and upper bound.
    Range(Vec<u8>, Vec<u8>),
    /// Exact value, or `None` if any value matches.
    Optional(Option<Vec<u8>>),
}

/// An entry that the P4 program defines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// One value for each key field.
    pub key: Vec<TableKeyValue>,
    /// Priority as in the JSON: the entry with the lowest number wins.
    pub priority: u32,
    /// The action.
    pub action: ActionId,
    /// Parameters of the action.
    pub params: Vec<Vec<u8>>,
}

/// A match-action table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    /// Name, equal to `preamble.name` in P4Info.
    pub name: String,
    /// Key fields. Empty for a table that has only a default action.
    pub key: Vec<Key>,
    /// Length of the lookup key in bytes.
    pub key_bytes: usize,
    /// The match kind that decides which entry wins, derived from the kinds of the fields.
    pub kind: MatchKind,
    /// Actions that entries may have.
    pub actions: Vec<ActionId>,
    /// Pairs of actions: another table's copy of an action, and this table's own copy of it. p4c makes a copy of an
    /// action for each table that uses the action. If several tables share an action profile, a member of the profile
    /// may name another table's copy.
    pub copies: Vec<(ActionId, ActionId)>,
    /// The action profile or selector, if entries refer to members or groups.
    pub profile: Option<ProfileId>,
    /// Declared number of entries.
    pub max_size: usize,
    /// The direct counter of the table, if there is one.
    pub counter: Option<CounterId>,
    /// Value of `with_counters` in the JSON: whether the table's entries count packets.
    pub with_counters: bool,
    /// Whether entries may have idle timeouts.
    pub support_timeout: bool,
    /// The direct meter of the table, and the field that receives the colour.
    pub meter: Option<(MeterId, FieldSlot)>,
    /// The default entry, if the program defines one.
    pub default: Option<TableDefault>,
    /// Entries that the P4 program defines.
    pub entries: Vec<TableEntry>,
    /// True if the control plane cannot change the entries that the P4 program defines.
    pub const_entries: bool,
    /// Next step for each action. Used if neither `next_any` nor `on_hit` or `on_miss` gives the next step.
    pub next: Vec<(ActionId, Next)>,
    /// Next step after every action, if all actions have the same next step.
    pub next_any: Option<Next>,
    /// Next step after a hit, for every action.
    pub on_hit: Option<Next>,
    /// Next step after a miss, for every action.
    pub on_miss: Option<Next>,
    /// Next step if no other field gives one. That is the case after a miss without a default action, and after an
    /// action that `next` does not contain.
    pub base_default: Next,
    /// Whether the table belongs to the ingress pipeline.
    pub ingress: bool,
    /// Location in the P4 source.
    pub source: Option<SourceInfo>,
}

impl Table {
    /// Returns whether the table's entries have a priority.
    pub fn needs_priority(&self) -> bool {
        self.key.iter().any(|key| key.kind.needs_priority())
    }

    /// Returns this table's own copy of an action that a member of the action profile names.
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

/// How a member of a group is selected for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector {
    /// The hash algorithm.
    pub algorithm: HashAlgorithm,
    /// The input of the hash.
    pub input: Vec<crate::externs::CalculationInput>,
}

/// An action profile or action selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Name, equal to the name in P4Info.
    pub name: String,
    /// Declared maximum number of members. Also the largest size of a group that declares none.
    pub max_size: usize,
    /// The method by which members of groups are selected. `None` for a profile without groups.
    pub selector: Option<Selector>,
}

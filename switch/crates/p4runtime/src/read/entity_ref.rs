// SPDX-License-Identifier: Apache-2.0
//! References to the entities that a request reads.

use std::sync::Arc;

use sluice_tables::{DefaultEntry, Entry};

use crate::entity::requested::RequestedFields;
use crate::entity::stored_entry::StoredEntry;
use crate::proto::v1::entity::Entity as EntityKind;

/// A reference to an entity that was read. The reference is cheap to hold until the entity's message is built.
pub(super) enum EntityRef {
    Table(u32, Entry, RequestedFields),
    Default(u32, Arc<DefaultEntry>, RequestedFields),
    DirectCounter(u32, StoredEntry),
    /// P4Info id of the table, the entry, and whether the client also requests the per-colour counters.
    DirectMeter(u32, StoredEntry, bool),
    Counter(u32, usize),
    /// P4Info id of the meter, the cell's index, and whether the client also requests the per-colour counters.
    Meter(u32, usize, bool),
    Register(u32, usize),
    Ready(Box<EntityKind>),
}

impl EntityRef {
    /// Returns a reference to an entry of the table with this P4Info id.
    pub(super) fn of_entry(table: u32, entry: StoredEntry, requested: RequestedFields) -> Self {
        match entry {
            StoredEntry::Entry(entry) => Self::Table(table, entry, requested),
            StoredEntry::Default(entry) => Self::Default(table, entry, requested),
        }
    }
}

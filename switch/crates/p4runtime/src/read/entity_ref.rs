// SPDX-License-Identifier: Apache-2.0
//! References to the entities that a request reads.

use std::sync::Arc;

use sluice_tables::{DefaultEntry, Entry, EntryState, Meter};

use crate::entity::requested::RequestedFields;
use crate::proto::v1::entity::Entity as EntityKind;

/// A reference to an entity that was read. The reference is cheap to hold until the entity's message is built.
pub(super) enum EntityRef {
    Table(u32, Entry, RequestedFields),
    Default(u32, Arc<DefaultEntry>, RequestedFields),
    DirectCounter(u32, FoundEntry),
    /// P4Info id of the table, the entry, and whether the client also requests the per-colour counters.
    DirectMeter(u32, FoundEntry, bool),
    Counter(u32, usize),
    /// P4Info id of the meter, the cell's index, and whether the client also requests the per-colour counters.
    Meter(u32, usize, bool),
    Register(u32, usize),
    Ready(Box<EntityKind>),
}

/// An entry that was found, or a default entry.
#[derive(Clone)]
pub(super) enum FoundEntry {
    Entry(Entry),
    Default(Arc<DefaultEntry>),
}

impl FoundEntry {
    pub(super) fn state(&self) -> Option<&EntryState> {
        match self {
            Self::Entry(entry) => entry.state(),
            Self::Default(entry) => Some(entry.state()),
        }
    }

    pub(super) fn meter(&self) -> Option<&Meter> {
        match self {
            Self::Entry(entry) => entry.meter(),
            Self::Default(entry) => entry.meter(),
        }
    }

    pub(super) fn item(self, table: u32, requested: RequestedFields) -> EntityRef {
        match self {
            Self::Entry(entry) => EntityRef::Table(table, entry, requested),
            Self::Default(entry) => EntityRef::Default(table, entry, requested),
        }
    }
}

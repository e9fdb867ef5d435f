// SPDX-License-Identifier: Apache-2.0
//! The state that transactions change and views read: the authoritative copy and the
//! two replicas.

use sluice_program::TableId;

use crate::authoritative::AuthoritativeState;
use crate::entry::Entry;
use crate::key::KeyRef;
use crate::left_right::Writer;
use crate::table_replica::TableReplica;

/// State that only the holder of the control lock may access.
pub(crate) struct Control {
    pub(crate) authoritative: AuthoritativeState,
    pub(crate) replicas: Writer<TableReplica>,
    /// Insertion number of the newest entry.
    pub(crate) sequence: u64,
}

impl Control {
    /// Returns the slot of an entry. Sees the uncommitted changes of the current
    /// transaction.
    pub(crate) fn find(&self, table: TableId, key: KeyRef<'_>, rank: i32) -> Option<u32> {
        let lookup = &self.replicas.inactive().tables[table.index()];
        self.authoritative.tables[table.index()].get(lookup, key, rank)
    }

    /// Returns a handle to the entry at a slot.
    pub(crate) fn hold(&self, table: TableId, slot: u32) -> Entry {
        Entry::hold(&self.authoritative.tables[table.index()].slab, slot)
    }
}

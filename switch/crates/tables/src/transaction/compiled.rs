// SPDX-License-Identifier: Apache-2.0
//! Transaction operations on compiled entries.

use sluice_program::{Table, TableId};

use super::{AHEAD, Transaction};
use crate::binding::BindingRef;
use crate::entry::CompiledEntry;
use crate::error::{Result, invalid};
use crate::key::{KeyRef, KeyShape};
use crate::slab::NewRecord;

impl<'a> Transaction<'a> {
    /// Adds a compiled entry.
    ///
    /// # Errors
    /// The same as for [`insert`](Self::insert). `InvalidArgument` if the entry was not compiled for this table.
    pub fn insert_compiled(&mut self, id: TableId, entry: &CompiledEntry<'_>) -> Result<()> {
        let (table, key) = self.compiled(id, entry)?;
        self.check_action(table, entry)?;
        self.check_vacant(id, table, key, 0)?;
        let record = compiled_record(key, self.next_sequence(), entry);
        self.write(id, table, None, record)
    }

    /// Replaces the action and the timeout of an entry by those of a compiled entry.
    ///
    /// # Errors
    /// The same as for [`modify`](Self::modify). `InvalidArgument` if the entry was not compiled for this table.
    pub fn modify_compiled(&mut self, id: TableId, entry: &CompiledEntry<'_>) -> Result<()> {
        let (table, key) = self.compiled(id, entry)?;
        self.check_action(table, entry)?;
        let before = self.existing(id, table, key, 0)?;
        let sequence = self.sequence_of(id, before);
        let record = compiled_record(key, sequence, entry);
        self.write(id, table, Some(before), record)
    }

    /// Removes the entry with the key of a compiled entry.
    ///
    /// # Errors
    /// The same as for [`delete`](Self::delete). `InvalidArgument` if the entry was not compiled for this table.
    pub fn delete_compiled(&mut self, id: TableId, entry: &CompiledEntry<'_>) -> Result<()> {
        let (table, key) = self.compiled(id, entry)?;
        let before = self.existing(id, table, key, 0)?;
        self.remove(id, before);
        Ok(())
    }

    /// Prefetches the first cache lines that writes of compiled entries will read. Callers do this a few updates
    /// before they write the entries. `entries` are at most [`AHEAD`] entries of one table; further entries are
    /// ignored.
    pub fn prefetch<'e>(&self, id: TableId, entries: impl Iterator<Item = CompiledEntry<'e>>) {
        let mut keys = [KeyRef::new(&[], 0); AHEAD];
        let mut count = 0;
        for entry in entries {
            if let (Ok((_, key)), Some(next)) = (self.compiled(id, &entry), keys.get_mut(count)) {
                *next = key;
                count += 1;
            }
        }
        let (tables, replicas) = (&self.control.authoritative.tables, &self.control.replicas);
        if let Some(entries) = tables.get(id.index()) {
            entries.prefetch(&replicas.inactive().tables[id.index()], &keys[..count]);
        }
    }

    /// Returns the key of a compiled entry, if it is valid for the table.
    fn compiled<'e>(
        &self,
        id: TableId,
        entry: &CompiledEntry<'e>,
    ) -> Result<(&'a Table, KeyRef<'e>)> {
        let table = self.writable(id)?;
        let longest = match KeyShape::of(table) {
            KeyShape::Exact => 0,
            KeyShape::Lpm(field) => table.key[field].width,
            KeyShape::Ordered => return not_compiled(table),
        };
        if entry.key.len() != table.key_bytes || entry.prefix_len > longest {
            return not_compiled(table);
        }
        Ok((table, KeyRef::new(entry.key, entry.prefix_len)))
    }

    /// Checks that a compiled entry's action is valid for the table.
    fn check_action(&self, table: &Table, entry: &CompiledEntry<'_>) -> Result<()> {
        let call = entry.action;
        let fits = table.profile.is_none()
            && table.actions.contains(&call.action)
            && call.params.len() == self.program.action(call.action).param_words
            && (entry.idle_timeout_ns == 0 || table.support_timeout);
        if fits { Ok(()) } else { not_compiled(table) }
    }
}

fn not_compiled<T>(table: &Table) -> Result<T> {
    invalid(format!(
        "the entry was not compiled for table {}",
        table.name
    ))
}

fn compiled_record<'a>(key: KeyRef<'a>, sequence: u64, entry: &CompiledEntry<'a>) -> NewRecord<'a> {
    NewRecord {
        key,
        rank: 0,
        sequence,
        binding: BindingRef::Direct(entry.action),
        idle_timeout_ns: entry.idle_timeout_ns,
        controller_metadata: 0,
        metadata: Vec::new(),
        is_const: false,
    }
}

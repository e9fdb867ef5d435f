// SPDX-License-Identifier: Apache-2.0
//! Table entries in two forms: a handle through which the control plane reads an entry, and the compiled form in
//! which it may write one.

use std::fmt;
use std::sync::Arc;

use sluice_program::{Program, Table};

use crate::action::ActionRef;
use crate::binding::Binding;
use crate::entry_state::EntryState;
use crate::key;
use crate::meter::Meter;
use crate::model::EntrySpec;
use crate::slab::{Record, Slab};

/// An entry in the form that tables store. This form exists only for tables whose entries name actions directly (no
/// action profile) and that are not matched by priority. Invariant: the code that builds such an entry has checked
/// its values.
#[derive(Clone, Copy, Debug)]
pub struct CompiledEntry<'a> {
    /// The key. Every field is padded to whole bytes. The bits beyond a prefix are 0.
    pub key: &'a [u8],
    /// Prefix length of the longest-prefix field in bits; 0 if there is no such field, or if it matches any value.
    pub prefix_len: u16,
    /// The action of the entry. Ignored when the entry is removed.
    pub action: ActionRef<'a>,
    /// The idle timeout in nanoseconds; 0 for no timeout.
    pub idle_timeout_ns: u64,
}

/// A reference to one version of a table entry. Invariant: the version does not change while the reference is held.
pub struct Entry {
    slab: Arc<Slab>,
    slot: u32,
}

impl Entry {
    /// Takes a reference to the entry at a slot. The caller must hold the control lock, because otherwise the slot
    /// could be released meanwhile.
    pub(crate) fn hold(slab: &Arc<Slab>, slot: u32) -> Self {
        let entry = Self {
            slab: Arc::clone(slab),
            slot,
        };
        entry.holders().for_each(|record| record.add_handle());
        entry
    }

    fn record(&self) -> Record<'_> {
        self.slab.record(self.slot)
    }

    /// Returns the entry's record. If another record holds the packet state (counter, meter, time of the last hit),
    /// returns that record too.
    fn holders(&self) -> impl Iterator<Item = Record<'_>> {
        let holder = self.record().holder();
        let other = (holder != self.slot).then(|| self.slab.record(holder));
        std::iter::once(self.record()).chain(other)
    }

    /// Returns the state that packets wrote, if the table keeps any ([`EntryState::is_kept_by`]).
    pub fn state(&self) -> Option<&EntryState> {
        self.record().state()
    }

    /// Returns the direct meter, if the table has direct meters.
    pub fn meter(&self) -> Option<&Meter> {
        self.record().meter()
    }

    /// Returns whether the P4 program itself declares this entry.
    pub fn is_const(&self) -> bool {
        self.record().is_const()
    }

    /// Returns the entry's target: an action, a member or a group.
    pub fn binding(&self, program: &Program) -> Binding {
        self.record().binding(program)
    }

    /// Converts the entry to the control plane's form.
    pub fn spec(&self, program: &Program, table: &Table) -> EntrySpec {
        let record = self.record();
        let extras = record.extras();
        EntrySpec {
            key: key::fields(table, record.stored(), record.prefix_len()),
            priority: if table.needs_priority() {
                record.rank()
            } else {
                0
            },
            action: record.binding(program).action(program),
            idle_timeout_ns: record.idle_timeout_ns(),
            controller_metadata: extras
                .as_ref()
                .map_or(0, |extras| extras.controller_metadata),
            metadata: extras.map_or_else(Vec::new, |extras| extras.metadata.to_vec()),
        }
    }
}

impl Clone for Entry {
    fn clone(&self) -> Self {
        Self::hold(&self.slab, self.slot)
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.holders().for_each(|record| record.drop_handle());
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.slot)
    }
}

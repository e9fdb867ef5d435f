// SPDX-License-Identifier: Apache-2.0
//! Lookups of packets in a replica.

use sluice_program::{Program, TableId};

use crate::action::ActionRef;
use crate::binding::Binding;
use crate::entry_state::EntryState;
use crate::group::{Chosen, Group};
use crate::key;
use crate::lookup::{Found, Structure};
use crate::meter::Meter;
use crate::model::KeyField;
use crate::row::{ROW_HIT, Row};
use crate::slab::Target;
use crate::table_lookup::TableLookup;
use crate::table_replica::TableReplica;
use crate::wait::Wait;

/// An entry that a packet's key matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The entry's key.
    pub key: Vec<KeyField>,
    /// The entry's priority in a table that is matched by priority; else 0.
    pub priority: i32,
    /// The entry's target.
    pub target: MatchTarget,
}

/// What an entry runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MatchTarget {
    /// An action.
    Action,
    /// A member of the table's profile.
    Member(u32),
    /// A group of the table's profile.
    Group(u32),
    /// A group that belongs to this entry only.
    OneShot,
}

impl MatchTarget {
    fn of(target: &Target<'_>) -> Self {
        match target {
            Target::Direct(_) => Self::Action,
            Target::Member(id) => Self::Member(*id),
            Target::Group(id) => Self::Group(*id),
            Target::OneShot => Self::OneShot,
        }
    }
}

/// Result of a lookup.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// Whether an entry matched.
    pub hit: bool,
    /// The action to run. `None` if there is no default action, or if the group has no usable member.
    pub action: Option<ActionRef<'a>>,
    /// Packet state of the entry or default entry. `None` if the table has neither direct counters nor direct meters
    /// nor idle timeouts.
    pub state: Option<&'a EntryState>,
    /// The direct meter for the packet. Present on a hit in a table with direct meters.
    pub meter: Option<&'a Meter>,
}

impl TableReplica {
    /// Looks up a key. `key` must have the table's `key_bytes`. `hash` is called only to choose a member of a group.
    #[inline]
    pub fn lookup(&self, table: TableId, key: &[u8], hash: impl FnOnce() -> u64) -> Lookup<'_> {
        let table = &self.tables[table.index()];
        match table.structure.lookup(key) {
            None => self.miss(table, hash),
            Some(found) => self.found(table, found, hash),
        }
    }

    fn found<'a>(
        &'a self,
        table: &'a TableLookup,
        found: Found<'a>,
        hash: impl FnOnce() -> u64,
    ) -> Lookup<'a> {
        let slot = match found {
            Found::Slot(slot) => slot,
            Found::Class(target, slot) => {
                return Lookup {
                    hit: true,
                    action: self.choose(table, slot, target, hash),
                    state: None,
                    meter: None,
                };
            }
        };
        let record = table.slab.record(slot);
        let action = match record.target() {
            Target::Direct(action) => Some(action),
            other => self.choose(table, slot, other, hash),
        };
        Lookup {
            hit: true,
            action,
            state: record.state(),
            meter: record.meter(),
        }
    }

    /// Returns the row for a key, or the default entry's row on a miss. See [`TableHandle`](crate::TableHandle). `key`
    /// must have the table's `key_bytes`.
    #[inline]
    pub fn row(&self, table: TableId, key: &[u8]) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = table.structure.row(&table.slab, key);
        row.unwrap_or(table.miss_row())
    }

    /// Like [`row`](Self::row), but only for tables with [`Access::Exact`](crate::Access::Exact).
    #[inline(always)]
    pub fn row_exact(&self, table: TableId, key: &[u8]) -> Row<'_> {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_cached(key),
            _ => None,
        };
        match slot {
            Some(slot) => table.slab.row(slot),
            None => table.miss_row(),
        }
    }

    /// Like [`row_exact`](Self::row_exact), for a key that machine code has just stored as `W` whole words. The last
    /// word is padded with zeros.
    #[inline(always)]
    pub fn row_stored<const W: usize>(&self, table: TableId, words: &[[u8; 8]; W]) -> Row<'_> {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_stored(words),
            _ => None,
        };
        match slot {
            Some(slot) => table.slab.row(slot),
            None => table.miss_row(),
        }
    }

    /// Like [`row_exact`](Self::row_exact) for a table with few entries. Returns `None` for other tables. `key` holds
    /// the key's bytes, at most eight, followed by zeros.
    #[inline(always)]
    pub fn row_of_few(&self, table: TableId, key: u64) -> Option<Row<'_>> {
        let table = &self.tables[table.index()];
        let Structure::Exact(exact) = &table.structure else {
            return None;
        };
        Some(match exact.lookup_few(key)? {
            Some(slot) => table.slab.row(slot),
            None => table.miss_row(),
        })
    }

    /// Like [`row`](Self::row). For an exact-match table, yields through `wait` while cache lines are fetched.
    #[inline]
    pub fn row_waiting(&self, table: TableId, key: &[u8], wait: &impl Wait) -> Row<'_> {
        match &self.tables[table.index()].structure {
            Structure::Exact(_) => self.row_exact_waiting(table, key, wait),
            _ => self.row(table, key),
        }
    }

    /// Like [`row_exact`](Self::row_exact), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub fn row_exact_waiting(&self, table: TableId, key: &[u8], wait: &impl Wait) -> Row<'_> {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_waiting(key, wait),
            _ => None,
        };
        Self::row_fetched(table, slot, wait)
    }

    /// Like [`row_stored`](Self::row_stored), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub fn row_stored_waiting<const W: usize>(
        &self,
        table: TableId,
        words: &[[u8; 8]; W],
        wait: &impl Wait,
    ) -> Row<'_> {
        let table = &self.tables[table.index()];
        let slot = match &table.structure {
            Structure::Exact(exact) => exact.lookup_stored_waiting(words, wait),
            _ => None,
        };
        Self::row_fetched(table, slot, wait)
    }

    /// Returns the row of a slot, or the default entry's row. Yields while the row's cache lines are fetched.
    #[inline(always)]
    fn row_fetched<'a>(table: &'a TableLookup, slot: Option<u32>, wait: &impl Wait) -> Row<'a> {
        let Some(slot) = slot else {
            return table.miss_row();
        };
        table.slab.for_each_line(slot, |line| wait.prefetch(line));
        wait.yield_now();
        // If the entry was modified, the record of its first version holds its packet state, so that record's lines are
        // needed too.
        if let Some(state) = table.slab.state_of_holder(slot) {
            wait.prefetch(state);
            wait.yield_now();
        }
        table.slab.row(slot)
    }

    /// Returns the row for a left-aligned address of at most 32 bits. `exact` has the table's exact fields as one
    /// number ([`Access::Prefix`](crate::Access::Prefix)).
    #[inline]
    pub fn row_narrow(&self, table: TableId, exact: u64, address: u32) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_narrow(&table.slab, exact, address),
            _ => None,
        };
        row.unwrap_or(table.miss_row())
    }

    /// Like [`row_narrow`](Self::row_narrow), for an address of more than 32 bits.
    #[inline]
    pub fn row_wide(&self, table: TableId, exact: u64, address: u128) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_wide(&table.slab, exact, address),
            _ => None,
        };
        row.unwrap_or(table.miss_row())
    }

    /// Like [`row_narrow`](Self::row_narrow), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub fn row_narrow_waiting(
        &self,
        table: TableId,
        exact: u64,
        address: u32,
        wait: &impl Wait,
    ) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_narrow_waiting(&table.slab, exact, address, wait),
            _ => None,
        };
        row.unwrap_or(table.miss_row())
    }

    /// Like [`row_wide`](Self::row_wide), but yields through `wait` while cache lines are fetched.
    #[inline(always)]
    pub fn row_wide_waiting(
        &self,
        table: TableId,
        exact: u64,
        address: u128,
        wait: &impl Wait,
    ) -> Row<'_> {
        let table = &self.tables[table.index()];
        let row = match &table.structure {
            Structure::Lpm(lpm) => lpm.row_wide_waiting(&table.slab, exact, address, wait),
            _ => None,
        };
        row.unwrap_or(table.miss_row())
    }

    /// Returns the result of [`lookup`](Self::lookup) for a packet whose lookup returned this row. The row must come
    /// from the same table of the same replica. With any other row, the result is arbitrary, or the function panics.
    pub fn lookup_at_row<'a>(
        &'a self,
        table: TableId,
        row: Row<'a>,
        hash: impl FnOnce() -> u64,
    ) -> Lookup<'a> {
        let table = &self.tables[table.index()];
        if row.head() & ROW_HIT == 0 {
            return self.miss(table, hash);
        }
        let found = table.structure.at(&table.slab, row);
        self.found(table, found, hash)
    }

    fn miss<'a>(&'a self, table: &'a TableLookup, hash: impl FnOnce() -> u64) -> Lookup<'a> {
        let default = &table.default;
        let action = match &default.binding {
            None => None,
            Some(Binding::Direct(action)) => Some(action.as_ref()),
            Some(Binding::Member(id)) => self.choose(table, 0, Target::Member(*id), hash),
            Some(Binding::Group(id)) => self.choose(table, 0, Target::Group(*id), hash),
            Some(Binding::OneShot(group)) => self.choose_member(table, group, hash),
        };
        Lookup {
            hit: false,
            action,
            state: table.keeps_state.then_some(default.state()),
            meter: None,
        }
    }

    /// Returns the action of a target. For a group, returns the action of the chosen member.
    #[inline]
    fn choose<'a>(
        &'a self,
        table: &'a TableLookup,
        slot: u32,
        target: Target<'a>,
        hash: impl FnOnce() -> u64,
    ) -> Option<ActionRef<'a>> {
        let profile = || self.profiles.get(table.profile);
        match target {
            Target::Direct(action) => Some(action),
            Target::Member(id) => Some(profile()?.member(id)?.action.as_ref()),
            Target::Group(id) => self.choose_member(table, profile()?.group(id)?, hash),
            Target::OneShot => self.choose_member(table, table.one_shots.get(&slot)?, hash),
        }
    }

    #[inline]
    fn choose_member<'a>(
        &'a self,
        table: &'a TableLookup,
        group: &'a Group,
        hash: impl FnOnce() -> u64,
    ) -> Option<ActionRef<'a>> {
        match group.choose(hash, &self.ports)? {
            Chosen::Member(member) => {
                let profile = self.profiles.get(table.profile)?;
                Some(profile.member(member)?.action.as_ref())
            }
            Chosen::Action(action) => Some(action.as_ref()),
        }
    }

    /// Returns the entry that a packet's key matches, with the entry's key and priority, to explain a lookup. Slower
    /// than [`lookup`](Self::lookup).
    pub fn find(&self, program: &Program, id: TableId, key: &[u8]) -> Option<Match> {
        let (declared, table) = (program.table(id), &self.tables[id.index()]);
        let matched = match table.structure.lookup(key)? {
            Found::Slot(slot) => {
                let record = table.slab.record(slot);
                Match {
                    key: key::fields(declared, record.stored(), record.prefix_len()),
                    priority: if declared.needs_priority() {
                        record.rank()
                    } else {
                        0
                    },
                    target: MatchTarget::of(&record.target()),
                }
            }
            // In a longest-prefix table, the lookup yields only a class of entries with equal targets. So this finds
            // the matching entry again, by the packet's key.
            Found::Class(target, _) => {
                let length = table.structure.prefix_len(key);
                Match {
                    key: key::matched_fields(declared, key, length),
                    priority: 0,
                    target: MatchTarget::of(&target),
                }
            }
        };
        Some(matched)
    }
}

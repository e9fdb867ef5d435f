// SPDX-License-Identifier: Apache-2.0
//! Transactions: series of changes that become visible to packets together.

mod compiled;
mod entries;
mod profiles;
mod replication;

use std::time::Instant;

use parking_lot::MutexGuard;
use sluice_program::{Program, Table, TableId};

use crate::authoritative::AuthoritativeTable;
use crate::change::{Change, EntrySwap};
use crate::control::Control;
use crate::error::{Result, invalid};
use crate::model::Limits;

/// Prefetch distance, in changes. It is about the number of cache misses that a CPU core can have in flight at once.
pub const AHEAD: usize = 16;

/// A point to which a transaction can be rolled back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Savepoint(usize);

/// A series of operations. Packets see either none of them (before [`commit`](Self::commit)) or all of them (after it).
/// Each operation sees the results of earlier operations. A transaction that is dropped without a commit is rolled
/// back.
pub struct Transaction<'a> {
    program: &'a Program,
    limits: &'a Limits,
    control: MutexGuard<'a, Control>,
    log: Vec<Change>,
    /// Start time in microseconds.
    now_us: u64,
}

impl<'a> Transaction<'a> {
    pub(crate) fn new(
        program: &'a Program,
        limits: &'a Limits,
        control: MutexGuard<'a, Control>,
        now_us: u64,
    ) -> Self {
        Self {
            program,
            limits,
            control,
            log: Vec::new(),
            now_us,
        }
    }

    fn table(&self, id: TableId) -> Result<&'a Table> {
        let table = self.program.tables.get(id.index());
        table.map_or_else(|| invalid("there is no such table"), Ok)
    }

    /// Applies a change to the authoritative copy and to the inactive replica.
    fn apply(&mut self, change: Change) {
        self.control.authoritative.apply(&change);
        self.control
            .replicas
            .change(|replica| replica.apply(&change));
        self.log.push(change);
    }

    /// Returns a savepoint. Operations after the savepoint can be rolled back without rolling back earlier operations.
    pub fn savepoint(&self) -> Savepoint {
        Savepoint(self.log.len())
    }

    /// Rolls back all operations after the savepoint.
    pub fn rollback(&mut self, to: Savepoint) {
        while self.log.len() > to.0
            && let Some(change) = self.log.pop()
        {
            let inverse = change.inverse();
            self.control.authoritative.apply(&inverse);
            self.control
                .replicas
                .change(|replica| replica.apply(&inverse));
            // No packet has seen the version that the change added, so its slot can be freed.
            if let Change::Entry(
                id,
                EntrySwap {
                    before: Some(slot), ..
                },
            ) = inverse
            {
                self.control.authoritative.tables[id.index()].release(slot);
            }
        }
    }

    /// Makes the changes visible to packets. When this function returns, no packet uses the old version any more.
    pub fn commit(mut self) {
        if !self.log.is_empty() {
            self.settle();
            self.control.replicas.flip();
            self.catch_up();
        }
    }

    /// Commits like [`commit`](Self::commit), and runs `cells` at the moment when no packet is being processed. So the
    /// counters, meters and registers that `cells` writes become visible together with the changes. Packets wait until
    /// `cells` returns.
    pub fn commit_with(mut self, cells: impl FnOnce()) {
        self.settle();
        self.control.replicas.flip_while_empty(cells);
        self.catch_up();
    }

    /// Applies the changes to the replica that packets have left.
    fn catch_up(&mut self) {
        let log = std::mem::take(&mut self.log);
        self.control.replicas.change(|replica| {
            for (index, change) in log.iter().enumerate() {
                if let Some(later) = log.get(index + AHEAD) {
                    replica.prefetch(later);
                }
                replica.apply(change);
            }
        });
        // Neither replica uses the old versions any more, so their slots can be freed.
        let tables = &mut self.control.authoritative.tables;
        for change in &log {
            if let Change::Entry(id, swap) = change {
                tables[id.index()].release_replaced(*swap);
            }
        }
        tables.iter_mut().for_each(AuthoritativeTable::retry_parked);
        self.settle();
        self.control.authoritative.clear_changes();
    }

    /// Brings the inactive replica's lookup structures up to date, and runs rebuilds that are due.
    fn settle(&mut self) {
        let now = Instant::now();
        let Control {
            authoritative,
            replicas,
            ..
        } = &mut *self.control;
        authoritative.compact_changes();
        let shared = replicas.readers() > 1;
        replicas.change(|replica| {
            replica.settle(now);
            replica.shared = shared;
        });
    }
}

impl Drop for Transaction<'_> {
    fn drop(&mut self) {
        self.rollback(Savepoint(0));
    }
}

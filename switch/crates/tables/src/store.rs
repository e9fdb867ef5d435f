// SPDX-License-Identifier: Apache-2.0
//! The store: all control-plane state of one loaded program.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use sluice_program::{ActionId, Program, Table, TableId};

use crate::action::ActionEntry;
use crate::authoritative::AuthoritativeState;
use crate::binding::{Binding, BindingRef};
use crate::change::{Change, EntrySwap};
use crate::control::Control;
use crate::default_entry::{DefaultEntry, DefaultState};
use crate::expiry::{Expired, MAX_TIMERS_PER_CALL};
use crate::externs::Externs;
use crate::key::{KeyShape, MatchKey, constant_fields};
use crate::left_right::{Pinned, ReadHandle, Writer};
use crate::model::Limits;
use crate::ports::PortStatus;
use crate::shared_table::SharedTable;
use crate::slab::NewRecord;
use crate::table_replica::TableReplica;
use crate::transaction::Transaction;
use crate::view::View;

/// Tables, groups, sessions and externs of one loaded program.
pub struct Store {
    program: Arc<Program>,
    externs: Arc<Externs>,
    ports: Arc<PortStatus>,
    limits: Limits,
    pub(crate) control: Mutex<Control>,
    epoch: Instant,
}

/// A reader of the tables. Each worker has its own.
pub struct Reader(ReadHandle<TableReplica>);

impl Reader {
    /// Pins the current version of the tables. The pin should be held for one batch of packets only, because
    /// transactions wait until it is dropped.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_, TableReplica> {
        self.0.pin()
    }
}

impl Store {
    /// Creates the program's initial state. Times count from now.
    pub fn new(program: Arc<Program>) -> Self {
        Self::with_epoch(program, Instant::now())
    }

    /// Creates the program's initial state. Times in microseconds count from `epoch`. Callers that process packets must
    /// count their times from the same `epoch`.
    pub fn with_epoch(program: Arc<Program>, epoch: Instant) -> Self {
        Self::with_limits(program, epoch, Limits::default())
    }

    /// Like [`with_epoch`](Self::with_epoch), with these limits instead of the default ones.
    pub fn with_limits(program: Arc<Program>, epoch: Instant, limits: Limits) -> Self {
        let ports = Arc::new(PortStatus::default());
        let tables = program.tables.iter();
        let shared_tables: Vec<_> = tables
            .map(|table| SharedTable::new(&program, table, initial_default(&program, table)))
            .collect();
        let replica = || TableReplica::new(&program, &shared_tables, Arc::clone(&ports));
        let replicas = Writer::new(replica(), replica());
        let mut control = Control {
            authoritative: AuthoritativeState::new(&program, &shared_tables),
            replicas,
            sequence: 0,
        };
        let changes = constant_entries(&program, &mut control);
        control.authoritative.compact_changes();
        for _ in 0..2 {
            control.replicas.change(|replica| {
                changes.iter().for_each(|change| replica.apply(change));
                replica.settle(epoch);
            });
            control.replicas.flip();
        }
        control.authoritative.clear_changes();
        Self {
            externs: Arc::new(Externs::new(&program)),
            program,
            ports,
            limits,
            control: Mutex::new(control),
            epoch,
        }
    }

    /// Returns the program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// Returns the program as a shared pointer.
    pub fn shared_program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Returns counters, meters and registers.
    pub fn externs(&self) -> &Arc<Externs> {
        &self.externs
    }

    /// Returns the limits.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Returns the number of microseconds since the epoch.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// Creates a reader. The call that creates the second reader waits, like a transaction, until the first reader
    /// drops its pin. From then on, readers use atomic additions when they count packets.
    pub fn reader(&self) -> Reader {
        let replicas = &mut self.control.lock().replicas;
        let reader = replicas.reader();
        if replicas.readers() > 1 && !replicas.inactive().shared {
            replicas.change(|replica| replica.shared = true);
            replicas.flip();
            replicas.change(|replica| replica.shared = true);
        }
        Reader(reader)
    }

    /// Begins a transaction. Other transactions wait until it ends.
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(
            &self.program,
            &self.limits,
            self.control.lock(),
            self.now_us(),
        )
    }

    /// Returns a view of the current state. Transactions wait while the view exists.
    pub fn view(&self) -> View<'_> {
        View::new(&self.program, self.control.lock())
    }

    /// Records that a port went up or down. Groups react with the next packet.
    pub fn port_status(&self, port: u32, up: bool) {
        self.ports.set(port, up);
    }

    /// Returns the entries that have been idle for their timeout since the last hit or the last report. Examines only
    /// entries that are due. A call holds the control lock for a bounded time.
    pub fn expired(&self, now_us: u64) -> Expired {
        let authoritative = &mut self.control.lock().authoritative;
        let tables = &authoritative.tables;
        let slab = |table: TableId| &tables[table.index()].slab;
        authoritative.expiry.take(slab, now_us, MAX_TIMERS_PER_CALL)
    }
}

/// Compiles an action call of the program. The loader has checked the number and widths of its parameters.
fn compiled(program: &Program, action: ActionId, params: &[Vec<u8>]) -> ActionEntry {
    ActionEntry::compile(program, action, params).expect("the loader checked the parameters")
}

fn initial_default(program: &Program, table: &Table) -> DefaultEntry {
    let binding = table
        .default
        .as_ref()
        .map(|default| Binding::Direct(compiled(program, default.action, &default.params)));
    DefaultEntry {
        binding,
        controller_metadata: 0,
        metadata: Box::default(),
        packet_state: Arc::new(DefaultState::new(table)),
        initial: true,
    }
}

/// Returns the entries that a program declares for a table, each with its position in the declaration, its key and its
/// rank. Of several equal entries, returns the first. The index in the returned list becomes the entry's slot.
fn own_entries(table: &Table) -> Vec<(usize, MatchKey, i32)> {
    let lowest = table.entries.iter().map(|entry| entry.priority).max();
    let mut known = HashSet::new();
    let mut entries = Vec::new();
    for (position, entry) in table.entries.iter().enumerate() {
        // In BMv2's JSON the lowest number has the highest priority. In P4Runtime the highest number has, and 0 is not
        // allowed.
        let priority = (lowest.unwrap_or(0) - entry.priority) as i32 + 1;
        let fields = constant_fields(table, &entry.key);
        let key = MatchKey::compile(table, &fields).expect("the loader checked the key");
        let rank = match (table.needs_priority(), KeyShape::of(table)) {
            (true, _) => priority,
            (false, KeyShape::Ordered) => key.as_ref().prefix_len() as i32,
            (false, _) => 0,
        };
        if known.insert((
            key.as_ref().stored().to_vec(),
            key.as_ref().prefix_len(),
            rank,
        )) {
            entries.push((position, key, rank));
        }
    }
    entries
}

/// Returns the slot of each entry that a program declares for a table, or `None` for an entry that equals an earlier
/// entry.
pub fn constant_rows(table: &Table) -> Vec<Option<u32>> {
    let mut rows = vec![None; table.entries.len()];
    for (slot, (position, _, _)) in own_entries(table).into_iter().enumerate() {
        rows[position] = Some(slot as u32);
    }
    rows
}

/// Adds the program's entries to the authoritative copy, and returns the changes for the replicas.
fn constant_entries(program: &Program, control: &mut Control) -> Vec<Change> {
    let mut changes = Vec::new();
    for (index, table) in program.tables.iter().enumerate() {
        for (position, key, rank) in own_entries(table) {
            let entry = &table.entries[position];
            control.sequence += 1;
            let action = compiled(program, entry.action, &entry.params);
            let record = NewRecord {
                key: key.as_ref(),
                rank,
                sequence: control.sequence,
                binding: BindingRef::Direct(action.as_ref()),
                idle_timeout_ns: 0,
                controller_metadata: 0,
                metadata: Vec::new(),
                is_const: true,
            };
            let entries = &mut control.authoritative.tables[index];
            let slot = entries
                .allocate()
                .expect("a slab has room for the program's entries");
            entries.slab.fill(slot, record, None, 0);
            let swap = EntrySwap {
                before: None,
                after: Some(slot),
            };
            let change = Change::Entry(TableId(index as u32), swap);
            control.authoritative.apply(&change);
            changes.push(change);
        }
    }
    changes
}

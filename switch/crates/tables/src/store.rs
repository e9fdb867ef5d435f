// SPDX-License-Identifier: Apache-2.0
//! The state of one loaded program.

use std::sync::Arc;
use std::time::Instant;

use parking_lot::Mutex;
use sluice_program::{ActionId, Program, Table, TableEntry, TableId};

use crate::change::{Change, Swap};
use crate::entry::{ActionEntry, Binding, DefaultEntry, Entry, EntryState};
use crate::expiry::{Expired, SLICE};
use crate::externs::Externs;
use crate::key::{KeyShape, MatchKey, constant_fields};
use crate::left_right::{Pinned, ReadHandle, Writer};
use crate::model::Limits;
use crate::ports::PortStatus;
use crate::side::Side;
use crate::transaction::Transaction;
use crate::truth::Truth;
use crate::view::View;

/// What only one thread at a time may touch.
pub(crate) struct Control {
    pub(crate) truth: Truth,
    pub(crate) sides: Writer<Side>,
    pub(crate) sequence: u64,
}

/// Tables, groups, sessions and externs of one loaded program.
pub struct Store {
    program: Arc<Program>,
    externs: Arc<Externs>,
    ports: Arc<PortStatus>,
    limits: Limits,
    control: Mutex<Control>,
    epoch: Instant,
}

/// One reader of the tables: one for each worker.
pub struct Reader(ReadHandle<Side>);

impl Reader {
    /// Holds the current version of the tables. Keep it for one batch of packets: a transaction
    /// waits for it.
    #[inline]
    pub fn pin(&mut self) -> Pinned<'_, Side> {
        self.0.pin()
    }
}

impl Store {
    /// The program's initial state. Time is counted from now.
    pub fn new(program: Arc<Program>) -> Self {
        Self::with_epoch(program, Instant::now())
    }

    /// The program's initial state; times in microseconds count from `epoch`, as must those that
    /// packets are processed with.
    pub fn with_epoch(program: Arc<Program>, epoch: Instant) -> Self {
        Self::with_limits(program, epoch, Limits::default())
    }

    /// Likewise, with other limits than usual.
    pub fn with_limits(program: Arc<Program>, epoch: Instant, limits: Limits) -> Self {
        let ports = Arc::new(PortStatus::default());
        let defaults: Vec<_> = program
            .tables
            .iter()
            .map(|table| Arc::new(initial_default(&program, table)))
            .collect();
        let side = || Side::new(&program, &defaults, Arc::clone(&ports));
        let (mut left, mut right) = (side(), side());
        let mut truth = Truth::new(&program, &defaults);
        let mut sequence = 0;
        for change in constant_entries(&program, &mut sequence) {
            if let Change::Entry(
                table,
                Swap {
                    after: Some(entry), ..
                },
            ) = &change
                && truth.tables[table.index()]
                    .get(&entry.key, entry.rank)
                    .is_some()
            {
                continue; // the first of two equal entries stands
            }
            truth.apply(&change);
            change.apply(&mut left);
            change.apply(&mut right);
        }
        let control = Control {
            truth,
            sides: Writer::new(left, right),
            sequence,
        };
        Self {
            externs: Arc::new(Externs::new(&program)),
            program,
            ports,
            limits,
            control: Mutex::new(control),
            epoch,
        }
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The program, shared.
    pub fn shared_program(&self) -> &Arc<Program> {
        &self.program
    }

    /// Counters, meters and registers.
    pub fn externs(&self) -> &Arc<Externs> {
        &self.externs
    }

    /// How much it takes.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Microseconds since the epoch.
    pub fn now_us(&self) -> u64 {
        u64::try_from(self.epoch.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    /// A new reader.
    pub fn reader(&self) -> Reader {
        Reader(self.control.lock().sides.reader())
    }

    /// Begins a transaction; others wait until it ends.
    pub fn transaction(&self) -> Transaction<'_> {
        Transaction::new(self, self.control.lock())
    }

    /// Looks at the state as it is now; transactions wait meanwhile.
    pub fn view(&self) -> View<'_> {
        View::new(&self.program, self.control.lock())
    }

    /// Notes that a port went up or down; groups react with the next packet.
    pub fn port_status(&self, port: u32, up: bool) {
        self.ports.set(port, up);
    }

    /// Entries idle for their timeout since the last hit or the last report. Each call holds the
    /// control lock for a bounded time and costs nothing for entries that are not due.
    pub fn expired(&self, now_us: u64) -> Expired {
        self.control.lock().truth.expiry.take(now_us, SLICE)
    }
}

/// The loader checked the number and the widths of parameters.
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
        state: Arc::new(EntryState::new(table, 0)),
        initial: true,
    }
}

fn constant_entries(program: &Program, sequence: &mut u64) -> Vec<Change> {
    let mut changes = Vec::new();
    for (index, table) in program.tables.iter().enumerate() {
        let lowest = table
            .entries
            .iter()
            .map(|entry| entry.priority)
            .max()
            .unwrap_or(0);
        for entry in &table.entries {
            *sequence += 1;
            // A lower number wins in JSON, a higher one in P4Runtime, where 0 is not allowed.
            let rank = (lowest - entry.priority) as i32 + 1;
            let entry = constant_entry(program, table, entry, rank, *sequence);
            let swap = Swap {
                before: None,
                after: Some(Arc::new(entry)),
            };
            changes.push(Change::Entry(TableId(index as u32), swap));
        }
    }
    changes
}

fn constant_entry(
    program: &Program,
    table: &Table,
    entry: &TableEntry,
    priority: i32,
    sequence: u64,
) -> Entry {
    let fields = constant_fields(table, &entry.key);
    let key = MatchKey::compile(table, &fields).expect("the loader checked the key");
    let rank = match (table.needs_priority(), KeyShape::of(table)) {
        (true, _) => priority,
        (false, KeyShape::Ordered) => key.prefix_len() as i32,
        (false, _) => 0,
    };
    Entry {
        key,
        sequence,
        rank,
        binding: Binding::Direct(compiled(program, entry.action, &entry.params)),
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Box::default(),
        is_const: true,
        state: Arc::new(EntryState::new(table, 0)),
    }
}

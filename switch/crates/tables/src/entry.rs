// SPDX-License-Identifier: Apache-2.0
//! Entries as both sides and the truth share them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_program::{ActionId, Program, Table};

use crate::error::{Result, invalid};
use crate::externs::CounterCell;
use crate::group::Group;
use crate::key::MatchKey;
use crate::meter::Meter;
use crate::model::{ActionCall, EntryAction, EntrySpec, Value};
use crate::value;

/// An action with its parameters, as the engine wants them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionEntry {
    /// The action.
    pub action: ActionId,
    /// Parameter words; see [`sluice_program::ParamSlot`].
    pub params: Box<[u64]>,
}

/// An action with its parameters, as a look-up finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionRef<'a> {
    /// The action.
    pub action: ActionId,
    /// Parameter words; see [`sluice_program::ParamSlot`].
    pub params: &'a [u64],
}

impl ActionEntry {
    /// The action, borrowed.
    #[inline]
    pub fn as_ref(&self) -> ActionRef<'_> {
        ActionRef {
            action: self.action,
            params: &self.params,
        }
    }

    /// Checks a call and packs its parameters.
    ///
    /// # Errors
    /// `InvalidArgument` for a wrong number of parameters, `OutOfRange` for a bad value.
    pub(crate) fn compile(program: &Program, id: ActionId, params: &[Value]) -> Result<Self> {
        let action = program.action(id);
        if params.len() != action.params.len() {
            return invalid(format!(
                "action {} has {} parameters, not {}",
                action.name,
                action.params.len(),
                params.len()
            ));
        }
        let mut words = Vec::with_capacity(action.param_words);
        for (param, value) in action.params.iter().zip(params) {
            let what = format!("action {}, parameter {}", action.name, param.name);
            value::append_words(&mut words, value, param.slot.width, &what)?;
        }
        Ok(Self {
            action: id,
            params: words.into_boxed_slice(),
        })
    }

    /// The call as the control plane reads it.
    pub(crate) fn call(&self, program: &Program) -> ActionCall {
        let action = program.action(self.action);
        let params = action
            .params
            .iter()
            .map(|param| {
                let first = usize::from(param.slot.word);
                value::from_words(&self.params[first..first + param.slot.words()])
            })
            .collect();
        ActionCall {
            action: self.action,
            params,
        }
    }
}

/// What an entry leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// An action.
    Direct(ActionEntry),
    /// A member of the table's profile.
    Member(u32),
    /// A group of the table's profile.
    Group(u32),
    /// A group of the entry's own.
    OneShot(Box<Group>),
}

impl Binding {
    pub(crate) fn action(&self, program: &Program) -> EntryAction {
        match self {
            Self::Direct(action) => EntryAction::Direct(action.call(program)),
            Self::Member(id) => EntryAction::Member(*id),
            Self::Group(id) => EntryAction::Group(*id),
            Self::OneShot(group) => EntryAction::OneShot(group.one_shot(program)),
        }
    }
}

/// What packets leave behind at an entry. Shared by all copies and kept when it is modified.
#[derive(Debug, Default)]
pub struct EntryState {
    counter: CounterCell,
    meter: Option<Box<Meter>>,
    last_hit_us: AtomicU64,
    reported_us: AtomicU64,
    /// When the timer is set for; used only under the control lock.
    armed_us: AtomicU64,
}

impl EntryState {
    /// Whether entries of a table keep state: it counts, meters or times out. Where they do not,
    /// packets leave nothing behind.
    pub fn kept_by(table: &Table) -> bool {
        table.with_counters || table.support_timeout || table.meter.is_some()
    }

    pub(crate) fn new(table: &Table, now_us: u64) -> Self {
        Self {
            counter: CounterCell::default(),
            meter: table.meter.map(|_| Box::default()),
            last_hit_us: AtomicU64::new(now_us),
            reported_us: AtomicU64::new(now_us),
            armed_us: AtomicU64::new(0),
        }
    }

    /// Counts a packet of so many bytes.
    #[inline]
    pub fn hit(&self, bytes: u64, now_us: u64) {
        self.counter.count(bytes);
        self.last_hit_us.store(now_us, Ordering::Relaxed);
    }

    /// The direct counter.
    pub fn counter(&self) -> &CounterCell {
        &self.counter
    }

    /// The direct meter, if the table has one.
    #[inline]
    pub fn meter(&self) -> Option<&Meter> {
        self.meter.as_deref()
    }

    /// When a packet last hit the entry (or it was inserted), in microseconds.
    pub fn last_hit_us(&self) -> u64 {
        self.last_hit_us.load(Ordering::Relaxed)
    }

    /// When it was last hit or last reported idle, whichever came later.
    pub(crate) fn idle_since_us(&self) -> u64 {
        let reported = self.reported_us.load(Ordering::Relaxed);
        self.last_hit_us().max(reported)
    }

    /// Notes that it was reported idle.
    pub(crate) fn report(&self, at_us: u64) {
        self.reported_us.store(at_us, Ordering::Relaxed);
    }

    /// Notes when its timer falls due.
    pub(crate) fn arm(&self, due_us: u64) {
        self.armed_us.store(due_us, Ordering::Relaxed);
    }

    /// When its timer falls due.
    pub(crate) fn armed_us(&self) -> u64 {
        self.armed_us.load(Ordering::Relaxed)
    }
}

/// A table entry.
#[derive(Debug)]
pub struct Entry {
    pub(crate) key: MatchKey,
    /// Among equal priorities the one inserted first wins.
    pub(crate) sequence: u64,
    /// The priority as the control plane gave it; for an over-wide longest-prefix field, the length.
    pub(crate) rank: i32,
    pub(crate) binding: Binding,
    pub(crate) idle_timeout_ns: u64,
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) is_const: bool,
    pub(crate) state: Arc<EntryState>,
}

impl Entry {
    /// What packets left behind.
    #[inline]
    pub fn state(&self) -> &EntryState {
        &self.state
    }

    /// Whether the program made this entry.
    pub fn is_const(&self) -> bool {
        self.is_const
    }

    /// What it leads to.
    pub fn binding(&self) -> &Binding {
        &self.binding
    }

    /// Its idle timeout, rounded up to microseconds; 0 for none.
    pub(crate) fn idle_timeout_us(&self) -> u64 {
        self.idle_timeout_ns.div_ceil(1_000)
    }

    /// The entry as the control plane reads it.
    pub fn spec(&self, program: &Program, table: &Table) -> EntrySpec {
        EntrySpec {
            key: self.key.fields(table),
            priority: if table.needs_priority() { self.rank } else { 0 },
            action: self.binding.action(program),
            idle_timeout_ns: self.idle_timeout_ns,
            controller_metadata: self.controller_metadata,
            metadata: self.metadata.to_vec(),
        }
    }
}

/// What a table does on a miss.
#[derive(Debug)]
pub struct DefaultEntry {
    pub(crate) binding: Option<Binding>,
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) state: Arc<EntryState>,
    /// Whether this is what the program says.
    pub(crate) initial: bool,
}

impl DefaultEntry {
    /// What packets left behind: a packet that missed is counted here.
    #[inline]
    pub fn state(&self) -> &EntryState {
        &self.state
    }

    /// What it leads to; `None` for nothing at all.
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// What the controller keeps here.
    pub fn controller_metadata(&self) -> u64 {
        self.controller_metadata
    }

    /// What the controller keeps here.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Whether this is what the program says.
    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// The action as the control plane reads it.
    pub fn action(&self, program: &Program) -> Option<EntryAction> {
        self.binding.as_ref().map(|binding| binding.action(program))
    }
}

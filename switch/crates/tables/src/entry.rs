// SPDX-License-Identifier: Apache-2.0
//! Entries as the control plane holds them, and what look-ups find.

use std::fmt;
use std::mem::offset_of;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_program::{ActionId, Program, Table};

use crate::error::{Result, invalid};
use crate::externs::CounterCell;
use crate::group::Group;
use crate::key;
use crate::meter::Meter;
use crate::model::{ActionCall, EntryAction, EntrySpec, Value};
use crate::slab::{Record, Slab};
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
            let what = format_args!("action {}, parameter {}", action.name, param.name);
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
    OneShot(Arc<Group>),
}

/// What an entry is to lead to, borrowed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum BindingRef<'a> {
    Direct(ActionRef<'a>),
    Member(u32),
    Group(u32),
    OneShot(&'a Arc<Group>),
}

impl Binding {
    pub(crate) fn as_ref(&self) -> BindingRef<'_> {
        match self {
            Self::Direct(action) => BindingRef::Direct(action.as_ref()),
            Self::Member(id) => BindingRef::Member(*id),
            Self::Group(id) => BindingRef::Group(*id),
            Self::OneShot(group) => BindingRef::OneShot(group),
        }
    }

    pub(crate) fn action(&self, program: &Program) -> EntryAction {
        match self {
            Self::Direct(action) => EntryAction::Direct(action.call(program)),
            Self::Member(id) => EntryAction::Member(*id),
            Self::Group(id) => EntryAction::Group(*id),
            Self::OneShot(group) => EntryAction::OneShot(group.one_shot(program)),
        }
    }
}

/// An entry as tables keep it: of a table that has actions of its own and is not matched by priority.
/// Who makes one has checked the values.
#[derive(Clone, Copy, Debug)]
pub struct CompiledEntry<'a> {
    /// The key, every field padded to whole bytes, bits beyond a prefix 0.
    pub key: &'a [u8],
    /// Bits of the longest-prefix field; 0 if there is none, or nothing is asked of it.
    pub prefix_len: u16,
    /// The table's own copy of an action; of no account where an entry is removed.
    pub action: ActionRef<'a>,
    /// The idle timeout in nanoseconds; 0 for none.
    pub idle_timeout_ns: u64,
}

/// What packets leave behind at an entry. Shared by all versions of it. All words are atomic; the
/// first three are what a packet writes.
#[derive(Debug, Default)]
#[repr(C)]
pub struct EntryState {
    counter: CounterCell,
    last_hit_us: AtomicU64,
    reported_us: AtomicU64,
    /// When the timer is set for; used only under the control lock.
    armed_us: AtomicU64,
}

impl EntryState {
    /// Where the direct counter is, in bytes: packets, then bytes, 64 bits each.
    pub const COUNTER: usize = offset_of!(Self, counter);
    /// Where the time of the last hit is.
    pub const LAST_HIT: usize = offset_of!(Self, last_hit_us);

    /// Bytes that packets write, from the first on.
    pub(crate) const HOT: usize = offset_of!(Self, reported_us);

    /// Whether entries of a table keep state: it counts, meters or times out. Where they do not,
    /// packets leave nothing behind.
    pub fn kept_by(table: &Table) -> bool {
        table.with_counters || table.support_timeout || table.meter.is_some()
    }

    /// Sets everything as it is at a new entry.
    pub(crate) fn begin(&self, now_us: u64) {
        self.counter.set(0, 0);
        self.last_hit_us.store(now_us, Ordering::Relaxed);
        self.reported_us.store(now_us, Ordering::Relaxed);
        self.armed_us.store(0, Ordering::Relaxed);
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

/// A table entry: a version of it, which stays as it is while this is kept.
pub struct Entry {
    slab: Arc<Slab>,
    slot: u32,
}

impl Entry {
    /// The entry at a slot. Under the control lock only: nobody gives the slot up meanwhile.
    pub(crate) fn hold(slab: &Arc<Slab>, slot: u32) -> Self {
        let entry = Self {
            slab: Arc::clone(slab),
            slot,
        };
        entry.holders().for_each(|record| record.hold());
        entry
    }

    fn record(&self) -> Record<'_> {
        self.slab.record(self.slot)
    }

    /// Its record, and the one that holds what packets left behind.
    fn holders(&self) -> impl Iterator<Item = Record<'_>> {
        let holder = self.record().holder();
        let other = (holder != self.slot).then(|| self.slab.record(holder));
        std::iter::once(self.record()).chain(other)
    }

    /// What packets left behind, where the table keeps that ([`EntryState::kept_by`]).
    pub fn state(&self) -> Option<&EntryState> {
        self.record().state()
    }

    /// The direct meter, if the table has one.
    pub fn meter(&self) -> Option<&Meter> {
        self.record().meter()
    }

    /// Whether the program made this entry.
    pub fn is_const(&self) -> bool {
        self.record().is_const()
    }

    /// What it leads to.
    pub fn binding(&self, program: &Program) -> Binding {
        self.record().binding(program)
    }

    /// The entry as the control plane reads it.
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
        self.holders().for_each(|record| record.let_go());
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.slot)
    }
}

/// What packets leave behind at a default entry.
#[derive(Debug)]
pub(crate) struct DefaultState {
    pub(crate) state: EntryState,
    pub(crate) meter: Option<Meter>,
}

impl DefaultState {
    pub(crate) fn new(table: &Table) -> Self {
        Self {
            state: EntryState::default(),
            meter: table.meter.map(|_| Meter::default()),
        }
    }
}

/// What a table does on a miss.
#[derive(Debug)]
pub struct DefaultEntry {
    pub(crate) binding: Option<Binding>,
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) kept: Arc<DefaultState>,
    /// Whether this is what the program says.
    pub(crate) initial: bool,
}

impl DefaultEntry {
    /// What packets left behind: a packet that missed is counted here.
    #[inline]
    pub fn state(&self) -> &EntryState {
        &self.kept.state
    }

    /// The direct meter, if the table has one.
    #[inline]
    pub fn meter(&self) -> Option<&Meter> {
        self.kept.meter.as_ref()
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

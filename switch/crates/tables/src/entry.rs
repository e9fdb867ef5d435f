// SPDX-License-Identifier: Apache-2.0
//! Table entries as the control plane holds them, and the results that lookups return.

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

/// An action with its parameters, packed for the engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ActionEntry {
    /// The action.
    pub action: ActionId,
    /// Parameter words; see [`sluice_program::ParamSlot`].
    pub params: Box<[u64]>,
}

/// An action with its parameters, as a lookup returns it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ActionRef<'a> {
    /// The action.
    pub action: ActionId,
    /// Parameter words; see [`sluice_program::ParamSlot`].
    pub params: &'a [u64],
}

impl ActionEntry {
    /// Borrows the action.
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

    /// Returns the call in the control plane's form.
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

/// Target of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Binding {
    /// An action.
    Direct(ActionEntry),
    /// A member of the table's profile.
    Member(u32),
    /// A group of the table's profile.
    Group(u32),
    /// A group that belongs to this entry only.
    OneShot(Arc<Group>),
}

/// A borrowed [`Binding`]: the target that an entry is to get.
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

/// An entry in the form that tables store, for tables with direct actions that are not matched by priority.
/// Invariant: the code that builds one has checked the values.
#[derive(Clone, Copy, Debug)]
pub struct CompiledEntry<'a> {
    /// The key, every field padded to whole bytes, bits beyond a prefix 0.
    pub key: &'a [u8],
    /// Prefix length of the longest-prefix field in bits; 0 if there is no such field, or if it matches any value.
    pub prefix_len: u16,
    /// The table's own copy of the action; ignored when the entry is removed.
    pub action: ActionRef<'a>,
    /// The idle timeout in nanoseconds; 0 for none.
    pub idle_timeout_ns: u64,
}

/// State that packets write at an entry, shared by all versions of the entry. All words are atomic;
/// packets write only the first three.
#[derive(Debug, Default)]
#[repr(C)]
pub struct EntryState {
    counter: CounterCell,
    last_hit_us: AtomicU64,
    reported_us: AtomicU64,
    /// Time at which the idle timer expires; used only under the control lock.
    armed_us: AtomicU64,
}

impl EntryState {
    /// Byte offset of the direct counter: packets, then bytes, 64 bits each.
    pub const COUNTER: usize = offset_of!(Self, counter);
    /// Byte offset of the time of the last hit.
    pub const LAST_HIT: usize = offset_of!(Self, last_hit_us);

    /// Number of leading bytes that packets write.
    pub(crate) const HOT: usize = offset_of!(Self, reported_us);

    /// Returns whether the table's entries keep state: a table with direct counters, direct meters or idle
    /// timeouts. In other tables packets write nothing.
    pub fn kept_by(table: &Table) -> bool {
        table.with_counters || table.support_timeout || table.meter.is_some()
    }

    /// Resets all fields for a new entry.
    pub(crate) fn begin(&self, now_us: u64) {
        self.counter.set(0, 0);
        self.last_hit_us.store(now_us, Ordering::Relaxed);
        self.reported_us.store(now_us, Ordering::Relaxed);
        self.armed_us.store(0, Ordering::Relaxed);
    }

    /// Counts a packet of `bytes` bytes and records the time of the hit.
    #[inline]
    pub fn hit(&self, bytes: u64, now_us: u64) {
        self.counter.count(bytes);
        self.last_hit_us.store(now_us, Ordering::Relaxed);
    }

    /// The direct counter.
    pub fn counter(&self) -> &CounterCell {
        &self.counter
    }

    /// Returns when a packet last hit the entry, or when the entry was inserted, in microseconds.
    pub fn last_hit_us(&self) -> u64 {
        self.last_hit_us.load(Ordering::Relaxed)
    }

    /// Returns when the entry was last hit or last reported idle, whichever came later.
    pub(crate) fn idle_since_us(&self) -> u64 {
        let reported = self.reported_us.load(Ordering::Relaxed);
        self.last_hit_us().max(reported)
    }

    /// Records that the entry was reported idle.
    pub(crate) fn report(&self, at_us: u64) {
        self.reported_us.store(at_us, Ordering::Relaxed);
    }

    /// Records when the idle timer expires.
    pub(crate) fn arm(&self, due_us: u64) {
        self.armed_us.store(due_us, Ordering::Relaxed);
    }

    /// Returns when the idle timer expires.
    pub(crate) fn armed_us(&self) -> u64 {
        self.armed_us.load(Ordering::Relaxed)
    }
}

/// A reference to one version of a table entry. Invariant: the version does not change while this is held.
pub struct Entry {
    slab: Arc<Slab>,
    slot: u32,
}

impl Entry {
    /// Takes a reference to the entry at a slot. Requires the control lock, so that the slot is not released meanwhile.
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

    /// Returns the entry's record and, if it is another one, the record that holds the packet state.
    fn holders(&self) -> impl Iterator<Item = Record<'_>> {
        let holder = self.record().holder();
        let other = (holder != self.slot).then(|| self.slab.record(holder));
        std::iter::once(self.record()).chain(other)
    }

    /// Returns the state that packets wrote, if the table keeps any ([`EntryState::kept_by`]).
    pub fn state(&self) -> Option<&EntryState> {
        self.record().state()
    }

    /// The direct meter, if the table has one.
    pub fn meter(&self) -> Option<&Meter> {
        self.record().meter()
    }

    /// Returns whether the P4 program itself declares this entry.
    pub fn is_const(&self) -> bool {
        self.record().is_const()
    }

    /// Returns the entry's target.
    pub fn binding(&self, program: &Program) -> Binding {
        self.record().binding(program)
    }

    /// Returns the entry in the control plane's form.
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

/// State that packets write at a default entry.
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

/// A table's default entry, which applies on a miss.
#[derive(Debug)]
pub struct DefaultEntry {
    pub(crate) binding: Option<Binding>,
    pub(crate) controller_metadata: u64,
    pub(crate) metadata: Box<[u8]>,
    pub(crate) kept: Arc<DefaultState>,
    /// Whether this is the default that the program declares.
    pub(crate) initial: bool,
}

impl DefaultEntry {
    /// Returns the state that packets wrote. Packets that miss are counted here.
    #[inline]
    pub fn state(&self) -> &EntryState {
        &self.kept.state
    }

    /// The direct meter, if the table has one.
    #[inline]
    pub fn meter(&self) -> Option<&Meter> {
        self.kept.meter.as_ref()
    }

    /// Returns the target; `None` if there is no default action.
    pub fn binding(&self) -> Option<&Binding> {
        self.binding.as_ref()
    }

    /// Returns the controller's opaque 64-bit value.
    pub fn controller_metadata(&self) -> u64 {
        self.controller_metadata
    }

    /// Returns the controller's opaque bytes.
    pub fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    /// Returns whether this is the default that the program declares.
    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// Returns the action in the control plane's form.
    pub fn action(&self, program: &Program) -> Option<EntryAction> {
        self.binding.as_ref().map(|binding| binding.action(program))
    }
}

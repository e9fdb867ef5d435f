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

/// An action with its parameters, in the form that engines read.
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
    /// Returns the action and its parameters as a reference.
    #[inline]
    pub fn as_ref(&self) -> ActionRef<'_> {
        ActionRef {
            action: self.action,
            params: &self.params,
        }
    }

    /// Checks an action call and packs its parameters into words.
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

    /// Converts the action call to the control plane's form.
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

/// A borrowed [`Binding`]: the target that is written to an entry.
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

/// An entry in the form that tables store. Only for tables that have direct actions and are not matched by priority.
/// Invariant: the code that builds such an entry has checked its values.
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

/// State that packets write when they hit an entry. All versions of the entry share it. All words are atomic. Packets
/// write only the first three words.
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

    /// Returns whether packets write state in this table: it has direct counters, direct meters or idle timeouts.
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

    /// Returns the direct counter.
    pub fn counter(&self) -> &CounterCell {
        &self.counter
    }

    /// Returns the time of the last hit, in microseconds. If no packet has hit the entry, returns the time of its
    /// insertion.
    pub fn last_hit_us(&self) -> u64 {
        self.last_hit_us.load(Ordering::Relaxed)
    }

    /// Returns the later of two times: of the last hit, and of the last report that the entry was idle.
    pub(crate) fn idle_since_us(&self) -> u64 {
        let reported = self.reported_us.load(Ordering::Relaxed);
        self.last_hit_us().max(reported)
    }

    /// Records the time of a report that the entry was idle.
    pub(crate) fn report(&self, at_us: u64) {
        self.reported_us.store(at_us, Ordering::Relaxed);
    }

    /// Records the time at which the idle timer expires.
    pub(crate) fn arm(&self, due_us: u64) {
        self.armed_us.store(due_us, Ordering::Relaxed);
    }

    /// Returns the time at which the idle timer expires.
    pub(crate) fn armed_us(&self) -> u64 {
        self.armed_us.load(Ordering::Relaxed)
    }
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
        entry.holders().for_each(|record| record.hold());
        entry
    }

    fn record(&self) -> Record<'_> {
        self.slab.record(self.slot)
    }

    /// Returns the entry's record. If another record holds the packet state, returns that record too.
    fn holders(&self) -> impl Iterator<Item = Record<'_>> {
        let holder = self.record().holder();
        let other = (holder != self.slot).then(|| self.slab.record(holder));
        std::iter::once(self.record()).chain(other)
    }

    /// Returns the state that packets wrote, if the table keeps any ([`EntryState::kept_by`]).
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
        self.holders().for_each(|record| record.let_go());
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Entry({})", self.slot)
    }
}

/// State that packets write when they miss and use the default entry.
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
    /// Whether this is the default entry that the program declares.
    pub(crate) initial: bool,
}

impl DefaultEntry {
    /// Returns the state that packets wrote. It counts the packets that miss.
    #[inline]
    pub fn state(&self) -> &EntryState {
        &self.kept.state
    }

    /// Returns the direct meter, if the table has direct meters.
    #[inline]
    pub fn meter(&self) -> Option<&Meter> {
        self.kept.meter.as_ref()
    }

    /// Returns the target, or `None` if there is no default action.
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

    /// Returns whether this is the default entry that the program declares.
    pub fn is_initial(&self) -> bool {
        self.initial
    }

    /// Converts the target to the control plane's form.
    pub fn action(&self, program: &Program) -> Option<EntryAction> {
        self.binding.as_ref().map(|binding| binding.action(program))
    }
}

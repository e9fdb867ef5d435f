// SPDX-License-Identifier: Apache-2.0
//! What packets see: one of the two copies of all look-up structures.

use std::sync::Arc;

use hashbrown::HashMap;
use sluice_program::{Program, TableId, ValueSetId};

use crate::change::EntrySwap;
use crate::entry::{ActionRef, Binding, DefaultEntry, Entry, EntryState};
use crate::group::{Choice, Group};
use crate::lookup::{Found, Structure};
use crate::meter::Meter;
use crate::model::{CloneSession, MulticastGroup, Replica};
use crate::ports::PortStatus;
use crate::slab::{Slab, Target};
use crate::truth::{Member, ValueSetMembers};

#[derive(Debug)]
pub(crate) struct TableSide {
    pub(crate) structure: Structure,
    pub(crate) default: Arc<DefaultEntry>,
    slab: Arc<Slab>,
    /// Groups that belong to one entry, by its slot.
    one_shots: HashMap<u32, Arc<Group>>,
    profile: usize,
    keeps_state: bool,
}

impl TableSide {
    /// Puts one version of an entry in the place of another.
    pub(crate) fn swap(&mut self, swap: EntrySwap) {
        if let Some(slot) = swap.before {
            self.one_shots.remove(&slot);
            if swap.after.is_none() {
                self.structure.remove(self.slab.record(slot));
            }
        }
        if let Some(slot) = swap.after {
            let record = self.slab.record(slot);
            if matches!(record.target(), Target::OneShot)
                && let Some(group) = record.one_shot()
            {
                self.one_shots.insert(slot, group);
            }
            self.structure.insert(record);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ProfileSide {
    pub(crate) members: HashMap<u32, Arc<Member>>,
    pub(crate) groups: HashMap<u32, Arc<Group>>,
}

/// One version of all tables.
#[derive(Debug)]
pub struct Side {
    pub(crate) tables: Vec<TableSide>,
    pub(crate) profiles: Vec<ProfileSide>,
    pub(crate) multicast: HashMap<u32, Arc<MulticastGroup>>,
    pub(crate) clones: HashMap<u32, Arc<CloneSession>>,
    pub(crate) value_sets: Vec<Arc<ValueSetMembers>>,
    ports: Arc<PortStatus>,
}

/// What a look-up found.
#[derive(Clone, Copy, Debug)]
pub struct Lookup<'a> {
    /// Whether an entry matched.
    pub hit: bool,
    /// What runs; `None` when there is no default action, or no member left in the group.
    pub action: Option<ActionRef<'a>>,
    /// Where the packet is counted: at the entry, or at the default entry. `None` where the table
    /// keeps none: it has neither direct counter nor direct meter nor idle timeouts.
    pub state: Option<&'a EntryState>,
    /// The direct meter that the packet is to be measured with: there is one on a hit of a table that
    /// has direct meters.
    pub meter: Option<&'a Meter>,
}

impl Side {
    pub(crate) fn new(
        program: &Program,
        slabs: &[Arc<Slab>],
        defaults: &[Arc<DefaultEntry>],
        ports: Arc<PortStatus>,
    ) -> Self {
        let tables = program.tables.iter().zip(slabs.iter().zip(defaults)).map(
            |(table, (slab, default))| TableSide {
                structure: Structure::new(table, slab),
                default: Arc::clone(default),
                slab: Arc::clone(slab),
                one_shots: HashMap::new(),
                profile: table.profile.map_or(usize::MAX, |id| id.index()),
                keeps_state: EntryState::kept_by(table),
            },
        );
        Self {
            tables: tables.collect(),
            profiles: program
                .profiles
                .iter()
                .map(|_| ProfileSide::default())
                .collect(),
            multicast: HashMap::new(),
            clones: HashMap::new(),
            value_sets: program.value_sets.iter().map(|_| Arc::default()).collect(),
            ports,
        }
    }

    /// Looks a key up. `key` has the table's `key_bytes`; `hash` is asked only when a member of a
    /// group must be chosen.
    #[inline]
    pub fn lookup(&self, table: TableId, key: &[u8], hash: impl FnOnce() -> u64) -> Lookup<'_> {
        let table = &self.tables[table.index()];
        let slot = match table.structure.lookup(key) {
            None => return self.miss(table, hash),
            Some(Found::Slot(slot)) => slot,
            Some(Found::Class(target, slot)) => {
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

    fn miss<'a>(&'a self, table: &'a TableSide, hash: impl FnOnce() -> u64) -> Lookup<'a> {
        let default = &table.default;
        let action = match &default.binding {
            None => None,
            Some(Binding::Direct(action)) => Some(action.as_ref()),
            Some(Binding::Member(id)) => self.choose(table, 0, Target::Member(*id), hash),
            Some(Binding::Group(id)) => self.choose(table, 0, Target::Group(*id), hash),
            Some(Binding::OneShot(group)) => self.one_of(table, group, hash()),
        };
        Lookup {
            hit: false,
            action,
            state: table.keeps_state.then_some(default.state()),
            meter: None,
        }
    }

    /// What a member or a group leads to.
    #[inline]
    fn choose<'a>(
        &'a self,
        table: &'a TableSide,
        slot: u32,
        target: Target<'a>,
        hash: impl FnOnce() -> u64,
    ) -> Option<ActionRef<'a>> {
        let profile = || self.profiles.get(table.profile);
        match target {
            Target::Direct(action) => Some(action),
            Target::Member(id) => Some(profile()?.members.get(&id)?.action.as_ref()),
            Target::Group(id) => self.one_of(table, profile()?.groups.get(&id)?, hash()),
            Target::OneShot => self.one_of(table, table.one_shots.get(&slot)?, hash()),
        }
    }

    #[inline]
    fn one_of<'a>(
        &'a self,
        table: &'a TableSide,
        group: &'a Group,
        hash: u64,
    ) -> Option<ActionRef<'a>> {
        match group.choose(hash, &self.ports)? {
            Choice::Member(member) => {
                let profile = self.profiles.get(table.profile)?;
                Some(profile.members.get(member)?.action.as_ref())
            }
            Choice::Action(action) => Some(action.as_ref()),
        }
    }

    /// The entry that a packet's key matches, for those who want to know more of it than
    /// [`lookup`](Self::lookup) says. Slower than that.
    pub fn find(&self, table: TableId, key: &[u8]) -> Option<Entry> {
        let table = &self.tables[table.index()];
        let slot = table.structure.find(key)?;
        Some(Entry::hold(&table.slab, slot))
    }

    /// Copies to make for a multicast group; none for an unknown one.
    #[inline]
    pub fn multicast(&self, group: u32) -> &[Replica] {
        self.multicast
            .get(&group)
            .map_or(&[], |group| &group.replicas)
    }

    /// Where a replica goes now, and as which instance: to the first of its places whose port is up;
    /// to its own port, which drops it, if all are down.
    #[inline]
    pub fn place(&self, replica: &Replica) -> (u32, u16) {
        let own = (replica.port, replica.instance);
        if replica.backups.is_empty() {
            return own;
        }
        let mut places = replica.places();
        places
            .find(|(port, _)| self.ports.is_up(*port))
            .unwrap_or(own)
    }

    /// A clone session.
    #[inline]
    pub fn clone_session(&self, session: u32) -> Option<&CloneSession> {
        self.clones.get(&session).map(|session| &**session)
    }

    /// Whether a key, one padded component after the other, is in a value set. A mask applies to
    /// both sides of the comparison.
    pub fn value_set_contains(&self, set: ValueSetId, key: &[u8], mask: Option<&[u8]>) -> bool {
        self.value_sets[set.index()].contains(key, mask)
    }
}

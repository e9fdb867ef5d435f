// SPDX-License-Identifier: Apache-2.0
//! What packets see: one of the two copies of all look-up structures.

use std::sync::Arc;

use hashbrown::HashMap;
use sluice_program::{Program, TableId, ValueSetId};

use crate::entry::{ActionRef, Binding, DefaultEntry, Entry, EntryState};
use crate::group::{Choice, Group};
use crate::lookup::Structure;
use crate::model::{CloneSession, MulticastGroup, Replica};
use crate::ports::PortStatus;
use crate::truth::{Member, ValueSetMembers};

#[derive(Debug)]
pub(crate) struct TableSide {
    pub(crate) structure: Structure,
    pub(crate) default: Arc<DefaultEntry>,
    profile: usize,
    keeps_state: bool,
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
}

impl Side {
    pub(crate) fn new(
        program: &Program,
        defaults: &[Arc<DefaultEntry>],
        ports: Arc<PortStatus>,
    ) -> Self {
        let tables = program
            .tables
            .iter()
            .zip(defaults)
            .map(|(table, default)| TableSide {
                structure: Structure::new(table),
                default: Arc::clone(default),
                profile: table.profile.map_or(usize::MAX, |id| id.index()),
                keeps_state: EntryState::kept_by(table),
            });
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
        let found = table.structure.lookup(key);
        let (binding, state) = match found {
            Some(entry) => (Some(&entry.binding), &entry.state),
            None => (table.default.binding.as_ref(), &table.default.state),
        };
        Lookup {
            hit: found.is_some(),
            action: binding.and_then(|binding| self.resolve(table, binding, hash)),
            state: table.keeps_state.then_some(state),
        }
    }

    /// The entry that a packet's key matches, for those who want to know more of it than
    /// [`lookup`](Self::lookup) says. Slower than that.
    pub fn find(&self, table: TableId, key: &[u8]) -> Option<&Entry> {
        self.tables[table.index()].structure.lookup(key)
    }

    #[inline]
    fn resolve<'a>(
        &'a self,
        table: &TableSide,
        binding: &'a Binding,
        hash: impl FnOnce() -> u64,
    ) -> Option<ActionRef<'a>> {
        let profile = || self.profiles.get(table.profile);
        match binding {
            Binding::Direct(action) => Some(action.as_ref()),
            Binding::Member(id) => Some(profile()?.members.get(id)?.action.as_ref()),
            Binding::Group(id) => {
                let profile = profile()?;
                match profile.groups.get(id)?.choose(hash(), &self.ports)? {
                    Choice::Member(member) => Some(profile.members.get(member)?.action.as_ref()),
                    Choice::Action(action) => Some(action.as_ref()),
                }
            }
            Binding::OneShot(group) => match group.choose(hash(), &self.ports)? {
                Choice::Member(member) => Some(profile()?.members.get(member)?.action.as_ref()),
                Choice::Action(action) => Some(action.as_ref()),
            },
        }
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

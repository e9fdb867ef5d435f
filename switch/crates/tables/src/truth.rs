// SPDX-License-Identifier: Apache-2.0
//! The control plane's own record: what exists, and what refers to what.

use std::collections::BTreeMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use hashbrown::{DefaultHashBuilder, HashTable};
use sluice_program::{ProfileId, Program};

use crate::change::{Change, Swap};
use crate::entry::{ActionEntry, Binding, DefaultEntry, Entry};
use crate::expiry::Expiry;
use crate::group::Group;
use crate::key::MatchKey;
use crate::model::{CloneSession, MulticastGroup, places};

pub(crate) use crate::value_set::ValueSetMembers;

/// A member of an action profile.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: u32,
    pub(crate) action: ActionEntry,
}

/// A thing, and how many others refer to it.
#[derive(Debug)]
pub(crate) struct Counted<T> {
    pub(crate) value: Arc<T>,
    pub(crate) references: usize,
}

#[derive(Debug)]
pub(crate) struct TableTruth {
    hasher: DefaultHashBuilder,
    entries: HashTable<Arc<Entry>>,
    pub(crate) default: Arc<DefaultEntry>,
    pub(crate) initial_default: Arc<DefaultEntry>,
    profile: Option<ProfileId>,
}

impl TableTruth {
    fn new(default: &Arc<DefaultEntry>, profile: Option<ProfileId>) -> Self {
        Self {
            hasher: DefaultHashBuilder::default(),
            entries: HashTable::new(),
            default: Arc::clone(default),
            initial_default: Arc::clone(default),
            profile,
        }
    }

    fn hash(&self, key: &MatchKey, rank: i32) -> u64 {
        self.hasher.hash_one((key, rank))
    }

    pub(crate) fn get(&self, key: &MatchKey, rank: i32) -> Option<&Arc<Entry>> {
        let hash = self.hash(key, rank);
        self.entries
            .find(hash, |entry| entry.rank == rank && entry.key == *key)
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Entry>> {
        self.entries.iter()
    }

    fn apply(&mut self, swap: &Swap<Entry>) {
        if let Some(before) = &swap.before {
            let hash = self.hash(&before.key, before.rank);
            let same = |known: &Arc<Entry>| known.rank == before.rank && known.key == before.key;
            if let Ok(place) = self.entries.find_entry(hash, same) {
                place.remove();
            }
        }
        if let Some(after) = &swap.after {
            let hash = self.hash(&after.key, after.rank);
            let hasher = &self.hasher;
            let rehash = |entry: &Arc<Entry>| hasher.hash_one((&entry.key, entry.rank));
            self.entries.insert_unique(hash, Arc::clone(after), rehash);
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct ProfileTruth {
    pub(crate) members: BTreeMap<u32, Counted<Member>>,
    pub(crate) groups: BTreeMap<u32, Counted<Group>>,
    /// Entries with a group of their own.
    pub(crate) one_shots: usize,
}

impl ProfileTruth {
    fn refer(&mut self, binding: &Binding, by: isize) {
        let references = match binding {
            Binding::Member(id) => self.members.get_mut(id).map(|m| &mut m.references),
            Binding::Group(id) => self.groups.get_mut(id).map(|g| &mut g.references),
            Binding::OneShot(_) => Some(&mut self.one_shots),
            Binding::Direct(_) => None,
        };
        if let Some(references) = references {
            *references = references.saturating_add_signed(by);
        }
    }

    fn refer_members(&mut self, group: &Group, by: isize) {
        for id in group.member_ids() {
            self.refer(&Binding::Member(id), by);
        }
    }
}

#[derive(Debug)]
pub(crate) struct Truth {
    pub(crate) tables: Vec<TableTruth>,
    pub(crate) profiles: Vec<ProfileTruth>,
    pub(crate) multicast: BTreeMap<u32, Arc<MulticastGroup>>,
    pub(crate) clones: BTreeMap<u32, Arc<CloneSession>>,
    pub(crate) value_sets: Vec<Arc<ValueSetMembers>>,
    pub(crate) expiry: Expiry,
    /// Replicas of all groups and sessions.
    pub(crate) replicas: usize,
}

impl Truth {
    pub(crate) fn new(program: &Program, defaults: &[Arc<DefaultEntry>]) -> Self {
        let tables = program.tables.iter().zip(defaults);
        Self {
            tables: tables
                .map(|(table, default)| TableTruth::new(default, table.profile))
                .collect(),
            profiles: program
                .profiles
                .iter()
                .map(|_| ProfileTruth::default())
                .collect(),
            multicast: BTreeMap::new(),
            clones: BTreeMap::new(),
            value_sets: program.value_sets.iter().map(|_| Arc::default()).collect(),
            expiry: Expiry::default(),
            replicas: 0,
        }
    }

    /// Applies a change and keeps the reference counts.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Entry(id, swap) => {
                let table = &mut self.tables[id.index()];
                table.apply(swap);
                let (before, after) = (swap.before.as_ref(), swap.after.as_ref());
                self.expiry.apply(*id, before, after);
                if let Some(profile) = table.profile {
                    let profile = &mut self.profiles[profile.index()];
                    for (entry, by) in [(&swap.before, -1), (&swap.after, 1)] {
                        if let Some(entry) = entry {
                            profile.refer(&entry.binding, by);
                        }
                    }
                }
            }
            Change::Default(id, before, after) => {
                let table = &mut self.tables[id.index()];
                table.default = Arc::clone(after);
                if let Some(profile) = table.profile {
                    let profile = &mut self.profiles[profile.index()];
                    for (default, by) in [(before, -1), (after, 1)] {
                        if let Some(binding) = &default.binding {
                            profile.refer(binding, by);
                        }
                    }
                }
            }
            Change::Member(profile, id, swap) => {
                put(&mut self.profiles[profile.index()].members, *id, swap);
            }
            Change::Group(profile, id, swap) => {
                let profile = &mut self.profiles[profile.index()];
                for (group, by) in [(&swap.before, -1), (&swap.after, 1)] {
                    if let Some(group) = group {
                        profile.refer_members(group, by);
                    }
                }
                put(&mut profile.groups, *id, swap);
            }
            Change::Multicast(id, swap) => {
                self.count_replicas(swap, |group| places(&group.replicas));
                set(&mut self.multicast, *id, swap);
            }
            Change::Clone(id, swap) => {
                self.count_replicas(swap, |session| places(&session.replicas));
                set(&mut self.clones, *id, swap);
            }
            Change::ValueSet(id, _, after) => self.value_sets[id.index()] = Arc::clone(after),
        }
    }
}

impl Truth {
    fn count_replicas<T: ?Sized>(&mut self, swap: &Swap<T>, count: impl Fn(&T) -> usize) {
        let count = |side: &Option<Arc<T>>| side.as_deref().map_or(0, &count);
        self.replicas = self.replicas + count(&swap.after) - count(&swap.before);
    }
}

fn put<T>(map: &mut BTreeMap<u32, Counted<T>>, id: u32, swap: &Swap<T>) {
    let Some(after) = &swap.after else {
        map.remove(&id);
        return;
    };
    let references = map.get(&id).map_or(0, |known| known.references);
    map.insert(
        id,
        Counted {
            value: Arc::clone(after),
            references,
        },
    );
}

fn set<T: ?Sized>(map: &mut BTreeMap<u32, Arc<T>>, id: u32, swap: &Swap<T>) {
    match &swap.after {
        Some(after) => map.insert(id, Arc::clone(after)),
        None => map.remove(&id),
    };
}

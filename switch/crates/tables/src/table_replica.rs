// SPDX-License-Identifier: Apache-2.0
//! The replica: the lookup structures of all tables, for packets. There are two replicas. Packets read one while
//! transactions change the other.

use std::sync::Arc;
use std::time::Instant;

use hashbrown::HashMap;
use sluice_program::{ProfileId, Program, Table, TableId, ValueSetId};

use crate::change::{Change, EntrySwap, Swap};
use crate::default_entry::DefaultEntry;
use crate::group::Group;
use crate::handle::{TableHandle, TableHandles};
use crate::lookup::{LpmTable, Structure};
use crate::model::{CloneSession, MulticastGroup, Replica};
use crate::ports::PortStatus;
use crate::profile::{Member, ProfileLookup, row_words};
use crate::shared_table::SharedTable;
use crate::table_lookup::TableLookup;
use crate::value_set::ValueSetMembers;

/// A replica of the lookup structures of all tables. A replica does not change while a packet reads it.
#[derive(Debug)]
pub struct TableReplica {
    pub(crate) tables: Vec<TableLookup>,
    pub(crate) profiles: Vec<ProfileLookup>,
    pub(crate) multicast: HashMap<u32, Arc<MulticastGroup>>,
    pub(crate) clones: HashMap<u32, Arc<CloneSession>>,
    pub(crate) value_sets: Vec<Arc<ValueSetMembers>>,
    pub(crate) ports: Arc<PortStatus>,
    /// Handles of the tables, in table order.
    handles: Box<[TableHandle]>,
    /// Whether other readers than the one that pins this replica may hold it too.
    pub(crate) shared: bool,
}

impl TableReplica {
    pub(crate) fn new(
        program: &Program,
        shared_tables: &[SharedTable],
        ports: Arc<PortStatus>,
    ) -> Self {
        let tables = program.tables.iter().zip(shared_tables);
        let lookup = |(table, shared): (&Table, &SharedTable)| {
            TableLookup::new(table, &shared.slab, shared.routes.as_ref(), &shared.default)
        };
        let tables: Vec<_> = tables.map(lookup).collect();
        let profiles: Vec<_> = (0..program.profiles.len() as u32)
            .map(|id| ProfileLookup::new(row_words(program, ProfileId(id))))
            .collect();
        let handles = tables.iter().map(|table| table.handle(&profiles));
        Self {
            handles: handles.collect(),
            shared: false,
            tables,
            profiles,
            multicast: HashMap::new(),
            clones: HashMap::new(),
            value_sets: program.value_sets.iter().map(|_| Arc::default()).collect(),
            ports,
        }
    }

    /// Prefetches the first cache lines that applying a change will read.
    pub(crate) fn prefetch(&self, change: &Change) {
        if let Change::Entry(table, swap) = change {
            self.tables[table.index()].prefetch(*swap);
        }
    }

    /// Applies a change to the lookup structures.
    pub(crate) fn apply(&mut self, change: &Change) {
        match change {
            Change::Entry(table, swap) => self.swap(*table, *swap),
            Change::Default(table, _, after) => self.set_default(*table, after),
            Change::Member(profile, id, swap) => {
                self.set_member(*profile, *id, swap.after.clone());
            }
            Change::Group(profile, id, swap) => {
                self.set_group(*profile, *id, swap.after.clone());
            }
            Change::Multicast(id, swap) => put(&mut self.multicast, *id, swap),
            Change::Clone(id, swap) => put(&mut self.clones, *id, swap),
            Change::ValueSet(id, _, after) => self.value_sets[id.index()] = Arc::clone(after),
        }
    }

    /// Brings all lookup structures up to date after a batch of changes, and runs rebuilds that are due.
    pub(crate) fn settle(&mut self, now: Instant) {
        for table in &mut self.tables {
            table.structure.settle(now);
        }
    }

    /// Returns the lookup structure of a longest-prefix table, or `None` for other tables.
    pub(crate) fn lpm(&mut self, table: TableId) -> Option<&mut LpmTable> {
        match &mut self.tables[table.index()].structure {
            Structure::Lpm(lpm) => Some(lpm),
            _ => None,
        }
    }

    /// Replaces an old version of an entry by a new one, or adds or removes the entry if one version is missing.
    fn swap(&mut self, table: TableId, swap: EntrySwap) {
        self.tables[table.index()].swap(swap);
        self.renew_handle(table.index());
    }

    /// Replaces a table's default entry.
    fn set_default(&mut self, table: TableId, default: &Arc<DefaultEntry>) {
        let index = table.index();
        self.tables[index].set_default(default);
        self.renew_handle(index);
    }

    fn renew_handle(&mut self, table: usize) {
        self.handles[table] = self.tables[table].handle(&self.profiles);
    }

    /// Replaces the member with this id. `None` removes the member.
    fn set_member(&mut self, profile: ProfileId, id: u32, member: Option<Arc<Member>>) {
        self.change_profile(profile, |profile| profile.set_member(id, member));
    }

    /// Replaces the group with this id. `None` removes the group.
    fn set_group(&mut self, profile: ProfileId, id: u32, group: Option<Arc<Group>>) {
        self.change_profile(profile, |profile| profile.set_group(id, group));
    }

    fn change_profile(&mut self, id: ProfileId, change: impl FnOnce(&mut ProfileLookup)) {
        let profile = &mut self.profiles[id.index()];
        let before = (profile.rows(), profile.handles());
        change(profile);
        if (profile.rows(), profile.handles()) == before {
            return;
        }
        for table in 0..self.tables.len() {
            if self.tables[table].profile == id.index() {
                self.renew_handle(table);
            }
        }
    }

    /// Returns the handles for machine code, one per table, in table order.
    #[inline]
    pub fn handles(&self) -> TableHandles<'_> {
        TableHandles::of(&self.handles)
    }

    /// Returns whether several readers may hold this replica at the same time. If not, the only reader may count
    /// packets without atomic additions. The control plane writes packet state only while no reader holds a replica,
    /// so it does not interfere.
    #[inline]
    pub fn is_shared(&self) -> bool {
        self.shared
    }

    /// Returns the number of entries of a table.
    #[inline]
    pub fn entries(&self, table: TableId) -> u64 {
        self.handles[table.index()].entries
    }

    /// Returns the number of entries of the largest table.
    pub fn most_entries(&self) -> u64 {
        let entries = self.handles.iter().map(|handle| handle.entries);
        entries.max().unwrap_or(0)
    }

    /// Returns the packet replicas of a multicast group. The list is empty for an unknown group.
    #[inline]
    pub fn multicast(&self, group: u32) -> &[Replica] {
        self.multicast
            .get(&group)
            .map_or(&[], |group| &group.replicas)
    }

    /// Returns the egress port and instance that a packet replica uses now. If its port is down, returns the first
    /// backup whose port is up. If all ports are down, returns the replica's own port, where the packet is dropped.
    #[inline]
    pub fn destination(&self, replica: &Replica) -> (u32, u16) {
        let own = (replica.port, replica.instance);
        if replica.backups.is_empty() {
            return own;
        }
        let mut destinations = replica.destinations();
        destinations
            .find(|(port, _)| self.ports.is_up(*port))
            .unwrap_or(own)
    }

    /// Returns a clone session.
    #[inline]
    pub fn clone_session(&self, session: u32) -> Option<&CloneSession> {
        self.clones.get(&session).map(|session| &**session)
    }

    /// Returns whether a value set contains a key. The key is given as its components, each padded to whole bytes. If
    /// there is a mask, it is applied both to the key and to the members before they are compared.
    pub fn value_set_contains(&self, set: ValueSetId, key: &[u8], mask: Option<&[u8]>) -> bool {
        self.value_sets[set.index()].contains(key, mask)
    }
}

fn put<T: ?Sized>(map: &mut HashMap<u32, Arc<T>>, id: u32, swap: &Swap<T>) {
    match &swap.after {
        Some(after) => map.insert(id, Arc::clone(after)),
        None => map.remove(&id),
    };
}

// SPDX-License-Identifier: Apache-2.0
//! Transaction operations on multicast groups, clone sessions and parser value sets.

use std::collections::HashSet;
use std::sync::Arc;

use sluice_program::ValueSetId;

use super::Transaction;
use crate::change::{Change, Swap};
use crate::error::{Result, TableError, invalid};
use crate::model::{CloneSession, KeyField, MulticastGroup, Replica, count_destinations};
use crate::value_set::ValueSetMembers;

impl Transaction<'_> {
    /// Checks that the limit of replicas is kept when `before` replicas and backups are replaced by `after` ones.
    fn check_room(&self, after: usize, before: usize) -> Result<()> {
        let limit = self.limits.replicas;
        if self.control.authoritative.pre_replicas - before + after > limit {
            return full(&format!(
                "multicast groups and clone sessions can have {limit} replicas together"
            ));
        }
        Ok(())
    }

    /// Adds a multicast group.
    ///
    /// # Errors
    /// `AlreadyExists`, `ResourceExhausted`, `InvalidArgument` (id 0, the same port and instance twice,
    /// a backup on the port of its replica).
    pub fn multicast_insert(&mut self, id: u32, group: impl Into<MulticastGroup>) -> Result<()> {
        let group = group.into();
        check_replication(id, &group.replicas)?;
        if self.control.authoritative.multicast.contains_key(&id) {
            return Err(TableError::AlreadyExists(format!("multicast group {id}")));
        }
        let limit = self.limits.multicast_groups;
        if self.control.authoritative.multicast.len() >= limit {
            return full(&format!("the limit of {limit} multicast groups is reached"));
        }
        self.check_room(count_destinations(&group.replicas), 0)?;
        self.apply(Change::Multicast(
            id,
            Swap {
                before: None,
                after: Some(Arc::new(group)),
            },
        ));
        Ok(())
    }

    /// Replaces a multicast group.
    ///
    /// # Errors
    /// `NotFound`, `ResourceExhausted`, `InvalidArgument`.
    pub fn multicast_modify(&mut self, id: u32, group: impl Into<MulticastGroup>) -> Result<()> {
        let group = group.into();
        check_replication(id, &group.replicas)?;
        let before = self.known_multicast(id)?;
        self.check_room(
            count_destinations(&group.replicas),
            count_destinations(&before.replicas),
        )?;
        let before = Some(before);
        self.apply(Change::Multicast(
            id,
            Swap {
                before,
                after: Some(Arc::new(group)),
            },
        ));
        Ok(())
    }

    /// Removes a multicast group.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn multicast_delete(&mut self, id: u32) -> Result<()> {
        let before = Some(self.known_multicast(id)?);
        self.apply(Change::Multicast(
            id,
            Swap {
                before,
                after: None,
            },
        ));
        Ok(())
    }

    fn known_multicast(&self, id: u32) -> Result<Arc<MulticastGroup>> {
        let known = self.control.authoritative.multicast.get(&id).cloned();
        known.ok_or_else(|| TableError::NotFound(format!("multicast group {id}")))
    }

    /// Adds a clone session.
    ///
    /// # Errors
    /// `AlreadyExists`, `ResourceExhausted`, `InvalidArgument` (id 0, the same replica twice), `OutOfRange` (id above
    /// 32767, the largest id in v1model).
    pub fn clone_session_insert(&mut self, id: u32, session: CloneSession) -> Result<()> {
        check_session(id, &session)?;
        if self.control.authoritative.clones.contains_key(&id) {
            return Err(TableError::AlreadyExists(format!("clone session {id}")));
        }
        let limit = self.limits.clone_sessions;
        if self.control.authoritative.clones.len() >= limit {
            return full(&format!("the limit of {limit} clone sessions is reached"));
        }
        self.check_room(count_destinations(&session.replicas), 0)?;
        self.apply(Change::Clone(
            id,
            Swap {
                before: None,
                after: Some(Arc::new(session)),
            },
        ));
        Ok(())
    }

    /// Replaces a clone session.
    ///
    /// # Errors
    /// `NotFound`, and the errors of [`clone_session_insert`](Self::clone_session_insert).
    pub fn clone_session_modify(&mut self, id: u32, session: CloneSession) -> Result<()> {
        check_session(id, &session)?;
        let before = self.known_session(id)?;
        self.check_room(
            count_destinations(&session.replicas),
            count_destinations(&before.replicas),
        )?;
        let before = Some(before);
        self.apply(Change::Clone(
            id,
            Swap {
                before,
                after: Some(Arc::new(session)),
            },
        ));
        Ok(())
    }

    /// Removes a clone session.
    ///
    /// # Errors
    /// `NotFound`.
    pub fn clone_session_delete(&mut self, id: u32) -> Result<()> {
        let before = Some(self.known_session(id)?);
        self.apply(Change::Clone(
            id,
            Swap {
                before,
                after: None,
            },
        ));
        Ok(())
    }

    fn known_session(&self, id: u32) -> Result<Arc<CloneSession>> {
        let known = self.control.authoritative.clones.get(&id).cloned();
        known.ok_or_else(|| TableError::NotFound(format!("clone session {id}")))
    }

    /// Replaces the members of a parser value set.
    ///
    /// # Errors
    /// `ResourceExhausted`, `AlreadyExists` (the same member twice), `InvalidArgument`, `OutOfRange`.
    pub fn value_set_modify(&mut self, id: ValueSetId, members: Vec<Vec<KeyField>>) -> Result<()> {
        let Some(set) = self.program.value_sets.get(id.index()) else {
            return invalid("there is no such value set");
        };
        if members.len() > set.max_size {
            let message = format!("value set {} takes {} members", set.name, set.max_size);
            return Err(TableError::ResourceExhausted(message));
        }
        let mut seen = HashSet::new();
        if !members.iter().all(|member| seen.insert(member)) {
            let message = format!("a member of value set {} is there twice", set.name);
            return Err(TableError::AlreadyExists(message));
        }
        let before = Arc::clone(&self.control.authoritative.value_sets[id.index()]);
        let after = Arc::new(ValueSetMembers::compile(set, members)?);
        self.apply(Change::ValueSet(id, before, after));
        Ok(())
    }
}

fn full<T>(message: &str) -> Result<T> {
    Err(TableError::ResourceExhausted(message.to_owned()))
}

fn check_replication(id: u32, replicas: &[Replica]) -> Result<()> {
    if id == 0 {
        return invalid("the id 0 is not allowed");
    }
    let mut seen = HashSet::new();
    for replica in replicas {
        if replica
            .backups
            .iter()
            .any(|backup| backup.port == replica.port)
        {
            let message = format!(
                "port {} is the port of a replica and of its own backup",
                replica.port
            );
            return invalid(message);
        }
        if let Some((port, instance)) = replica
            .destinations()
            .find(|destination| !seen.insert(*destination))
        {
            return invalid(format!("port {port} with instance {instance} occurs twice"));
        }
    }
    Ok(())
}

fn check_session(id: u32, session: &CloneSession) -> Result<()> {
    if id > 0x7fff {
        return Err(TableError::OutOfRange(format!(
            "clone session {id} is above 32767, the largest id"
        )));
    }
    check_replication(id, &session.replicas)
}

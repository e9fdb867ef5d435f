// SPDX-License-Identifier: Apache-2.0
//! Multicast groups, clone sessions and parser value sets.

use std::sync::Arc;

use sluice_program::ValueSetId;

use super::Transaction;
use crate::change::{Change, Swap};
use crate::error::{Result, TableError, invalid};
use crate::model::{CloneSession, KeyField, Replica};
use crate::truth::ValueSetMembers;

impl Transaction<'_> {
    /// Adds a multicast group.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidArgument` (id 0, the same replica twice).
    pub fn multicast_insert(&mut self, id: u32, replicas: Vec<Replica>) -> Result<()> {
        check_replication(id, &replicas)?;
        if self.control.truth.multicast.contains_key(&id) {
            return Err(TableError::AlreadyExists(format!("multicast group {id}")));
        }
        self.make(Change::Multicast(
            id,
            Swap {
                before: None,
                after: Some(replicas.into()),
            },
        ));
        Ok(())
    }

    /// Replaces a multicast group's replicas.
    ///
    /// # Errors
    /// `NotFound`, `InvalidArgument`.
    pub fn multicast_modify(&mut self, id: u32, replicas: Vec<Replica>) -> Result<()> {
        check_replication(id, &replicas)?;
        let before = Some(self.known_multicast(id)?);
        self.make(Change::Multicast(
            id,
            Swap {
                before,
                after: Some(replicas.into()),
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
        self.make(Change::Multicast(
            id,
            Swap {
                before,
                after: None,
            },
        ));
        Ok(())
    }

    fn known_multicast(&self, id: u32) -> Result<Arc<[Replica]>> {
        let known = self.control.truth.multicast.get(&id).cloned();
        known.ok_or_else(|| TableError::NotFound(format!("multicast group {id}")))
    }

    /// Adds a clone session.
    ///
    /// # Errors
    /// `AlreadyExists`, `InvalidArgument` (id 0, the same replica twice), `OutOfRange` (id beyond
    /// 32767, which is what v1model's architecture can name).
    pub fn clone_session_insert(&mut self, id: u32, session: CloneSession) -> Result<()> {
        check_session(id, &session)?;
        if self.control.truth.clones.contains_key(&id) {
            return Err(TableError::AlreadyExists(format!("clone session {id}")));
        }
        self.make(Change::Clone(
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
    /// `NotFound`, and as for [`clone_session_insert`](Self::clone_session_insert).
    pub fn clone_session_modify(&mut self, id: u32, session: CloneSession) -> Result<()> {
        check_session(id, &session)?;
        let before = Some(self.known_session(id)?);
        self.make(Change::Clone(
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
        self.make(Change::Clone(
            id,
            Swap {
                before,
                after: None,
            },
        ));
        Ok(())
    }

    fn known_session(&self, id: u32) -> Result<Arc<CloneSession>> {
        let known = self.control.truth.clones.get(&id).cloned();
        known.ok_or_else(|| TableError::NotFound(format!("clone session {id}")))
    }

    /// Replaces the members of a parser value set.
    ///
    /// # Errors
    /// `ResourceExhausted`, `InvalidArgument`, `OutOfRange`.
    pub fn value_set_modify(&mut self, id: ValueSetId, members: Vec<Vec<KeyField>>) -> Result<()> {
        let Some(set) = self.program().value_sets.get(id.index()) else {
            return invalid("there is no such value set");
        };
        if members.len() > set.max_size {
            let message = format!("value set {} takes {} members", set.name, set.max_size);
            return Err(TableError::ResourceExhausted(message));
        }
        let before = Arc::clone(&self.control.truth.value_sets[id.index()]);
        let after = Arc::new(ValueSetMembers::compile(set, members)?);
        self.make(Change::ValueSet(id, before, after));
        Ok(())
    }
}

fn check_replication(id: u32, replicas: &[Replica]) -> Result<()> {
    if id == 0 {
        return invalid("the id 0 is not allowed");
    }
    for (index, replica) in replicas.iter().enumerate() {
        if replicas[..index].contains(replica) {
            return invalid(format!(
                "port {}, instance {} is there twice",
                replica.port, replica.instance
            ));
        }
    }
    Ok(())
}

fn check_session(id: u32, session: &CloneSession) -> Result<()> {
    if id > 0x7fff {
        return Err(TableError::OutOfRange(format!(
            "clone session {id} is beyond 32767"
        )));
    }
    check_replication(id, &session.replicas)
}

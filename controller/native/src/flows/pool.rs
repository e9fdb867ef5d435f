// SPDX-License-Identifier: Apache-2.0
//! Keeps the flows of one epoch in the order of eviction, least recently used first. The order is a
//! doubly linked list whose links are in the flows' records.

use super::store::{FlowRecord, NONE, Store};

/// The flows of one epoch. The coldest flow is the least recently used one, the warmest the most
/// recently used one.
#[derive(Clone, Debug)]
pub(super) struct Pool {
    coldest: u32,
    warmest: u32,
    flows: usize,
}

impl Pool {
    pub(super) const EMPTY: Self = Self {
        coldest: NONE,
        warmest: NONE,
        flows: 0,
    };

    pub(super) fn len(&self) -> usize {
        self.flows
    }

    pub(super) fn is_empty(&self) -> bool {
        self.flows == 0
    }

    /// Adds a record that is in no pool, as the warmest flow. `name` is the number of this pool.
    pub(super) fn push(&mut self, store: &mut Store, name: u32, number: u32) {
        let colder = std::mem::replace(&mut self.warmest, number);
        let record = store.get_mut(number);
        (record.pool, record.colder, record.warmer) = (name, colder, NONE);
        match colder {
            NONE => self.coldest = number,
            colder => store.get_mut(colder).warmer = number,
        }
        self.flows += 1;
    }

    /// Removes a record of this pool.
    pub(super) fn remove(&mut self, store: &mut Store, number: u32) {
        let record = store.get_mut(number);
        let (colder, warmer) = (record.colder, record.warmer);
        (record.pool, record.colder, record.warmer) = (NONE, NONE, NONE);
        match colder {
            NONE => self.coldest = warmer,
            colder => store.get_mut(colder).warmer = warmer,
        }
        match warmer {
            NONE => self.warmest = colder,
            warmer => store.get_mut(warmer).colder = colder,
        }
        self.flows -= 1;
    }

    /// Returns the numbers and records of the flows, coldest first.
    pub(super) fn flows<'s>(
        &self,
        store: &'s Store,
    ) -> impl Iterator<Item = (u32, &'s FlowRecord)> {
        let mut at = self.coldest;
        std::iter::from_fn(move || {
            let number = at;
            (number != NONE).then(|| {
                let record = store.get(number);
                at = record.warmer;
                (number, record)
            })
        })
    }
}

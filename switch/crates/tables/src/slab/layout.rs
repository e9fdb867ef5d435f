// SPDX-License-Identifier: Apache-2.0
//! Where things are in the records of a table.

use sluice_program::{Program, Table};

use crate::entry::EntryState;
use crate::key::KeyShape;

/// Where things are in a record, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(super) keeps_state: bool,
    pub(super) metered: bool,
    pub(super) params: usize,
    pub(super) param_words: usize,
    pub(super) timeout: Option<usize>,
    /// Rank and sequence number, where the order of entries matters.
    pub(super) order: Option<usize>,
    pub(super) key: usize,
    /// Bytes of the key's value.
    pub(super) key_bytes: usize,
    /// Bytes of value, and of masks and upper bounds.
    pub(super) stored_bytes: usize,
    pub(super) words: usize,
}

/// Bytes that come from memory together.
pub(super) const LINE: usize = 64;

/// What leads where, and flags.
pub(super) const HEAD: usize = 0;

/// Low half: handles that refer to the record. High half: the slot of its holder.
pub(super) const LINKS: usize = 1;

pub(crate) const STATE: usize = 2;

pub(super) const STATE_WORDS: usize = size_of::<EntryState>() / size_of::<u64>();

/// Bits of the head, above the target.
pub(super) const CONST: u64 = 1 << 34;
pub(super) const LIVE: u64 = 1 << 35;
pub(super) const EXTRAS: u64 = 1 << 36;
pub(super) const PREFIX_LEN: u32 = 48;

pub(super) const ONE_SHOT: u64 = 3;

impl Layout {
    pub(crate) fn new(program: &Program, table: &Table) -> Self {
        let ordered = KeyShape::of(table) == KeyShape::Ordered;
        let keeps_state = EntryState::kept_by(table);
        // Members and groups of a profile keep their parameters themselves.
        let param_words = match table.profile {
            Some(_) => 0,
            None => {
                let actions = table.actions.iter().map(|id| program.action(*id));
                actions.map(|action| action.param_words).max().unwrap_or(0)
            }
        };
        let stored_bytes = table.key_bytes * if ordered { 2 } else { 1 };
        Self::of(
            keeps_state.then_some(table.meter.is_some()),
            param_words,
            table.support_timeout,
            ordered,
            [table.key_bytes, stored_bytes],
        )
    }

    /// `state` says whether it is kept and if so, whether with a meter.
    pub(crate) fn of(
        state: Option<bool>,
        param_words: usize,
        timeout: bool,
        ordered: bool,
        [key_bytes, stored_bytes]: [usize; 2],
    ) -> Self {
        let mut words = STATE;
        let mut take = |count: usize| {
            words += count;
            words - count
        };
        take(if state.is_some() { STATE_WORDS } else { 0 });
        let params = take(param_words);
        let timeout = timeout.then(|| take(1));
        let order = ordered.then(|| take(2));
        let key = take(stored_bytes.div_ceil(size_of::<u64>()));
        Self {
            keeps_state: state.is_some(),
            metered: state == Some(true),
            params,
            param_words,
            timeout,
            order,
            key,
            key_bytes,
            stored_bytes,
            words,
        }
    }

    /// Bytes of a record.
    pub(crate) fn bytes(&self) -> usize {
        self.words * size_of::<u64>()
    }

    /// Where the parameters are, in words.
    pub(crate) fn params(&self) -> usize {
        self.params
    }

    /// Words of a record up to the last parameter.
    pub(crate) fn row_words(&self) -> usize {
        self.params + self.param_words
    }
}

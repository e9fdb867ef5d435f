// SPDX-License-Identifier: Apache-2.0
//! Where things are in the records of a table.
//!
//! A record begins with what packets read and write of it, so that this is in one cache line wherever it fits:
//! the head, the parameters, and of what packets leave behind the counter and the time of the last hit. What only
//! the control plane needs follows. Records that packets write begin with a line.

use sluice_program::{Program, Table};

use crate::entry::EntryState;
use crate::key::KeyShape;

/// Where things are in a record, in words.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Layout {
    pub(super) keeps_state: bool,
    pub(super) metered: bool,
    pub(super) param_words: usize,
    /// What packets leave behind, where that is kept.
    pub(super) state: usize,
    /// Flags, handles, the length of the prefix.
    pub(super) notes: usize,
    pub(super) timeout: Option<usize>,
    /// Rank and sequence number, where the order of entries matters.
    pub(super) order: Option<usize>,
    pub(super) key: usize,
    /// Bytes of the key's value.
    pub(super) key_bytes: usize,
    /// Bytes of value, and of masks and upper bounds.
    pub(super) stored_bytes: usize,
    pub(super) words: usize,
    /// Words from one record to the next.
    stride: usize,
    /// Bytes that packets read and write, from the first on.
    pub(super) hot_bytes: usize,
}

/// Bytes that come from memory together.
pub(super) const LINE: usize = 64;

/// What leads where, and the slot of the holder: see [`ROW_HOLDER`](crate::handle::ROW_HOLDER).
pub(super) const HEAD: usize = 0;

/// Parameters of an action.
pub(super) const PARAMS: usize = 1;

pub(super) const STATE_WORDS: usize = size_of::<EntryState>() / size_of::<u64>();

/// The word of notes: handles that refer to the record in the low half, then flags, then the length of the prefix.
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
        let mut words = PARAMS;
        let mut take = |count: usize| {
            words += count;
            words - count
        };
        take(param_words);
        let kept = take(if state.is_some() { STATE_WORDS } else { 0 });
        let notes = take(1);
        let timeout = timeout.then(|| take(1));
        let order = ordered.then(|| take(2));
        let key = take(stored_bytes.div_ceil(size_of::<u64>()));
        Self {
            keeps_state: state.is_some(),
            metered: state == Some(true),
            param_words,
            state: kept,
            notes,
            timeout,
            order,
            key,
            key_bytes,
            stored_bytes,
            words,
            stride: match state {
                Some(_) => words.next_multiple_of(LINE / size_of::<u64>()),
                None => words,
            },
            hot_bytes: match state {
                Some(_) => kept * size_of::<u64>() + EntryState::HOT,
                None => kept * size_of::<u64>(),
            },
        }
    }

    /// Bytes of a record.
    pub(crate) fn bytes(&self) -> usize {
        self.stride * size_of::<u64>()
    }

    /// Where the parameters are, in words.
    pub(crate) fn params(&self) -> usize {
        PARAMS
    }

    /// Where what packets leave behind is, in words.
    pub(crate) fn state(&self) -> usize {
        self.state
    }

    /// Words of a record up to the last parameter.
    pub(crate) fn row_words(&self) -> usize {
        PARAMS + self.param_words
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Layout of a table's records.
//!
//! A record begins with the words that packets read and write: the head, the parameters, the counter and the time of
//! the last hit. These words share one cache line if they fit. The words that only the control plane needs come after
//! them. If packets write the records of a table, the records are aligned to cache lines.

use sluice_program::{Program, Table};

use crate::entry_state::EntryState;
use crate::key::KeyShape;

/// Offsets and sizes in a record, in words unless stated otherwise.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RecordLayout {
    pub(super) keeps_state: bool,
    pub(super) metered: bool,
    pub(super) param_words: usize,
    /// Offset of the packet state, if the table keeps packet state.
    pub(super) state: usize,
    /// Offset of the word with flags, handle count and prefix length.
    pub(super) notes: usize,
    pub(super) timeout: Option<usize>,
    /// Offset of rank and sequence number. `None` in tables in which at most one entry can match a packet, or the
    /// longest prefix wins.
    pub(super) order: Option<usize>,
    pub(super) key: usize,
    /// Number of bytes of the key's value.
    pub(super) key_bytes: usize,
    /// Number of bytes of the key's value, masks and upper bounds.
    pub(super) stored_bytes: usize,
    pub(super) words: usize,
    /// Distance from one record to the next.
    stride: usize,
    /// Number of leading bytes that packets read and write.
    pub(super) hot_bytes: usize,
}

/// Size of a cache line in bytes.
pub(super) const LINE: usize = 64;

/// Offset of the head, which has the target and the slot of the holder; see [`ROW_HOLDER`](crate::row::ROW_HOLDER).
pub(super) const HEAD: usize = 0;

/// Offset of the action's parameters.
pub(super) const PARAMS: usize = 1;

pub(super) const STATE_WORDS: usize = size_of::<EntryState>() / size_of::<u64>();

/// Fields of the `notes` word. The low 32 bits count the handles. The flags and the prefix length are above them.
pub(super) const CONST: u64 = 1 << 34;
pub(super) const LIVE: u64 = 1 << 35;
pub(super) const EXTRAS: u64 = 1 << 36;
pub(super) const PREFIX_LEN: u32 = 48;

pub(super) const ONE_SHOT: u64 = 3;

impl RecordLayout {
    pub(crate) fn new(program: &Program, table: &Table) -> Self {
        let ordered = KeyShape::of(table) == KeyShape::Ordered;
        let keeps_state = EntryState::is_kept_by(table);
        // In a table with a profile, the parameters are stored in members and groups instead.
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

    /// Computes a layout. `state` is `None` if the table keeps no packet state. Otherwise it is `Some`, and says
    /// whether the table has direct meters.
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

    /// Returns the distance from one record to the next, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.stride * size_of::<u64>()
    }

    /// Returns the offset of the parameters, in words.
    pub(crate) fn params(&self) -> usize {
        PARAMS
    }

    /// Returns the offset of the packet state, in words.
    pub(crate) fn state(&self) -> usize {
        self.state
    }

    /// Returns the number of words up to and including the last parameter.
    pub(crate) fn row_words(&self) -> usize {
        PARAMS + self.param_words
    }
}

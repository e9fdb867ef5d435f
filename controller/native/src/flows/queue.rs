// SPDX-License-Identifier: Apache-2.0
//! Queues the writes of all lists' flows, in order.

use std::collections::{HashMap, VecDeque};

use super::cache::Write;

/// A write of a flow, with the list to which the flow belongs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListWrite {
    /// Number of the list.
    pub list: u32,
    /// The write.
    pub write: Write,
}

/// The writes that were not sent yet, and for each list the number of writes without an
/// answer.
#[derive(Debug, Default)]
pub struct WriteQueue {
    writes: VecDeque<ListWrite>,
    unanswered: HashMap<u32, usize>,
}

impl WriteQueue {
    /// Returns the number of queued writes.
    pub fn len(&self) -> usize {
        self.writes.len()
    }

    /// Returns whether no write is queued.
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }

    /// Returns the number of writes of a list that are queued or in flight.
    pub fn unanswered(&self, list: u32) -> usize {
        self.unanswered.get(&list).copied().unwrap_or_default()
    }

    /// Queues writes of a list. Empties `writes`.
    pub fn push(&mut self, list: u32, writes: &mut Vec<Write>) {
        if writes.is_empty() {
            return;
        }
        *self.unanswered.entry(list).or_default() += writes.len();
        let writes = writes.drain(..).map(|write| ListWrite { list, write });
        self.writes.extend(writes);
    }

    /// Returns the first `limit` writes. They stay in the queue until [`Self::sent`] is
    /// called.
    pub fn first(&self, limit: usize) -> Vec<ListWrite> {
        self.writes.iter().take(limit).copied().collect()
    }

    /// Removes the first `number` writes, which were sent to the switch.
    pub fn sent(&mut self, number: usize) {
        self.writes.drain(..number.min(self.writes.len()));
    }

    /// Counts one answer to a write of a list.
    pub fn answered(&mut self, list: u32) {
        if let Some(number) = self.unanswered.get_mut(&list) {
            *number = number.saturating_sub(1);
        }
    }
}

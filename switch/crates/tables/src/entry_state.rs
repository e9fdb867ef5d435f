// SPDX-License-Identifier: Apache-2.0
//! Packet state of an entry: the words that packets write when they hit the entry.

use std::mem::offset_of;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_program::Table;

use crate::counter::CounterCell;

/// Counter and time stamps of an entry. All versions of the entry share one `EntryState`. All words are atomic.
/// Packets write only the first three words: the counter and the time of the last hit.
#[derive(Debug, Default)]
#[repr(C)]
pub struct EntryState {
    counter: CounterCell,
    last_hit_us: AtomicU64,
    reported_us: AtomicU64,
    /// Time at which the idle timer expires; used only under the control lock.
    armed_us: AtomicU64,
}

impl EntryState {
    /// Byte offset of the direct counter: packets, then bytes, 64 bits each.
    pub const COUNTER: usize = offset_of!(Self, counter);
    /// Byte offset of the time of the last hit.
    pub const LAST_HIT: usize = offset_of!(Self, last_hit_us);

    /// Number of leading bytes that packets write.
    pub(crate) const HOT: usize = offset_of!(Self, reported_us);

    /// Returns whether packets write state in this table: it has direct counters, direct meters or idle timeouts.
    pub fn is_kept_by(table: &Table) -> bool {
        table.with_counters || table.support_timeout || table.meter.is_some()
    }

    /// Resets all fields for a new entry.
    pub(crate) fn begin(&self, now_us: u64) {
        self.counter.set(0, 0);
        self.last_hit_us.store(now_us, Ordering::Relaxed);
        self.reported_us.store(now_us, Ordering::Relaxed);
        self.armed_us.store(0, Ordering::Relaxed);
    }

    /// Counts a packet of `bytes` bytes and records the time of the hit.
    #[inline]
    pub fn hit(&self, bytes: u64, now_us: u64) {
        self.counter.count(bytes);
        self.last_hit_us.store(now_us, Ordering::Relaxed);
    }

    /// Returns the direct counter.
    pub fn counter(&self) -> &CounterCell {
        &self.counter
    }

    /// Returns the time of the last hit, in microseconds. If no packet has hit the entry, returns the time of its
    /// insertion.
    pub fn last_hit_us(&self) -> u64 {
        self.last_hit_us.load(Ordering::Relaxed)
    }

    /// Returns the later of two times: of the last hit, and of the last report that the entry was idle.
    pub(crate) fn idle_since_us(&self) -> u64 {
        let reported = self.reported_us.load(Ordering::Relaxed);
        self.last_hit_us().max(reported)
    }

    /// Records the time of a report that the entry was idle.
    pub(crate) fn report(&self, at_us: u64) {
        self.reported_us.store(at_us, Ordering::Relaxed);
    }

    /// Records the time at which the idle timer expires.
    pub(crate) fn arm(&self, due_us: u64) {
        self.armed_us.store(due_us, Ordering::Relaxed);
    }

    /// Returns the time at which the idle timer expires.
    pub(crate) fn armed_us(&self) -> u64 {
        self.armed_us.load(Ordering::Relaxed)
    }
}

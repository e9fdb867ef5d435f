// SPDX-License-Identifier: Apache-2.0
//! Finds the entries that have been idle for their timeout.
//!
//! Timers are in a heap, ordered by due time. So a search examines only timers that are due, and setting a timer that
//! is due late is cheap. A cancelled timer stays in the heap. It is recognised because its due time differs from the
//! time at which its entry's present timer is due. When more than half of the timers are cancelled, they are removed.
//!
//! A packet that hits an entry does not change the entry's timer. The packet only records the time of the hit. When the
//! timer is due, this time is checked, and the timer is armed again if the entry was hit meanwhile. So a busy entry
//! costs one step per timeout, regardless of the number of hits.
//!
//! Depends on `entry` and `slab`. Invariants: each entry with a timeout has one timer, and no other entry has a timer.
//! An entry is reported once for every whole timeout since its last hit. Several timeouts between two sweeps give one
//! report.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

use sluice_program::TableId;

use crate::change::EntrySwap;
use crate::entry::Entry;
use crate::entry_state::EntryState;
use crate::slab::{Record, Slab};

/// Maximum number of timers that one call examines. It bounds the time for which the control lock is held.
pub(crate) const MAX_TIMERS_PER_CALL: usize = 1024;

/// Idle entries that one call found.
#[derive(Debug, Default)]
pub struct Expired {
    /// Entries that were idle for their timeout since the last hit or the last report. The entry that was due first
    /// comes first.
    pub entries: Vec<(TableId, Entry)>,
    /// Whether more entries may be idle. If so, the caller should call again.
    pub more: bool,
}

/// A timer: due time in microseconds, and the entry.
type Timer = (u64, TableId, u32);

/// Timers of all entries of a program.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    timers: BinaryHeap<Reverse<Timer>>,
    /// Number of entries that have a timer.
    entries: usize,
}

/// Cancelled timers are removed only if there are more than this number.
const CLEANUP_THRESHOLD: usize = 4096;

/// Returns the entry's idle timeout, rounded up to microseconds, and its packet state. Returns `None` if the entry has
/// no timeout.
fn timed<'a>(record: Record<'a>) -> Option<(u64, &'a EntryState)> {
    let timeout_us = record.idle_timeout_ns().div_ceil(1_000);
    let state = record.state().filter(|_| timeout_us != 0)?;
    Some((timeout_us, state))
}

/// Returns the timeout and the packet state of a timer's entry. Returns `None` if the timer was cancelled.
fn current(slab: &Slab, (due, _, slot): Timer) -> Option<(u64, &EntryState)> {
    let record = slab.record(slot);
    timed(record).filter(|(_, state)| record.is_live() && state.armed_us() == due)
}

impl Expiry {
    /// Applies a change: cancels the timer of the old version and sets the timer of the new one.
    pub(crate) fn apply(&mut self, table: TableId, slab: &Slab, swap: EntrySwap) {
        // All versions of an entry share its packet state, so `armed_us` still holds the due time of the old version's
        // timer.
        if let Some(before) = swap.before
            && let Some((_, state)) = timed(slab.record(before))
        {
            state.arm(0);
            self.entries -= 1;
        }
        if let Some(after) = swap.after
            && let Some((timeout, state)) = timed(slab.record(after))
        {
            let due = state.idle_since_us().saturating_add(timeout);
            self.arm(due, table, after, state);
            self.entries += 1;
        }
    }

    fn arm(&mut self, due_us: u64, table: TableId, slot: u32, state: &EntryState) {
        state.arm(due_us);
        self.timers.push(Reverse((due_us, table, slot)));
    }

    /// Returns the entries that are idle at `now_us`. Examines at most `limit` timers.
    pub(crate) fn take<'a>(
        &mut self,
        slab: impl Fn(TableId) -> &'a Arc<Slab>,
        now_us: u64,
        limit: usize,
    ) -> Expired {
        if self.timers.len() > 2 * self.entries + CLEANUP_THRESHOLD {
            self.remove_cancelled(&slab);
        }
        let mut expired = Expired::default();
        for _ in 0..limit {
            let Some(timer) = self.take_due(now_us) else {
                return expired;
            };
            let (_, table, slot) = timer;
            let slab = slab(table);
            let Some((timeout, state)) = current(slab, timer) else {
                continue;
            };
            let since = state.idle_since_us();
            let timeouts = now_us.saturating_sub(since) / timeout;
            if timeouts == 0 {
                self.arm(since.saturating_add(timeout), table, slot, state);
                continue;
            }
            // Dates the report a whole number of timeouts after the last hit, not now. Otherwise the delay of each
            // sweep would add to the next report's time.
            let reported = since + timeouts * timeout;
            state.report(reported);
            self.arm(reported.saturating_add(timeout), table, slot, state);
            expired.entries.push((table, Entry::hold(slab, slot)));
        }
        expired.more = true;
        expired
    }

    fn take_due(&mut self, now_us: u64) -> Option<Timer> {
        let Reverse(first) = *self.timers.peek()?;
        (first.0 <= now_us).then(|| {
            self.timers.pop();
            first
        })
    }

    /// Removes cancelled timers and duplicates.
    fn remove_cancelled<'a>(&mut self, slab: &impl Fn(TableId) -> &'a Arc<Slab>) {
        let mut timers = std::mem::take(&mut self.timers).into_vec();
        timers.retain(|Reverse(timer)| current(slab(timer.1), *timer).is_some());
        timers.sort_unstable();
        timers.dedup();
        self.timers = timers.into();
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::action::ActionRef;
    use crate::binding::BindingRef;
    use crate::key::KeyRef;
    use crate::slab::{NewRecord, RecordLayout};
    use sluice_program::ActionId;

    const MILLION: u32 = 1_000_000;
    const TABLE: TableId = TableId(0);

    fn slab() -> Arc<Slab> {
        Arc::new(Slab::new(
            RecordLayout::of(Some(false), 0, true, false, [0, 0]),
            MILLION as usize,
        ))
    }

    /// Writes a version of an entry to a slot.
    fn fill(slab: &Slab, slot: u32, timeout_us: u64, holder: Option<u32>, now_us: u64) {
        let record = NewRecord {
            key: KeyRef::new(&[], 0),
            rank: 0,
            sequence: 0,
            binding: BindingRef::Direct(ActionRef {
                action: ActionId(0),
                params: &[],
            }),
            idle_timeout_ns: timeout_us * 1_000,
            controller_metadata: 0,
            metadata: Vec::new(),
            is_const: false,
        };
        slab.fill(slot, record, holder, now_us);
    }

    /// Applies a change to the records, as the authoritative copy does, and then to the timers.
    fn change(expiry: &mut Expiry, slab: &Slab, before: Option<u32>, after: Option<u32>) {
        for (slot, live) in [(before, false), (after, true)] {
            if let Some(slot) = slot {
                slab.record(slot).set_live(live);
            }
        }
        expiry.apply(TABLE, slab, EntrySwap { before, after });
    }

    fn hit(slab: &Slab, slot: u32, now_us: u64) {
        slab.record(slot)
            .state()
            .expect("it is kept")
            .hit(1, now_us);
    }

    /// Creates a million entries. From the timeout on, one entry becomes due each microsecond.
    fn million(slab: &Slab, timeout_us: u64) -> Expiry {
        let mut expiry = Expiry::default();
        for slot in 0..MILLION {
            fill(slab, slot, timeout_us, None, slot.into());
            change(&mut expiry, slab, None, Some(slot));
        }
        expiry
    }

    #[test]
    fn a_sweep_examines_only_timers_that_are_due() {
        let slab = slab();
        let mut expiry = million(&slab, 10_000_000);
        // With a limit of one timer, `more` says whether there was a timer to examine.
        let early = expiry.take(|_| &slab, 9_999_999, 1);
        assert!(early.entries.is_empty() && !early.more);
        let hundred = expiry.take(|_| &slab, 10_000_099, 101);
        assert_eq!((hundred.entries.len(), hundred.more), (100, false));
        assert_eq!(expiry.len(), MILLION as usize, "each is set again");
    }

    #[test]
    fn an_entry_that_is_hit_costs_one_step_each_timeout() {
        let (slab, mut expiry) = (slab(), Expiry::default());
        fill(&slab, 1, 1_000, None, 0);
        change(&mut expiry, &slab, None, Some(1));
        let mut steps = 0;
        for now in 0..100_000 {
            hit(&slab, 1, now);
            let expired = expiry.take(|_| &slab, now, 1);
            assert!(expired.entries.is_empty());
            steps += u32::from(expired.more);
        }
        assert!(steps <= 101, "{steps} steps in 100 timeouts");
    }

    #[test]
    fn a_timer_follows_its_entry() {
        let (slab, mut expiry) = (slab(), Expiry::default());
        let [long, short, none] = [0, 1, 2];
        fill(&slab, long, 1_000, None, 0);
        fill(&slab, short, 50, Some(long), 0);
        fill(&slab, none, 0, Some(long), 0);
        let change = |expiry: &mut Expiry, before, after| change(expiry, &slab, before, after);
        change(&mut expiry, None, Some(long));
        change(&mut expiry, Some(long), Some(short));
        assert_eq!(expiry.take(|_| &slab, 50, 9).entries.len(), 1);
        change(&mut expiry, Some(short), Some(none));
        assert_eq!(expiry.len(), 0);
        change(&mut expiry, Some(none), Some(long));
        let early = expiry.take(|_| &slab, 1_049, 9);
        assert_eq!(early.entries.len(), 0, "the report at 50 counts");
        assert_eq!(expiry.take(|_| &slab, 1_050, 9).entries.len(), 1);
        change(&mut expiry, Some(long), None);
        assert_eq!(expiry.len(), 0);
    }

    #[test]
    fn cancelled_timers_are_removed() {
        let (slab, mut expiry) = (slab(), Expiry::default());
        fill(&slab, 0, 1_000, None, 0);
        change(&mut expiry, &slab, None, Some(0));
        for _ in 0..100_000 {
            // Modifies one entry and undoes this. Inserts another entry and deletes it.
            fill(&slab, 1, 1_000, Some(0), 0);
            change(&mut expiry, &slab, Some(0), Some(1));
            change(&mut expiry, &slab, Some(1), Some(0));
            fill(&slab, 2, 500, None, 0);
            change(&mut expiry, &slab, None, Some(2));
            change(&mut expiry, &slab, Some(2), None);
            assert!(expiry.take(|_| &slab, 1, 9).entries.is_empty());
        }
        assert!(
            expiry.timers.len() <= 2 + CLEANUP_THRESHOLD + 3,
            "{}",
            expiry.timers.len()
        );
        assert_eq!(expiry.take(|_| &slab, 1_000, 9_999).entries.len(), 1);
        assert!(expiry.take(|_| &slab, 1_999, 9_999).entries.is_empty());
    }

    #[test]
    fn timeouts_near_the_end_of_time_do_not_overflow() {
        let (slab, mut expiry) = (slab(), Expiry::default());
        fill(&slab, 1, u64::MAX / 1_000, None, 0);
        change(&mut expiry, &slab, None, Some(1));
        hit(&slab, 1, u64::MAX - 5);
        assert!(expiry.take(|_| &slab, u64::MAX - 1, 9).entries.is_empty());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Which entries have been idle for their timeout.
//!
//! Timers are ordered by the moment at which they fall due, so looking for those that are due costs
//! nothing for all the others. A packet that hits an entry leaves its timer alone: the packet path
//! only notes the time. A timer that falls due is compared with that note and, if the entry was hit
//! meanwhile, set again; a busy entry costs the sweep one step per timeout, however often it is hit.
//!
//! Depends on `entry` and `slab`. Promises: one timer for each entry with a timeout, and none for any other;
//! an entry is reported once for every whole timeout that has passed since its last hit (as far as
//! there was a sweep for each: what was missed in between is one report, not several).

use std::collections::BTreeSet;
use std::sync::Arc;

use sluice_program::TableId;

use crate::change::EntrySwap;
use crate::entry::{Entry, EntryState};
use crate::slab::{Record, Slab};

/// Timers that one call looks at, so that nobody waits long for the lock it is made under.
pub(crate) const SLICE: usize = 1024;

/// Idle entries, as far as one call found them.
#[derive(Debug, Default)]
pub struct Expired {
    /// Entries idle for their timeout since the last hit or the last report, longest due first.
    pub entries: Vec<(TableId, Entry)>,
    /// Whether there may be more: call again.
    pub more: bool,
}

/// When a timer falls due, and the entry that it is for.
type Timer = (u64, TableId, u32);

/// The timers of all entries of a program.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    timers: BTreeSet<Timer>,
}

/// The idle timeout rounded up to microseconds, and what packets left behind; `None` without a
/// timeout.
fn timed<'a>(record: Record<'a>) -> Option<(u64, &'a EntryState)> {
    let timeout_us = record.idle_timeout_ns().div_ceil(1_000);
    let state = record.state().filter(|_| timeout_us != 0)?;
    Some((timeout_us, state))
}

impl Expiry {
    /// Follows a change: the timer goes from the version that was there to the one that is.
    pub(crate) fn apply(&mut self, table: TableId, slab: &Slab, swap: EntrySwap) {
        // The state is shared by all versions of an entry, so it knows the timer of the old one.
        if let Some(before) = swap.before
            && let Some((_, state)) = timed(slab.record(before))
        {
            self.timers.remove(&(state.armed_us(), table, before));
        }
        if let Some(after) = swap.after
            && let Some((timeout, state)) = timed(slab.record(after))
        {
            let due = state.idle_since_us().saturating_add(timeout);
            self.arm(due, table, after, state);
        }
    }

    fn arm(&mut self, due_us: u64, table: TableId, slot: u32, state: &EntryState) {
        state.arm(due_us);
        self.timers.insert((due_us, table, slot));
    }

    /// Takes entries that are idle at `now_us`, looking at most at `limit` timers.
    pub(crate) fn take<'a>(
        &mut self,
        slab: impl Fn(TableId) -> &'a Arc<Slab>,
        now_us: u64,
        limit: usize,
    ) -> Expired {
        let mut expired = Expired::default();
        for _ in 0..limit {
            let Some((_, table, slot)) = self.take_due(now_us) else {
                return expired;
            };
            let slab = slab(table);
            let Some((timeout, state)) = timed(slab.record(slot)) else {
                continue;
            };
            let since = state.idle_since_us();
            let timeouts = now_us.saturating_sub(since) / timeout;
            if timeouts == 0 {
                self.arm(since.saturating_add(timeout), table, slot, state);
                continue;
            }
            // In step with the last hit, so that sweeps that come late do not add up.
            let reported = since + timeouts * timeout;
            state.report(reported);
            self.arm(reported.saturating_add(timeout), table, slot, state);
            expired.entries.push((table, Entry::hold(slab, slot)));
        }
        expired.more = true;
        expired
    }

    fn take_due(&mut self, now_us: u64) -> Option<Timer> {
        let first = *self.timers.first()?;
        (first.0 <= now_us).then(|| {
            self.timers.pop_first();
            first
        })
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.timers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{ActionEntry, Binding};
    use crate::key::MatchKey;
    use crate::slab::{Layout, NewRecord};
    use sluice_program::ActionId;

    const MILLION: u32 = 1_000_000;
    const TABLE: TableId = TableId(0);

    fn slab() -> Arc<Slab> {
        Arc::new(Slab::new(Layout::of(Some(false), 0, true, false, [0, 0])))
    }

    /// Writes a version of an entry.
    fn fill(slab: &Slab, slot: u32, timeout_us: u64, holder: Option<u32>, now_us: u64) {
        let (action, params) = (ActionId(0), Box::default());
        let record = NewRecord {
            key: &MatchKey::default(),
            rank: 0,
            sequence: 0,
            binding: &Binding::Direct(ActionEntry { action, params }),
            idle_timeout_ns: timeout_us * 1_000,
            controller_metadata: 0,
            metadata: Vec::new(),
            is_const: false,
        };
        slab.fill(slot, record, holder, now_us);
    }

    fn swap(before: Option<u32>, after: Option<u32>) -> EntrySwap {
        EntrySwap { before, after }
    }

    fn hit(slab: &Slab, slot: u32, now_us: u64) {
        slab.record(slot)
            .state()
            .expect("it is kept")
            .hit(1, now_us);
    }

    /// A million entries that fall due one after the other, one each microsecond, from the timeout on.
    fn million(slab: &Slab, timeout_us: u64) -> Expiry {
        let mut expiry = Expiry::default();
        for slot in 0..MILLION {
            fill(slab, slot, timeout_us, None, slot.into());
            expiry.apply(TABLE, slab, swap(None, Some(slot)));
        }
        expiry
    }

    #[test]
    fn a_sweep_looks_only_at_what_is_due() {
        let slab = slab();
        let mut expiry = million(&slab, 10_000_000);
        // With a limit of one timer, `more` says whether there was anything to look at.
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
        expiry.apply(TABLE, &slab, swap(None, Some(1)));
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
        let change = |expiry: &mut Expiry, before, after| {
            expiry.apply(TABLE, &slab, swap(before, after));
        };
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
    fn timeouts_near_the_end_of_time_do_not_overflow() {
        let (slab, mut expiry) = (slab(), Expiry::default());
        fill(&slab, 1, u64::MAX / 1_000, None, 0);
        expiry.apply(TABLE, &slab, swap(None, Some(1)));
        hit(&slab, 1, u64::MAX - 5);
        assert!(expiry.take(|_| &slab, u64::MAX - 1, 9).entries.is_empty());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Which entries have been idle for their timeout.
//!
//! Timers are ordered by the moment at which they fall due, so looking for those that are due costs
//! nothing for all the others. A packet that hits an entry leaves its timer alone: the packet path
//! only notes the time. A timer that falls due is compared with that note and, if the entry was hit
//! meanwhile, set again; a busy entry costs the sweep one step per timeout, however often it is hit.
//!
//! Depends on `entry`. Promises: one timer for each entry with a timeout, and none for any other;
//! an entry is reported once for every whole timeout that has passed since its last hit (as far as
//! there was a sweep for each: what was missed in between is one report, not several).

use std::collections::BTreeMap;
use std::sync::Arc;

use sluice_program::TableId;

use crate::entry::Entry;

/// Timers that one call looks at, so that nobody waits long for the lock it is made under.
pub(crate) const SLICE: usize = 1024;

/// Idle entries, as far as one call found them.
#[derive(Debug, Default)]
pub struct Expired {
    /// Entries idle for their timeout since the last hit or the last report, longest due first.
    pub entries: Vec<(TableId, Arc<Entry>)>,
    /// Whether there may be more: call again.
    pub more: bool,
}

/// When a timer falls due, and the entry's sequence number, which makes it unique.
type Moment = (u64, u64);

/// The timers of all entries of a program.
#[derive(Debug, Default)]
pub(crate) struct Expiry {
    timers: BTreeMap<Moment, (TableId, Arc<Entry>)>,
}

impl Expiry {
    /// Follows a change: the timer goes from the entry that was there to the one that is.
    pub(crate) fn apply(
        &mut self,
        table: TableId,
        before: Option<&Arc<Entry>>,
        after: Option<&Arc<Entry>>,
    ) {
        // The state is shared by all versions of an entry, so it knows the timer of the old one.
        if let Some(before) = before.filter(|entry| entry.idle_timeout_us() != 0) {
            self.timers
                .remove(&(before.state.armed_us(), before.sequence));
        }
        if let Some(after) = after.filter(|entry| entry.idle_timeout_us() != 0) {
            let due = after
                .state
                .idle_since_us()
                .saturating_add(after.idle_timeout_us());
            self.arm(due, table, Arc::clone(after));
        }
    }

    fn arm(&mut self, due_us: u64, table: TableId, entry: Arc<Entry>) {
        entry.state.arm(due_us);
        self.timers.insert((due_us, entry.sequence), (table, entry));
    }

    /// Takes entries that are idle at `now_us`, looking at most at `limit` timers.
    pub(crate) fn take(&mut self, now_us: u64, limit: usize) -> Expired {
        let mut expired = Expired::default();
        for _ in 0..limit {
            let Some((table, entry)) = self.take_due(now_us) else {
                return expired;
            };
            let (since, timeout) = (entry.state.idle_since_us(), entry.idle_timeout_us());
            let timeouts = now_us.saturating_sub(since) / timeout;
            if timeouts == 0 {
                self.arm(since.saturating_add(timeout), table, entry);
                continue;
            }
            // In step with the last hit, so that sweeps that come late do not add up.
            let reported = since + timeouts * timeout;
            entry.state.report(reported);
            self.arm(reported.saturating_add(timeout), table, Arc::clone(&entry));
            expired.entries.push((table, entry));
        }
        expired.more = true;
        expired
    }

    fn take_due(&mut self, now_us: u64) -> Option<(TableId, Arc<Entry>)> {
        let first = self.timers.first_entry()?;
        (first.key().0 <= now_us).then(|| first.remove())
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.timers.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::{Binding, EntryState};
    use crate::{ActionEntry, key::MatchKey};
    use sluice_program::ActionId;

    const MILLION: u64 = 1_000_000;
    const TABLE: TableId = TableId(0);

    fn entry(sequence: u64, timeout_us: u64, state: Arc<EntryState>) -> Arc<Entry> {
        let (action, params) = (ActionId(0), Box::default());
        Arc::new(Entry {
            key: MatchKey::default(),
            sequence,
            rank: 0,
            binding: Binding::Direct(ActionEntry { action, params }),
            idle_timeout_ns: timeout_us * 1_000,
            controller_metadata: 0,
            metadata: Box::default(),
            is_const: false,
            state,
        })
    }

    /// A million entries that fall due one after the other, one each microsecond, from the timeout on.
    fn million(timeout_us: u64) -> Expiry {
        let mut expiry = Expiry::default();
        for sequence in 0..MILLION {
            let state = Arc::<EntryState>::default();
            state.hit(1, sequence);
            expiry.apply(TABLE, None, Some(&entry(sequence, timeout_us, state)));
        }
        expiry
    }

    #[test]
    fn a_sweep_looks_only_at_what_is_due() {
        let mut expiry = million(10 * MILLION);
        // With a limit of one timer, `more` says whether there was anything to look at.
        let early = expiry.take(10 * MILLION - 1, 1);
        assert!(early.entries.is_empty() && !early.more);
        let hundred = expiry.take(10 * MILLION + 99, 101);
        assert_eq!((hundred.entries.len(), hundred.more), (100, false));
        assert_eq!(expiry.len() as u64, MILLION, "each is set again");
    }

    #[test]
    fn an_entry_that_is_hit_costs_one_step_each_timeout() {
        let mut expiry = Expiry::default();
        let state = Arc::<EntryState>::default();
        expiry.apply(TABLE, None, Some(&entry(1, 1_000, Arc::clone(&state))));
        let mut steps = 0;
        for now in 0..100_000 {
            state.hit(1, now);
            let expired = expiry.take(now, 1);
            assert!(expired.entries.is_empty());
            steps += u32::from(expired.more);
        }
        assert!(steps <= 101, "{steps} steps in 100 timeouts");
    }

    #[test]
    fn a_timer_follows_its_entry() {
        let mut expiry = Expiry::default();
        let state = Arc::<EntryState>::default();
        let versions = [1_000, 50, 0].map(|timeout| entry(1, timeout, Arc::clone(&state)));
        let [long, short, none] = &versions;
        expiry.apply(TABLE, None, Some(long));
        expiry.apply(TABLE, Some(long), Some(short));
        assert_eq!(expiry.take(50, 9).entries.len(), 1);
        expiry.apply(TABLE, Some(short), Some(none));
        assert_eq!(expiry.len(), 0);
        expiry.apply(TABLE, Some(none), Some(long));
        assert_eq!(
            expiry.take(1_049, 9).entries.len(),
            0,
            "the report at 50 counts"
        );
        assert_eq!(expiry.take(1_050, 9).entries.len(), 1);
        expiry.apply(TABLE, Some(long), None);
        assert_eq!(expiry.len(), 0);
    }

    #[test]
    fn timeouts_near_the_end_of_time_do_not_overflow() {
        let mut expiry = Expiry::default();
        let state = Arc::<EntryState>::default();
        let forever = entry(1, u64::MAX / 1_000, Arc::clone(&state));
        state.hit(1, u64::MAX - 5);
        expiry.apply(TABLE, None, Some(&forever));
        assert!(expiry.take(u64::MAX - 1, 9).entries.is_empty());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Compares idle timeouts with a model that examines every entry at every sweep.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::{entry, exact, id, store};
use proptest::prelude::*;
use sluice_tables::{KeyField, Store};

/// Number of keys. It is small, so that operations hit the same entries.
const KEYS: u32 = 6;

#[derive(Clone, Debug)]
enum Step {
    /// Inserts the entry, or modifies it if it exists. The timeout is in milliseconds, 0 for none.
    Write { key: u32, timeout_ms: u64 },
    /// Deletes the entry, if it exists.
    Delete { key: u32 },
    /// Performs a write (or a deletion, if the timeout is `None`) and rolls it back.
    TakenBack { key: u32, timeout_ms: Option<u64> },
    /// Sends a packet.
    Hit { key: u32 },
    /// Advances the time, and sweeps idle entries.
    Sweep { after_ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let timeout = || prop_oneof![Just(0), 1u64..40, 100u64..10_000];
    prop_oneof![
        2 => (0..KEYS, timeout()).prop_map(|(key, timeout_ms)| Step::Write { key, timeout_ms }),
        1 => (0..KEYS).prop_map(|key| Step::Delete { key }),
        1 => (0..KEYS, proptest::option::of(timeout()))
            .prop_map(|(key, timeout_ms)| Step::TakenBack { key, timeout_ms }),
        3 => (0..KEYS).prop_map(|key| Step::Hit { key }),
        4 => prop_oneof![0u64..5, 90u64..110, 900u64..5_000].prop_map(|after_ms| Step::Sweep { after_ms }),
    ]
}

#[derive(Debug)]
struct Idle {
    timeout_us: u64,
    since_us: u64,
}

/// The model, which examines every entry at each sweep.
#[derive(Default)]
struct Model(BTreeMap<u32, Idle>);

impl Model {
    fn sweep(&mut self, now_us: u64) -> BTreeSet<u32> {
        let mut reported = BTreeSet::new();
        for (key, idle) in &mut self.0 {
            if idle.timeout_us != 0 && idle.since_us + idle.timeout_us <= now_us {
                reported.insert(*key);
                while idle.since_us + idle.timeout_us <= now_us {
                    idle.since_us += idle.timeout_us;
                }
            }
        }
        reported
    }
}

struct Pair {
    store: Store,
    model: Model,
    now_us: u64,
}

impl Pair {
    fn write(&self, key: u32, timeout_ms: Option<u64>, commit: bool) {
        let table = id(&self.store, "timed");
        let mut tx = self.store.transaction();
        let there = self.model.0.contains_key(&key);
        let mut spec = entry(vec![exact(key)], 0, 1);
        spec.idle_timeout_ns = timeout_ms.unwrap_or(0) * 1_000_000;
        match (timeout_ms, there) {
            (Some(_), true) => tx.modify(table, spec).unwrap(),
            (Some(_), false) => tx.insert(table, spec).unwrap(),
            (None, true) => tx.delete(table, &[exact(key)], 0).unwrap(),
            (None, false) => {}
        }
        if commit {
            tx.commit();
        }
    }

    /// Sends a packet with this key at the current time.
    fn hit(&mut self, key: u32) {
        if let Some(idle) = self.model.0.get_mut(&key) {
            let found = self
                .store
                .view()
                .entry(id(&self.store, "timed"), &[exact(key)], 0);
            let found = found.unwrap();
            let state = found.state().expect("the table has timeouts");
            state.hit(60, self.now_us);
            idle.since_us = self.now_us;
        }
    }

    fn sweep(&mut self) {
        let (mut found, mut more) = (BTreeSet::new(), true);
        while more {
            let expired = self.store.expired(self.now_us);
            let declared = self.store.program().table(id(&self.store, "timed"));
            for (_, entry) in expired.entries {
                let spec = entry.spec(self.store.program(), declared);
                let KeyField::Exact(value) = &spec.key[0] else {
                    panic!("{:?}", spec.key)
                };
                let key = value
                    .iter()
                    .fold(0, |key, byte| key << 8 | u32::from(*byte));
                assert!(found.insert(key), "{key} is reported twice");
            }
            more = expired.more;
        }
        assert_eq!(
            found,
            self.model.sweep(self.now_us),
            "at {} us",
            self.now_us
        );
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Write { key, timeout_ms } => {
                self.write(key, Some(timeout_ms), true);
                let timeout_us = timeout_ms * 1_000;
                let inserted = !self.model.0.contains_key(&key);
                let idle = self.model.0.entry(key).or_insert(Idle {
                    timeout_us,
                    since_us: 0,
                });
                idle.timeout_us = timeout_us;
                if inserted {
                    // The store dates the insertion by its own clock, which is behind the test's clock. The hit sets
                    // the time stamp to the test's time.
                    self.hit(key);
                }
            }
            Step::Delete { key } => {
                self.write(key, None, true);
                self.model.0.remove(&key);
            }
            Step::TakenBack { key, timeout_ms } => self.write(key, timeout_ms, false),
            Step::Hit { key } => self.hit(key),
            Step::Sweep { after_ms } => {
                self.now_us += after_ms * 1_000;
                self.sweep();
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 512 }))]

    #[test]
    fn reports_are_those_of_a_model_that_looks_at_every_entry(
        steps in proptest::collection::vec(step(), 1..120)
    ) {
        // The test's clock is far ahead of the store's clock, which determines the time of new entries.
        let now_us = 3_600_000_000;
        let mut pair = Pair { store: store(), model: Model::default(), now_us };
        for step in &steps {
            pair.take(step);
        }
    }
}

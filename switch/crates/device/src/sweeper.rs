// SPDX-License-Identifier: Apache-2.0
//! Finds idle table entries, and reports them to the control plane. Also starts builds of lookup structures that are
//! due.
//!
//! Each device has one sweeping thread, which sleeps while no table of the running program needs sweeping.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use sluice_ports::privilege;
use sluice_program::MatchKind;
use sluice_tables::Store;

use crate::clock::Clock;
use crate::handler::Handler;

/// Interval between sweeps, which is also the maximum delay of a notification.
const INTERVAL: Duration = Duration::from_millis(100);

#[derive(Default)]
struct State {
    /// Store of the running program, if the program has idle timeouts or longest-prefix tables.
    store: Option<Arc<Store>>,
    stop: bool,
}

/// The sweeping thread. Dropping this ends the thread.
pub(crate) struct Sweeper {
    shared: Arc<(Mutex<State>, Condvar)>,
    thread: Option<JoinHandle<()>>,
}

impl Sweeper {
    pub(crate) fn start(handler: Arc<dyn Handler>, clock: Clock) -> io::Result<Self> {
        let shared = Arc::new((Mutex::new(State::default()), Condvar::new()));
        let theirs = shared.clone();
        let thread = thread::Builder::new()
            .name("idle-sweeper".into())
            .spawn(move || {
                privilege::renounce();
                sweep(&theirs, &*handler, clock);
            })?;
        Ok(Self {
            shared,
            thread: Some(thread),
        })
    }

    /// Sweeps this store from now on.
    pub(crate) fn watch(&self, store: Option<&Arc<Store>>) {
        let needed = |store: &&Arc<Store>| {
            let mut tables = store.program().tables.iter();
            tables.any(|table| table.support_timeout || table.kind == MatchKind::Lpm)
        };
        let (state, changed) = &*self.shared;
        state.lock().store = store.filter(needed).cloned();
        changed.notify_all();
    }
}

impl Drop for Sweeper {
    fn drop(&mut self) {
        let (state, changed) = &*self.shared;
        state.lock().stop = true;
        changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was already reported.
            let _ = thread.join();
        }
    }
}

fn sweep((state, changed): &(Mutex<State>, Condvar), handler: &dyn Handler, clock: Clock) {
    let mut state = state.lock();
    while !state.stop {
        let Some(store) = state.store.clone() else {
            changed.wait(&mut state);
            continue;
        };
        parking_lot::MutexGuard::unlocked(&mut state, || {
            store.settle();
            let now_us = clock.now_us();
            loop {
                let expired = store.expired(now_us);
                if !expired.entries.is_empty() {
                    handler.idle(expired.entries);
                }
                if !expired.more {
                    break;
                }
            }
        });
        if !state.stop {
            changed.wait_for(&mut state, INTERVAL);
        }
    }
}

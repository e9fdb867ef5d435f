// SPDX-License-Identifier: Apache-2.0
//! Tracing packets of a running switch: who watches, and what they are told.
//!
//! Watchers come and go while packets flow. Without any, a worker looks at one flag for each packet
//! and runs the interpreter that cannot be watched. With some, packets that a filter admits go
//! through a second interpreter that records every step; all others stay with the first. A watcher
//! that has no room for another packet loses it, and the packet is not even recorded for it: nobody
//! slows the switch by reading slowly.

mod filter;
mod packet;
mod record;
mod recorder;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

pub use filter::Filter;
pub use record::{Kind, PacketTrace, TraceLine, format_line};
pub(crate) use recorder::{KnownPorts, Recorder};

/// Takes traces. Called on worker threads: must not block.
pub trait TraceSink: Send + Sync {
    /// Whether there is room for another packet. If not, it counts as lost.
    fn ready(&self) -> bool;

    /// Takes a packet's trace; false if there was no room after all.
    fn take(&self, trace: &Arc<PacketTrace>) -> bool;
}

/// Somebody who watches.
pub(crate) struct Watcher {
    id: u64,
    filter: Filter,
    /// Packets that are still wanted.
    remaining: AtomicU64,
    sink: Arc<dyn TraceSink>,
}

impl Watcher {
    /// Takes one of the packets that are still wanted.
    fn reserve(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.remaining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }
}

/// Those who watched when a worker last looked.
#[derive(Default)]
pub(crate) struct Watchers {
    changes: u64,
    pub(crate) list: Vec<Arc<Watcher>>,
}

/// All who watch.
#[derive(Default)]
pub(crate) struct Tracing {
    active: AtomicBool,
    /// How often `watchers` has changed.
    changes: AtomicU64,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    last_id: AtomicU64,
    packets: AtomicU64,
}

impl Tracing {
    /// Whether anybody watches: what a worker asks before each packet, so that whoever watches sees what comes in
    /// afterwards.
    #[inline]
    pub(crate) fn active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Brings a list of those who watch up to date.
    pub(crate) fn refresh(&self, known: &mut Watchers) {
        let changes = self.changes.load(Ordering::Relaxed);
        if changes != known.changes {
            let watchers = self.watchers.lock();
            known.changes = self.changes.load(Ordering::Relaxed);
            known.list.clone_from(&watchers);
        }
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Watcher>>)) {
        let mut watchers = self.watchers.lock();
        change(&mut watchers);
        self.changes.fetch_add(1, Ordering::Relaxed);
        self.active.store(!watchers.is_empty(), Ordering::Relaxed);
    }

    /// A number for the next packet traced.
    pub(crate) fn next_packet(&self) -> u64 {
        self.packets.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Gives a trace to those who wanted the packet; who has all that was asked for, leaves.
    pub(crate) fn deliver(&self, wanted: &[Arc<Watcher>], trace: &Arc<PacketTrace>) {
        for watcher in wanted {
            if !watcher.sink.take(trace) {
                watcher.remaining.fetch_add(1, Ordering::Relaxed);
            } else if watcher.remaining.load(Ordering::Relaxed) == 0 {
                self.remove(watcher.id);
            }
        }
    }

    fn remove(&self, id: u64) {
        self.change(|watchers| watchers.retain(|watcher| watcher.id != id));
    }

    /// Watches until the handle is dropped or `count` packets have been taken.
    pub(crate) fn watch(
        self: &Arc<Self>,
        filter: Filter,
        count: Option<u64>,
        sink: Arc<dyn TraceSink>,
    ) -> TraceHandle {
        let id = self.last_id.fetch_add(1, Ordering::Relaxed) + 1;
        let remaining = AtomicU64::new(count.unwrap_or(u64::MAX));
        let watcher = Watcher {
            id,
            filter,
            remaining,
            sink,
        };
        if count != Some(0) {
            self.change(|watchers| watchers.push(Arc::new(watcher)));
        }
        TraceHandle {
            tracing: Arc::clone(self),
            id,
        }
    }
}

/// Those of `watchers` who want this packet and have room for it.
pub(crate) fn who_wants(watchers: &[Arc<Watcher>], port: u32, packet: &[u8]) -> Vec<Arc<Watcher>> {
    let wants = |watcher: &&Arc<Watcher>| {
        watcher.filter.admits(port, packet) && watcher.sink.ready() && watcher.reserve()
    };
    watchers.iter().filter(wants).cloned().collect()
}

/// Watching ends when this is dropped.
pub struct TraceHandle {
    tracing: Arc<Tracing>,
    id: u64,
}

impl Drop for TraceHandle {
    fn drop(&mut self) {
        self.tracing.remove(self.id);
    }
}

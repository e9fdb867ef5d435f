// SPDX-License-Identifier: Apache-2.0
//! Traces packets of a running switch: watchers select packets and receive their traces.
//!
//! Watchers can be added and removed while packets flow. Without watchers, a worker checks one flag for each packet and
//! uses its normal engine. With watchers, packets that a filter admits run in an interpreter, which records every step.
//! All other packets run in the normal engine. If a watcher has no room for a packet, it does not get the packet's
//! trace. So a slow reader never slows the switch.

mod filter;
mod packet;
mod record;
mod recorder;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use parking_lot::Mutex;

pub use filter::Filter;
pub use record::{PacketTrace, StepKind, TraceLine, format_line};
pub(crate) use recorder::{KnownPorts, Recorder};

/// Receives traces. Methods run on worker threads, so they must not block.
pub trait TraceSink: Send + Sync {
    /// Returns whether the sink has room for another packet. If not, the packet counts as lost.
    fn ready(&self) -> bool;

    /// Accepts a packet's trace. Returns false if the sink has no room any more.
    fn take(&self, trace: &Arc<PacketTrace>) -> bool;
}

/// A client that watches packets.
pub(crate) struct Watcher {
    id: u64,
    filter: Filter,
    /// Number of packets that the watcher still wants.
    remaining: AtomicU64,
    sink: Arc<dyn TraceSink>,
}

impl Watcher {
    /// Reserves one of the packets that the watcher still wants. Returns false if the watcher wants no more packets.
    fn reserve(&self) -> bool {
        let take = |left: u64| left.checked_sub(1);
        self.remaining
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, take)
            .is_ok()
    }
}

/// A worker's copy of the list of watchers.
#[derive(Default)]
pub(crate) struct Watchers {
    changes: u64,
    pub(crate) list: Vec<Arc<Watcher>>,
}

/// All watchers of the switch.
#[derive(Default)]
pub(crate) struct Tracing {
    active: AtomicBool,
    /// Number of changes of `watchers` so far.
    changes: AtomicU64,
    watchers: Mutex<Vec<Arc<Watcher>>>,
    last_id: AtomicU64,
    packets: AtomicU64,
}

impl Tracing {
    /// Returns whether there are watchers. A worker checks this before each packet, so that a new watcher gets all
    /// packets that arrive after it was added.
    #[inline]
    pub(crate) fn active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Updates a worker's copy of the list, if the list has changed.
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

    /// Returns the number of the next traced packet.
    pub(crate) fn next_packet(&self) -> u64 {
        self.packets.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Delivers a trace to the watchers that reserved the packet. Removes a watcher that has received all its packets.
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

    /// Adds a watcher. The watcher stays until the handle is dropped or the watcher has accepted `count` packets.
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

/// Returns the watchers that want this packet and have room for it.
pub(crate) fn who_wants(watchers: &[Arc<Watcher>], port: u32, packet: &[u8]) -> Vec<Arc<Watcher>> {
    let wants = |watcher: &&Arc<Watcher>| {
        watcher.filter.admits(port, packet) && watcher.sink.ready() && watcher.reserve()
    };
    watchers.iter().filter(wants).cloned().collect()
}

/// Handle of a watcher. Dropping this removes the watcher.
pub struct TraceHandle {
    tracing: Arc<Tracing>,
    id: u64,
}

impl Drop for TraceHandle {
    fn drop(&mut self) {
        self.tracing.remove(self.id);
    }
}

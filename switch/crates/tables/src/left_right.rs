// SPDX-License-Identifier: Apache-2.0
//! Left-right replication. Readers use one replica while the writer changes the other replica. Then the replicas swap
//! their roles.
//!
//! The protocol: `active` is the index of the replica for readers. A reader stores this index in its own slot, and then
//! loads `active` again. If the two values differ, the reader retries. The writer flips `active`, and
//! then waits until no slot names the old replica. Reader and writer each put a sequentially consistent fence between
//! their store and their load. So either the writer sees the slot and waits, or the reader sees the flip and retries.
//! Invariant: no reader uses a replica that is being written. The tests explore every interleaving of a small case with
//! loom.
//!
//! The writer waits for a reader at most as long as the reader holds one pin, that is, for one batch of packets. A
//! reader waits for the writer only in [`Writer::flip_while_empty`], where the writer changes data that both replicas
//! share. Until that change is complete, `active` names no replica ([`CLOSED`]).

#[cfg(loom)]
use loom::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering, fence},
    thread,
};
#[cfg(not(loom))]
use std::{
    cell::UnsafeCell,
    sync::Arc,
    sync::atomic::{AtomicUsize, Ordering, fence},
    thread,
};

use std::ops::Deref;

/// Value of a reader's slot while the reader has no pin.
const IDLE: usize = usize::MAX;

/// Value of `active` while no replica may be read and readers wait.
const CLOSED: usize = 2;

/// State that readers share with the writer.
struct Shared<T> {
    replicas: [UnsafeCell<T>; 2],
    active: CachePadded<AtomicUsize>,
}

// SAFETY: a replica is accessed mutably only through `Writer::change`, which holds the only writer by `&mut`, and only
// while the protocol above keeps readers out of this replica.
unsafe impl<T: Send + Sync> Sync for Shared<T> {}
// SAFETY: sending the two replicas sends two values of `T`.
unsafe impl<T: Send> Send for Shared<T> {}

/// Aligned to 128 bytes (two cache lines) to avoid false sharing.
#[repr(align(128))]
struct CachePadded<T>(T);

/// A reader's slot. It holds the replica that the reader uses, and is updated for each batch.
type ReaderSlot = Arc<CachePadded<AtomicUsize>>;

/// The writer, which changes the replicas.
pub(crate) struct Writer<T> {
    shared: Arc<Shared<T>>,
    slots: Vec<ReaderSlot>,
}

/// A reader's handle.
pub(crate) struct ReadHandle<T> {
    shared: Arc<Shared<T>>,
    slot: ReaderSlot,
}

/// A replica that is held for reading. The replica does not change until this value is dropped.
pub struct Pinned<'a, T> {
    replica: &'a T,
    slot: &'a AtomicUsize,
}

impl<T> Writer<T> {
    /// Creates a writer for two equal replicas.
    pub(crate) fn new(left: T, right: T) -> Self {
        let replicas = [UnsafeCell::new(left), UnsafeCell::new(right)];
        let active = CachePadded(AtomicUsize::new(0));
        Self {
            shared: Arc::new(Shared { replicas, active }),
            slots: Vec::new(),
        }
    }

    /// Returns the number of readers.
    pub(crate) fn readers(&mut self) -> usize {
        // Drops the slots of readers that no longer exist.
        self.slots.retain(|slot| Arc::strong_count(slot) > 1);
        // Order: a dropped reader's last accesses must happen before the writer acts on the reader's absence.
        fence(Ordering::SeqCst);
        self.slots.len()
    }

    /// Creates a reader.
    pub(crate) fn reader(&mut self) -> ReadHandle<T> {
        self.readers();
        let slot = Arc::new(CachePadded(AtomicUsize::new(IDLE)));
        self.slots.push(Arc::clone(&slot));
        ReadHandle {
            shared: Arc::clone(&self.shared),
            slot,
        }
    }

    /// Calls `change` with the inactive replica, and returns its result.
    pub(crate) fn change<R>(&mut self, change: impl FnOnce(&mut T) -> R) -> R {
        let inactive = 1 - self.shared.active.0.load(Ordering::Relaxed);
        with_mut(&self.shared.replicas[inactive], change)
    }

    /// Returns the inactive replica for reading.
    pub(crate) fn inactive(&self) -> &T {
        let inactive = 1 - self.shared.active.0.load(Ordering::Relaxed);
        shared_ref(&self.shared.replicas[inactive])
    }

    /// Switches readers to the changed replica and waits until the last reader has left the old replica.
    pub(crate) fn flip(&mut self) {
        let old = self.shared.active.0.load(Ordering::Relaxed);
        self.shared.active.0.store(1 - old, Ordering::Release);
        self.wait_until_left(old);
    }

    /// Switches readers as [`flip`](Self::flip) does, but runs `alone` at the moment when no reader holds a replica:
    /// the last reader has left the old replica, and no reader can pin the changed replica yet.
    pub(crate) fn flip_while_empty(&mut self, alone: impl FnOnce()) {
        let old = self.shared.active.0.load(Ordering::Relaxed);
        self.shared.active.0.store(CLOSED, Ordering::Release);
        // Readers must be released even if `alone` panics.
        let _open = OpenOnDrop(&self.shared.active.0, 1 - old);
        self.wait_until_left(old);
        alone();
    }

    fn wait_until_left(&self, old: usize) {
        fence(Ordering::SeqCst);
        for slot in &self.slots {
            let mut spins = 0;
            while slot.0.load(Ordering::Acquire) == old {
                pause(&mut spins);
            }
        }
    }
}

/// Opens a replica to readers when dropped.
struct OpenOnDrop<'a>(&'a AtomicUsize, usize);

impl Drop for OpenOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(self.1, Ordering::Release);
    }
}

/// Waits a moment: spins at first, and later yields the CPU.
fn pause(spins: &mut u32) {
    *spins += 1;
    if *spins > 100 || cfg!(loom) {
        thread::yield_now();
    } else {
        std::hint::spin_loop();
    }
}

#[cfg(not(loom))]
fn with_mut<T, R>(cell: &UnsafeCell<T>, change: impl FnOnce(&mut T) -> R) -> R {
    // SAFETY: by the module's protocol the replica is not active, and `flip` has waited for the readers that had pinned
    // it. The writer is borrowed mutably.
    change(unsafe { &mut *cell.get() })
}

#[cfg(loom)]
fn with_mut<T, R>(cell: &UnsafeCell<T>, change: impl FnOnce(&mut T) -> R) -> R {
    // SAFETY: as for the version without loom. Loom checks the accesses.
    cell.with_mut(|replica| change(unsafe { &mut *replica }))
}

impl<T> ReadHandle<T> {
    /// Pins the current replica. Waits only while [`Writer::flip_while_empty`] runs.
    #[inline]
    pub(crate) fn pin(&mut self) -> Pinned<'_, T> {
        let mut active = self.shared.active.0.load(Ordering::Acquire);
        let mut spins = 0;
        loop {
            while active == CLOSED {
                self.slot.0.store(IDLE, Ordering::Release);
                pause(&mut spins);
                active = self.shared.active.0.load(Ordering::Acquire);
            }
            // Release: if the writer sees this store, the reads under the reader's earlier pins must be complete. The
            // writer may see this store without having seen the store of `IDLE` that ended the earlier pin.
            self.slot.0.store(active, Ordering::Release);
            fence(Ordering::SeqCst);
            let again = self.shared.active.0.load(Ordering::Acquire);
            if again == active {
                break;
            }
            active = again;
        }
        Pinned {
            replica: shared_ref(&self.shared.replicas[active]),
            slot: &self.slot.0,
        }
    }
}

#[cfg(not(loom))]
fn shared_ref<T>(cell: &UnsafeCell<T>) -> &T {
    // SAFETY: if the caller is a reader, its slot names this replica, and the writer changes no replica that a slot
    // names. If the caller is the writer, the reference borrows the writer, and only the writer changes a replica.
    unsafe { &*cell.get() }
}

#[cfg(loom)]
fn shared_ref<T>(cell: &UnsafeCell<T>) -> &T {
    // SAFETY: as for the version without loom. Loom checks the access here, and the reference lives longer than this
    // check.
    cell.with(|replica| unsafe { &*replica })
}

impl<T> Deref for Pinned<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        self.replica
    }
}

impl<T> Drop for Pinned<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.slot.store(IDLE, Ordering::Release);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Number of versions that the writer creates.
    const VERSIONS: usize = if cfg!(miri) { 20 } else { 1_000 };

    #[test]
    fn a_pinned_replica_does_not_change_and_the_next_pin_sees_the_change() {
        let mut writer = Writer::new(1, 1);
        let mut reader = writer.reader();
        let pinned = reader.pin();
        writer.change(|replica| *replica = 2);
        assert_eq!(*pinned, 1);
        drop(pinned);
        writer.flip();
        assert_eq!(*reader.pin(), 2);
    }

    #[test]
    fn shared_data_changes_only_while_no_reader_has_a_pin() {
        let shared = [AtomicUsize::new(0), AtomicUsize::new(0)];
        let mut writer = Writer::new(0, 0);
        let readers: Vec<_> = (0..2).map(|_| writer.reader()).collect();
        std::thread::scope(|scope| {
            for mut reader in readers {
                let shared = &shared;
                scope.spawn(move || {
                    loop {
                        let replica = reader.pin();
                        let version = *replica;
                        assert!(shared.iter().all(|s| s.load(Ordering::Relaxed) == version));
                        if version == VERSIONS {
                            break;
                        }
                    }
                });
            }
            for version in 1..=VERSIONS {
                writer.change(|replica| *replica = version);
                writer.flip_while_empty(|| {
                    shared
                        .iter()
                        .for_each(|s| s.store(version, Ordering::Relaxed));
                });
            }
        });
    }

    #[test]
    fn readers_see_whole_versions_while_a_writer_goes_on() {
        let mut writer = Writer::new((0usize, 0usize), (0, 0));
        let readers: Vec<_> = (0..2).map(|_| writer.reader()).collect();
        std::thread::scope(|scope| {
            for mut reader in readers {
                scope.spawn(move || {
                    loop {
                        let replica = reader.pin();
                        assert_eq!(replica.0, replica.1);
                        if replica.0 == VERSIONS {
                            break;
                        }
                    }
                });
            }
            for version in 1..=VERSIONS {
                writer.change(|replica| *replica = (version, version));
                writer.flip();
            }
        });
    }
}

/// Tests with loom: `RUSTFLAGS="--cfg loom" cargo test -p sluice-tables --release left_right`.
#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;

    #[test]
    fn no_interleaving_lets_a_reader_see_a_replica_that_changes() {
        loom::model(|| {
            let mut writer = Writer::new((0, 0), (0, 0));
            let mut reader = writer.reader();
            let thread = thread::spawn(move || {
                for _ in 0..2 {
                    let replica = reader.pin();
                    assert_eq!(replica.0, replica.1);
                }
            });
            for version in 1..=2 {
                writer.change(|replica| *replica = (version, version));
                writer.flip();
                writer.change(|replica| *replica = (version, version));
            }
            thread.join().unwrap();
        });
    }

    #[test]
    fn no_interleaving_lets_a_reader_see_shared_data_half_changed() {
        loom::model(|| {
            let shared = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
            let mut writer = Writer::new(0, 0);
            let mut reader = writer.reader();
            let theirs = Arc::clone(&shared);
            let thread = thread::spawn(move || {
                let replica = reader.pin();
                let version = *replica;
                assert!(theirs.iter().all(|s| s.load(Ordering::Relaxed) == version));
            });
            writer.change(|replica| *replica = 1);
            writer.flip_while_empty(|| shared.iter().for_each(|s| s.store(1, Ordering::Relaxed)));
            thread.join().unwrap();
        });
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Implements the scheduler of the lanes, which decides which stack runs next, and lets packets yield.

use std::any::Any;
use std::cell::Cell;
use std::ptr::NonNull;

use sluice_engine::{Admission, Arrival, Sink};
use sluice_program::DigestId;
use sluice_tables::{Externs, TableReplica, Wait};

use crate::scheduling::fiber::{SavedStack, leaving};
use crate::scheduling::packet_queue::PacketQueue;
use crate::scheduling::prefetches::Prefetches;

/// Number of lanes. Chosen so that a lane's prefetched lines have arrived when the lane is resumed. More lanes would
/// take more of the first-level cache.
pub(crate) const LANES: usize = 8;

/// Number of lanes per prefetch group. The lines that the lanes of a group recorded are prefetched together, when the
/// last lane of the group has yielded.
const TOGETHER: usize = 4;
const _: () = assert!(TOGETHER.is_power_of_two() && LANES.is_multiple_of(TOGETHER));

/// Tables, externs and sink of a batch.
#[derive(Clone, Copy)]
pub(crate) struct BatchContext {
    pub(crate) tables: *const TableReplica,
    pub(crate) externs: *const Externs,
    pub(crate) sink: *mut (dyn Sink + 'static),
}

/// State that all lanes share.
pub(crate) struct Scheduler {
    /// Lookups yield while memory is fetched in tables with at least this number of entries.
    pub(crate) far: u64,
    pub(crate) packets: PacketQueue,
    pub(crate) prefetches: Prefetches,
    /// The batch that is under way, if there is one. Invariant: its tables, externs and sink outlive the batch.
    pub(crate) batch: Cell<Option<BatchContext>>,
    /// Saved stack pointer of each suspended lane.
    suspended: [Cell<SavedStack>; LANES],
    /// Saved stack pointer of the caller of [`Scheduler::run`].
    caller: Cell<SavedStack>,
    /// One bit for each lane, set if the lane has a packet or must take one.
    active: Cell<u32>,
    /// If set, lanes run until no packets are left. Else they run until the queue has room for more packets.
    finishing: Cell<bool>,
    /// Whether the batch under way has panicked. If so, nothing more is sent.
    failed: Cell<bool>,
    /// Payload of the panic in the batch under way, if there was a panic.
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

impl Scheduler {
    pub(crate) fn new(far: u64) -> Self {
        Self {
            far,
            packets: PacketQueue::new(),
            prefetches: Prefetches::new(),
            batch: Cell::new(None),
            suspended: [const { Cell::new(std::ptr::null_mut()) }; LANES],
            caller: Cell::new(std::ptr::null_mut()),
            active: Cell::new(0),
            finishing: Cell::new(false),
            failed: Cell::new(false),
            panic: Cell::new(None),
        }
    }

    /// Sets the saved stack pointer of a lane.
    pub(crate) fn suspend(&self, index: usize, saved: SavedStack) {
        self.suspended[index].set(saved);
    }

    /// Removes and returns the payload of the batch's panic, if there was a panic.
    #[inline]
    pub(crate) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        match self.failed.get() {
            true => self.panic.take(),
            false => None,
        }
    }

    /// Returns whether the batch under way has panicked.
    #[inline]
    pub(crate) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Records the panic of a packet, or of the caller that feeds the batch. Drops the packets that no lane has taken.
    #[cold]
    pub(crate) fn fail(&self, panic: Box<dyn Any + Send>) {
        self.failed.set(true);
        self.panic.set(Some(panic));
        self.packets.give_up();
    }

    /// Allows packets to be sent again after a panic.
    pub(crate) fn recover(&self) {
        self.failed.set(false);
    }

    /// Returns whether a lane is in the middle of a packet.
    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.active.get() != 0
    }

    /// Runs lanes in turn. If `finishing` is set, runs until no packets are left. Else runs until the queue has room
    /// for more packets and at most [`LANES`] packets wait.
    ///
    /// # Safety
    /// The batch that the packets belong to is under way.
    #[inline]
    pub(crate) unsafe fn run(&self, finishing: bool) {
        // Activates one idle lane for each waiting packet. The lanes that are in the middle of a packet are active
        // already.
        let mut active = self.active.get();
        for _ in 0..self.packets.waiting().min(LANES) {
            active |= (active + 1) & ((1 << LANES) - 1);
        }
        self.active.set(active);
        self.finishing.set(finishing);
        if active != 0 {
            // SAFETY: each lane has a saved stack pointer, and no other code runs the lanes.
            unsafe { enter(self) };
        }
    }

    /// Returns the stack to resume when the lane at `index` yields. If this lane is the last of its prefetch group
    /// ([`TOGETHER`]), first issues the group's prefetches. So they are under way before a lane of the group resumes.
    #[inline]
    fn next_lane(&self, index: usize) -> SavedStack {
        let active = self.active.get();
        let next_lane = active & (!1 << index);
        if next_lane == 0 {
            self.prefetches.fetch();
            return self.next_round();
        }
        let next = next_lane.trailing_zeros() as usize;
        if (index ^ next) >= TOGETHER {
            self.prefetches.fetch();
        }
        self.suspended[next].get()
    }

    /// Returns the stack to resume after the last active lane has yielded: the first active lane, or the caller of
    /// [`Scheduler::run`].
    #[inline]
    fn next_round(&self) -> SavedStack {
        let active = self.active.get();
        let enough =
            || !self.finishing.get() && self.packets.waiting() <= LANES && self.packets.has_room();
        if active == 0 || enough() {
            return self.caller.get();
        }
        self.suspended[active.trailing_zeros() as usize].get()
    }
}

leaving! {
    /// Yields: leaves a lane's stack. Returns when the scheduler resumes the lane.
    ///
    /// # Safety
    /// The caller runs on the stack of this lane, and the lane's batch is under way.
    leave(YieldPoint), next = next
}

leaving! {
    /// Leaves the caller's stack to run lanes. Returns when the lanes resume the caller.
    ///
    /// # Safety
    /// At least one lane is active, and all active lanes have a valid saved stack pointer.
    enter(Scheduler), next = first
}

/// Saves the stack pointer of a lane that yields, and returns the stack to resume.
extern "C" fn next(yield_point: *const YieldPoint, saved: SavedStack) -> SavedStack {
    // SAFETY: a lane passes its own yield point, which is alive.
    let yield_point = unsafe { &*yield_point };
    let scheduler = yield_point.scheduler();
    scheduler.suspended[yield_point.index].set(saved);
    scheduler.next_lane(yield_point.index)
}

/// Saves the stack pointer of the caller of [`Scheduler::run`], and returns the stack of the first active lane. At
/// least one lane must be active.
extern "C" fn first(scheduler: *const Scheduler, saved: SavedStack) -> SavedStack {
    // SAFETY: `Scheduler::run` passes itself.
    let scheduler = unsafe { &*scheduler };
    scheduler.caller.set(saved);
    scheduler.suspended[scheduler.active.get().trailing_zeros() as usize].get()
}

/// The state of a lane by which its packet yields.
pub(crate) struct YieldPoint {
    /// Number of the packet in the lane.
    pub(crate) number: Cell<usize>,
    scheduler: *const Scheduler,
    /// Index of the lane.
    index: usize,
}

impl YieldPoint {
    /// Creates the state of the lane with this index. `scheduler` must outlive the state.
    pub(crate) fn new(scheduler: NonNull<Scheduler>, index: usize) -> Self {
        Self {
            number: Cell::new(0),
            scheduler: scheduler.as_ptr(),
            index,
        }
    }

    #[inline(always)]
    pub(crate) fn scheduler(&self) -> &Scheduler {
        // SAFETY: the scheduler outlives the lanes.
        unsafe { &*self.scheduler }
    }

    /// Marks the lane as idle: it has no packet.
    pub(crate) fn become_idle(&self) {
        let active = &self.scheduler().active;
        active.set(active.get() & !(1 << self.index));
    }
}

/// Handle that a packet uses to yield: a reference to the [`YieldPoint`] of the packet's lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Yielder(NonNull<YieldPoint>);

// SAFETY: only packets in the handle's lane use it, and no lane has a packet while the handle is sent to another
// thread.
unsafe impl Send for Yielder {}
// SAFETY: likewise.
unsafe impl Sync for Yielder {}

impl Yielder {
    /// Creates the handle for the packets of a lane. The lane must outlive the handle.
    pub(crate) fn new(yield_point: NonNull<YieldPoint>) -> Self {
        Self(yield_point)
    }

    #[inline(always)]
    fn yield_point(&self) -> &YieldPoint {
        // SAFETY: the lane's engine holds this handle, and the engine is dropped before the yield point.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn scheduler(&self) -> &Scheduler {
        self.yield_point().scheduler()
    }

    /// Returns the minimum number of entries of a table whose lookups yield while memory is fetched.
    #[inline]
    pub(crate) fn far(&self) -> u64 {
        self.scheduler().far
    }

    /// Yields until the handle's packet is the oldest one under way.
    #[inline]
    pub(crate) fn turn(&self) {
        if !self
            .scheduler()
            .packets
            .is_oldest(self.yield_point().number.get())
        {
            self.wait_for_turn();
        }
    }

    #[cold]
    fn wait_for_turn(&self) {
        while !self
            .scheduler()
            .packets
            .is_oldest(self.yield_point().number.get())
        {
            self.yield_now();
        }
    }
}

impl Wait for Yielder {
    #[inline(always)]
    fn prefetch(&self, line: *const u8) {
        self.scheduler().prefetches.note(line);
    }

    #[inline]
    fn yield_now(&self) {
        // SAFETY: the caller is a packet in this lane.
        unsafe { leave(self.0.as_ptr()) };
    }
}

/// Sink of a packet in a lane. Waits until the packet is the oldest one under way, then passes the output to the sink
/// of the batch.
pub(crate) struct OrderedSink {
    sink: *mut (dyn Sink + 'static),
    yielder: Yielder,
}

impl OrderedSink {
    pub(crate) fn new(sink: *mut (dyn Sink + 'static), yielder: Yielder) -> Self {
        Self { sink, yielder }
    }

    /// Waits until the packet is the oldest one under way. Returns the sink of the batch, or `None` if the batch has
    /// panicked.
    #[inline]
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        self.yielder.turn();
        // SAFETY: the sink outlives the batch. Only the oldest packet uses the sink, and does not yield meanwhile.
        (!self.yielder.scheduler().failed.get())
            .then(|| unsafe { &mut *self.sink as &mut dyn Sink })
    }
}

impl Sink for OrderedSink {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        if let Some(sink) = self.sink() {
            sink.transmit(port, data);
        }
    }

    #[inline]
    fn transmit_parts(&mut self, port: u32, headers: &mut Vec<u8>, payload: &[u8]) {
        if let Some(sink) = self.sink() {
            sink.transmit_parts(port, headers, payload);
        }
    }

    fn queue(&mut self, arrival: &mut Arrival<'_>) -> Admission {
        // After a panic nothing is sent, so any result will do.
        self.sink()
            .map_or(Admission::Pass, |sink| sink.queue(arrival))
    }

    fn digest(&mut self, digest: DigestId, fields: &[u8]) {
        if let Some(sink) = self.sink() {
            sink.digest(digest, fields);
        }
    }

    fn log(&mut self, message: &str) {
        if let Some(sink) = self.sink() {
            sink.log(message);
        }
    }
}

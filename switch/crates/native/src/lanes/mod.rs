// SPDX-License-Identifier: Apache-2.0
//! Runs several packets at a time. While one packet waits for memory, another packet proceeds.
//!
//! A lookup among millions of entries misses the caches two or three times. The misses take longer than all other work
//! on the packet. So packets of a batch are queued (`packet_queue`) and run in *lanes* ([`lane`]). A lane is a
//! coroutine with its own engine and stack, and processes one packet after the other. The scheduler decides which lane
//! runs next.
//!
//! A lookup in a table larger than the caches first records the cache lines that it will read. Then it yields, and the
//! lane that has waited longest runs. The lines that several lanes recorded are prefetched together (`prefetches`). The
//! first bytes of a packet are prefetched some packets ahead. The payload stays in the receive buffer until the packet
//! is sent.
//!
//! Promise: the results are the same as if packets were processed one after the other. All packets of a batch see the
//! same tables. Before a packet is sent, or uses a register or a meter, it waits until it is the oldest packet under
//! way. Counters may be incremented in any order. Programs that draw random numbers do not run in lanes.
//!
//! If a packet causes a panic, for example in a [`Sink`], the packets in lanes run to their ends, but nothing more is
//! sent. The lanes take no further packets. Then the panic resumes in the caller that runs the batch. If the caller
//! itself panics, the lanes do the same. The next batch is not affected.

mod lane;

use std::io;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::Arc;

use sluice_engine::{Config, Counters, PacketIn, Sink};
use sluice_program::{HashAlgorithm, Op, Program};
use sluice_tables::{Externs, TableReplica};

use crate::codegen::compile::Code;
use crate::engine::Native;
use crate::lanes::lane::Lane;
use crate::scheduling::packet_queue;
use crate::scheduling::scheduler::{BatchContext, LANES, Scheduler};

/// A set of lanes, which processes batches of packets.
pub struct Lanes {
    /// The lanes. Invariant: their number is `LANES`.
    lanes: Vec<Lane>,
    /// The scheduler of the lanes. The pointer comes from a box, and the lanes refer to it too.
    scheduler: NonNull<Scheduler>,
    /// Copies of packets whose bytes do not stay valid until the end of the batch.
    copies: Vec<Vec<u8>>,
    /// Sum of the counters of engines that were replaced after a panic.
    ended: Counters,
    code: Arc<Code>,
    config: Config,
}

// SAFETY: the lanes own everything on their stacks. Between batches no lane has a packet, and the engines of the lanes
// may be sent to another thread.
unsafe impl Send for Lanes {}

impl Lanes {
    /// Default for `far`. From about this number of entries on, a table exceeds the private caches of a core.
    pub const FAR: u64 = 10_000;

    /// Creates lanes in which packets yield during lookups of tables with at least `far` entries. Returns `None` for a
    /// program that draws random numbers.
    ///
    /// # Errors
    /// Fails if there is no memory for the stacks.
    pub fn new(code: &Arc<Code>, config: &Config, far: u64) -> io::Result<Option<Self>> {
        if draws(code.program()) {
            return Ok(None);
        }
        let mut lanes = Self {
            lanes: Vec::with_capacity(LANES),
            scheduler: NonNull::from(Box::leak(Box::new(Scheduler::new(far)))),
            copies: vec![Vec::new(); packet_queue::CAPACITY],
            ended: Counters::default(),
            code: Arc::clone(code),
            config: config.clone(),
        };
        for index in 0..LANES {
            let engine = Native::new(Arc::clone(code), config.clone());
            lanes.lanes.push(Lane::new(engine, lanes.scheduler, index)?);
        }
        Ok(Some(lanes))
    }

    #[inline(always)]
    fn scheduler(&self) -> &Scheduler {
        // SAFETY: the scheduler came from a box and lives as long as the lanes.
        unsafe { self.scheduler.as_ref() }
    }

    /// Returns whether lanes are useful with these tables: whether some table is so large that its lookups would yield.
    pub fn are_worthwhile(&self, tables: &TableReplica) -> bool {
        tables.most_entries() >= self.scheduler().far
    }

    /// Feeds packets to the lanes by calling `receive`, and processes all of them to their ends, as one batch. The
    /// bytes of the packets stay valid for `'p`.
    ///
    /// # Panics
    /// Panics if a packet causes a panic; see the module.
    pub fn batch<'p, R>(
        &mut self,
        tables: &TableReplica,
        externs: &Externs,
        sink: &mut dyn Sink,
        receive: impl FnOnce(&mut Batch<'_, 'p>) -> R,
    ) -> R {
        // SAFETY: only the lifetime changes. The batch below borrows the sink, and clears `batch` before this borrow
        // ends.
        let sink =
            unsafe { std::mem::transmute::<*mut (dyn Sink + '_), *mut (dyn Sink + 'static)>(sink) };
        let batch = BatchContext {
            tables,
            externs,
            sink,
        };
        self.scheduler().batch.set(Some(batch));
        let mut batch = Batch {
            lanes: Ending(self),
            batch: PhantomData,
        };
        let received = receive(&mut batch);
        batch.lanes.0.finish();
        received
    }

    /// Returns the sum of the engines' counters.
    pub fn counters(&mut self) -> Counters {
        let mut sum = self.ended;
        for lane in &mut self.lanes {
            sum.add(lane.manager().counters());
        }
        sum
    }

    /// Runs packets until the queue has room for more and at most [`LANES`] packets wait in it. Packets that are then
    /// in the middle of their processing stay suspended in their lanes.
    ///
    /// # Panics
    /// Panics if a packet causes a panic.
    fn make_room(&mut self) {
        // SAFETY: packets are taken only while a batch is under way.
        unsafe { self.scheduler().run(false) };
        if self.scheduler().has_failed() {
            self.finish();
        }
    }

    /// Runs all packets to their ends.
    ///
    /// # Panics
    /// Panics if a packet causes a panic.
    fn finish(&mut self) {
        // SAFETY: the batch that ends is still under way.
        unsafe { self.scheduler().run(true) };
        self.scheduler().packets.clear();
        if let Some(panic) = self.scheduler().take_panic() {
            self.replace_if_broken();
            resume_unwind(panic);
        }
    }

    /// Drops the packets that no lane has taken. Runs the packets in lanes to their ends, without sending anything.
    #[cold]
    fn abandon(&mut self) {
        self.scheduler().fail(Box::new("the batch was given up"));
        // SAFETY: the batch that ends is still under way.
        unsafe { self.scheduler().run(true) };
        self.scheduler().packets.clear();
        // The caller that feeds the batch is already panicking, so the payload of this second panic is dropped.
        drop(self.scheduler().take_panic());
        self.replace_if_broken();
    }

    /// Replaces engines that a panic left in an inconsistent state.
    #[cold]
    fn replace_if_broken(&mut self) {
        for lane in &mut self.lanes {
            let engine = || Native::new(Arc::clone(&self.code), self.config.clone());
            if let Some(counted) = lane.replace_if_broken(engine) {
                self.ended.add(&counted);
            }
        }
        self.scheduler().recover();
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.lanes.clear();
        // SAFETY: the scheduler came from a box, and the lanes that referred to it are dropped.
        drop(unsafe { Box::from_raw(self.scheduler.as_ptr()) });
    }
}

/// Returns whether a program draws random numbers. Such a program cannot run in lanes: each lane has its own random
/// generator, so the results would differ from those without lanes.
fn draws(program: &Program) -> bool {
    let mut ops = program.actions.iter().flat_map(|action| &action.ops);
    let selectors = program
        .profiles
        .iter()
        .filter_map(|profile| profile.selector.as_ref());
    let calculations = program
        .calculations
        .iter()
        .map(|calculation| calculation.algorithm);
    let mut algorithms = selectors
        .map(|selector| selector.algorithm)
        .chain(calculations);
    ops.any(|op| matches!(op, Op::Random(..)))
        || algorithms.any(|algorithm| algorithm == HashAlgorithm::Random)
}

/// A batch of packets that are processed together. The bytes of the packets stay valid for `'p`.
pub struct Batch<'a, 'p> {
    lanes: Ending<'a>,
    /// Stands for the borrows of the tables, the sink and the packets. The lanes refer to these by pointers while the
    /// batch exists.
    batch: PhantomData<(&'a TableReplica, &'a Externs, &'a mut dyn Sink, &'p [u8])>,
}

impl<'p> Batch<'_, 'p> {
    /// Queues a packet whose bytes stay valid until the batch ends.
    #[inline]
    pub fn process(&mut self, packet: PacketIn<'p>) {
        self.make_room();
        self.lanes.0.scheduler().packets.push(packet);
    }

    /// Queues a copy of a packet whose bytes do not stay valid.
    pub fn process_copy(&mut self, packet: PacketIn<'_>) {
        self.make_room();
        let lanes = &mut *self.lanes.0;
        let saved = lanes.scheduler().packets.saved();
        let copy = &mut lanes.copies[saved];
        copy.clear();
        copy.extend_from_slice(packet.data);
        let data: *const [u8] = copy.as_slice();
        // SAFETY: the copy is not changed until the packet is done.
        let data = unsafe { &*data };
        lanes.scheduler().packets.push(PacketIn { data, ..packet });
    }

    #[inline]
    fn make_room(&mut self) {
        let lanes = &mut *self.lanes.0;
        if !lanes.scheduler().packets.has_room() {
            lanes.make_room();
        }
    }
}

/// Guard that holds the lanes during a batch. Dropping the guard ends the batch.
struct Ending<'a>(&'a mut Lanes);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let lanes = &mut *self.0;
        if lanes.scheduler().is_busy() || lanes.scheduler().packets.waiting() != 0 {
            // The caller that feeds the batch has panicked.
            lanes.abandon();
        }
        lanes.scheduler().batch.set(None);
    }
}

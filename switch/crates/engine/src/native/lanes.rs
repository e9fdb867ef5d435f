// SPDX-License-Identifier: Apache-2.0
//! Several packets at a time: while one waits for memory, another goes on.
//!
//! A look-up among millions of entries waits for memory two or three times, for longer than the rest of the packet
//! takes. So packets of a batch are gathered ([`jobs`](super::jobs)) and run in *lanes*, an engine and a stack each
//! ([`lane`](super::lane)), which take one after the other. A look-up in a table that is larger than the caches asks for
//! the memory that it will need and lets the lane that has waited longest go on; what several lanes have asked for is
//! fetched together ([`asked`](super::asked)). A packet's own first bytes are asked for some packets ahead; the rest is
//! left where it came in until the packet leaves.
//!
//! What comes of the packets is what comes of one after the other. All of them see the same tables, and what they do to
//! each other has an order: a packet that is about to send, to use a register or a meter, waits until it is the oldest
//! under way. Counters add up in any order. Programs that draw random numbers do not run here.
//!
//! If a packet leads to a panic (a [`Sink`]'s), the packets under way run to their ends but nothing is sent any more, no
//! others are taken, and the panic goes on to who gave the batch. Likewise if who gives the batch panics. The next batch
//! is processed as if nothing had been.

use std::io;
use std::marker::PhantomData;
use std::panic::resume_unwind;
use std::ptr::NonNull;
use std::sync::Arc;

use sluice_program::{HashAlgorithm, Op, Program};
use sluice_tables::{Externs, Side};

use super::jobs;
use super::lane::{Common, LANES, Lane, World};
use super::{Code, Native};
use crate::config::Config;
use crate::counters::Counters;
use crate::packet::{PacketIn, Sink};

/// See the module.
pub struct Lanes {
    /// `LANES` of them.
    lanes: Vec<Lane>,
    /// Made of a box.
    common: NonNull<Common>,
    /// The bytes of packets that would not stay.
    copies: Vec<Vec<u8>>,
    /// What engines that a panic has ended had counted.
    ended: Counters,
    code: Arc<Code>,
    config: Config,
}

// SAFETY: whoever has the lanes has all of what is on their stacks: between batches that is an engine each, which may be
// sent, and no packet.
unsafe impl Send for Lanes {}

impl Lanes {
    /// So many entries of a table, with what belongs to them, are more than a core's own caches hold.
    pub const FAR: u64 = 10_000;

    /// Lanes for packets that pause in look-ups of tables with at least `far` entries; none for a program that draws
    /// random numbers.
    ///
    /// # Errors
    /// There is no memory for their stacks.
    pub fn new(code: &Arc<Code>, config: &Config, far: u64) -> io::Result<Option<Self>> {
        if draws(code.program()) {
            return Ok(None);
        }
        let mut lanes = Self {
            lanes: Vec::with_capacity(LANES),
            common: NonNull::from(Box::leak(Box::new(Common::new(far)))),
            copies: vec![Vec::new(); jobs::ROOM],
            ended: Counters::default(),
            code: Arc::clone(code),
            config: config.clone(),
        };
        for index in 0..LANES {
            let engine = Native::new(Arc::clone(code), config.clone());
            lanes.lanes.push(Lane::new(engine, lanes.common, index)?);
        }
        Ok(Some(lanes))
    }

    #[inline(always)]
    fn common(&self) -> &Common {
        // SAFETY: it was made of a box and is there as long as the lanes.
        unsafe { self.common.as_ref() }
    }

    /// Whether packets would pause in look-ups of these tables.
    pub fn are_worthwhile(&self, side: &Side) -> bool {
        side.most_entries() >= self.common().far
    }

    /// Takes a batch of packets, whose bytes stay where they are for `'p`, from `receive` and processes them to their
    /// ends.
    ///
    /// # Panics
    /// If a packet leads to a panic: see the module.
    pub fn batch<'p, R>(
        &mut self,
        side: &Side,
        externs: &Externs,
        sink: &mut dyn Sink,
        receive: impl FnOnce(&mut Batch<'_, 'p>) -> R,
    ) -> R {
        // SAFETY: only the lifetime changes. The batch below borrows the sink, and forgets it when it ends.
        let sink =
            unsafe { std::mem::transmute::<*mut (dyn Sink + '_), *mut (dyn Sink + 'static)>(sink) };
        let world = World {
            side,
            externs,
            sink,
        };
        self.common().world.set(Some(world));
        let mut batch = Batch {
            lanes: Ending(self),
            world: PhantomData,
        };
        let received = receive(&mut batch);
        batch.lanes.0.finish();
        received
    }

    /// What the engines have counted together.
    pub fn counters(&mut self) -> Counters {
        let mut sum = self.ended;
        for lane in &mut self.lanes {
            sum.add(lane.switch().counters());
        }
        sum
    }

    /// Runs packets until there is room for others and not many wait. Those under way stay where they are.
    ///
    /// # Panics
    /// If one of them leads to a panic.
    fn make_room(&mut self) {
        // SAFETY: who takes packets has a batch under way.
        unsafe { self.common().run(false) };
        if self.common().has_failed() {
            self.finish();
        }
    }

    /// Runs all packets to their ends.
    ///
    /// # Panics
    /// If one of them leads to a panic.
    fn finish(&mut self) {
        // SAFETY: the batch that ends is still under way.
        unsafe { self.common().run(true) };
        self.common().jobs.clear();
        if let Some(panic) = self.common().take_panic() {
            self.mend();
            resume_unwind(panic);
        }
    }

    /// Gives up packets that no lane has taken, and runs the others to their ends, but nothing is sent any more.
    #[cold]
    fn abandon(&mut self) {
        self.common().fail(Box::new("the batch was given up"));
        // SAFETY: the batch that ends is still under way.
        unsafe { self.common().run(true) };
        self.common().jobs.clear();
        // That of who gave the batch goes on.
        drop(self.common().take_panic());
        self.mend();
    }

    /// Puts new engines in the place of those that a panic has left in no good state.
    #[cold]
    fn mend(&mut self) {
        for lane in &mut self.lanes {
            let engine = || Native::new(Arc::clone(&self.code), self.config.clone());
            if let Some(counted) = lane.mend(engine) {
                self.ended.add(&counted);
            }
        }
        self.common().recover();
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.lanes.clear();
        // SAFETY: it was made of a box, and the lanes that knew of it are gone.
        drop(unsafe { Box::from_raw(self.common.as_ptr()) });
    }
}

/// Whether packets take numbers from a sequence, which would be another one in each lane.
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

/// A batch of packets that are processed together, with bytes that stay for `'p`.
pub struct Batch<'a, 'p> {
    lanes: Ending<'a>,
    /// Tables and sink, which the lanes know of for as long, and packets.
    world: PhantomData<(&'a Side, &'a Externs, &'a mut dyn Sink, &'p [u8])>,
}

impl<'p> Batch<'_, 'p> {
    /// Takes a packet whose bytes stay where they are.
    #[inline]
    pub fn process(&mut self, packet: PacketIn<'p>) {
        self.make_room();
        self.lanes.0.common().jobs.push(packet);
    }

    /// Takes a packet whose bytes do not stay: they are copied.
    pub fn process_copy(&mut self, packet: PacketIn<'_>) {
        self.make_room();
        let lanes = &mut *self.lanes.0;
        let place = lanes.common().jobs.place();
        let copy = &mut lanes.copies[place];
        copy.clear();
        copy.extend_from_slice(packet.data);
        let data: *const [u8] = copy.as_slice();
        // SAFETY: the copy is left alone until the packet is done.
        let data = unsafe { &*data };
        lanes.common().jobs.push(PacketIn { data, ..packet });
    }

    #[inline]
    fn make_room(&mut self) {
        let lanes = &mut *self.lanes.0;
        if !lanes.common().jobs.has_room() {
            lanes.make_room();
        }
    }
}

/// Lanes that know of a batch until it ends.
struct Ending<'a>(&'a mut Lanes);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let lanes = &mut *self.0;
        if lanes.common().is_busy() || lanes.common().jobs.waiting() != 0 {
            // What gave the batch has panicked.
            lanes.abandon();
        }
        lanes.common().world.set(None);
    }
}

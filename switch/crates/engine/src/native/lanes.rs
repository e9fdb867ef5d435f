// SPDX-License-Identifier: Apache-2.0
//! Several packets at a time: while one waits for memory, another goes on.
//!
//! A look-up among millions of entries waits for memory two or three times, for longer than the rest of the packet
//! takes. So packets of a batch run in *lanes*, an engine and a stack each ([`lane`](super::lane)). A look-up in a
//! table that is larger than the caches asks for the memory that it will need and lets the lane that has waited longest
//! go on; what several lanes have asked for is fetched together ([`asked`](super::asked)). A packet's own first bytes
//! are asked for one packet ahead; the rest is left where it came in until the packet leaves.
//!
//! What comes of the packets is what comes of one after the other. All of them see the same tables, and what they do to
//! each other has an order: a packet that is about to send, to use a register or a meter, waits until it is the oldest
//! under way. Counters add up in any order. Programs that draw random numbers do not run here.
//!
//! If a packet leads to a panic (a [`Sink`]'s), the packets under way run to their ends but nothing is sent any more,
//! and the panic goes on to who gave the batch. The next batch is processed as if nothing had been.

use std::cell::Cell;
use std::io;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use sluice_program::{HashAlgorithm, Op, Program};
use sluice_tables::{Externs, Side};

use super::asked::{self, Asked};
use super::lane::{Common, Job, Lane, Stop, World};
use super::{Code, Native};
use crate::config::Config;
use crate::counters::Counters;
use crate::packet::{PacketIn, Sink};

/// Packets under way at most, a power of two: enough that memory has come when a lane's turn comes round; each takes
/// some of the first-level cache.
const LANES: usize = 8;

/// When so many lanes have stopped, what they have asked for is fetched.
const TOGETHER: usize = 4;

/// Cache lines at a packet's beginning that are asked for ahead: where headers lie.
const LINES: usize = 2;

/// How far ahead of the oldest packet another may be.
const AHEAD: u64 = 63;

/// See the module.
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Lanes without a packet: the first `idle` of these.
    free: [u8; LANES],
    idle: usize,
    /// The others, the one that has waited longest first: a ring.
    queue: [u8; LANES],
    first: usize,
    waiting: usize,
    /// So many of those that wait, the last ones, have asked for what is not fetched yet.
    asking: usize,
    /// The number of the next packet.
    next: u64,
    /// A bit for each packet from the oldest on: whether it is done.
    done: u64,
    /// Made of a box.
    common: NonNull<Common>,
    /// What lanes that have ended had counted.
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
        let common = Box::new(Common {
            world: Cell::new(None),
            oldest: Cell::new(0),
            far,
            asked: Asked::new(),
            failed: Cell::new(false),
        });
        let mut lanes = Self {
            lanes: Vec::with_capacity(LANES),
            free: std::array::from_fn(|lane| lane as u8),
            idle: LANES,
            queue: [0; LANES],
            first: 0,
            waiting: 0,
            asking: 0,
            next: 0,
            done: 0,
            common: NonNull::from(Box::leak(common)),
            ended: Counters::default(),
            code: Arc::clone(code),
            config: config.clone(),
        };
        for lane in 0..LANES {
            let lane = lanes.lane(lane)?;
            lanes.lanes.push(lane);
        }
        Ok(Some(lanes))
    }

    /// A new lane of this index.
    fn lane(&self, index: usize) -> io::Result<Lane> {
        let engine = Native::new(Arc::clone(&self.code), self.config.clone());
        Lane::new(engine, self.common, index)
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
        if self.common().failed.replace(false) {
            self.replace_ended();
        }
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
            next: None,
            world: PhantomData,
        };
        receive(&mut batch)
    }

    /// What the engines have counted together.
    pub fn counters(&mut self) -> Counters {
        let mut sum = self.ended;
        for lane in &mut self.lanes {
            sum.add(lane.switch().counters());
        }
        sum
    }

    /// Puts new lanes in the place of those that a panic has ended.
    #[cold]
    fn replace_ended(&mut self) {
        for index in 0..self.lanes.len() {
            if !self.lanes[index].has_ended() {
                continue;
            }
            // Without memory for a stack there is a lane less.
            if let Ok(lane) = self.lane(index) {
                let mut old = std::mem::replace(&mut self.lanes[index], lane);
                self.ended.add(old.switch().counters());
                self.set_free(index);
            }
        }
    }

    #[inline]
    fn set_free(&mut self, lane: usize) {
        self.free[self.idle % LANES] = lane as u8;
        self.idle += 1;
    }

    /// Runs a lane until it stops.
    #[inline]
    fn run(&mut self, lane: usize) {
        let running = Running { lanes: self, lane };
        let stop = running.lanes.lanes[lane].run();
        let lanes = running.stopped();
        match stop {
            Stop::Waiting => {
                lanes.queue[(lanes.first + lanes.waiting) % LANES] = lane as u8;
                lanes.waiting += 1;
                lanes.asking += 1;
                if lanes.asking == TOGETHER {
                    lanes.fetch();
                }
            }
            Stop::Done => {
                lanes.set_free(lane);
                lanes.over(lane);
            }
        }
    }

    /// The packet in a lane is done.
    #[inline]
    fn over(&mut self, lane: usize) {
        let number = self.lanes[lane].number();
        let oldest = self.common().oldest.get();
        let done = self.done | 1 << (number - oldest);
        let over = done.trailing_ones();
        self.done = done.checked_shr(over).unwrap_or(0);
        self.common().oldest.set(oldest + u64::from(over));
    }

    /// Fetches what lanes have asked for.
    #[inline]
    fn fetch(&mut self) {
        self.common().asked.fetch();
        self.asking = 0;
    }

    /// Has the lane go on that has waited longest; false if none waits.
    #[inline]
    fn go_on(&mut self) -> bool {
        if self.waiting == 0 {
            return false;
        }
        if self.asking == self.waiting {
            // What it waits for is not on its way yet.
            self.fetch();
        }
        let lane = usize::from(self.queue[self.first]);
        self.first = (self.first + 1) % LANES;
        self.waiting -= 1;
        self.run(lane);
        true
    }
}

impl Drop for Lanes {
    fn drop(&mut self) {
        self.lanes.clear();
        // SAFETY: it was made of a box, and the lanes that knew of it are gone.
        drop(unsafe { Box::from_raw(self.common.as_ptr()) });
    }
}

/// A lane that runs. If it does not stop but panics, its packet is over and the lane has ended.
struct Running<'a> {
    lanes: &'a mut Lanes,
    lane: usize,
}

impl<'a> Running<'a> {
    /// The lane has stopped as it should.
    #[inline(always)]
    fn stopped(self) -> &'a mut Lanes {
        let lanes: *mut Lanes = self.lanes;
        std::mem::forget(self);
        // SAFETY: the borrow is handed on by who had it and is no more.
        unsafe { &mut *lanes }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.lanes.common().failed.set(true);
        self.lanes.over(self.lane);
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
    /// Taken, and asked for, but not begun yet.
    next: Option<PacketIn<'p>>,
    /// Tables and sink, which the lanes know of for as long.
    world: PhantomData<(&'a Side, &'a Externs, &'a mut dyn Sink)>,
}

impl<'p> Batch<'_, 'p> {
    /// Takes a packet whose bytes stay where they are.
    #[inline]
    pub fn process(&mut self, packet: PacketIn<'p>) {
        // Its headers come while the one before it is begun.
        prefetch(packet.data);
        if let Some(before) = self.next.replace(packet) {
            self.begin_kept(before);
        }
    }

    fn begin_kept(&mut self, packet: PacketIn<'p>) {
        let lane = self.free_lane();
        self.begin(lane, packet.data, packet.port, packet.now_us);
    }

    /// Takes a packet whose bytes do not stay: they are copied.
    pub fn process_copy(&mut self, packet: PacketIn<'_>) {
        if let Some(before) = self.next.take() {
            self.begin_kept(before);
        }
        let lane = self.free_lane();
        let data = self.lanes.0.lanes[lane].keep(packet.data);
        self.begin(lane, data, packet.port, packet.now_us);
    }

    /// Waits for a lane, and takes it.
    #[inline]
    fn free_lane(&mut self) -> usize {
        let lanes = &mut *self.lanes.0;
        while lanes.idle == 0 || lanes.next - lanes.common().oldest.get() >= AHEAD {
            assert!(lanes.go_on(), "there is no lane");
        }
        lanes.idle -= 1;
        usize::from(lanes.free[lanes.idle % LANES])
    }

    /// Has a packet enter a lane. The bytes stay until it has left it.
    #[inline]
    fn begin(&mut self, lane: usize, data: *const [u8], port: u32, now_us: u64) {
        let lanes = &mut *self.lanes.0;
        let number = lanes.next;
        lanes.next += 1;
        lanes.lanes[lane].take(Job {
            data,
            port,
            now_us,
            number,
        });
        lanes.run(lane);
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        if let Some(last) = self.next.take()
            && !std::thread::panicking()
        {
            self.begin_kept(last);
        }
    }
}

/// Lanes whose packets are run to their ends before anything else is done with them.
struct Ending<'a>(&'a mut Lanes);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        let rest = Rest(self.0);
        while rest.0.go_on() {}
    }
}

/// What is left of a batch when a packet leads to a panic: nothing is sent, so no other does.
struct Rest<'a>(&'a mut Lanes);

impl Drop for Rest<'_> {
    fn drop(&mut self) {
        while self.0.go_on() {}
        self.0.common().world.set(None);
    }
}

/// Asks for a packet's first bytes.
#[inline]
fn prefetch(packet: &[u8]) {
    for line in packet.chunks(64).take(LINES) {
        asked::fetch(line.as_ptr());
    }
}

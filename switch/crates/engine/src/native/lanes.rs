// SPDX-License-Identifier: Apache-2.0
//! Several packets at a time: while one waits for memory, another goes on.
//!
//! A look-up among millions of entries waits for memory two or three times, for longer than the rest of the packet
//! takes. So packets of a batch run in *lanes*, an engine and a stack each. A look-up in a table that is larger
//! than the caches asks for the memory that it will need and lets the lane that has waited longest go on. A packet's
//! own first bytes are asked for one packet ahead; the rest is left where it came in until the packet leaves.
//!
//! What comes of the packets is what comes of one after the other. All of them see the same tables, and what they do to
//! each other has an order: a packet that is about to send, to use a register or a meter, waits until it is the oldest
//! under way. Counters add up in any order. Programs that draw random numbers do not run here.
//!
//! Machine code cannot be unwound: a lane is never given up while a packet is in it, but run to the packet's end.

use std::cell::Cell;
use std::collections::VecDeque;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use sluice_program::{DigestId, HashAlgorithm, Op, Program};
use sluice_tables::{Externs, Side};

use super::{Code, Native};
use crate::config::Config;
use crate::counters::Counters;
use crate::packet::{PacketIn, Sink};
use crate::switch::Switch;

/// Packets under way at most: enough that memory has come when a lane's turn comes round; each takes some of the
/// first-level cache.
const LANES: usize = 8;

/// Bytes of a lane's stack. The page below it cannot be touched.
const STACK: usize = 256 << 10;

/// By how much more each lane's stack begins below its top, in bytes.
const SHIFT: usize = 13 * 64;

/// Cache lines at a packet's beginning that are asked for ahead: where headers lie.
const LINES: usize = 2;

/// How far ahead of the oldest packet another may be.
const AHEAD: u64 = 63;

/// A packet on its way into a lane. What it refers to outlives its way through it.
struct Job {
    side: *const Side,
    externs: *const Externs,
    sink: *mut (dyn Sink + 'static),
    data: *const [u8],
    port: u32,
    now_us: u64,
    number: u64,
}

/// Why a lane stops.
enum Pause {
    /// Its packet is done.
    Done,
    /// It waits for memory, or for its turn.
    Waiting,
}

type Fiber = Coroutine<Option<Job>, Pause, (), Shifted>;

/// A stack that begins somewhat below its top: what lies at the tops of stacks would otherwise fall into the same few
/// sets of the caches.
struct Shifted {
    stack: DefaultStack,
    base: StackPointer,
}

impl Shifted {
    fn new(shift: usize) -> io::Result<Self> {
        let stack = DefaultStack::new(STACK)?;
        let base = StackPointer::new(stack.base().get() - shift);
        let base = base.ok_or(io::ErrorKind::OutOfMemory)?;
        Ok(Self { stack, base })
    }
}

// SAFETY: it is the inner stack but for some bytes at its top, a multiple of a stack's alignment, which are left alone;
// they are few beside `STACK`.
unsafe impl Stack for Shifted {
    fn base(&self) -> StackPointer {
        self.base
    }

    fn limit(&self) -> StackPointer {
        self.stack.limit()
    }
}

/// How a packet in a lane waits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    yielder: *const Yielder<Option<Job>, Pause>,
    number: u64,
    oldest: *const Cell<u64>,
    far: u64,
}

// SAFETY: it is used by the packet that it was made for only, and no lane has a packet while it is sent.
unsafe impl Send for Waiting {}
// SAFETY: likewise.
unsafe impl Sync for Waiting {}

impl Waiting {
    /// Whether look-ups in a table of so many entries wait for memory.
    #[inline]
    pub(crate) fn is_far(&self, entries: u64) -> bool {
        entries >= self.far
    }

    /// Lets other lanes go on.
    #[inline]
    pub(crate) fn pause(&self) {
        // SAFETY: a `Waiting` is used by the packet that it was made for, on its lane's stack, where the yielder lies.
        unsafe { &*self.yielder }.suspend(Pause::Waiting);
    }

    /// Waits until this is the oldest packet under way.
    #[inline]
    pub(crate) fn turn(&self) {
        // SAFETY: the cell lives as long as the lanes.
        while unsafe { &*self.oldest }.get() != self.number {
            self.pause();
        }
    }
}

/// Sends when it is the packet's turn.
struct InTurn<'a> {
    sink: &'a mut dyn Sink,
    waiting: Waiting,
}

impl Sink for InTurn<'_> {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        self.waiting.turn();
        self.sink.transmit(port, data);
    }

    fn transmit_parts(&mut self, port: u32, headers: &mut Vec<u8>, payload: &[u8]) {
        self.waiting.turn();
        self.sink.transmit_parts(port, headers, payload);
    }

    fn digest(&mut self, digest: DigestId, fields: &[u8]) {
        self.waiting.turn();
        self.sink.digest(digest, fields);
    }

    fn log(&mut self, message: &str) {
        self.waiting.turn();
        self.sink.log(message);
    }
}

/// An engine with a stack of its own.
struct Lane {
    fiber: Fiber,
    /// Used by the fiber alone while a packet is in it.
    switch: *mut Switch<Native>,
    /// For the bytes of a packet that would not stay.
    bytes: Vec<u8>,
}

/// See the module.
pub struct Lanes {
    lanes: Vec<Lane>,
    /// Lanes without a packet.
    free: Vec<usize>,
    /// The others, the one that has waited longest first.
    waiting: VecDeque<(usize, u64)>,
    /// The number of the next packet.
    next: u64,
    /// The number of the oldest packet under way; that of the next if there is none.
    oldest: Box<Cell<u64>>,
    /// A bit for each packet from the oldest on: whether it is done.
    done: u64,
    far: u64,
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
        let oldest = Box::new(Cell::new(0));
        let mut lanes = Vec::with_capacity(LANES);
        for lane in 0..LANES {
            let engine = Native::new(Arc::clone(code), config.clone());
            let stack = Shifted::new(lane * SHIFT)?;
            lanes.push(Lane::new(engine, &raw const *oldest, far, stack));
        }
        Ok(Some(Self {
            lanes,
            free: (0..LANES).collect(),
            waiting: VecDeque::with_capacity(LANES),
            next: 0,
            oldest,
            done: 0,
            far,
        }))
    }

    /// Whether packets would pause in look-ups of these tables.
    pub fn are_worthwhile(&self, side: &Side) -> bool {
        side.most_entries() >= self.far
    }

    /// Takes a batch of packets, whose bytes stay where they are for `'p`, from `receive` and processes them to their
    /// ends.
    pub fn batch<'p, R>(
        &mut self,
        side: &Side,
        externs: &Externs,
        sink: &mut dyn Sink,
        receive: impl FnOnce(&mut Batch<'_, 'p>) -> R,
    ) -> R {
        let mut batch = Batch {
            lanes: self,
            side,
            externs,
            sink,
            next: None,
        };
        receive(&mut batch)
    }

    /// What the engines have counted together.
    pub fn counters(&mut self) -> Counters {
        let mut sum = Counters::default();
        for lane in &self.lanes {
            // SAFETY: no packet is in the lane: a batch holds the lanes exclusively and leaves none behind.
            sum.add(unsafe { &mut *lane.switch }.counters());
        }
        sum
    }

    /// Runs a lane until it stops.
    fn resume(&mut self, lane: usize, number: u64, job: Option<Job>) {
        let fiber = &mut self.lanes[lane].fiber;
        match catch_unwind(AssertUnwindSafe(|| fiber.resume(job))) {
            Ok(CoroutineResult::Yield(Pause::Waiting)) => self.waiting.push_back((lane, number)),
            Ok(CoroutineResult::Yield(Pause::Done) | CoroutineResult::Return(())) => {
                self.free.push(lane);
                self.over(number);
            }
            // The others are run to their ends before who called hears of it.
            Err(panic) => {
                self.over(number);
                resume_unwind(panic);
            }
        }
    }

    /// A packet is done.
    fn over(&mut self, number: u64) {
        self.done |= 1 << (number - self.oldest.get());
        let over = self.done.trailing_ones();
        self.done = self.done.checked_shr(over).unwrap_or(0);
        self.oldest.set(self.oldest.get() + u64::from(over));
    }

    /// Has the lane go on that has waited longest; false if none waits.
    fn go_on(&mut self) -> bool {
        let Some((lane, number)) = self.waiting.pop_front() else {
            return false;
        };
        self.resume(lane, number, None);
        true
    }
}

impl Lane {
    fn new(engine: Native, oldest: *const Cell<u64>, far: u64, stack: Shifted) -> Self {
        let switch = Box::into_raw(Box::new(Switch::new(engine)));
        let fiber = Coroutine::with_stack(stack, move |yielder, mut job: Option<Job>| {
            while let Some(packet) = job {
                let waiting = Waiting {
                    yielder,
                    number: packet.number,
                    oldest,
                    far,
                };
                // SAFETY: what a job refers to outlives the batch, or belongs to the lane and is left alone while a
                // packet is in it, and a batch ends after its jobs; one lane runs at a time, and each uses the sink
                // when it is its turn. The engine is this fiber's own.
                unsafe {
                    let switch = &mut *switch;
                    switch.engine().set_waiting(Some(waiting));
                    let sink = &mut *packet.sink;
                    let input = PacketIn {
                        data: &*packet.data,
                        port: packet.port,
                        now_us: packet.now_us,
                    };
                    let (side, externs) = (&*packet.side, &*packet.externs);
                    switch.process(side, externs, input, &mut InTurn { sink, waiting });
                }
                job = yielder.suspend(Pause::Done);
            }
        });
        let bytes = Vec::new();
        Self {
            fiber,
            switch,
            bytes,
        }
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.fiber.started() && !self.fiber.done() {
            // No packet is in it: it ends.
            self.fiber.resume(None);
        }
        // SAFETY: it was made by `Box::into_raw`, and the fiber that used it has ended.
        drop(unsafe { Box::from_raw(self.switch) });
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
    lanes: &'a mut Lanes,
    side: &'a Side,
    externs: &'a Externs,
    sink: &'a mut dyn Sink,
    /// Taken, and asked for, but not begun yet.
    next: Option<PacketIn<'p>>,
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
        let bytes = &mut self.lanes.lanes[lane].bytes;
        bytes.clear();
        bytes.extend_from_slice(packet.data);
        let data: *const [u8] = bytes.as_slice();
        self.begin(lane, data, packet.port, packet.now_us);
    }

    /// Waits for a lane, and takes it.
    fn free_lane(&mut self) -> usize {
        let lanes = &mut *self.lanes;
        while lanes.free.is_empty() || lanes.next - lanes.oldest.get() >= AHEAD {
            assert!(lanes.go_on(), "a lane has died");
        }
        lanes.free.pop().expect("a lane is free")
    }

    /// Has a packet enter a lane. The bytes stay until it has left it.
    fn begin(&mut self, lane: usize, data: *const [u8], port: u32, now_us: u64) {
        let lanes = &mut *self.lanes;
        let number = lanes.next;
        lanes.next += 1;
        // SAFETY: only the lifetime changes; see `Job`.
        let sink = unsafe {
            std::mem::transmute::<*mut (dyn Sink + '_), *mut (dyn Sink + 'static)>(self.sink)
        };
        let job = Job {
            side: self.side,
            externs: self.externs,
            sink,
            data,
            port,
            now_us,
            number,
        };
        lanes.resume(lane, number, Some(job));
    }
}

impl Drop for Batch<'_, '_> {
    fn drop(&mut self) {
        if let Some(last) = self.next.take()
            && !std::thread::panicking()
        {
            self.begin_kept(last);
        }
        while self.lanes.go_on() {}
    }
}

/// Asks for a packet's first bytes.
#[inline]
fn prefetch(packet: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    for line in packet.chunks(64).take(LINES) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: SSE is part of x86_64, and a prefetch has no effect that a program could see.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(line.as_ptr().cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = packet;
}

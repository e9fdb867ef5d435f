// SPDX-License-Identifier: Apache-2.0
//! A lane: an engine with a stack of its own, on which it can stop in the middle of a packet and go on later.
//!
//! Machine code cannot be unwound: a lane is never given up while a packet is in it, but run to the packet's end. What
//! it calls outside of machine code may panic, as a [`Sink`] may: that ends the packet and the lane, and nothing else.

use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use sluice_program::DigestId;
use sluice_tables::{Externs, Side, Wait};

use super::Native;
use super::asked::Asked;
use crate::packet::{PacketIn, Sink};
use crate::switch::Switch;

/// Bytes of a lane's stack. The page below it cannot be touched.
const STACK: usize = 256 << 10;

/// By how much more each lane's stack begins below its top, in bytes.
const SHIFT: usize = 13 * 64;

/// Why a lane stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// Its packet is done.
    Done,
    /// It waits for memory, or for its turn.
    Waiting,
}

/// Told when it is to run: whether there is a packet on its seat. It ends if there is none.
type Fiber = Coroutine<bool, Stop, (), Shifted>;
type Pauser = Yielder<bool, Stop>;

/// What the packets of a batch see, and where they go.
#[derive(Clone, Copy)]
pub(super) struct World {
    pub(super) side: *const Side,
    pub(super) externs: *const Externs,
    pub(super) sink: *mut (dyn Sink + 'static),
}

/// What packets in lanes have in common.
pub(super) struct Common {
    /// That of the batch under way; what it refers to outlives the batch.
    pub(super) world: Cell<Option<World>>,
    /// The number of the oldest packet under way; that of the next if there is none.
    pub(super) oldest: Cell<u64>,
    /// Look-ups in tables of so many entries wait for memory.
    pub(super) far: u64,
    pub(super) asked: Asked,
    /// A packet of the batch under way has come to a panic: nothing is sent any more.
    pub(super) failed: Cell<bool>,
}

/// A packet on its way into a lane. Its bytes stay until it has left.
#[derive(Clone, Copy)]
pub(super) struct Job {
    pub(super) data: *const [u8],
    pub(super) port: u32,
    pub(super) now_us: u64,
    pub(super) number: u64,
}

/// Where a packet waits to enter a lane, and what it needs to wait in it.
struct Seat {
    job: Cell<Job>,
    /// Lies on the lane's stack; none before the lane has run.
    pauser: Cell<*const Pauser>,
    common: *const Common,
}

/// How a packet in a lane waits: by the lane's seat.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting(NonNull<Seat>);

// SAFETY: it is used by packets in its lane only, and no lane has a packet while it is sent.
unsafe impl Send for Waiting {}
// SAFETY: likewise.
unsafe impl Sync for Waiting {}

impl Waiting {
    #[inline(always)]
    fn seat(&self) -> &Seat {
        // SAFETY: a lane's engine has it, and goes before the lane's seat.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn common(&self) -> &Common {
        // SAFETY: it outlives the lanes.
        unsafe { &*self.seat().common }
    }

    /// Whether look-ups in a table of so many entries wait for memory.
    #[inline]
    pub(crate) fn is_far(&self, entries: u64) -> bool {
        entries >= self.common().far
    }

    /// Whether this is the oldest packet under way.
    #[inline]
    fn is_oldest(&self) -> bool {
        self.common().oldest.get() == self.seat().job.get().number
    }

    /// Waits until this is the oldest packet under way.
    #[inline]
    pub(crate) fn turn(&self) {
        while !self.is_oldest() {
            self.pause();
        }
    }
}

impl Wait for Waiting {
    #[inline(always)]
    fn ask(&self, line: *const u8) {
        self.common().asked.note(line);
    }

    #[inline]
    fn pause(&self) {
        // SAFETY: who waits is a packet in the lane, on whose stack the pauser lies.
        unsafe { &*self.seat().pauser.get() }.suspend(Stop::Waiting);
    }
}

/// Sends when it is the packet's turn.
struct InTurn<'a> {
    sink: &'a mut dyn Sink,
    waiting: Waiting,
}

impl InTurn<'_> {
    /// The sink, when it is the packet's turn; none where a packet before it has come to a panic.
    #[inline]
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        self.waiting.turn();
        (!self.waiting.common().failed.get()).then_some(&mut *self.sink)
    }
}

impl Sink for InTurn<'_> {
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

/// See the module.
pub(super) struct Lane {
    fiber: Fiber,
    /// Used by the fiber alone while a packet is in it.
    switch: NonNull<Switch<Native>>,
    seat: NonNull<Seat>,
    /// For the bytes of a packet that would not stay.
    bytes: Vec<u8>,
}

impl Lane {
    /// The lane of this index. What lanes have in common must outlive it.
    pub(super) fn new(engine: Native, common: NonNull<Common>, index: usize) -> io::Result<Self> {
        let stack = Shifted::new(index * SHIFT)?;
        let seat = NonNull::from(Box::leak(Box::new(Seat {
            job: Cell::new(Job {
                data: &[],
                port: 0,
                now_us: 0,
                number: 0,
            }),
            pauser: Cell::new(std::ptr::null()),
            common: common.as_ptr(),
        })));
        let mut switch = Switch::new(engine);
        switch.engine().set_waiting(Some(Waiting(seat)));
        let switch = NonNull::from(Box::leak(Box::new(switch)));
        Ok(Self {
            fiber: fiber(stack, switch, seat),
            switch,
            seat,
            bytes: Vec::new(),
        })
    }

    /// Puts a packet on the lane's seat.
    #[inline]
    pub(super) fn take(&mut self, job: Job) {
        // SAFETY: the seat is the lane's own as long as it lives.
        unsafe { self.seat.as_ref() }.job.set(job);
    }

    /// The number of the packet that is in it, or was.
    #[inline]
    pub(super) fn number(&self) -> u64 {
        // SAFETY: as for `take`.
        unsafe { self.seat.as_ref() }.job.get().number
    }

    /// A copy of a packet's bytes, which stays until the next.
    pub(super) fn keep(&mut self, data: &[u8]) -> *const [u8] {
        self.bytes.clear();
        self.bytes.extend_from_slice(data);
        self.bytes.as_slice()
    }

    /// Runs the packet that is in the lane, or on its seat, until it stops.
    ///
    /// # Panics
    /// If what the packet leads to does. The lane has ended then.
    #[inline]
    pub(super) fn run(&mut self) -> Stop {
        match self.fiber.resume(true) {
            CoroutineResult::Yield(stop) => stop,
            CoroutineResult::Return(()) => Stop::Done,
        }
    }

    /// Whether no packet can enter it any more.
    pub(super) fn has_ended(&self) -> bool {
        self.fiber.done()
    }

    /// The engine around which it runs, while no packet is in it.
    pub(super) fn switch(&mut self) -> &mut Switch<Native> {
        // SAFETY: it is the lane's own; whoever has the lane exclusively has it while no packet is in it, as the fiber
        // uses it for a packet only.
        unsafe { self.switch.as_mut() }
    }
}

fn fiber(stack: Shifted, switch: NonNull<Switch<Native>>, seat: NonNull<Seat>) -> Fiber {
    Coroutine::with_stack(stack, move |pauser: &Pauser, mut taken: bool| {
        let waiting = Waiting(seat);
        while taken {
            let seat = waiting.seat();
            seat.pauser.set(pauser);
            let job = seat.job.get();
            let world = waiting.common().world.get();
            // SAFETY: what the world and the job refer to outlives the batch, or belongs to the lane and is left alone
            // while a packet is in it, and a batch ends after its jobs; one lane runs at a time, and each uses the
            // sink when it is its turn. The engine is this fiber's own while a packet is in it.
            unsafe {
                let world = world.expect("a batch is under way");
                let input = PacketIn {
                    data: &*job.data,
                    port: job.port,
                    now_us: job.now_us,
                };
                let sink = &mut *world.sink;
                let mut sink = InTurn { sink, waiting };
                let switch = &mut *switch.as_ptr();
                switch.process(&*world.side, &*world.externs, input, &mut sink);
            }
            taken = pauser.suspend(Stop::Done);
        }
    })
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.fiber.started() && !self.fiber.done() {
            // No packet is in it: it ends.
            self.fiber.resume(false);
        }
        // SAFETY: both were made of boxes, and the fiber that used them has ended or never began.
        unsafe {
            drop(Box::from_raw(self.switch.as_ptr()));
            drop(Box::from_raw(self.seat.as_ptr()));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A lane: an engine with a stack of its own, on which it can stop in the middle of a packet and go on later. It takes
//! one packet of a batch after the other until there are no more.
//!
//! Machine code cannot be unwound: a lane is never given up while a packet is in it, but run to the packet's end. What
//! it calls outside of machine code may panic, as a [`Sink`] may: that ends the packet, nothing is sent any more, and
//! the panic is kept for who gave the batch.

use std::any::Any;
use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use corosensei::stack::{DefaultStack, Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use sluice_program::DigestId;
use sluice_tables::{Externs, Side, Wait};

use super::Native;
use super::asked::Asked;
use super::jobs::Jobs;
use crate::counters::Counters;
use crate::packet::Sink;
use crate::switch::Switch;

/// Bytes of a lane's stack. The page below it cannot be touched.
const STACK: usize = 256 << 10;

/// By how much more each lane's stack begins below its top, in bytes.
const SHIFT: usize = 13 * 64;

/// Why a lane stops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stop {
    /// There are no packets any more.
    Done,
    /// Its packet waits for memory, or for its turn.
    Waiting,
}

type Fiber = Coroutine<(), Stop, (), Shifted>;
type Pauser = Yielder<(), Stop>;

/// What the packets of a batch see, and where they go.
#[derive(Clone, Copy)]
pub(super) struct World {
    pub(super) side: *const Side,
    pub(super) externs: *const Externs,
    pub(super) sink: *mut (dyn Sink + 'static),
}

/// What packets in lanes have in common.
pub(super) struct Common {
    /// Look-ups in tables of so many entries wait for memory.
    pub(super) far: u64,
    pub(super) jobs: Jobs,
    pub(super) asked: Asked,
    /// That of the batch under way; what it refers to outlives the batch.
    pub(super) world: Cell<Option<World>>,
    /// A packet of the batch under way has come to a panic: nothing is sent any more.
    failed: Cell<bool>,
    /// The panic.
    panic: Cell<Option<Box<dyn Any + Send>>>,
    /// Fibers are to end.
    ending: Cell<bool>,
}

impl Common {
    pub(super) fn new(far: u64) -> Self {
        Self {
            far,
            jobs: Jobs::new(),
            asked: Asked::new(),
            world: Cell::new(None),
            failed: Cell::new(false),
            panic: Cell::new(None),
            ending: Cell::new(false),
        }
    }

    /// The panic that a packet of the batch has come to.
    #[inline]
    pub(super) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        match self.failed.get() {
            true => self.panic.take(),
            false => None,
        }
    }

    /// Whether a packet of the batch under way has come to a panic.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// A packet has come to a panic, or who gave the batch has.
    #[cold]
    pub(super) fn fail(&self, panic: Box<dyn Any + Send>) {
        self.failed.set(true);
        self.panic.set(Some(panic));
        self.jobs.give_up();
    }

    /// After a panic: things may be sent again.
    pub(super) fn recover(&self) {
        self.failed.set(false);
    }
}

/// What a packet needs to wait in a lane.
struct Seat {
    /// The packet's number.
    number: Cell<usize>,
    /// Lies on the lane's stack; none before the lane has run.
    pauser: Cell<*const Pauser>,
    common: *const Common,
    /// A panic has left the engine in no good state.
    broken: Cell<bool>,
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

    /// Waits until this is the oldest packet under way.
    #[inline]
    pub(crate) fn turn(&self) {
        if !self.common().jobs.is_oldest(self.seat().number.get()) {
            self.wait_for_turn();
        }
    }

    #[cold]
    fn wait_for_turn(&self) {
        while !self.common().jobs.is_oldest(self.seat().number.get()) {
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
struct InTurn {
    sink: *mut (dyn Sink + 'static),
    waiting: Waiting,
}

impl InTurn {
    /// The sink, when it is the packet's turn; none where a packet before it has come to a panic.
    #[inline]
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        self.waiting.turn();
        // SAFETY: it outlives the batch, and is used by one packet at a time: whose turn it is, and who does not pause
        // while it uses it.
        (!self.waiting.common().failed.get()).then(|| unsafe { &mut *self.sink as &mut dyn Sink })
    }
}

impl Sink for InTurn {
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
    /// Used by the fiber alone while a batch is under way.
    switch: NonNull<Switch<Native>>,
    seat: NonNull<Seat>,
}

/// An engine whose packets wait on this seat.
fn switch(mut engine: Native, seat: NonNull<Seat>) -> Switch<Native> {
    engine.set_waiting(Some(Waiting(seat)));
    Switch::new(engine)
}

impl Lane {
    /// The lane of this index. What lanes have in common must outlive it.
    pub(super) fn new(engine: Native, common: NonNull<Common>, index: usize) -> io::Result<Self> {
        let stack = Shifted::new(index * SHIFT)?;
        let seat = NonNull::from(Box::leak(Box::new(Seat {
            number: Cell::new(0),
            pauser: Cell::new(std::ptr::null()),
            common: common.as_ptr(),
            broken: Cell::new(false),
        })));
        let switch = NonNull::from(Box::leak(Box::new(switch(engine, seat))));
        Ok(Self {
            fiber: fiber(stack, switch, seat),
            switch,
            seat,
        })
    }

    /// Runs until the packet that is in the lane waits, or there are no packets any more.
    #[inline]
    pub(super) fn run(&mut self) -> Stop {
        match self.fiber.resume(()) {
            CoroutineResult::Yield(stop) => stop,
            CoroutineResult::Return(()) => Stop::Done,
        }
    }

    /// Between batches: if a panic has left the engine in no good state, puts another one in its place, and gives what
    /// the old one has counted.
    pub(super) fn mend(&mut self, engine: impl FnOnce() -> Native) -> Option<Counters> {
        // SAFETY: the seat is the lane's own as long as it lives.
        if !unsafe { self.seat.as_ref() }.broken.replace(false) {
            return None;
        }
        let new = switch(engine(), self.seat);
        Some(*std::mem::replace(self.switch(), new).counters())
    }

    /// The engine around which it runs, while no batch is under way.
    pub(super) fn switch(&mut self) -> &mut Switch<Native> {
        // SAFETY: it is the lane's own; the fiber uses it for packets of a batch only, and whoever has the lane
        // exclusively and does not run it has no batch under way.
        unsafe { self.switch.as_mut() }
    }
}

fn fiber(stack: Shifted, switch: NonNull<Switch<Native>>, seat: NonNull<Seat>) -> Fiber {
    Coroutine::with_stack(stack, move |pauser: &Pauser, ()| {
        let waiting = Waiting(seat);
        let (seat, common) = (waiting.seat(), waiting.common());
        seat.pauser.set(pauser);
        while !common.ending.get() {
            // SAFETY: the engine is this fiber's own while a batch is under way.
            let run = || process(unsafe { &mut *switch.as_ptr() }, waiting);
            if let Err(panic) = catch_unwind(AssertUnwindSafe(run)) {
                seat.broken.set(true);
                common.fail(panic);
                common.jobs.over(seat.number.get());
            }
            pauser.suspend(Stop::Done);
        }
    })
}

/// Processes packets until there are no more.
fn process(switch: &mut Switch<Native>, waiting: Waiting) {
    let (seat, common) = (waiting.seat(), waiting.common());
    let world = common.world.get().expect("a batch is under way");
    // SAFETY: what the world refers to outlives the batch.
    let (side, externs) = unsafe { (&*world.side, &*world.externs) };
    let sink = world.sink;
    let mut sink = InTurn { sink, waiting };
    // SAFETY: packets' bytes stay until the batch has ended.
    while let Some((number, packet)) = unsafe { common.jobs.take() } {
        seat.number.set(number);
        switch.process(side, externs, packet, &mut sink);
        common.jobs.over(number);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        if self.fiber.started() && !self.fiber.done() {
            // No packet is in it: it ends.
            // SAFETY: what lanes have in common outlives them.
            unsafe { (*self.seat.as_ref().common).ending.set(true) };
            self.fiber.resume(());
        }
        // SAFETY: both were made of boxes, and the fiber that used them has ended or never began.
        unsafe {
            drop(Box::from_raw(self.switch.as_ptr()));
            drop(Box::from_raw(self.seat.as_ptr()));
        }
    }
}

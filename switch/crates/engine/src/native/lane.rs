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

use sluice_program::DigestId;
use sluice_tables::{Externs, Side, Wait};

use super::Native;
use super::asked::Asked;
use super::fiber::{Fiber, Place, enter, leave};
use super::jobs::Jobs;
use crate::counters::Counters;
use crate::packet::Sink;
use crate::queue::{Admission, Arrival};
use crate::switch::Switch;

/// Bytes of a lane's stack. The page below it cannot be touched.
const STACK: usize = 256 << 10;

/// By how much more each lane's stack begins below its top, in bytes.
const SHIFT: usize = 13 * 64;

/// Lanes: enough that memory has come when a lane's turn comes round; each takes some of the first-level cache.
pub(super) const LANES: usize = 8;

/// When so many lanes have had their turn, what they have asked for is fetched.
const TOGETHER: usize = 4;
const _: () = assert!(TOGETHER.is_power_of_two() && LANES.is_multiple_of(TOGETHER));

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
    /// Where lanes can be gone on with.
    places: [Cell<Place>; LANES],
    /// And who has them run.
    home: Cell<Place>,
    /// A bit for each lane that has a packet, or is to take one.
    active: Cell<u32>,
    /// Whether lanes are to run until there are no packets any more, and not only until others can come.
    finishing: Cell<bool>,
    /// A packet of the batch under way has come to a panic: nothing is sent any more.
    failed: Cell<bool>,
    /// The panic.
    panic: Cell<Option<Box<dyn Any + Send>>>,
}

impl Common {
    pub(super) fn new(far: u64) -> Self {
        Self {
            far,
            jobs: Jobs::new(),
            asked: Asked::new(),
            world: Cell::new(None),
            places: [const { Cell::new(std::ptr::null_mut()) }; LANES],
            home: Cell::new(std::ptr::null_mut()),
            active: Cell::new(0),
            finishing: Cell::new(false),
            failed: Cell::new(false),
            panic: Cell::new(None),
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

    /// Whether a lane is in the middle of a packet.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.active.get() != 0
    }

    /// Runs lanes in turn until there are no packets any more, if it is to finish, or else until there is room for others
    /// and not many wait.
    ///
    /// # Safety
    /// The batch that packets see is under way.
    #[inline]
    pub(super) unsafe fn run(&self, finishing: bool) {
        // Those that have a packet, and as many others as packets wait.
        let mut active = self.active.get();
        for _ in 0..self.jobs.waiting().min(LANES) {
            active |= (active + 1) & ((1 << LANES) - 1);
        }
        self.active.set(active);
        self.finishing.set(finishing);
        if active != 0 {
            // SAFETY: all lanes have places, and are run by nobody else.
            unsafe { enter(self) };
        }
    }

    /// Who goes on when this lane stops. What some lanes have waited for together is on its way when the first of
    /// them goes on.
    #[inline]
    fn behind(&self, index: usize) -> Place {
        let active = self.active.get();
        let behind = active & (!1 << index);
        if behind == 0 {
            self.asked.fetch();
            return self.next_round();
        }
        let next = behind.trailing_zeros() as usize;
        if (index ^ next) >= TOGETHER {
            self.asked.fetch();
        }
        self.places[next].get()
    }

    /// Who goes on when all lanes have had their turn.
    #[inline]
    fn next_round(&self) -> Place {
        let active = self.active.get();
        let enough =
            || !self.finishing.get() && self.jobs.waiting() <= LANES && self.jobs.has_room();
        if active == 0 || enough() {
            return self.home.get();
        }
        self.places[active.trailing_zeros() as usize].get()
    }
}

/// Who goes on when a lane has left its stack, which is at this place.
pub(super) extern "C" fn next(seat: *const Seat, place: Place) -> Place {
    // SAFETY: a lane gives its own seat.
    let seat = unsafe { &*seat };
    // SAFETY: what lanes have in common outlives them.
    let common = unsafe { &*seat.common };
    common.places[seat.index].set(place);
    common.behind(seat.index)
}

/// Who goes on when lanes are to run, at least one; who has them run is at this place.
pub(super) extern "C" fn first(common: *const Common, place: Place) -> Place {
    // SAFETY: who has lanes run gives what they have in common.
    let common = unsafe { &*common };
    common.home.set(place);
    common.places[common.active.get().trailing_zeros() as usize].get()
}

/// What a packet needs to wait in a lane.
pub(super) struct Seat {
    /// The packet's number.
    number: Cell<usize>,
    common: *const Common,
    /// The lane's.
    index: usize,
    /// Used by the lane alone while a batch is under way.
    switch: NonNull<Switch<Native>>,
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

    /// Look-ups in tables of so many entries wait for memory.
    #[inline]
    pub(super) fn far(&self) -> u64 {
        self.common().far
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
        // SAFETY: who waits is a packet in the lane.
        unsafe { leave(self.0.as_ptr()) };
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

    fn queue(&mut self, arrival: &mut Arrival<'_>) -> Admission {
        // After a panic nothing is sent: it does not matter where the packet goes.
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

/// See the module.
pub(super) struct Lane {
    seat: NonNull<Seat>,
    /// What the seat's place lies on.
    _fiber: Fiber,
}

/// An engine whose packets wait on this seat.
fn switch(mut engine: Native, seat: NonNull<Seat>) -> Switch<Native> {
    engine.set_waiting(Some(Waiting(seat)));
    Switch::new(engine)
}

impl Lane {
    /// The lane of this index. What lanes have in common must outlive it.
    pub(super) fn new(engine: Native, common: NonNull<Common>, index: usize) -> io::Result<Self> {
        let fiber = Fiber::new(STACK)?;
        let seat = Box::new(Seat {
            number: Cell::new(0),
            common: common.as_ptr(),
            index,
            switch: NonNull::dangling(),
            broken: Cell::new(false),
        });
        let mut seat = NonNull::from(Box::leak(seat));
        let switch = NonNull::from(Box::leak(Box::new(switch(engine, seat))));
        // SAFETY: nobody else has the seat yet.
        unsafe { seat.as_mut().switch = switch };
        // SAFETY: nothing was on the stack, which is much larger than all shifts, multiples of 64. What lanes have in
        // common is there.
        unsafe {
            let place = fiber.begin(index * SHIFT, run, seat.as_ptr());
            common.as_ref().places[index].set(place);
        }
        Ok(Self {
            seat,
            _fiber: fiber,
        })
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
        // SAFETY: it is the lane's own; its packets use it, and whoever has the lane exclusively and does not run it
        // has no batch under way.
        unsafe { self.seat.as_ref().switch.as_ptr().as_mut_unchecked() }
    }
}

/// What is done on a lane's stack, for ever: it is gone on with when packets are to be processed, and left when there
/// are none any more. Nothing is on it then that would have to be dropped.
extern "C" fn run(seat: *const Seat) -> ! {
    // SAFETY: a lane's seat is there as long as the lane, and nobody goes on with its stack later.
    let seat = unsafe { &*seat };
    // SAFETY: what lanes have in common outlives them.
    let common = unsafe { &*seat.common };
    loop {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| process(seat, common))) {
            seat.broken.set(true);
            common.fail(panic);
            common.jobs.over(seat.number.get());
        }
        common.active.set(common.active.get() & !(1 << seat.index));
        // SAFETY: this is the lane's stack, and runs because a batch is under way.
        unsafe { leave(seat) };
    }
}

/// Processes packets until there are no more.
fn process(seat: &Seat, common: &Common) {
    let world = common.world.get().expect("a batch is under way");
    // SAFETY: what the world refers to outlives the batch.
    let (side, externs) = unsafe { (&*world.side, &*world.externs) };
    let waiting = Waiting(NonNull::from(seat));
    let sink = world.sink;
    let mut sink = InTurn { sink, waiting };
    // SAFETY: the engine is this lane's own while a batch is under way.
    let switch = unsafe { &mut *seat.switch.as_ptr() };
    // SAFETY: packets' bytes stay until the batch has ended.
    while let Some((number, packet)) = unsafe { common.jobs.take() } {
        seat.number.set(number);
        switch.process(side, externs, packet, &mut sink);
        common.jobs.over(number);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // No packet is in it, and nobody goes on with its stack.
        // SAFETY: both were made of boxes, and nobody else has them.
        unsafe {
            drop(Box::from_raw(self.seat.as_ref().switch.as_ptr()));
            drop(Box::from_raw(self.seat.as_ptr()));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A lane is a coroutine that processes packets: an engine with its own stack. It can yield in the middle of a packet
//! and resume later. It takes one packet of the batch after the other until none is left.
//!
//! Machine code cannot be unwound, so a lane always runs its packet to the end. Rust code that machine code calls, such
//! as a [`Sink`], may panic. A panic ends the packet; nothing is sent any more, and the panic is kept for the caller
//! that runs the batch.

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

/// Size of a lane's stack, in bytes. A guard page lies below it.
const STACK: usize = 256 << 10;

/// Stagger between the starts of lane stacks, in bytes, so that their hot lines fall into different cache sets.
const SHIFT: usize = 13 * 64;

/// Number of lanes. Enough that prefetched lines have arrived when a lane's turn comes round; each lane also takes some
/// of the first-level cache.
pub(super) const LANES: usize = 8;

/// Lanes per prefetch group. The lines that the lanes of a group noted are prefetched together when the last of them
/// has yielded.
const TOGETHER: usize = 4;
const _: () = assert!(TOGETHER.is_power_of_two() && LANES.is_multiple_of(TOGETHER));

/// Tables, externs and sink of a batch.
#[derive(Clone, Copy)]
pub(super) struct World {
    pub(super) side: *const Side,
    pub(super) externs: *const Externs,
    pub(super) sink: *mut (dyn Sink + 'static),
}

/// State that all lanes share.
pub(super) struct Common {
    /// Least number of table entries for which lookups yield while memory is fetched.
    pub(super) far: u64,
    pub(super) jobs: Jobs,
    pub(super) asked: Asked,
    /// Set while a batch is under way. Invariant: its tables, externs and sink outlive the batch.
    pub(super) world: Cell<Option<World>>,
    /// Saved stack pointer of each suspended lane.
    places: [Cell<Place>; LANES],
    /// Saved stack pointer of the caller of [`Common::run`].
    home: Cell<Place>,
    /// One bit for each lane that has a packet or is to take one.
    active: Cell<u32>,
    /// If set, lanes run until no packets are left; else until there is room for more packets.
    finishing: Cell<bool>,
    /// The batch under way has panicked: nothing is sent any more.
    failed: Cell<bool>,
    /// Payload of that panic.
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

    /// Takes the payload of the panic in the batch, if there was one.
    #[inline]
    pub(super) fn take_panic(&self) -> Option<Box<dyn Any + Send>> {
        match self.failed.get() {
            true => self.panic.take(),
            false => None,
        }
    }

    /// Returns whether the batch under way has panicked.
    #[inline]
    pub(super) fn has_failed(&self) -> bool {
        self.failed.get()
    }

    /// Records the panic of a packet, or of the caller that feeds the batch. Drops the packets that no lane has taken.
    #[cold]
    pub(super) fn fail(&self, panic: Box<dyn Any + Send>) {
        self.failed.set(true);
        self.panic.set(Some(panic));
        self.jobs.give_up();
    }

    /// Allows packets to be sent again after a panic.
    pub(super) fn recover(&self) {
        self.failed.set(false);
    }

    /// Returns whether a lane is in the middle of a packet.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.active.get() != 0
    }

    /// Runs lanes in turn. If `finishing`, runs until no packets are left; else until there is room for more and at
    /// most [`LANES`] packets wait.
    ///
    /// # Safety
    /// The batch that the packets belong to is under way.
    #[inline]
    pub(super) unsafe fn run(&self, finishing: bool) {
        // Lanes in the middle of a packet, and one idle lane for each waiting packet.
        let mut active = self.active.get();
        for _ in 0..self.jobs.waiting().min(LANES) {
            active |= (active + 1) & ((1 << LANES) - 1);
        }
        self.active.set(active);
        self.finishing.set(finishing);
        if active != 0 {
            // SAFETY: each lane has a saved stack pointer, and no other code runs the lanes.
            unsafe { enter(self) };
        }
    }

    /// Returns the stack to resume when this lane yields. At the end of a prefetch group ([`TOGETHER`]) it issues the
    /// prefetches first, so that they are under way before any lane of the group resumes.
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

    /// Returns the stack to resume when all lanes have had their turn.
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

/// Saves the stack pointer of a lane that yields, and returns the stack to resume.
pub(super) extern "C" fn next(seat: *const Seat, place: Place) -> Place {
    // SAFETY: a lane passes its own seat.
    let seat = unsafe { &*seat };
    // SAFETY: `Common` outlives the lanes.
    let common = unsafe { &*seat.common };
    common.places[seat.index].set(place);
    common.behind(seat.index)
}

/// Saves the stack pointer of the caller of [`Common::run`], and returns the stack of the first active lane. At least
/// one lane must be active.
pub(super) extern "C" fn first(common: *const Common, place: Place) -> Place {
    // SAFETY: `Common::run` passes itself.
    let common = unsafe { &*common };
    common.home.set(place);
    common.places[common.active.get().trailing_zeros() as usize].get()
}

/// State of a lane that its packet needs in order to yield.
pub(super) struct Seat {
    /// Number of the packet in the lane.
    number: Cell<usize>,
    common: *const Common,
    /// Index of the lane.
    index: usize,
    /// The lane's engine. While a batch is under way only the lane uses it.
    switch: NonNull<Switch<Native>>,
    /// A panic left the engine in an inconsistent state.
    broken: Cell<bool>,
}

/// Handle by which a packet yields: refers to the seat of its lane.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting(NonNull<Seat>);

// SAFETY: only packets in its lane use it, and no lane has a packet while it is sent.
unsafe impl Send for Waiting {}
// SAFETY: likewise.
unsafe impl Sync for Waiting {}

impl Waiting {
    #[inline(always)]
    fn seat(&self) -> &Seat {
        // SAFETY: the lane's engine holds this handle, and is dropped before the seat.
        unsafe { self.0.as_ref() }
    }

    #[inline(always)]
    fn common(&self) -> &Common {
        // SAFETY: `Common` outlives the lanes.
        unsafe { &*self.seat().common }
    }

    /// Returns the least number of table entries for which lookups yield while memory is fetched.
    #[inline]
    pub(super) fn far(&self) -> u64 {
        self.common().far
    }

    /// Yields until this is the oldest packet under way.
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
        // SAFETY: the caller is a packet in this lane.
        unsafe { leave(self.0.as_ptr()) };
    }
}

/// Sink of a packet in a lane: waits for the packet's turn, then forwards to the sink of the batch.
struct InTurn {
    sink: *mut (dyn Sink + 'static),
    waiting: Waiting,
}

impl InTurn {
    /// Waits for the packet's turn and returns the sink of the batch; `None` if the batch has panicked.
    #[inline]
    fn sink(&mut self) -> Option<&mut dyn Sink> {
        self.waiting.turn();
        // SAFETY: it outlives the batch. Only one packet uses it at a time: the one whose turn it is, which does not
        // yield meanwhile.
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

/// An engine with its own stack; see the module.
pub(super) struct Lane {
    seat: NonNull<Seat>,
    /// Owns the stack that the lane runs on.
    _fiber: Fiber,
}

/// Wraps an engine whose packets yield by this seat.
fn switch(mut engine: Native, seat: NonNull<Seat>) -> Switch<Native> {
    engine.set_waiting(Some(Waiting(seat)));
    Switch::new(engine)
}

impl Lane {
    /// Creates the lane with this index. `common` must outlive it.
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
        // SAFETY: no other reference to the seat is in use yet.
        unsafe { seat.as_mut().switch = switch };
        // SAFETY: the stack is empty and much larger than all shifts, which are multiples of 64. `common` is alive.
        unsafe {
            let place = fiber.begin(index * SHIFT, run, seat.as_ptr());
            common.as_ref().places[index].set(place);
        }
        Ok(Self {
            seat,
            _fiber: fiber,
        })
    }

    /// Replaces the engine if a panic left it in an inconsistent state, and returns the counters of the old one. To be
    /// called between batches.
    pub(super) fn mend(&mut self, engine: impl FnOnce() -> Native) -> Option<Counters> {
        // SAFETY: the lane owns the seat.
        if !unsafe { self.seat.as_ref() }.broken.replace(false) {
            return None;
        }
        let new = switch(engine(), self.seat);
        Some(*std::mem::replace(self.switch(), new).counters())
    }

    /// Returns the lane's engine. To be called while no batch is under way.
    pub(super) fn switch(&mut self) -> &mut Switch<Native> {
        // SAFETY: the lane owns it. Otherwise only the lane's packets use it, and there are none while the caller has
        // exclusive access to the lane and does not run it.
        unsafe { self.seat.as_ref().switch.as_ptr().as_mut_unchecked() }
    }
}

/// Entry point of a lane's stack; never returns. It resumes when packets are to be processed, and yields when none is
/// left. Invariant: nothing that needs to be dropped is on the stack then.
extern "C" fn run(seat: *const Seat) -> ! {
    // SAFETY: a lane's seat lives as long as the lane, whose stack is not resumed later.
    let seat = unsafe { &*seat };
    // SAFETY: `Common` outlives the lanes.
    let common = unsafe { &*seat.common };
    loop {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| process(seat, common))) {
            seat.broken.set(true);
            common.fail(panic);
            common.jobs.over(seat.number.get());
        }
        common.active.set(common.active.get() & !(1 << seat.index));
        // SAFETY: this is the lane's stack, which runs only while a batch is under way.
        unsafe { leave(seat) };
    }
}

/// Processes packets until none is left.
fn process(seat: &Seat, common: &Common) {
    let world = common.world.get().expect("a batch is under way");
    // SAFETY: the tables and externs outlive the batch.
    let (side, externs) = unsafe { (&*world.side, &*world.externs) };
    let waiting = Waiting(NonNull::from(seat));
    let sink = world.sink;
    let mut sink = InTurn { sink, waiting };
    // SAFETY: only this lane uses the engine while a batch is under way.
    let switch = unsafe { &mut *seat.switch.as_ptr() };
    // SAFETY: the bytes of packets stay valid until the batch has ended.
    while let Some((number, packet)) = unsafe { common.jobs.take() } {
        seat.number.set(number);
        switch.process(side, externs, packet, &mut sink);
        common.jobs.over(number);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // No packet is in the lane, and its stack is not resumed.
        // SAFETY: both came from boxes, and no other reference to them is left.
        unsafe {
            drop(Box::from_raw(self.seat.as_ref().switch.as_ptr()));
            drop(Box::from_raw(self.seat.as_ptr()));
        }
    }
}

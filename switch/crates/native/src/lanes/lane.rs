// SPDX-License-Identifier: Apache-2.0
//! A lane is a coroutine that processes packets: an engine with its own stack. A lane can yield in the middle of a
//! packet and resume later. The lane takes one packet of the batch after the other until no packet is left.
//!
//! Machine code cannot be unwound, so a suspended lane must run its packet to the end. Rust code that machine code
//! calls, such as a [`Sink`](sluice_engine::Sink), may panic. The panic ends the packet. From then on nothing is sent.
//! The panic's payload is kept for the caller that runs the batch.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use sluice_engine::{Counters, TrafficManager};

use crate::engine::Native;
use crate::scheduling::fiber::Fiber;
use crate::scheduling::scheduler::{OrderedSink, Scheduler, YieldPoint, Yielder, leave};

/// Size of a lane's stack, in bytes. A guard page lies below it.
const STACK: usize = 256 << 10;

/// Stagger between the starts of lane stacks, in bytes, so that their hot lines fall into different cache sets.
const SHIFT: usize = 13 * 64;

/// A lane's engine, and the yield point that the lane's packets use.
struct State {
    yield_point: YieldPoint,
    /// The lane's engine. While a batch is under way, only the lane uses it.
    manager: NonNull<TrafficManager<Native>>,
    /// Whether a panic left the engine in an inconsistent state.
    broken: Cell<bool>,
}

/// A lane: an engine with its own stack.
pub(crate) struct Lane {
    state: NonNull<State>,
    /// Owns the stack that the lane runs on.
    _fiber: Fiber,
}

/// Gives an engine the handle that its packets use to yield in this lane. Returns a traffic manager around the engine.
fn manager(mut engine: Native, state: NonNull<State>) -> TrafficManager<Native> {
    // SAFETY: the lane owns its state, and the state outlives the engine.
    let yield_point = unsafe { &raw const (*state.as_ptr()).yield_point };
    engine.set_yielder(NonNull::new(yield_point.cast_mut()).map(Yielder::new));
    TrafficManager::new(engine)
}

impl Lane {
    /// Creates the lane with this index. `scheduler` must outlive the lane.
    ///
    /// # Errors
    /// Fails if there is no memory for the stack.
    pub(crate) fn new(
        engine: Native,
        scheduler: NonNull<Scheduler>,
        index: usize,
    ) -> io::Result<Self> {
        let fiber = Fiber::new(STACK)?;
        let state = Box::new(State {
            yield_point: YieldPoint::new(scheduler, index),
            manager: NonNull::dangling(),
            broken: Cell::new(false),
        });
        let mut state = NonNull::from(Box::leak(state));
        let manager = NonNull::from(Box::leak(Box::new(manager(engine, state))));
        // SAFETY: no other reference to the state is in use yet.
        unsafe { state.as_mut().manager = manager };
        // SAFETY: the stack is empty and much larger than all shifts, which are multiples of 64. The scheduler is
        // alive.
        unsafe {
            let saved = fiber.begin(index * SHIFT, run, state.as_ptr());
            scheduler.as_ref().suspend(index, saved);
        }
        Ok(Self {
            state,
            _fiber: fiber,
        })
    }

    /// Replaces the engine if a panic left it in an inconsistent state. Returns the counters of the replaced engine.
    /// Must be called between batches.
    pub(crate) fn replace_if_broken(
        &mut self,
        engine: impl FnOnce() -> Native,
    ) -> Option<Counters> {
        // SAFETY: the lane owns its state.
        if !unsafe { self.state.as_ref() }.broken.replace(false) {
            return None;
        }
        let new = manager(engine(), self.state);
        Some(*std::mem::replace(self.manager(), new).counters())
    }

    /// Returns the lane's engine. Must be called while no batch is under way.
    pub(crate) fn manager(&mut self) -> &mut TrafficManager<Native> {
        // SAFETY: the lane owns the engine. Besides the lane, only its packets use the engine, and the lane has no
        // packet now. The caller has exclusive access to the lane and does not run it.
        unsafe { self.state.as_ref().manager.as_ptr().as_mut_unchecked() }
    }
}

/// Entry point of a lane's stack; never returns. Yields when no packets are left, and is resumed when there are packets
/// again. Invariant: when this function yields, no value that needs to be dropped is on the stack.
extern "C" fn run(state: *const State) -> ! {
    // SAFETY: the state lives as long as the lane. The lane's stack is not resumed after the lane is dropped.
    let state = unsafe { &*state };
    let yield_point = &state.yield_point;
    loop {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| process(state))) {
            state.broken.set(true);
            let scheduler = yield_point.scheduler();
            scheduler.fail(panic);
            scheduler.packets.over(yield_point.number.get());
        }
        yield_point.become_idle();
        // SAFETY: this is the lane's stack, which runs only while a batch is under way.
        unsafe { leave(yield_point) };
    }
}

/// Processes packets until no packets are left.
fn process(state: &State) {
    let yield_point = &state.yield_point;
    let scheduler = yield_point.scheduler();
    let batch = scheduler.batch.get().expect("a batch is under way");
    // SAFETY: the tables and externs outlive the batch.
    let (tables, externs) = unsafe { (&*batch.tables, &*batch.externs) };
    let mut sink = OrderedSink::new(batch.sink, Yielder::new(NonNull::from(yield_point)));
    // SAFETY: only this lane uses the engine while a batch is under way.
    let manager = unsafe { &mut *state.manager.as_ptr() };
    // SAFETY: the bytes of packets stay valid until the batch has ended.
    while let Some((number, packet)) = unsafe { scheduler.packets.take() } {
        yield_point.number.set(number);
        manager.process(tables, externs, packet, &mut sink);
        scheduler.packets.over(number);
    }
}

impl Drop for Lane {
    fn drop(&mut self) {
        // No packet is in the lane, and the lane's stack is never resumed. SAFETY: manager and state came from boxes,
        // and no other reference to them is left.
        unsafe {
            drop(Box::from_raw(self.state.as_ref().manager.as_ptr()));
            drop(Box::from_raw(self.state.as_ptr()));
        }
    }
}

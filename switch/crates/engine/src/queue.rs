// SPDX-License-Identifier: Apache-2.0
//! Between ingress and egress: where packets wait while a port takes no more.
//!
//! Queues are the caller's. As long as none is used, which [`Congestion`] says, a packet goes from ingress to egress
//! without asking. Else [`Sink::queue`] is asked for each packet, and one that waits is the caller's until it comes back
//! by [`Switch::leave_queue`].
//!
//! [`Sink::queue`]: crate::Sink::queue
//! [`Switch::leave_queue`]: crate::Switch::leave_queue

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_program::Program;

use crate::packet::Packet;

/// Says to the engines of one worker whether packets may have to wait. Clones say the same.
#[derive(Clone, Debug, Default)]
pub struct Congestion(Arc<AtomicBool>);

impl Congestion {
    /// Whether [`Sink::queue`](crate::Sink::queue) is to be asked.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Has it asked from the next packet on, or no more.
    pub fn set(&self, on: bool) {
        self.0.store(on, Ordering::Relaxed);
    }
}

impl PartialEq for Congestion {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Congestion {}

/// What a port does with a packet that comes from ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It enters egress at once.
    Pass,
    /// It waits: the packet was taken with [`Arrival::take`].
    Waits,
    /// There is no room.
    Full,
}

/// A packet at the end of ingress, for a port's queue.
pub struct Arrival<'a> {
    pub(crate) program: &'a Arc<Program>,
    pub(crate) packet: &'a mut Packet,
    pub(crate) input: &'a [u8],
    pub(crate) passes: u32,
    /// The port that it leaves by.
    pub port: u32,
    /// The queue of the port: below [`Config::queues`](crate::Config::queues), the highest first.
    pub priority: u32,
    /// Now, in microseconds.
    pub now_us: u64,
}

impl Arrival<'_> {
    /// Takes the packet, in the buffers of one that has left; before it there are `depth` in the queue.
    pub fn take(&mut self, spare: Option<Box<Queued>>, depth: u32) -> Box<Queued> {
        let mut queued = spare.unwrap_or_else(|| {
            Box::new(Queued {
                packet: Packet::new(self.program),
                data: Vec::new(),
                passes: 0,
                port: 0,
                priority: 0,
                enqueued_us: 0,
                enqueued_depth: 0,
            })
        });
        std::mem::swap(&mut queued.packet, self.packet);
        queued.data.clear();
        if !queued.packet.is_recirculated() {
            queued.data.extend_from_slice(self.input);
        }
        queued.passes = self.passes;
        queued.port = self.port;
        queued.priority = self.priority;
        queued.enqueued_us = self.now_us;
        queued.enqueued_depth = depth;
        queued
    }
}

/// A packet that waits for egress, with the bytes that it came in with. Of use only to switches of the program that it
/// was processed by.
#[derive(Debug)]
pub struct Queued {
    pub(crate) packet: Packet,
    pub(crate) data: Vec<u8>,
    /// How often it entered ingress or egress.
    pub(crate) passes: u32,
    pub(crate) port: u32,
    pub(crate) priority: u32,
    pub(crate) enqueued_us: u64,
    pub(crate) enqueued_depth: u32,
}

/// What a packet has of its queue when it enters egress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stamps {
    pub(crate) enqueued_us: u64,
    pub(crate) enqueued_depth: u32,
    pub(crate) delay_us: u64,
    pub(crate) dequeued_depth: u32,
    pub(crate) priority: u32,
}

impl Stamps {
    /// Those of a packet that does not wait.
    #[inline]
    pub(crate) fn passing(now_us: u64, priority: u32) -> Self {
        Self {
            enqueued_us: now_us,
            enqueued_depth: 0,
            delay_us: 0,
            dequeued_depth: 0,
            priority,
        }
    }
}

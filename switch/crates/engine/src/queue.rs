// SPDX-License-Identifier: Apache-2.0
//! Egress queues: hold packets between ingress and egress while a port is congested.
//!
//! The queues belong to the caller. While [`Congestion`] is off, packets go from ingress directly to egress. While it
//! is on, [`Sink::queue`] decides about each packet. If a packet waits, the caller keeps it, and later passes it to
//! [`TrafficManager::leave_queue`].
//!
//! [`Sink::queue`]: crate::Sink::queue
//! [`TrafficManager::leave_queue`]: crate::TrafficManager::leave_queue

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use sluice_program::Program;

use crate::packet::Packet;

/// Flag for the engines of one worker: whether packets may have to wait in egress queues. Clones share the flag.
#[derive(Clone, Debug, Default)]
pub struct Congestion(Arc<AtomicBool>);

impl Congestion {
    /// Returns whether [`Sink::queue`](crate::Sink::queue) must be called for each packet.
    #[inline(always)]
    pub fn is_on(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Turns the flag on or off, from the next packet on.
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

/// A port's decision about a packet from ingress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// The packet enters egress immediately.
    Pass,
    /// The packet waits. The sink has taken it with [`Arrival::take`], and put it into a queue.
    Waits,
    /// The queue is full: the packet is dropped.
    Full,
}

/// A packet at the end of ingress that may enter a port's queue.
pub struct Arrival<'a> {
    pub(crate) program: &'a Arc<Program>,
    pub(crate) packet: &'a mut Packet,
    pub(crate) input: &'a [u8],
    pub(crate) passes: u32,
    /// The egress port.
    pub port: u32,
    /// The queue of the port, below [`Config::queues`](crate::Config::queues). The queue with the highest number is
    /// served first.
    pub priority: u32,
    /// The current time in microseconds.
    pub now_us: u64,
}

impl Arrival<'_> {
    /// Takes the packet, to put it into a queue in which `depth` packets already wait. Reuses the buffers of `spare`, a
    /// packet that has left its queue.
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

/// A packet that waits for egress, with a copy of the received bytes. Only a traffic manager of the same program may
/// process the packet.
#[derive(Debug)]
pub struct Queued {
    pub(crate) packet: Packet,
    pub(crate) data: Vec<u8>,
    /// Number of times that the packet entered ingress or egress.
    pub(crate) passes: u32,
    pub(crate) port: u32,
    pub(crate) priority: u32,
    pub(crate) enqueued_us: u64,
    pub(crate) enqueued_depth: u32,
}

/// The queueing metadata of a packet that enters egress.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueMetadata {
    pub(crate) enqueued_us: u64,
    pub(crate) enqueued_depth: u32,
    pub(crate) delay_us: u64,
    pub(crate) dequeued_depth: u32,
    pub(crate) priority: u32,
}

impl QueueMetadata {
    /// Returns the queueing metadata of a packet that does not wait.
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

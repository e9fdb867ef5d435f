// SPDX-License-Identifier: Apache-2.0
//! Holds the packets of one worker that wait for a port, by priority.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_engine::{Admission, Arrival, Queued};

use crate::levels::{PortLevels, Verdict};

/// Buffers of packets that have left their queues, kept for reuse.
#[derive(Default)]
pub(crate) struct Spares(
    /// Boxed, so that moving a packet copies only a pointer.
    #[allow(clippy::vec_box)]
    Vec<Box<Queued>>,
);

impl Spares {
    /// Maximum number of buffers to keep.
    const MOST: usize = 1024;

    pub(crate) fn put(&mut self, queued: Box<Queued>) {
        if self.0.len() < Self::MOST {
            self.0.push(queued);
        }
    }

    /// Drops all buffers, because a buffer fits only the program for which it was allocated.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A packet that leaves its queue, and the number of packets that remain in the queue.
pub(crate) struct Leaving {
    pub(crate) queued: Box<Queued>,
    pub(crate) depth: u32,
}

struct Waiting {
    queued: Box<Queued>,
    due_ns: u64,
}

/// Queues of one port; see the module's documentation.
pub(crate) struct PortQueues {
    levels: Arc<PortLevels>,
    /// Waiting packets, indexed by priority.
    queues: Vec<VecDeque<Waiting>>,
}

impl PortQueues {
    /// Creates empty queues.
    pub(crate) fn new(levels: Arc<PortLevels>) -> Self {
        let queues = levels.all().iter().map(|_| VecDeque::new()).collect();
        Self { levels, queues }
    }

    /// Returns whether no packet waits and no packet would have to wait.
    pub(crate) fn are_idle(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty) && !self.levels.are_restricted()
    }

    /// Returns whether packets may have to wait even while the port accepts frames, because a queue has a rate, or a
    /// depth of 0.
    pub(crate) fn are_restricted(&self) -> bool {
        self.levels.are_restricted()
    }

    /// Offers a packet for the port. `blocked` says whether the port accepts no more frames.
    pub(crate) fn offer(
        &mut self,
        arrival: &mut Arrival<'_>,
        blocked: bool,
        spares: &mut Spares,
    ) -> Admission {
        let priority = arrival.priority as usize;
        let (Some(level), Some(queue)) = (
            self.levels.all().get(priority),
            self.queues.get_mut(priority),
        ) else {
            // The engine counts this drop.
            return Admission::Full;
        };
        let must_wait = blocked || !queue.is_empty();
        match level.admit(arrival.now_us * 1_000, must_wait) {
            Verdict::Pass => Admission::Pass,
            Verdict::Full => Admission::Full,
            Verdict::Waits { depth, due_ns } => {
                let queued = arrival.take(spares.0.pop(), depth);
                queue.push_back(Waiting { queued, due_ns });
                Admission::Waits
            }
        }
    }

    /// Removes and returns the next packet to send. Of the packets at the front of the queues that may leave now, takes
    /// the one with the highest priority.
    pub(crate) fn next(&mut self, now_ns: u64) -> Option<Leaving> {
        let levels = self.levels.all().iter();
        for (level, queue) in levels.zip(&mut self.queues).rev() {
            if queue.front().is_some_and(|first| first.due_ns <= now_ns)
                && let Some(first) = queue.pop_front()
            {
                return Some(Leaving {
                    queued: first.queued,
                    depth: level.leave(),
                });
            }
        }
        None
    }

    /// Returns the earliest time at which a waiting packet may leave, in nanoseconds.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let firsts = self.queues.iter().filter_map(VecDeque::front);
        firsts.map(|first| first.due_ns).min()
    }

    /// Drops all waiting packets. Returns how many were dropped.
    pub(crate) fn clear(&mut self) -> usize {
        let mut dropped = 0;
        for (level, queue) in self.levels.all().iter().zip(&mut self.queues) {
            for _ in queue.drain(..) {
                level.leave();
                dropped += 1;
            }
        }
        dropped
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The packets of one worker that wait for a port, by priority.

use std::collections::VecDeque;
use std::sync::Arc;

use sluice_engine::{Admission, Arrival, Queued};

use crate::levels::{PortLevels, Verdict};

/// Free buffers of packets that have left, for reuse.
#[derive(Default)]
pub(crate) struct Spares(
    /// Boxed, so that a packet moves by its pointer.
    #[allow(clippy::vec_box)]
    Vec<Box<Queued>>,
);

impl Spares {
    /// Most free buffers that are kept.
    const MOST: usize = 1024;

    pub(crate) fn put(&mut self, queued: Box<Queued>) {
        if self.0.len() < Self::MOST {
            self.0.push(queued);
        }
    }

    /// Drops all buffers: they fit one program only.
    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// A packet that leaves its queue, and the number of packets that remain in it.
pub(crate) struct Leaving {
    pub(crate) queued: Box<Queued>,
    pub(crate) depth: u32,
}

struct Waiting {
    queued: Box<Queued>,
    due_ns: u64,
}

/// The queues of one port; see the module.
pub(crate) struct PortQueues {
    levels: Arc<PortLevels>,
    /// The queues, indexed by priority.
    queues: Vec<VecDeque<Waiting>>,
}

impl PortQueues {
    /// Creates empty queues.
    pub(crate) fn new(levels: Arc<PortLevels>) -> Self {
        let queues = levels.all().iter().map(|_| VecDeque::new()).collect();
        Self { levels, queues }
    }

    /// Whether no packet waits, and none has to.
    pub(crate) fn are_idle(&self) -> bool {
        self.queues.iter().all(VecDeque::is_empty) && !self.levels.are_restricted()
    }

    /// Whether packets may have to wait although the port takes frames.
    pub(crate) fn are_restricted(&self) -> bool {
        self.levels.are_restricted()
    }

    /// Offers a packet for the port, which may be blocked.
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
            // The engine counts these drops.
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

    /// Removes and returns the first packet of the highest priority whose first packet may leave now.
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

    /// Returns the time at which the next packet may leave, in nanoseconds.
    pub(crate) fn due_ns(&self) -> Option<u64> {
        let firsts = self.queues.iter().filter_map(VecDeque::front);
        firsts.map(|first| first.due_ns).min()
    }

    /// Drops all packets that wait; returns how many.
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

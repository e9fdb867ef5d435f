// SPDX-License-Identifier: Apache-2.0
//! The sending half of a worker: puts frames into its queue.

use std::sync::Arc;

use sluice_ports::{MAX_FRAME, PortCounters, SendDrop, Transmitter};

use crate::queue::{Buffer, Queues};

/// See the module.
pub struct EngineTransmitter {
    queues: Arc<Queues>,
    worker: usize,
    /// Frames that have not been flushed.
    frames: Buffer,
    counters: Arc<PortCounters>,
}

impl EngineTransmitter {
    pub(crate) fn new(queues: &Arc<Queues>, worker: usize, counters: &Arc<PortCounters>) -> Self {
        Self {
            queues: Arc::clone(queues),
            worker,
            frames: Buffer::new(),
            counters: Arc::clone(counters),
        }
    }

    /// Moves what was pushed to the queue.
    fn hand_over(&mut self) {
        let pushed = self.frames.len();
        if pushed == 0 {
            return;
        }
        if self.queues.have_ended() {
            self.frames.clear();
            let counters = &self.counters;
            counters.send_dropped(SendDrop::LinkDown, pushed as u64);
            return;
        }
        let moved = self.queues.offer(self.worker, &mut self.frames);
        self.counters.sent(moved.frames as u64, moved.bytes as u64);
        let lost = (pushed - moved.frames) as u64;
        if lost != 0 {
            self.counters.send_dropped(SendDrop::QueueFull, lost);
        }
    }
}

impl Transmitter for EngineTransmitter {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let bytes = headers.len() + payload.len();
        if bytes > MAX_FRAME {
            self.counters.send_dropped(SendDrop::Length, 1);
            return true;
        }
        if !self.frames.push(headers, payload) {
            self.hand_over();
            // It is empty now, and takes every frame that is not too long.
            self.frames.push(headers, payload);
        }
        // What finds no room is dropped: nothing waits for the engine.
        true
    }

    fn flush(&mut self) -> bool {
        self.hand_over();
        true
    }
}

// SPDX-License-Identifier: Apache-2.0
//! The sending half of a worker: copies frames into its queue.

use std::sync::Arc;

use sluice_ports::{MAX_FRAME, PortCounters, SendDrop, Transmitter};

use crate::queue::{Buffer, Queues};

/// A worker's sending half: see the module.
pub struct EngineTransmitter {
    queues: Arc<Queues>,
    worker: usize,
    /// Frames not flushed yet.
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

    /// Moves the pushed frames to the queue.
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
            // The buffer is empty now, and accepts every frame that is not too long.
            self.frames.push(headers, payload);
        }
        // Frames without room are dropped: no worker waits for the engine.
        true
    }

    fn flush(&mut self) -> bool {
        self.hand_over();
        true
    }
}

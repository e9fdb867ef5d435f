// SPDX-License-Identifier: Apache-2.0
//! Implements the sending half of a worker, which copies frames into the worker's queue.

use std::sync::Arc;

use sluice_ports::{MAX_FRAME, PortCounters, SendDrop, Transmitter};

use crate::queue::{Buffer, Queues};

/// Sending half of one worker; see the module's documentation.
pub struct EngineTransmitter {
    queues: Arc<Queues>,
    worker: usize,
    /// Pushed frames that are not flushed yet.
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

    /// Moves the pushed frames to the worker's queue.
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
            // The buffer is empty now, so it accepts every frame that is not longer than the buffer.
            self.frames.push(headers, payload);
        }
        // Frames that do not fit are dropped, so that no worker waits for the engine.
        true
    }

    fn flush(&mut self) -> bool {
        self.hand_over();
        true
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Implements the receiving half, which runs the engine when a worker polls for a batch.

use std::os::fd::BorrowedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use sluice_esp::{Batch, Engine};
use sluice_esp_control::command::{Commands, Frames, now};
use sluice_ports::{Deliver, Frame, PortCounters, PortId, PortStatistics, Receiver};

use crate::queue::{Buffer, Queues};

/// Maximum number of batches in one poll. With this number, a poll of this port returns at most as many frames as a
/// poll of another port.
const BATCHES: usize = 4;

/// Receiving half of the port; see the module's documentation.
pub struct EngineReceiver {
    port: PortId,
    queues: Arc<Queues>,
    /// The engine; None after it has failed or ended.
    running: Option<Running>,
    /// Frames that were taken from a queue.
    taken: Buffer,
    /// Index of the next frame in `taken`.
    next: usize,
    /// Index of the queue to poll next.
    turn: usize,
    /// Frames being served; the engine replaces them by their answers.
    batches: [Batch; BATCHES],
    counters: Arc<PortCounters>,
}

/// An engine and its commands. Both are dropped together, so that clients waiting for an answer notice that the engine
/// has ended.
struct Running {
    engine: Engine,
    commands: Commands,
}

impl EngineReceiver {
    pub(crate) fn new(
        port: PortId,
        queues: Arc<Queues>,
        commands: Commands,
        counters: Arc<PortCounters>,
    ) -> Self {
        Self {
            port,
            queues,
            running: Some(Running {
                engine: Engine::default(),
                commands,
            }),
            taken: Buffer::new(),
            next: 0,
            turn: 0,
            batches: std::array::from_fn(|_| Batch::default()),
            counters,
        }
    }

    /// Runs the waiting commands and serves up to `budget` frames. Returns how many frames were served.
    fn serve(&mut self, budget: usize) -> usize {
        self.guarded(|this| this.serve_batch(budget))
    }

    /// Runs `work`. If it panics, ends the engine and drops the batch.
    fn guarded(&mut self, work: impl FnOnce(&mut Self) -> usize) -> usize {
        self.forget();
        let done = catch_unwind(AssertUnwindSafe(|| work(self)));
        done.unwrap_or_else(|_| {
            let port = self.port;
            tracing::error!(port, "the ESP engine has failed: its port is down");
            self.end();
            0
        })
    }

    fn serve_batch(&mut self, budget: usize) -> usize {
        let Some(Running { engine, commands }) = &mut self.running else {
            return 0;
        };
        if !commands.is_empty() {
            let frames = || frames(self.counters.read());
            if !commands.serve(engine, now(), frames) {
                self.end();
                return 0;
            }
        }
        let mut served = 0;
        for batch in &mut self.batches {
            while served < budget && !batch.is_full() {
                if self.next == self.taken.len() {
                    self.taken.clear();
                    self.next = 0;
                    match self.queues.take(self.turn, &mut self.taken) {
                        Some(turn) => self.turn = turn,
                        None => break,
                    }
                }
                batch.push(self.taken.get(self.next), &[]);
                self.next += 1;
                served += 1;
            }
            if batch.is_empty() {
                break;
            }
            // The engine counts the drops.
            engine.process_batch(batch, now());
        }
        served
    }

    /// Clears the frames that the previous poll returned.
    fn forget(&mut self) {
        self.batches.iter_mut().for_each(Batch::clear);
    }

    /// Ends the engine: drops it and its frames.
    fn end(&mut self) {
        self.queues.end();
        self.forget();
        self.taken.clear();
        self.next = 0;
        self.running = None;
    }
}

/// Returns the port's counters from the engine's point of view: the frames that the switch sent to the port are those
/// that the engine received.
fn frames(read: PortStatistics) -> Frames {
    Frames {
        received: read.tx_packets,
        receive_dropped: read.tx_dropped,
        sent: read.rx_packets,
        send_dropped: read.rx_dropped,
    }
}

impl Receiver for EngineReceiver {
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize {
        let mut served = self.serve(budget);
        if served == 0 && self.queues.signal.lower() {
            // Frames that arrived before `lower` found the signal raised, so they caused no new wake-up. The second
            // poll takes them.
            served = self.serve(budget);
        }
        let (mut answers, mut bytes) = (0, 0);
        for frame in self.batches.iter().flat_map(Batch::answers) {
            answers += 1;
            bytes += frame.len() as u64;
            deliver(self.port, Frame::Kept(frame));
        }
        if answers != 0 {
            self.counters.received(answers, bytes);
        }
        served
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queues.signal.descriptor())
    }
}

impl Drop for EngineReceiver {
    /// Ends the engine, because the port is removed or the switch stops.
    fn drop(&mut self) {
        self.end();
    }
}

#[cfg(test)]
mod tests {
    use sluice_esp_control::command::Command;
    use sluice_ports::Transmitter;

    use super::*;
    use crate::port;

    #[test]
    fn a_panic_ends_the_engine_and_nothing_else() {
        let counters = Arc::new(PortCounters::default());
        let mut port = port(9, 1, &counters).unwrap();
        let to_engine = &mut port.transmitters[0];
        to_engine.push(b"before");
        to_engine.flush();
        assert_eq!(port.receiver.guarded(|_| panic!("a test")), 0);
        let mut deliver = |_: PortId, _: Frame<'_, '_>| panic!("no frame is delivered");
        assert_eq!(port.receiver.receive(64, &mut deliver), 0);
        assert!(port.engine.ask(Command::Status).is_none());
        to_engine.push(b"after");
        to_engine.flush();
        assert_eq!(counters.read().tx_link_down, 1);
    }
}

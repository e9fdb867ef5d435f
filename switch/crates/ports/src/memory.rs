// SPDX-License-Identifier: Apache-2.0
//! Implements ports in memory. A handle is the far end of a port: frames that it sends arrive at the port's receiver,
//! and frames that the port's transmitter sends arrive at it.
//!
//! The queues of both directions are bounded. Frames that do not fit are dropped and counted.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use crate::poller::Waker;
use crate::{Deliver, Frame, MAX_FRAME, PortCounters, PortId, Receiver, SendDrop, Transmitter};

/// Queue from a handle to a half of a port, or the reverse. Several producers can share the queue. Frames keep their
/// order.
#[derive(Debug)]
pub(crate) struct FrameQueue {
    state: Mutex<QueueState>,
    changed: Condvar,
    waker: Waker,
    capacity: usize,
}

#[derive(Debug, Default)]
struct QueueState {
    frames: VecDeque<(PortId, Vec<u8>)>,
    closed: bool,
}

impl FrameQueue {
    pub(crate) fn new(capacity: usize) -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self {
            state: Mutex::default(),
            changed: Condvar::new(),
            waker: Waker::new()?,
            capacity,
        }))
    }

    /// Adds a frame. Returns false if the queue is full.
    pub(crate) fn offer(&self, port: PortId, frame: Vec<u8>) -> bool {
        let mut state = self.state.lock();
        if state.frames.len() >= self.capacity {
            return false;
        }
        let was_empty = state.frames.is_empty();
        state.frames.push_back((port, frame));
        drop(state);
        self.changed.notify_all();
        if was_empty {
            self.waker.wake();
        }
        true
    }

    /// Adds frames while there is room. Returns the number of frames added.
    fn offer_all(&self, port: PortId, mut frames: Vec<Vec<u8>>) -> usize {
        let mut state = self.state.lock();
        frames.truncate(self.capacity.saturating_sub(state.frames.len()));
        let (was_empty, count) = (state.frames.is_empty(), frames.len());
        let frames = frames.into_iter().map(|frame| (port, frame));
        state.frames.extend(frames);
        drop(state);
        if count != 0 {
            self.changed.notify_all();
            if was_empty {
                self.waker.wake();
            }
        }
        count
    }

    /// Adds a frame, and waits for room if necessary. Returns false if the receiver is gone.
    pub(crate) fn put(&self, port: PortId, frame: Vec<u8>) -> bool {
        let mut state = self.state.lock();
        while state.frames.len() >= self.capacity && !state.closed {
            self.changed.wait(&mut state);
        }
        if state.closed {
            return false;
        }
        drop(state);
        self.offer(port, frame)
    }

    pub(crate) fn close(&self) {
        self.state.lock().closed = true;
        self.changed.notify_all();
        self.waker.wake();
    }

    /// Moves up to `most` frames from the queue to `taken`.
    fn take(&self, most: usize, taken: &mut Vec<(PortId, Vec<u8>)>) {
        let mut state = self.state.lock();
        let count = most.min(state.frames.len());
        taken.extend(state.frames.drain(..count));
        if count != 0 {
            self.changed.notify_all();
        }
        if state.frames.is_empty() && !state.closed {
            self.waker.reset();
        }
    }

    fn take_before(&self, deadline: Instant) -> Option<Vec<u8>> {
        let mut state = self.state.lock();
        loop {
            if let Some((_, frame)) = state.frames.pop_front() {
                return Some(frame);
            }
            if self.changed.wait_until(&mut state, deadline).timed_out() {
                return state.frames.pop_front().map(|(_, frame)| frame);
            }
        }
    }
}

/// Receives frames from a [`FrameQueue`].
#[derive(Debug)]
pub struct MemoryReceiver {
    queue: Arc<FrameQueue>,
    counters: Option<Arc<PortCounters>>,
    /// Frames of the last call of `receive`.
    taken: Vec<(PortId, Vec<u8>)>,
}

impl MemoryReceiver {
    pub(crate) fn new(queue: Arc<FrameQueue>, counters: Option<Arc<PortCounters>>) -> Self {
        let taken = Vec::new();
        Self {
            queue,
            counters,
            taken,
        }
    }
}

impl Receiver for MemoryReceiver {
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize {
        self.taken.clear();
        self.queue.take(budget, &mut self.taken);
        for (port, frame) in &self.taken {
            if let Some(counters) = &self.counters {
                counters.received(1, frame.len() as u64);
            }
            deliver(*port, Frame::Kept(frame));
        }
        self.taken.len()
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.queue.waker.as_fd())
    }

    fn finished(&self) -> bool {
        let state = self.queue.state.lock();
        state.closed && state.frames.is_empty()
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        self.queue.close();
    }
}

/// The sending half of a memory port.
#[derive(Debug, Clone)]
pub struct MemoryTransmitter {
    port: PortId,
    queue: Arc<FrameQueue>,
    counters: Arc<PortCounters>,
}

impl Transmitter for MemoryTransmitter {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let bytes = headers.len() + payload.len();
        if bytes > MAX_FRAME {
            self.counters.send_dropped(SendDrop::Length, 1);
        } else if self.queue.offer(self.port, [headers, payload].concat()) {
            self.counters.sent(1, bytes as u64);
        } else {
            self.counters.send_dropped(SendDrop::QueueFull, 1);
        }
        true
    }

    fn flush(&mut self) -> bool {
        true
    }
}

/// The far end of a memory port's link.
#[derive(Debug, Clone)]
pub struct MemoryHandle {
    port: PortId,
    to_switch: Arc<FrameQueue>,
    from_switch: Arc<FrameQueue>,
}

impl MemoryHandle {
    /// Sends a frame to the switch. Returns false if the queue is full.
    pub fn send(&self, frame: &[u8]) -> bool {
        self.to_switch.offer(self.port, frame.to_vec())
    }

    /// Sends frames to the switch, in order, while the queue has room. Wakes the switch's receiver once. Returns the
    /// number of frames sent.
    pub fn send_all(&self, frames: Vec<Vec<u8>>) -> usize {
        self.to_switch.offer_all(self.port, frames)
    }

    /// Returns the next frame that the switch sent. Waits for at most `timeout`.
    pub fn receive(&self, timeout: Duration) -> Option<Vec<u8>> {
        self.from_switch.take_before(Instant::now() + timeout)
    }
}

/// A memory port with room for `capacity` frames in each direction.
#[derive(Debug)]
pub struct MemoryPort {
    /// The switch's receiver.
    pub receiver: MemoryReceiver,
    /// The switch's transmitter. Clone it for further workers.
    pub transmitter: MemoryTransmitter,
    /// The far end of the link, for tests.
    pub handle: MemoryHandle,
}

/// Creates a memory port.
pub fn port(port: PortId, capacity: usize, counters: &Arc<PortCounters>) -> io::Result<MemoryPort> {
    let to_switch = FrameQueue::new(capacity)?;
    let from_switch = FrameQueue::new(capacity)?;
    Ok(MemoryPort {
        receiver: MemoryReceiver::new(to_switch.clone(), Some(counters.clone())),
        transmitter: MemoryTransmitter {
            port,
            queue: from_switch.clone(),
            counters: counters.clone(),
        },
        handle: MemoryHandle {
            port,
            to_switch,
            from_switch,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_keep_their_order_and_carry_their_port() {
        let counters = Arc::new(PortCounters::default());
        let mut memory = port(3, 8, &counters).unwrap();
        assert!(memory.handle.send(b"one") && memory.handle.send(b"two"));
        let mut seen = Vec::new();
        let count = memory
            .receiver
            .receive(16, &mut |port, frame| seen.push((port, frame.to_vec())));
        assert_eq!(count, 2);
        assert_eq!(seen, [(3, b"one".to_vec()), (3, b"two".to_vec())]);
        assert_eq!(counters.read().rx_bytes, 6);
    }

    #[test]
    fn a_full_queue_drops_and_counts() {
        let counters = Arc::new(PortCounters::default());
        let mut memory = port(0, 1, &counters).unwrap();
        memory.transmitter.push(b"kept");
        memory.transmitter.push(b"dropped");
        assert_eq!(
            memory.handle.receive(Duration::ZERO),
            Some(b"kept".to_vec())
        );
        assert_eq!(memory.handle.receive(Duration::ZERO), None);
        assert_eq!(
            (counters.read().tx_packets, counters.read().tx_dropped),
            (1, 1)
        );
    }
}

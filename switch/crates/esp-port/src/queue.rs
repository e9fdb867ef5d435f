// SPDX-License-Identifier: Apache-2.0
//! Passes frames to the engine, through a bounded queue for each worker.
//!
//! Each queue is a buffer. A worker first collects frames in a buffer of its own. If the queue's buffer is empty, the
//! worker swaps the two buffers. Otherwise the worker copies its frames to the queue's buffer. The receiving worker
//! swaps the queue's buffer with an empty one.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use sluice_ports::MAX_FRAME;

use crate::signal::Signal;

/// Capacity of a buffer in frames.
pub(crate) const FRAMES: usize = 2048;
/// Capacity of a buffer in bytes, enough for several frames of maximum length.
pub(crate) const BYTES: usize = 1 << 20;

const _: () = assert!(BYTES > 2 * MAX_FRAME);

/// Frames stored back to back. Memory beyond the highest fill level so far is never touched.
pub(crate) struct Buffer {
    bytes: Box<[u8]>,
    used: usize,
    /// End offset of each frame.
    ends: Vec<usize>,
}

impl Buffer {
    pub(crate) fn new() -> Self {
        Self {
            bytes: vec![0; BYTES].into(),
            used: 0,
            ends: Vec::with_capacity(FRAMES),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ends.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    pub(crate) fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }

    pub(crate) fn clear(&mut self) {
        self.used = 0;
        self.ends.clear();
    }

    /// Copies a frame. Returns false if there is no room.
    pub(crate) fn push(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let end = self.used + headers.len() + payload.len();
        let room = self.bytes.get_mut(self.used..end);
        let Some(room) = room.filter(|_| self.ends.len() < FRAMES) else {
            return false;
        };
        let (first, second) = room.split_at_mut(headers.len());
        first.copy_from_slice(headers);
        second.copy_from_slice(payload);
        self.used = end;
        self.ends.push(end);
        true
    }
}

/// Numbers of frames and bytes that were moved to a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Moved {
    pub(crate) frames: usize,
    pub(crate) bytes: usize,
}

/// Queues of all workers; see the module's documentation.
pub(crate) struct Queues {
    by_worker: Box<[Mutex<Buffer>]>,
    pub(crate) signal: Signal,
    /// Whether the engine has ended.
    ended: AtomicBool,
}

impl Queues {
    pub(crate) fn new(workers: usize) -> io::Result<Self> {
        Ok(Self {
            by_worker: (0..workers).map(|_| Mutex::new(Buffer::new())).collect(),
            signal: Signal::new()?,
            ended: AtomicBool::new(false),
        })
    }

    /// Moves a worker's frames to its queue, and drops frames that do not fit. Returns the numbers of frames and bytes
    /// moved.
    pub(crate) fn offer(&self, worker: usize, frames: &mut Buffer) -> Moved {
        let mut moved = Moved {
            frames: frames.len(),
            bytes: frames.used,
        };
        let mut queue = self.by_worker[worker].lock();
        if queue.is_empty() {
            std::mem::swap(&mut *queue, frames);
        } else {
            for index in 0..frames.len() {
                let frame = frames.get(index);
                if !queue.push(frame, &[]) {
                    moved.frames -= 1;
                    moved.bytes -= frame.len();
                }
            }
        }
        drop(queue);
        frames.clear();
        self.signal.raise();
        moved
    }

    /// Swaps an empty buffer with the first queue that has frames, in round robin starting with worker `from`. Returns
    /// the worker to start with next time, or None if all queues are empty.
    pub(crate) fn take(&self, from: usize, empty: &mut Buffer) -> Option<usize> {
        let workers = self.by_worker.len();
        let mut turn = (0..workers).map(|turn| (from + turn) % workers);
        turn.find_map(|worker| {
            let mut queue = self.by_worker[worker].lock();
            if queue.is_empty() {
                return None;
            }
            std::mem::swap(&mut *queue, empty);
            Some((worker + 1) % workers)
        })
    }

    /// Records that the engine has ended.
    pub(crate) fn end(&self) {
        self.ended.store(true, Ordering::Release);
    }

    pub(crate) fn have_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(buffer: &Buffer) -> Vec<&[u8]> {
        (0..buffer.len()).map(|index| buffer.get(index)).collect()
    }

    #[test]
    fn frames_keep_their_order_whether_exchanged_or_copied() {
        let queues = Queues::new(1).unwrap();
        let (mut mine, mut taken) = (Buffer::new(), Buffer::new());
        for frame in [&b"one"[..], b"two", b"three"] {
            assert!(mine.push(&frame[..1], &frame[1..]));
            assert_eq!(queues.offer(0, &mut mine).frames, 1);
            assert!(mine.is_empty());
        }
        assert_eq!(queues.take(0, &mut taken), Some(0));
        assert_eq!(frames(&taken), [&b"one"[..], b"two", b"three"]);
        taken.clear();
        assert_eq!(queues.take(0, &mut taken), None);
    }

    #[test]
    fn workers_take_turns() {
        let queues = Queues::new(3).unwrap();
        let (mut mine, mut taken) = (Buffer::new(), Buffer::new());
        for worker in 0..3 {
            mine.push(&[worker as u8], &[]);
            queues.offer(worker, &mut mine);
        }
        let mut from = 1;
        let mut seen = Vec::new();
        while let Some(next) = queues.take(from, &mut taken) {
            seen.push(taken.get(0)[0]);
            taken.clear();
            from = next;
        }
        assert_eq!(seen, [1, 2, 0]);
    }

    #[test]
    fn a_queue_is_bounded_by_frames_and_by_bytes() {
        for (size, most) in [(1, FRAMES), (MAX_FRAME, BYTES / MAX_FRAME)] {
            let queues = Queues::new(1).unwrap();
            let (mut mine, frame) = (Buffer::new(), vec![7; size]);
            let mut moved = 0;
            for _ in 0..most + 5 {
                assert!(mine.push(&frame, &[]));
                moved += queues.offer(0, &mut mine).bytes;
            }
            assert_eq!(moved, most * size);
            let mut taken = Buffer::new();
            assert_eq!(queues.take(0, &mut taken), Some(0));
            assert_eq!(taken.len(), most);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Provides ports that take almost no time, to measure the work between ports. Received frames come from memory, in a
//! loop. Sent frames are copied into a ring that is never read.
//!
//! A received frame lies in memory that is not in the CPU's caches, like a frame from a network card. A sent frame is
//! written once, like a frame in a card's ring. Both memories are in huge pages, like the rings of network cards.

use std::fs::File;
use std::io::{self, BufReader};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use sluice_pages::PageVec;

use crate::pcap::Reader;
use crate::poller::Waker;
use crate::{Deliver, Frame, MAX_FRAME, PortCounters, PortId, Receiver, SendDrop, Transmitter};

/// Number of slots in the ring for sent frames. A slot is one cache line longer than a usual frame. So the starts of
/// the slots are spread over many cache sets.
const SLOTS: usize = 512;
const SLOT: usize = 2048 + 64;

/// A sequence of frames, stored back to back.
#[derive(Clone, Debug, Default)]
pub struct Frames {
    bytes: PageVec<u8>,
    ends: PageVec<usize>,
}

impl Frames {
    /// Adds a frame. Truncates it to [`MAX_FRAME`] bytes if it is longer.
    pub fn push(&mut self, frame: &[u8]) {
        let frame = &frame[..frame.len().min(MAX_FRAME)];
        let start = self.bytes.len();
        let end = start + frame.len();
        make_room(&mut self.bytes, end);
        self.bytes.resize(end, 0);
        self.bytes[start..].copy_from_slice(frame);
        let count = self.ends.len() + 1;
        make_room(&mut self.ends, count);
        self.ends.resize(count, end);
    }

    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns whether there are no frames.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn get(&self, index: usize) -> &[u8] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..self.ends[index]]
    }
}

/// Ensures capacity for `count` items; grows to at least twice the old capacity.
fn make_room<T: Copy>(items: &mut PageVec<T>, count: usize) {
    if count > items.capacity() {
        items.reserve(count.max(2 * items.capacity()));
    }
}

/// Reads the frames of a pcap file.
///
/// # Errors
/// Errors of reading the file.
pub fn read(path: impl AsRef<Path>) -> io::Result<Frames> {
    let mut reader = Reader::new(BufReader::new(File::open(path)?))?;
    let mut frames = Frames::default();
    while let Some(record) = reader.next_record()? {
        frames.push(&record.data);
    }
    Ok(frames)
}

/// State that the receiver and its handle share.
#[derive(Debug)]
struct Credit {
    /// Number of frames that may still arrive.
    left: AtomicU64,
    waker: Waker,
}

/// Controls the number of frames that arrive at a replaying port.
#[derive(Debug, Clone)]
pub struct ReplayHandle(Arc<Credit>);

impl ReplayHandle {
    /// Lets `frames` further frames arrive.
    pub fn offer(&self, frames: u64) {
        self.0.left.fetch_add(frames, Ordering::Release);
        self.0.waker.wake();
    }

    /// Lets no further frame arrive. If a batch is being delivered, the rest of this batch still arrives.
    pub fn stop(&self) {
        self.0.left.store(0, Ordering::Release);
    }

    /// Returns the number of frames that were offered and have not arrived yet.
    pub fn left(&self) -> u64 {
        self.0.left.load(Ordering::Acquire)
    }
}

/// The receiving half of a replaying port.
#[derive(Debug)]
pub struct ReplayReceiver {
    port: PortId,
    frames: Arc<Frames>,
    next: usize,
    credit: Arc<Credit>,
    counters: Arc<PortCounters>,
}

impl ReplayReceiver {
    /// Creates a receiver of these frames; there must be at least one. Also returns the handle that controls how many
    /// frames arrive.
    pub fn new(
        port: PortId,
        frames: Arc<Frames>,
        counters: Arc<PortCounters>,
    ) -> io::Result<(Self, ReplayHandle)> {
        if frames.is_empty() {
            return Err(io::Error::new(
                io::ErrorKind::InvalidInput,
                "a replay needs at least one frame",
            ));
        }
        let credit = Arc::new(Credit {
            left: AtomicU64::new(0),
            waker: Waker::new()?,
        });
        let handle = ReplayHandle(Arc::clone(&credit));
        let receiver = Self {
            port,
            frames,
            next: 0,
            credit,
            counters,
        };
        Ok((receiver, handle))
    }

    /// Takes up to `budget` frames from the number of frames that may still arrive. Returns how many it has taken.
    fn take(&self, budget: usize) -> u64 {
        let mut taken = 0;
        let take = |left: u64| {
            taken = left.min(budget as u64);
            Some(left - taken)
        };
        let order = (Ordering::AcqRel, Ordering::Acquire);
        let before = self.credit.left.fetch_update(order.0, order.1, take);
        if before == Ok(0) {
            // Order: the waker is reset before the number is read again. If frames were offered in between, the poller
            // is woken again.
            self.credit.waker.reset();
            if self.credit.left.load(Ordering::Acquire) != 0 {
                self.credit.waker.wake();
            }
        }
        taken
    }
}

impl Receiver for ReplayReceiver {
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize {
        let taken = self.take(budget);
        let mut bytes = 0;
        for _ in 0..taken {
            let frame = self.frames.get(self.next);
            bytes += frame.len() as u64;
            deliver(self.port, Frame::Kept(frame));
            self.next += 1;
            if self.next == self.frames.len() {
                self.next = 0;
            }
        }
        if taken != 0 {
            self.counters.received(taken, bytes);
        }
        taken as usize
    }

    fn readiness(&self) -> Option<BorrowedFd<'_>> {
        Some(self.credit.waker.as_fd())
    }
}

/// A sending half that discards frames.
#[derive(Debug)]
pub struct DiscardTransmitter {
    ring: PageVec<u8>,
    slot: usize,
    packets: u64,
    bytes: u64,
    counters: Arc<PortCounters>,
}

impl DiscardTransmitter {
    /// Creates a transmitter that discards frames.
    pub fn new(counters: Arc<PortCounters>) -> Self {
        let mut ring = PageVec::new();
        ring.resize(SLOTS * SLOT, 0);
        Self {
            ring,
            slot: 0,
            packets: 0,
            bytes: 0,
            counters,
        }
    }
}

impl Transmitter for DiscardTransmitter {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let (start, bytes) = (self.slot * SLOT, headers.len() + payload.len());
        let Some(room) = self.ring[start..start + SLOT].get_mut(..bytes) else {
            self.counters.send_dropped(SendDrop::Length, 1);
            return true;
        };
        let (first, second) = room.split_at_mut(headers.len());
        first.copy_from_slice(headers);
        second.copy_from_slice(payload);
        self.slot = (self.slot + 1) % SLOTS;
        self.packets += 1;
        self.bytes += bytes as u64;
        true
    }

    fn flush(&mut self) -> bool {
        self.counters.sent(self.packets, self.bytes);
        (self.packets, self.bytes) = (0, 0);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn receiver() -> (ReplayReceiver, ReplayHandle) {
        let mut frames = Frames::default();
        frames.push(b"one");
        frames.push(b"three");
        ReplayReceiver::new(7, Arc::new(frames), Arc::default()).unwrap()
    }

    fn receive(receiver: &mut ReplayReceiver, budget: usize) -> Vec<Vec<u8>> {
        let mut seen = Vec::new();
        receiver.receive(budget, &mut |port, frame| {
            assert_eq!(port, 7);
            seen.push(frame.to_vec());
        });
        seen
    }

    #[test]
    fn as_many_frames_come_as_are_offered_and_from_the_first_again() {
        let (mut receiver, handle) = receiver();
        assert!(receive(&mut receiver, 9).is_empty());
        handle.offer(3);
        assert_eq!(receive(&mut receiver, 2), [&b"one"[..], b"three"]);
        assert_eq!(handle.left(), 1);
        assert_eq!(receive(&mut receiver, 9), [b"one"]);
        assert!(receive(&mut receiver, 9).is_empty());
        assert_eq!(receiver.counters.read().rx_packets, 3);
        assert_eq!(receiver.counters.read().rx_bytes, 11);
    }

    #[test]
    fn what_leaves_is_counted_when_it_is_flushed() {
        let counters = Arc::new(PortCounters::default());
        let mut transmitter = DiscardTransmitter::new(Arc::clone(&counters));
        transmitter.push_parts(&[1; 20], &[2; 40]);
        transmitter.push(&[1; SLOT + 1]);
        transmitter.flush();
        let read = counters.read();
        assert_eq!(
            (read.tx_packets, read.tx_bytes, read.tx_too_long),
            (1, 60, 1)
        );
    }

    #[test]
    fn without_frames_there_is_no_port() {
        assert!(ReplayReceiver::new(1, Arc::default(), Arc::default()).is_err());
    }
}

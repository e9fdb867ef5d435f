// SPDX-License-Identifier: Apache-2.0
//! Holds frames that are served together. Each frame has a slot with headroom for headers and tailroom for a trailer.
//! So packets are encrypted and decrypted in place.

use crate::counters::Drop;
use crate::shim::{MAX_OUTPUT, PACKET};

/// Maximum number of frames in a batch.
pub const BATCH: usize = 64;

/// Headroom of a frame, longer than the longest outer headers. With this length, the packet after the shim begins at a
/// cache line.
pub(crate) const HEADROOM: usize = 128 - PACKET;
const LINE: usize = 64;
/// Size of a slot in bytes. It is an odd number of cache lines, so that the frames of a batch fall into different cache
/// sets.
pub(crate) const SLOT: usize = 1_045 * LINE;

const _: () = assert!(SLOT / LINE % 2 == 1 && SLOT >= HEADROOM + 128 + MAX_OUTPUT);

/// A frame within its slot.
pub struct Frame<'a> {
    /// The slot.
    pub(crate) slot: &'a mut [u8],
    pub(crate) start: usize,
    pub(crate) end: usize,
}

impl Frame<'_> {
    /// Returns the frame's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.slot[self.start..self.end]
    }
}

/// State of a frame in a batch: not served yet, or its outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// The frame has not been served yet.
    Waiting,
    /// The slot holds the answer.
    Answered,
    /// The engine keeps the frame: it is a fragment of an incomplete datagram.
    Held,
    /// The frame was dropped, and the drop was counted.
    Dropped(Drop),
}

#[derive(Clone, Copy)]
struct FrameSlot {
    start: usize,
    end: usize,
    outcome: Outcome,
}

/// Up to [`BATCH`] frames, replaced by their answers. Created once and reused.
pub struct Batch {
    memory: Vec<u8>,
    /// Offset of the first slot, at a cache line.
    first: usize,
    slots: [FrameSlot; BATCH],
    count: usize,
}

impl Default for Batch {
    fn default() -> Self {
        let memory = vec![0; BATCH * SLOT + LINE];
        let first = memory.as_ptr().align_offset(LINE).min(LINE);
        let empty = FrameSlot {
            start: 0,
            end: 0,
            outcome: Outcome::Waiting,
        };
        Self {
            memory,
            first,
            slots: [empty; BATCH],
            count: 0,
        }
    }
}

impl Batch {
    /// Returns the number of frames.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Returns whether there is no frame in the batch.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether no further frame fits.
    pub fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// Removes all frames and answers.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    /// Copies a frame, given in one or two parts, into the next slot. Returns false if the batch is full. Truncates a
    /// frame that is longer than a shim and the longest IP packet together. The engine drops such a frame as malformed.
    pub fn push(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let Some(room) = self.room() else {
            return false;
        };
        let headers = &headers[..headers.len().min(room.len())];
        let (front, rest) = room.split_at_mut(headers.len());
        let payload = &payload[..payload.len().min(rest.len())];
        front.copy_from_slice(headers);
        rest[..payload.len()].copy_from_slice(payload);
        self.commit(headers.len() + payload.len());
        true
    }

    /// Returns [`MAX_OUTPUT`] bytes of memory for the next frame, or None if the batch is full. The caller writes the
    /// frame there, and then adds it with [`Batch::commit`].
    pub fn room(&mut self) -> Option<&mut [u8]> {
        if self.is_full() {
            return None;
        }
        let at = self.first + self.count * SLOT + HEADROOM;
        Some(&mut self.memory[at..at + MAX_OUTPUT])
    }

    /// Adds a frame of `length` bytes that the caller wrote into [`Batch::room`].
    pub fn commit(&mut self, length: usize) {
        if let Some(slot) = self.slots.get_mut(self.count) {
            *slot = FrameSlot {
                start: HEADROOM,
                end: HEADROOM + length.min(MAX_OUTPUT),
                outcome: Outcome::Waiting,
            };
            self.count += 1;
        }
    }

    /// Returns the outcome of the frame with this index.
    pub fn outcome(&self, index: usize) -> Outcome {
        self.slots[..self.count][index].outcome
    }

    /// Iterates over the answers, in the order of their frames.
    pub fn answers(&self) -> impl Iterator<Item = &[u8]> {
        let slots = self.slots[..self.count].iter().enumerate();
        slots
            .filter(|(_, slot)| slot.outcome == Outcome::Answered)
            .map(|(index, slot)| &self.slot(index)[slot.start..slot.end])
    }

    /// Returns the frame with this index.
    #[inline]
    pub(crate) fn frame(&mut self, index: usize) -> Frame<'_> {
        let FrameSlot { start, end, .. } = self.slots[index];
        let at = self.first + index * SLOT;
        Frame {
            slot: &mut self.memory[at..at + SLOT],
            start,
            end,
        }
    }

    /// Sets the end of a frame whose length has changed.
    pub(crate) fn set_end(&mut self, index: usize, end: usize) {
        self.slots[index].end = end;
    }

    /// Records the outcome of a frame, and the range of its answer in the slot.
    #[inline]
    pub(crate) fn settle(&mut self, index: usize, outcome: Outcome, start: usize, end: usize) {
        self.slots[index] = FrameSlot {
            start,
            end,
            outcome,
        };
    }

    fn slot(&self, index: usize) -> &[u8] {
        let at = self.first + index * SLOT;
        &self.memory[at..at + SLOT]
    }
}

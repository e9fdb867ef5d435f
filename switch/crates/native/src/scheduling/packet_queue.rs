// SPDX-License-Identifier: Apache-2.0
//! Queues packets for the lanes. Packets are taken in order of arrival, and may be done in any order. The queue tracks
//! the oldest packet that is not done.

use std::cell::Cell;

use sluice_engine::PacketIn;

use crate::scheduling::prefetches;

/// Maximum number of packets that are not done: one for each bit of a word.
pub(crate) const CAPACITY: usize = 64;

/// Prefetch distance of a packet's first bytes, in packets.
const AHEAD: usize = 4;

/// Number of cache lines that are prefetched at the start of a packet. They hold the headers.
const LINES: usize = 2;

/// A queued packet. Its bytes stay valid until the packet is done.
#[derive(Clone, Copy)]
struct Job {
    data: *const [u8],
    port: u32,
    now_us: u64,
}

impl Job {
    const NONE: Self = Self {
        data: &[],
        port: 0,
        now_us: 0,
    };

    /// Prefetches the packet's first two cache lines.
    #[inline]
    fn prefetch(self) {
        let start: *const u8 = self.data.cast();
        prefetches::fetch(start);
        prefetches::fetch(start.wrapping_add(self.data.len().saturating_sub(1).min(64)));
    }

    /// Prefetches the other cache lines of the packet, which are not needed before the packet is sent.
    #[inline]
    fn prefetch_payload(self) {
        let start: *const u8 = self.data.cast();
        let mut at = 64 * LINES;
        while at < self.data.len() {
            prefetches::fetch_later(start.wrapping_add(at));
            at += 64;
        }
    }
}

/// Queue of packets; see the module. One thread uses the queue, from several stacks. Packets are numbered from 0. A
/// packet's slot is free again when the packet is done.
pub(crate) struct PacketQueue {
    packets: [Cell<Job>; CAPACITY],
    /// Number of packets queued so far.
    count: Cell<usize>,
    /// Number (not count) of the first packet that no lane has taken.
    next: Cell<usize>,
    /// Number of the first packet that is not done; equals `count` if all are done.
    oldest: Cell<usize>,
    /// One bit for each packet from `oldest` on, set if the packet is done.
    done: Cell<u64>,
}

impl PacketQueue {
    /// Creates an empty queue.
    pub(crate) fn new() -> Self {
        Self {
            packets: [const { Cell::new(Job::NONE) }; CAPACITY],
            count: Cell::new(0),
            next: Cell::new(0),
            oldest: Cell::new(0),
            done: Cell::new(0),
        }
    }

    /// Returns whether there is room for one more packet.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.count.get() - self.oldest.get() < CAPACITY
    }

    /// Returns the number of packets that no lane has taken.
    #[inline]
    pub(crate) fn waiting(&self) -> usize {
        self.count.get() - self.next.get()
    }

    /// Returns the slot, below [`CAPACITY`], that the next queued packet will get. This packet alone has the slot until
    /// the packet is done.
    #[inline]
    pub(crate) fn saved(&self) -> usize {
        self.count.get() % CAPACITY
    }

    /// Queues a packet. There must be room, and the bytes must stay valid until the packet is done.
    #[inline]
    pub(crate) fn push(&self, packet: PacketIn<'_>) {
        debug_assert!(self.has_room());
        let job = Job {
            data: packet.data,
            port: packet.port,
            now_us: packet.now_us,
        };
        if self.waiting() < AHEAD {
            job.prefetch();
        }
        self.packets[self.saved()].set(job);
        self.count.set(self.count.get() + 1);
    }

    /// Returns the next packet that no lane has taken, with the packet's number. The packet counts as taken from then
    /// on.
    ///
    /// # Safety
    /// The packet's bytes stay valid for `'p`.
    #[inline]
    pub(crate) unsafe fn take<'p>(&self) -> Option<(usize, PacketIn<'p>)> {
        let (number, waiting) = (self.next.get(), self.waiting());
        if waiting == 0 {
            return None;
        }
        self.next.set(number + 1);
        if waiting > AHEAD {
            self.packets[(number + AHEAD) % CAPACITY].get().prefetch();
        }
        let job = self.packets[number % CAPACITY].get();
        job.prefetch_payload();
        let packet = PacketIn {
            // SAFETY: the caller guarantees this (# Safety).
            data: unsafe { &*job.data },
            port: job.port,
            now_us: job.now_us,
        };
        Some((number, packet))
    }

    /// Marks the packet with this number as done. A lane must have taken the packet.
    #[inline]
    pub(crate) fn over(&self, number: usize) {
        let oldest = self.oldest.get();
        let done = self.done.get() | 1 << ((number - oldest) % CAPACITY);
        let all = done.trailing_ones();
        self.done.set(done.checked_shr(all).unwrap_or(0));
        self.oldest.set(oldest + all as usize);
    }

    /// Returns whether the packet with this number is the oldest one that is not done.
    #[inline]
    pub(crate) fn is_oldest(&self, number: usize) -> bool {
        self.oldest.get() == number
    }

    /// Drops the packets that no lane has taken.
    #[cold]
    pub(crate) fn give_up(&self) {
        self.count.set(self.next.get());
    }

    /// Restarts the numbering. All packets must be done.
    #[inline]
    pub(crate) fn clear(&self) {
        debug_assert_eq!(self.count.get(), self.oldest.get());
        self.count.set(0);
        self.next.set(0);
        self.oldest.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(packets: &PacketQueue, port: usize) {
        packets.push(PacketIn {
            data: b"bytes",
            port: port as u32,
            now_us: 0,
        });
    }

    fn packets(count: usize) -> PacketQueue {
        let packets = PacketQueue::new();
        (0..count).for_each(|port| push(&packets, port));
        packets
    }

    fn take(packets: &PacketQueue) -> Option<(usize, u32)> {
        // SAFETY: the bytes are static.
        let taken = unsafe { packets.take() };
        taken.map(|(number, packet)| (number, packet.port))
    }

    #[test]
    fn jobs_are_taken_in_order() {
        let packets = packets(CAPACITY);
        for index in 0..CAPACITY {
            assert_eq!(take(&packets), Some((index, index as u32)));
        }
        assert_eq!(take(&packets), None);
    }

    #[test]
    fn what_is_done_makes_room() {
        let packets = packets(CAPACITY);
        assert!(!packets.has_room());
        assert_eq!(packets.waiting(), CAPACITY);
        for number in 0..3 * CAPACITY {
            assert_eq!(take(&packets), Some((number, (number % CAPACITY) as u32)));
            // In each pair of packets, the second one is done first.
            if number % 2 == 1 {
                packets.over(number);
                assert!(packets.is_oldest(number - 1) && !packets.has_room());
                packets.over(number - 1);
                assert!(packets.is_oldest(number + 1));
                for port in [number - 1, number] {
                    assert!(packets.has_room());
                    assert_eq!(packets.saved(), port % CAPACITY);
                    push(&packets, port % CAPACITY);
                }
            }
        }
    }

    #[test]
    fn the_oldest_is_the_first_that_is_not_done() {
        let packets = packets(CAPACITY);
        while take(&packets).is_some() {}
        for number in (1..CAPACITY).rev() {
            packets.over(number);
            assert!(packets.is_oldest(0), "{number}");
        }
        packets.over(0);
        assert!(packets.is_oldest(CAPACITY));
    }

    #[test]
    fn what_was_not_taken_can_be_given_up() {
        let packets = packets(3);
        assert_eq!(take(&packets), Some((0, 0)));
        packets.give_up();
        assert_eq!(take(&packets), None);
        packets.over(0);
        assert!(packets.is_oldest(1));
    }
}

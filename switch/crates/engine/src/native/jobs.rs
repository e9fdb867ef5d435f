// SPDX-License-Identifier: Apache-2.0
//! Queue of packets for the lanes. Packets are taken in order of arrival and finish in any order. The queue tracks the
//! oldest packet that is not done.

use std::cell::Cell;

use super::asked;
use crate::packet::PacketIn;

/// Most packets that are not done at a time: one for each bit of a word.
pub(super) const ROOM: usize = 64;

/// Prefetch distance of a packet's first bytes, in packets.
const AHEAD: usize = 4;

/// Cache lines at the start of a packet that are prefetched ahead: the headers lie there.
const LINES: usize = 2;

/// A queued packet. Its bytes stay valid until it is done.
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

    /// Prefetches the packet's first bytes: their first cache line and the next one.
    #[inline]
    fn prefetch(self) {
        let start: *const u8 = self.data.cast();
        asked::fetch(start);
        asked::fetch(start.wrapping_add(self.data.len().saturating_sub(1).min(64)));
    }

    /// Prefetches the rest, which is not needed before the packet leaves.
    #[inline]
    fn prefetch_payload(self) {
        let start: *const u8 = self.data.cast();
        let mut at = 64 * LINES;
        while at < self.data.len() {
            asked::fetch_later(start.wrapping_add(at));
            at += 64;
        }
    }
}

/// See the module. Used by one thread, from several stacks. Packets are numbered from 0. The slot of a packet that is
/// done is used again.
pub(super) struct Jobs {
    jobs: [Cell<Job>; ROOM],
    /// Number of packets queued so far.
    count: Cell<usize>,
    /// Number of the first packet that no lane has taken.
    next: Cell<usize>,
    /// Number of the first packet that is not done; equals `count` if all are done.
    oldest: Cell<usize>,
    /// One bit for each packet from `oldest` on, set if it is done.
    done: Cell<u64>,
}

impl Jobs {
    /// Creates an empty queue.
    pub(super) fn new() -> Self {
        Self {
            jobs: [const { Cell::new(Job::NONE) }; ROOM],
            count: Cell::new(0),
            next: Cell::new(0),
            oldest: Cell::new(0),
            done: Cell::new(0),
        }
    }

    /// Returns whether there is room for one more packet.
    #[inline]
    pub(super) fn has_room(&self) -> bool {
        self.count.get() - self.oldest.get() < ROOM
    }

    /// Returns the number of packets that no lane has taken.
    #[inline]
    pub(super) fn waiting(&self) -> usize {
        self.count.get() - self.next.get()
    }

    /// Returns the slot of the next packet to be queued, below [`ROOM`]. The packet has the slot to itself until it is
    /// done.
    #[inline]
    pub(super) fn place(&self) -> usize {
        self.count.get() % ROOM
    }

    /// Queues a packet. There must be room, and the bytes must stay valid until the packet is done.
    #[inline]
    pub(super) fn push(&self, packet: PacketIn<'_>) {
        debug_assert!(self.has_room());
        let job = Job {
            data: packet.data,
            port: packet.port,
            now_us: packet.now_us,
        };
        if self.waiting() < AHEAD {
            job.prefetch();
        }
        self.jobs[self.place()].set(job);
        self.count.set(self.count.get() + 1);
    }

    /// Takes the next packet and returns it with its number.
    ///
    /// # Safety
    /// The packet's bytes stay valid for `'p`.
    #[inline]
    pub(super) unsafe fn take<'p>(&self) -> Option<(usize, PacketIn<'p>)> {
        let (number, waiting) = (self.next.get(), self.waiting());
        if waiting == 0 {
            return None;
        }
        self.next.set(number + 1);
        if waiting > AHEAD {
            self.jobs[(number + AHEAD) % ROOM].get().prefetch();
        }
        let job = self.jobs[number % ROOM].get();
        job.prefetch_payload();
        let packet = PacketIn {
            // SAFETY: the caller's promise.
            data: unsafe { &*job.data },
            port: job.port,
            now_us: job.now_us,
        };
        Some((number, packet))
    }

    /// Marks the packet with this number as done. It must have been taken.
    #[inline]
    pub(super) fn over(&self, number: usize) {
        let oldest = self.oldest.get();
        let done = self.done.get() | 1 << ((number - oldest) % ROOM);
        let all = done.trailing_ones();
        self.done.set(done.checked_shr(all).unwrap_or(0));
        self.oldest.set(oldest + all as usize);
    }

    /// Returns whether this is the first number whose packet is not done.
    #[inline]
    pub(super) fn is_oldest(&self, number: usize) -> bool {
        self.oldest.get() == number
    }

    /// Drops the packets that no lane has taken.
    #[cold]
    pub(super) fn give_up(&self) {
        self.count.set(self.next.get());
    }

    /// Restarts the numbering. All packets must be done.
    #[inline]
    pub(super) fn clear(&self) {
        debug_assert_eq!(self.count.get(), self.oldest.get());
        self.count.set(0);
        self.next.set(0);
        self.oldest.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(jobs: &Jobs, port: usize) {
        jobs.push(PacketIn {
            data: b"bytes",
            port: port as u32,
            now_us: 0,
        });
    }

    fn jobs(count: usize) -> Jobs {
        let jobs = Jobs::new();
        (0..count).for_each(|port| push(&jobs, port));
        jobs
    }

    fn take(jobs: &Jobs) -> Option<(usize, u32)> {
        // SAFETY: the bytes are static.
        let taken = unsafe { jobs.take() };
        taken.map(|(number, packet)| (number, packet.port))
    }

    #[test]
    fn jobs_are_taken_in_order() {
        let jobs = jobs(ROOM);
        for index in 0..ROOM {
            assert_eq!(take(&jobs), Some((index, index as u32)));
        }
        assert_eq!(take(&jobs), None);
    }

    #[test]
    fn what_is_done_makes_room() {
        let jobs = jobs(ROOM);
        assert!(!jobs.has_room());
        assert_eq!(jobs.waiting(), ROOM);
        for number in 0..3 * ROOM {
            assert_eq!(take(&jobs), Some((number, (number % ROOM) as u32)));
            // Packets finish in pairs, the second one first.
            if number % 2 == 1 {
                jobs.over(number);
                assert!(jobs.is_oldest(number - 1) && !jobs.has_room());
                jobs.over(number - 1);
                assert!(jobs.is_oldest(number + 1));
                for port in [number - 1, number] {
                    assert!(jobs.has_room());
                    assert_eq!(jobs.place(), port % ROOM);
                    push(&jobs, port % ROOM);
                }
            }
        }
    }

    #[test]
    fn the_oldest_is_the_first_that_is_not_done() {
        let jobs = jobs(ROOM);
        while take(&jobs).is_some() {}
        for number in (1..ROOM).rev() {
            jobs.over(number);
            assert!(jobs.is_oldest(0), "{number}");
        }
        jobs.over(0);
        assert!(jobs.is_oldest(ROOM));
    }

    #[test]
    fn what_was_not_taken_can_be_given_up() {
        let jobs = jobs(3);
        assert_eq!(take(&jobs), Some((0, 0)));
        jobs.give_up();
        assert_eq!(take(&jobs), None);
        jobs.over(0);
        assert!(jobs.is_oldest(1));
    }
}

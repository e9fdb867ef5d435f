// SPDX-License-Identifier: Apache-2.0
//! Packets that wait for lanes. They are taken in the order in which they came and done in any; which is the oldest
//! that is not done, can be asked.

use std::cell::Cell;

use super::asked;
use crate::packet::PacketIn;

/// Packets at most: one for each bit of a word.
pub(super) const ROOM: usize = 64;

/// How many packets ahead a packet's first bytes are asked for.
const AHEAD: usize = 4;

/// Cache lines at a packet's beginning that are asked for ahead: where headers lie.
const LINES: usize = 2;

/// A packet that waits. Its bytes stay until it is done.
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

    /// Asks for the packet's first bytes.
    #[inline]
    fn prefetch(self) {
        let start: *const u8 = self.data.cast();
        for line in 0..LINES.min(self.data.len().div_ceil(64)) {
            asked::fetch(start.wrapping_add(64 * line));
        }
    }

    /// Asks for the rest, which is not needed before the packet leaves.
    #[inline]
    fn prefetch_payload(self) {
        let start: *const u8 = self.data.cast();
        for line in LINES..self.data.len().div_ceil(64) {
            asked::fetch_later(start.wrapping_add(64 * line));
        }
    }
}

/// See the module. Used by one thread, from several stacks.
pub(super) struct Jobs {
    jobs: [Cell<Job>; ROOM],
    count: Cell<usize>,
    /// The first that no lane has taken.
    next: Cell<usize>,
    /// The first that is not done; as many as there are if all are.
    oldest: Cell<usize>,
    /// A bit for each that is done.
    done: Cell<u64>,
}

impl Jobs {
    /// None.
    pub(super) fn new() -> Self {
        Self {
            jobs: [const { Cell::new(Job::NONE) }; ROOM],
            count: Cell::new(0),
            next: Cell::new(0),
            oldest: Cell::new(0),
            done: Cell::new(0),
        }
    }

    /// How many there are, taken and done ones included.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.count.get()
    }

    /// Adds one; there must be room. The bytes must stay until there are no jobs any more.
    #[inline]
    pub(super) fn push(&self, packet: PacketIn<'_>) {
        let count = self.count.get();
        let job = Job {
            data: packet.data,
            port: packet.port,
            now_us: packet.now_us,
        };
        if count < AHEAD {
            job.prefetch();
        }
        self.jobs[count].set(job);
        self.count.set(count + 1);
    }

    /// The next one, with its number.
    ///
    /// # Safety
    /// Its bytes stay for `'p`.
    #[inline]
    pub(super) unsafe fn take<'p>(&self) -> Option<(usize, PacketIn<'p>)> {
        let (number, count) = (self.next.get(), self.count.get());
        let job = self.jobs[..count].get(number)?.get();
        self.next.set(number + 1);
        if let Some(ahead) = self.jobs[..count].get(number + AHEAD) {
            ahead.get().prefetch();
        }
        job.prefetch_payload();
        let packet = PacketIn {
            // SAFETY: the caller's promise.
            data: unsafe { &*job.data },
            port: job.port,
            now_us: job.now_us,
        };
        Some((number, packet))
    }

    /// The one of this number, which was taken, is done.
    #[inline]
    pub(super) fn over(&self, number: usize) {
        let done = self.done.get() | 1 << (number % ROOM);
        self.done.set(done);
        self.oldest.set(done.trailing_ones() as usize);
    }

    /// Whether all before this number are done.
    #[inline]
    pub(super) fn is_oldest(&self, number: usize) -> bool {
        self.oldest.get() == number
    }

    /// Gives up those that were not taken.
    #[cold]
    pub(super) fn give_up(&self) {
        self.count.set(self.next.get());
    }

    /// Forgets all of them.
    #[inline]
    pub(super) fn clear(&self) {
        self.count.set(0);
        self.next.set(0);
        self.oldest.set(0);
        self.done.set(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn jobs(count: usize) -> Jobs {
        let jobs = Jobs::new();
        for port in 0..count {
            jobs.push(PacketIn {
                data: b"bytes",
                port: port as u32,
                now_us: 0,
            });
        }
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
        jobs.clear();
        assert_eq!((jobs.len(), take(&jobs)), (0, None));
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

// SPDX-License-Identifier: Apache-2.0
//! Implements the anti-replay window (RFC 6479) as a ring of blocks of bits. The ring has one block more than the
//! window needs. So the window advances without shifting bits. With ESN, the window also infers the upper half of
//! 64-bit sequence numbers (RFC 4303, appendix A2).

use crate::counters::Drop;

/// The largest window, in packets.
pub const MAX_WINDOW: u32 = 4096;

const BLOCK_BITS: u64 = 64;

/// Sequence numbers that were received. Only [`Window::accept`] changes the window, after a packet was authenticated.
#[derive(Debug, Clone)]
pub struct Window {
    /// Size in packets; 0 accepts everything.
    size: u64,
    esn: bool,
    /// The highest sequence number accepted.
    top: u64,
    blocks: Box<[u64]>,
}

impl Window {
    /// Creates an empty window of `size` packets. ESN requires a size above 0.
    pub fn new(size: u32, esn: bool) -> Self {
        let size = u64::from(size.min(MAX_WINDOW));
        let blocks = (size.div_ceil(BLOCK_BITS) + 1).next_power_of_two() as usize;
        Self {
            size,
            esn,
            top: 0,
            blocks: vec![0; blocks].into(),
        }
    }

    /// Returns the highest accepted sequence number.
    pub fn top(&self) -> u64 {
        self.top
    }

    /// Prefetches the block of the highest sequence number.
    #[inline]
    pub(crate) fn prefetch(&self) {
        if let Some(block) = self.blocks.get(self.place(self.top).0) {
            crate::prefetch::prefetch(block);
        }
    }

    /// Returns the full sequence number of a packet whose lower 32 bits are `low`, if the packet may be accepted.
    ///
    /// # Errors
    /// [`Drop::Replayed`] or [`Drop::Late`].
    pub fn check(&self, low: u32) -> Result<u64, Drop> {
        let sequence = if self.esn {
            self.infer(low)?
        } else {
            u64::from(low)
        };
        if self.size == 0 || sequence > self.top {
            return if sequence == 0 && self.size != 0 {
                Err(Drop::Late)
            } else {
                Ok(sequence)
            };
        }
        // The first sequence number is 1, so 0 is never valid.
        if sequence == 0 || self.top - sequence >= self.size {
            return Err(Drop::Late);
        }
        let (block, bit) = self.place(sequence);
        if self.blocks[block] & bit != 0 {
            return Err(Drop::Replayed);
        }
        Ok(sequence)
    }

    /// Marks a sequence number that [`Window::check`] returned as seen. The packet must be authentic.
    pub fn accept(&mut self, sequence: u64) {
        if sequence > self.top {
            let (from, to) = (self.top / BLOCK_BITS, sequence / BLOCK_BITS);
            let count = (to - from).min(self.blocks.len() as u64);
            for number in 0..count {
                let at = (to - number) as usize & (self.blocks.len() - 1);
                self.blocks[at] = 0;
            }
            self.top = sequence;
        }
        let (block, bit) = self.place(sequence);
        self.blocks[block] |= bit;
    }

    fn place(&self, sequence: u64) -> (usize, u64) {
        let block = (sequence / BLOCK_BITS) as usize & (self.blocks.len() - 1);
        (block, 1 << (sequence % BLOCK_BITS))
    }

    /// Infers the full number from its lower 32 bits (RFC 4303, appendix A2). Of all numbers with these bits, this is
    /// the lowest that is not below the window.
    fn infer(&self, low: u32) -> Result<u64, Drop> {
        let high = self.top >> 32;
        let top_low = self.top as u32;
        let bottom = top_low.wrapping_sub(self.size as u32).wrapping_add(1);
        let high = if u64::from(top_low) + 1 >= self.size {
            // All numbers of the window have the same upper half.
            if low >= bottom {
                Some(high)
            } else {
                high.checked_add(1)
            }
        } else if low >= bottom {
            // The window reaches back to numbers with the previous upper half.
            high.checked_sub(1)
        } else {
            Some(high)
        };
        match high {
            Some(high) if high <= u64::from(u32::MAX) => Ok(high << 32 | u64::from(low)),
            _ => Err(Drop::Late),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_number_is_accepted_once_and_none_below_the_window() {
        let mut window = Window::new(64, false);
        assert_eq!(window.check(0), Err(Drop::Late));
        for sequence in [1, 3, 2, 100, 37] {
            let whole = window.check(sequence).unwrap();
            window.accept(whole);
            assert_eq!(window.check(sequence), Err(Drop::Replayed));
        }
        assert_eq!(window.check(36), Err(Drop::Late));
        assert_eq!(window.check(38), Ok(38));
    }

    #[test]
    fn the_upper_half_is_found_around_every_turn() {
        for size in [1, 32, 64, 4096] {
            let mut window = Window::new(size, true);
            for turn in [1 << 32, 2 << 32, 0xffff_ffff << 32_u64] {
                window.accept(turn - 100);
                for sequence in turn - 3..turn + 3_u64 {
                    assert_eq!(window.check(sequence as u32), Ok(sequence), "{size}");
                    window.accept(sequence);
                    assert_eq!(window.check(sequence as u32), Err(Drop::Replayed));
                }
                if size > 8 {
                    assert_eq!(window.check((turn - 4) as u32), Ok(turn - 4));
                }
            }
        }
        let mut last = Window::new(64, true);
        last.accept(u64::MAX);
        assert_eq!(last.check(5), Err(Drop::Late), "no higher number exists");
        let first = Window::new(64, true);
        assert_eq!(
            first.check(u32::MAX - 2),
            Err(Drop::Late),
            "no number is below 1"
        );
    }

    #[test]
    fn without_a_window_everything_is_accepted() {
        let mut window = Window::new(0, false);
        for sequence in [5, 5, 0, 1] {
            let whole = window.check(sequence).unwrap();
            window.accept(whole);
        }
    }

    proptest! {
        #[test]
        fn agrees_with_a_set(
            size in prop::sample::select(vec![1_u32, 31, 32, 64, 65, 1000, 4096]),
            esn: bool,
            start in prop::sample::select(vec![1_u64, 0xffff_f000, 0x7_ffff_ff00]),
            steps in prop::collection::vec((any::<bool>(), 0_u64..5000), 1..300),
        ) {
            let start = if esn { start } else { start & 0xffff_ffff };
            let mut window = Window::new(size, esn);
            let mut seen = HashSet::new();
            let mut top = start;
            window.accept(start);
            seen.insert(start);
            for (forward, distance) in steps {
                let number = if forward { top + distance % 70 } else { top.saturating_sub(distance) };
                if number == 0 || (!esn && number > u64::from(u32::MAX)) {
                    continue;
                }
                let expected = if number > top {
                    Ok(number)
                } else if top - number >= u64::from(size) {
                    Err(Drop::Late)
                } else if seen.contains(&number) {
                    Err(Drop::Replayed)
                } else {
                    Ok(number)
                };
                let found = window.check(number as u32);
                match expected {
                    // With ESN, the window takes a late number for one with the next upper half. No authentic packet
                    // has that number.
                    Err(Drop::Late) if esn => prop_assert_ne!(found, Ok(number)),
                    _ => prop_assert_eq!(found, expected),
                }
                if expected.is_ok() {
                    window.accept(number);
                    seen.insert(number);
                    top = top.max(number);
                }
            }
        }
    }
}

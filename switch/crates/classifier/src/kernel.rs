// SPDX-License-Identifier: Apache-2.0
//! Implements search kernels. A kernel compares a key with a group of rules, gathers bits (see `cut`), and counts
//! thresholds. Every kernel returns the same results as [`Portable`].

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::*;

use crate::columns::{Columns, KeyBytes, LANES, ROW};
#[cfg(target_arch = "x86_64")]
use crate::columns::{Masked, Part};
use crate::cut::gather;

/// The operations for which a processor may have special instructions.
pub(crate) trait Machine: Copy {
    /// Returns a bit for each lane of a group. The bit of a lane is set if the key matches the lane's rule. Bits of
    /// unused lanes are arbitrary.
    ///
    /// # Safety
    /// `group` must point to a group with these columns, and `key` must be a key of the same layout.
    unsafe fn matching(self, columns: &Columns, group: *const u64, key: KeyBytes) -> u32;

    /// Gathers the bits of `value` that `mask` selects into the low bits of the result.
    fn gather(self, value: u64, mask: u64) -> u32;

    /// Returns how many of eight numbers `number` exceeds. Each word holds two of the eight numbers.
    ///
    /// # Safety
    /// `at` must point to four words.
    unsafe fn exceeded(self, at: *const u64, number: u32) -> u32;
}

/// Kernel for any processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Portable;

/// Copies `number` to all four lanes of a word.
const fn spread(number: u16) -> u64 {
    number as u64 * 0x0001_0001_0001_0001
}

/// Returns a bit for each lane. The bit of a lane is set if the lane's two numbers fulfil a condition.
fn lanes(first: &[u64; ROW], second: &[u64; ROW], holds: impl Fn(u16, u16) -> bool) -> u32 {
    let number = |row: &[u64; ROW], lane: usize| (row[lane / 4] >> (16 * (lane % 4))) as u16;
    (0..LANES).fold(0, |bits, lane| {
        bits | u32::from(holds(number(first, lane), number(second, lane))) << lane
    })
}

impl Machine for Portable {
    #[inline]
    unsafe fn matching(self, columns: &Columns, group: *const u64, key: KeyBytes) -> u32 {
        let mut next = group.cast::<[u64; ROW]>();
        // SAFETY: a group has two rows for each column, and the key has all bytes of the columns.
        let mut rows = || unsafe {
            let rows = (&*next, &*next.add(1));
            next = next.add(2);
            rows
        };
        let mut differs = [0; ROW];
        for column in &columns.masked {
            // SAFETY: as above.
            let pair = unsafe { key.pair(usize::from(column.at)) };
            let wanted = spread(u16::from_le_bytes(pair));
            let (values, masks) = rows();
            for ((differs, value), mask) in differs.iter_mut().zip(values).zip(masks) {
                *differs |= (wanted ^ value) & mask;
            }
        }
        let mut inside = lanes(&differs, &differs, |differs, _| differs == 0);
        for part in &columns.short {
            // SAFETY: as above.
            let number = unsafe { part.of(key) };
            let (low, span) = rows();
            inside &= lanes(low, span, |low, span| number.wrapping_sub(low) <= span);
        }
        for field in &columns.long {
            // Compares the bytes of the field, the last bytes first. `above` has the lanes in which the compared bytes
            // are at least the least number, `below` those in which they are at most the greatest number.
            let (mut above, mut below) = (u32::MAX, u32::MAX);
            for part in field {
                // SAFETY: as above.
                let number = unsafe { part.of(key) };
                let (low, high) = rows();
                above = lanes(low, high, |low, _| number > low)
                    | above & lanes(low, high, |low, _| number == low);
                below = lanes(low, high, |_, high| number < high)
                    | below & lanes(low, high, |_, high| number == high);
            }
            inside &= above & below;
        }
        inside
    }

    #[inline(always)]
    fn gather(self, value: u64, mask: u64) -> u32 {
        gather(value, mask)
    }

    #[inline(always)]
    unsafe fn exceeded(self, at: *const u64, number: u32) -> u32 {
        // SAFETY: guaranteed by the caller.
        let words = unsafe { at.cast::<[u64; 4]>().read() };
        let exceeds =
            |word: u64| u32::from(number > word as u32) + u32::from(number > (word >> 32) as u32);
        words.into_iter().map(exceeds).sum()
    }
}

/// Kernel for AVX2, BMI1, BMI2 and POPCNT. Invariant: a value exists only if these features were detected.
#[cfg(target_arch = "x86_64")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Avx2(());

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    pub(crate) fn detect() -> Option<Self> {
        (std::is_x86_feature_detected!("bmi2")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("popcnt")
            && std::is_x86_feature_detected!("avx2"))
        .then_some(Self(()))
    }
}

#[cfg(target_arch = "x86_64")]
impl Avx2 {
    /// Compares a key with a masked column. In each lane of the result, the bits are set that are under the mask and in
    /// which key and rule differ. `rows` is the address of the column's two rows.
    ///
    /// # Safety
    /// The same as for [`matching`](Machine::matching). `rows` must be the rows of `column`.
    #[inline(always)]
    unsafe fn differing(self, column: &Masked, rows: *const __m256i, key: KeyBytes) -> __m256i {
        // SAFETY: an `Avx2` exists only if the processor has these instructions. Rows have 32 bytes, and groups are
        // aligned to cache lines.
        unsafe {
            let pair = key.pair(usize::from(column.at));
            let wanted = _mm256_set1_epi16(i16::from_le_bytes(pair));
            let (values, masks) = (_mm256_load_si256(rows), _mm256_load_si256(rows.add(1)));
            _mm256_and_si256(_mm256_xor_si256(wanted, values), masks)
        }
    }

    /// Returns all ones in each lane whose range contains the key's number in a range field of at most two bytes.
    ///
    /// # Safety
    /// The same as for [`differing`](Self::differing).
    #[inline(always)]
    unsafe fn in_range(self, part: &Part, rows: *const __m256i, key: KeyBytes) -> __m256i {
        // SAFETY: as for `differing`.
        unsafe {
            let number = _mm256_set1_epi16(part.of(key) as i16);
            let (low, span) = (_mm256_load_si256(rows), _mm256_load_si256(rows.add(1)));
            let beyond = _mm256_sub_epi16(number, low);
            _mm256_cmpeq_epi16(_mm256_min_epu16(beyond, span), beyond)
        }
    }
}

#[cfg(target_arch = "x86_64")]
impl Machine for Avx2 {
    #[inline(always)]
    unsafe fn matching(self, columns: &Columns, group: *const u64, key: KeyBytes) -> u32 {
        let mut rows = group.cast::<__m256i>();
        // SAFETY: an `Avx2` exists only if the processor has these instructions. A group has two rows of 32 bytes for
        // each column, and is aligned to a cache line. The key has all bytes of the columns.
        unsafe {
            // Special case for access lists, which have addresses, a protocol, and ranges of both ports. This code has
            // no loops, whose branches could be mispredicted.
            let Columns {
                masked,
                short,
                long,
            } = columns;
            if let ([a, b, c, d, e], [f, g], []) = (&masked[..], &short[..], &long[..]) {
                let differ = |column, row| self.differing(column, rows.add(row), key);
                let source = _mm256_or_si256(differ(a, 0), differ(b, 2));
                let destination = _mm256_or_si256(differ(c, 4), differ(d, 6));
                let addresses = _mm256_or_si256(source, destination);
                let differs = _mm256_or_si256(addresses, differ(e, 8));
                let same = _mm256_cmpeq_epi16(differs, _mm256_setzero_si256());
                let in_range = |part, row| self.in_range(part, rows.add(row), key);
                let ports = _mm256_and_si256(in_range(f, 10), in_range(g, 12));
                let inside = _mm256_and_si256(same, ports);
                return _pext_u32(_mm256_movemask_epi8(inside) as u32, 0x5555_5555);
            }
            let mut differs = _mm256_setzero_si256();
            for column in masked {
                differs = _mm256_or_si256(differs, self.differing(column, rows, key));
                rows = rows.add(2);
            }
            let mut inside = _mm256_cmpeq_epi16(differs, _mm256_setzero_si256());
            for part in short {
                inside = _mm256_and_si256(inside, self.in_range(part, rows, key));
                rows = rows.add(2);
            }
            for field in long {
                let (mut above, mut below) = (_mm256_set1_epi8(-1), _mm256_set1_epi8(-1));
                for part in field {
                    let number = _mm256_set1_epi16(part.of(key) as i16);
                    let (low, high) = (_mm256_load_si256(rows), _mm256_load_si256(rows.add(1)));
                    rows = rows.add(2);
                    // Compares the number with the bounds. If it equals a bound, the result of the bytes compared
                    // before decides.
                    let least = _mm256_cmpeq_epi16(_mm256_max_epu16(number, low), number);
                    let most = _mm256_cmpeq_epi16(_mm256_min_epu16(number, high), number);
                    let (low, high) = (
                        _mm256_cmpeq_epi16(number, low),
                        _mm256_cmpeq_epi16(number, high),
                    );
                    above = _mm256_andnot_si256(_mm256_andnot_si256(above, low), least);
                    below = _mm256_andnot_si256(_mm256_andnot_si256(below, high), most);
                }
                inside = _mm256_and_si256(inside, _mm256_and_si256(above, below));
            }
            // `movemask` yields two equal bits for each lane. One of them is kept.
            _pext_u32(_mm256_movemask_epi8(inside) as u32, 0x5555_5555)
        }
    }

    #[inline(always)]
    fn gather(self, value: u64, mask: u64) -> u32 {
        // SAFETY: an `Avx2` exists only if the processor has BMI2.
        unsafe { std::arch::x86_64::_pext_u64(value, mask) as u32 }
    }

    #[inline(always)]
    unsafe fn exceeded(self, at: *const u64, number: u32) -> u32 {
        // SAFETY: an `Avx2` exists only if the processor has these instructions. The caller guarantees 32 bytes.
        unsafe {
            let at = _mm256_loadu_si256(at.cast());
            let greatest = _mm256_max_epu32(at, _mm256_set1_epi32(number as i32));
            let reached = _mm256_cmpeq_epi32(greatest, at);
            8 - (_mm256_movemask_ps(_mm256_castsi256_ps(reached)) as u32).count_ones()
        }
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;
    use crate::layout::{Layout, Precedence, Rule};
    use crate::sample::Random;

    /// Returns random bytes with few different values, so that rules match. Includes the lowest and the highest value
    /// of a byte.
    fn bytes(random: &mut Random, count: usize) -> Vec<u8> {
        let byte = |_| [0, 1, 0x7f, 0x80, 0xff][random.below(5)];
        (0..count).map(byte).collect()
    }

    #[test]
    fn every_kernel_finds_what_the_portable_one_finds() {
        let Some(machine) = Avx2::detect() else {
            return;
        };
        let random = &mut Random::new(9);
        let (mut matches, mut others) = (0, 0);
        for (length, ranges) in [
            (1, &[][..]),
            (7, &[2..3, 4..7]),
            (13, &[8..10, 10..12]),
            (23, &[0..1, 1..17, 20..23]),
        ] {
            let layout = Layout::new(length, ranges);
            let columns = &layout.columns;
            let mut arena = crate::arena::Arena::new();
            let words = columns.group_words();
            let block = arena.allocate(words);
            for _ in 0..200 {
                for lane in 0..LANES {
                    let (value, mut bounds) = (bytes(random, length), bytes(random, length));
                    for range in ranges.iter().cloned() {
                        let low = value[range.clone()].to_vec();
                        let high = low.max(bounds[range.clone()].to_vec());
                        bounds[range].copy_from_slice(&high);
                    }
                    let rule = Rule {
                        value: &value,
                        bounds: &bounds,
                    };
                    let precedence = Precedence {
                        priority: 0,
                        sequence: 0,
                    };
                    let record = layout.record(rule, precedence);
                    layout.put(arena.words_mut(block, words), lane, &record);
                }
                let group = arena.words(block, words).as_ptr();
                for _ in 0..20 {
                    let mut key = bytes(random, length);
                    key.resize(length.max(8), 0);
                    let key = KeyBytes(key.as_ptr());
                    // SAFETY: the group has these columns, and the key is a key of the same layout.
                    let found = unsafe {
                        let wanted = Portable.matching(columns, group, key);
                        assert_eq!(
                            machine.matching(columns, group, key),
                            wanted,
                            "{length} bytes"
                        );
                        wanted.count_ones()
                    };
                    matches += found;
                    others += LANES as u32 - found;
                }
            }
        }
        assert!(matches > 1000 && others > 1000, "{matches} of {others}");
    }

    #[test]
    fn every_kernel_gathers_and_counts_alike() {
        let Some(machine) = Avx2::detect() else {
            return;
        };
        let random = &mut Random::new(10);
        for _ in 0..1000 {
            let (value, mask) = (random.number(), random.number() & random.number());
            assert_eq!(machine.gather(value, mask), Portable.gather(value, mask));
            let number = random.number() as u32;
            let at =
                [0; 4].map(|_| random.number() & u64::from(u32::MAX) << 32 | u64::from(number));
            // SAFETY: `at` holds four words.
            let both = unsafe {
                let at = at.as_ptr();
                [machine.exceeded(at, number), Portable.exceeded(at, number)]
            };
            assert_eq!(both[0], both[1]);
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! How keys and rules look to the tree: words that are compared under a mask, and numbers that are
//! compared with ranges.
//!
//! Words are little-endian, so that the bytes of a key stay in their order in memory. A range field
//! contributes what the bits of all its numbers have in common to the masked words, and its first
//! four bytes as a number; what lies behind these is *deep*: compared byte by byte, once all
//! else matches.

use std::ops::Range;

/// The longest key.
pub const MAX_KEY_BYTES: usize = 512;

/// A rule: what a key must look like. Both parts have the key's length.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// Values; for range fields the least number, in network byte order.
    pub value: &'a [u8],
    /// Masks (a 1 for each bit that must be as in `value`); for range fields the greatest number.
    pub bounds: &'a [u8],
}

/// The order of rules: the higher priority comes first, then the lower sequence. No two rules of
/// one classifier have the same rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rank {
    /// Higher wins.
    pub priority: i32,
    /// Among equal priorities, lower wins.
    pub sequence: u64,
}

/// A range field.
#[derive(Clone, Debug)]
pub(crate) struct RangeField {
    /// Its bytes in the key.
    pub(crate) bytes: Range<usize>,
    /// Its number: eight bytes from here, big-endian, shifted right and masked.
    load: usize,
    shift: u32,
    mask: u32,
}

/// Places of a key's parts. `W` words hold the key.
#[derive(Clone, Debug)]
pub(crate) struct Layout<const W: usize, const R: usize> {
    pub(crate) key_bytes: usize,
    /// At most `R`: those whose numbers are compared in the leaves.
    pub(crate) ranges: Vec<RangeField>,
    /// What is compared last: whole range fields that do not fit a number.
    pub(crate) deep: Vec<Range<usize>>,
}

/// A packet's key, ready to be compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<const W: usize, const R: usize> {
    pub(crate) words: [u64; W],
    pub(crate) numbers: [u32; R],
}

impl<const W: usize, const R: usize> Layout<W, R> {
    /// Words of a rule in a leaf: values, masks, ranges, and rank with handle.
    pub(crate) const STRIDE: usize = 2 * W + R + 1;

    pub(crate) fn new(key_bytes: usize, ranges: &[Range<usize>]) -> Self {
        let field = |bytes: &Range<usize>| {
            let load = bytes.start.min(8 * W - 8);
            let width = bytes.len().min(4);
            RangeField {
                bytes: bytes.clone(),
                load,
                shift: 64 - 8 * (bytes.start - load + width) as u32,
                mask: u32::MAX >> (32 - 8 * width),
            }
        };
        let deep = ranges.iter().enumerate();
        Self {
            key_bytes,
            ranges: ranges.iter().take(R).map(field).collect(),
            deep: deep
                .filter(|(index, bytes)| *index >= R || bytes.len() > 4)
                .map(|(_, bytes)| bytes.clone())
                .collect(),
        }
    }

    /// A key's words. Bytes beyond `key_bytes` are ignored; missing ones count as 0.
    #[inline(always)]
    pub(crate) fn words(&self, bytes: &[u8]) -> [u64; W] {
        let length = self.key_bytes;
        if length >= 8 && length > 8 * (W - 1) && bytes.len() >= length {
            return std::array::from_fn(|index| {
                let start = (8 * index).min(length - 8);
                let chunk = bytes[start..start + 8].first_chunk().expect("eight bytes");
                // The last word overlaps the one before it: push out what is not its own.
                u64::from_le_bytes(*chunk) >> (8 * (8 * index - start))
            });
        }
        self.short_words(bytes)
    }

    #[inline(never)]
    fn short_words(&self, bytes: &[u8]) -> [u64; W] {
        let bytes = &bytes[..self.key_bytes.min(bytes.len())];
        std::array::from_fn(|index| {
            let rest = bytes.get(8 * index..).unwrap_or_default();
            let mut word = [0; 8];
            let count = rest.len().min(8);
            word[..count].copy_from_slice(&rest[..count]);
            u64::from_le_bytes(word)
        })
    }

    /// A key, ready to be compared.
    #[inline(always)]
    pub(crate) fn key(&self, bytes: &[u8]) -> Key<W, R> {
        let words = self.words(bytes);
        let mut numbers = [0; R];
        for (number, field) in numbers.iter_mut().zip(&self.ranges) {
            *number = field.number(&words);
        }
        Key { words, numbers }
    }

    /// A rule as leaves hold it, with the low half of its last word left 0.
    pub(crate) fn record(&self, rule: Rule<'_>, rank: Rank) -> Vec<u64> {
        let mut value = rule.value.to_vec();
        let mut mask = rule.bounds.to_vec();
        let mut numbers = [u64::from(u32::MAX); R];
        let deep = self.deep.iter().cloned();
        for bytes in self
            .ranges
            .iter()
            .map(|field| field.bytes.clone())
            .chain(deep)
        {
            let common = common_bits(&rule.value[bytes.clone()], &rule.bounds[bytes.clone()]);
            mask[bytes.clone()].copy_from_slice(&common);
        }
        for (number, field) in numbers.iter_mut().zip(&self.ranges) {
            let low = field.number(&self.words(rule.value));
            let high = field.number(&self.words(rule.bounds));
            *number = u64::from(low) << 32 | u64::from(high.wrapping_sub(low));
        }
        value
            .iter_mut()
            .zip(&mask)
            .for_each(|(value, mask)| *value &= mask);
        let priority = rank.priority as u32 ^ 1 << 31;
        let (value, mask) = (self.words(&value), self.words(&mask));
        let parts = value.into_iter().chain(mask).chain(numbers);
        parts.chain([u64::from(priority) << 32]).collect()
    }

    /// Bytes of a rule that are compared last: of each deep field the least, then the greatest.
    pub(crate) fn deep_bytes(&self, rule: Rule<'_>) -> Vec<u8> {
        let parts = self
            .deep
            .iter()
            .flat_map(|bytes| [&rule.value[bytes.clone()], &rule.bounds[bytes.clone()]]);
        parts.flatten().copied().collect()
    }

    /// Whether deep fields of a key are in their ranges.
    pub(crate) fn deep_matches(&self, words: &[u64; W], mut wanted: &[u8]) -> bool {
        self.deep.iter().all(|bytes| {
            let (low, rest) = wanted.split_at(bytes.len());
            let (high, rest) = rest.split_at(bytes.len());
            wanted = rest;
            let of_key = || bytes.clone().map(|at| words[at / 8].to_le_bytes()[at % 8]);
            of_key().ge(low.iter().copied()) && of_key().le(high.iter().copied())
        })
    }
}

impl RangeField {
    #[inline(always)]
    fn number<const W: usize>(&self, words: &[u64; W]) -> u32 {
        let window = window(words, self.load).swap_bytes();
        (window >> self.shift) as u32 & self.mask
    }
}

/// Eight bytes of a key from a place at most `8 * W - 8`.
#[inline(always)]
pub(crate) fn window<const W: usize>(words: &[u64; W], offset: usize) -> u64 {
    window_of(words, offset)
}

/// Eight bytes of words from a place.
#[inline(always)]
pub(crate) fn window_of(words: &[u64], offset: usize) -> u64 {
    let (index, bits) = (offset / 8, 8 * (offset % 8) as u32);
    let low = words[index] >> bits;
    match bits {
        0 => low,
        _ => low | words[index + 1] << (64 - bits),
    }
}

/// A mask of the bits that all numbers of a range share: those before the first that differs.
fn common_bits(low: &[u8], high: &[u8]) -> Vec<u8> {
    let mut same = true;
    let bytes = low.iter().zip(high).map(|(low, high)| {
        let differs = low ^ high;
        let mask = match (same, differs) {
            (false, _) => 0,
            (true, 0) => 0xff,
            (true, _) => !(0xff >> differs.leading_zeros()),
        };
        same = same && differs == 0;
        mask
    });
    bytes.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_hold_the_keys_bytes_in_order() {
        for length in 1..=24 {
            let bytes: Vec<u8> = (1..=24).collect();
            let words = Layout::<3, 0>::new(length, &[]).words(&bytes[..length]);
            let flat: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            assert_eq!(flat[..length], bytes[..length]);
            assert!(flat[length..].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn a_short_key_counts_as_filled_with_zeros() {
        assert_eq!(Layout::<2, 0>::new(13, &[]).words(&[5]), [5, 0]);
    }

    #[test]
    fn numbers_are_the_first_bytes_of_range_fields() {
        let layout = Layout::<2, 2>::new(13, &[0..2, 10..13]);
        let key = layout.key(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13]);
        assert_eq!(key.numbers, [0x0102, 0x0b_0c0d]);
        let layout = Layout::<2, 2>::new(16, std::slice::from_ref(&(6..16)));
        let key = layout.key(&[0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0]);
        assert_eq!(key.numbers, [0x0102_0304, 0]);
    }

    #[test]
    fn common_bits_end_where_a_range_begins_to_vary() {
        assert_eq!(common_bits(&[1, 0x80, 7], &[1, 0x9f, 7]), [0xff, 0xe0, 0]);
        assert_eq!(common_bits(&[9, 9], &[9, 9]), [0xff, 0xff]);
        assert_eq!(common_bits(&[0], &[0xff]), [0]);
    }
}

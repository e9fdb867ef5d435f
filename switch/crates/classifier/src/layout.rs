// SPDX-License-Identifier: Apache-2.0
//! Defines the layout of keys and rules. A key has bytes that are matched under a mask, and range fields.
//!
//! While a tree is built, a rule is a *record* of words:
//! - the values and masks of all bytes
//! - the least and the greatest number of each range field, at the offset of the field's bytes (only if there are range
//!   fields)
//! - the *last word*, with priority, number of copies and handle (see `last_word`)
//!
//! Words are little-endian, so that bytes keep their order in memory. For a range field, values and masks hold the
//! leading bits that all numbers of the range have in common. Cuts by bits use only values and masks. In leaves, rules
//! are stored in [`Columns`].

use std::ops::Range;

use crate::columns::{Columns, KeyBytes, Parts, PartsMut, byte_of, put_byte};

/// Maximum length of a key, in bytes.
pub const MAX_KEY_BYTES: usize = 512;

/// A rule: the values and bounds that a key must match. Each of the two slices has the key's length.
#[derive(Clone, Copy, Debug)]
pub struct Rule<'a> {
    /// Values. For range fields, the least number in network byte order.
    pub value: &'a [u8],
    /// Masks, which have a 1 for each bit that must equal `value`. For range fields, the greatest number in network
    /// byte order.
    pub bounds: &'a [u8],
}

/// Rank of a rule in the order of rules. A rule with a higher priority comes first. If priorities are equal, the rule
/// with the lower sequence number comes first. No two rules of one classifier have equal ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Precedence {
    /// Priority of the rule; the highest priority wins.
    pub priority: i32,
    /// Sequence number. If priorities are equal, the rule with the lowest number wins.
    pub sequence: u64,
}

/// A range field. Its number is read from the first four bytes of the field, or from all bytes if the field is shorter.
#[derive(Clone, Debug)]
pub(crate) struct RangeField {
    /// Bytes of the field in the key.
    bytes: Range<usize>,
    /// Offset in the key of eight bytes, which are read as a big-endian number. A shift and a mask then give the
    /// field's number.
    load: usize,
    shift: u32,
    mask: u32,
}

/// Layout of a key and of a record.
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) key_bytes: usize,
    /// Number of words that hold a key.
    words: usize,
    pub(crate) ranges: Vec<RangeField>,
    pub(crate) columns: Columns,
}

impl Layout {
    pub(crate) fn new(key_bytes: usize, ranges: &[Range<usize>]) -> Self {
        let room = key_bytes.max(8);
        let field = |bytes: &Range<usize>| {
            let load = bytes.start.min(room - 8);
            let width = bytes.len().min(4);
            RangeField {
                bytes: bytes.clone(),
                load,
                shift: 64 - 8 * (bytes.start - load + width) as u32,
                mask: u32::MAX >> (32 - 8 * width),
            }
        };
        Self {
            key_bytes,
            words: room.div_ceil(8),
            ranges: ranges.iter().map(field).collect(),
            columns: Columns::new(key_bytes, ranges),
        }
    }

    /// Returns the number of words of a record.
    pub(crate) fn stride(&self) -> usize {
        self.parts() * self.words + 1
    }

    /// Returns the number of parts of a record without the last word. Each part has as many words as a key.
    fn parts(&self) -> usize {
        if self.ranges.is_empty() { 2 } else { 4 }
    }

    /// Returns the offsets of the eight-byte windows for cuts, `step` bytes apart. The last window covers the key's
    /// last bytes.
    pub(crate) fn windows(&self, step: usize) -> impl Iterator<Item = usize> + use<> {
        let last = self.key_bytes.max(8) - 8;
        (0..last).step_by(step).chain([last])
    }

    /// Returns a rule's record. The low half of its last word is 0.
    pub(crate) fn record(&self, rule: Rule<'_>, precedence: Precedence) -> Vec<u64> {
        let mut record = vec![0; self.stride()];
        let mut parts = record.chunks_exact_mut(self.words);
        let mut put = |bytes: &[u8]| {
            let words = parts
                .next()
                .expect("the record has a part for each byte string");
            let placed = bytes.iter().enumerate();
            placed.for_each(|(at, byte)| put_byte(words, at, *byte));
        };
        put(rule.value);
        put(rule.bounds);
        if !self.ranges.is_empty() {
            let in_range = |at| self.ranges.iter().any(|field| field.bytes.contains(&at));
            for bytes in [rule.value, rule.bounds] {
                let numbers = bytes.iter().enumerate();
                let numbers = numbers.map(|(at, byte)| if in_range(at) { *byte } else { 0 });
                put(&numbers.collect::<Vec<u8>>());
            }
        }
        self.complete(&mut record);
        let priority = precedence.priority as u32 ^ 1 << 31;
        *record.last_mut().expect("a record has a last word") = u64::from(priority) << 32;
        record
    }

    /// Writes the common leading bits of each range to values and masks. Clears the bits of values that the masks
    /// wildcard.
    fn complete(&self, record: &mut [u64]) {
        let words = self.words;
        for field in &self.ranges {
            let (front, numbers) = record.split_at_mut(2 * words);
            let (least, greatest) = numbers.split_at(words);
            let mut same = true;
            for at in field.bytes.clone() {
                let low = byte_of(least, at);
                let differs = low ^ byte_of(greatest, at);
                let mask = match (same, differs) {
                    (false, _) => 0,
                    (true, 0) => 0xff,
                    (true, _) => !(0xff >> differs.leading_zeros()),
                };
                same = same && differs == 0;
                put_byte(front, at, low);
                put_byte(&mut front[words..], at, mask);
            }
        }
        let (values, rest) = record.split_at_mut(words);
        let masked = values.iter_mut().zip(rest);
        masked.for_each(|(value, mask)| *value &= *mask);
    }

    /// Writes a record to a lane of a group.
    pub(crate) fn put(&self, group: &mut [u64], lane: usize, record: &[u64]) {
        let words = self.words;
        let part = |index: usize| record.get(index * words..(index + 1) * words);
        let parts = Parts {
            values: &record[..words],
            masks: &record[words..2 * words],
            least: part(2).unwrap_or_default(),
            greatest: part(3).unwrap_or_default(),
            last: record[record.len() - 1],
        };
        self.columns.put(group, lane, parts);
    }

    /// Appends the record in a lane of a group to `records`.
    pub(crate) fn take(&self, group: &[u64], lane: usize, records: &mut Vec<u64>) {
        let start = records.len();
        records.resize(start + self.stride(), 0);
        let record = &mut records[start..];
        let (values, rest) = record.split_at_mut(self.words);
        let (masks, rest) = rest.split_at_mut(self.words);
        let (least, greatest) = match self.parts() {
            2 => Default::default(),
            _ => rest.split_at_mut(self.words),
        };
        let parts = PartsMut {
            values,
            masks,
            least,
            greatest,
        };
        let last = self.columns.take(group, lane, parts);
        self.complete(record);
        record[self.stride() - 1] = last;
    }

    /// Returns the value and the mask that a record has in the eight bytes at `offset`, for cuts by bits.
    #[inline]
    pub(crate) fn bits(&self, record: &[u64], offset: usize) -> (u64, u64) {
        (
            window(&record[..self.words], offset),
            window(&record[self.words..2 * self.words], offset),
        )
    }

    /// Returns the least and the greatest number of a record's range field.
    #[inline]
    pub(crate) fn range(&self, record: &[u64], number: usize) -> (u32, u32) {
        let field = &self.ranges[number];
        let of = |part: usize| {
            let words = &record[part * self.words..][..self.words];
            field.number(window(words, field.load))
        };
        (of(2), of(3))
    }

    /// Returns the number that a key has in a range field.
    ///
    /// # Safety
    /// `key` must be a key of this layout.
    #[inline(always)]
    pub(crate) unsafe fn number(&self, key: KeyBytes, number: usize) -> u32 {
        let Some(field) = self.ranges.get(number) else {
            return 0;
        };
        // SAFETY: `load` is at least eight bytes before the key's end, or is 0, and at least eight bytes are readable.
        field.number(unsafe { key.window(field.load) })
    }
}

impl RangeField {
    #[inline(always)]
    fn number(&self, window: u64) -> u32 {
        (window.swap_bytes() >> self.shift) as u32 & self.mask
    }
}

/// Returns the eight bytes at `offset`.
#[inline]
fn window(words: &[u64], offset: usize) -> u64 {
    let (index, bits) = (offset / 8, 8 * (offset % 8) as u32);
    let low = words[index] >> bits;
    match bits {
        0 => low,
        _ => low | words[index + 1] << (64 - bits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PRECEDENCE: Precedence = Precedence {
        priority: 3,
        sequence: 0,
    };

    #[test]
    fn a_record_comes_back_from_every_lane() {
        for (bytes, ranges) in [
            (1, &[][..]),
            (3, std::slice::from_ref(&(0..1))),
            (9, &[0..2, 4..9]),
            (13, &[8..10, 10..12]),
            (30, &[1..2, 3..6, 14..30]),
        ] {
            let layout = Layout::new(bytes, ranges);
            let value: Vec<u8> = (1..=bytes as u8).map(|byte| 5 * byte).collect();
            let bounds: Vec<u8> = value.iter().map(|byte| byte | 0x1f).collect();
            let rule = Rule {
                value: &value,
                bounds: &bounds,
            };
            let record = layout.record(rule, PRECEDENCE);
            let mut group = vec![0; layout.columns.group_words()];
            for lane in 0..crate::columns::LANES {
                layout.put(&mut group, lane, &record);
                let mut taken = Vec::new();
                layout.take(&group, lane, &mut taken);
                assert_eq!(taken, record, "{bytes} bytes, lane {lane}");
            }
        }
    }

    #[test]
    fn numbers_are_the_first_bytes_of_range_fields() {
        let number = |bytes: usize, range: Range<usize>| {
            let key: Vec<u8> = (1..=bytes.max(8) as u8).collect();
            let layout = Layout::new(bytes, &[range]);
            // SAFETY: the key has all bytes of the layout, and at least eight bytes.
            unsafe { layout.number(KeyBytes(key.as_ptr()), 0) }
        };
        assert_eq!(number(13, 0..2), 0x0102);
        assert_eq!(number(13, 10..13), 0x0b_0c0d);
        assert_eq!(number(16, 6..16), 0x0708_090a);
        assert_eq!(number(3, 2..3), 3);
    }

    #[test]
    fn common_bits_end_where_a_range_begins_to_vary() {
        let common = |low: [u8; 3], high: [u8; 3]| {
            let rule = Rule {
                value: &low,
                bounds: &high,
            };
            let record = Layout::new(3, std::slice::from_ref(&(0..3))).record(rule, PRECEDENCE);
            record[1]
        };
        assert_eq!(common([1, 0x80, 7], [1, 0x9f, 7]), 0xe0ff);
        assert_eq!(common([9, 9, 9], [9, 9, 9]), 0xff_ffff);
        assert_eq!(common([0, 0, 0], [0xff, 0, 0]), 0);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Defines the layout of rules in leaves. Rules are in groups of [`LANES`] rules, and a group is stored column by
//! column. So one pass of SIMD comparisons finds the matching rules of a group.
//!
//! A column covers two bytes of the key and has two rows of [`LANES`] numbers:
//! - A masked column has a row of values and a row of masks.
//! - A range column has a row of least numbers and a row of greatest numbers. The columns of one field are adjacent,
//!   with the column of the last bytes first. If a field has at most two bytes, the second row holds the greatest
//!   number minus the least number.
//!
//! After the columns come the last words of the rules (see `last_word`). Rules occupy the first lanes. Unused lanes are
//! all zeros. A word of a row holds four numbers, the first of them in the lowest bits.

use std::ops::Range;

/// Number of rules in a group.
pub(crate) const LANES: usize = 16;

/// Number of words in a row.
pub(crate) const ROW: usize = LANES / 4;

/// Masked column, which compares two bytes under a mask.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Masked {
    /// Offset in the key of two bytes that are read as a little-endian number.
    pub(crate) at: u16,
    /// Mask of the bits that this column compares. Excludes the bits of other columns and of range fields.
    own: u16,
}

/// Range column, which has one or two bytes of a range field.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Part {
    /// Offset in the key of two bytes, which are read as a big-endian number. A shift and a mask then select the
    /// column's bytes.
    at: u16,
    shift: u8,
    mask: u16,
    /// Offset of the first byte that belongs to this column.
    byte: u16,
    wide: bool,
}

/// Columns of a classifier's leaves.
#[derive(Clone, Debug, Default)]
pub(crate) struct Columns {
    pub(crate) masked: Vec<Masked>,
    /// Range fields of at most two bytes.
    pub(crate) short: Vec<Part>,
    /// Longer range fields, each with its columns. The column of a field's last bytes comes first.
    pub(crate) long: Vec<Vec<Part>>,
}

/// A key that lookups read without bounds checks.
///
/// Invariant: all bytes of a key are readable, and at least eight bytes are readable.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyBytes(pub(crate) *const u8);

impl KeyBytes {
    /// Reads two bytes in memory order.
    ///
    /// # Safety
    /// Both bytes must lie within a key of the layout, or within its first eight bytes.
    #[inline(always)]
    pub(crate) unsafe fn pair(self, at: usize) -> [u8; 2] {
        // SAFETY: guaranteed by the caller.
        unsafe { self.0.add(at).cast::<[u8; 2]>().read_unaligned() }
    }

    /// Reads eight bytes as a little-endian number.
    ///
    /// # Safety
    /// The same as for [`pair`](Self::pair), but for all eight bytes.
    #[inline(always)]
    pub(crate) unsafe fn window(self, at: usize) -> u64 {
        // SAFETY: guaranteed by the caller.
        u64::from_le_bytes(unsafe { self.0.add(at).cast::<[u8; 8]>().read_unaligned() })
    }
}

impl Part {
    fn new(bytes: Range<usize>, room: usize) -> Self {
        let at = bytes.start.min(room - 2);
        let width = bytes.len();
        Self {
            at: at as u16,
            shift: (8 * (at + 2 - bytes.start - width)) as u8,
            mask: if width == 2 { 0xffff } else { 0xff },
            byte: bytes.start as u16,
            wide: width == 2,
        }
    }

    /// Returns the number that a key has in this column.
    ///
    /// # Safety
    /// `key` must be a key of the layout.
    #[inline(always)]
    pub(crate) unsafe fn of(self, key: KeyBytes) -> u16 {
        // SAFETY: `new` keeps `at` within the key.
        let pair = unsafe { key.pair(usize::from(self.at)) };
        u16::from_be_bytes(pair) >> self.shift & self.mask
    }

    fn of_words(self, words: &[u64]) -> u16 {
        let at = usize::from(self.byte);
        let first = u16::from(byte_of(words, at));
        if self.wide {
            first << 8 | u16::from(byte_of(words, at + 1))
        } else {
            first
        }
    }

    fn put(self, words: &mut [u64], number: u16) {
        let at = usize::from(self.byte);
        if self.wide {
            put_byte(words, at, (number >> 8) as u8);
            put_byte(words, at + 1, number as u8);
        } else {
            put_byte(words, at, number as u8);
        }
    }
}

pub(crate) fn byte_of(words: &[u64], at: usize) -> u8 {
    (words[at / 8] >> (8 * (at % 8))) as u8
}

pub(crate) fn put_byte(words: &mut [u64], at: usize, byte: u8) {
    let shift = 8 * (at % 8);
    words[at / 8] = words[at / 8] & !(0xff << shift) | u64::from(byte) << shift;
}

fn pair_of(words: &[u64], at: usize) -> u16 {
    u16::from_le_bytes([byte_of(words, at), byte_of(words, at + 1)])
}

/// Returns the number in a lane of a row.
#[inline]
fn lane_of(row: &[u64], lane: usize) -> u16 {
    (row[lane / 4] >> (16 * (lane % 4))) as u16
}

fn put_lane(row: &mut [u64], lane: usize, number: u16) {
    let shift = 16 * (lane % 4);
    row[lane / 4] = row[lane / 4] & !(0xffff << shift) | u64::from(number) << shift;
}

impl Columns {
    /// Creates the columns for keys of `key_bytes` bytes with the range fields `ranges`.
    pub(crate) fn new(key_bytes: usize, ranges: &[Range<usize>]) -> Self {
        let room = key_bytes.max(8);
        let masked_byte =
            |at: usize| at < key_bytes && !ranges.iter().any(|range| range.contains(&at));
        let mut columns = Self::default();
        let mut next = 0;
        while next < key_bytes {
            if !masked_byte(next) {
                next += 1;
                continue;
            }
            let at = next.min(room - 2);
            let own = |byte: usize| masked_byte(byte) && byte >= next;
            let bits = [own(at), own(at + 1)].map(|own| if own { 0xff } else { 0 });
            columns.masked.push(Masked {
                at: at as u16,
                own: u16::from_le_bytes(bits),
            });
            next = at + 2;
        }
        for range in ranges {
            let part = |end: usize| Part::new(range.start.max(end.saturating_sub(2))..end, room);
            let mut parts: Vec<Part> = (range.start + 1..=range.end)
                .rev()
                .step_by(2)
                .map(part)
                .collect();
            if let [single] = parts[..] {
                columns.short.push(single);
            } else {
                parts.shrink_to_fit();
                columns.long.push(parts);
            }
        }
        columns
    }

    /// Returns the number of rows of a group, not counting the last words.
    fn rows(&self) -> usize {
        let parts: usize = self.long.iter().map(Vec::len).sum();
        2 * (self.masked.len() + self.short.len() + parts)
    }

    /// Returns the offset of the last words in a group.
    pub(crate) fn lasts(&self) -> usize {
        self.rows() * ROW
    }

    /// Returns the number of words of a group, which is a multiple of a cache line.
    pub(crate) fn group_words(&self) -> usize {
        self.lasts() + LANES
    }

    fn parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.long.iter().flatten().copied()
    }

    /// Writes a rule to a lane of a group: its values, masks, least and greatest numbers, and its last word.
    pub(crate) fn put(&self, group: &mut [u64], lane: usize, rule: Parts<'_>) {
        let mut at = 0;
        let mut put = |first: u16, second: u16| {
            put_lane(&mut group[at..at + ROW], lane, first);
            put_lane(&mut group[at + ROW..at + 2 * ROW], lane, second);
            at += 2 * ROW;
        };
        for column in &self.masked {
            let mask = pair_of(rule.masks, usize::from(column.at)) & column.own;
            put(pair_of(rule.values, usize::from(column.at)) & mask, mask);
        }
        for part in &self.short {
            let low = part.of_words(rule.least);
            put(low, part.of_words(rule.greatest).wrapping_sub(low));
        }
        for part in self.parts() {
            put(part.of_words(rule.least), part.of_words(rule.greatest));
        }
        group[self.lasts() + lane] = rule.last;
    }

    /// Reads the rule in a lane into `parts`, which must be zeroed. Returns the rule's last word. Values and masks of
    /// range fields stay 0.
    pub(crate) fn take(&self, group: &[u64], lane: usize, parts: PartsMut<'_>) -> u64 {
        let mut rows = group.chunks_exact(2 * ROW).map(|rows| {
            let (first, second) = rows.split_at(ROW);
            (lane_of(first, lane), lane_of(second, lane))
        });
        for (column, (value, mask)) in self.masked.iter().zip(&mut rows) {
            let bytes = column.own.to_le_bytes();
            let pairs = [value, mask].map(u16::to_le_bytes);
            for (index, _) in bytes.iter().enumerate().filter(|(_, own)| **own != 0) {
                let at = usize::from(column.at) + index;
                put_byte(parts.values, at, pairs[0][index]);
                put_byte(parts.masks, at, pairs[1][index]);
            }
        }
        for (part, (low, span)) in self.short.iter().zip(&mut rows) {
            part.put(parts.least, low);
            part.put(parts.greatest, low.wrapping_add(span));
        }
        for (part, (low, high)) in self.parts().zip(&mut rows) {
            part.put(parts.least, low);
            part.put(parts.greatest, high);
        }
        group[self.lasts() + lane]
    }

    /// Copies lane `from` to lane `to` of the same leaf. Lanes are numbered across all groups of the leaf.
    pub(crate) fn copy(&self, leaf: &mut [u64], from: usize, to: usize) {
        let words = self.group_words();
        let (from_group, to_group) = (from / LANES * words, to / LANES * words);
        for row in 0..self.rows() {
            let number = lane_of(&leaf[from_group + row * ROW..][..ROW], from % LANES);
            put_lane(&mut leaf[to_group + row * ROW..][..ROW], to % LANES, number);
        }
        let last = leaf[from_group + self.lasts() + from % LANES];
        leaf[to_group + self.lasts() + to % LANES] = last;
    }

    /// Zeroes a lane of a leaf.
    pub(crate) fn clear(&self, leaf: &mut [u64], at: usize) {
        let group = &mut leaf[at / LANES * self.group_words()..];
        for row in 0..self.rows() {
            put_lane(&mut group[row * ROW..][..ROW], at % LANES, 0);
        }
        group[self.lasts() + at % LANES] = 0;
    }
}

/// The parts of a rule: values, masks, least and greatest numbers. A part is a sequence of words that hold as many
/// bytes as a key. The last word is separate.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Parts<'a> {
    pub(crate) values: &'a [u64],
    pub(crate) masks: &'a [u64],
    pub(crate) least: &'a [u64],
    pub(crate) greatest: &'a [u64],
    pub(crate) last: u64,
}

/// The writable parts of a rule, without the last word.
#[derive(Debug)]
pub(crate) struct PartsMut<'a> {
    pub(crate) values: &'a mut [u64],
    pub(crate) masks: &'a mut [u64],
    pub(crate) least: &'a mut [u64],
    pub(crate) greatest: &'a mut [u64],
}

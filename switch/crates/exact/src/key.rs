// SPDX-License-Identifier: Apache-2.0
//! Keys in the form that lookups read. A key of up to 64 bytes is held as words in registers, a longer key as bytes in
//! memory. The code of a lookup is instantiated for each number of words, so hashing and comparing need neither loops
//! nor calls.

use crate::hash::HashKey;

/// A key to look up.
pub(crate) trait Key: Copy {
    /// Returns the key's hash.
    fn hash(&self, hasher: &impl HashKey) -> u64;

    /// Returns whether the key has these bytes. `bytes` must have the key's size.
    fn is(&self, bytes: &[u8]) -> bool;
}

/// A key of `W` words. It has more than 8 (W - 1) bytes and at most 8 W bytes. A key of one word may also be empty.
#[derive(Clone, Copy)]
pub(crate) struct Words<const W: usize>([u64; W]);

impl<const W: usize> Words<W> {
    #[inline(always)]
    pub(crate) fn new(key: &[u8]) -> Self {
        Self(words(key))
    }

    /// Creates a key of `size` bytes from whole words. The last word is padded with zeros.
    #[inline(always)]
    pub(crate) fn from_padded(padded: &[[u8; 8]; W], size: usize) -> Self {
        let mut words = padded.map(u64::from_le_bytes);
        let last = words[W - 1];
        words[W - 1] = if W == 1 {
            padded_short(last, size)
        } else {
            let own_bits = 8 * (size - 8 * (W - 1));
            let both = u128::from(last) << 64 | u128::from(words[W - 2]);
            (both >> own_bits) as u64
        };
        Self(words)
    }
}

impl<const W: usize> Key for Words<W> {
    #[inline(always)]
    fn hash(&self, hasher: &impl HashKey) -> u64 {
        hasher.hash_words(&self.0)
    }

    #[inline(always)]
    fn is(&self, bytes: &[u8]) -> bool {
        let known = words::<W>(bytes);
        (0..W).fold(0, |differs, index| differs | (self.0[index] ^ known[index])) == 0
    }
}

/// A key of more than [`WORDS`](crate::hash::WORDS) words.
#[derive(Clone, Copy)]
pub(crate) struct Long<'a>(pub(crate) &'a [u8]);

impl Key for Long<'_> {
    fn hash(&self, hasher: &impl HashKey) -> u64 {
        hasher.hash(self.0)
    }

    fn is(&self, bytes: &[u8]) -> bool {
        self.0 == bytes
    }
}

/// Returns the words of a key. The key's size must correspond to `W` words.
#[inline(always)]
fn words<const W: usize>(key: &[u8]) -> [u64; W] {
    let size = key.len();
    if W == 1 && size < 8 {
        return [short(key); W];
    }
    assert!(size >= 8 && size > 8 * (W - 1), "a key of {W} words");
    let word = |start: usize| {
        // SAFETY: `start` is at most 8 (W - 2), or is `size - 8`. The key has at least 8 bytes and more than 8 (W - 1)
        // bytes. So the eight bytes from `start` on are within the key.
        let bytes = unsafe { key.as_ptr().add(start).cast::<[u8; 8]>().read_unaligned() };
        u64::from_le_bytes(bytes)
    };
    let mut words = [word(size - 8); W];
    for (index, first) in words[..W - 1].iter_mut().enumerate() {
        *first = word(8 * index);
    }
    words
}

/// Returns the single word of a key of fewer than eight bytes.
#[inline]
fn short(key: &[u8]) -> u64 {
    if let (Some(front), Some(back)) = (key.first_chunk(), key.last_chunk()) {
        let word = |chunk: &[u8; 4]| u64::from(u32::from_le_bytes(*chunk));
        return word(front) << 32 | word(back);
    }
    key.iter()
        .fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Returns the single word of a key of at most eight bytes, given these bytes padded with zeros.
#[inline(always)]
fn padded_short(padded: u64, size: usize) -> u64 {
    match size {
        0 => 0,
        1..4 => padded.swap_bytes() >> (64 - 8 * size),
        4..8 => padded << 32 | padded >> (8 * (size - 4)),
        _ => padded,
    }
}

/// Evaluates `$body`, in which `$new` is the constructor of the [`Key`] type for keys of `$key_bytes` bytes.
macro_rules! with_words {
    ($key_bytes:expr, $new:ident => $body:expr) => {{
        use $crate::key::{Long, Words};
        macro_rules! of {
            ($words:literal) => {{
                let $new = |key| Words::<$words>::new(key);
                $body
            }};
        }
        match $key_bytes {
            0..=8 => of!(1),
            9..=16 => of!(2),
            17..=24 => of!(3),
            25..=32 => of!(4),
            33..=40 => of!(5),
            41..=48 => of!(6),
            49..=56 => of!(7),
            57..=64 => of!(8),
            _ => {
                let $new = |key| Long(key);
                $body
            }
        }
    }};
}
pub(crate) use with_words;

/// Returns the hash of a key.
pub(crate) fn hash_of(hasher: &impl HashKey, key: &[u8]) -> u64 {
    with_words!(key.len(), new => new(key).hash(hasher))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check<const W: usize>(size: usize) {
        let key: Vec<u8> = (0..size as u8)
            .map(|byte| byte.wrapping_mul(37) ^ 0xa5)
            .collect();
        let mut padded = [[0; 8]; W];
        padded.as_flattened_mut()[..size].copy_from_slice(&key);
        let found = Words::<W>::from_padded(&padded, size);
        assert_eq!(found.0, Words::<W>::new(&key).0, "{size} bytes");
    }

    #[test]
    fn padded_words_are_the_same_key() {
        (0..=8).for_each(check::<1>);
        (9..=16).for_each(check::<2>);
        (17..=24).for_each(check::<3>);
        (25..=32).for_each(check::<4>);
    }
}

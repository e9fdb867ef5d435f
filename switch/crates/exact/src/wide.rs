// SPDX-License-Identifier: Apache-2.0
//! Look-ups with AVX-512, for keys of 9 to 16 bytes, whose buckets are single cache lines: eight keys
//! are hashed at once, and a whole bucket is compared in one instruction. They find what those in
//! `lib.rs` and `batch.rs` find, which every processor has.

use std::arch::x86_64::*;
use std::hint::select_unpredictable;

use crate::NONE;
use crate::batch::{GROUP, Group};
use crate::bucket::{Look, Shape};
use crate::hash::KeyHasher;
use crate::segment::{SECOND_FROM, View};

/// Keys that are hashed together.
const EIGHT: usize = 8;

/// A processor with these instructions, and where what they compare lies in buckets of one shape.
#[derive(Clone, Debug)]
pub(crate) struct Wide {
    /// For each byte of a bucket, the byte of the key that is compared with it.
    spread: [u8; 64],
    /// Bits of the bytes of keys; of their first bytes; of the bytes behind them.
    keys: u64,
    firsts: u64,
    ends: u64,
    /// Bits of the tags.
    tags: u64,
    /// For eight keys that lie one after the other in two loads of four: the bytes of the first and of
    /// the last word of each.
    words: [[u8; 64]; 2],
    key_bytes: usize,
}

/// What a table's hashes lead to.
#[derive(Clone, Copy)]
pub(crate) struct Places<'a> {
    pub(crate) directory: &'a [View],
    pub(crate) depth: u32,
    pub(crate) buckets: u32,
}

impl Wide {
    /// `None` where the processor has not the instructions or keys are too short or too long.
    pub(crate) fn new(shape: &Shape) -> Option<Self> {
        let fits = shape.lines == 1 && (9..=16).contains(&shape.key_bytes);
        let able = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512dq")
            && std::is_x86_feature_detected!("avx512vl")
            && std::is_x86_feature_detected!("avx512vbmi")
            && std::is_x86_feature_detected!("bmi1")
            && std::is_x86_feature_detected!("bmi2");
        if !fits || !able {
            return None;
        }
        let key_bytes = shape.key_bytes;
        let mut wide = Self {
            spread: [0; 64],
            keys: 0,
            firsts: 0,
            ends: 0,
            tags: 0,
            words: [[0; 64]; 2],
            key_bytes,
        };
        for slot in 0..shape.slots {
            let start = shape.slot(slot);
            wide.tags |= 1 << (1 + slot);
            wide.firsts |= 1 << start;
            wide.ends |= 1 << (start + key_bytes);
            for byte in 0..key_bytes {
                wide.keys |= 1 << (start + byte);
                wide.spread[start + byte] = byte as u8;
            }
        }
        for (place, (first, last)) in (0..64).zip(zip_mut(&mut wide.words)) {
            let (key, byte) = (place / 8, place % 8);
            let start = key / 4 * 64 + key % 4 * key_bytes;
            *first = (start + byte) as u8;
            *last = (start + key_bytes - 8 + byte) as u8;
        }
        Some(wide)
    }

    /// Where the value of a key is in a bucket: its offset, 64 if the key is not there.
    ///
    /// # Safety
    /// The bucket is one of the shape; `pattern` is [`pattern`](Self::pattern)'s.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2")]
    unsafe fn value_at(&self, pattern: __m512i, bucket: Look<'_>) -> u64 {
        // SAFETY: the bucket is a cache line.
        let line = unsafe { _mm512_load_si512(bucket.start().cast()) };
        let equal = _mm512_cmpeq_epi8_mask(pattern, line);
        // One added to a key's bits runs over behind them if all are set.
        let keys = (equal & self.keys).wrapping_add(self.firsts);
        (keys & _pdep_u64(equal >> 1, self.ends))
            .trailing_zeros()
            .into()
    }

    /// What the bucket of a key looks like where the key and its tag can be.
    ///
    /// # Safety
    /// `key` points to a key and as many bytes more as make sixteen.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2")]
    unsafe fn pattern(&self, key: *const u8, tag: u8) -> __m512i {
        // SAFETY: the caller's promise; `spread` has 64 bytes.
        let (key, spread) = unsafe {
            let key = _mm_loadu_si128(key.cast());
            (key, _mm512_loadu_si512(self.spread.as_ptr().cast()))
        };
        let spread = _mm512_permutexvar_epi8(spread, _mm512_castsi128_si512(key));
        _mm512_mask_set1_epi8(spread, self.tags, tag as i8)
    }

    /// Finds the first buckets of the first [`GROUP`] keys.
    ///
    /// # Safety
    /// The processor has the instructions (a `Wide` exists only there); keys have the shape's size,
    /// and the places are those of their table.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2")]
    pub(crate) unsafe fn begin<'a>(
        &self,
        hasher: &KeyHasher,
        places: Places<'a>,
        keys: &[u8],
        group: &mut Group<'a>,
    ) {
        let key_bytes = self.key_bytes;
        let four = 4 * self.key_bytes;
        let (secrets, start, factor) = hasher.wide();
        let secrets = secrets.map(|secret| _mm512_set1_epi64(secret as i64));
        let depth = _mm_cvtsi32_si128(64 - places.depth as i32);
        let buckets = _mm512_set1_epi64(places.buckets.into());
        // SAFETY: each has 64 bytes.
        let words = unsafe {
            [
                _mm512_loadu_si512(self.words[0].as_ptr().cast()),
                _mm512_loadu_si512(self.words[1].as_ptr().cast()),
            ]
        };
        let count = (keys.len() / key_bytes).min(GROUP);
        for at in (0..count).step_by(EIGHT) {
            let mut keys = &keys[at * key_bytes..];
            let mut copy = [0; 128];
            if keys.len() < four + 64 {
                // The last ones: what lies behind them must not be read.
                let rest = keys.len().min(2 * four);
                copy[..rest].copy_from_slice(&keys[..rest]);
                keys = &copy;
            }
            // SAFETY: there are 64 bytes from the fifth key on. The first `depth` bits of a hash are
            // less than the directory's places (a shift by 64 leaves 0). A group has room for whole
            // eights.
            unsafe {
                let front = _mm512_loadu_si512(keys.as_ptr().cast());
                let back = _mm512_loadu_si512(keys.as_ptr().add(four).cast());
                let mut sum = _mm512_set1_epi64(start as i64);
                for word in 0..2 {
                    let keys = _mm512_permutex2var_epi8(front, words[word], back);
                    let keys = _mm512_add_epi32(keys, secrets[word]);
                    let product = _mm512_mul_epu32(keys, _mm512_srli_epi64::<32>(keys));
                    sum = _mm512_add_epi64(sum, product);
                }
                let mixed = _mm512_xor_si512(sum, _mm512_srli_epi64::<32>(sum));
                let mixed = _mm512_mullo_epi64(mixed, _mm512_set1_epi64(factor as i64));
                let hashes = _mm512_xor_si512(mixed, _mm512_srli_epi64::<32>(mixed));
                let views = if places.depth == 0 {
                    _mm512_set1_epi64(places.directory[0].address() as i64)
                } else {
                    let place = _mm512_srl_epi64(hashes, depth);
                    _mm512_i64gather_epi64::<8>(place, places.directory.as_ptr().cast())
                };
                // As `buckets_of` computes them.
                let first = _mm512_srli_epi64::<32>(_mm512_mul_epu32(hashes, buckets));
                let other = _mm512_srli_epi64::<SECOND_FROM>(hashes);
                let one = _mm512_set1_epi64(1);
                let apart = _mm512_mul_epu32(other, _mm512_sub_epi64(buckets, one));
                let apart = _mm512_add_epi64(_mm512_srli_epi64::<32>(apart), one);
                let second = _mm512_add_epi64(first, apart);
                let second = _mm512_min_epu64(second, _mm512_sub_epi64(second, buckets));
                let firsts = _mm512_add_epi64(views, _mm512_slli_epi64::<6>(first));
                let seconds = _mm512_add_epi64(views, _mm512_slli_epi64::<6>(second));
                let tags =
                    _mm512_and_si512(_mm512_srli_epi64::<32>(hashes), _mm512_set1_epi64(0xff));
                let tags = _mm512_max_epu64(tags, one);
                _mm512_storeu_si512(group.hashes.as_mut_ptr().add(at).cast(), hashes);
                _mm512_storeu_si512(group.firsts.as_mut_ptr().add(at).cast(), firsts);
                _mm512_storeu_si512(group.seconds.as_mut_ptr().add(at).cast(), seconds);
                _mm_storel_epi64(
                    group.tags.as_mut_ptr().add(at).cast(),
                    _mm512_cvtepi64_epi8(tags),
                );
            }
        }
    }

    /// Looks a group up in its first buckets: writes what is found, and which keys go on. `keys` begins
    /// with those of the group.
    ///
    /// # Safety
    /// As for [`begin`](Self::begin), which has filled the group for these keys.
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,bmi1,bmi2")]
    pub(crate) unsafe fn look(
        &self,
        keys: &[u8],
        values: &mut [u32],
        group: &Group<'_>,
        open: &mut [u8; GROUP],
    ) -> usize {
        let mut count = 0;
        let begun = group.firsts.iter().zip(&group.tags);
        for (index, (value, (bucket, tag))) in values.iter_mut().zip(begun).enumerate() {
            let key = &keys[index * self.key_bytes..];
            let mut copy = [0; 16];
            let key = if key.len() >= 16 {
                key.as_ptr()
            } else {
                // The last one: what lies behind it must not be read.
                copy[..key.len()].copy_from_slice(key);
                copy.as_ptr()
            };
            // SAFETY: the caller's promise; a bucket has four bytes at its begin, and where a key's
            // value is.
            unsafe {
                let at = self.value_at(self.pattern(key, *tag), *bucket);
                let found = bucket.value((at & 63) as usize);
                let hit = at < 64;
                *value = select_unpredictable(hit, found, NONE);
                open[count % GROUP] = index as u8;
                count += usize::from(!hit & bucket.overflowed());
            }
        }
        count
    }
}

/// Both arrays' elements side by side.
fn zip_mut<const N: usize>(both: &mut [[u8; N]; 2]) -> impl Iterator<Item = (&mut u8, &mut u8)> {
    let [first, second] = both;
    first.iter_mut().zip(second)
}

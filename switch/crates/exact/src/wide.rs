// SPDX-License-Identifier: Apache-2.0
//! Hashes keys of 9 to 16 bytes with AVX-512, eight keys at once. The hashes equal those of [`KeyHasher`].

use std::arch::x86_64::*;

use crate::bucket::Tag;
use crate::hash::KeyHasher;
use crate::lanes::Lanes;
use crate::segment::{BucketOffsets, FIRST_SEGMENT_BIT, HALF, SegmentView};

/// Number of keys that are hashed together.
const EIGHT: usize = 8;

/// SIMD kernel for keys of one size. Invariant: a value exists only if the processor has the instructions.
#[derive(Clone, Debug)]
pub(crate) struct WideHasher {
    /// Byte permutations. They extract the first and the last word of each of eight consecutive keys from two loads of
    /// four keys.
    words: [[u8; 64]; 2],
    key_bytes: usize,
}

/// The parts of a table that are needed to find the bucket of a hash.
#[derive(Clone, Copy)]
pub(crate) struct BucketLocator<'a> {
    pub(crate) directory: &'a [SegmentView],
    pub(crate) offsets: BucketOffsets,
}

impl WideHasher {
    /// Creates a kernel. Returns `None` if the processor lacks the instructions, or if `key_bytes` is not 9 to 16.
    pub(crate) fn new(key_bytes: usize) -> Option<Self> {
        let able = std::is_x86_feature_detected!("avx512f")
            && std::is_x86_feature_detected!("avx512bw")
            && std::is_x86_feature_detected!("avx512vbmi");
        if !able || !(9..=16).contains(&key_bytes) {
            return None;
        }
        let word = |from: usize| {
            std::array::from_fn(|index| {
                let (key, byte) = (index / 8, index % 8);
                (key / 4 * 64 + key % 4 * key_bytes + from + byte) as u8
            })
        };
        Some(Self {
            words: [word(0), word(key_bytes - 8)],
            key_bytes,
        })
    }

    /// Hashes the first `count` keys of `keys`, and locates their first buckets.
    ///
    /// # Panics
    /// Panics if there are fewer than `count` keys or lanes, or if the number of lanes is not a multiple of eight.
    ///
    /// # Safety
    /// The processor must have the instructions; a `WideHasher` exists only on such a processor. The table's keys must
    /// have the kernel's size.
    #[target_feature(enable = "avx512f,avx512bw,avx512vbmi")]
    pub(crate) unsafe fn begin<'a, const N: usize>(
        &self,
        hasher: &KeyHasher,
        locator: BucketLocator<'a>,
        keys: &[u8],
        count: usize,
        lanes: &mut Lanes<'a, N>,
    ) {
        assert!(N.is_multiple_of(EIGHT) && count <= N && count * self.key_bytes <= keys.len());
        let four = 4 * self.key_bytes;
        let [first, second] = hasher.pair().map(|secret| _mm512_set1_epi64(secret as i64));
        let last = _mm512_set1_epi64(locator.directory.len() as i64 - 1);
        let mask = _mm512_set1_epi64(locator.offsets.mask() as i64);
        // SAFETY: each permutation has 64 bytes.
        let words = unsafe {
            [
                _mm512_loadu_si512(self.words[0].as_ptr().cast()),
                _mm512_loadu_si512(self.words[1].as_ptr().cast()),
            ]
        };
        // Within each part of 128 bits, this shuffle copies the lowest byte of each word to all bytes of the word.
        let first_of_word = _mm512_set4_epi32(0x0808_0808, 0x0808_0808, 0, 0);
        for at in (0..count).step_by(EIGHT) {
            let mut keys = &keys[at * self.key_bytes..];
            let mut copy = [0; 128];
            if keys.len() < four + 64 {
                // Copies the last keys, because bytes after them must not be read.
                let rest = keys.len().min(2 * four);
                copy[..rest].copy_from_slice(&keys[..rest]);
                keys = &copy;
            }
            // SAFETY: there are 64 bytes from the fifth key on. The number of elements of the directory is a power of
            // two, and no position is beyond the last element. The number of lanes is a multiple of eight.
            unsafe {
                let front = _mm512_loadu_si512(keys.as_ptr().cast());
                let back = _mm512_loadu_si512(keys.as_ptr().add(four).cast());
                let word = |number: usize| _mm512_permutex2var_epi8(front, words[number], back);
                let hashes = folded_products(
                    _mm512_add_epi64(word(0), first),
                    _mm512_add_epi64(word(1), second),
                );
                let position = _mm512_and_si512(
                    _mm512_ror_epi64::<{ FIRST_SEGMENT_BIT as i32 }>(hashes),
                    last,
                );
                let views = if let [only] = locator.directory {
                    _mm512_set1_epi64(only.address() as i64)
                } else {
                    _mm512_i64gather_epi64::<8>(position, locator.directory.as_ptr().cast())
                };
                // The same computation as in `BucketOffsets::first`.
                let mixed = _mm512_xor_si512(hashes, _mm512_srli_epi64::<HALF>(hashes));
                let buckets = _mm512_add_epi64(views, _mm512_and_si512(mixed, mask));
                let tags = _mm512_srli_epi64::<{ Tag::FROM }>(hashes);
                let tags = _mm512_shuffle_epi8(tags, first_of_word);
                let tags = _mm512_max_epu8(tags, _mm512_set1_epi8(Tag::LEAST as i8));
                _mm512_storeu_si512(lanes.tags.as_mut_ptr().add(at).cast(), tags);
                _mm512_storeu_si512(lanes.hashes.as_mut_ptr().add(at).cast(), hashes);
                _mm512_storeu_si512(lanes.buckets.as_mut_ptr().add(at).cast(), buckets);
            }
        }
    }
}

/// Multiplies the 64-bit words of two vectors, lane by lane. Returns the XOR of the upper and the lower half of each
/// 128-bit product (folded multiply).
#[inline]
#[target_feature(enable = "avx512f")]
fn folded_products(one: __m512i, other: __m512i) -> __m512i {
    let low_half = _mm512_set1_epi64(0xffff_ffff);
    let upper = |word| _mm512_srli_epi64::<32>(word);
    let (one_high, other_high) = (upper(one), upper(other));
    let low = _mm512_mul_epu32(one, other);
    // Neither sum can overflow, because a product of halves is at most (2^32 - 1)^2.
    let middle = _mm512_add_epi64(_mm512_mul_epu32(one_high, other), upper(low));
    let rest = _mm512_and_si512(middle, low_half);
    let cross = _mm512_add_epi64(_mm512_mul_epu32(one, other_high), rest);
    let high = _mm512_add_epi64(_mm512_mul_epu32(one_high, other_high), upper(middle));
    let high = _mm512_add_epi64(high, upper(cross));
    let low = _mm512_mask_shuffle_epi32::<_MM_PERM_CDAB>(low, 0xaaaa, cross);
    _mm512_xor_si512(high, low)
}

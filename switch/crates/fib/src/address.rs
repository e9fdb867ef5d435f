// SPDX-License-Identifier: Apache-2.0
//! Addresses and prefixes.

use std::fmt::Debug;

/// An address with a fixed number of bits. The most significant bit is the first.
pub trait Address: Copy + Eq + Ord + Debug + Default + Send + Sync + 'static {
    /// Number of bits.
    const BITS: u32;

    /// Returns `count` bits (1 to 32) of the address, from bit `start` on. Bits beyond the address are 0.
    fn bits(self, start: u32, count: u32) -> u32;

    /// Returns the address that has `bits` as its `count` bits (1 to 32) from bit `start` on, and 0 in all other bits.
    /// This is the inverse of [`bits`](Self::bits). Ignores bits beyond the end of the address.
    #[must_use]
    fn of_bits(bits: u32, start: u32, count: u32) -> Self;

    /// Returns the bits that are set in at least one of the two addresses.
    #[must_use]
    fn union(self, other: Self) -> Self;

    /// Returns the address with its first `length` bits kept and all other bits cleared.
    #[must_use]
    fn truncate(self, length: u32) -> Self;

    /// Returns the address with its first `length` bits kept and all other bits set. This is the last address of a
    /// prefix.
    #[must_use]
    fn fill(self, length: u32) -> Self;

    /// Returns the address with its first `length` bits cleared and all other bits kept.
    #[must_use]
    fn below(self, length: u32) -> Self;

    /// Returns the next address, if there is one.
    fn successor(self) -> Option<Self>;

    /// Returns the first 64 bits, padded with zero bits at the end.
    fn upper(self) -> u64;

    /// Returns the bits after the first 64, padded with zero bits at the end.
    fn lower(self) -> u64;
}

macro_rules! address {
    ($ty:ty) => {
        impl Address for $ty {
            const BITS: u32 = <$ty>::BITS;

            #[inline]
            fn bits(self, start: u32, count: u32) -> u32 {
                let rest = self.checked_shl(start).unwrap_or(0);
                (rest >> (Self::BITS - count)) as u32
            }

            #[inline]
            fn of_bits(bits: u32, start: u32, count: u32) -> Self {
                let aligned = <$ty>::from(bits) << (Self::BITS - count);
                aligned.checked_shr(start).unwrap_or(0)
            }

            #[inline]
            fn union(self, other: Self) -> Self {
                self | other
            }

            #[inline]
            fn truncate(self, length: u32) -> Self {
                match length {
                    0 => 0,
                    length if length >= Self::BITS => self,
                    length => self & (<$ty>::MAX << (Self::BITS - length)),
                }
            }

            #[inline]
            fn fill(self, length: u32) -> Self {
                self | <$ty>::MAX.checked_shr(length).unwrap_or(0)
            }

            #[inline]
            fn below(self, length: u32) -> Self {
                self & <$ty>::MAX.checked_shr(length).unwrap_or(0)
            }

            #[inline]
            fn successor(self) -> Option<Self> {
                self.checked_add(1)
            }

            #[inline]
            fn upper(self) -> u64 {
                let aligned = u128::from(self) << (u128::BITS - Self::BITS);
                (aligned >> 64) as u64
            }

            #[inline]
            fn lower(self) -> u64 {
                let aligned = u128::from(self) << (u128::BITS - Self::BITS);
                aligned as u64
            }
        }
    };
}

address!(u32);
address!(u128);

/// A prefix: the first `length` bits of an address. The other bits are 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Prefix<A> {
    address: A,
    length: u8,
}

impl<A: Address> Prefix<A> {
    /// Creates the prefix that has the first `length` bits of `address`. A length beyond the address is reduced to the
    /// number of its bits.
    pub fn new(address: A, length: u32) -> Self {
        let length = length.min(A::BITS);
        Self {
            address: address.truncate(length),
            length: length as u8,
        }
    }

    /// Returns the address. Bits beyond the length are 0.
    pub fn address(self) -> A {
        self.address
    }

    /// Returns the last address of the prefix.
    pub fn last(self) -> A {
        self.address.fill(self.length())
    }

    /// Returns the address that has the prefix's bits, followed by the remaining bits of `bits`.
    pub fn host(self, bits: A) -> A {
        self.address.union(bits.below(self.length()))
    }

    /// Returns whether the prefix contains every address of `other`.
    pub fn covers(self, other: Self) -> bool {
        self.length <= other.length && self.contains(other.address)
    }

    /// Returns the number of significant bits.
    pub fn length(self) -> u32 {
        u32::from(self.length)
    }

    /// Returns whether the prefix contains an address.
    pub fn contains(self, address: A) -> bool {
        address.truncate(self.length()) == self.address
    }
}

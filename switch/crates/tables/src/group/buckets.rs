// SPDX-License-Identifier: Apache-2.0
//! Finds the member of a group for a flow. The shares of the members are exactly proportional to their weights.
//!
//! Flows are hashed to buckets. Members bid for each bucket as in weighted rendezvous hashing ("A name-based mapping
//! scheme for rendezvous", Thaler and Ravishankar, 1996; weights by exponential draws). A bid depends only on the
//! bucket and the member.
//!
//! If every bucket went to the highest bidder, shares would vary as in a random choice. For a member with the fraction
//! p of n buckets, the standard deviation is the root of n p (1 - p), which is several percent of most shares. So every
//! member has a quota, which is exactly its share. For each bucket, the highest bidder that has quota left gets as much
//! of the bucket as its quota allows, and the next bidders get the rest. In the end each member has exactly its share.
//! The number of buckets that are divided among several members is less than the number of members.
//!
//! Invariant: the buckets of a new group depend only on its members and their weights, not on their order. So a switch
//! that restarts maps flows as before. [`succession`](super::succession) assigns the buckets when a group is modified.
//!
//! The table of buckets is built when a group is written. A selection takes three multiplications and a load. The
//! number of buckets depends only on the size that the group declares, not on its members.

use super::bids::{Bidder, Quotas, shares};
use super::piece::BucketPiece;

/// Maximum number of members of a group with buckets. A larger group selects by weight alone, because a table of
/// buckets would be too large or too coarse.
const MAX_MEMBERS: usize = 1024;

/// Number of buckets for each member that the declared size allows, up to [`USUAL_BUCKETS`] buckets in total. With more
/// buckets, fewer flows fall into divided buckets.
const BUCKETS_EACH: usize = 64;

/// Minimum number of buckets of a group.
const MIN_BUCKETS: usize = 1 << 10;

/// Number of buckets of a group with many members, and of a group that declares no size.
const USUAL_BUCKETS: usize = 1 << 12;

/// Largest declared size for each bucket. Only a group whose declared size exceeds [`USUAL_BUCKETS`] times this number
/// has more than [`USUAL_BUCKETS`] buckets. The declared size is the limit of the sum of the weights.
const SIZE_EACH: usize = 4;

/// Maximum number of buckets of a group.
const MAX_BUCKETS: usize = 1 << 14;

/// Multiplier of a hash, applied before the hash is scaled to the number of buckets. The multiplier is 2^64 divided by
/// the golden ratio, which spreads consecutive numbers far apart (Knuth, The Art of Computer Programming, volume 3,
/// 6.4). The high half of the 128-bit product is xored into the low half, so that the result depends on the hash's high
/// bits too.
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// The assignment of buckets to members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Buckets {
    owners: Owners,
    /// Parts of all divided buckets, in order of bucket and position.
    parts: Box<[DividedPart]>,
}

/// The owner of each bucket, as an index of a member. The largest number of the integer type marks a divided bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owners {
    /// For at most 255 members.
    Narrow(Box<[u8]>),
    /// For at most [`MAX_MEMBERS`] members.
    Wide(Box<[u16]>),
    /// For larger groups, which have no buckets. Holds for each member the sum of the weights of all members up to and
    /// including this one.
    Sums(Box<[u64]>),
}

/// A part of a divided bucket. It consists of the positions after the previous part, up to and including `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct DividedPart {
    last: u64,
    bucket: u32,
    owner: u16,
}

/// Location of a hash: the bucket, and the position in the bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct HashLocation {
    pub(super) bucket: usize,
    /// Position in the bucket, as a fraction of 2^64.
    position: u64,
}

/// Returns the number of buckets of a group that declares this size. 0 means that the group declares no size.
pub(super) fn count(declared: u32) -> usize {
    let declared = declared as usize;
    match declared {
        0 => USUAL_BUCKETS,
        _ => declared
            .saturating_mul(BUCKETS_EACH)
            .clamp(MIN_BUCKETS, USUAL_BUCKETS)
            .max(declared / SIZE_EACH)
            .min(MAX_BUCKETS)
            .next_power_of_two(),
    }
}

/// Number of buckets of a one-shot group.
pub(super) const OF_ENTRY: usize = MIN_BUCKETS;

/// Returns the location of a hash among `count` buckets. The location depends on every bit of the hash, even if the
/// hash has only 16 bits.
#[inline]
pub(super) fn locate(hash: u64, count: usize) -> HashLocation {
    let product = u128::from(hash) * u128::from(SPREAD);
    let spread = (product >> 64) as u64 ^ product as u64;
    let scaled = u128::from(spread) * count as u128;
    HashLocation {
        bucket: (scaled >> 64) as usize,
        position: scaled as u64,
    }
}

/// Returns the number of positions in `count` buckets.
pub(super) fn positions(count: usize) -> u128 {
    (count as u128) << 64
}

impl Buckets {
    /// Creates the buckets of a new group. The group has `count` buckets. A group with a single member has one bucket,
    /// and a group with too many members has none.
    pub(super) fn new(bidders: &[Bidder], count: usize) -> Self {
        if !Self::are_few(bidders) {
            let sum = |sum: &mut u64, bidder: &Bidder| {
                *sum += u64::from(bidder.weight);
                Some(*sum)
            };
            return Self {
                owners: Owners::Sums(bidders.iter().scan(0, sum).collect()),
                parts: Box::default(),
            };
        }
        let mut pieces = Vec::with_capacity(count + bidders.len());
        if bidders.len() > 1 {
            let quotas = Quotas::new(bidders, shares(bidders, positions(count)));
            let free = (0..count).map(|bucket| BucketPiece::whole(bucket, None));
            quotas.give(free, &mut pieces);
        }
        Self::of_pieces(&pieces, bidders.len(), count)
    }

    /// Returns whether a group with these members is small enough to have buckets.
    pub(super) fn are_few(bidders: &[Bidder]) -> bool {
        bidders.len() <= MAX_MEMBERS
    }

    /// Creates buckets from pieces, which must cover all positions in order. A single member has one bucket.
    pub(super) fn of_pieces(pieces: &[BucketPiece], members: usize, count: usize) -> Self {
        let mut owners = vec![None; if members > 1 { count } else { members }];
        let mut parts: Vec<DividedPart> = Vec::new();
        if members == 1 {
            owners.fill(Some(0));
            return Self::of_owners(&owners, members, parts);
        }
        let same = |a: &BucketPiece, b: &BucketPiece| a.bucket == b.bucket && a.owner == b.owner;
        let runs: Vec<&[BucketPiece]> = pieces.chunk_by(same).collect();
        for bucket in runs.chunk_by(|a, b| a[0].bucket == b[0].bucket) {
            if let [run] = bucket {
                owners[run[0].bucket] = run[0].owner;
                continue;
            }
            parts.extend(bucket.iter().map(|run| DividedPart {
                bucket: run[0].bucket as u32,
                last: run[run.len() - 1].last,
                owner: run[0].owner.map_or(u16::MAX, |owner| owner as u16),
            }));
        }
        Self::of_owners(&owners, members, parts)
    }

    fn of_owners(owners: &[Option<usize>], members: usize, parts: Vec<DividedPart>) -> Self {
        let owners = owners.iter();
        let owners = if members <= usize::from(u8::MAX) {
            let narrow = |owner: &Option<usize>| owner.map_or(u8::MAX, |owner| owner as u8);
            Owners::Narrow(owners.map(narrow).collect())
        } else {
            let wide = |owner: &Option<usize>| owner.map_or(u16::MAX, |owner| owner as u16);
            Owners::Wide(owners.map(wide).collect())
        };
        Self {
            owners,
            parts: parts.into(),
        }
    }

    /// Returns all positions of `count` buckets as pieces, in order.
    pub(super) fn pieces(&self, count: usize) -> Vec<BucketPiece> {
        let owners = self.owners();
        if let [only] = owners[..] {
            return (0..count)
                .map(|bucket| BucketPiece::whole(bucket, only))
                .collect();
        }
        let mut pieces = Vec::with_capacity(owners.len() + self.parts.len());
        let mut parts = self.parts.iter().peekable();
        for (bucket, owner) in owners.into_iter().enumerate() {
            if owner.is_some() {
                pieces.push(BucketPiece::whole(bucket, owner));
                continue;
            }
            let mut first = 0;
            while let Some(part) = parts.next_if(|part| part.bucket as usize == bucket) {
                pieces.push(BucketPiece {
                    bucket,
                    first,
                    last: part.last,
                    owner: Some(part.owner.into()),
                });
                first = part.last.wrapping_add(1);
            }
        }
        pieces
    }

    /// Returns the number of parts of all divided buckets.
    pub(super) fn parts(&self) -> usize {
        self.parts.len()
    }

    /// Returns the owner of each bucket, or `None` for a divided bucket. Returns an empty list if the group has no
    /// buckets.
    pub(super) fn owners(&self) -> Vec<Option<usize>> {
        let narrow = |owner: &u8| (*owner != u8::MAX).then_some(usize::from(*owner));
        let wide = |owner: &u16| (*owner != u16::MAX).then_some(usize::from(*owner));
        match &self.owners {
            Owners::Narrow(buckets) => buckets.iter().map(narrow).collect(),
            Owners::Wide(buckets) => buckets.iter().map(wide).collect(),
            Owners::Sums(_) => Vec::new(),
        }
    }

    /// Drops the owners of whole buckets. Keeps only the parts of divided buckets.
    pub(super) fn drop_owners(&mut self) {
        self.owners = Owners::Narrow(Box::default());
    }

    /// Returns the buckets with these owners of whole buckets: the inverse of [`drop_owners`](Self::drop_owners).
    pub(super) fn with_owners(&self, owners: &[Option<usize>], members: usize) -> Self {
        Self::of_owners(owners, members, self.parts.to_vec())
    }

    /// Returns the number to which a hash is scaled: the number of buckets, or in a group without buckets the sum of
    /// the weights.
    #[inline]
    pub(super) fn count(&self) -> usize {
        match &self.owners {
            Owners::Narrow(buckets) => buckets.len(),
            Owners::Wide(buckets) => buckets.len(),
            Owners::Sums(sums) => sums.last().map_or(0, |sum| *sum as usize),
        }
    }

    /// Returns the bucket of a hash, and the member that owns the hash's position in this bucket.
    #[inline]
    pub(super) fn choose(&self, hash: u64) -> Option<(usize, usize)> {
        let location = locate(hash, self.count());
        let whole = match &self.owners {
            Owners::Narrow(buckets) => match *buckets.get(location.bucket)? {
                u8::MAX => None,
                owner => Some(usize::from(owner)),
            },
            Owners::Wide(buckets) => match *buckets.get(location.bucket)? {
                u16::MAX => None,
                owner => Some(usize::from(owner)),
            },
            Owners::Sums(sums) => Some(sums.partition_point(|sum| *sum <= location.bucket as u64)),
        };
        let member = whole.or_else(|| self.part_owner(location))?;
        Some((location.bucket, member))
    }

    /// Returns the member that owns this position of a divided bucket.
    #[cold]
    pub(super) fn part_owner(&self, location: HashLocation) -> Option<usize> {
        let before = |part: &DividedPart| {
            (part.bucket as usize, part.last) < (location.bucket, location.position)
        };
        let part = self.parts.get(self.parts.partition_point(before))?;
        Some(part.owner.into())
    }
}

#[cfg(test)]
mod tests;

// SPDX-License-Identifier: Apache-2.0
//! Bids of members for buckets. Each bucket goes to the highest bidder that has quota left. A quota is the number of
//! positions that a bidder may still get. A bucket has 2^64 positions, and can be divided between bidders at any
//! position.

use sluice_random::mix;

use std::cmp::Ordering;

use super::piece::BucketPiece;

/// Number of positions that counts as a rounding error: 2^-52 of a bucket. No bucket is divided for so few positions.
const NEGLIGIBLE: u128 = 1 << 12;

/// A group member that bids for buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bidder {
    /// Hash of the member's identity; see [`mix`].
    pub(super) key: u64,
    /// Weight of the member, at least 1.
    pub(super) weight: u32,
}

/// Returns a member's pseudo-random draw for a bucket, uniform over all 64-bit numbers.
#[inline]
fn draw(bucket: usize, bidder: &Bidder) -> u64 {
    mix(bidder.key ^ (bucket as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// Returns how far a bid is from the best possible bid; the least distance wins. The distance is exponentially
/// distributed, and its rate is the weight. So the probability that a member has the least distance is proportional to
/// its weight.
fn distance(draw: u64, weight: u32) -> f64 {
    let uniform = ((draw >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln() / f64::from(weight)
}

/// A member's bid for a bucket.
struct Bid {
    member: usize,
    distance: f64,
    draw: u64,
    key: u64,
}

impl Bid {
    fn new(draw: u64, member: usize, bidder: &Bidder) -> Self {
        Self {
            member,
            distance: distance(draw, bidder.weight),
            draw,
            key: bidder.key,
        }
    }

    /// Compares two bids for one bucket. The better bid is greater. If two weights are equal, the greater draw is the
    /// better bid, so finding the best bid among equal weights needs no logarithm.
    fn compare(&self, other: &Self) -> Ordering {
        let nearer = other.distance.total_cmp(&self.distance);
        nearer
            .then(self.draw.cmp(&other.draw))
            .then(self.key.cmp(&other.key))
    }
}

/// Returns the highest of these bidders for a bucket. When the watched port of a bucket's owner goes down, the caller
/// passes only the members whose ports are up. So only the buckets of that owner move, and they return when the port is
/// up again.
pub(super) fn winner<'a>(
    bucket: usize,
    bidders: impl Iterator<Item = (usize, &'a Bidder)>,
) -> Option<usize> {
    let bids = bidders.map(|(index, bidder)| Bid::new(draw(bucket, bidder), index, bidder));
    bids.max_by(Bid::compare).map(|best| best.member)
}

/// Returns each bidder's share of `positions` positions, in proportion to the weights.
pub(super) fn shares(bidders: &[Bidder], positions: u128) -> Vec<u128> {
    let weights = || bidders.iter().map(|bidder| u128::from(bidder.weight));
    let sum: u128 = weights().sum();
    weights()
        .map(|weight| positions * weight / sum.max(1))
        .collect()
}

/// The number of positions that each bidder may still get.
#[derive(Debug)]
pub(super) struct Quotas<'a> {
    bidders: &'a [Bidder],
    quota: Vec<u128>,
}

impl<'a> Quotas<'a> {
    pub(super) fn new(bidders: &'a [Bidder], quota: Vec<u128>) -> Self {
        Self { bidders, quota }
    }

    /// Returns whether a bidder has quota left for a whole piece.
    pub(super) fn fits(&self, owner: usize, piece: &BucketPiece) -> bool {
        piece.positions() <= self.quota[owner] + NEGLIGIBLE
    }

    /// Assigns to a bidder as much of a piece as the bidder's quota allows. Returns the assigned part and the rest.
    pub(super) fn take(
        &mut self,
        owner: usize,
        piece: BucketPiece,
    ) -> (Option<BucketPiece>, Option<BucketPiece>) {
        let quota = self.quota[owner];
        let (taken, rest) = if self.fits(owner, &piece) {
            (Some(piece), None)
        } else if quota < NEGLIGIBLE {
            (None, Some(piece))
        } else {
            let (taken, rest) = piece.split(quota);
            (Some(taken), Some(rest))
        };
        let positions = taken.as_ref().map_or(0, BucketPiece::positions);
        self.quota[owner] = quota.saturating_sub(positions);
        let owned = |piece: BucketPiece| piece.of(owner);
        (taken.map(owned), rest)
    }

    /// Assigns each piece, in order, to the highest bidder that has quota left. Divides at most one piece for each
    /// bidder.
    pub(super) fn give(
        mut self,
        free: impl IntoIterator<Item = BucketPiece>,
        given: &mut Vec<BucketPiece>,
    ) {
        let mut classes = self.classes();
        for piece in free {
            let mut rest = Some(piece);
            while let Some(piece) = rest.take() {
                let Some(owner) = self.highest_bidder(&classes, piece.bucket) else {
                    // All quotas are used up, but rounding can leave slightly more positions than the sum of the
                    // quotas. The highest bidder of all gets these positions.
                    let all = self.bidders.iter().enumerate();
                    given.extend(winner(piece.bucket, all).map(|owner| piece.of(owner)));
                    break;
                };
                let (taken, left) = self.take(owner, piece);
                given.extend(taken);
                rest = left;
                if self.quota[owner] < NEGLIGIBLE {
                    for class in &mut classes {
                        class.retain(|index| *index != owner);
                    }
                    classes.retain(|class| !class.is_empty());
                }
            }
        }
    }

    /// Like [`winner`] among the bidders that have quota left. Computes only one logarithm per distinct weight.
    fn highest_bidder(&self, classes: &[Vec<usize>], bucket: usize) -> Option<usize> {
        let best_of = |class: &Vec<usize>| {
            let draws = class.iter().map(|index| {
                let bidder = &self.bidders[*index];
                (draw(bucket, bidder), bidder.key, *index)
            });
            let (draw, _, index) = draws.max()?;
            Some(Bid::new(draw, index, &self.bidders[index]))
        };
        let best = classes.iter().filter_map(best_of).max_by(Bid::compare);
        best.map(|best| best.member)
    }

    /// Returns the bidders that have quota left, grouped by weight.
    fn classes(&self) -> Vec<Vec<usize>> {
        let has_quota = |index: &usize| self.quota[*index] >= NEGLIGIBLE;
        let mut order: Vec<usize> = (0..self.bidders.len()).filter(has_quota).collect();
        let weight = |index: usize| self.bidders[index].weight;
        order.sort_by_key(|index| weight(*index));
        let classes = order.chunk_by(|a, b| weight(*a) == weight(*b));
        classes.map(<[usize]>::to_vec).collect()
    }
}

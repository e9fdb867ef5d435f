// SPDX-License-Identifier: Apache-2.0
//! Which member of a group a flow goes to, so that a change of members moves few flows.
//!
//! Flows are hashed to buckets, and each bucket belongs to the member that bids the most for it:
//! weighted rendezvous hashing ("A name-based mapping scheme for rendezvous", Thaler and
//! Ravishankar, 1996; weights by exponential draws). A bid depends on the bucket and on that member
//! alone. So a member that leaves gives up its own buckets and no other moves, one that comes takes
//! its share from all alike, and the same members with the same weights give the same buckets in
//! whatever order and after whatever history: a switch that starts anew maps flows as before.
//!
//! Tables are built when a group is written; a choice is three multiplications and a load. How many
//! buckets there are follows from the size that the group declares, never from who is in it.

use std::cmp::Ordering;

/// Groups with more members are chosen from by weight alone: a table would be too large or too
/// coarse.
const MOST_MEMBERS: usize = 1024;

/// Buckets for each member that a group may have.
const BUCKETS_EACH: usize = 64;

/// Fewest and most buckets.
const LEAST: usize = 1 << 10;
const MOST: usize = 1 << 14;

/// Buckets of a group that declares no size.
const UNDECLARED: usize = 1 << 12;

/// What a hash is multiplied by before it is scaled to the buckets: 2^64 over the golden ratio, so that
/// numbers in a row come far apart (Knuth, The Art of Computer Programming, volume 3, 6.4). The product's
/// high half brings the high bits in.
pub(crate) const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// What bids for buckets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Bidder {
    /// What identifies a member, mixed: see [`mix`].
    pub(super) key: u64,
    /// Not 0.
    pub(super) weight: u32,
}

/// The member of each bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Buckets {
    /// At most 256 members.
    Narrow(Box<[u8]>),
    /// At most [`MOST_MEMBERS`].
    Wide(Box<[u16]>),
    /// No buckets: the sums of the weights up to and including each member's.
    Sums(Box<[u64]>),
}

/// Buckets of a group that declares to hold so many members; 0 for no declaration.
pub(super) fn count(declared: u32) -> usize {
    match declared {
        0 => UNDECLARED,
        _ => (declared as usize)
            .saturating_mul(BUCKETS_EACH)
            .clamp(LEAST, MOST)
            .next_power_of_two(),
    }
}

/// Buckets of a group that belongs to one entry.
pub(super) const OF_ENTRY: usize = LEAST;

/// Spreads all bits of a number over all bits (the finalizer of splitmix64).
pub(super) fn mix(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}

/// The bucket of a hash among so many. Every bit of the hash counts, however few it has.
#[inline]
pub(super) fn bucket(hash: u64, count: usize) -> usize {
    let product = u128::from(hash) * u128::from(SPREAD);
    let spread = (product >> 64) as u64 ^ product as u64;
    ((u128::from(spread) * count as u128) >> 64) as usize
}

/// What a member draws for a bucket: uniform over all numbers.
#[inline]
fn draw(bucket: usize, bidder: &Bidder) -> u64 {
    mix(bidder.key ^ (bucket as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
}

/// How far a bid is from the best that can be: exponential with the weight as its rate, so that the
/// least of several falls to each in proportion to its weight.
fn distance(draw: u64, weight: u32) -> f64 {
    let uniform = ((draw >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
    -uniform.ln() / f64::from(weight)
}

/// The order of two bids for one bucket. Among equal weights the greater draw wins, which is
/// what the distances say, too.
fn compare(a: (u64, &Bidder), b: (u64, &Bidder)) -> Ordering {
    let by_weight = if a.1.weight == b.1.weight {
        Ordering::Equal
    } else {
        distance(b.0, b.1.weight).total_cmp(&distance(a.0, a.1.weight))
    };
    by_weight.then(a.0.cmp(&b.0)).then(a.1.key.cmp(&b.1.key))
}

/// Who has a bucket, of these.
pub(super) fn winner<'a>(
    bucket: usize,
    bidders: impl Iterator<Item = (usize, &'a Bidder)>,
) -> Option<usize> {
    let bids = bidders.map(|(index, bidder)| (index, draw(bucket, bidder), bidder));
    let best = bids.max_by(|a, b| compare((a.1, a.2), (b.1, b.2)));
    best.map(|(index, _, _)| index)
}

impl Buckets {
    /// The buckets of a group: `count` of them unless one member has all, or there are too many.
    pub(super) fn new(bidders: &[Bidder], count: usize) -> Self {
        let classes = classes(bidders);
        let count = if bidders.len() == 1 { 1 } else { count };
        let owner = |bucket| owner(bucket, bidders, &classes);
        match bidders.len() {
            0 => Self::Narrow(Box::default()),
            1..=256 => Self::Narrow((0..count).map(|bucket| owner(bucket) as u8).collect()),
            257..=MOST_MEMBERS => {
                Self::Wide((0..count).map(|bucket| owner(bucket) as u16).collect())
            }
            _ => {
                let sum = |sum: &mut u64, bidder: &Bidder| {
                    *sum += u64::from(bidder.weight);
                    Some(*sum)
                };
                Self::Sums(bidders.iter().scan(0, sum).collect())
            }
        }
    }

    /// The owner of each bucket; nothing where there are none.
    pub(super) fn owners(&self) -> Vec<usize> {
        match self {
            Self::Narrow(buckets) => buckets.iter().map(|owner| usize::from(*owner)).collect(),
            Self::Wide(buckets) => buckets.iter().map(|owner| usize::from(*owner)).collect(),
            Self::Sums(_) => Vec::new(),
        }
    }

    /// How many places a hash can lead to.
    #[inline]
    pub(super) fn count(&self) -> usize {
        match self {
            Self::Narrow(buckets) => buckets.len(),
            Self::Wide(buckets) => buckets.len(),
            Self::Sums(sums) => sums.last().map_or(0, |sum| *sum as usize),
        }
    }

    /// The bucket of a hash, and the member that has it.
    #[inline]
    pub(super) fn choose(&self, hash: u64) -> Option<(usize, usize)> {
        let bucket = bucket(hash, self.count());
        let member = match self {
            Self::Narrow(buckets) => usize::from(*buckets.get(bucket)?),
            Self::Wide(buckets) => usize::from(*buckets.get(bucket)?),
            Self::Sums(sums) => sums.partition_point(|sum| *sum <= bucket as u64),
        };
        Some((bucket, member))
    }
}

/// Bidders of equal weight together.
fn classes(bidders: &[Bidder]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..bidders.len()).collect();
    order.sort_by_key(|index| bidders[*index].weight);
    let classes = order.chunk_by(|a, b| bidders[*a].weight == bidders[*b].weight);
    classes.map(<[usize]>::to_vec).collect()
}

/// What [`winner`] gives for all bidders, with one logarithm for each weight.
fn owner(bucket: usize, bidders: &[Bidder], classes: &[Vec<usize>]) -> usize {
    let best_of = |class: &Vec<usize>| {
        let draws = class.iter().map(|index| {
            let bidder = &bidders[*index];
            (draw(bucket, bidder), bidder.key, *index)
        });
        draws.max().map(|(draw, _, index)| (draw, index))
    };
    let bids = classes.iter().filter_map(best_of);
    let best = bids.max_by(|a, b| compare((a.0, &bidders[a.1]), (b.0, &bidders[b.1])));
    best.map_or(0, |(_, index)| index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bidders(weights: &[u32]) -> Vec<Bidder> {
        let bidder = |(index, weight): (usize, &u32)| Bidder {
            key: mix(index as u64 + 100),
            weight: *weight,
        };
        weights.iter().enumerate().map(bidder).collect()
    }

    #[test]
    fn tables_hold_the_winners() {
        for weights in [&[1][..], &[1, 1, 1], &[3, 1, 3, 7], &[5; 300]] {
            let bidders = bidders(weights);
            let owners = Buckets::new(&bidders, 1024).owners();
            for (bucket, owner) in owners.into_iter().enumerate() {
                assert_eq!(winner(bucket, bidders.iter().enumerate()), Some(owner));
            }
        }
    }

    /// Chi-square against the weights; the bounds are exceeded once in a thousand random tables.
    #[test]
    fn buckets_are_shared_in_proportion_to_the_weights() {
        let cases: [(&[u32], f64); 5] = [
            (&[1, 1], 10.8),
            (&[1, 3], 10.8),
            (&[1; 16], 37.7),
            (&[1, 2, 3, 4, 5, 6, 7, 8], 24.3),
            (&[1; 64], 103.4),
        ];
        for (weights, bound) in cases {
            let owners = Buckets::new(&bidders(weights), count(64)).owners();
            let total: u32 = weights.iter().sum();
            let chi_square: f64 = (0..weights.len())
                .map(|member| {
                    let has = owners.iter().filter(|owner| **owner == member).count() as f64;
                    let due = owners.len() as f64 * f64::from(weights[member]) / f64::from(total);
                    (has - due).powi(2) / due
                })
                .sum();
            assert!(chi_square < bound, "{weights:?}: {chi_square}");
        }
    }

    /// Short hashes must reach all buckets alike.
    #[test]
    fn hashes_of_sixteen_bits_are_spread_evenly() {
        let buckets = Buckets::new(&bidders(&[1, 1]), 4096);
        let mut hits = vec![0; 4096];
        for hash in 0..1 << 16 {
            hits[buckets.choose(hash).expect("members").0] += 1;
        }
        assert!(hits.iter().all(|hits| (14..=18).contains(hits)), "{hits:?}");
    }

    #[test]
    fn how_many_buckets_follows_from_the_declared_size() {
        let counts = [0, 1, 16, 17, 64, 256, u32::MAX].map(count);
        assert_eq!(counts, [4096, 1024, 1024, 2048, 4096, 16384, 16384]);
    }

    #[test]
    fn very_large_groups_are_chosen_from_by_weight() {
        let buckets = Buckets::new(&bidders(&[2; 2000]), 4096);
        assert_eq!(buckets.count(), 4000);
        let hits: Vec<usize> = (0..40_000)
            .map(|hash| buckets.choose(hash).expect("members").1)
            .collect();
        let of = |member| hits.iter().filter(|hit| **hit == member).count();
        assert!((0..2000).all(|member| (10..=30).contains(&of(member))));
    }
}

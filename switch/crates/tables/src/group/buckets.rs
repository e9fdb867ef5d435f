// SPDX-License-Identifier: Apache-2.0
//! The member of a group that a flow goes to: shares exact to the weights, and few flows moved by a
//! change of members.
//!
//! Flows are hashed to buckets, and members bid for each bucket as in weighted rendezvous hashing ("A
//! name-based mapping scheme for rendezvous", Thaler and Ravishankar, 1996; weights by exponential
//! draws). A bid depends on the bucket and on that member alone. Highest bids alone would give each
//! member its share only about as well as chance does: with p of n buckets due to it, the standard
//! deviation is the root of n p (1 - p), several percent of most shares. So every member has room for
//! its share and no more. Bucket by bucket, the highest bidder that has room left gets what it has room
//! for, and the next ones the rest. Each member ends with exactly its share, and at most one bucket
//! fewer than there are members is divided among several.
//!
//! Invariant: the result depends on the members and their weights alone, not on their order or on what
//! the group was before. A switch that starts anew maps flows as before; a member that returns gets
//! back exactly what it had.
//!
//! The price of exact shares: a group that is written anew without one of its members also moves a few
//! flows of other members, where rooms and bids disagree (the group's tests measure how many). To move
//! none, each bucket would have to rank all members once and for all, which is rendezvous hashing and as
//! inexact. A member whose watched port goes down is still in the group, and moves its own flows only:
//! see [`winner`].
//!
//! Tables are built when a group is written; a choice is three multiplications and a load. How many
//! buckets there are follows from the size that the group declares, never from who is in it.

use std::cmp::Ordering;

/// Groups with more members are chosen from by weight alone: a table would be too large or too
/// coarse.
const MOST_MEMBERS: usize = 1024;

/// Buckets for each member that a group may have, as long as they are at most [`MANY`]. More buckets
/// make for fewer flows that a change moves without need, by the root of their number.
const BUCKETS_EACH: usize = 64;

/// Fewest buckets.
const LEAST: usize = 1 << 10;

/// Buckets of a group of many members, and of a group that declares no size.
const MANY: usize = 1 << 12;

/// A group's size is the sum of its weights. Only one that is this many times [`MANY`] has more
/// buckets.
const SIZE_EACH: usize = 4;

/// Most buckets.
const MOST: usize = 1 << 14;

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
pub(super) struct Buckets {
    owners: Owners,
    /// Of the divided buckets in turn, from the lowest position to the highest.
    parts: Box<[Part]>,
}

/// The owner of each bucket. The largest number of a width stands for a divided bucket.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Owners {
    /// At most 255 members.
    Narrow(Box<[u8]>),
    /// At most [`MOST_MEMBERS`].
    Wide(Box<[u16]>),
    /// No buckets: the sums of the weights up to and including each member's.
    Sums(Box<[u64]>),
}

/// A part of a divided bucket: the positions after the part before it, up to and including its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Part {
    bucket: usize,
    last: u64,
    owner: u16,
}

/// Where a hash falls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) bucket: usize,
    /// How far into the bucket, as a fraction of 2^64.
    position: u64,
}

/// Buckets of a group that declares to hold so many members; 0 for no declaration.
pub(super) fn count(declared: u32) -> usize {
    let declared = declared as usize;
    match declared {
        0 => MANY,
        _ => declared
            .saturating_mul(BUCKETS_EACH)
            .clamp(LEAST, MANY)
            .max(declared / SIZE_EACH)
            .min(MOST)
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

/// The place of a hash among so many buckets. Every bit of the hash counts, however few it has.
#[inline]
pub(super) fn place(hash: u64, count: usize) -> Place {
    let product = u128::from(hash) * u128::from(SPREAD);
    let spread = (product >> 64) as u64 ^ product as u64;
    let place = u128::from(spread) * count as u128;
    Place {
        bucket: (place >> 64) as usize,
        position: place as u64,
    }
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

    /// The order of two bids for one bucket, the better one greater. Among equal weights the greater
    /// draw is the better bid, so the best of them is found without a logarithm.
    fn compare(&self, other: &Self) -> Ordering {
        let nearer = other.distance.total_cmp(&self.distance);
        nearer
            .then(self.draw.cmp(&other.draw))
            .then(self.key.cmp(&other.key))
    }
}

/// The highest bidder for a bucket, of these. While watched ports are down, a bucket whose owner they
/// took belongs to the highest bidder that is left: no other bucket moves, and all return with the ports.
pub(super) fn winner<'a>(
    bucket: usize,
    bidders: impl Iterator<Item = (usize, &'a Bidder)>,
) -> Option<usize> {
    let bids = bidders.map(|(index, bidder)| Bid::new(draw(bucket, bidder), index, bidder));
    bids.max_by(Bid::compare).map(|best| best.member)
}

impl Buckets {
    /// Holds no buckets.
    pub(super) fn none() -> Self {
        Self {
            owners: Owners::Narrow(Box::default()),
            parts: Box::default(),
        }
    }

    /// The buckets of a group: `count` of them unless one member has all, or there are too many.
    pub(super) fn new(bidders: &[Bidder], count: usize) -> Self {
        if bidders.is_empty() {
            return Self::none();
        }
        if bidders.len() > MOST_MEMBERS {
            let sum = |sum: &mut u64, bidder: &Bidder| {
                *sum += u64::from(bidder.weight);
                Some(*sum)
            };
            return Self {
                owners: Owners::Sums(bidders.iter().scan(0, sum).collect()),
                parts: Box::default(),
            };
        }
        let count = if bidders.len() == 1 { 1 } else { count };
        let (owners, parts) = Assignment::new(bidders, count).assign(count);
        let owners = owners.into_iter();
        let owners = if bidders.len() <= usize::from(u8::MAX) {
            let narrow = |owner: Option<usize>| owner.map_or(u8::MAX, |owner| owner as u8);
            Owners::Narrow(owners.map(narrow).collect())
        } else {
            let wide = |owner: Option<usize>| owner.map_or(u16::MAX, |owner| owner as u16);
            Owners::Wide(owners.map(wide).collect())
        };
        Self {
            owners,
            parts: parts.into(),
        }
    }

    /// The owner of each bucket, `None` for a divided one; nothing where there are none.
    pub(super) fn owners(&self) -> Vec<Option<usize>> {
        let narrow = |owner: &u8| (*owner != u8::MAX).then_some(usize::from(*owner));
        let wide = |owner: &u16| (*owner != u16::MAX).then_some(usize::from(*owner));
        match &self.owners {
            Owners::Narrow(buckets) => buckets.iter().map(narrow).collect(),
            Owners::Wide(buckets) => buckets.iter().map(wide).collect(),
            Owners::Sums(_) => Vec::new(),
        }
    }

    /// Keeps of the buckets only how the divided ones are divided.
    pub(super) fn forget_owners(&mut self) {
        self.owners = Owners::Narrow(Box::default());
    }

    /// How many places a hash can lead to.
    #[inline]
    pub(super) fn count(&self) -> usize {
        match &self.owners {
            Owners::Narrow(buckets) => buckets.len(),
            Owners::Wide(buckets) => buckets.len(),
            Owners::Sums(sums) => sums.last().map_or(0, |sum| *sum as usize),
        }
    }

    /// The bucket of a hash, and the member that has it there.
    #[inline]
    pub(super) fn choose(&self, hash: u64) -> Option<(usize, usize)> {
        let place = place(hash, self.count());
        let whole = match &self.owners {
            Owners::Narrow(buckets) => match *buckets.get(place.bucket)? {
                u8::MAX => None,
                owner => Some(usize::from(owner)),
            },
            Owners::Wide(buckets) => match *buckets.get(place.bucket)? {
                u16::MAX => None,
                owner => Some(usize::from(owner)),
            },
            Owners::Sums(sums) => Some(sums.partition_point(|sum| *sum <= place.bucket as u64)),
        };
        let member = whole.or_else(|| self.part_owner(place))?;
        Some((place.bucket, member))
    }

    /// The member that has this place of a divided bucket.
    #[cold]
    pub(super) fn part_owner(&self, place: Place) -> Option<usize> {
        let before = |part: &Part| (part.bucket, part.last) < (place.bucket, place.position);
        let part = self.parts.get(self.parts.partition_point(before))?;
        Some(part.owner.into())
    }
}

/// Gives buckets to bidders. Shares are counted in units: a bucket has as many as the weights add up to, and a
/// member has room for its weight times the number of buckets.
struct Assignment<'a> {
    bidders: &'a [Bidder],
    /// Bidders with room, those of equal weight together.
    classes: Vec<Vec<usize>>,
    /// Units that each bidder has room for.
    room: Vec<u64>,
    /// Units of a bucket.
    units: u64,
}

impl<'a> Assignment<'a> {
    fn new(bidders: &'a [Bidder], count: usize) -> Self {
        let weights = || bidders.iter().map(|bidder| u64::from(bidder.weight));
        Self {
            bidders,
            classes: classes(bidders),
            room: weights().map(|weight| weight * count as u64).collect(),
            units: weights().sum(),
        }
    }

    /// The owner of each bucket, `None` for a divided one, and the parts of these.
    fn assign(mut self, count: usize) -> (Vec<Option<usize>>, Vec<Part>) {
        let mut parts = Vec::new();
        let owners = (0..count).map(|bucket| self.assign_one(bucket, &mut parts));
        (owners.collect(), parts)
    }

    /// Invariant: the rooms add up to the units of the buckets that are still to be given.
    fn assign_one(&mut self, bucket: usize, parts: &mut Vec<Part>) -> Option<usize> {
        let mut given = 0;
        while given < self.units {
            let owner = self.highest_bidder(bucket)?;
            let taken = self.room[owner].min(self.units - given);
            self.room[owner] -= taken;
            if self.room[owner] == 0 {
                self.leave_out(owner);
            }
            if taken == self.units {
                return Some(owner);
            }
            given += taken;
            parts.push(Part {
                bucket,
                last: last_position(given, self.units),
                owner: owner as u16,
            });
        }
        None
    }

    /// What [`winner`] gives for the bidders with room, with one logarithm for each weight.
    fn highest_bidder(&self, bucket: usize) -> Option<usize> {
        let best_of = |class: &Vec<usize>| {
            let draws = class.iter().map(|index| {
                let bidder = &self.bidders[*index];
                (draw(bucket, bidder), bidder.key, *index)
            });
            let (draw, _, index) = draws.max()?;
            Some(Bid::new(draw, index, &self.bidders[index]))
        };
        let best = self.classes.iter().filter_map(best_of).max_by(Bid::compare);
        best.map(|best| best.member)
    }

    fn leave_out(&mut self, bidder: usize) {
        for class in &mut self.classes {
            class.retain(|index| *index != bidder);
        }
        self.classes.retain(|class| !class.is_empty());
    }
}

/// The last position of the first `given` of a bucket's units; `given` is not 0.
fn last_position(given: u64, units: u64) -> u64 {
    ((u128::from(given) << 64) / u128::from(units) - 1) as u64
}

/// Bidders of equal weight together.
fn classes(bidders: &[Bidder]) -> Vec<Vec<usize>> {
    let mut order: Vec<usize> = (0..bidders.len()).collect();
    order.sort_by_key(|index| bidders[*index].weight);
    let classes = order.chunk_by(|a, b| bidders[*a].weight == bidders[*b].weight);
    classes.map(<[usize]>::to_vec).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bidders(weights: &[u32]) -> Vec<Bidder> {
        let bidder = |(index, weight): (usize, &u32)| Bidder {
            key: mix(index as u64 + 100),
            weight: *weight,
        };
        weights.iter().enumerate().map(bidder).collect()
    }

    /// The share of each member, as a fraction of all places.
    fn shares(buckets: &Buckets, members: usize) -> Vec<f64> {
        let mut shares = vec![0.0; members];
        for owner in buckets.owners().into_iter().flatten() {
            shares[owner] += 1.0;
        }
        let mut before = None;
        for part in &buckets.parts {
            let first = match before {
                Some((bucket, last)) if bucket == part.bucket => last as f64,
                _ => 0.0,
            };
            shares[usize::from(part.owner)] += (part.last as f64 - first) / 2f64.powi(64);
            before = Some((part.bucket, part.last));
        }
        let count = buckets.owners().len() as f64;
        shares.iter().map(|share| share / count).collect()
    }

    fn assert_exact(weights: &[u32], count: usize) {
        let buckets = Buckets::new(&bidders(weights), count);
        let total: f64 = weights.iter().map(|weight| f64::from(*weight)).sum();
        for (share, weight) in shares(&buckets, weights.len()).iter().zip(weights) {
            let due = f64::from(*weight) / total;
            assert!(
                (share / due - 1.0).abs() < 1e-6,
                "{weights:?}: {share} of {due}"
            );
        }
        let divided = buckets
            .owners()
            .iter()
            .filter(|owner| owner.is_none())
            .count();
        assert!(divided < weights.len(), "{weights:?}: {divided} divided");
    }

    #[test]
    fn shares_are_exact() {
        let cases: [&[u32]; 9] = [
            &[1],
            &[1, 1],
            &[1, 255],
            &[7, 15, 46, 30],
            &[1; 63],
            &[1, 2, 3, 4, 5, 6, 7, 8],
            &[3; 255],
            &[3; 256],
            &[1, u32::MAX],
        ];
        for weights in cases {
            for count in [LEAST, MANY] {
                assert_exact(weights, count);
            }
        }
        assert_exact(&[5; MOST_MEMBERS], MOST);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        #[test]
        fn shares_of_any_weights_are_exact(
            weights in proptest::collection::vec(1u32..=255, 1..=64),
        ) {
            assert_exact(&weights, MANY);
        }
    }

    /// Rendezvous hashing as long as every member has room.
    #[test]
    fn a_bucket_goes_to_its_highest_bidder_with_room() {
        for weights in [&[1, 1, 1][..], &[3, 1, 3, 7], &[5; 256]] {
            let bidders = bidders(weights);
            let total: u32 = weights.iter().sum();
            let mut room: Vec<f64> = weights
                .iter()
                .map(|weight| 4096.0 * f64::from(*weight) / f64::from(total))
                .collect();
            let mut whole = 0;
            for (bucket, owner) in Buckets::new(&bidders, 4096)
                .owners()
                .into_iter()
                .enumerate()
            {
                let Some(owner) = owner else {
                    break;
                };
                let with_room = bidders.iter().enumerate();
                let with_room = with_room.filter(|(index, _)| room[*index] > 1e-6);
                assert_eq!(winner(bucket, with_room), Some(owner));
                room[owner] -= 1.0;
                whole += 1;
            }
            assert!(whole > 2000, "{weights:?}: {whole}");
        }
    }

    #[test]
    fn every_place_of_a_divided_bucket_has_an_owner() {
        let weights = [7, 15, 46, 30];
        let buckets = Buckets::new(&bidders(&weights), LEAST);
        let owners = buckets.owners();
        let bucket = owners
            .iter()
            .position(Option::is_none)
            .expect("one is divided");
        let of = |position| buckets.part_owner(Place { bucket, position });
        let parts = buckets.parts.iter().filter(|part| part.bucket == bucket);
        let owners: Vec<Option<usize>> = parts.map(|part| Some(part.owner.into())).collect();
        assert!(owners.len() > 1);
        assert_eq!(of(0), owners[0]);
        assert_eq!(of(u64::MAX), owners[owners.len() - 1]);
        for (part, owner) in buckets.parts.iter().zip(owners) {
            assert_eq!(of(part.last), owner);
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
        let counts = [0, 1, 16, 17, 64, 16_384, 16_388, u32::MAX].map(count);
        assert_eq!(counts, [4096, 1024, 1024, 2048, 4096, 4096, 8192, 16384]);
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

// SPDX-License-Identifier: Apache-2.0
//! Counts exactly the positions that move from one write of a group to the next.

use proptest::prelude::*;

use super::super::buckets::positions;
use super::*;
use sluice_random::mix;

const COUNT: usize = 1 << 12;

/// Maximum number of positions that rounding may move or assign to another member: 2^-44 of a bucket.
const ROUNDING: u128 = 1 << 20;

fn bidder(id: u64, weight: u32) -> Bidder {
    let key = mix(id + 1);
    Bidder { key, weight }
}

/// Returns bidders with these weights and the ids 0, 1, ...
fn bidders(weights: &[u32]) -> Vec<Bidder> {
    let ids = 0..;
    let members = ids.zip(weights);
    members.map(|(id, weight)| bidder(id, *weight)).collect()
}

fn new(bidders: Vec<Bidder>) -> Arc<Assignment> {
    Arc::new(Assignment::new(bidders, COUNT))
}

fn next(before: &Arc<Assignment>, bidders: Vec<Bidder>) -> Arc<Assignment> {
    Arc::new(before.next(bidders))
}

/// Positions that moved from one member to another. The members are given by their keys.
struct Moved {
    from: Option<u64>,
    to: Option<u64>,
    positions: u128,
}

/// Returns all moves from one assignment to the next.
fn moves(before: &Assignment, after: &Assignment) -> Vec<Moved> {
    let key = |of: &Assignment, owner: Option<usize>| owner.map(|owner| of.bidders[owner].key);
    let all: Vec<BucketPiece> = (0..COUNT)
        .map(|bucket| BucketPiece::whole(bucket, None))
        .collect();
    let before_pieces = overlay(&all, &before.buckets.pieces(COUNT));
    let before_pieces: Vec<BucketPiece> = before_pieces
        .into_iter()
        .map(|(piece, _, owner)| BucketPiece { owner, ..piece })
        .collect();
    let both = overlay(&before_pieces, &after.buckets.pieces(COUNT));
    let moves = both.into_iter().map(|(piece, from, to)| Moved {
        from: key(before, from),
        to: key(after, to),
        positions: piece.positions(),
    });
    moves.filter(|moved| moved.from != moved.to).collect()
}

fn sum<'a>(moves: impl Iterator<Item = &'a Moved>) -> u128 {
    moves.map(|moved| moved.positions).sum()
}

/// Returns the number of positions of each member.
fn held(of: &Assignment) -> Vec<u128> {
    let mut held = vec![0; of.bidders.len()];
    for piece in of.buckets.pieces(COUNT) {
        held[piece.owner.expect("all positions have a member")] += piece.positions();
    }
    held
}

fn assert_exact(of: &Assignment) {
    let due = shares(&of.bidders, positions(COUNT));
    for (held, due) in held(of).into_iter().zip(due) {
        assert!(held.abs_diff(due) < ROUNDING, "{held} of {due}: {of:?}");
    }
    let whole = of.buckets.owners();
    let divided = whole.iter().filter(|owner| owner.is_none()).count();
    assert!(divided <= of.buckets.parts());
}

/// Generates weights of 2 to 64 members, either all equal or random.
fn weights() -> impl Strategy<Value = Vec<u32>> {
    let any = proptest::collection::vec(1u32..=255, 2..=64);
    let alike = (2usize..=64).prop_map(|count| vec![1; count]);
    prop_oneof![any, alike, Just(vec![7, 15, 46, 30])]
}

fn without(bidders: &[Bidder], key: u64) -> Vec<Bidder> {
    let others = bidders.iter().filter(|bidder| bidder.key != key);
    others.copied().collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Checks that flows move only from a member that leaves, and only to a member that returns. All members except one
    /// leave one by one, and return in another order.
    #[test]
    fn only_who_leaves_or_returns_moves(weights in weights(), seed in any::<u64>()) {
        let all = bidders(&weights);
        let mut order = all.clone();
        order.sort_by_key(|bidder| mix(bidder.key ^ seed));
        let whole = new(all.clone());
        let mut now = Arc::clone(&whole);
        for gone in &order[1..] {
            let after = next(&now, without(&now.bidders, gone.key));
            for moved in moves(&now, &after) {
                prop_assert_eq!(moved.from, Some(gone.key));
            }
            assert_exact(&after);
            now = after;
        }
        prop_assert_eq!(now.bidders.len(), 1);
        order[1..].sort_by_key(|bidder| mix(bidder.key ^ !seed));
        for back in &order[1..] {
            let mut present = now.bidders.clone();
            present.push(*back);
            let after = next(&now, present);
            let moves = moves(&now, &after);
            let others = sum(moves.iter().filter(|moved| moved.to != Some(back.key)));
            prop_assert!(others < ROUNDING, "{others}");
            assert_exact(&after);
            now = after;
        }
        prop_assert!(moves(&whole, &now).is_empty());
        prop_assert!(now.base.is_none());
    }

    /// Lets several members leave and return at once. When all have returned, the assignment must be the first one
    /// again.
    #[test]
    fn with_all_members_back_a_group_is_what_it_was(
        weights in weights(),
        seeds in proptest::collection::vec(any::<u64>(), 1..12),
    ) {
        let whole = new(bidders(&weights));
        let mut now = Arc::clone(&whole);
        for seed in seeds {
            let present = whole.bidders.iter().filter(|bidder| !mix(bidder.key ^ seed).is_multiple_of(3));
            now = next(&now, present.copied().collect());
            if !now.bidders.is_empty() {
                assert_exact(&now);
            }
        }
        now = next(&now, whole.bidders.clone());
        prop_assert_eq!(&now.buckets, &whole.buckets);
    }

    /// Checks that a group has its first assignment again after two writes: one with other members (some may be the
    /// same), and one with the first members.
    #[test]
    fn a_content_that_is_written_again_after_another_is_as_before(
        first in weights(),
        second in weights(),
        from in 0u64..64,
    ) {
        let whole = new(bidders(&first));
        let other = (from..).zip(second).map(|(id, weight)| bidder(id, weight));
        let other = next(&whole, other.collect());
        assert_exact(&other);
        let back = next(&other, whole.bidders.clone());
        prop_assert!(sum(moves(&whole, &back).iter()) < ROUNDING);
    }

    #[test]
    fn the_same_content_moves_nothing(weights in weights(), gone in any::<prop::sample::Index>()) {
        let whole = new(bidders(&weights));
        let gone = whole.bidders[gone.index(weights.len())].key;
        let part = next(&whole, without(&whole.bidders, gone));
        for group in [whole, part] {
            let twice = group.bidders.iter().rev().map(|bidder| Bidder {
                weight: bidder.weight * 2,
                ..*bidder
            });
            let again = next(&group, twice.collect());
            prop_assert!(moves(&group, &again).is_empty());
            prop_assert_eq!(again.base.is_some(), group.base.is_some());
        }
    }

    /// Checks that no more positions move than exact shares require.
    #[test]
    fn other_weights_and_new_members_move_as_little_as_exact_shares_allow(
        weights in weights(),
        others in proptest::collection::vec((0u64..80, 1u32..=255), 1..4),
    ) {
        let before = new(bidders(&weights));
        let mut present = before.bidders.clone();
        for (id, weight) in others {
            let other = bidder(id, weight);
            present.retain(|bidder| bidder.key != other.key);
            present.push(other);
        }
        let after = next(&before, present);
        assert_exact(&after);
        let places = indices(&before.bidders, after.bidders.iter().map(|bidder| bidder.key));
        let (had, has) = (held(&before), held(&after));
        let had = |index: usize| places[index].map_or(0, |place| had[place]);
        let needed: u128 = (0..has.len()).map(|index| has[index].saturating_sub(had(index))).sum();
        prop_assert!(sum(moves(&before, &after).iter()) < needed + ROUNDING);
    }
}

/// Adds and removes members and changes weights many times. The number of divided buckets must stay bounded.
#[test]
fn a_long_history_divides_few_buckets() {
    for size in [4, 16, 64] {
        let mut now = new(bidders(&vec![3; size]));
        for step in 0..400u64 {
            let mut present = now.bidders.clone();
            let at = (mix(step) % size as u64) as usize;
            match step % 3 {
                0 => present[at] = bidder(1000 + step, 1 + (mix(step) % 9) as u32),
                1 => present[at].weight = 1 + (mix(step) % 99) as u32,
                _ => drop(present.remove(at)),
            }
            if step % 3 == 2 {
                present.push(bidder(1000 + step, 5));
            }
            now = next(&now, present);
            assert_exact(&now);
            let parts = now.buckets.parts();
            assert!(parts <= 2 * PARTS_EACH * size, "{size} members: {parts}");
        }
    }
}

/// Checks the bounds of divided buckets that docs/ARCHITECTURE.md states. Buckets are divided because each absent
/// member's part is divided separately among the present members.
#[test]
fn absent_members_divide_a_bounded_number_of_buckets() {
    for size in [4, 8, 16, 32] {
        let whole = new(bidders(&(1..=size).collect::<Vec<u32>>()));
        let mut now = Arc::clone(&whole);
        for gone in &whole.bidders[..size as usize - 2] {
            now = next(&now, without(&now.bidders, gone.key));
            assert_exact(&now);
            let owners = now.buckets.owners();
            let divided = owners.iter().filter(|owner| owner.is_none()).count();
            let absent = size as usize - now.bidders.len();
            println!(
                "{size} members, {absent} absent: {divided} divided, {} parts",
                now.buckets.parts()
            );
            assert!(divided < COUNT / 4 && now.buckets.parts() < MAX_PARTS / 8);
        }
    }
}

#[test]
fn a_group_that_was_emptied_gets_its_first_assignment_again() {
    let whole = new(bidders(&[7, 15, 46, 30]));
    let empty = next(&whole, Vec::new());
    assert_eq!(empty.buckets.choose(5), None);
    assert_eq!(next(&empty, whole.bidders.clone()), whole);
    // Members that were not in the old group keep none of its positions.
    let others: Vec<Bidder> = (9..12).map(|id| bidder(id, 2)).collect();
    assert_eq!(next(&empty, others.clone()), new(others));
    // A group that was always empty has no positions to keep.
    let empty = new(Vec::new());
    assert_eq!(next(&empty, whole.bidders.clone()), whole);
}

#[test]
fn very_large_groups_have_no_history() {
    let large = new(bidders(&[2; 1100]));
    let small = bidders(&[1; 9]);
    assert_eq!(next(&large, small.clone()), new(small.clone()));
    assert_eq!(next(&new(small), large.bidders.clone()), large);
}

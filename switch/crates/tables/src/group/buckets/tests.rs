// SPDX-License-Identifier: Apache-2.0
//! Tests the members' shares of the buckets of a new group.

use proptest::prelude::*;

use super::super::bids::winner;
use super::*;
use sluice_random::mix;

fn bidders(weights: &[u32]) -> Vec<Bidder> {
    let bidder = |(index, weight): (usize, &u32)| Bidder {
        key: mix(index as u64 + 100),
        weight: *weight,
    };
    weights.iter().enumerate().map(bidder).collect()
}

/// Returns the share of each member, as a fraction of all positions.
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
        for count in [MIN_BUCKETS, USUAL_BUCKETS] {
            assert_exact(weights, count);
        }
    }
    assert_exact(&[5; MAX_MEMBERS], MAX_BUCKETS);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn shares_of_any_weights_are_exact(
        weights in proptest::collection::vec(1u32..=255, 1..=64),
    ) {
        assert_exact(&weights, USUAL_BUCKETS);
    }
}

/// Checks that buckets are assigned as in rendezvous hashing as long as every member has quota left.
#[test]
fn a_bucket_goes_to_its_highest_bidder_with_quota() {
    for weights in [&[1, 1, 1][..], &[3, 1, 3, 7], &[5; 256]] {
        let bidders = bidders(weights);
        let total: u32 = weights.iter().sum();
        let mut quota: Vec<f64> = weights
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
            let with_quota = bidders.iter().enumerate();
            let with_quota = with_quota.filter(|(index, _)| quota[*index] > 1e-6);
            assert_eq!(winner(bucket, with_quota), Some(owner));
            quota[owner] -= 1.0;
            whole += 1;
        }
        assert!(whole > 2000, "{weights:?}: {whole}");
    }
}

#[test]
fn every_position_of_a_divided_bucket_has_an_owner() {
    let weights = [7, 15, 46, 30];
    let buckets = Buckets::new(&bidders(&weights), MIN_BUCKETS);
    let owners = buckets.owners();
    let bucket = owners
        .iter()
        .position(Option::is_none)
        .expect("one is divided");
    let of = |position| buckets.part_owner(HashLocation { bucket, position });
    let parts = buckets
        .parts
        .iter()
        .filter(|part| part.bucket as usize == bucket);
    let owners: Vec<Option<usize>> = parts.map(|part| Some(part.owner.into())).collect();
    assert!(owners.len() > 1);
    assert_eq!(of(0), owners[0]);
    assert_eq!(of(u64::MAX), owners[owners.len() - 1]);
    for (part, owner) in buckets.parts.iter().zip(owners) {
        assert_eq!(of(part.last), owner);
    }
}

/// Checks that hashes of 16 bits are spread evenly over all buckets.
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
fn the_declared_size_determines_the_number_of_buckets() {
    let counts = [0, 1, 16, 17, 64, 16_384, 16_388, u32::MAX].map(count);
    assert_eq!(counts, [4096, 1024, 1024, 2048, 4096, 4096, 8192, 16384]);
}

#[test]
fn very_large_groups_select_by_weight() {
    let buckets = Buckets::new(&bidders(&[2; 2000]), 4096);
    assert_eq!(buckets.count(), 4000);
    let hits: Vec<usize> = (0..40_000)
        .map(|hash| buckets.choose(hash).expect("members").1)
        .collect();
    let of = |member| hits.iter().filter(|hit| **hit == member).count();
    assert!((0..2000).all(|member| (10..=30).contains(&of(member))));
}

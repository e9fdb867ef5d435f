// SPDX-License-Identifier: Apache-2.0
//! Compares every algorithm with a linear search over a list of routes, while the routes change.

mod common;

use common::{Naive, Step, clustered4, clustered6, steps};
use proptest::prelude::*;
use sluice_fib::{
    Address, Algorithm, BitmapRank16, BitmapRank32, NONE, Prefix, Ranges, Rib, TrackedRib,
};

fn check<A: Address>(algorithm: &impl Algorithm<A>, naive: &Naive<A>, others: &[A]) {
    let mut addresses = naive.edges();
    addresses.extend_from_slice(others);
    let mut values = vec![0; addresses.len()];
    algorithm.lookup_batch(&addresses, &mut values);
    for (address, value) in addresses.iter().zip(values) {
        let expected = naive.lookup(*address).unwrap_or(NONE);
        assert_eq!(value, expected, "in a batch: {address:x?}");
        assert_eq!(algorithm.lookup(*address), expected, "alone: {address:x?}");
    }
}

/// Compares an algorithm's answers with the reference while routes change. The structure follows `at_a_time` changes at
/// a time. It is rebuilt whenever the algorithm requires this.
fn follows<A: Address, T: Algorithm<A>>(steps: &[Step<A>], others: &[A], at_a_time: usize) {
    let (mut routes, mut naive) = (TrackedRib::new(), Naive::default());
    let (first, rest) = steps.split_at(steps.len() / 2);
    let change = |step: &Step<A>, routes: &mut TrackedRib<A>, naive: &mut Naive<A>| match *step {
        Step::Insert(prefix, value) => {
            naive.insert(prefix, value);
            routes.insert(prefix, value, 0);
        }
        Step::Remove(prefix) => {
            naive.remove(prefix);
            routes.remove(prefix);
        }
    };
    for step in first {
        change(step, &mut routes, &mut naive);
    }
    routes.forget();
    let mut algorithm = T::build(routes.rib()).expect("within the limits");
    check(&algorithm, &naive, others);
    for some in rest.chunks(at_a_time) {
        for step in some {
            change(step, &mut routes, &mut naive);
        }
        routes.reduce();
        for change in routes.changes() {
            if algorithm.follow(*change, routes.rib()).is_err() {
                algorithm = T::build(routes.rib()).expect("within the limits");
            }
        }
        routes.forget();
        check(&algorithm, &naive, others);
    }
}

macro_rules! follow_the_rib {
    ($($name:ident: $algorithm:ty, $addresses:expr, $count:expr, $cases:expr;)*) => {
        $(proptest! {
            #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { $cases }))]
            #[test]
            fn $name(
                steps in steps($addresses, 0..9, $count),
                others in prop::collection::vec($addresses, 0..40),
                at_a_time in 1usize..6,
            ) {
                follows::<_, $algorithm>(&steps, &others, at_a_time);
            }
        })*
    };
}

follow_the_rib! {
    rank16_follows_the_rib: BitmapRank16, clustered4(), 100, 32;
    rank32_follows_the_rib: BitmapRank32, clustered4(), 100, 32;
    ranges_follow_the_rib: Ranges<u32>, clustered4(), 100, 32;
    few_ranges_follow_the_rib: Ranges<u32>, clustered4(), 12, 32;
    wide_ranges_follow_the_rib: Ranges<u128>, clustered6(), 100, 32;
    few_wide_ranges_follow_the_rib: Ranges<u128>, clustered6(), 5, 32;
}

#[test]
fn values_beyond_the_limit_are_an_error() {
    let mut rib = Rib::new();
    rib.insert(Prefix::new(0, 8), 32_766);
    assert_eq!(
        BitmapRank16::build(&rib).expect("the largest").lookup(1),
        32_766
    );
    rib.insert(Prefix::new(0, 9), 32_767);
    let error = BitmapRank16::build(&rib).expect_err("too large");
    assert!(error.to_string().contains("32767"), "{error}");
    assert_eq!(BitmapRank32::build(&rib).expect("wide").lookup(1), 32_767);
}

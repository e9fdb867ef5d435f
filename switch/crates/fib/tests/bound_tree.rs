// SPDX-License-Identifier: Apache-2.0
//! Compares the bound trees with a linear search over a list of routes. With many routes, compares them with the RIB.

mod common;

use common::{Naive, Step, clustered6, steps};
use proptest::prelude::*;
use sluice_fib::{Algorithm, BoundTree16, BoundTree32, BuildError, Change, NONE, Prefix, Rib};

/// Checks that single and batch lookups return the expected answers.
fn check(tree: &impl Algorithm<u128>, addresses: &[u128], expected: impl Fn(u128) -> Option<u32>) {
    let mut values = vec![0; addresses.len()];
    tree.lookup_batch(addresses, &mut values);
    for (&address, &value) in addresses.iter().zip(&values) {
        let expected = expected(address).unwrap_or(NONE);
        assert_eq!(value, expected, "{address:x} in a batch");
        assert_eq!(tree.lookup(address), expected, "{address:x}");
    }
}

fn apply(rib: &mut Rib<u128>, step: Step<u128>) -> Change<u128> {
    match step {
        Step::Insert(prefix, value) => rib.put(prefix, value, 0).1,
        Step::Remove(prefix) => match rib.take(prefix) {
            Some((_, change)) => change,
            None => Change::of(prefix),
        },
    }
}

/// Generates addresses that are close together. They differ in few bits. There is such a bit at every position that
/// matters to the structure.
fn crowded() -> impl Strategy<Value = u128> + Clone {
    let bits = |at: u32| (0u128..16).prop_map(move |bits| bits << at);
    let parts = (bits(120), bits(108), bits(92), bits(78), bits(60), bits(14));
    parts.prop_map(|(a, b, c, d, e, f)| a | b | c | d | e | f)
}

/// Generates addresses of one /16 block. They differ only in the last two of the first 32 bits, and in the last six of
/// the first 48 bits.
fn one_block() -> impl Strategy<Value = u128> + Clone {
    (0u128..4, 0u128..64).prop_map(|(a, b)| 0x2a00 << 112 | a << 96 | b << 80)
}

/// Checks both widths of items. Checks the narrow width only if the values fit.
fn agrees(steps: &[Step<u128>], more: &[u128]) {
    follows::<BoundTree32>(steps, more);
    let fits = |step: &Step<u128>| matches!(step, Step::Insert(_, ..=32_766) | Step::Remove(_));
    if steps.iter().all(fits) {
        follows::<BoundTree16>(steps, more);
    }
}

/// Compares three trees. The first follows the RIB change by change. The second follows late and in another order. The
/// third is built at the end. A tree is rebuilt whenever it requires this.
fn follows<T: Algorithm<u128> + Clone>(steps: &[Step<u128>], more: &[u128]) {
    let (mut rib, mut naive) = (Rib::new(), Naive::default());
    let mut tree = T::build(&rib).expect("no route fits");
    let mut late = tree.clone();
    for &step in steps {
        let change = apply(&mut rib, step);
        match step {
            Step::Insert(prefix, value) => naive.insert(prefix, value),
            Step::Remove(prefix) => naive.remove(prefix),
        };
        if tree.follow(change, &rib).is_err() {
            tree = T::build(&rib).expect("the routes fit");
        }
    }
    // Applies the same changes in another order. By now the RIB contains all of them.
    for Step::Insert(prefix, _) | Step::Remove(prefix) in steps.iter().rev() {
        if late.refresh(*prefix, &rib).is_err() {
            late = T::build(&rib).expect("the routes fit");
        }
    }
    let built = T::build(&rib).expect("the routes fit");
    let mut addresses = naive.edges();
    addresses.extend(more);
    for tree in [&tree, &late, &built] {
        check(tree, &addresses, |address| naive.lookup(address));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    /// Checks trees while values that are too large for two-byte items are added and removed.
    #[test]
    fn agrees_on_small_and_large_values(
        changes in prop::collection::vec((one_block(), 32u32..52, 0u32..0x8002), 1..120),
        more in prop::collection::vec(one_block(), 40),
    ) {
        let large = |value| if value % 7 == 0 { value << 12 } else { value };
        let step = |(address, length, value): (u128, u32, u32)| {
            let prefix = Prefix::new(address, length);
            match value % 4 {
                0 => Step::Remove(prefix),
                _ => Step::Insert(prefix, large(value)),
            }
        };
        let steps: Vec<_> = changes.into_iter().map(step).collect();
        agrees(&steps, &more);
    }

    #[test]
    fn agrees_on_clustered_routes(
        steps in steps(clustered6(), 0..4, 60),
        more in prop::collection::vec(any::<u128>(), 40),
    ) {
        agrees(&steps, &more);
    }

    #[test]
    fn agrees_on_crowded_routes(
        steps in steps(crowded(), 0..(1 << 31) - 1, 200),
        more in prop::collection::vec(crowded(), 40),
    ) {
        agrees(&steps, &more);
    }

    #[test]
    fn agrees_in_one_block(
        steps in steps(one_block(), 0..3, 200),
        more in prop::collection::vec(one_block(), 40),
    ) {
        agrees(&steps, &more);
    }
}

/// Returns pseudo-random numbers, the same ones in each run.
fn scrambled(count: u64) -> impl Iterator<Item = u64> {
    (1..=count).map(|index| {
        let word = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word ^ word >> 31
    })
}

/// Returns routes that resemble those of providers: allocations, and inside each many more specific routes, some longer
/// than /64.
fn many(count: u64) -> Vec<Prefix<u128>> {
    let routes = scrambled(count).map(|word| {
        let allocation = 0x2a00 << 112 | u128::from(word % 97) << 100;
        let (site, length) = (
            u128::from(word >> 16),
            [29, 32, 36, 40, 44, 47, 48, 48, 64, 128],
        );
        let skewed = site % (1 << ((word >> 8) % 20));
        let length = length[(word >> 40) as usize % length.len()];
        Prefix::new(
            allocation | skewed << 80 | skewed << 62 | (site % 5),
            length,
        )
    });
    routes.collect()
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn grows_from_nothing_and_shrinks_to_nothing_one_route_at_a_time() {
    let routes = many(6000);
    let mut rib = Rib::new();
    let mut tree = BoundTree32::build(&rib).expect("no route fits");
    let edges: Vec<u128> = routes
        .iter()
        .flat_map(|route| [route.address(), route.last()])
        .collect();
    let agrees = |tree: &BoundTree32, rib: &Rib<u128>| {
        check(tree, &edges, |address| {
            rib.lookup(address).map(|(_, value)| value)
        });
    };
    let mut built = 0;
    for (value, &route) in routes.iter().enumerate() {
        rib.insert(route, value as u32);
        if tree.refresh(route, &rib).is_err() {
            tree = BoundTree32::build(&rib).expect("the routes fit");
            built += 1;
        }
    }
    assert!(built <= 8, "once for each level of each segment: {built}");
    agrees(&tree, &rib);
    let fresh = BoundTree32::build(&rib).expect("the routes fit");
    assert!(tree.memory_bytes() < 6 * fresh.memory_bytes());
    for (index, &route) in routes.iter().enumerate() {
        rib.remove(route);
        tree.refresh(route, &rib).expect("the routes fit");
        if index == routes.len() / 2 {
            agrees(&tree, &rib);
        }
    }
    check(&tree, &edges, |_| None);
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn a_short_prefix_changes_all_that_is_under_it() {
    let routes = many(500);
    let mut rib = Rib::new();
    for (value, &route) in routes.iter().enumerate() {
        rib.insert(route, value as u32);
    }
    let mut tree = BoundTree32::build(&rib).expect("the routes fit");
    let edges = routes
        .iter()
        .flat_map(|route| [route.address(), route.last(), !route.address()]);
    let edges: Vec<u128> = edges.collect();
    for length in [0, 3, 12, 15, 16, 17, 22, 28, 31] {
        let short = Prefix::new(routes[0].address(), length);
        let before = rib.get(short);
        rib.insert(short, 1_000_000 + length);
        tree.refresh(short, &rib).expect("the routes fit");
        check(&tree, &edges, |address| {
            rib.lookup(address).map(|(_, value)| value)
        });
        if length % 2 == 1 && before.is_none() {
            rib.remove(short);
            tree.refresh(short, &rib).expect("the routes fit");
            check(&tree, &edges, |address| {
                rib.lookup(address).map(|(_, value)| value)
            });
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn the_space_taken_does_not_grow_with_the_number_of_changes() {
    let routes = many(2000);
    let mut rib = Rib::new();
    for &route in &routes {
        rib.insert(route, 1);
    }
    let mut tree = BoundTree32::build(&rib).expect("the routes fit");
    let mut sizes = Vec::new();
    for round in 2..12 {
        for (index, &route) in routes.iter().enumerate() {
            if index % 3 == 0 {
                rib.remove(route);
                tree.refresh(route, &rib).expect("the routes fit");
            }
            rib.insert(route, round + index as u32 % 2);
            tree.refresh(route, &rib).expect("the routes fit");
        }
        sizes.push(tree.memory_bytes());
    }
    assert!(sizes[9] <= sizes[4] * 11 / 10, "{sizes:?}");
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn routes_may_lead_elsewhere() {
    let routes = many(2000);
    let mut rib = Rib::new();
    for (value, &route) in routes.iter().enumerate() {
        rib.insert(route, value as u32);
    }
    let mut tree = BoundTree32::build(&rib).expect("the routes fit");
    for (index, &route) in routes.iter().enumerate() {
        // Gives some routes the value of their neighbor, so that bounds disappear.
        rib.insert(route, 5000 + index as u32 / 3);
        tree.refresh(route, &rib).expect("the routes fit");
    }
    let edges = routes
        .iter()
        .flat_map(|route| [route.address(), route.last(), !route.last()]);
    let edges: Vec<u128> = edges.collect();
    check(&tree, &edges, |address| {
        rib.lookup(address).map(|(_, value)| value)
    });
}

#[test]
fn a_value_that_does_not_fit_is_an_error() {
    let mut rib = Rib::new();
    let route = Prefix::new(0x2001_0db8 << 96, 32);
    rib.insert(route, (1 << 31) - 2);
    let mut tree = BoundTree32::build(&rib).expect("the largest value fits");
    assert_eq!(tree.lookup(route.address()), (1 << 31) - 2);
    rib.insert(route, (1 << 31) - 1);
    assert!(tree.refresh(route, &rib).is_err());
    assert_eq!(tree.lookup(route.address()), (1 << 31) - 2);
    let limit = (1 << 31) - 2;
    let expected = BuildError::ValueTooLarge {
        value: limit + 1,
        limit,
    };
    assert_eq!(BoundTree32::build(&rib).expect_err("too large"), expected);
}

#[test]
fn a_batch_may_have_any_length() {
    let mut rib = Rib::new();
    for (value, route) in many(300).into_iter().enumerate() {
        rib.insert(route, value as u32);
    }
    let tree = BoundTree32::build(&rib).expect("the routes fit");
    let addresses: Vec<u128> = many(300).iter().map(|route| route.last()).collect();
    for count in [0, 1, 7, 8, 9, 31, 32, 33, 64, 100, 300] {
        let expected = |address| rib.lookup(address).map(|(_, value)| value);
        check(&tree, &addresses[..count], expected);
    }
}

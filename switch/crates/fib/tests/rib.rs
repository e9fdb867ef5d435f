// SPDX-License-Identifier: Apache-2.0
//! Compares `Rib` with a linear search over a list of routes.

mod common;

use common::{Naive, Step, clustered4, clustered6, prefixes, steps};
use proptest::prelude::*;
use sluice_fib::{Address, Prefix, Rib, TOGETHER};

fn under<A: Address>(rib: &Rib<A>, prefix: Prefix<A>) -> Vec<(Prefix<A>, u32)> {
    let mut inside = Vec::new();
    rib.for_each_under(prefix, &mut |route, value| inside.push((route, value)));
    inside
}

fn ranges<A: Address>(rib: &Rib<A>, prefix: Prefix<A>) -> Vec<(A, Option<u32>)> {
    let mut ranges = Vec::new();
    rib.for_each_range(prefix, &mut |first, value| ranges.push((first, value)));
    ranges
}

/// Returns the expected ranges of a prefix. Every edge inside the prefix begins a range. Adjacent ranges with the same
/// value are merged.
fn expected_ranges<A: Address>(naive: &Naive<A>, prefix: Prefix<A>) -> Vec<(A, Option<u32>)> {
    let mut edges = naive.edges();
    edges.retain(|edge| prefix.contains(*edge));
    edges.push(prefix.address());
    edges.sort_unstable();
    edges.dedup();
    let mut ranges: Vec<_> = edges
        .into_iter()
        .map(|edge| (edge, naive.lookup(edge)))
        .collect();
    ranges.dedup_by_key(|(_, value)| *value);
    ranges
}

fn agrees<A: Address>(steps: Vec<Step<A>>, parts: Vec<Prefix<A>>) {
    let (mut rib, mut naive) = (Rib::new(), Naive::default());
    for step in steps {
        match step {
            Step::Insert(prefix, value) => {
                assert_eq!(rib.insert(prefix, value), naive.insert(prefix, value));
            }
            Step::Remove(prefix) => assert_eq!(rib.remove(prefix), naive.remove(prefix)),
        }
        assert_eq!(rib.len(), naive.0.len());
    }
    let everything = Prefix::new(A::default(), 0);
    let routes = naive.under(everything);
    let routes = routes.into_iter().map(|(prefix, _)| prefix);
    for prefix in parts.into_iter().chain(routes).chain([everything]) {
        assert_eq!(rib.get(prefix), naive.get(prefix));
        assert_eq!(rib.covering(prefix), naive.covering(prefix));
        assert_eq!(under(&rib, prefix), naive.under(prefix));
        assert_eq!(ranges(&rib, prefix), expected_ranges(&naive, prefix));
    }
    for address in naive.edges() {
        assert_eq!(rib.lookup(address).map(|(_, v)| v), naive.lookup(address));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]
    #[test]
    fn agrees_with_a_list_for_ipv4(
        steps in steps(clustered4(), 0..9, 120),
        parts in prop::collection::vec(prefixes(clustered4()), 0..20),
    ) {
        agrees(steps, parts);
    }

    #[test]
    fn agrees_with_a_list_for_ipv6(
        steps in steps(clustered6(), 0..9, 120),
        parts in prop::collection::vec(prefixes(clustered6()), 0..20),
    ) {
        agrees(steps, parts);
    }
}

#[test]
fn removing_everything_leaves_nothing_behind() {
    let mut rib = Rib::new();
    let empty = rib.memory_bytes();
    for round in 0..3 {
        for length in 0..=32 {
            rib.insert(Prefix::new(0x0102_0304u32, length), length);
        }
        let full = rib.memory_bytes();
        for length in 0..=32 {
            assert_eq!(rib.remove(Prefix::new(0x0102_0304, length)), Some(length));
        }
        assert!(rib.is_empty());
        assert_eq!(rib.lookup(0x0102_0304), None);
        assert!(
            round == 0 || rib.memory_bytes() == full,
            "space is used again"
        );
    }
    assert!(rib.memory_bytes() > empty);
}

proptest! {
    #[test]
    fn notes_go_with_their_routes_and_many_are_found_at_once(
        steps in steps(clustered4(), 0..9, 200),
        missing in prop::collection::vec((any::<u32>(), 0u32..33), 1..40),
    ) {
        let mut rib = Rib::<u32>::new();
        let mut expected = std::collections::HashMap::new();
        for (index, step) in steps.into_iter().enumerate() {
            match step {
                Step::Insert(prefix, value) => {
                    let note = index as u32;
                    let old = expected.insert(prefix_key(prefix), (value, note));
                    prop_assert_eq!(rib.put(prefix, value, note).0, old);
                }
                Step::Remove(prefix) => {
                    let old = expected.remove(&prefix_key(prefix));
                    prop_assert_eq!(rib.take(prefix).map(|(old, _)| old), old);
                }
            }
        }
        let there = expected.keys().map(|(address, length)| Prefix::new(*address, *length));
        let others = missing.into_iter().map(|(address, length)| Prefix::new(address, length));
        let prefixes: Vec<_> = there.chain(others).collect();
        for prefixes in prefixes.chunks(TOGETHER) {
            let mut found = Vec::new();
            rib.get_all(prefixes, |route| found.push(route));
            let one_by_one = prefixes.iter().map(|prefix| expected.get(&prefix_key(*prefix)).copied());
            prop_assert_eq!(found, one_by_one.collect::<Vec<_>>());
        }
    }
}

fn prefix_key(prefix: Prefix<u32>) -> (u32, u32) {
    (prefix.address(), prefix.length())
}

// SPDX-License-Identifier: Apache-2.0
//! `TreeBitmap` against a linear search over a list of prefixes.

use proptest::prelude::*;
use sluice_fib::{Address, Lpm, Prefix, TreeBitmap};

/// The specification: a list, searched to the end.
#[derive(Default)]
struct Naive<A>(Vec<(Prefix<A>, u32)>);

impl<A: Address> Lpm<A> for Naive<A> {
    fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let old = self.remove(prefix);
        self.0.push((prefix, value));
        old
    }

    fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let index = self.0.iter().position(|(known, _)| *known == prefix)?;
        Some(self.0.swap_remove(index).1)
    }

    fn lookup(&self, address: A) -> Option<u32> {
        let matching = self.0.iter().filter(|(prefix, _)| prefix.contains(address));
        matching
            .max_by_key(|(prefix, _)| prefix.length())
            .map(|(_, value)| *value)
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

#[derive(Clone, Debug)]
enum Step<A> {
    Insert(A, u32, u32),
    Remove(A, u32),
    Lookup(A),
}

/// Few distinct bits, so that prefixes nest and collide.
fn steps<A: Address>(
    address: impl Strategy<Value = A> + Clone,
) -> impl Strategy<Value = Vec<Step<A>>> {
    let length = 0..=A::BITS;
    let step = prop_oneof![
        (address.clone(), length.clone(), any::<u32>()).prop_map(|(a, l, v)| Step::Insert(a, l, v)),
        (address.clone(), length).prop_map(|(a, l)| Step::Remove(a, l)),
        address.prop_map(Step::Lookup),
    ];
    prop::collection::vec(step, 1..200)
}

fn agrees<A: Address>(steps: Vec<Step<A>>) {
    let (mut trie, mut naive) = (TreeBitmap::new(), Naive(Vec::new()));
    for step in steps {
        match step {
            Step::Insert(address, length, value) => {
                let prefix = Prefix::new(address, length);
                assert_eq!(trie.insert(prefix, value), naive.insert(prefix, value));
            }
            Step::Remove(address, length) => {
                let prefix = Prefix::new(address, length);
                assert_eq!(trie.remove(prefix), naive.remove(prefix));
            }
            Step::Lookup(address) => assert_eq!(trie.lookup(address), naive.lookup(address)),
        }
        assert_eq!(trie.len(), naive.len());
    }
}

fn clustered4() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![
        any::<u32>(),
        (0u32..16, 0u32..4).prop_map(|(a, b)| 0x0a00_0000 | a << 8 | b)
    ]
}

fn clustered6() -> impl Strategy<Value = u128> + Clone {
    prop_oneof![
        any::<u128>(),
        (0u128..16, 0u128..4).prop_map(|(a, b)| 0x2001_0db8 << 96 | a << 64 | b)
    ]
}

proptest! {
    #[test]
    fn agrees_with_a_linear_search_for_ipv4(steps in steps(clustered4())) {
        agrees(steps);
    }

    #[test]
    fn agrees_with_a_linear_search_for_ipv6(steps in steps(clustered6())) {
        agrees(steps);
    }
}

#[test]
fn a_default_route_matches_everything() {
    let mut trie = TreeBitmap::<u32>::new();
    trie.insert(Prefix::new(0, 0), 7);
    assert_eq!(trie.lookup(0), Some(7));
    assert_eq!(trie.lookup(u32::MAX), Some(7));
}

#[test]
fn a_host_route_is_longer_than_its_subnet() {
    let mut trie = TreeBitmap::<u128>::new();
    trie.insert(Prefix::new(1 << 64, 64), 1);
    trie.insert(Prefix::new(1 << 64 | 9, 128), 2);
    assert_eq!(trie.lookup(1 << 64 | 9), Some(2));
    assert_eq!(trie.lookup(1 << 64 | 8), Some(1));
    assert_eq!(trie.lookup(9), None);
}

#[test]
fn removing_everything_leaves_nothing_behind() {
    let mut trie = TreeBitmap::<u32>::new();
    for length in 0..=32 {
        trie.insert(Prefix::new(0x0102_0304, length), length);
    }
    for length in 0..=32 {
        assert_eq!(trie.remove(Prefix::new(0x0102_0304, length)), Some(length));
    }
    assert!(trie.is_empty());
    assert_eq!(trie.lookup(0x0102_0304), None);
}

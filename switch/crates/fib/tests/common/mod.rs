// SPDX-License-Identifier: Apache-2.0
//! The reference, which is a list of routes with linear search, and random changes of routes.

#![allow(dead_code, reason = "each test file uses a part")]

use proptest::prelude::*;
use sluice_fib::{Address, Prefix};

/// A list of routes in any order.
#[derive(Clone, Debug, Default)]
pub(crate) struct Naive<A>(pub(crate) Vec<(Prefix<A>, u32)>);

impl<A: Address> Naive<A> {
    pub(crate) fn insert(&mut self, prefix: Prefix<A>, value: u32) -> Option<u32> {
        let old = self.remove(prefix);
        self.0.push((prefix, value));
        old
    }

    pub(crate) fn remove(&mut self, prefix: Prefix<A>) -> Option<u32> {
        let index = self.0.iter().position(|(known, _)| *known == prefix)?;
        Some(self.0.swap_remove(index).1)
    }

    pub(crate) fn get(&self, prefix: Prefix<A>) -> Option<u32> {
        let found = self.0.iter().find(|(known, _)| *known == prefix);
        found.map(|(_, value)| *value)
    }

    pub(crate) fn covering(&self, prefix: Prefix<A>) -> Option<(Prefix<A>, u32)> {
        let around = self.0.iter().filter(|(known, _)| known.covers(prefix));
        around.max_by_key(|(known, _)| known.length()).copied()
    }

    pub(crate) fn lookup(&self, address: A) -> Option<u32> {
        self.covering(Prefix::new(address, A::BITS))
            .map(|(_, value)| value)
    }

    /// Returns the routes under a prefix, in the order of addresses. Of routes with the same address, the shortest
    /// comes first.
    pub(crate) fn under(&self, prefix: Prefix<A>) -> Vec<(Prefix<A>, u32)> {
        let inside = self.0.iter().filter(|(known, _)| prefix.covers(*known));
        let mut inside: Vec<_> = inside.copied().collect();
        inside.sort_by_key(|(known, _)| (known.address(), known.length()));
        inside
    }

    /// Returns the first and last address of every prefix, and the addresses next to them. Answers can change only
    /// there.
    pub(crate) fn edges(&self) -> Vec<A> {
        let mut edges = Vec::new();
        for (prefix, _) in &self.0 {
            let (first, last) = (prefix.address(), prefix.last());
            edges.extend([first, last]);
            edges.extend(last.successor());
            edges.extend(before(first));
        }
        edges
    }
}

/// Returns the previous address, if there is one.
fn before<A: Address>(address: A) -> Option<A> {
    (address != A::default()).then(|| {
        // Finds the lowest bit that is set. The previous address has 0 in this bit and 1 in all lower bits.
        let mut bits = A::BITS;
        while address.truncate(bits - 1) == address {
            bits -= 1;
        }
        address.truncate(bits - 1).fill(bits)
    })
}

/// A change of the routes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step<A> {
    Insert(Prefix<A>, u32),
    Remove(Prefix<A>),
}

/// Generates prefixes of any length from addresses that differ in few bits, so that prefixes nest and collide.
pub(crate) fn prefixes<A: Address>(
    address: impl Strategy<Value = A> + Clone,
) -> impl Strategy<Value = Prefix<A>> {
    (address, 0..=A::BITS).prop_map(|(address, length)| Prefix::new(address, length))
}

pub(crate) fn steps<A: Address>(
    address: impl Strategy<Value = A> + Clone + 'static,
    values: std::ops::Range<u32>,
    count: usize,
) -> impl Strategy<Value = Vec<Step<A>>> {
    let step = prop_oneof![
        3 => (prefixes(address.clone()), values).prop_map(|(p, v)| Step::Insert(p, v)),
        1 => prefixes(address).prop_map(Step::Remove),
    ];
    prop::collection::vec(step, 1..count)
}

pub(crate) fn clustered4() -> impl Strategy<Value = u32> + Clone {
    prop_oneof![
        any::<u32>(),
        (0u32..16, 0u32..4).prop_map(|(a, b)| 0x0a00_0000 | a << 8 | b),
        (0u32..4, 0u32..256).prop_map(|(a, b)| 0xc0a8_0000 | a << 16 | b << 8),
    ]
}

pub(crate) fn clustered6() -> impl Strategy<Value = u128> + Clone {
    prop_oneof![
        any::<u128>(),
        (0u128..16, 0u128..4).prop_map(|(a, b)| 0x2001_0db8 << 96 | a << 64 | b)
    ]
}

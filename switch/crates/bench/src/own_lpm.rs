// SPDX-License-Identifier: Apache-2.0
//! Provides the project's own longest-prefix-match structures as contenders. One contender is a RIB with a follower,
//! which is a lookup structure that is updated when routes change. The switch's tables work in this way. Each other
//! contender is a single algorithm.

use std::cell::RefCell;
use std::hint::black_box;
use std::ops::Range;
use std::time::Instant;

use sluice_fib::{Algorithm, Follower, NONE, NamedAlgorithm, Prefix, Rib, Status, TrackedRib};

use crate::input::routes::{Family, Route};
use crate::input::trace::Trace;
use crate::lookup_tables::{BURST, LpmTable};
use crate::report::OURS;
use crate::system::opaque;

/// Lookups in a structure of `sluice-fib`.
pub(crate) trait Structure<A> {
    /// Looks up one address. Returns [`NONE`] if there is no route.
    fn one(&self, address: A) -> u32;

    /// Looks up many addresses, and writes their values.
    fn many(&self, addresses: &[A], values: &mut [u32]);
}

/// A RIB with one follower, which selects the lookup algorithm. The switch's tables have two followers for the same
/// RIB, one for each replica of the tables.
///
/// Order: the follower is the first field. Lookups are so short that the computation of a later field's address would
/// be measurable.
#[repr(C)]
pub(crate) struct Followed<A: Family> {
    follower: Follower<A>,
    routes: TrackedRib<A>,
}

impl<A: Family> Followed<A> {
    fn new() -> Self {
        let routes = TrackedRib::new();
        Self {
            follower: Follower::new(routes.rib()),
            routes,
        }
    }

    /// Applies the recorded route changes to the follower, and runs a rebuild if one is due.
    fn settle(&mut self) {
        self.routes.reduce();
        let (changes, rib) = (self.routes.changes(), self.routes.rib());
        self.follower.follow(changes, rib, Instant::now);
        self.routes.forget();
    }

    fn is_pending(&self) -> bool {
        !self.routes.changes().is_empty() || self.follower.is_pending()
    }
}

impl<A: Family> Structure<A> for Followed<A> {
    #[inline]
    fn one(&self, address: A) -> u32 {
        self.follower.lookup(address)
    }

    fn many(&self, addresses: &[A], values: &mut [u32]) {
        self.follower.lookup_batch(addresses, values);
    }
}

impl<A: Family> Structure<A> for Box<dyn Algorithm<A>> {
    #[inline]
    fn one(&self, address: A) -> u32 {
        self.as_ref().lookup(address)
    }

    fn many(&self, addresses: &[A], values: &mut [u32]) {
        self.as_ref().lookup_batch(addresses, values);
    }
}

/// Results of a batch, aligned to cache lines. In the fastest lookups, writes of misaligned results would cost more
/// than the lookups.
#[repr(align(64))]
struct Values([u32; BURST]);

/// One of our structures, filled with routes, and its name in the results.
pub(crate) struct Own<S> {
    name: String,
    structure: RefCell<S>,
}

impl<A: Family> Own<Followed<A>> {
    /// Creates a RIB with a follower, which selects the lookup algorithm.
    pub(crate) fn automatic(routes: &[Route<A>]) -> Self {
        let mut fib = Followed::new();
        for (prefix, hop) in routes {
            fib.routes.insert(*prefix, *hop, 0);
        }
        while fib.is_pending() {
            fib.settle();
        }
        Self {
            name: OURS.into(),
            structure: RefCell::new(fib),
        }
    }

    /// Returns the follower's status.
    pub(crate) fn status(&self) -> Status {
        let fib = self.structure.borrow();
        fib.follower.status(fib.routes.rib())
    }

    /// Adds a route or changes the route's next hop (`Some`), or removes the route (`None`).
    pub(crate) fn update(&self, prefix: Prefix<A>, hop: Option<u32>) {
        let mut fib = self.structure.borrow_mut();
        match hop {
            Some(hop) => fib.routes.insert(prefix, hop, 0),
            None => fib.routes.remove(prefix),
        };
        if fib.is_pending() {
            fib.settle();
        }
    }
}

impl<A: Family> Own<Box<dyn Algorithm<A>>> {
    /// Creates a contender of one algorithm. Returns `None` if the algorithm cannot hold the routes.
    pub(crate) fn algorithm(kind: &NamedAlgorithm<A>, rib: &Rib<A>) -> Option<Self> {
        Some(Self {
            name: kind.name.into(),
            structure: RefCell::new(kind.build(rib).ok()?),
        })
    }
}

/// Converts a value to the form that all contenders share, in which 0 means "no route".
#[inline]
fn hop(value: u32) -> u32 {
    if value == NONE { 0 } else { value }
}

impl<A: Family, S: Structure<A>> LpmTable<A> for Own<S> {
    fn name(&self) -> &str {
        &self.name
    }

    fn values(&self, trace: &Trace<A>, count: usize) -> Vec<u32> {
        let structure = self.structure.borrow();
        let keys = &trace.keys[..count.min(trace.keys.len())];
        let mut values = vec![0; keys.len()];
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            structure.many(keys, values);
        }
        for (key, value) in keys.iter().zip(&mut values) {
            assert_eq!(
                *value,
                structure.one(*key),
                "results alone and in a batch: {key:?}"
            );
            *value = hop(*value);
        }
        values
    }

    fn lookup(&self, trace: &Trace<A>, keys: Range<usize>) -> u64 {
        let structure = self.structure.borrow();
        let (mut values, mut digest) = (Values([0; BURST]), 0);
        for keys in trace.keys[keys].chunks(BURST) {
            let values = &mut values.0[..keys.len()];
            structure.many(keys, values);
            digest += u64::from(black_box(&*values)[keys.len() - 1]);
        }
        digest
    }

    fn chain(&self, trace: &Trace<A>) -> u64 {
        let structure = self.structure.borrow();
        let (mut value, mut digest) = (0, 0);
        for key in &trace.keys {
            value = hop(structure.one(key.flipped(opaque(value & 1))));
            digest += u64::from(value);
        }
        digest
    }
}

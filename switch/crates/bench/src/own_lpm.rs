// SPDX-License-Identifier: Apache-2.0
//! The project's own longest-prefix-match structures as contenders.

use std::hint::black_box;

use sluice_fib::{Lpm, TreeBitmap};

use crate::input::routes::{Family, Route};
use crate::input::trace::Trace;
use crate::lpm::{BURST, Table};
use crate::report::OURS;
use crate::system::opaque;

/// One of them, with its routes.
pub(crate) struct Own<A> {
    structure: TreeBitmap<A>,
}

impl<A: Family> Own<A> {
    /// What the switch would take for these routes.
    pub(crate) fn automatic(routes: &[Route<A>]) -> Self {
        let mut structure = TreeBitmap::new();
        for (prefix, hop) in routes {
            structure.insert(*prefix, *hop);
        }
        Self { structure }
    }

    /// The algorithm's name.
    pub(crate) fn algorithm(&self) -> &str {
        "tree bitmap"
    }

    /// What the structure takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.structure.memory()
    }

    #[inline]
    fn value(&self, key: A) -> u32 {
        self.structure.lookup(key).unwrap_or(0)
    }

    fn batch(&self, keys: &[A], values: &mut [u32]) {
        for (key, value) in keys.iter().zip(values) {
            *value = self.value(*key);
        }
    }
}

impl<A: Family> Table<A> for Own<A> {
    fn name(&self) -> &str {
        OURS
    }

    fn values(&self, trace: &Trace<A>, count: usize) -> Vec<u32> {
        let keys = &trace.keys[..count.min(trace.keys.len())];
        let mut values = vec![0; keys.len()];
        for (keys, values) in keys.chunks(BURST).zip(values.chunks_mut(BURST)) {
            self.batch(keys, values);
        }
        for (key, value) in keys.iter().zip(&values) {
            assert_eq!(*value, self.value(*key), "alone and in a batch: {key:?}");
        }
        values
    }

    fn lookup(&self, trace: &Trace<A>) -> u64 {
        let (mut values, mut digest) = ([0; BURST], 0);
        for keys in trace.keys.chunks(BURST) {
            let values = &mut values[..keys.len()];
            self.batch(keys, values);
            digest += u64::from(black_box(&*values)[keys.len() - 1]);
        }
        digest
    }

    fn chain(&self, trace: &Trace<A>) -> u64 {
        let (mut value, mut digest) = (0, 0);
        for key in &trace.keys {
            value = self.value(key.flipped(opaque(value & 1)));
            digest += u64::from(value);
        }
        digest
    }
}

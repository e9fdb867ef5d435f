// SPDX-License-Identifier: Apache-2.0
//! Defines the traits of the tables that benchmarks measure: our own tables and those of other projects.

use std::ops::Range;

use crate::input::trace::Trace;
use crate::system::opaque;

/// Number of keys in a batch.
pub(crate) const BURST: usize = 256;

/// A longest-prefix-match structure, filled with routes.
pub(crate) trait LpmTable<A> {
    /// Returns the structure's name in the results.
    fn name(&self) -> &str;

    /// Returns the values of a trace's first `count` keys. The value 0 means "no route".
    fn values(&self, trace: &Trace<A>, count: usize) -> Vec<u32>;

    /// Looks up the keys in a range of the trace, [`BURST`] keys at a time. Returns a digest of the values.
    fn lookup(&self, trace: &Trace<A>, keys: Range<usize>) -> u64;

    /// Looks up all keys one at a time. Each key depends on the value that the previous lookup returned. Returns a
    /// digest of the values.
    fn chain(&self, trace: &Trace<A>) -> u64;
}

/// A trace of keys, all of which are in the table.
pub(crate) struct Keys {
    /// Size of each key in bytes.
    pub(crate) width: usize,
    /// The keys, concatenated.
    pub(crate) bytes: Vec<u8>,
    /// Entry number of each key. Our table and hashbrown store this number as the value under the key.
    pub(crate) entries: Vec<u32>,
}

/// An exact-match table.
pub(crate) trait ExactTable {
    /// Returns the table's name in the results.
    fn name(&self) -> &str;

    /// Returns the entries of the first `count` keys, with `None` for missing keys.
    fn entries(&self, keys: &Keys, count: usize) -> Vec<Option<u32>>;

    /// Looks up all keys as fast as possible. Returns a digest of the values.
    fn lookup(&self, keys: &Keys) -> u64;

    /// Looks up half of the keys, one at a time. The value of each lookup selects the next key. Returns a digest of the
    /// values.
    fn chain(&self, keys: &Keys) -> u64;

    /// Returns the size of the table's memory in bytes, if the table reports it.
    fn memory_bytes(&self) -> Option<usize>;
}

/// Returns the index of the key for a step of the chain. The lowest bit of the value from the previous lookup selects
/// one of two keys.
#[inline(always)]
pub(crate) fn choose(step: usize, value: u32) -> usize {
    2 * step + opaque(value & 1) as usize
}

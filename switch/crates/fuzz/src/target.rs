// SPDX-License-Identifier: Apache-2.0
//! Defines the interface of a fuzz target.

use std::collections::BTreeMap;

use crate::mutate;
use crate::random::Random;

/// Counts of tested objects (packets, programs, updates and others), by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    /// Adds to a count.
    pub fn add(&mut self, name: &'static str, count: u64) {
        *self.0.entry(name).or_default() += count;
    }

    /// Returns a count.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Returns all counts in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }
}

/// A fuzz target, which processes untrusted input, and panics if an invariant is violated.
pub trait Target {
    /// Returns the unit in which [`bar`](Self::bar) counts, such as packets.
    fn unit(&self) -> &'static str;

    /// Returns the number of units that a full run must reach.
    fn bar(&self) -> u64;

    /// Returns valid initial inputs.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Mutates an interesting input. `other` is a second input whose parts may be used.
    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        mutate::bytes(random, input, other)
    }

    /// Runs the input.
    ///
    /// # Panics
    /// If an invariant of the switch is violated.
    fn run(&mut self, input: &[u8], tally: &mut Tally);
}

/// A target's name and constructor.
pub type Named = (&'static str, fn() -> Box<dyn Target>);

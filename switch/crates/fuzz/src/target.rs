// SPDX-License-Identifier: Apache-2.0
//! What a fuzz target is.

use std::collections::BTreeMap;

use crate::mutate;
use crate::random::Random;

/// How much has been tried, by name: packets, programs, updates, ...
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally(BTreeMap<&'static str, u64>);

impl Tally {
    /// Adds to a count.
    pub fn add(&mut self, name: &'static str, count: u64) {
        *self.0.entry(name).or_default() += count;
    }

    /// A count.
    pub fn get(&self, name: &str) -> u64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// All counts in the order of their names.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.0.iter().map(|(name, count)| (*name, *count))
    }
}

/// Something that takes input from outsiders. It panics when what must always hold does not.
pub trait Target {
    /// What its bar is counted in.
    fn unit(&self) -> &'static str;

    /// How many of these the project's bar asks for.
    fn bar(&self) -> u64;

    /// Valid inputs to begin with.
    fn seeds(&self) -> Vec<Vec<u8>>;

    /// Another input made of one that is interesting. `other` is a second one, to take parts of.
    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        mutate::bytes(random, input, other)
    }

    /// Takes the input.
    ///
    /// # Panics
    /// When something is wrong with the switch.
    fn run(&mut self, input: &[u8], tally: &mut Tally);
}

/// A target's name, and how the target is made.
pub type Named = (&'static str, fn() -> Box<dyn Target>);

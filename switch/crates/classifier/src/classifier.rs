// SPDX-License-Identifier: Apache-2.0
//! The classifier: a tree, searched by what the processor has.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use crate::kernel::Avx2;
use crate::kernel::Portable;
use crate::layout::{Layout, MAX_KEY_BYTES, Rank, Rule};
use crate::tree::Tree;

/// What a look-up gives when no rule matches.
pub const NONE: u32 = u32::MAX;

/// The greatest value that a rule can have.
pub const MAX_VALUE: u32 = (1 << 28) - 2;

/// What a look-up costs: a measure that does not depend on the machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effort {
    /// Nodes that it goes through.
    pub nodes: usize,
    /// Leaves that it looks at.
    pub leaves: usize,
    /// Rules in these leaves.
    pub rules: usize,
}

/// An ordered list of rules. See the crate's description.
#[derive(Debug)]
pub struct Classifier {
    /// Handles are values plus one.
    tree: Tree,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
}

impl Classifier {
    /// No rules yet, for keys of so many bytes. `ranges` are the fields that rules match by range,
    /// as their bytes in the key; all other bytes are matched under a mask.
    ///
    /// # Panics
    /// If keys are longer than [`MAX_KEY_BYTES`], or a range is empty or not in the key.
    pub fn new(key_bytes: usize, ranges: &[Range<usize>]) -> Self {
        assert!(
            key_bytes <= MAX_KEY_BYTES,
            "keys have at most {MAX_KEY_BYTES} bytes"
        );
        let inside = |range: &Range<usize>| range.start < range.end && range.end <= key_bytes;
        assert!(ranges.iter().all(inside), "range fields lie in the key");
        Self {
            tree: Tree::new(Layout::new(key_bytes, ranges)),
            #[cfg(target_arch = "x86_64")]
            avx2: Avx2::detect(),
        }
    }

    /// Adds a rule. `value` is what look-ups give; at most [`MAX_VALUE`] and different from those
    /// of all other rules (memory is held up to the greatest). A rule that looks the same and has
    /// the same priority is replaced; its value is given back.
    ///
    /// # Panics
    /// If the rule has not the length of keys or the value is too great.
    pub fn insert(&mut self, rule: Rule<'_>, rank: Rank, value: u32) -> Option<u32> {
        self.check(rule);
        assert!(value <= MAX_VALUE, "a value is at most {MAX_VALUE}");
        self.tree
            .insert(rule, rank, value + 1)
            .map(|handle| handle - 1)
    }

    /// Removes the rule that looks the same and has the same priority (its sequence is not looked
    /// at); gives its value.
    ///
    /// # Panics
    /// If the rule has not the length of keys.
    pub fn remove(&mut self, rule: Rule<'_>, rank: Rank) -> Option<u32> {
        self.check(rule);
        self.tree.remove(rule, rank).map(|handle| handle - 1)
    }

    fn check(&self, rule: Rule<'_>) {
        let lengths = [rule.value.len(), rule.bounds.len()];
        assert_eq!(
            lengths, [self.tree.layout.key_bytes; 2],
            "a rule has the length of keys"
        );
    }

    /// The value of the first rule that matches.
    #[inline]
    pub fn lookup(&self, key: &[u8]) -> Option<u32> {
        self.search(key).checked_sub(1)
    }

    fn search(&self, key: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if let Some(machine) = self.avx2 {
            // SAFETY: an `Avx2` exists only where these features were detected.
            return unsafe { self.search_avx2(machine, key) };
        }
        self.tree.search(Portable, key)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn search_avx2(&self, machine: Avx2, key: &[u8]) -> u32 {
        self.tree.search(machine, key)
    }

    /// Values for keys that lie one after the other, [`NONE`] where no rule matches. Done for as
    /// many as both slices have.
    pub fn lookup_batch(&self, keys: &[u8], found: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(machine) = self.avx2 {
            // SAFETY: an `Avx2` exists only where these features were detected.
            return unsafe { self.lookup_batch_avx2(machine, keys, found) };
        }
        self.tree.search_batch(Portable, keys, found);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn lookup_batch_avx2(&self, machine: Avx2, keys: &[u8], found: &mut [u32]) {
        self.tree.search_batch(machine, keys, found);
    }

    /// Builds everything anew, as if all rules came at once.
    pub fn rebuild(&mut self) {
        self.tree.rebuild();
    }

    /// Number of rules.
    pub fn len(&self) -> usize {
        self.tree.rules
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What a look-up of a key costs.
    pub fn effort(&self, key: &[u8]) -> Effort {
        self.tree.effort(key)
    }

    /// Bytes held.
    pub fn memory_bytes(&self) -> usize {
        self.tree.arena.bytes() + self.tree.sequences.capacity() * size_of::<u64>()
    }
}

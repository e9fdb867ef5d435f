// SPDX-License-Identifier: Apache-2.0
//! Defines the classifier: a decision tree, and the best search kernel that the processor supports.

use std::ops::Range;

use crate::effort::Effort;
#[cfg(target_arch = "x86_64")]
use crate::kernel::Avx2;
use crate::kernel::Portable;
use crate::layout::{Layout, MAX_KEY_BYTES, Precedence, Rule};
use crate::tree::Tree;

/// Result of a lookup if no rule matches.
pub const NONE: u32 = u32::MAX;

/// Maximum value of a rule.
pub const MAX_VALUE: u32 = (1 << 28) - 2;

/// An ordered list of rules that finds the first match for a key. See the crate documentation.
#[derive(Debug)]
pub struct Classifier {
    /// The tree. A handle in the tree is a rule's value plus one, because the handle 0 stands for no rule.
    tree: Tree,
    #[cfg(target_arch = "x86_64")]
    avx2: Option<Avx2>,
}

impl Classifier {
    /// Creates a classifier without rules, for keys of `key_bytes` bytes. `ranges` has the byte ranges of the fields
    /// that rules match by range. All other bytes are matched under a mask.
    ///
    /// # Panics
    /// Panics if `key_bytes` exceeds [`MAX_KEY_BYTES`], or if a range is empty or not within the key.
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

    /// Adds a rule. If a rule with equal fields and equal priority exists, replaces it and returns its value.
    ///
    /// Lookups that match the rule return `value`, which must be at most [`MAX_VALUE`] and must differ from the values
    /// of all other rules. Values should be small, because memory grows with the greatest value.
    ///
    /// # Panics
    /// Panics if the rule's length is not the key length, or if `value` is too great.
    pub fn insert(&mut self, rule: Rule<'_>, precedence: Precedence, value: u32) -> Option<u32> {
        self.check(rule);
        assert!(value <= MAX_VALUE, "a value is at most {MAX_VALUE}");
        self.tree
            .insert(rule, precedence, value + 1)
            .map(|handle| handle - 1)
    }

    /// Removes the rule that has equal fields and equal priority, and returns its value. Ignores the sequence number in
    /// `precedence`.
    ///
    /// # Panics
    /// Panics if the rule's length is not the key length.
    pub fn remove(&mut self, rule: Rule<'_>, precedence: Precedence) -> Option<u32> {
        self.check(rule);
        self.tree.remove(rule, precedence).map(|handle| handle - 1)
    }

    fn check(&self, rule: Rule<'_>) {
        let lengths = [rule.value.len(), rule.bounds.len()];
        assert_eq!(
            lengths, [self.tree.layout.key_bytes; 2],
            "a rule is as long as a key"
        );
    }

    /// Returns the value of the first rule that matches a key.
    #[inline]
    pub fn lookup(&self, key: &[u8]) -> Option<u32> {
        self.search(key).checked_sub(1)
    }

    fn search(&self, key: &[u8]) -> u32 {
        #[cfg(target_arch = "x86_64")]
        if let Some(machine) = self.avx2 {
            // SAFETY: an `Avx2` exists only if these features were detected.
            return unsafe { self.search_avx2(machine, key) };
        }
        self.tree.search(Portable, key)
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn search_avx2(&self, machine: Avx2, key: &[u8]) -> u32 {
        self.tree.search(machine, key)
    }

    /// Looks up consecutive keys and writes their values to `found`. Writes [`NONE`] if no rule matches. Stops at the
    /// end of the shorter slice.
    pub fn lookup_batch(&self, keys: &[u8], found: &mut [u32]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(machine) = self.avx2 {
            // SAFETY: an `Avx2` exists only if these features were detected.
            return unsafe { self.lookup_batch_avx2(machine, keys, found) };
        }
        self.tree.search_batch(Portable, keys, found);
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2,bmi1,bmi2,popcnt")]
    fn lookup_batch_avx2(&self, machine: Avx2, keys: &[u8], found: &mut [u32]) {
        self.tree.search_batch(machine, keys, found);
    }

    /// Rebuilds the whole tree from all rules.
    pub fn rebuild(&mut self) {
        self.tree.rebuild();
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.tree.rules
    }

    /// Returns whether the classifier has no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the effort of a lookup of `key`.
    pub fn effort(&self, key: &[u8]) -> Effort {
        self.tree.effort(key)
    }

    /// Returns the number of allocated bytes.
    pub fn memory_bytes(&self) -> usize {
        self.tree.arena.bytes() + self.tree.sequences.capacity() * size_of::<u64>()
    }
}

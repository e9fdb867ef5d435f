// SPDX-License-Identifier: Apache-2.0
//! Implements an ordered list of rules, which is searched by means of a decision tree.
//!
//! The tree names rules by ids, which do not change when other rules move. The list maps ids to
//! positions.

use std::sync::Arc;

use super::area::{Packets, Selectors};
use super::tree::{self, Node, Query, RuleBox};

/// Stands in `positions` for an id that no rule has.
const NOWHERE: u32 = u32::MAX;
/// If a change affects more than one rule in this many, the whole tree is built again.
const REBUILT_SHARE: usize = 8;

/// Rules in order, prepared for insertion into a list.
#[derive(Debug, Default)]
pub struct NewRules {
    entries: Vec<RuleBox>,
    rules: usize,
}

impl NewRules {
    /// Appends a rule with these selectors. `restricts`: the rule protects or discards.
    pub fn push(&mut self, selectors: Selectors, effect: u32, restricts: bool) {
        let (areas, exact) = selectors.areas();
        let rule = self.rules as u32;
        self.entries.extend(areas.into_iter().map(|area| RuleBox {
            area,
            rule,
            effect,
            restricts,
            exact: exact.clone(),
        }));
        self.rules += 1;
    }

    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.rules
    }

    /// Returns whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.rules == 0
    }
}

/// An immutable, ordered list of rules.
#[derive(Clone, Debug, Default)]
pub struct List {
    tree: Option<Arc<Node>>,
    /// Id of the rule at each position.
    ids: Vec<u32>,
    /// Position of each id.
    positions: Vec<u32>,
    free: Vec<u32>,
}

impl List {
    /// Returns the number of rules.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// Returns whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// Returns a copy of the list in which the rules `added` take the place of the rules `removed`.
    /// `start` is the position of the first removed rule.
    ///
    /// Returns `None` if the list has no such rules.
    pub fn replaced(&self, start: usize, removed: &NewRules, added: &NewRules) -> Option<Self> {
        let end = start
            .checked_add(removed.len())
            .filter(|&end| end <= self.len())?;
        let is_large = removed.len() + added.len() > self.len() / REBUILT_SHARE;
        let mut list = self.clone();
        let old: Vec<u32> = list.ids[start..end].to_vec();
        if !is_large {
            for entry in &removed.entries {
                let rule = old[entry.rule as usize];
                list.tree = tree::remove(list.tree.as_ref(), entry.area, rule, &list.positions);
            }
        }
        for &id in &old {
            list.positions[id as usize] = NOWHERE;
        }
        list.free.extend(&old);
        let new: Vec<u32> = (0..added.len()).map(|_| list.take_id()).collect();
        list.ids.splice(start..end, new.iter().copied());
        let from = if removed.len() == added.len() {
            start..start + new.len()
        } else {
            start..list.len()
        };
        for at in from {
            list.positions[list.ids[at] as usize] = at as u32;
        }
        let inserted = added.entries.iter().cloned().map(|mut entry| {
            entry.rule = new[entry.rule as usize];
            entry
        });
        if is_large {
            list.rebuild(self, start..end, inserted);
        } else {
            for entry in inserted {
                list.tree = tree::insert(list.tree.as_ref(), entry, &list.positions);
            }
        }
        Some(list)
    }

    /// Builds the tree from two sources: the entries of the list `before` without those of its
    /// rules at positions `replaced`, and the entries `inserted`.
    fn rebuild(
        &mut self,
        before: &Self,
        replaced: std::ops::Range<usize>,
        inserted: impl Iterator<Item = RuleBox>,
    ) {
        self.tree = None;
        let mut entries = tree::entries_of(before.tree.as_ref(), &before.positions);
        let position = |entry: &RuleBox| before.positions[entry.rule as usize] as usize;
        let start = entries.partition_point(|one| position(one) < replaced.start);
        let end = entries.partition_point(|one| position(one) < replaced.end);
        entries.splice(start..end, inserted);
        self.tree = tree::build(&entries, &self.positions);
    }

    fn take_id(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.positions.push(NOWHERE);
            self.positions.len() as u32 - 1
        })
    }

    /// Returns the position of the first rule that matches some of these packets.
    pub fn first_match(&self, packets: &Packets) -> Option<usize> {
        let query = Query {
            area: packets.area(),
            other_than: None,
            restricting: false,
            any: false,
        };
        self.search(&query, self.len())
    }

    /// Returns whether some rule before position `limit` matches some of these packets and has an
    /// effect other than `effect`.
    pub fn has_other_effect(&self, packets: &Packets, effect: u32, limit: usize) -> bool {
        let (area, other_than) = (packets.area(), Some(effect));
        let query = Query {
            area,
            other_than,
            restricting: false,
            any: true,
        };
        self.search(&query, limit).is_some()
    }

    /// Returns whether a rule that protects or discards matches some of these packets.
    pub fn restricts(&self, packets: &Packets) -> bool {
        let query = Query {
            area: packets.area(),
            other_than: None,
            restricting: true,
            any: true,
        };
        self.search(&query, self.len()).is_some()
    }

    fn search(&self, query: &Query, limit: usize) -> Option<usize> {
        let limit = limit.min(self.len()) as u32;
        let found = self.tree.as_ref()?.search(query, &self.positions, limit);
        (found < limit).then_some(found as usize)
    }

    /// Returns the number of allocated bytes.
    pub fn memory_bytes(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.memory_bytes())
            + (self.ids.capacity() + self.positions.capacity() + self.free.capacity())
                * size_of::<u32>()
    }
}

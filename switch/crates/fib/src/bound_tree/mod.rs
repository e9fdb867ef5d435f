// SPDX-License-Identifier: Apache-2.0
//! IPv6 lookups by a search for bounds: [`BoundTree`].
//!
//! ```text
//! address  |   16 bits   |        32 bits         |     32     |     32     |  16  |
//!            index into      key of segment 0        segment 1    segment 2   segment 3
//!            `roots`              |
//!               |                 v
//!               +--> inner line   b1 b2 ... b15 | first child     up to 16 parts by 15 bounds;
//!                        |                                        the children lie side by side
//!                    inner line   ...
//!                        |
//!                    leaf         b1 ... b10 | i0 i1 ... i10      up to 11 (or 8) parts, and for each
//!                                                   |             an answer, or a tree of the same
//!                                                   v             kind over the next segment
//! ```
//!
//! The routes divide the address space into ranges. All addresses of a range have one answer. The starts of ranges are
//! bounds. For each value of the first 16 bits (a *root*), the bounds form a tree of cache lines, similar to a B+-tree.
//! A line is searched with one vector compare. The number of ones in the result selects the child.
//!
//! All trees of a segment have the same height, which is four lines for a full Internet table. So the addresses of a
//! batch descend together, without a branch that could be mispredicted. Only a fifteenth of all lines are inner lines,
//! and these stay in the second-level cache. So an address costs at most one miss, and the misses of a batch overlap.
//! Few routes are longer than 48 bits. For such routes, a leaf has a *reference* to a tree of the next segment, and a
//! lookup continues there.
//!
//! PlanB shows that such a tree with vector compares and batches is faster than tries (Zhang, Liu, Chen, Li, Shu, Hsu,
//! Zhang: "PlanB: Efficient Software IPv6 Lookup with Linearized B+-Tree", NSDI 2026). PlanB uses one tree with bounds
//! of 64 bits. Here the first 16 bits are an index, so bounds need only 32 bits and a line holds twice as many. The
//! tree is changed in place (see `assign` and `update`).
//!
//! Depends on the RIB. Invariant: the answers are those of a linear search over all prefixes, for any order of updates.
//! A build fails if a value exceeds the limit of [`BoundTree16`] or [`BoundTree32`], or if more than 2^31 lines are
//! needed.

#![expect(
    private_bounds,
    reason = "BoundTree16 and BoundTree32 are all there are"
)]

mod assign;
mod batch;
mod build;
mod line;
mod line_pool;
mod update;

use std::collections::HashMap;
use std::ops::RangeInclusive;

use batch::{Kernel, LinePosition, View};
use build::{Content, SEGMENTS, Trees};
use line_pool::Full;

use crate::address::Prefix;
use crate::algorithm::{Algorithm, BuildError, NeedsRebuild};
use crate::answer::NONE;
use crate::change::Change;
use crate::lines::Lines;
use crate::lookup_item::LookupItem;
use crate::rib::Rib;

/// [`BoundTree`] for values up to 32,766. A leaf has up to eleven ranges.
pub type BoundTree16 = BoundTree<u16>;

/// [`BoundTree`] for values up to 2³¹ − 2. A leaf has up to eight ranges.
pub type BoundTree32 = BoundTree<u32>;

/// Number of address bits that are the index into the roots.
const ROOT_BITS: u32 = 16;

/// Number of changes whose leaves are located together.
const TOGETHER: usize = 16;

/// IPv6 routes as trees of cache lines; see the module.
#[derive(Clone, Debug)]
pub struct BoundTree<I: LookupItem> {
    /// For each value of the first 16 bits, the topmost line of its tree.
    roots: Vec<u32>,
    /// For each answer, the tree that has this answer for all keys, and the number of roots that share the tree.
    shared: HashMap<I, (u32, u32)>,
    trees: Trees<I>,
    kernel: Kernel,
}

/// Returns the ranges of a prefix's addresses with their answers, in ascending order.
fn ranges<I: LookupItem>(
    rib: &Rib<u128>,
    prefix: Prefix<u128>,
) -> Result<Vec<(u128, I)>, BuildError> {
    let mut ranges = Vec::new();
    let mut largest = 0;
    rib.for_each_range(prefix, &mut |first, value| {
        largest = largest.max(value.unwrap_or(0));
        let value = value.map(|value| value.min(I::LIMIT));
        ranges.push((first, I::answer(value)));
    });
    if largest > I::LIMIT {
        return Err(BuildError::ValueTooLarge {
            value: largest,
            limit: I::LIMIT,
        });
    }
    Ok(ranges)
}

/// Returns the first 16 bits of an address.
fn root_of(address: u128) -> u16 {
    (address >> (128 - ROOT_BITS)) as u16
}

/// Consecutive roots (values of the first 16 bits) with the ranges of their addresses. A stretch of several roots has a
/// single range, which covers all of them.
struct Stretch<I> {
    roots: RangeInclusive<u16>,
    ranges: Vec<(u128, I)>,
}

/// Divides roots into stretches. The first range must begin at the first address of the first root.
fn stretches<I: LookupItem>(
    roots: RangeInclusive<u16>,
    ranges: &[(u128, I)],
) -> impl Iterator<Item = Stretch<I>> + '_ {
    let (mut first, last) = (u32::from(*roots.start()), u32::from(*roots.end()));
    let mut next = 0;
    std::iter::from_fn(move || {
        let root = u16::try_from(first).ok().filter(|_| first <= last)?;
        let prefix = Prefix::new(u128::from(root) << (128 - ROOT_BITS), ROOT_BITS);
        let begins =
            |range: usize, until| ranges.get(range).is_some_and(|(start, _)| *start <= until);
        while begins(next + 1, prefix.address()) {
            next += 1;
        }
        let mut own = vec![(prefix.address(), ranges[next].1)];
        while begins(next + 1, prefix.last()) {
            next += 1;
            own.push(ranges[next]);
        }
        // The range covers all roots before the one in which the next range begins.
        let after = ranges
            .get(next + 1)
            .map(|(start, _)| u32::from(root_of(*start)));
        let end = match after {
            _ if own.len() > 1 => root,
            Some(after) => (after - 1).min(last) as u16,
            None => last as u16,
        };
        first = u32::from(end) + 1;
        let (roots, ranges) = (root..=end, own);
        Some(Stretch { roots, ranges })
    })
}

impl From<Full> for BuildError {
    fn from(Full: Full) -> Self {
        Self::TooManyRoutes
    }
}

impl<I: LookupItem> BoundTree<I> {
    fn view(&self) -> View<'_, I> {
        View {
            roots: &self.roots,
            trees: &self.trees,
        }
    }

    /// Returns the tree for the roots of a stretch. The tree may be shared.
    fn root(&mut self, stretch: &Stretch<I>) -> Result<u32, Full> {
        if let [(_, item)] = stretch.ranges[..] {
            return self.share(item, stretch.roots.len() as u32);
        }
        self.trees.plant(build::cells(&stretch.ranges, 0), 0)
    }

    /// Returns the shared tree that has one answer for all keys. Adds `more` to the number of its users.
    fn share(&mut self, item: I, more: u32) -> Result<u32, Full> {
        if let Some((top, users)) = self.shared.get_mut(&item) {
            *users += more;
            return Ok(*top);
        }
        let top = self.trees.plant(vec![(0, Content::Answer(item))], 0)?;
        self.shared.insert(item, (top, more));
        Ok(top)
    }

    /// Returns the answer of a root, if the root uses a shared tree.
    fn shared_answer(&self, root: u16) -> Option<I> {
        let top = self.roots[usize::from(root)];
        let item = self.trees.single(top, 0)?;
        let shared = self.shared.get(&item);
        shared.is_some_and(|(tree, _)| *tree == top).then_some(item)
    }

    /// Replaces the tree of a root. Frees the old tree if no other root uses it.
    fn replace(&mut self, root: u16, top: u32) {
        let shared = self.shared_answer(root);
        let old = std::mem::replace(&mut self.roots[usize::from(root)], top);
        let Some(item) = shared else {
            return self.trees.release(old, 0);
        };
        if let Some((_, users)) = self.shared.get_mut(&item) {
            *users -= 1;
            if *users == 0 {
                self.shared.remove(&item);
                self.trees.release(old, 0);
            }
        }
    }

    /// Returns the item for a change that gives all addresses of its prefix one answer. Returns `None` for any other
    /// change, for an answer that does not fit in an item, and for a prefix that is not longer than the root index.
    fn item(change: Change<u128>) -> Option<I> {
        let value = change.answer()?;
        let fits = value <= I::LIMIT || value == NONE;
        // An item is the value plus one. The item 0 stands for no route.
        let item = || I::new(value.wrapping_add(1));
        (fits && change.prefix().length() > ROOT_BITS).then(item)
    }

    /// Returns the first-segment leaves of at most [`TOGETHER`] changes.
    fn positions(&self, changes: &[Change<u128>]) -> [LinePosition; TOGETHER] {
        let mut positions = [LinePosition::of_tree(0); TOGETHER];
        let mut keys = [0; TOGETHER];
        for ((position, key), change) in positions.iter_mut().zip(&mut keys).zip(changes) {
            let address = change.prefix().address();
            *position = LinePosition::of_tree(self.roots[usize::from(root_of(address))]);
            *key = build::key(address, 0);
        }
        let count = changes.len();
        let (some, height) = (&mut positions[..count], self.trees.heights[0]);
        self.kernel
            .positions(&self.trees, some, height, &keys[..count]);
        positions
    }

    /// Applies a change if it affects only the leaf at this position. Returns whether it was applied.
    fn assign_at(&mut self, change: Change<u128>, position: LinePosition) -> bool {
        let prefix = change.prefix();
        let Some(item) = Self::item(change) else {
            return false;
        };
        prefix.length() <= build::segment_end(0) && self.trees.assign_at(position, 0, prefix, item)
    }

    /// Updates everything under `prefix` from the RIB.
    fn update(&mut self, prefix: Prefix<u128>, rib: &Rib<u128>) -> Result<(), BuildError> {
        let root = root_of(prefix.address());
        if prefix.length() > ROOT_BITS && self.shared_answer(root).is_none() {
            let ranges = ranges(rib, prefix)?;
            let top = self.roots[usize::from(root)];
            if let [(_, item)] = ranges[..]
                && self.trees.assign(self.kernel, top, prefix, item)
            {
                return Ok(());
            }
            self.trees.update(top, 0, prefix, &ranges)?;
            if let Some(item) = self.trees.single(top, 0) {
                let top = self.share(item, 1)?;
                self.replace(root, top);
            }
            return Ok(());
        }
        let prefix = Prefix::new(prefix.address(), prefix.length().min(ROOT_BITS));
        let ranges = ranges(rib, prefix)?;
        for stretch in stretches(root..=root_of(prefix.last()), &ranges) {
            let top = self.root(&stretch)?;
            for root in stretch.roots {
                self.replace(root, top);
            }
        }
        Ok(())
    }
}

impl<I: LookupItem> Algorithm<u128> for BoundTree<I> {
    fn build(rib: &Rib<u128>) -> Result<Self, BuildError> {
        let ranges = ranges(rib, Prefix::new(0, 0))?;
        let mut heights = [1; SEGMENTS];
        for stretch in stretches(0..=u16::MAX, &ranges) {
            build::raise(&mut heights, 0, &build::cells(&stretch.ranges, 0));
        }
        let mut made = Self {
            roots: vec![0; 1 << ROOT_BITS],
            shared: HashMap::new(),
            trees: Trees::new(heights),
            kernel: Kernel::detect(),
        };
        for stretch in stretches(0..=u16::MAX, &ranges) {
            let top = made.root(&stretch)?;
            let (first, last) = (*stretch.roots.start(), *stretch.roots.end());
            made.roots[usize::from(first)..=usize::from(last)].fill(top);
        }
        made.trees.pool.shrink();
        Ok(made)
    }

    #[inline]
    fn lookup(&self, address: u128) -> u32 {
        self.kernel.one(self.view(), address)
    }

    fn index_lines(&self, address: u128) -> Lines {
        Lines::of(self.view().root(address))
    }

    fn lines(&self, address: u128) -> Lines {
        Lines::of(self.kernel.leaf(self.view(), address))
    }

    fn lookup_batch(&self, addresses: &[u128], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len(), "one value for each address");
        self.kernel.many(self.view(), addresses, values);
    }

    fn refresh(&mut self, prefix: Prefix<u128>, rib: &Rib<u128>) -> Result<(), NeedsRebuild> {
        self.update(prefix, rib).map_err(|_| NeedsRebuild)
    }

    fn follow(&mut self, change: Change<u128>, rib: &Rib<u128>) -> Result<(), NeedsRebuild> {
        let prefix = change.prefix();
        let top = self.roots[usize::from(root_of(prefix.address()))];
        match Self::item(change) {
            Some(item) if self.trees.assign(self.kernel, top, prefix, item) => Ok(()),
            _ => self.refresh(prefix, rib),
        }
    }

    fn follow_all(
        &mut self,
        changes: &[Change<u128>],
        rib: &Rib<u128>,
    ) -> Result<(), NeedsRebuild> {
        let mut later = changes.chunks(TOGETHER);
        let first = later.next();
        let mut next = first.map(|changes| (changes, self.positions(changes)));
        while let Some((changes, positions)) = next {
            // Prefetches the leaves of the next changes before it applies these changes.
            next = later.next().map(|later| (later, self.positions(later)));
            let mut stays = true;
            for (change, position) in changes.iter().zip(positions) {
                if !(stays && self.assign_at(*change, position)) {
                    // The call may move lines, so the positions are no longer valid.
                    self.follow(*change, rib)?;
                    stays = false;
                }
            }
            if let Some((later, positions)) = &mut next
                && !stays
            {
                *positions = self.positions(later);
            }
        }
        Ok(())
    }

    fn memory_bytes(&self) -> usize {
        let shared = self.shared.capacity() * size_of::<(I, (u32, u32))>();
        let roots = self.roots.capacity() * size_of::<u32>();
        size_of::<Self>() + roots + shared + self.trees.memory_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_gone_leaves_no_tree_behind() {
        let mut rib = Rib::new();
        rib.insert(Prefix::new(0x2001 << 112, 16), 9);
        let lengths = [32, 48, 56, 64, 90, 128];
        let routes: Vec<Prefix<u128>> = (0..400u128)
            .map(|i| {
                (
                    0x2001 << 112 | (i % 20) << 96 | i << 60,
                    lengths[i as usize % 6],
                )
            })
            .map(|(address, length)| Prefix::new(address, length))
            .collect();
        for (value, route) in routes.iter().enumerate() {
            rib.insert(*route, value as u32);
        }
        let mut made = BoundTree16::build(&rib).expect("the routes fit");
        let root = usize::from(root_of(routes[0].address()));
        assert!(made.trees.further.len() > 100);
        for route in &routes {
            rib.remove(*route);
            made.refresh(*route, &rib).expect("fewer routes fit");
        }
        assert_eq!(made.trees.further.len(), made.trees.free.len());
        let height = made.trees.heights[0];
        assert_eq!(
            made.trees.single(made.roots[root], 0),
            Some(u16::answer(Some(9)))
        );
        assert_eq!(
            made.trees.pool.used(),
            2 * height,
            "a tree for each of two answers"
        );
        rib.remove(Prefix::new(0x2001 << 112, 16));
        made.refresh(Prefix::new(0x2001 << 112, 16), &rib)
            .expect("nothing fits");
        assert_eq!(made.trees.pool.used(), height);
    }
}

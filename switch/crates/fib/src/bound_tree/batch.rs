// SPDX-License-Identifier: Apache-2.0
//! Single lookups, and lookups in batches, whose cache misses overlap.
//!
//! The addresses of a batch are taken in chunks. All addresses of a chunk descend together, level by level. The first
//! two levels are one step, because their lines are in the first-level or second-level cache. In each line, a vector
//! compare yields the next line. No branch depends on the result of a search, so no branch is mispredicted. At the end,
//! the few addresses that continue in the next segment do so together.

use super::build::{SEGMENTS, Trees, key};
use super::line::{INNER, Line, leaf};
use crate::lines::fetch;
use crate::lookup_item::LookupItem;

/// Number of addresses in a chunk. It is large enough to cover the latency of a cache miss.
const CHUNK: usize = 64;

/// Number of values that are tested together for a reference.
const PASSED: usize = 16;

/// Set of processor instructions for lookups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kernel {
    /// Instructions that every processor of the architecture has.
    Portable,
    /// AVX2, with two compares per line.
    #[cfg(target_arch = "x86_64")]
    Avx2,
    /// AVX-512, with one compare per line.
    #[cfg(target_arch = "x86_64")]
    Avx512,
}

/// Functions that count the bounds of a line that are below a key. The arguments are the line, the key, and a mask that
/// says which words of the line are bounds.
trait Count: Fn(&Line, u32, u32) -> u32 + Copy {}

impl<T: Fn(&Line, u32, u32) -> u32 + Copy> Count for T {}

impl Kernel {
    /// Returns the best kernel for this processor.
    pub(super) fn detect() -> Self {
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
        {
            return Self::Avx512;
        }
        #[cfg(target_arch = "x86_64")]
        if is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("bmi2")
            && is_x86_feature_detected!("popcnt")
        {
            return Self::Avx2;
        }
        Self::Portable
    }

    /// Looks up each address and writes its answer to `values`, which must be as long as `addresses`.
    pub(super) fn many<I: LookupItem>(
        self,
        view: View<'_, I>,
        addresses: &[u128],
        values: &mut [u32],
    ) {
        match self {
            Self::Portable => view.many(addresses, values, portable),
            // SAFETY: `detect` found the processor features that the function needs.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::many_avx2(view, addresses, values) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::many_avx512(view, addresses, values) },
        }
    }

    /// Looks up one address.
    #[inline]
    pub(super) fn one<I: LookupItem>(self, view: View<'_, I>, address: u128) -> u32 {
        match self {
            Self::Portable => view.one(address, portable),
            // SAFETY: `detect` found the processor features that the function needs.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::one_avx2(view, address) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::one_avx512(view, address) },
        }
    }

    /// Returns the leaf of an address in memory, for a prefetch. All other lines that a lookup reads are probably in a
    /// cache near the core.
    #[inline]
    pub(super) fn leaf<I: LookupItem>(self, view: View<'_, I>, address: u128) -> *const Line {
        match self {
            Self::Portable => view.first_leaf(address, portable),
            // SAFETY: `detect` found the processor features that the function needs.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::leaf_avx2(view, address) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::leaf_avx512(view, address) },
        }
    }

    /// Descends a segment's tree from its topmost line to the leaf of a key.
    #[inline]
    pub(super) fn position<I: LookupItem>(
        self,
        trees: &Trees<I>,
        top: u32,
        height: usize,
        key: u32,
    ) -> LinePosition {
        match self {
            Self::Portable => trees.position(top, height, key, portable),
            // SAFETY: `detect` found the processor features that the function needs.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::position_avx2(trees, top, height, key) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::position_avx512(trees, top, height, key) },
        }
    }

    /// Descends several trees of a segment together, each from its topmost line to the leaf of one key. Prefetches
    /// these leaves.
    pub(super) fn positions<I: LookupItem>(
        self,
        trees: &Trees<I>,
        positions: &mut [LinePosition],
        height: usize,
        keys: &[u32],
    ) {
        match self {
            Self::Portable => trees.positions(positions, height, keys, portable),
            // SAFETY: `detect` found the processor features that the function needs.
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => unsafe { x86::positions_avx2(trees, positions, height, keys) },
            // SAFETY: as above.
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => unsafe { x86::positions_avx512(trees, positions, height, keys) },
        }
    }
}

/// A line, and the range of keys whose search reaches this line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LinePosition {
    pub(super) at: u32,
    pub(super) first: u32,
    pub(super) last: u32,
}

impl LinePosition {
    /// Returns the position of a tree's topmost line.
    pub(super) fn of_tree(top: u32) -> Self {
        Self {
            at: top,
            first: 0,
            last: u32::MAX,
        }
    }
}

#[inline(always)]
fn portable(line: &Line, key: u32, mask: u32) -> u32 {
    let below = line.words().iter().enumerate();
    below
        .map(|(position, bound)| u32::from(*bound < key) & mask >> position)
        .sum()
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::arch::x86_64::*;

    use super::{Line, LinePosition, LookupItem, Trees, View};

    #[inline]
    #[target_feature(enable = "avx2")]
    fn avx2(line: &Line, key: u32, mask: u32) -> u32 {
        let key = _mm256_set1_epi32(key as i32);
        let from = line.words().as_ptr().cast();
        // SAFETY: the two loads read 32 bytes each, and the line has 64 bytes. The line is aligned.
        let (near, far) = unsafe { (_mm256_load_si256(from), _mm256_load_si256(from.add(1))) };
        // AVX2 has no unsigned compare, so this uses the unsigned maximum.
        let from_key_on = |bounds| {
            let from_key_on = _mm256_cmpeq_epi32(_mm256_max_epu32(key, bounds), bounds);
            _mm256_movemask_ps(_mm256_castsi256_ps(from_key_on)) as u32
        };
        (!(from_key_on(near) | from_key_on(far) << 8) & mask).count_ones()
    }

    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    fn avx512(line: &Line, key: u32, mask: u32) -> u32 {
        let below: u32;
        // SAFETY: this loads the line's 64 bytes, which are aligned. The processor has these instructions. They are
        // written in assembly, because the compiler would use a separate instruction to apply the mask. The compare
        // would then take a quarter longer.
        unsafe {
            let bounds = _mm512_load_si512(line.words().as_ptr().cast());
            std::arch::asm!(
                "vpcmpltud {below}{{{mask}}}, {bounds}, {key}",
                "kmovw {count:e}, {below}",
                mask = in(kreg) mask as u16,
                bounds = in(zmm_reg) bounds,
                key = in(zmm_reg) _mm512_set1_epi32(key as i32),
                below = out(kreg) _,
                count = lateout(reg) below,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        below.count_ones()
    }

    macro_rules! kernels {
        ($count:ident, $features:literal: $many:ident, $one:ident, $leaf:ident, $position:ident, $positions:ident) => {
            #[target_feature(enable = $features)]
            pub(super) fn $many<I: LookupItem>(
                view: View<'_, I>,
                addresses: &[u128],
                values: &mut [u32],
            ) {
                view.many(addresses, values, |line: &Line, key, mask| {
                    $count(line, key, mask)
                });
            }

            #[target_feature(enable = $features)]
            pub(super) fn $one<I: LookupItem>(view: View<'_, I>, address: u128) -> u32 {
                view.one(address, |line: &Line, key, mask| $count(line, key, mask))
            }

            #[target_feature(enable = $features)]
            pub(super) fn $leaf<I: LookupItem>(view: View<'_, I>, address: u128) -> *const Line {
                view.first_leaf(address, |line: &Line, key, mask| $count(line, key, mask))
            }

            #[target_feature(enable = $features)]
            pub(super) fn $position<I: LookupItem>(
                trees: &Trees<I>,
                top: u32,
                height: usize,
                key: u32,
            ) -> LinePosition {
                trees.position(top, height, key, |line: &Line, key, mask| {
                    $count(line, key, mask)
                })
            }

            #[target_feature(enable = $features)]
            pub(super) fn $positions<I: LookupItem>(
                trees: &Trees<I>,
                positions: &mut [LinePosition],
                height: usize,
                keys: &[u32],
            ) {
                trees.positions(positions, height, keys, |line: &Line, key, mask| {
                    $count(line, key, mask)
                });
            }
        };
    }

    kernels!(avx2, "avx2,bmi1,bmi2,popcnt": many_avx2, one_avx2, leaf_avx2, position_avx2, positions_avx2);
    kernels!(avx512, "avx512f,avx512bw,avx512vl,bmi1,bmi2,popcnt": many_avx512, one_avx512, leaf_avx512, position_avx512, positions_avx512);
}

/// The data that lookups read.
#[derive(Clone, Copy)]
pub(super) struct View<'a, I> {
    /// For each value of the first 16 bits, the topmost line of its tree.
    pub(super) roots: &'a [u32],
    pub(super) trees: &'a Trees<I>,
}

impl<I: LookupItem> View<'_, I> {
    /// Returns the topmost line of an address's tree.
    #[inline(always)]
    fn begin(self, address: u128) -> u32 {
        // SAFETY: there are 2^16 roots.
        unsafe { *self.roots.get_unchecked((address >> 112) as usize) }
    }

    /// Returns the child of an inner line that the search for a key visits next.
    #[inline(always)]
    fn child(self, at: u32, key: u32, count: impl Count) -> u32 {
        // SAFETY: topmost lines and children of inner lines are lines of the pool. An inner line has one child more
        // than bounds.
        let line = unsafe { self.trees.pool.lines().get_unchecked(at as usize) };
        line.first_child().wrapping_add(count(line, key, INNER))
    }

    /// Returns the item of a leaf for a key.
    #[inline(always)]
    fn item(self, at: u32, key: u32, count: impl Count) -> I {
        // SAFETY: `at` is a line of the pool. A leaf has one item more than bounds.
        unsafe {
            let line = self.trees.pool.lines().get_unchecked(at as usize);
            line.item(count(line, key, leaf::<I>()))
        }
    }

    /// Returns the leaf in which the search for a key ends.
    #[inline(always)]
    fn leaf(self, top: u32, height: usize, key: u32, count: impl Count) -> u32 {
        (1..height).fold(top, |at, _| self.child(at, key, count))
    }

    #[inline(always)]
    fn one(self, address: u128, count: impl Count) -> u32 {
        let (mut top, mut segment) = (self.begin(address), 0);
        loop {
            let key = key(address, segment);
            let leaf = self.leaf(top, self.trees.heights[segment], key, count);
            let item = self.item(leaf, key, count);
            let Some(index) = item.reference_index() else {
                return item.value();
            };
            top = self.trees.further[index as usize];
            segment += 1;
        }
    }

    /// Returns an address's leaf in the first segment.
    #[inline(always)]
    fn first_leaf(self, address: u128, count: impl Count) -> *const Line {
        let key = key(address, 0);
        self.line(self.leaf(self.begin(address), self.trees.heights[0], key, count))
    }

    /// Returns the memory address of the element of `roots` that a lookup of an IPv6 address reads.
    #[inline(always)]
    pub(super) fn root(self, address: u128) -> *const u32 {
        self.roots.as_ptr().wrapping_add((address >> 112) as usize)
    }

    #[inline(always)]
    fn line(self, at: u32) -> *const Line {
        let lines = self.trees.pool.lines().as_ptr();
        lines.wrapping_add(at as usize)
    }

    #[inline(always)]
    fn many(self, addresses: &[u128], values: &mut [u32], count: impl Count) {
        match self.trees.heights[0] {
            1 => self.all::<1>(addresses, values, count),
            2 => self.all::<2>(addresses, values, count),
            3 => self.all::<3>(addresses, values, count),
            4 => self.all::<4>(addresses, values, count),
            _ => self.all::<0>(addresses, values, count),
        }
        if any_refers::<I>(values) {
            Lanes { ..Lanes::EMPTY }.go_further(self, addresses, values, count);
        }
    }

    /// Looks up all addresses in the first segment. `HEIGHT` is the height of the trees, or 0 for a height that is
    /// known only at run time. With a constant height, a descent has no branches, so the processor overlaps the
    /// descents of several addresses.
    #[inline(always)]
    fn all<const HEIGHT: usize>(self, addresses: &[u128], values: &mut [u32], count: impl Count) {
        let (chunks, rest) = addresses.as_chunks::<CHUNK>();
        let (found, found_rest) = values.as_chunks_mut::<CHUNK>();
        for (addresses, values) in chunks.iter().zip(found) {
            self.some::<HEIGHT>(addresses, values, count);
        }
        self.some::<HEIGHT>(rest, found_rest, count);
    }

    /// Looks up at most a chunk of addresses in the first segment.
    #[inline(always)]
    fn some<const HEIGHT: usize>(self, addresses: &[u128], values: &mut [u32], count: impl Count) {
        let height = match HEIGHT {
            0 => self.trees.heights[0],
            height => height,
        };
        // During the descent, each element of `values` holds the number of the address's current line.
        together(addresses, values, |address, line| {
            *line = self.begin(address);
            for _ in 1..height.min(3) {
                *line = self.child(*line, key(address, 0), count);
            }
            fetch(self.line(*line));
        });
        for _ in 3..height {
            together(addresses, values, |address, line| {
                *line = self.child(*line, key(address, 0), count);
                fetch(self.line(*line));
            });
        }
        together(addresses, values, |address, value| {
            *value = self.item(*value, key(address, 0), count).value();
        });
    }
}

impl<I: LookupItem> Trees<I> {
    #[inline(always)]
    fn position(&self, top: u32, height: usize, key: u32, count: impl Count) -> LinePosition {
        (1..height).fold(LinePosition::of_tree(top), |position, _| {
            self.below(position, key, count)
        })
    }

    #[inline(always)]
    fn positions(
        &self,
        positions: &mut [LinePosition],
        height: usize,
        keys: &[u32],
        count: impl Count,
    ) {
        for _ in 1..height {
            for (position, key) in positions.iter_mut().zip(keys) {
                *position = self.below(*position, *key, count);
            }
        }
        for position in positions {
            fetch(self.pool.get(position.at));
        }
    }

    /// Returns the child of an inner line that the search for a key visits next, and the child's range of keys.
    #[inline(always)]
    fn below(&self, position: LinePosition, key: u32, count: impl Count) -> LinePosition {
        let line = self.pool.get(position.at);
        let child = count(line, key, INNER);
        let LinePosition {
            mut first,
            mut last,
            ..
        } = position;
        if let Some(before) = child.checked_sub(1) {
            first = line.words()[before as usize] + 1;
        }
        if INNER >> child & 1 == 1 {
            // The bound after the child gives the child's last key. If the child is the last one, the stored bound is
            // the greatest key.
            last = last.min(line.words()[child as usize]);
        }
        LinePosition {
            at: line.first_child() + child,
            first,
            last,
        }
    }
}

/// Calls `one` for each address and value. Unrolls groups of calls, so that the processor overlaps them.
#[inline(always)]
fn together(addresses: &[u128], values: &mut [u32], one: impl Fn(u128, &mut u32)) {
    const GROUP: usize = 4;
    let (groups, rest) = addresses.as_chunks::<GROUP>();
    let (found, found_rest) = values.as_chunks_mut::<GROUP>();
    for (addresses, values) in groups.iter().zip(found) {
        for lane in 0..GROUP {
            one(addresses[lane], &mut values[lane]);
        }
    }
    for (address, value) in rest.iter().zip(found_rest) {
        one(*address, value);
    }
}

/// Addresses whose lookup continues in a segment after the first. Each of them has a lane.
struct Lanes {
    /// Index of each lane's address in the chunk.
    whose: [usize; CHUNK],
    keys: [u32; CHUNK],
    /// Current line of each lane's address.
    lines: [u32; CHUNK],
    /// Number of lanes in use.
    count: usize,
}

impl Lanes {
    /// Lanes none of which is in use.
    const EMPTY: Self = Self {
        whose: [0; CHUNK],
        keys: [0; CHUNK],
        lines: [0; CHUNK],
        count: 0,
    };

    /// Descends the trees of all lanes from their topmost lines to their leaves.
    #[inline(always)]
    fn go_down<I: LookupItem>(&mut self, view: View<'_, I>, height: usize, count: impl Count) {
        for level in 1..height {
            let lanes = self.keys.iter().zip(&mut self.lines).take(self.count);
            for (key, line) in lanes {
                *line = view.child(*line, *key, count);
                if level + 1 == height {
                    fetch(view.line(*line));
                }
            }
        }
    }

    /// Continues the lookups whose value stands for a reference, and replaces the value by the answer. References are
    /// rare, so values are tested in groups. A group without a reference is skipped.
    #[inline(always)]
    fn go_further<I: LookupItem>(
        &mut self,
        view: View<'_, I>,
        addresses: &[u128],
        values: &mut [u32],
        count: impl Count,
    ) {
        let mut first = 0;
        while first < values.len() {
            let group = &values[first..values.len().min(first + PASSED)];
            if any_refers::<I>(group) {
                for (whose, value) in (first..).zip(group) {
                    self.whose[self.count] = whose;
                    self.count += usize::from(refers::<I>(*value));
                }
            }
            first += PASSED;
            if self.count > CHUNK - PASSED {
                self.finish(view, addresses, values, count);
            }
        }
        self.finish(view, addresses, values, count);
    }

    /// Continues all lanes, segment by segment, until all of them have answers.
    #[inline(always)]
    fn finish<I: LookupItem>(
        &mut self,
        view: View<'_, I>,
        addresses: &[u128],
        values: &mut [u32],
        count: impl Count,
    ) {
        for segment in 1..SEGMENTS {
            if self.count == 0 {
                return;
            }
            for lane in 0..self.count {
                let whose = self.whose[lane];
                self.keys[lane] = key(addresses[whose], segment);
                let referred = referred::<I>(values[whose]).reference_index();
                self.lines[lane] = view.trees.further[referred.unwrap_or(0) as usize];
            }
            self.go_down(view, view.trees.heights[segment], count);
            let lanes = std::mem::take(&mut self.count);
            for lane in 0..lanes {
                let whose = self.whose[lane];
                let value = view.item(self.lines[lane], self.keys[lane], count).value();
                values[whose] = value;
                self.whose[self.count] = whose;
                self.count += usize::from(refers::<I>(value));
            }
        }
    }
}

/// Returns whether a value is the one that [`LookupItem::value`] returns for a reference.
#[inline(always)]
fn refers<I: LookupItem>(value: u32) -> bool {
    value.wrapping_add(1) & (I::LIMIT + 2) != 0
}

/// Returns whether at least one of the values stands for a reference.
#[inline(always)]
fn any_refers<I: LookupItem>(values: &[u32]) -> bool {
    let bits = values.iter().map(|value| value.wrapping_add(1));
    bits.fold(0, |all, bits| all | bits) & (I::LIMIT + 2) != 0
}

/// Returns the item of a value. This is the inverse of [`LookupItem::value`].
#[inline(always)]
fn referred<I: LookupItem>(value: u32) -> I {
    I::new(value.wrapping_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Algorithm, BoundTree16, BoundTree32, NONE, Prefix, Rib};

    #[test]
    fn every_kernel_gives_what_the_rib_gives() {
        let mut rib = Rib::new();
        let word = |index: u128| index.wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
        for index in 1..4000 {
            let address = 0x2001 << 112 | word(index) >> 16 & word(index * 3) >> 16;
            let length = [20, 32, 40, 48, 56, 64, 128][index as usize % 7];
            rib.insert(Prefix::new(address, length), index as u32);
        }
        let mut addresses: Vec<u128> = (0..4000).map(|i| 0x2001 << 112 | word(i) >> 16).collect();
        rib.for_each(&mut |route, _| addresses.extend([route.address(), route.last()]));
        let value = |&address: &u128| rib.lookup(address).map_or(NONE, |(_, value)| value);
        let expected: Vec<u32> = addresses.iter().map(value).collect();
        assert!(expected.iter().filter(|value| **value != NONE).count() > 4000);
        let narrow = BoundTree16::build(&rib).expect("the routes fit");
        let wide = BoundTree32::build(&rib).expect("the routes fit");
        assert!(narrow.trees.heights[0] > 2 && narrow.trees.heights[1] > 0);
        let mut kernels = vec![Kernel::Portable, Kernel::detect()];
        #[cfg(target_arch = "x86_64")]
        if Kernel::detect() == Kernel::Avx512 {
            kernels.push(Kernel::Avx2);
        }
        for kernel in kernels {
            let mut values = vec![0; addresses.len()];
            kernel.many(narrow.view(), &addresses, &mut values);
            assert!(values == expected, "{kernel:?}");
            values.fill(0);
            kernel.many(wide.view(), &addresses, &mut values);
            assert!(values == expected, "{kernel:?}");
            for (&address, &value) in addresses.iter().zip(&expected) {
                let leaf = kernel.leaf(narrow.view(), address);
                assert!(narrow.trees.pool.lines().as_ptr_range().contains(&leaf));
                let (top, key) = (narrow.view().begin(address), key(address, 0));
                let position = kernel.position(&narrow.trees, top, narrow.trees.heights[0], key);
                assert_eq!(narrow.view().line(position.at), leaf);
                assert!((position.first..=position.last).contains(&key));
                let end = |key| {
                    Kernel::Portable.position(&narrow.trees, top, narrow.trees.heights[0], key)
                };
                assert_eq!(
                    [end(position.first), end(position.last)],
                    [position, position]
                );
                let mut positions = [LinePosition::of_tree(top); 2];
                kernel.positions(
                    &narrow.trees,
                    &mut positions,
                    narrow.trees.heights[0],
                    &[key, position.last],
                );
                assert_eq!(positions, [position, position]);
                assert_eq!(kernel.one(narrow.view(), address), value, "{kernel:?}");
                assert_eq!(kernel.one(wide.view(), address), value, "{kernel:?}");
            }
        }
    }
}

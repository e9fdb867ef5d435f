// SPDX-License-Identifier: Apache-2.0
//! Selects the cut of a node by an estimate of the lookup time below the node.
//!
//! The estimate assumes that packets hit all rules equally often. Bits are selected greedily: each step adds the bit
//! that gives the lowest estimate. A step may raise the estimate. The best of all steps wins. So the selection also
//! finds bits that lower the estimate only together.
//!
//! Many rule sets are best cut by the bits of one address first. Rules that wildcard these bits then go to the rest. So
//! the selection is repeated with several limits on the share of rules that may wildcard a bit.

use crate::columns::LANES;
use crate::cut::{Cut, THRESHOLDS, spare};
use crate::layout::Layout;

/// Number of rules that are sampled in a node. A larger sample would hardly change the choice.
const SAMPLE: usize = 512;

/// Maximum number of bits that one node selects.
const MOST_BITS: usize = 9;

/// Number of candidate bits of a window. The bits that divide the rules best are the candidates.
const CANDIDATES: usize = 14;

/// Penalty for one more copy of each rule, in the unit of [`Costs`]. Copies take memory, and so cause cache misses.
const COPY: f32 = 10.0;

/// Weight of a rule that moves to the rest. A rule that wildcards n of the selected bits has 2^n copies, and each copy
/// has this weight shifted right by n bits. So all copies together have the weight of one rule.
const QUARTERS: u32 = 4;

/// In a node with at least this number of rules, windows overlap and all [`OPEN_LIMITS`] are tried.
const OVERLAPPING: usize = 64;

/// Number of greedy steps without improvement after which the selection ends.
const PATIENCE: usize = 3;

/// Limits on the share of rules that may wildcard a bit, in sixteenths.
const OPEN_LIMITS: [usize; 4] = [1, 4, 9, 16];

/// Estimated costs of a search in a leaf or tree, by its number of sampled rules. The unit is about one processor
/// cycle.
#[derive(Debug)]
struct Costs {
    scale: f32,
    table: Vec<f32>,
}

fn leaf_cost(rules: f32) -> f32 {
    14.0 + 12.0 * (rules / LANES as f32).ceil()
}

fn cost(rules: f32) -> f32 {
    if rules < 0.5 {
        return 2.0;
    }
    let tree = 60.0 + 20.0 * (rules / LANES as f32).max(1.0).log2();
    leaf_cost(rules).min(tree)
}

impl Costs {
    fn new(rules: usize, sample: usize) -> Self {
        let scale = rules as f32 / sample as f32;
        // A child may have more rules than the sample, because rules are copied. So the table goes up to four times the
        // sample.
        let table = (0..=4 * sample).map(|n| cost(n as f32 * scale)).collect();
        Self { scale, table }
    }

    fn of(&self, sampled: u32) -> f32 {
        self.table
            .get(sampled as usize)
            .copied()
            .unwrap_or_else(|| cost(sampled as f32 * self.scale))
    }

    /// Returns the cost of a rest. A rest costs less than a tree, because a lookup skips the rest if it already has a
    /// match that ranks before all rules of the rest.
    fn rest(&self, sampled: u32) -> f32 {
        if sampled == 0 {
            0.0
        } else {
            4.0 + 0.8 * self.of(sampled)
        }
    }
}

/// A sample of a node's rules, by which the cut is chosen.
struct Sample<'a> {
    layout: &'a Layout,
    records: Vec<&'a [u64]>,
    /// For each rule, the number of selected bits that it may wildcard in the cut.
    spare: Vec<u8>,
    costs: Costs,
}

/// Returns the best cut for some records, or `None` if a leaf is at least as good.
pub(crate) fn choose(layout: &Layout, records: &[u64]) -> Option<Cut> {
    let stride = layout.stride();
    let count = records.len() / stride;
    let step = count.div_ceil(SAMPLE).max(1);
    let sampled: Vec<&[u64]> = records.chunks_exact(stride).step_by(step).collect();
    let costs = Costs::new(count, sampled.len());
    let spare = sampled
        .iter()
        .map(|record| spare(record[stride - 1]))
        .collect();
    let sample = Sample {
        layout,
        records: sampled,
        spare,
        costs,
    };
    let mut best = (leaf_cost(count as f32), None);
    // If windows overlap, more pairs of adjacent bits lie in one window. With few rules or long keys, the additional
    // windows cost more time than they save.
    let step = if count < OVERLAPPING || layout.key_bytes > 24 {
        8
    } else {
        4
    };
    for offset in layout.windows(step) {
        sample.bits(offset, &mut best);
    }
    for number in 0..layout.ranges.len() {
        sample.thresholds(number, &mut best);
    }
    best.1
}

/// State of the greedy selection: the children to which each rule of the sample belongs, given the bits selected so
/// far.
struct Greedy<'a> {
    /// For each rule, its value and mask in the window.
    window: &'a [(u64, u64)],
    /// Pairs of rule and child. A rule may be in several pairs.
    items: Vec<(u32, u32)>,
    /// For each rule, the number of selected bits that it wildcards.
    stars: Vec<u8>,
    /// For each rule, the number of selected bits that it may wildcard.
    spare: &'a [u8],
    rest: u32,
    mask: u64,
    bits: usize,
}

impl Sample<'_> {
    fn bits(&self, offset: usize, best: &mut (f32, Option<Cut>)) {
        let count = self.records.len();
        let window: Vec<(u64, u64)> = self
            .records
            .iter()
            .map(|record| self.layout.bits(record, offset))
            .collect();
        let ones = window
            .iter()
            .fold(0, |all, (value, mask)| all | value & mask);
        let zeros = window
            .iter()
            .fold(0, |all, (value, mask)| all | !value & mask);
        let mut open = [0usize; 64];
        let varying = ones & zeros;
        for (_, mask) in &window {
            let mut free = varying & !mask;
            while free != 0 {
                open[free.trailing_zeros() as usize] += 1;
                free &= free - 1;
            }
        }
        let mut tried = 0;
        let limits = if count < OVERLAPPING {
            &OPEN_LIMITS[2..]
        } else {
            &OPEN_LIMITS[..]
        };
        for limit in limits {
            let mut bits: Vec<u32> = (0..64)
                .filter(|bit| varying >> bit & 1 == 1 && open[*bit as usize] * 16 <= count * limit)
                .collect();
            bits.sort_by_key(|bit| std::cmp::Reverse(divides(&window, *bit)));
            bits.truncate(CANDIDATES);
            let candidates = bits.iter().fold(0u64, |all, bit| all | 1 << bit);
            if candidates != tried {
                tried = candidates;
                self.greedy(offset, &window, candidates, best);
            }
        }
    }

    fn greedy(
        &self,
        offset: usize,
        window: &[(u64, u64)],
        candidates: u64,
        best: &mut (f32, Option<Cut>),
    ) {
        let mut state = Greedy {
            window,
            items: (0..window.len() as u32).map(|rule| (rule, 0)).collect(),
            stars: vec![0; window.len()],
            spare: &self.spare,
            rest: 0,
            mask: 0,
            bits: 0,
        };
        let most = (2 * window.len()).ilog2() as usize;
        let (mut least, mut vain) = (f32::INFINITY, 0);
        while state.bits < most.min(MOST_BITS) && vain < PATIENCE {
            let Some((cost, bit)) = state.best_bit(candidates, &self.costs) else {
                return;
            };
            state.add(bit);
            vain = if cost < least { 0 } else { vain + 1 };
            least = least.min(cost);
            if cost < best.0 {
                let mask = state.mask;
                let cut = Cut::Bits {
                    offset: offset as u16,
                    mask,
                };
                *best = (cost, Some(cut));
            }
        }
    }

    fn thresholds(&self, number: usize, best: &mut (f32, Option<Cut>)) {
        let ranges: Vec<(u32, u32)> = self
            .records
            .iter()
            .map(|record| self.layout.range(record, number))
            .collect();
        // A child begins at the start of a range, or directly after the end of a range.
        let begins = ranges.iter().filter_map(|(low, _)| low.checked_sub(1));
        let ends = ranges
            .iter()
            .map(|(_, high)| *high)
            .filter(|high| *high < u32::MAX);
        let mut ends: Vec<u32> = begins.chain(ends).collect();
        ends.sort_unstable();
        if ends.first() == ends.last() {
            return;
        }
        let mut at: Vec<u32> = (1..=THRESHOLDS)
            .map(|n| ends[n * (ends.len() - 1) / (THRESHOLDS + 1)])
            .collect();
        at.dedup();
        at.resize(THRESHOLDS, u32::MAX);
        let at: [u32; THRESHOLDS] = at.try_into().expect("there are seven thresholds");
        let child = |number: u32| at.iter().filter(|at| number > **at).count();
        let (mut sizes, mut rest) = ([0u32; THRESHOLDS + 1], 0);
        for ((low, high), spare) in ranges.into_iter().zip(&self.spare) {
            let (first, last) = (child(low), child(high));
            if last - first < 1 << spare {
                sizes[first..=last].iter_mut().for_each(|size| *size += 1);
            } else {
                rest += 1;
            }
        }
        let cost = self.costs.node(&sizes, rest, self.records.len()) + 4.0;
        if cost < best.0 {
            *best = (
                cost,
                Some(Cut::Thresholds {
                    number: number as u8,
                    at,
                }),
            );
        }
    }
}

impl Costs {
    /// Returns the cost of a node with children of these sizes and this rest.
    fn node(&self, sizes: &[u32], rest: u32, rules: usize) -> f32 {
        let (mut weight, mut sum) = (rest as f32, rest as f32 * self.of(0));
        for size in sizes {
            weight += *size as f32;
            sum += *size as f32 * self.of(*size);
        }
        // A cut that leaves all rules together is useless.
        let largest = sizes.iter().copied().max().unwrap_or(0).max(rest);
        if largest as usize >= rules {
            return f32::INFINITY;
        }
        let copies = weight / rules as f32 - 1.0;
        14.0 + sum / weight.max(1.0) + self.rest(rest) + COPY * copies
    }
}

impl Greedy<'_> {
    /// Returns the bit with the lowest cost, and its cost.
    fn best_bit(&self, candidates: u64, costs: &Costs) -> Option<(f32, u32)> {
        let mut best: Option<(f32, u32)> = None;
        let mut left = candidates & !self.mask;
        let mut sizes = vec![0u32; 2 << self.bits];
        while left != 0 {
            let bit = left.trailing_zeros();
            left &= left - 1;
            sizes.fill(0);
            let rest = self.sizes_with(bit, &mut sizes);
            let cost = costs.node(&sizes, rest, self.window.len());
            if best.is_none_or(|(least, _)| cost < least) {
                best = Some((cost, bit));
            }
        }
        best
    }

    /// Computes how the rules are divided if `bit` is selected too. Writes the sizes of the children to `sizes`, and
    /// returns the size of the rest.
    fn sizes_with(&self, bit: u32, sizes: &mut [u32]) -> u32 {
        let mut leaving = 0;
        for (rule, child) in &self.items {
            let (value, mask) = self.window[*rule as usize];
            let place = 2 * *child as usize;
            if mask >> bit & 1 == 1 {
                sizes[place + (value >> bit & 1) as usize] += 1;
            } else if self.stars[*rule as usize] < self.spare[*rule as usize] {
                sizes[place] += 1;
                sizes[place + 1] += 1;
            } else {
                leaving += QUARTERS >> self.stars[*rule as usize];
            }
        }
        // All copies of a rule move to the rest together, so their weights add up to whole rules.
        self.rest + leaving / QUARTERS
    }

    fn add(&mut self, bit: u32) {
        let mut items = Vec::with_capacity(self.items.len());
        let mut leaving = 0;
        for (rule, child) in &self.items {
            let (value, mask) = self.window[*rule as usize];
            if mask >> bit & 1 == 1 {
                items.push((*rule, 2 * child + (value >> bit & 1) as u32));
            } else if self.stars[*rule as usize] < self.spare[*rule as usize] {
                items.extend([(*rule, 2 * child), (*rule, 2 * child + 1)]);
            } else {
                leaving += QUARTERS >> self.stars[*rule as usize];
            }
        }
        for (index, (_, mask)) in self.window.iter().enumerate() {
            // A rule is in the rest if its number in `stars` is above its number in `spare`. The number then stops
            // growing, at `spare` plus one.
            self.stars[index] +=
                u8::from(mask >> bit & 1 == 0 && self.stars[index] <= self.spare[index]);
        }
        self.items = items;
        self.rest += leaving / QUARTERS;
        self.mask |= 1 << bit;
        self.bits += 1;
    }
}

/// Returns a measure of how evenly a bit divides the rules: the smaller of two numbers, the rules that require 0 and
/// the rules that require 1.
fn divides(window: &[(u64, u64)], bit: u32) -> usize {
    let (mut zeros, mut ones) = (0, 0);
    for (value, mask) in window {
        ones += (value & mask) >> bit & 1;
        zeros += (!value & mask) >> bit & 1;
    }
    ones.min(zeros) as usize
}

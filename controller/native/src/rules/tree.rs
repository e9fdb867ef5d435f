// SPDX-License-Identifier: Apache-2.0
//! Implements a persistent decision tree over the boxes of rules. Persistent means that a change
//! makes a new tree and leaves the old one intact.
//!
//! A node compares one field with a threshold, and divides its boxes into three parts: the boxes
//! below the threshold, the boxes from the threshold on, and the boxes that contain values on both
//! sides. So each box is in exactly one leaf, and memory grows linearly. A search always visits the
//! third part. It visits the other two parts only if the query's box reaches into them.
//!
//! Each node knows which of its rules comes first in the list. A search visits the part with the
//! earliest rule first, and skips a node if even its first rule comes after the best match so far.
//!
//! A change copies the nodes on the path from the root to one leaf. After many changes, a node is
//! built anew from its entries, so that the tree stays shallow. A change costs amortised O(log² n).

use std::sync::Arc;

use super::area::{Area, DESTINATION, FIELDS, Selectors};

/// Maximum number of entries in a new leaf. A leaf has more only if no threshold separates its
/// entries.
const LEAF: usize = 8;
/// When a leaf has grown to this number of entries, it is divided.
const FULL_LEAF: usize = 2 * LEAF;
/// Largest depth of the tree, which bounds the recursion.
const MAX_DEPTH: usize = 96;
/// Number of entries that are sampled to choose a threshold.
const SAMPLE: usize = 64;
/// Number of thresholds that are tried for each field.
const CANDIDATES: usize = 7;

/// Factor for the expected effort of a cut by destination, so that such cuts are preferred. With
/// such cuts, a search for all rules that protect or discard packets to one destination follows only
/// one side of a node.
const DESTINATION_WEIGHT: f64 = 0.75;

/// Position of each rule by its id.
pub type Positions = [u32];

/// One box of a rule.
#[derive(Clone, Debug)]
pub struct RuleBox {
    /// The box.
    pub area: Area,
    /// Id of the rule.
    pub rule: u32,
    /// Number of the rule's effect.
    pub effect: u32,
    /// Whether the rule protects or discards.
    pub restricts: bool,
    /// Selectors for an exact test. Set only if the rule's boxes contain packets that the rule does
    /// not match.
    pub exact: Option<Arc<Selectors>>,
}

/// A search for the first rule that matches a packet of `area`.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The packets.
    pub area: Area,
    /// If set, skips rules with this effect.
    pub other_than: Option<u32>,
    /// If set, skips rules that neither protect nor discard.
    pub restricting: bool,
    /// If set, ends with the first rule found, even if it is not the first in the list.
    pub any: bool,
}

/// A node with at least one entry below it.
#[derive(Debug)]
pub struct Node {
    /// Id of the rule that comes first in the list.
    first: u32,
    /// Common effect of all rules, or `None` if effects differ.
    effect: Option<u32>,
    /// Whether some rule protects or discards.
    restricts: bool,
    content: NodeContent,
}

#[derive(Debug)]
enum NodeContent {
    /// Entries in the order of their rules.
    Leaf(Box<[RuleBox]>),
    Split(Split),
}

#[derive(Clone, Debug)]
struct Split {
    cut: FieldThreshold,
    /// The parts below the threshold, from the threshold on, and across it.
    parts: [Option<Arc<Node>>; 3],
    /// Number of entries when the node was built.
    built: usize,
    /// Number of changes since the node was built.
    changes: usize,
}

/// The field and the threshold that a node compares.
#[derive(Clone, Copy, Debug)]
struct FieldThreshold {
    field: usize,
    threshold: u128,
}

const BELOW: usize = 0;
const FROM: usize = 1;
const ACROSS: usize = 2;

impl FieldThreshold {
    /// Returns the part of a box.
    fn part(self, area: &Area) -> usize {
        let [low, high] = area.range(self.field);
        if high < self.threshold {
            BELOW
        } else if low >= self.threshold {
            FROM
        } else {
            ACROSS
        }
    }
}

/// Builds a tree of these entries, which are in the order of their rules. Returns `None` if there
/// are none.
pub fn build(entries: &[RuleBox], positions: &Positions) -> Option<Arc<Node>> {
    build_part(
        entries,
        &(0..entries.len() as u32).collect::<Vec<_>>(),
        positions,
        0,
    )
}

fn build_part(
    entries: &[RuleBox],
    chosen: &[u32],
    positions: &Positions,
    depth: usize,
) -> Option<Arc<Node>> {
    let entry = |&at: &u32| &entries[at as usize];
    if chosen.len() > LEAF
        && depth < MAX_DEPTH
        && let Some(cut) = choose_cut(entries, chosen)
    {
        let mut parts: [Vec<u32>; 3] = Default::default();
        for at in chosen {
            parts[cut.part(&entry(at).area)].push(*at);
        }
        let parts = parts.map(|part| build_part(entries, &part, positions, depth + 1));
        return Node::of_split(
            Split {
                cut,
                parts,
                built: chosen.len(),
                changes: 0,
            },
            positions,
        );
    }
    Node::of_leaf(chosen.iter().map(entry).cloned().collect())
}

/// Selects the cut with the least expected effort of a search. Returns `None` if no cut separates
/// the entries.
fn choose_cut(entries: &[RuleBox], chosen: &[u32]) -> Option<FieldThreshold> {
    let step = chosen.len().div_ceil(SAMPLE).max(1);
    let sample: Vec<&Area> = chosen
        .iter()
        .step_by(step)
        .map(|&at| &entries[at as usize].area)
        .collect();
    best_cut(&sample).or_else(|| {
        // All sampled entries can be alike although others differ, so this tries all entries.
        let all = || chosen.iter().map(|&at| &entries[at as usize].area);
        (step > 1).then(|| best_cut(&all().collect::<Vec<_>>()))?
    })
}

fn best_cut(areas: &[&Area]) -> Option<FieldThreshold> {
    let mut best: Option<(f64, FieldThreshold)> = None;
    let mut thresholds: Vec<u128> = Vec::with_capacity(2 * areas.len());
    for field in 0..FIELDS {
        let ranges = || areas.iter().map(|area| area.range(field));
        let first = areas.first()?.range(field);
        if ranges().all(|range| range == first) {
            continue;
        }
        thresholds.clear();
        thresholds.extend(ranges().map(|[low, _]| low).filter(|&low| low > 0));
        thresholds.extend(ranges().filter_map(|[_, high]| high.checked_add(1)));
        thresholds.sort_unstable();
        let mut tried = None;
        for nth in 1..=CANDIDATES {
            let at = thresholds.len() * nth / (CANDIDATES + 1);
            let Some(&threshold) = thresholds.get(at) else {
                continue;
            };
            if tried.replace(threshold) == Some(threshold) {
                continue;
            }
            let cut = FieldThreshold { field, threshold };
            let mut counts = [0_usize; 3];
            for area in areas {
                counts[cut.part(area)] += 1;
            }
            if counts.contains(&areas.len()) {
                continue;
            }
            let [below, from, across] = counts.map(|count| count as f64);
            let mut effort = across + (below * below + from * from) / areas.len() as f64;
            if field == DESTINATION {
                effort *= DESTINATION_WEIGHT;
            }
            if best.is_none_or(|(least, _)| effort < least) {
                best = Some((effort, cut));
            }
        }
    }
    best.map(|(_, cut)| cut)
}

impl Node {
    fn of_leaf(entries: Box<[RuleBox]>) -> Option<Arc<Self>> {
        let first = entries.first()?;
        Some(Arc::new(Self {
            first: first.rule,
            effect: entries
                .iter()
                .all(|one| one.effect == first.effect)
                .then_some(first.effect),
            restricts: entries.iter().any(|one| one.restricts),
            content: NodeContent::Leaf(entries),
        }))
    }

    fn of_split(split: Split, positions: &Positions) -> Option<Arc<Self>> {
        let parts = || split.parts.iter().flatten();
        let first = parts()
            .map(|part| part.first)
            .min_by_key(|&rule| positions[rule as usize])?;
        let effect = parts().next()?.effect;
        Some(Arc::new(Self {
            first,
            effect: effect.filter(|_| parts().all(|part| part.effect == effect)),
            restricts: parts().any(|part| part.restricts),
            content: NodeContent::Split(split),
        }))
    }

    /// Returns the position of the first rule before position `limit` that the query finds, or
    /// `limit` if there is none. If the query's `any` is set, returns the position of any such rule.
    pub fn search(&self, query: &Query, positions: &Positions, limit: u32) -> u32 {
        if positions[self.first as usize] >= limit
            || (self.effect.is_some() && self.effect == query.other_than)
            || (query.restricting && !self.restricts)
        {
            return limit;
        }
        match &self.content {
            NodeContent::Leaf(entries) => entries
                .iter()
                .map(|entry| (positions[entry.rule as usize], entry))
                .take_while(|(at, _)| *at < limit)
                .find(|(_, entry)| query.finds(entry))
                .map_or(limit, |(at, _)| at),
            NodeContent::Split(split) => {
                let [low, high] = query.area.range(split.cut.field);
                let meets = [low < split.cut.threshold, high >= split.cut.threshold, true];
                let mut visits: [Option<(u32, &Self)>; 3] = [None; 3];
                for ((visit, part), meets) in visits.iter_mut().zip(&split.parts).zip(meets) {
                    if meets && let Some(part) = part {
                        *visit = Some((positions[part.first as usize], part));
                    }
                }
                visits.sort_unstable_by_key(|visit| visit.map_or(u32::MAX, |(at, _)| at));
                let mut found = limit;
                for (_, part) in visits.into_iter().flatten() {
                    found = part.search(query, positions, found);
                    if query.any && found < limit {
                        break;
                    }
                }
                found
            }
        }
    }

    /// Returns the number of bytes of this node and of all nodes below it. Does not count exact
    /// tests.
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>()
            + match &self.content {
                NodeContent::Leaf(entries) => size_of_val(&**entries),
                NodeContent::Split(split) => split
                    .parts
                    .iter()
                    .flatten()
                    .map(|part| part.memory_bytes())
                    .sum(),
            }
    }

    fn collect(&self, entries: &mut Vec<RuleBox>) {
        match &self.content {
            NodeContent::Leaf(some) => entries.extend_from_slice(some),
            NodeContent::Split(split) => split
                .parts
                .iter()
                .flatten()
                .for_each(|part| part.collect(entries)),
        }
    }
}

impl Query {
    fn finds(&self, entry: &RuleBox) -> bool {
        entry.area.intersects(&self.area)
            && (!self.restricting || entry.restricts)
            && self.other_than != Some(entry.effect)
            && entry
                .exact
                .as_ref()
                .is_none_or(|exact| exact.match_some(&self.area))
    }
}

/// Returns all entries of a tree, in the order of their rules.
pub fn entries_of(node: Option<&Arc<Node>>, positions: &Positions) -> Vec<RuleBox> {
    let mut entries = Vec::new();
    if let Some(node) = node {
        node.collect(&mut entries);
    }
    entries.sort_by_key(|entry| positions[entry.rule as usize]);
    entries
}

/// A change of one entry.
enum Change {
    Insert(RuleBox),
    Remove { area: Area, rule: u32 },
}

/// Returns a tree with one more entry.
pub fn insert(
    node: Option<&Arc<Node>>,
    entry: RuleBox,
    positions: &Positions,
) -> Option<Arc<Node>> {
    changed(node, Change::Insert(entry), positions)
}

/// Returns a tree without the entries of `rule` in the leaf to which `area` belongs.
pub fn remove(
    node: Option<&Arc<Node>>,
    area: Area,
    rule: u32,
    positions: &Positions,
) -> Option<Arc<Node>> {
    changed(node, Change::Remove { area, rule }, positions)
}

fn changed(node: Option<&Arc<Node>>, change: Change, positions: &Positions) -> Option<Arc<Node>> {
    match node.map(|node| &node.content) {
        None => match change {
            Change::Insert(entry) => Node::of_leaf(Box::new([entry])),
            Change::Remove { .. } => None,
        },
        Some(NodeContent::Leaf(entries)) => {
            let entries = changed_leaf(entries, change, positions);
            // If no cut separates the entries of a leaf, tries again only when their number has
            // doubled.
            if entries.len() >= FULL_LEAF && entries.len().is_power_of_two() {
                build(&entries, positions)
            } else {
                Node::of_leaf(entries.into())
            }
        }
        Some(NodeContent::Split(split)) => {
            let mut split = split.clone();
            let area = match &change {
                Change::Insert(entry) => &entry.area,
                Change::Remove { area, .. } => area,
            };
            let part = &mut split.parts[split.cut.part(area)];
            *part = changed(part.as_ref(), change, positions);
            split.changes += 1;
            if split.changes > FULL_LEAF.max(split.built / 2) {
                let node = Node::of_split(split, positions);
                return build(&entries_of(node.as_ref(), positions), positions);
            }
            Node::of_split(split, positions)
        }
    }
}

fn changed_leaf(entries: &[RuleBox], change: Change, positions: &Positions) -> Vec<RuleBox> {
    let mut entries = entries.to_vec();
    match change {
        Change::Insert(entry) => {
            let position = |entry: &RuleBox| positions[entry.rule as usize];
            let at = entries.partition_point(|one| position(one) <= position(&entry));
            entries.insert(at, entry);
        }
        Change::Remove { rule, .. } => entries.retain(|one| one.rule != rule),
    }
    entries
}

// SPDX-License-Identifier: Apache-2.0
//! Compares the classifier with a scan of all rules in their order.

use std::collections::BTreeMap;
use std::ops::Range;

use proptest::prelude::*;
use sluice_classifier::sample::{self, KEY_BYTES, Random, Shape};
use sluice_classifier::{Classifier, NONE, Precedence, Rule};

/// A rule with owned bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Owned {
    value: Vec<u8>,
    bounds: Vec<u8>,
}

impl Owned {
    fn rule(&self) -> Rule<'_> {
        Rule {
            value: &self.value,
            bounds: &self.bounds,
        }
    }

    fn matches(&self, key: &[u8], ranges: &[Range<usize>]) -> bool {
        let in_range = |at: usize| ranges.iter().any(|range| range.contains(&at));
        let masked = (0..key.len())
            .filter(|at| !in_range(*at))
            .all(|at| (key[at] ^ self.value[at]) & self.bounds[at] == 0);
        masked
            && ranges.iter().cloned().all(|range| {
                let number = &key[range.clone()];
                self.value[range.clone()] <= *number && *number <= self.bounds[range]
            })
    }
}

/// The reference, which is a list of rules by descending priority and then ascending sequence number.
#[derive(Default)]
struct Scan(BTreeMap<(std::cmp::Reverse<i32>, u64), (Owned, u32)>);

impl Scan {
    fn lookup(&self, key: &[u8], ranges: &[Range<usize>]) -> u32 {
        let mut rules = self.0.values();
        rules
            .find(|(rule, _)| rule.matches(key, ranges))
            .map_or(NONE, |(_, value)| *value)
    }
}

/// Layouts of keys: for each layout, the number of bytes, and the first byte and the end of each range field.
const LAYOUTS: [(usize, &[(usize, usize)]); 13] = [
    (1, &[]),
    (2, &[(0, 2)]),
    (4, &[]),
    (7, &[(3, 7)]),
    (13, &[(8, 10), (10, 12)]),
    (16, &[(0, 16)]),
    (20, &[(1, 2), (2, 9)]),
    (37, &[(32, 34), (34, 36)]),
    (
        44,
        &[
            (0, 1),
            (1, 2),
            (4, 6),
            (6, 9),
            (9, 10),
            (10, 15),
            (20, 24),
            (30, 32),
            (40, 41),
            (42, 44),
        ],
    ),
    (64, &[(5, 6)]),
    (100, &[(60, 76)]),
    (200, &[]),
    (500, &[(490, 492)]),
];

/// Returns a random byte of few values, so that rules overlap and keys lie at the bounds of rules.
fn byte(random: &mut Random) -> u8 {
    [0, 1, 2, 0x7f, 0x80, 0xfe, 0xff, random.number() as u8][random.below(8)]
}

fn draw_rule(random: &mut Random, bytes: usize, ranges: &[Range<usize>]) -> Owned {
    // Most rules wildcard all but a few bytes. Otherwise hardly any key would match a rule.
    let known = random.below(8);
    let mut value: Vec<u8> = (0..bytes).map(|_| byte(random)).collect();
    let mut bounds: Vec<u8> = (0..bytes)
        .map(|_| {
            if random.below(8) < known {
                [0xff, 0xf0, 0x80, byte(random)][random.below(4)]
            } else {
                0
            }
        })
        .collect();
    value
        .iter_mut()
        .zip(&bounds)
        .for_each(|(value, mask)| *value &= mask);
    for range in ranges.iter().cloned() {
        let mut ends: [Vec<u8>; 2] =
            std::array::from_fn(|_| range.clone().map(|_| byte(random)).collect());
        match random.below(4) {
            0 => ends = [vec![0; range.len()], vec![0xff; range.len()]],
            1 => ends[1] = ends[0].clone(),
            _ => ends.sort(),
        }
        value[range.clone()].copy_from_slice(&ends[0]);
        bounds[range].copy_from_slice(&ends[1]);
    }
    Owned { value, bounds }
}

/// Returns a random key: one at or next to the bounds of a rule, or any key.
fn draw_key(
    random: &mut Random,
    rule: Option<&Owned>,
    bytes: usize,
    ranges: &[Range<usize>],
) -> Vec<u8> {
    let mut key: Vec<u8> = (0..bytes).map(|_| byte(random)).collect();
    let Some(rule) = rule else { return key };
    for (byte, (value, mask)) in key.iter_mut().zip(rule.value.iter().zip(&rule.bounds)) {
        *byte = value | *byte & !mask;
    }
    for range in ranges.iter().cloned() {
        let corner = if random.below(2) == 0 {
            &rule.value
        } else {
            &rule.bounds
        };
        key[range.clone()].copy_from_slice(&corner[range.clone()]);
        if random.below(4) == 0 {
            let last = range.end - 1;
            key[last] = if random.below(2) == 0 {
                key[last].wrapping_add(1)
            } else {
                key[last].wrapping_sub(1)
            };
        }
    }
    if random.below(4) == 0 {
        let bit = random.below(8 * bytes);
        key[bit / 8] ^= 1 << (bit % 8);
    }
    key
}

/// Adds and removes rules, and compares lookups after every sixteenth step.
fn walk(layout: usize, steps: usize, removals: usize, priorities: usize, seed: u64) {
    let (bytes, fields) = LAYOUTS[layout];
    let ranges: Vec<Range<usize>> = fields.iter().map(|(start, end)| *start..*end).collect();
    let ranges = &ranges[..];
    let random = &mut Random::new(seed);
    let (mut scan, mut list) = (Scan::default(), Classifier::new(bytes, ranges));
    let mut free: Vec<u32> = (0..steps as u32).collect();
    for step in 0..steps {
        if random.below(100) < removals && !scan.0.is_empty() {
            let place = *scan
                .0
                .keys()
                .nth(random.below(scan.0.len()))
                .expect("within");
            let (rule, value) = scan.0.remove(&place).expect("known");
            let precedence = Precedence {
                priority: place.0.0,
                sequence: 0,
            };
            assert_eq!(list.remove(rule.rule(), precedence), Some(value));
            assert_eq!(list.remove(rule.rule(), precedence), None);
            free.push(value);
        } else {
            let rule = draw_rule(random, bytes, ranges);
            let priority = random.below(priorities) as i32 - priorities as i32 / 2;
            let value = free.pop().expect("there are as many values as steps");
            // Sequence numbers come in any order, because a rollback may restore an old number.
            let precedence = Precedence {
                priority,
                sequence: random.number(),
            };
            let same = |(place, (known, _)): (&(std::cmp::Reverse<i32>, u64), &(Owned, u32))| {
                (place.0.0 == priority && *known == rule).then_some(*place)
            };
            let place = scan.0.iter().find_map(same);
            let known = place
                .and_then(|place| scan.0.remove(&place))
                .map(|(_, value)| value);
            assert_eq!(list.insert(rule.rule(), precedence, value), known);
            free.extend(known);
            scan.0.insert(
                (std::cmp::Reverse(priority), precedence.sequence),
                (rule, value),
            );
        }
        assert_eq!(list.len(), scan.0.len());
        if step % 16 == 15 || step + 1 == steps {
            compare(random, &scan, &list, bytes, ranges);
        }
    }
    list.rebuild();
    compare(random, &scan, &list, bytes, ranges);
}

fn compare(
    random: &mut Random,
    scan: &Scan,
    list: &Classifier,
    bytes: usize,
    ranges: &[Range<usize>],
) {
    let rules: Vec<&Owned> = scan.0.values().map(|(rule, _)| rule).collect();
    let keys: Vec<Vec<u8>> = (0..40)
        .map(|n| {
            let rule = if rules.is_empty() || n % 8 == 0 {
                None
            } else {
                Some(rules[random.below(rules.len())])
            };
            draw_key(random, rule, bytes, ranges)
        })
        .collect();
    let mut found = vec![7; keys.len()];
    list.lookup_batch(&keys.concat(), &mut found);
    for (key, found) in keys.iter().zip(found) {
        let expected = scan.lookup(key, ranges);
        assert_eq!(found, expected, "in a batch, key {key:x?}");
        assert_eq!(
            list.lookup(key).unwrap_or(NONE),
            expected,
            "alone, key {key:x?}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 2 } else { 64 }))]

    #[test]
    fn any_changes_and_any_keys(
        layout in 0..LAYOUTS.len(),
        steps in 1..300usize,
        removals in 0..60usize,
        priorities in prop::sample::select(vec![1usize, 3, 1000]),
        seed: u64,
    ) {
        walk(layout, steps, removals, priorities, seed);
    }
}

#[test]
fn a_list_that_grows_shrinks_and_grows_again() {
    for (layout, seed) in [(4, 1), (7, 2), (5, 3)] {
        walk(layout, 900, 30, 100, seed);
        walk(layout, 900, 49, 2, seed + 10);
    }
}

#[test]
fn lists_of_access_list_shape() {
    for shape in [Shape::AccessList, Shape::Firewall, Shape::Chain] {
        let rules = sample::rules(shape, 3_000, 5);
        let mut list = Classifier::new(KEY_BYTES, &[8..10, 10..12]);
        // Every third rule is added last. Every fifth rule is removed again.
        let order = (0..rules.len())
            .filter(|n| n % 3 != 0)
            .chain((0..rules.len()).step_by(3));
        for index in order {
            let (value, bounds) = rules[index].parts();
            let precedence = Precedence {
                priority: -(index as i32),
                sequence: index as u64,
            };
            list.insert(
                Rule {
                    value: &value,
                    bounds: &bounds,
                },
                precedence,
                index as u32,
            );
        }
        for index in (0..rules.len()).step_by(5) {
            let (value, bounds) = rules[index].parts();
            let precedence = Precedence {
                priority: -(index as i32),
                sequence: 0,
            };
            assert_eq!(
                list.remove(
                    Rule {
                        value: &value,
                        bounds: &bounds
                    },
                    precedence
                ),
                Some(index as u32)
            );
        }
        let trace = sample::trace(&rules, 3_000, 6);
        let mut found = vec![0; trace.len()];
        list.lookup_batch(trace.as_flattened(), &mut found);
        for (key, found) in trace.iter().zip(found) {
            let mut left = (0..rules.len()).filter(|index| index % 5 != 0);
            let expected = left.find(|index| rules[*index].matches(key));
            assert_eq!(found, expected.map_or(NONE, |index| index as u32));
        }
    }
}

/// Checks lookups while large trees are rebuilt incrementally. Rules are added and removed, values are reused
/// immediately, and many rules have the same priority.
#[test]
fn rules_that_come_and_go_while_the_tree_is_built_anew() {
    let random = &mut Random::new(31);
    let rules = sample::rules(Shape::Firewall, 2_500, 6);
    let mut list = Classifier::new(KEY_BYTES, &[8..10, 10..12]);
    // Precedence and value of each rule in the list.
    let mut known: Vec<Option<(Precedence, u32)>> = vec![None; rules.len()];
    let mut free: Vec<u32> = (0..rules.len() as u32).collect();
    for step in 0..24_000 {
        let index = random.below(rules.len());
        let (value, bounds) = rules[index].parts();
        let rule = Rule {
            value: &value,
            bounds: &bounds,
        };
        if let Some((precedence, value)) = known[index].take() {
            // In the first half of the test, a candidate is removed with probability 1/3. In the second half, the
            // probability is 2/3.
            if random.below(3) < 1 + step / 12_000 {
                assert_eq!(list.remove(rule, precedence), Some(value));
                free.push(value);
            } else {
                known[index] = Some((precedence, value));
            }
        } else {
            let (priority, sequence) = (random.below(3) as i32, random.number());
            let precedence = Precedence { priority, sequence };
            let value = free.pop().expect("there is a value for each rule");
            assert_eq!(list.insert(rule, precedence, value), None);
            known[index] = Some((precedence, value));
        }
        if step % 200 == 0 {
            for key in sample::trace(&rules, 40, step as u64) {
                let in_list = known.iter().zip(&rules);
                let matching = in_list.filter(|(_, rule)| rule.matches(&key));
                let first = matching
                    .filter_map(|(known, _)| *known)
                    .min_by_key(|(precedence, _)| (-precedence.priority, precedence.sequence));
                assert_eq!(
                    list.lookup(&key),
                    first.map(|(_, value)| value),
                    "step {step}"
                );
            }
        }
    }
}

#[test]
fn rules_that_nothing_tells_apart_are_kept_in_order() {
    let mut list = Classifier::new(4, &[]);
    let any = Rule {
        value: &[0; 4],
        bounds: &[0; 4],
    };
    for value in 0..200 {
        let precedence = Precedence {
            priority: (value % 50) as i32,
            sequence: u64::from(value),
        };
        assert_eq!(
            list.insert(any, precedence, value),
            (value >= 50).then(|| value - 50)
        );
    }
    for priority in (0..50).rev() {
        assert_eq!(list.lookup(&[1, 2, 3, 4]), Some(150 + priority as u32));
        list.remove(
            any,
            Precedence {
                priority,
                sequence: 0,
            },
        );
    }
    assert_eq!(list.lookup(&[1, 2, 3, 4]), None);
    assert!(list.is_empty());
}

#[test]
fn keys_of_no_bytes_and_short_slices() {
    let mut list = Classifier::new(0, &[]);
    assert_eq!(list.lookup(&[]), None);
    list.insert(
        Rule {
            value: &[],
            bounds: &[],
        },
        Precedence {
            priority: 0,
            sequence: 0,
        },
        3,
    );
    assert_eq!(list.lookup(&[]), Some(3));
    let mut list = Classifier::new(4, &[]);
    list.insert(
        Rule {
            value: &[1, 0, 0, 0],
            bounds: &[255; 4],
        },
        Precedence {
            priority: 0,
            sequence: 0,
        },
        3,
    );
    assert_eq!(list.lookup(&[1]), Some(3));
    let mut found = [9; 3];
    list.lookup_batch(&[1, 0, 0, 0, 2], &mut found);
    assert_eq!(found, [3, 9, 9]);
}

/// Checks that lookups do not scan the rules: their effort hardly grows with the number of rules.
#[test]
fn a_look_up_compares_with_few_rules() {
    for shape in [Shape::AccessList, Shape::Firewall, Shape::Chain] {
        let rules = sample::rules(shape, 10_000, 3);
        let mut list = Classifier::new(KEY_BYTES, &[8..10, 10..12]);
        for (index, rule) in rules.iter().enumerate() {
            let (value, bounds) = rule.parts();
            let precedence = Precedence {
                priority: -(index as i32),
                sequence: 0,
            };
            let rule = Rule {
                value: &value,
                bounds: &bounds,
            };
            list.insert(rule, precedence, index as u32);
        }
        let trace = sample::trace(&rules, 2_000, 4);
        let efforts = trace.iter().map(|key| list.effort(key));
        let sum = efforts.fold(0, |sum, effort| {
            sum + effort.nodes + effort.leaves + effort.rules
        });
        assert!(sum < 40 * trace.len(), "{shape:?}: {sum}");
        assert!(
            list.memory_bytes() < 1_500 * rules.len(),
            "{}",
            list.memory_bytes()
        );
    }
}

/// Checks lookups among rules whose ranges only thresholds can separate.
#[test]
fn disjoint_ranges_are_searched_not_scanned() {
    let mut list = Classifier::new(4, std::slice::from_ref(&(0..4)));
    for index in 0..2_000u32 {
        let low = index * 1_000_003;
        let (value, bounds) = (low.to_be_bytes(), (low + 900_000).to_be_bytes());
        let precedence = Precedence {
            priority: 5,
            sequence: u64::from(index),
        };
        let rule = Rule {
            value: &value,
            bounds: &bounds,
        };
        list.insert(rule, precedence, index);
    }
    for index in 0..2_000u32 {
        let key = index * 1_000_003;
        for (key, expected) in [
            (key, Some(index)),
            (key + 900_000, Some(index)),
            (key + 900_001, None),
        ] {
            assert_eq!(list.lookup(&key.to_be_bytes()), expected);
            let effort = list.effort(&key.to_be_bytes());
            assert!(effort.nodes + effort.rules < 60, "{effort:?}");
        }
    }
}

/// Checks that memory is bounded even for rules with random wildcard bits, which cannot be divided well.
#[test]
fn random_masks_do_not_explode() {
    let random = &mut Random::new(9);
    let mut list = Classifier::new(16, &[]);
    let count = 600;
    for index in 0..count {
        let mask: [u8; 16] = std::array::from_fn(|_| random.number() as u8 & random.number() as u8);
        let value: [u8; 16] = std::array::from_fn(|at| random.number() as u8 & mask[at]);
        let precedence = Precedence {
            priority: 1,
            sequence: u64::from(index),
        };
        list.insert(
            Rule {
                value: &value,
                bounds: &mask,
            },
            precedence,
            index,
        );
    }
    let memory = list.memory_bytes();
    assert!(memory < 3_000 * count as usize, "{memory}");
}

// SPDX-License-Identifier: Apache-2.0
//! Compares the table with a map of the standard library. Uses the normal hash, and hashes that often collide.

use std::collections::HashMap;

use proptest::prelude::*;
use sluice_exact::{Exact, HashKey, KeyHasher, NONE};

/// A hash function of which only some bits are used, so that keys collide.
struct Weak {
    hasher: KeyHasher,
    mask: u64,
}

impl HashKey for Weak {
    fn hash_words<const W: usize>(&self, words: &[u64; W]) -> u64 {
        self.hasher.hash_words(words) & self.mask
    }

    fn hash(&self, key: &[u8]) -> u64 {
        self.hasher.hash(key) & self.mask
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(u16, u32),
    Remove(u16),
    Get(u16),
}

fn step(keys: u16) -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..keys, 0..NONE).prop_map(|(key, value)| Step::Insert(key, value)),
        2 => (0..keys).prop_map(Step::Remove),
        1 => (0..keys).prop_map(Step::Get),
    ]
}

fn key(number: u64, key_bytes: usize) -> Vec<u8> {
    let digits = number.to_be_bytes().into_iter().rev();
    digits.chain(std::iter::repeat(0)).take(key_bytes).collect()
}

fn mask() -> impl Strategy<Value = u64> {
    let masks = [
        u64::MAX,
        0,
        0xf,
        0xffff_ffff,
        0xff << 32,
        0xf << 60,
        0xff00_0000_0000_000f,
    ];
    prop::sample::select(masks.to_vec())
}

/// Looks up a key that was stored as whole words. Returns `None` for a key of more than four words.
fn get_stored<H: HashKey>(table: &Exact<H>, key: &[u8]) -> Option<Option<u32>> {
    fn of<const W: usize, H: HashKey>(table: &Exact<H>, key: &[u8]) -> Option<u32> {
        let mut words = [[0; 8]; W];
        words.as_flattened_mut()[..key.len()].copy_from_slice(key);
        table.get_stored(&words)
    }
    match key.len() {
        0..=8 => Some(of::<1, H>(table, key)),
        9..=16 => Some(of::<2, H>(table, key)),
        17..=24 => Some(of::<3, H>(table, key)),
        25..=32 => Some(of::<4, H>(table, key)),
        _ => None,
    }
}

fn agrees<H: HashKey>(table: &Exact<H>, model: &HashMap<Vec<u8>, u32>, keys: u64) {
    let key_bytes = table.key_bytes();
    let all: Vec<_> = (0..keys).map(|number| key(number, key_bytes)).collect();
    let mut values = vec![0; all.len()];
    table.lookup_batch(&all.concat(), &mut values);
    for (key, value) in all.iter().zip(values) {
        let wanted = model.get(key).copied();
        assert_eq!(table.get(key), wanted);
        assert_eq!(table.get_cached(key), wanted);
        assert_eq!(get_stored(table, key).unwrap_or(wanted), wanted);
        assert_eq!((value != NONE).then_some(value), wanted);
    }
    let mut seen = HashMap::new();
    table.for_each(|key, value| assert_eq!(seen.insert(key.to_vec(), value), None));
    assert_eq!(&seen, model);
    assert_eq!(table.len(), model.len());
}

proptest! {
    #[test]
    fn it_does_what_a_map_does(
        steps in prop::collection::vec(step(600), 0..if cfg!(miri) { 200 } else { 3_000 }),
        key_bytes in 2..70usize,
        mask in mask(),
        seed: u64,
    ) {
        let hasher = KeyHasher::seeded(key_bytes, seed);
        let mut table = Exact::with_hasher(key_bytes, Weak { hasher, mask });
        let mut model = HashMap::new();
        for step in steps {
            match step {
                Step::Insert(number, value) => {
                    let key = key(number.into(), key_bytes);
                    prop_assert_eq!(table.insert(&key, value), model.insert(key, value));
                }
                Step::Remove(number) => {
                    let key = key(number.into(), key_bytes);
                    prop_assert_eq!(table.remove(&key), model.remove(&key));
                }
                Step::Get(number) => {
                    let key = key(number.into(), key_bytes);
                    prop_assert_eq!(table.get(&key), model.get(&key).copied());
                }
            }
        }
        agrees(&table, &model, 600);
    }
}

/// Checks that no key is lost when segments are split. A segment has room for few long keys, so it is split early and
/// often.
#[test]
fn splitting_segments_loses_nothing() {
    for mask in [u64::MAX, 0xfff0_0000_ffff_ffff, 0xf000_0000_0000_00ff] {
        let key_bytes = 1_000;
        let hasher = KeyHasher::seeded(key_bytes, 3);
        let mut table = Exact::with_hasher(key_bytes, Weak { hasher, mask });
        let mut model = HashMap::new();
        for number in 0..9_000 {
            let key = key(number, key_bytes);
            assert_eq!(table.insert(&key, number as u32), None);
            model.insert(key, number as u32);
        }
        agrees(&table, &model, 9_100);
        for number in (0..9_000).step_by(3) {
            let key = key(number, key_bytes);
            assert_eq!(table.remove(&key), model.remove(&key));
        }
        agrees(&table, &model, 9_100);
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn a_table_is_never_less_than_about_half_filled_while_it_grows() {
    let key_bytes = 13;
    let mut table = Exact::with_hasher(key_bytes, KeyHasher::seeded(key_bytes, 5));
    for number in 0..400_000u32 {
        assert_eq!(table.insert(&key(number.into(), key_bytes), number), None);
        if number >= 10_000 && number % 10_000 == 0 {
            // Leaves out one huge page, because it may be used only in part.
            let bytes = table.memory_bytes().saturating_sub(2 << 20) as f64 / f64::from(number);
            assert!(bytes < 52.0, "{bytes} bytes a key at {number}");
        }
    }
}

/// Checks that 100,000 keys take little more memory than one huge page. For this, a segment with its own allocation
/// must move to the table's address range when it is split.
#[test]
#[cfg_attr(miri, ignore = "takes too long")]
fn a_hundred_thousand_keys_take_one_block() {
    let key_bytes = 13;
    let mut table = Exact::with_hasher(key_bytes, KeyHasher::seeded(key_bytes, 11));
    let keys = 0..100_000u32;
    for number in keys.clone() {
        assert_eq!(table.insert(&key(number.into(), key_bytes), number), None);
    }
    let block = 2 << 20;
    let bytes = table.memory_bytes();
    assert!((block..block + block / 16).contains(&bytes), "{bytes}");
    for number in keys {
        let key = key(number.into(), key_bytes);
        assert_eq!(table.get(&key), Some(number));
    }
}

#[test]
fn keys_without_bytes_are_one_key() {
    let mut table = Exact::new(0);
    assert_eq!(table.get(&[]), None);
    assert_eq!(table.insert(&[], 5), None);
    assert_eq!(table.insert(&[], 6), Some(5));
    let mut values = [0; 3];
    table.lookup_batch(&[], &mut values);
    assert_eq!(values, [6; 3]);
    assert_eq!(table.remove(&[]), Some(6));
    assert!(table.is_empty());
}

/// Checks batches in tables from one bucket to many segments, with and without prefetching. Every second key is absent.
/// Some batches do not fill a group.
#[test]
fn batches_find_what_single_look_ups_find_at_every_size() {
    let sizes = [3, 4, 8, 9, 12, 13, 16, 17, 19, 31, 37, 43, 56, 64, 70];
    let counts = [1u32, 5, 31, 101, 3_003, 40_000];
    let all = sizes
        .into_iter()
        .flat_map(|size| counts.map(|count| (size, count)));
    // The last table is larger than the caches.
    for (key_bytes, count) in all.chain([(37, 420_001)]) {
        let mut table = Exact::with_hasher(key_bytes, KeyHasher::seeded(key_bytes, 9));
        for number in (0..count).step_by(2) {
            table.insert(&key(number.into(), key_bytes), number);
        }
        let keys: Vec<_> = (0..count)
            .flat_map(|number| key(number.into(), key_bytes))
            .collect();
        let mut values = vec![0; count as usize];
        table.lookup_batch(&keys, &mut values);
        for (number, (key, value)) in (0..).zip(keys.chunks(key_bytes).zip(values)) {
            let wanted = (number % 2 == 0).then_some(number);
            assert_eq!(table.get(key), wanted);
            assert_eq!(value, wanted.unwrap_or(NONE));
        }
    }
}

#[test]
fn who_waits_is_told_what_will_be_read_and_finds_the_same() {
    use std::cell::Cell;
    for key_bytes in [4, 19, 40, 70] {
        let key = |index: u32| {
            let mut key = vec![0; key_bytes];
            key[..4].copy_from_slice(&index.to_le_bytes());
            key
        };
        let mut table = Exact::new(key_bytes);
        for index in 0..5_000 {
            table.insert(&key(index), index);
        }
        let mut pauses = [0; 3];
        for index in 0..6_000 {
            let (asked, paused) = (Cell::new(0), Cell::new(0));
            let ask = |line: *const u8| {
                assert_eq!(line.addr() % 64, 0);
                asked.set(asked.get() + 1);
            };
            let pause = || {
                assert_ne!(asked.take(), 0, "nothing to wait for");
                paused.set(paused.get() + 1);
            };
            let found = table.get_waiting(&key(index), ask, pause);
            assert_eq!(found, (index < 5_000).then_some(index));
            pauses[paused.get()] += 1;
        }
        assert_eq!(pauses[0], 0);
        assert!(pauses[1] > pauses[2] && pauses[2] > 0, "{pauses:?}");
        assert_eq!(table.get_waiting(&[0], |_| {}, || {}), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Compares every lookup structure with a linear search over the accepted entries.

mod common;

use common::{entry, exact, id, look_up, lpm, store};
use proptest::prelude::*;
use sluice_tables::KeyField;

/// An entry of the linear search: its fields, a predicate over (k0, k1), its rank and its
/// value.
struct Row {
    fields: Vec<KeyField>,
    priority: i32,
    matches: Box<dyn Fn(u16, u32) -> bool>,
    rank: i32,
    value: u8,
}

#[derive(Clone, Debug)]
enum Step {
    Insert(usize),
    Delete(usize),
    Packet(u16, u32),
}

fn run(table: &str, rows: &[Row], steps: Vec<Step>) {
    let store = store();
    let mut present: Vec<usize> = Vec::new();
    for step in steps {
        let mut tx = store.transaction();
        match step {
            Step::Insert(index) => {
                let row = &rows[index % rows.len()];
                let spec = entry(row.fields.clone(), row.priority, row.value);
                if tx.insert(id(&store, table), spec).is_ok() {
                    present.push(index % rows.len());
                }
                tx.commit();
            }
            Step::Delete(index) => {
                let row = &rows[index % rows.len()];
                if tx
                    .delete(id(&store, table), &row.fields, row.priority)
                    .is_ok()
                {
                    let same = |other: &usize| {
                        rows[*other].fields == row.fields && rows[*other].priority == row.priority
                    };
                    let position = present
                        .iter()
                        .position(same)
                        .expect("it was accepted before");
                    present.remove(position);
                }
                tx.commit();
            }
            Step::Packet(k0, k1) => {
                drop(tx);
                let key = [&k0.to_be_bytes()[..], &k1.to_be_bytes()[..]].concat();
                let mut best: Option<&Row> = None;
                for row in present.iter().map(|index| &rows[*index]) {
                    // Among equal ranks, the entry inserted first wins.
                    if (row.matches)(k0, k1) && best.is_none_or(|best| row.rank > best.rank) {
                        best = Some(row);
                    }
                }
                let expected = best.map(|row| u64::from(row.value));
                assert_eq!(
                    look_up(&store, table, &key, 0),
                    expected,
                    "{table} {k0} {k1:#x}"
                );
            }
        }
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        3 => any::<usize>().prop_map(Step::Insert),
        1 => any::<usize>().prop_map(Step::Delete),
        4 => (0u16..4, prop_oneof![0u32..16, any::<u32>()]).prop_map(|(k0, k1)| Step::Packet(k0, k1)),
    ];
    prop::collection::vec(step, 1..80)
}

fn mask(bits: u32) -> u32 {
    if bits == 0 {
        0
    } else {
        u32::MAX << (32 - bits)
    }
}

proptest! {
    #[test]
    fn exact_tables(steps in steps(), keys in prop::collection::vec((0u16..4, 0u32..16), 1..20)) {
        let rows: Vec<Row> = keys.into_iter().enumerate().map(|(index, (a, b))| Row {
            fields: vec![exact(a.into()), exact(b)],
            priority: 0,
            matches: Box::new(move |k0, k1| k0 == a && k1 == b),
            rank: 0,
            value: index as u8,
        }).collect();
        run("exact", &rows, steps);
    }

    #[test]
    fn prefix_tables_with_an_exact_field(
        steps in steps(),
        keys in prop::collection::vec((0u16..3, prop_oneof![0u32..16, any::<u32>()], 0u32..=32), 1..20),
    ) {
        let rows: Vec<Row> = keys.into_iter().enumerate().map(|(index, (a, b, bits))| {
            let b = b & mask(bits);
            Row {
                fields: vec![exact(a.into()), lpm(b, bits)],
                priority: 0,
                matches: Box::new(move |k0, k1| k0 == a && k1 & mask(bits) == b),
                rank: bits as i32,
                value: index as u8,
            }
        }).collect();
        run("lpm", &rows, steps);
    }

    #[test]
    fn ternary_tables(
        steps in steps(),
        keys in prop::collection::vec((0u16..4, 0u16..4, 0u32..16, 0u32..16, 1i32..5), 1..20),
    ) {
        let rows: Vec<Row> = keys.into_iter().enumerate().map(|(index, (a, ma, b, mb, priority))| {
            let (a, b) = (a & ma, b & mb);
            let field = |value: u32, mask: u32| match mask {
                0 => KeyField::DontCare,
                _ => KeyField::Ternary { value: value.to_be_bytes().to_vec(), mask: mask.to_be_bytes().to_vec() },
            };
            Row {
                fields: vec![field(a.into(), ma.into()), field(b, mb)],
                priority,
                matches: Box::new(move |k0, k1| k0 & ma == a && k1 & mb == b),
                rank: priority,
                value: index as u8,
            }
        }).collect();
        run("ternary", &rows, steps);
    }

    #[test]
    fn range_tables(
        steps in steps(),
        keys in prop::collection::vec((0u16..4, 0u16..4, 0u32..16, 1i32..5), 1..20),
    ) {
        let rows: Vec<Row> = keys.into_iter().enumerate().map(|(index, (a, b, c, priority))| {
            let (low, high) = (a.min(b), a.max(b));
            Row {
                fields: vec![
                    KeyField::Range { low: low.to_be_bytes().to_vec(), high: high.to_be_bytes().to_vec() },
                    exact(c),
                ],
                priority,
                matches: Box::new(move |k0, k1| (low..=high).contains(&k0) && k1 == c),
                rank: priority,
                value: index as u8,
            }
        }).collect();
        run("range", &rows, steps);
    }
}

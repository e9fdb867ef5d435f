// SPDX-License-Identifier: Apache-2.0
//! Checks that flows are distributed over the members of a next-hop group according to the weights, and in the same way
//! in both engines.

mod cases;
mod traces;

use sluice_engine::{PacketIn, Sink};
use sluice_interpreter::Interpreter;
use sluice_native::Native;
use sluice_program::DigestId;
use sluice_tables::GroupMember;

use cases::{Bench, Runs};

const FLOWS: u32 = 20_000;

/// The next hop of each sent packet: the last byte of its destination MAC address.
#[derive(Default)]
struct NextHops(Vec<u8>);

impl Sink for NextHops {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        self.0.push(data[5]);
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

/// An engine whose tables have a route to a group.
struct Router<E>(Bench<E>);

impl<E: Runs> Router<E> {
    fn new(weights: &[u32]) -> Self {
        let bench = Bench::<E>::load(&traces::program());
        let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
        let run = bench.run_text(&traces::multipath::tables(weights), "tables");
        run.unwrap_or_else(|error| panic!("{error}"));
        Self(bench)
    }

    /// Returns the next hop of each flow.
    fn next_hops(&mut self) -> Vec<u8> {
        let bench = &mut self.0;
        let mut sent = NextHops::default();
        let tables = bench.reader.pin();
        for data in traces::multipath::flows(FLOWS) {
            let input = PacketIn {
                data: &data,
                port: 1,
                now_us: 5,
            };
            bench
                .switch
                .process(&tables, bench.store.externs(), input, &mut sent);
        }
        sent.0
    }

    /// Replaces the members of the group by the members with these ids.
    fn write(&mut self, present: &[u32], weights: &[u32]) {
        let profile = sluice_program::ProfileId(0);
        let mut group = self.0.store.view().groups(profile).remove(0);
        let member = |id: &u32| GroupMember {
            member: *id,
            weight: weights[*id as usize - 1],
            watch_port: None,
        };
        group.members = present.iter().map(member).collect();
        let mut transaction = self.0.store.transaction();
        let written = transaction.group_modify(profile, &group);
        written.unwrap_or_else(|error| panic!("{error}"));
        transaction.commit();
    }
}

fn run<E: Runs>(weights: &[u32]) -> Vec<u8> {
    Router::<E>::new(weights).next_hops()
}

/// Simulates links that fail and recover. As the controller does, writes the group without the members whose links have
/// failed. Checks after each change that a flow has moved only if its old next hop has left the group or its new one
/// has returned. Checks also that the distribution still follows the weights.
#[test]
fn a_next_hop_that_leaves_a_group_moves_only_its_flows_in_both_engines() {
    let cases: [(&[u32], &[&[u32]]); 3] = [
        (&[7, 15, 46, 30], &[&[1, 2, 4], &[2, 4], &[2, 3, 4]]),
        (&[7, 15, 46, 30], &[&[4], &[1, 4]]),
        (&[1; 16], &[&[1, 3, 4, 5, 6, 7, 8, 9, 10, 16], &[2, 3, 16]]),
    ];
    for (weights, steps) in cases {
        let mut native = Router::<Native>::new(weights);
        let mut interpreter = Router::<Interpreter>::new(weights);
        let whole = native.next_hops();
        let all: Vec<u32> = (1..=weights.len() as u32).collect();
        let mut before = (all.as_slice(), whole.clone());
        for present in steps.iter().copied().chain([all.as_slice()]) {
            native.write(present, weights);
            interpreter.write(present, weights);
            let after = native.next_hops();
            assert!(after == interpreter.next_hops(), "{weights:?}, {present:?}");
            let stays = |hop: u8, of: &[u32]| of.contains(&hop.into());
            let moved = before.1.iter().zip(&after).filter(|(from, to)| from != to);
            for (from, to) in moved {
                let left = !stays(*from, present);
                let returned = !stays(*to, before.0);
                assert!(
                    left || returned,
                    "{from} to {to}: {present:?} of {weights:?}"
                );
            }
            let total: u32 = present.iter().map(|id| weights[*id as usize - 1]).sum();
            for id in present {
                let has = after.iter().filter(|hop| u32::from(**hop) == *id).count() as f64;
                let due = f64::from(FLOWS * weights[*id as usize - 1]) / f64::from(total);
                // The bound is five standard deviations of the number of flows that random choice would give to this
                // next hop.
                let bound = 5.0 * due.sqrt();
                assert!(
                    (has - due).abs() < bound,
                    "{id}: {has} of {due}, {present:?}"
                );
            }
            before = (present, after);
        }
        assert!(before.1 == whole, "{weights:?}");
    }
}

/// Checks by a chi-square test that flows are distributed according to the weights. The bounds are so wide that only
/// one of a thousand random hash functions would exceed them.
#[test]
fn flows_come_to_next_hops_as_their_weights_say() {
    let cases: [(&[u32], f64); 4] = [
        (&[7, 15, 46, 30], 16.3),
        (&[1, 1, 1, 1], 16.3),
        (&[1, 255], 10.8),
        (&[1; 7], 22.5),
    ];
    for (weights, bound) in cases {
        let chosen = run::<Native>(weights);
        assert_eq!(chosen.len(), FLOWS as usize);
        assert!(chosen == run::<Interpreter>(weights), "{weights:?}");
        let total: u32 = weights.iter().sum();
        let terms = (1..).zip(weights).map(|(id, weight)| {
            let has = chosen.iter().filter(|next_hop| **next_hop == id).count() as f64;
            let due = f64::from(FLOWS) * f64::from(*weight) / f64::from(total);
            (has - due).powi(2) / due
        });
        let chi_square: f64 = terms.sum();
        println!("{weights:?}: chi-square {chi_square:.1}");
        assert!(chi_square < bound, "{weights:?}: {chi_square}");
    }
}

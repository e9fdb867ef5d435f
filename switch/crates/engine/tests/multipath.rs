// SPDX-License-Identifier: Apache-2.0
//! Flows over the members of a group of next hops: as the weights say, in both engines alike.

mod cases;
mod traces;

use cases::{Bench, Runs};
use sluice_engine::native::Native;
use sluice_engine::{Interpreter, PacketIn, Sink};
use sluice_program::DigestId;

const FLOWS: u32 = 20_000;

/// The next hop of each packet that left: the last byte of the MAC address that it went to.
#[derive(Default)]
struct NextHops(Vec<u8>);

impl Sink for NextHops {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        self.0.push(data[5]);
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

fn run<E: Runs>(tables: &str) -> Vec<u8> {
    let bench = Bench::<E>::load(&traces::program());
    let mut bench = bench.unwrap_or_else(|error| panic!("{error}"));
    let run = bench.run_text(tables, "tables");
    run.unwrap_or_else(|error| panic!("{error}"));
    let mut sent = NextHops::default();
    let side = bench.reader.pin();
    for data in traces::multipath::flows(FLOWS) {
        let input = PacketIn {
            data: &data,
            port: 1,
            now_us: 5,
        };
        bench
            .switch
            .process(&side, bench.store.externs(), input, &mut sent);
    }
    sent.0
}

/// Chi-square against the weights; the bounds are exceeded once in a thousand random hashes.
#[test]
fn flows_come_to_next_hops_as_their_weights_say() {
    let cases: [(&[u32], f64); 4] = [
        (&[7, 15, 46, 30], 16.3),
        (&[1, 1, 1, 1], 16.3),
        (&[1, 255], 10.8),
        (&[1; 7], 22.5),
    ];
    for (weights, bound) in cases {
        let tables = traces::multipath::tables(weights);
        let chosen = run::<Native>(&tables);
        assert_eq!(chosen.len(), FLOWS as usize);
        assert!(chosen == run::<Interpreter>(&tables), "{weights:?}");
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

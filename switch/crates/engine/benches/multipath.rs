// SPDX-License-Identifier: Apache-2.0
//! What equal-cost paths cost: `make bench-multipath`.
//!
//! The router program, native, packets in memory. *single-path*: a route to a next hop, no groups
//! at all. *unused*: the same route with groups beside it. *used*: the route leads to a group of 1
//! to 64 members. Prints every round as JSON, as `sluice-bench` does.
//!
//! `cargo bench -p sluice-engine --bench multipath -- [--rounds N] [--quick]`

#[path = "../tests/cases/mod.rs"]
mod cases;

use std::fmt::Write;
use std::path::Path;

use serde_json::json;
use sluice_engine::native::Native;
use sluice_engine::{PacketIn, Sink};
use sluice_program::DigestId;

const SIZES: [u32; 5] = [1, 4, 16, 32, 64];
const MEMBERS: u32 = 64;
const PACKETS: usize = 4096;
const BATCH: usize = 32;
/// Passes over the packets in a round.
const PASSES: usize = 32;
const ROUNDS: usize = 7;
const R: &str = "v1model_ingress.router";

/// Counts what leaves.
#[derive(Default)]
struct Count(usize);

impl Sink for Count {
    fn transmit(&mut self, _port: u32, data: &[u8]) {
        self.0 += 1;
        std::hint::black_box(data);
    }

    fn digest(&mut self, _digest: DigestId, _fields: &[u8]) {}
}

/// Two interfaces without policy and 64 next hops.
fn network() -> String {
    let mut text = String::new();
    for port in 1..=2 {
        let _ = write!(
            text,
            "entry {R}.l3_admit.l3_interface {port} 0 => {R}.l3_admit.set_l3_interface {port} 0 0\n\
             entry {R}.l3_admit.router_mac {port} 0x02000000000{port} => {R}.l3_admit.admit_unicast\n\
             entry {R}.exceptions.egress_interface {port} => {R}.exceptions.set_egress {port} 0 0x02000000000{port} 1500\n\
             entry {R}.ipsec_inbound.inbound_binding {port} => {R}.ipsec_inbound.no_inbound_policy\n\
             entry {R}.flow_cache.outbound_binding {port} => {R}.flow_cache.no_outbound_policy\n"
        );
    }
    for id in 1..=MEMBERS {
        let _ = writeln!(
            text,
            "entry {R}.nexthop_resolution.nexthop {id} => {R}.nexthop_resolution.set_neighbor 2 0x0400000000{id:02x}"
        );
    }
    text
}

/// A group of so many of the next hops.
fn group(size: u32) -> String {
    let mut text = String::new();
    let selector = format!("{R}.multipath.nexthop_selector");
    for id in 1..=size {
        let action = format!("{R}.multipath.set_group_nexthop {id}");
        let _ = writeln!(text, "member {selector} {id} => {action}");
    }
    let members: Vec<String> = (1..=size).map(|id| format!("{id}:1")).collect();
    let _ = writeln!(text, "group {selector} 1 = {}", members.join(" "));
    let _ = writeln!(text, "entry {R}.multipath.nexthop_group 1 => group 1");
    text
}

/// The route of all packets.
fn route(action: &str) -> String {
    format!("entry {R}.fib.ipv4_fib 0 0x0b000000/8 => {R}.fib.{action} 1\n")
}

/// UDP in IPv4, 60 bytes, each of another flow.
fn packet(flow: u32) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9];
    header.extend((0x0b00_0000 | ((flow * 1657 % 65_536) << 8)).to_be_bytes());
    let words = header.chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = vec![2, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 1, 8, 0];
    packet.extend(header);
    packet.extend((flow as u16).to_be_bytes());
    packet.extend([0, 53, 0, 26, 0, 0]);
    packet.resize(60, 0);
    packet
}

/// CPU time of this thread so far, in nanoseconds, as Linux accounts it.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let field = text.split_whitespace().next();
    let field = field.and_then(|field| field.parse().ok());
    field.expect("/proc/thread-self/schedstat begins with a number")
}

struct Lane {
    bench: cases::Bench<Native>,
    rounds: Vec<f64>,
}

impl Lane {
    fn new(tables: &str) -> Self {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
        let json = root.join("p4src/build/v1model/router.json");
        let mut bench = cases::Bench::load(&json).unwrap_or_else(|error| panic!("{error}"));
        let run = bench.run_text(tables, "tables");
        run.unwrap_or_else(|error| panic!("{error}"));
        Self {
            bench,
            rounds: Vec::new(),
        }
    }

    /// Packets per second of this thread's CPU time.
    fn round(&mut self, packets: &[Vec<u8>], passes: usize) -> f64 {
        let mut sink = Count::default();
        let start = cpu_time();
        for pass in 0..passes {
            for batch in packets.chunks(BATCH) {
                let side = self.bench.reader.pin();
                for data in batch {
                    let now_us = pass as u64;
                    let input = PacketIn {
                        data,
                        port: 1,
                        now_us,
                    };
                    let externs = self.bench.store.externs();
                    self.bench.switch.process(&side, externs, input, &mut sink);
                }
            }
        }
        let elapsed = cpu_time() - start;
        assert_eq!(sink.0, passes * packets.len(), "not every packet left");
        sink.0 as f64 * 1e9 / elapsed.max(1) as f64
    }
}

/// The number behind a flag of the command line.
fn number(flag: &str) -> Option<usize> {
    let mut words = std::env::args().skip_while(|word| word != flag);
    words.nth(1)?.parse().ok()
}

fn main() {
    let quick = std::env::args().any(|word| word == "--quick");
    let passes = if quick { 1 } else { PASSES };
    let rounds = number("--rounds").unwrap_or(ROUNDS);
    let packets: Vec<Vec<u8>> = (0..PACKETS as u32).map(packet).collect();
    let single = route("set_nexthop");
    let mut lanes: Vec<(String, Lane)> = vec![
        ("single-path".into(), Lane::new(&(network() + &single))),
        (
            "unused".into(),
            Lane::new(&(network() + &group(MEMBERS) + &single)),
        ),
    ];
    for size in SIZES {
        let tables = network() + &group(size) + &route("set_nexthop_group");
        lanes.push((format!("group of {size}"), Lane::new(&tables)));
    }
    for (_, lane) in &mut lanes {
        lane.round(&packets, passes);
    }
    for round in 0..rounds {
        let count = lanes.len();
        for turn in 0..count {
            let (_, lane) = &mut lanes[(round + turn) % count];
            let rate = lane.round(&packets, passes);
            lane.rounds.push(rate);
        }
    }
    let case = |(name, lane): &(String, Lane)| {
        json!({
            "workload": name,
            "kind": if name == "unused" { "unused" } else { "used" },
            "ours": lane.rounds,
            "peers": {"single-path": lanes[0].1.rounds},
            "details": {},
        })
    };
    let cases: Vec<_> = lanes[1..].iter().map(case).collect();
    let report = json!({
        "unit": "packets per second of one core",
        "cases": cases,
        "memory": [],
        "missing": {},
        "input": {"packets": "60 bytes, IPv4, one route", "rounds": rounds.to_string()},
        "versions": {},
    });
    println!("{report}");
}

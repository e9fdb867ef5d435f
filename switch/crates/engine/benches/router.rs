// SPDX-License-Identifier: Apache-2.0
//! CPU time a packet of the router program, packets in memory: `cargo bench -p sluice-engine`.
//!
//! Forwards to 4,096 destinations over 4,096 /24 (IPv4) or /48 (IPv6) routes and 16 next hops, and
//! through a group of 8. Prints the median and the spread of eleven runs.
//!
//! `cargo bench -p sluice-engine -- PACKETS RUNS` changes how many; with one run it is what callgrind
//! counts instructions of (the difference between two numbers of packets is the packets' own).

#[path = "../tests/cases/mod.rs"]
mod cases;

use std::fmt::Write;
use std::path::Path;

use sluice_engine::native::Native;
use sluice_engine::{Interpreter, PacketIn, Sink};
use sluice_program::DigestId;

const ROUTES: u32 = 4096;
/// An interface's role in the router program (`role_t`).
const ROUTER: u8 = 0;
const PACKETS: usize = 100_000;
const RUNS: usize = 11;
const BATCH: usize = 32;

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

/// Interfaces 1 and 2 on ports 1 and 2, routes and next hops.
fn tables() -> String {
    let mut text = String::new();
    let r = "v1model_ingress.router";
    for port in 1..=2 {
        let _ = write!(
            text,
            "entry {r}.l3_admit.l3_interface {port} 0 => {r}.l3_admit.set_l3_interface {port} 0 {ROUTER}\n\
             entry {r}.l3_admit.router_mac {port} 0x02000000000{port} => {r}.l3_admit.admit_unicast\n\
             entry {r}.exceptions.egress_interface {port} => {r}.exceptions.set_egress {port} 0 0x02000000000{port} 1500\n\
             entry {r}.ipsec_inbound.inbound_binding {port} => {r}.ipsec_inbound.no_inbound_policy\n\
             entry {r}.flow_cache.outbound_binding {port} => {r}.flow_cache.no_outbound_policy\n"
        );
    }
    for id in 1..=16 {
        let _ = writeln!(
            text,
            "entry {r}.nexthop_resolution.nexthop {id} => {r}.nexthop_resolution.set_neighbor 2 0x0400000000{id:02x}"
        );
    }
    for id in 1..=8 {
        let _ = writeln!(
            text,
            "member {r}.multipath.nexthop_selector {id} => {r}.multipath.set_group_nexthop {id}"
        );
    }
    let _ = writeln!(
        text,
        "group {r}.multipath.nexthop_selector 1 = 1:1 2:1 3:1 4:1 5:1 6:1 7:1 8:1"
    );
    let _ = writeln!(text, "entry {r}.multipath.nexthop_group 1 => group 1");
    let _ = writeln!(
        text,
        "entry {r}.fib.ipv4_fib 0 0x0b000000/8 => {r}.fib.set_nexthop_group 1"
    );
    for route in 0..ROUTES {
        let nexthop = route % 16 + 1;
        let _ = writeln!(
            text,
            "entry {r}.fib.ipv4_fib 0 {:#010x}/24 => {r}.fib.set_nexthop {nexthop}\n\
             entry {r}.fib.ipv6_fib 0 0x2001{route:04x}{:024x}/48 => {r}.fib.set_nexthop {nexthop}",
            0x0a00_0000 | route << 8,
            0
        );
    }
    text
}

fn ethernet(ether_type: u16) -> Vec<u8> {
    let mut packet = vec![2, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 1];
    packet.extend(ether_type.to_be_bytes());
    packet
}

/// UDP in IPv4, 60 bytes.
fn ipv4(destination: u32, source_port: u16) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 192, 0, 2, 9];
    header.extend(destination.to_be_bytes());
    let sum: u32 = header
        .chunks(2)
        .map(|w| u32::from(w[0]) << 8 | u32::from(w[1]))
        .sum();
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut packet = ethernet(0x0800);
    packet.extend(header);
    packet.extend(source_port.to_be_bytes());
    packet.extend([0, 53, 0, 26, 0, 0]);
    packet.resize(60, 0);
    packet
}

/// UDP in IPv6, 80 bytes.
fn ipv6(route: u16, source_port: u16) -> Vec<u8> {
    let mut packet = ethernet(0x86dd);
    packet.extend([0x60, 0, 0, 0, 0, 26, 17, 64, 0x20, 1, 0xd, 0xb8]);
    packet.extend([0; 11]);
    packet.push(1);
    packet.extend([0x20, 1]);
    packet.extend(route.to_be_bytes());
    packet.extend([0; 11]);
    packet.push(9);
    packet.extend(source_port.to_be_bytes());
    packet.extend([0, 53, 0, 26, 0, 0]);
    packet.resize(80, 0);
    packet
}

/// CPU time of this thread so far, in nanoseconds, as Linux accounts it.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let field = text
        .split_whitespace()
        .next()
        .and_then(|field| field.parse().ok());
    field.expect("/proc/thread-self/schedstat begins with a number")
}

/// How much to measure.
#[derive(Clone, Copy)]
struct Amount {
    packets: usize,
    runs: usize,
}

impl Amount {
    /// From the command line, where cargo adds `--bench`.
    fn from_arguments() -> Self {
        let numbers = std::env::args()
            .skip(1)
            .filter_map(|argument| argument.parse().ok());
        let numbers: Vec<usize> = numbers.filter(|number| *number > 0).collect();
        Self {
            packets: numbers.first().copied().unwrap_or(PACKETS),
            runs: numbers.get(1).copied().unwrap_or(RUNS),
        }
    }
}

fn measure<E: cases::Runs>(
    bench: &mut cases::Bench<E>,
    name: &str,
    packets: &[Vec<u8>],
    amount: Amount,
) {
    let mut nanoseconds = Vec::new();
    for _ in 0..amount.runs {
        let mut sink = Count::default();
        let start = cpu_time();
        for batch in 0..amount.packets.div_ceil(BATCH) {
            let side = bench.reader.pin();
            for index in 0..BATCH {
                let data = &packets[(batch * BATCH + index) % packets.len()];
                let input = PacketIn {
                    data,
                    port: 1,
                    now_us: batch as u64,
                };
                bench
                    .switch
                    .process(&side, bench.store.externs(), input, &mut sink);
            }
        }
        let elapsed = cpu_time() - start;
        let sent = amount.packets.div_ceil(BATCH) * BATCH;
        assert_eq!(sink.0, sent, "{name}: not every packet left");
        nanoseconds.push(elapsed as f64 / sink.0 as f64);
    }
    nanoseconds.sort_by(f64::total_cmp);
    let (low, high) = (nanoseconds[0], nanoseconds[amount.runs - 1]);
    println!(
        "{name}: {:.0} ns a packet ({low:.0} to {high:.0})",
        nanoseconds[amount.runs / 2]
    );
}

fn main() {
    let amount = Amount::from_arguments();
    run::<Interpreter>("interpreter", amount);
    run::<Native>("native", amount);
}

fn run<E: cases::Runs>(engine: &str, amount: Amount) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let json = root.join("p4src/build/v1model/router.json");
    let mut bench = cases::Bench::<E>::load(&json).unwrap_or_else(|error| panic!("{error}"));
    bench
        .run_text(&tables(), "tables")
        .unwrap_or_else(|error| panic!("{error}"));
    // A stride that visits every route once, in no order.
    let route = |i: u32| i * 1657 % ROUTES;
    let v4: Vec<_> = (0..ROUTES)
        .map(|i| ipv4(0x0a00_0001 | route(i) << 8, i as u16))
        .collect();
    let group: Vec<_> = (0..ROUTES)
        .map(|i| ipv4(0x0b00_0001 | route(i) << 8, i as u16))
        .collect();
    let v6: Vec<_> = (0..ROUTES)
        .map(|i| ipv6(route(i) as u16, i as u16))
        .collect();
    measure(&mut bench, &format!("{engine}: IPv4"), &v4, amount);
    measure(
        &mut bench,
        &format!("{engine}: IPv4 through a group"),
        &group,
        amount,
    );
    measure(&mut bench, &format!("{engine}: IPv6"), &v6, amount);
}

// SPDX-License-Identifier: Apache-2.0
//! The router program with full tables, native, packets in memory: a million routes and a million flows of an outbound
//! list, each packet of another flow, so that what look-ups cost is what memory costs. One packet after the other, and in
//! lanes, in turn.
//!
//! `cargo bench -p sluice-engine --bench full -- ROUTES FLOWS RUNS PACKETS` prints nanoseconds of the thread's CPU time a
//! packet: median, least and most.

#[path = "../tests/cases/mod.rs"]
mod cases;

use std::fmt::Write;
use std::path::Path;
use std::sync::Arc;

use sluice_engine::native::{Lanes, Native};
use sluice_engine::{Config, PacketIn, Sink};
use sluice_program::{DigestId, Program, TableId};
use sluice_tables::{ActionCall, EntryAction, EntrySpec, KeyField, Store};

const ROUTES: usize = 1_000_000;
const FLOWS: usize = 1 << 20;
const RUNS: usize = 5;
const BATCH: usize = 64;
/// Packets of a run.
const PACKETS: usize = 1 << 20;
/// Updates of a transaction.
const UPDATES: usize = 1_000;
const LIST: u64 = 12;
const EPOCH: u64 = 0x10004;
const FRAME: usize = 60;
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

/// A number that looks random and is different for every index (a multiplication and its inverse shifts are
/// bijections).
fn scatter(index: usize) -> u64 {
    let word = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

/// Two interfaces, the second of them with an outbound list, and 16 next hops.
fn network() -> String {
    let mut text = String::new();
    for port in 1..=2 {
        let _ = write!(
            text,
            "entry {R}.l3_admit.l3_interface {port} 0 => {R}.l3_admit.set_l3_interface {port} 0 0\n\
             entry {R}.l3_admit.router_mac {port} 0x02000000000{port} => {R}.l3_admit.admit_unicast\n\
             entry {R}.exceptions.egress_interface {port} => {R}.exceptions.set_egress {port} 0 0x02000000000{port} 1500\n\
             entry {R}.ipsec_inbound.inbound_binding {port} => {R}.ipsec_inbound.no_inbound_policy\n\
             entry {R}.flow_cache.outbound_binding {port} => {R}.flow_cache.check_outbound {LIST}\n"
        );
    }
    let _ = writeln!(
        text,
        "entry {R}.flow_cache.outbound.list_state {LIST} => {R}.flow_cache.outbound.set_list {EPOCH} 6"
    );
    for id in 1..=16 {
        let _ = writeln!(
            text,
            "entry {R}.nexthop_resolution.nexthop {id} => {R}.nexthop_resolution.set_neighbor 2 0x0400000000{id:02x}"
        );
    }
    text
}

/// A route's prefix, of the lengths that the Internet's have: more than half of them 24, the others 16 to 23.
fn prefix(index: usize) -> (u32, u32) {
    let random = scatter(index);
    let length = match random >> 32 & 15 {
        0..=8 => 24,
        9..=10 => 22,
        11..=12 => 23,
        13 => 20,
        14 => 21,
        _ => 16 + (random >> 36 & 3) as u32,
    };
    let address = 0x0100_0000 + random as u32 % 0x7e00_0000;
    (address >> (32 - length) << (32 - length), length)
}

/// Source, destination and ports of a flow; the destination has a route.
fn flow(index: usize, routes: usize) -> [u32; 3] {
    let random = scatter(index ^ 0x5555_5555);
    let (address, length) = prefix(random as usize % routes);
    let host = (random >> 40) as u32 & ((1 << (32 - length)) - 1);
    [
        0x0a00_0000 | index as u32,
        address | host,
        (random >> 16) as u32 | 0x0400_0400,
    ]
}

fn bytes(value: u64, count: usize) -> Vec<u8> {
    value.to_be_bytes()[8 - count..].to_vec()
}

fn call(program: &Program, table: TableId, name: &str, params: &[u64]) -> EntryAction {
    let mut actions = program.table(table).actions.iter().copied();
    let action = actions.find(|id| program.action(*id).name.ends_with(name));
    let action = action.expect("the table has this action");
    let declared = program.action(action).params.iter().zip(params);
    let params = declared
        .map(|(param, value)| bytes(*value, usize::from(param.slot.width).div_ceil(8)))
        .collect();
    EntryAction::Direct(ActionCall { action, params })
}

fn fill(
    store: &Store,
    name: &str,
    count: usize,
    entry: impl Fn(&Program, TableId, usize) -> (Vec<KeyField>, EntryAction),
) {
    let program = store.program();
    let mut tables = program.tables.iter();
    let table = tables.position(|table| table.name.ends_with(name));
    let table = TableId(table.expect("the router has this table") as u32);
    for start in (0..count).step_by(UPDATES) {
        let mut transaction = store.transaction();
        for index in start..(start + UPDATES).min(count) {
            let (key, action) = entry(program, table, index);
            // A prefix that is there already stays as it is.
            let _ = transaction.insert(
                table,
                EntrySpec {
                    key,
                    priority: 0,
                    action,
                    idle_timeout_ns: 0,
                    controller_metadata: 0,
                    metadata: Vec::new(),
                },
            );
        }
        transaction.commit();
    }
}

/// UDP in IPv4.
fn packet([source, destination, ports]: [u32; 3]) -> [u8; FRAME] {
    let mut packet = [0; FRAME];
    packet[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 1, 8, 0]);
    packet[14..26].copy_from_slice(&[0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
    packet[26..30].copy_from_slice(&source.to_be_bytes());
    packet[30..34].copy_from_slice(&destination.to_be_bytes());
    let words = packet[14..34].chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[24..26].copy_from_slice(&checksum.to_be_bytes());
    packet[34..38].copy_from_slice(&ports.to_be_bytes());
    packet[39] = 26;
    packet
}

/// CPU time of this thread so far, in nanoseconds, as Linux accounts it.
fn cpu_time() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let field = text.split_whitespace().next();
    let field = field.and_then(|field| field.parse().ok());
    field.expect("/proc/thread-self/schedstat begins with a number")
}

fn main() {
    let numbers: Vec<usize> = std::env::args()
        .filter_map(|word| word.parse().ok())
        .collect();
    let number = |index: usize, default| numbers.get(index).copied().unwrap_or(default);
    let (routes, flows, runs) = (number(0, ROUTES), number(1, FLOWS), number(2, RUNS));
    let packets = number(3, PACKETS);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let json = root.join("p4src/build/v1model/router.json");
    let mut bench = cases::Bench::<Native>::load(&json).unwrap_or_else(|error| panic!("{error}"));
    let run = bench.run_text(&network(), "tables");
    run.unwrap_or_else(|error| panic!("{error}"));
    fill(
        &bench.store,
        "fib.ipv4_fib",
        routes,
        |program, table, index| {
            let (address, length) = prefix(index);
            let key = vec![
                KeyField::Exact(vec![0]),
                KeyField::Lpm {
                    value: bytes(address.into(), 4),
                    prefix_len: length as _,
                },
            ];
            (
                key,
                call(program, table, "set_nexthop", &[index as u64 % 16 + 1]),
            )
        },
    );
    fill(
        &bench.store,
        "outbound.ipv4_flow",
        flows,
        |program, table, index| {
            let [source, destination, ports] = flow(index, routes);
            let fields = [
                LIST,
                0,
                0,
                0,
                source.into(),
                destination.into(),
                17,
                (ports >> 16).into(),
                (ports & 0xffff).into(),
            ];
            let keys = program.table(table).key.iter().zip(fields);
            let key = keys.map(|(key, value)| KeyField::Exact(bytes(value, key.bytes())));
            (
                key.collect(),
                call(program, table, "set_ipv4_flow", &[EPOCH, 3, 1, 0]),
            )
        },
    );
    let frames: Vec<u8> = (0..flows)
        .flat_map(|index| packet(flow(scatter(index) as usize % flows, routes)))
        .collect();
    let code = Arc::clone(bench.switch.engine().code());
    let lanes = Lanes::new(&code, &Config::default(), Lanes::FAR);
    let lanes = lanes.expect("memory for stacks");
    let mut lanes = lanes.expect("the router draws no random numbers");
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        times[0].push(in_turn(&mut bench, &frames, packets));
        times[1].push(in_lanes(&mut bench, &mut lanes, &frames, packets));
    }
    println!("{routes} routes, {flows} flows, nanoseconds a packet:");
    for (name, mut times) in ["one after the other", "in lanes"].into_iter().zip(times) {
        times.sort_by(f64::total_cmp);
        let (low, high) = (times[0], times[runs - 1]);
        println!("  {name}: {:.0} ({low:.0} to {high:.0})", times[runs / 2]);
    }
}

/// Nanoseconds a packet, several at a time.
fn in_lanes(
    bench: &mut cases::Bench<Native>,
    lanes: &mut Lanes,
    frames: &[u8],
    packets: usize,
) -> f64 {
    let mut sink = Count::default();
    let mut frames = frames.chunks(FRAME).cycle();
    let start = cpu_time();
    for batch in 0..packets / BATCH {
        let side = bench.reader.pin();
        let externs = bench.store.externs();
        lanes.batch(&side, externs, &mut sink, |lanes| {
            for data in frames.by_ref().take(BATCH) {
                lanes.process(PacketIn {
                    data,
                    port: 1,
                    now_us: batch as u64,
                });
            }
        });
    }
    let elapsed = cpu_time() - start;
    assert_eq!(sink.0, packets / BATCH * BATCH, "not every packet left");
    elapsed as f64 / sink.0 as f64
}

/// Nanoseconds a packet, one after the other.
fn in_turn(bench: &mut cases::Bench<Native>, frames: &[u8], packets: usize) -> f64 {
    let mut sink = Count::default();
    let mut frames = frames.chunks(FRAME).cycle();
    let start = cpu_time();
    for batch in 0..packets / BATCH {
        let side = bench.reader.pin();
        for data in frames.by_ref().take(BATCH) {
            let input = PacketIn {
                data,
                port: 1,
                now_us: batch as u64,
            };
            let externs = bench.store.externs();
            bench.switch.process(&side, externs, input, &mut sink);
        }
    }
    let elapsed = cpu_time() - start;
    assert_eq!(sink.0, packets / BATCH * BATCH, "not every packet left");
    elapsed as f64 / sink.0 as f64
}

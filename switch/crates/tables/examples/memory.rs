// SPDX-License-Identifier: Apache-2.0
//! Measures the memory of the router program's tables, and the cost of changes. Fills the tables with 1,000,000 IPv4
//! routes, 200,000 IPv6 routes and 1,000,000 IPv4 flows with timeouts. Each transaction inserts a thousand entries.
//! Then deletes some of the routes, inserts them again, and modifies their next hops. Measures the cost of each step.
//!
//! `cargo run --release -p sluice-tables --example memory -- ROUTER_JSON [DIVISOR]`

use std::sync::Arc;

use sluice_program::{Program, TableId};
use sluice_tables::{ActionCall, EntryAction, EntrySpec, KeyField, Store};

const BATCH: u64 = 1_000;

/// Returns the resident memory of this process in MiB, as the kernel counts it.
fn resident_mib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().nth(1));
    kib.and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) / 1024
}

/// Returns the processor time that this thread has used, in seconds. Other threads and processes do not add to it.
fn cpu_seconds() -> f64 {
    let usage = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let first = usage.split_whitespace().next();
    first.and_then(|text| text.parse().ok()).unwrap_or(0.0) / 1e9
}

/// Returns a pseudo-random number that is different for every index, because multiplication by an odd number and xor
/// with a right shift are bijections.
fn scatter(index: u64) -> u64 {
    let word = index.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

fn bytes(value: u128, count: usize) -> Vec<u8> {
    value.to_be_bytes()[16 - count..].to_vec()
}

fn direct(program: &Program, table: TableId, name: &str, params: &[u64]) -> EntryAction {
    let actions = program.table(table).actions.iter().copied();
    let action = actions
        .filter(|id| program.action(*id).name.ends_with(name))
        .find(|id| program.action(*id).params.len() == params.len())
        .expect("the table has this action");
    let declared = program.action(action).params.iter().zip(params);
    let params = declared
        .map(|(param, value)| bytes((*value).into(), usize::from(param.slot.width).div_ceil(8)))
        .collect();
    EntryAction::Direct(ActionCall { action, params })
}

fn route(program: &Program, table: TableId, index: u64) -> EntrySpec {
    let width = program.table(table).key[1].width;
    // Most routes of a real table are /24 and /48.
    let (length, address) = match width {
        32 if index < 1 << 20 => (24, u128::from(index + (1 << 18)) << 8),
        _ => {
            let scattered = (index as u32).wrapping_mul(0x9e37_79b1);
            (48, (0x2000 << 112) | (u128::from(scattered) << 80))
        }
    };
    EntrySpec {
        key: vec![
            KeyField::Exact(vec![0]),
            KeyField::Lpm {
                value: bytes(address, usize::from(width) / 8),
                prefix_len: length,
            },
        ],
        priority: 0,
        action: direct(program, table, "set_nexthop", &[scatter(index) % 256]),
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Vec::new(),
    }
}

fn flow(program: &Program, table: TableId, index: u64) -> EntrySpec {
    let random = scatter(index);
    let key = program.table(table).key.iter().map(|key| {
        let value = if key.width == 32 {
            random >> 32 ^ index
        } else {
            random & 1
        };
        KeyField::Exact(bytes(u128::from(value as u32), key.bytes()))
    });
    let mut key: Vec<_> = key.collect();
    key[5] = KeyField::Exact(bytes(u128::from(index as u32), 4));
    EntrySpec {
        key,
        priority: 0,
        action: direct(
            program,
            table,
            "set_ipv4_flow",
            &[7, index % 500, 1, index % 99],
        ),
        idle_timeout_ns: 30_000_000_000,
        controller_metadata: 0,
        metadata: Vec::new(),
    }
}

/// Deletes, inserts and modifies every twentieth route of a table.
fn churn(store: &Store, name: &str, count: u64) {
    let program = store.program();
    let found = program
        .tables
        .iter()
        .position(|table| table.name.ends_with(name));
    let table = TableId(found.expect("the router has this table") as u32);
    let mut chosen: Vec<_> = (0..count).step_by(20).collect();
    chosen.sort_unstable_by_key(|index| scatter(*index));
    for kind in ["deleted", "inserted", "modified"] {
        let (mut spent, mut longest) = (0.0, 0.0);
        for part in chosen.chunks(BATCH as usize) {
            // Modified routes get another next hop.
            let hop = |index: u64| index ^ u64::from(kind == "modified") << 40;
            let specs: Vec<_> = part
                .iter()
                .map(|index| EntrySpec {
                    action: direct(program, table, "set_nexthop", &[scatter(hop(*index)) % 256]),
                    ..route(program, table, *index)
                })
                .collect();
            let before = cpu_seconds();
            let mut transaction = store.transaction();
            for spec in specs {
                match kind {
                    "deleted" => transaction.delete(table, &spec.key, 0),
                    "inserted" => transaction.insert(table, spec),
                    _ => transaction.modify(table, spec),
                }
                .expect("it is there, or there is room");
            }
            transaction.commit();
            let seconds = cpu_seconds() - before;
            spent += seconds;
            longest = f64::max(longest, seconds);
        }
        println!(
            "{name}: {} {kind}, {:.0} ns each, longest batch of {BATCH} {:.1} ms",
            chosen.len(),
            spent * 1e9 / chosen.len() as f64,
            longest * 1e3,
        );
    }
}

fn fill(store: &Store, name: &str, count: u64, spec: fn(&Program, TableId, u64) -> EntrySpec) {
    let program = store.program();
    let found = program
        .tables
        .iter()
        .position(|table| table.name.ends_with(name));
    let table = TableId(found.expect("the router has this table") as u32);
    let (mut spent, mut longest) = (0.0, 0.0);
    for start in (0..count).step_by(BATCH as usize) {
        let specs: Vec<_> = (start..(start + BATCH).min(count))
            .map(|index| spec(program, table, index))
            .collect();
        let before = cpu_seconds();
        let mut transaction = store.transaction();
        for spec in specs {
            transaction.insert(table, spec).expect("there is room");
        }
        transaction.commit();
        let seconds = cpu_seconds() - before;
        spent += seconds;
        longest = f64::max(longest, seconds);
    }
    println!(
        "{name}: {count} entries, {:.0} ns each, longest batch of {BATCH} {:.1} ms, {} MiB resident",
        spent * 1e9 / count as f64,
        longest * 1e3,
        resident_mib(),
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("the router's JSON");
    let divisor = arguments
        .next()
        .and_then(|text| text.parse().ok())
        .unwrap_or(1);
    let json = std::fs::read(path).expect("a file that can be read");
    let program = Program::from_json(&json).expect("a program");
    let store = Store::new(Arc::new(program));
    println!("empty: {} MiB resident", resident_mib());
    fill(&store, "routing.fib.ipv4_fib", 1_000_000 / divisor, route);
    fill(&store, "routing.fib.ipv6_fib", 200_000 / divisor, route);
    fill(&store, "outbound.ipv4_flow", 1_000_000 / divisor, flow);
    churn(&store, "routing.fib.ipv4_fib", 1_000_000 / divisor);
    churn(&store, "routing.fib.ipv6_fib", 200_000 / divisor);
}

// SPDX-License-Identifier: Apache-2.0
//! Builds a trace with many routes and many flows of an outbound list. Consecutive packets belong to different flows.

use std::fmt::Write;

use sluice_program::{Program, TableId};
use sluice_tables::{EntryAction, KeyField, Store};

use super::{R, bytes, call, entry, network, scatter, table_named, udp4};

/// Updates per transaction.
const UPDATES: usize = 1_000;
const LIST: u64 = 12;
const EPOCH: u64 = 0x10004;

/// Configures two interfaces with the outbound list, and 16 next hops.
pub(crate) fn tables() -> String {
    let mut text = network(&format!("check_outbound {LIST}"), 16);
    let _ = writeln!(
        text,
        "entry {R}.flow_cache.outbound.list_state {LIST} => {R}.flow_cache.outbound.set_list {EPOCH} 6 0"
    );
    text
}

/// Returns a route's prefix. The lengths resemble those of Internet routes: more than half of the lengths are 24, and
/// the others are 16 to 23.
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

/// Returns source, destination and ports of a flow. There is a route to the destination.
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

fn fill(
    store: &Store,
    name: &str,
    count: usize,
    content: impl Fn(&Program, TableId, usize) -> (Vec<KeyField>, EntryAction),
) {
    let program = store.program();
    let table = table_named(program, name);
    for start in (0..count).step_by(UPDATES) {
        let mut transaction = store.transaction();
        for index in start..(start + UPDATES).min(count) {
            let (key, action) = content(program, table, index);
            // The insertion fails if the prefix already has a route. The earlier route stays.
            let _ = transaction.insert(table, entry(key, 0, action));
        }
        transaction.commit();
    }
}

/// Adds `routes` routes and `flows` flows.
pub(crate) fn fill_tables(store: &Store, routes: usize, flows: usize) {
    fill(
        store,
        "routing.fib.ipv4_fib",
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
        store,
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
}

/// Returns `flows` packets of pseudo-randomly chosen flows.
pub(crate) fn packets(routes: usize, flows: usize) -> impl Iterator<Item = Vec<u8>> {
    (0..flows).map(move |index| {
        let [source, destination, ports] = flow(scatter(index) as usize % flows, routes);
        udp4(source, destination, [(ports >> 16) as u16, ports as u16])
    })
}

// SPDX-License-Identifier: Apache-2.0
//! Provides tables and packets for the benchmarks of the router program. The tests check that both engines process
//! these packets identically.

#![allow(dead_code)] // each benchmark uses only some of it

pub(crate) mod full;
pub(crate) mod multipath;
pub(crate) mod policy;
pub(crate) mod router;

use std::fmt::Write;
use std::path::{Path, PathBuf};

use sluice_program::{Program, TableId};
use sluice_tables::{ActionCall, EntryAction, EntrySpec, KeyField};

/// Name prefix of all tables: the name of the control to which they belong.
const R: &str = "v1model_ingress.router";

/// Returns the path of the compiled router program.
pub(crate) fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../p4src/build/v1model/router.json")
}

/// Returns commands that configure interfaces 1 and 2 on ports 1 and 2. The interfaces have this outbound policy and no
/// inbound policy. Interface 2 has `next_hops` next hops.
fn network(outbound: &str, next_hops: u32) -> String {
    let mut text = String::new();
    for port in 1..=2 {
        let _ = write!(
            text,
            "entry {R}.l3_admit.l3_interface {port} 0 => {R}.l3_admit.set_l3_interface {port} 0 0\n\
             entry {R}.l3_admit.router_mac {port} 0x02000000000{port} => {R}.l3_admit.admit_unicast\n\
             entry {R}.exceptions.egress_interface {port} => {R}.exceptions.set_egress {port} 0 0x02000000000{port} 1500\n\
             entry {R}.ipsec_inbound.inbound_binding {port} => {R}.ipsec_inbound.no_inbound_policy\n\
             entry {R}.flow_cache.outbound_binding {port} => {R}.flow_cache.{outbound}\n"
        );
    }
    for id in 1..=next_hops {
        let _ = writeln!(
            text,
            "entry {R}.routing.nexthop_resolution.nexthop {id} => {R}.routing.nexthop_resolution.set_neighbor 2 0x0400000000{id:02x}"
        );
    }
    text
}

/// Returns commands that configure group 1 with the first `size` next hops. The weights are repeated as often as
/// needed.
fn group(size: u32, weights: &[u32]) -> String {
    let selector = format!("{R}.routing.multipath.nexthop_selector");
    let mut text = String::new();
    for id in 1..=size {
        let action = format!("{R}.routing.multipath.set_group_nexthop {id}");
        let _ = writeln!(text, "member {selector} {id} => {action}");
    }
    let weights = weights.iter().cycle();
    let members: Vec<String> = (1..=size)
        .zip(weights)
        .map(|(id, weight)| format!("{id}:{weight}"))
        .collect();
    let _ = writeln!(text, "group {selector} 1 = {}", members.join(" "));
    let _ = writeln!(
        text,
        "entry {R}.routing.multipath.nexthop_group 1 => group 1"
    );
    text
}

/// Returns the Ethernet header of a frame to interface 1.
fn ethernet(ether_type: u16) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 6, 0, 0, 0, 0, 1];
    frame.extend(ether_type.to_be_bytes());
    frame
}

/// Returns a frame of 60 bytes with an IPv4 UDP packet.
fn udp4(source: u32, destination: u32, [from, to]: [u16; 2]) -> Vec<u8> {
    let mut header = vec![0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0];
    header.extend(source.to_be_bytes());
    header.extend(destination.to_be_bytes());
    let words = header.chunks(2);
    let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    let checksum = !((sum & 0xffff) + (sum >> 16)) as u16;
    header[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut frame = ethernet(0x0800);
    frame.extend(header);
    frame.extend(from.to_be_bytes());
    frame.extend(to.to_be_bytes());
    frame.extend([0, 26, 0, 0]);
    frame.resize(60, 0);
    frame
}

/// Returns the last `count` bytes of a number, most significant first.
fn bytes(value: u64, count: usize) -> Vec<u8> {
    value.to_be_bytes()[8 - count..].to_vec()
}

/// Returns the table whose name ends with `name`.
fn table_named(program: &Program, name: &str) -> TableId {
    let mut tables = program.tables.iter();
    let table = tables.position(|table| table.name.ends_with(name));
    TableId(table.expect("the router has this table") as u32)
}

/// Returns a call of the table's action whose name ends with `name`.
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

/// Returns an entry without idle timeout and metadata.
fn entry(key: Vec<KeyField>, priority: i32, action: EntryAction) -> EntrySpec {
    EntrySpec {
        key,
        priority,
        action,
        idle_timeout_ns: 0,
        controller_metadata: 0,
        metadata: Vec::new(),
    }
}

/// Returns a pseudo-random number that is different for every index, because multiplication by an odd number and xor
/// with a right shift are bijections.
fn scatter(index: usize) -> u64 {
    let word = (index as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93)
}

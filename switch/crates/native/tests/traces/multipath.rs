// SPDX-License-Identifier: Apache-2.0
//! Builds a trace with one route to a next hop, or to a group of 1 to 64 next hops with equal or different weights.
//! Each packet belongs to a different flow.

use super::{R, group, network, udp4};

/// Number of next hops.
const MEMBERS: u32 = 64;
const PACKETS: u32 = 4096;

/// Returns cases, each with its name and tables. *single-path* has no groups. *unused* has a group that the route does
/// not use.
pub(crate) fn cases() -> Vec<(String, String)> {
    let network = network("no_outbound_policy", MEMBERS);
    let route = |action: &str| {
        format!("entry {R}.routing.fib.ipv4_fib 0 0x0b000000/8 => {R}.routing.fib.{action} 1\n")
    };
    let single = route("set_nexthop");
    let used = |size, weights: &[u32]| {
        network.clone() + &group(size, weights) + &route("set_nexthop_group")
    };
    let mut cases = vec![
        ("single-path".into(), network.clone() + &single),
        (
            "unused".into(),
            network.clone() + &group(MEMBERS, &[1]) + &single,
        ),
    ];
    for size in [1, 4, 16, 32, 64] {
        cases.push((format!("group of {size}"), used(size, &[1])));
    }
    cases.push(("group of 8, weighted".into(), used(8, &[1, 2, 4])));
    cases
}

/// Returns tables with one route to a group of next hops with these weights.
pub(crate) fn tables(weights: &[u32]) -> String {
    let members = weights.len() as u32;
    let route = format!(
        "entry {R}.routing.fib.ipv4_fib 0 0x0b000000/8 => {R}.routing.fib.set_nexthop_group 1\n"
    );
    network("no_outbound_policy", members) + &group(members, weights) + &route
}

/// Returns one packet for each of `count` flows. All of them take the route. The flows differ in addresses and source
/// ports.
pub(crate) fn flows(count: u32) -> Vec<Vec<u8>> {
    let packet = |flow: u32| {
        udp4(
            0xc000_0200 | (flow % 250),
            0x0b00_0001 + flow / 250,
            [1024 + (flow % 7) as u16, 53],
        )
    };
    (0..count).map(packet).collect()
}

pub(crate) fn packets() -> Vec<Vec<u8>> {
    let packet = |flow: u32| {
        let destination = 0x0b00_0000 | (flow * 1657 % 65_536) << 8;
        udp4(0xc000_0209, destination, [flow as u16, 53])
    };
    (0..PACKETS).map(packet).collect()
}

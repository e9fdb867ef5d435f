// SPDX-License-Identifier: Apache-2.0
//! Builds a trace of packets to 4,096 destinations, by 4,096 routes of length /24 (IPv4) or /48 (IPv6). The routes have
//! 16 next hops, or one group of 8 next hops.

use std::fmt::Write;

use super::{R, ethernet, group, network, udp4};

const ROUTES: u32 = 4096;

pub(crate) fn tables() -> String {
    let mut text = network("no_outbound_policy", 16);
    text += &group(8, &[1]);
    let _ = writeln!(
        text,
        "entry {R}.routing.fib.ipv4_fib 0 0x0b000000/8 => {R}.routing.fib.set_nexthop_group 1\n\
         entry {R}.routing.fib.ipv6_fib 0 0x2002{:028x}/16 => {R}.routing.fib.set_nexthop_group 1",
        0
    );
    for route in 0..ROUTES {
        let nexthop = route % 16 + 1;
        let _ = writeln!(
            text,
            "entry {R}.routing.fib.ipv4_fib 0 {:#010x}/24 => {R}.routing.fib.set_nexthop {nexthop}\n\
             entry {R}.routing.fib.ipv6_fib 0 0x2001{route:04x}{:024x}/48 => {R}.routing.fib.set_nexthop {nexthop}",
            0x0a00_0000 | route << 8,
            0
        );
    }
    text
}

/// Maps an index to a route. Consecutive indices visit every route once, in pseudo-random order.
fn route(index: u32) -> u32 {
    index * 1657 % ROUTES
}

fn to_routes_of(network: u32) -> Vec<Vec<u8>> {
    let packet = |index| {
        let destination = network | route(index) << 8 | 1;
        udp4(0xc000_0209, destination, [index as u16, 53])
    };
    (0..ROUTES).map(packet).collect()
}

pub(crate) fn ipv4() -> Vec<Vec<u8>> {
    to_routes_of(0x0a00_0000)
}

pub(crate) fn through_a_group() -> Vec<Vec<u8>> {
    to_routes_of(0x0b00_0000)
}

pub(crate) fn ipv6() -> Vec<Vec<u8>> {
    to_ipv6_routes_of([0x20, 1])
}

pub(crate) fn ipv6_through_a_group() -> Vec<Vec<u8>> {
    to_ipv6_routes_of([0x20, 2])
}

/// Returns frames of 80 bytes with IPv6 UDP packets to the routes of a network.
fn to_ipv6_routes_of(network: [u8; 2]) -> Vec<Vec<u8>> {
    let packet = |index| {
        let mut packet = ethernet(0x86dd);
        packet.extend([0x60, 0, 0, 0, 0, 26, 17, 64, 0x20, 1, 0xd, 0xb8]);
        packet.extend([0; 11]);
        packet.push(1);
        packet.extend(network);
        packet.extend((route(index) as u16).to_be_bytes());
        packet.extend([0; 11]);
        packet.push(9);
        packet.extend((index as u16).to_be_bytes());
        packet.extend([0, 53, 0, 26, 0, 0]);
        packet.resize(80, 0);
        packet
    };
    (0..ROUTES).map(packet).collect()
}

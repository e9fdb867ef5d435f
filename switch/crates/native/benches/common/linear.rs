// SPDX-License-Identifier: Apache-2.0
//! Searches an ordered list of rules one by one, for comparison only: the product has no such search.
//!
//! Both list types ([`PolicyPool`], [`CompactList`]) compare a packet's fields in the order of VPP's SPD: protocol,
//! destination, source, ports. At the first field that does not match, they continue with the next rule.

use crate::traces::policy::Rule;

/// Position of the first byte of the IPv4 header in a frame.
const IPV4: usize = 14;
/// Position of the ports in a frame whose IPv4 header has no options.
const PORTS: usize = IPV4 + 20;

/// An ordered list of rules.
pub(crate) trait LinearList {
    /// Moves a rule from one position to another, counted from 1.
    fn move_rule(&mut self, from: usize, to: usize);

    /// Returns the position of the first rule that matches the packet, counted from 1, or 0 if none does.
    fn search(&self, frame: &[u8]) -> usize;
}

/// The fields of a packet that rules can match, in host byte order.
struct PacketKey {
    destination: u32,
    source: u32,
    source_port: u16,
    destination_port: u16,
    protocol: u8,
}

impl PacketKey {
    /// Reads the fields of a UDP packet in IPv4 without options. The benchmark has no other packets.
    #[inline(always)]
    fn of(frame: &[u8]) -> Self {
        let frame: &[u8; 60] = frame[..60].try_into().expect("a frame has 60 bytes");
        let word = |at: usize| {
            u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]])
        };
        let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
        Self {
            destination: word(IPV4 + 16),
            source: word(IPV4 + 12),
            source_port: port(PORTS),
            destination_port: port(PORTS + 2),
            protocol: frame[IPV4 + 9],
        }
    }
}

/// A list laid out like VPP's SPD. A rule takes 104 bytes, with space for IPv6 addresses and for its SA. Addresses are
/// in network byte order. A vector of indices gives the order of the rules.
pub(crate) struct PolicyPool {
    order: Vec<u32>,
    policies: Vec<Policy>,
}

/// Address range of a source or destination, with space for IPv6. An IPv4 address takes the last four bytes.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Addresses {
    low: [u32; 4],
    high: [u32; 4],
}

impl Addresses {
    fn ipv4(low: u32, high: u32) -> Self {
        Self {
            low: [0, 0, 0, low.to_be()],
            high: [0, 0, 0, high.to_be()],
        }
    }

    #[inline(always)]
    fn contain(&self, address: u32) -> bool {
        u32::from_be(self.low[3]) <= address && address <= u32::from_be(self.high[3])
    }
}

/// A rule of a [`PolicyPool`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Policy {
    /// Id, priority, type and IP version.
    head: [u32; 4],
    source: Addresses,
    destination: Addresses,
    protocol: u8,
    source_ports: [u16; 2],
    destination_ports: [u16; 2],
    /// Verdict and SA.
    action: [u32; 3],
}

const _: () = assert!(size_of::<Policy>() == 104);

impl PolicyPool {
    /// Creates a list of rules, in their order.
    pub(crate) fn new(rules: impl Iterator<Item = Rule>) -> Self {
        let policy = |rule: Rule| Policy {
            head: [0; 4],
            source: Addresses::ipv4(*rule.source.start(), *rule.source.end()),
            destination: Addresses::ipv4(*rule.destination.start(), *rule.destination.end()),
            protocol: rule.protocol,
            source_ports: bounds(&rule.source_ports),
            destination_ports: bounds(&rule.destination_ports),
            action: [0; 3],
        };
        let policies: Vec<Policy> = rules.map(policy).collect();
        Self {
            order: (0..policies.len() as u32).collect(),
            policies,
        }
    }
}

impl LinearList for PolicyPool {
    fn move_rule(&mut self, from: usize, to: usize) {
        let policy = self.order.remove(from - 1);
        self.order.insert(to - 1, policy);
    }

    #[inline(always)]
    fn search(&self, frame: &[u8]) -> usize {
        let key = PacketKey::of(frame);
        let matches = |index: &u32| {
            let policy = &self.policies[*index as usize];
            (policy.protocol == 0 || policy.protocol == key.protocol)
                && policy.destination.contain(key.destination)
                && policy.source.contain(key.source)
                && contain(policy.source_ports, key.source_port)
                && contain(policy.destination_ports, key.destination_port)
        };
        self.order.iter().position(matches).map_or(0, |at| at + 1)
    }
}

/// A list in a compact layout: 28 bytes per rule, stored in the list's order, in host byte order.
pub(crate) struct CompactList(Vec<Ranges>);

/// A rule of a [`CompactList`].
#[repr(C)]
#[derive(Clone, Copy)]
struct Ranges {
    destination: [u32; 2],
    source: [u32; 2],
    source_ports: [u16; 2],
    destination_ports: [u16; 2],
    protocol: u8,
}

const _: () = assert!(size_of::<Ranges>() == 28);

impl CompactList {
    /// Creates a list of rules, in their order.
    pub(crate) fn new(rules: impl Iterator<Item = Rule>) -> Self {
        let ranges = |rule: Rule| Ranges {
            destination: [*rule.destination.start(), *rule.destination.end()],
            source: [*rule.source.start(), *rule.source.end()],
            source_ports: bounds(&rule.source_ports),
            destination_ports: bounds(&rule.destination_ports),
            protocol: rule.protocol,
        };
        Self(rules.map(ranges).collect())
    }
}

impl LinearList for CompactList {
    fn move_rule(&mut self, from: usize, to: usize) {
        let rule = self.0.remove(from - 1);
        self.0.insert(to - 1, rule);
    }

    #[inline(always)]
    fn search(&self, frame: &[u8]) -> usize {
        let key = PacketKey::of(frame);
        let matches = |rule: &Ranges| {
            (rule.protocol == 0 || rule.protocol == key.protocol)
                && contain(rule.destination, key.destination)
                && contain(rule.source, key.source)
                && contain(rule.source_ports, key.source_port)
                && contain(rule.destination_ports, key.destination_port)
        };
        self.0.iter().position(matches).map_or(0, |at| at + 1)
    }
}

fn bounds(range: &std::ops::RangeInclusive<u16>) -> [u16; 2] {
    [*range.start(), *range.end()]
}

/// Returns whether a number is within these inclusive bounds.
#[inline(always)]
fn contain<T: PartialOrd>([low, high]: [T; 2], number: T) -> bool {
    low <= number && number <= high
}

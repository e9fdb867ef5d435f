// SPDX-License-Identifier: Apache-2.0
//! Generates rule sets that resemble access lists, and packets that match them, for tests and benchmarks.
//!
//! The mixes follow the findings of "ClassBench: A Packet Classification Benchmark" (Taylor and Turner, INFOCOM 2005)
//! about real lists. Addresses are nested prefixes of a few sites. Most rules match any source port, and one well-known
//! destination port. Firewalls have many rules that wildcard one address. The most specific rules come first, so that
//! few rules are shadowed. All results depend only on the seed and the arguments.

use std::collections::HashSet;
use std::ops::RangeInclusive;

/// Size of a key in bytes. A key consists of source and destination address, source and destination port, and protocol.
pub const KEY_BYTES: usize = 13;

/// Kind of rule list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// An access list. Both addresses are specific, and rules match destination ports.
    AccessList,
    /// A firewall. One address is often a wildcard, and both ports have ranges.
    Firewall,
    /// A chain of a host's packet filter, which is a mix of the other two kinds.
    Chain,
}

/// A rule over the five-tuple of IPv4. Earlier rules win.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FiveTuple {
    /// Source prefix: address and length.
    pub source: (u32, u32),
    /// Destination prefix: address and length.
    pub destination: (u32, u32),
    /// Source ports.
    pub source_ports: RangeInclusive<u16>,
    /// Destination ports.
    pub destination_ports: RangeInclusive<u16>,
    /// The protocol, or `None` if any protocol matches.
    pub protocol: Option<u8>,
}

impl FiveTuple {
    /// Returns whether the rule matches a key. Tests compare the classifier with this function.
    pub fn matches(&self, key: &[u8; KEY_BYTES]) -> bool {
        let address =
            |at: usize| u32::from_be_bytes([key[at], key[at + 1], key[at + 2], key[at + 3]]);
        let port = |at: usize| u16::from_be_bytes([key[at], key[at + 1]]);
        let inside =
            |(value, length): (u32, u32), address: u32| (value ^ address) & mask(length) == 0;
        inside(self.source, address(0))
            && inside(self.destination, address(4))
            && self.source_ports.contains(&port(8))
            && self.destination_ports.contains(&port(10))
            && self.protocol.is_none_or(|protocol| protocol == key[12])
    }

    /// Returns the value and the bounds of a [`crate::Rule`]. The value has the addresses and the lowest ports. The
    /// bounds have the masks of the addresses and the highest ports.
    pub fn parts(&self) -> ([u8; KEY_BYTES], [u8; KEY_BYTES]) {
        let (from, to) = (&self.source_ports, &self.destination_ports);
        let protocol = self.protocol.unwrap_or(0);
        let wanted = if self.protocol.is_some() { 0xff } else { 0 };
        (
            key(
                self.source.0,
                self.destination.0,
                *from.start(),
                *to.start(),
                protocol,
            ),
            key(
                mask(self.source.1),
                mask(self.destination.1),
                *from.end(),
                *to.end(),
                wanted,
            ),
        )
    }

    /// Returns the approximate number of bits that the rule wildcards.
    fn openness(&self) -> u32 {
        let ports = |range: &RangeInclusive<u16>| {
            (range.end() - range.start())
                .checked_ilog2()
                .map_or(0, |n| n + 1)
        };
        (32 - self.source.1)
            + (32 - self.destination.1)
            + ports(&self.source_ports)
            + ports(&self.destination_ports)
            + if self.protocol.is_none() { 8 } else { 0 }
    }
}

/// Returns the mask of a prefix length.
pub fn mask(length: u32) -> u32 {
    u32::MAX.checked_shl(32 - length).unwrap_or(0)
}

/// Generator of random choices for samples.
#[derive(Clone, Debug)]
pub struct Random(sluice_random::Random);

impl Random {
    /// Creates a generator from a seed.
    pub fn new(seed: u64) -> Self {
        Self(sluice_random::Random::new(seed))
    }

    /// Returns the next number.
    pub fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// Returns a number below `n`, which must not be 0.
    pub fn below(&mut self, n: usize) -> usize {
        self.0.below(n as u64) as usize
    }

    fn between(&mut self, low: u16, high: u16) -> u16 {
        low + self.below(usize::from(high - low) + 1) as u16
    }

    /// Returns a random index. `weights` has the probability of each index in percent; their sum must be 100.
    fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut point = self.below(100) as u32;
        for (index, weight) in weights.iter().enumerate() {
            match point.checked_sub(*weight) {
                Some(rest) => point = rest,
                None => return index,
            }
        }
        weights.len() - 1
    }
}

/// Pool of the prefixes of sites, subnets and hosts.
struct Addresses {
    sites: Vec<u32>,
    /// Weights of the prefix lengths 0, 8 to 16, 17 to 23, 24, 25 to 31, and 32.
    lengths: [u32; 6],
}

impl Addresses {
    fn new(random: &mut Random, sites: usize, lengths: [u32; 6]) -> Self {
        let sites = (0..sites).map(|_| random.number() as u32).collect();
        Self { sites, lengths }
    }

    fn prefix(&self, random: &mut Random) -> (u32, u32) {
        let length = match random.weighted(&self.lengths) {
            0 => 0,
            1 => u32::from(random.between(8, 16)),
            2 => u32::from(random.between(17, 23)),
            3 => 24,
            4 => u32::from(random.between(25, 31)),
            _ => 32,
        };
        // A site is a /16. Its subnets and hosts are random. Low subnet numbers are more frequent.
        let site = self.sites[random.below(self.sites.len())] & mask(16);
        let (subnet, host) = (random.below(256), random.below(256));
        let subnet = subnet * random.below(256) / 256;
        let address = site | (subnet << 8 | host) as u32;
        (address & mask(length), length)
    }
}

const WELL_KNOWN: [u16; 16] = [
    80, 443, 53, 25, 22, 21, 23, 110, 123, 135, 139, 143, 161, 389, 445, 1521,
];

/// Returns a random range of ports. The weights are for any port, one port, the ephemeral ports, the reserved ports,
/// and another range.
fn ports(random: &mut Random, weights: &[u32; 5]) -> RangeInclusive<u16> {
    match random.weighted(weights) {
        0 => 0..=u16::MAX,
        1 if random.below(4) > 0 => {
            let port = WELL_KNOWN[random.below(WELL_KNOWN.len())];
            port..=port
        }
        1 => {
            let port = random.between(1024, 20_000);
            port..=port
        }
        2 => 1024..=u16::MAX,
        3 => 0..=1023,
        _ => {
            let low = random.between(1024, 60_000);
            low..=low + random.between(1, 2_000)
        }
    }
}

fn draw(shape: Shape, random: &mut Random, pools: &[Addresses; 2]) -> FiveTuple {
    let (source_ports, destination_ports, protocols) = match shape {
        Shape::AccessList => ([98, 1, 1, 0, 0], [15, 65, 8, 2, 10], [80, 13, 2, 5]),
        Shape::Firewall => ([75, 12, 8, 1, 4], [25, 55, 8, 2, 10], [65, 20, 5, 10]),
        Shape::Chain => ([70, 18, 7, 2, 3], [35, 45, 7, 3, 10], [60, 22, 6, 12]),
    };
    let protocol = [Some(6), Some(17), Some(1), None][random.weighted(&protocols)];
    let has_ports = matches!(protocol, Some(6 | 17));
    let mut rule = FiveTuple {
        source: pools[0].prefix(random),
        destination: pools[1].prefix(random),
        source_ports: 0..=u16::MAX,
        destination_ports: 0..=u16::MAX,
        protocol,
    };
    if has_ports {
        rule.source_ports = ports(random, &source_ports);
        rule.destination_ports = ports(random, &destination_ports);
    }
    rule
}

/// Returns `count` different rules. Earlier rules win.
pub fn rules(shape: Shape, count: usize, seed: u64) -> Vec<FiveTuple> {
    let random = &mut Random::new(seed);
    let sites = (count / 24).clamp(4, 2_000);
    let (source, destination) = match shape {
        Shape::AccessList => ([8, 3, 14, 20, 20, 35], [1, 1, 8, 20, 25, 45]),
        Shape::Firewall => ([35, 8, 10, 12, 10, 25], [15, 3, 8, 14, 20, 40]),
        Shape::Chain => ([12, 6, 14, 18, 15, 35], [10, 5, 15, 20, 15, 35]),
    };
    let pools = [
        Addresses::new(random, sites, source),
        Addresses::new(random, sites, destination),
    ];
    let mut known = HashSet::new();
    let mut rules = Vec::with_capacity(count);
    while rules.len() < count {
        let rule = draw(shape, random, &pools);
        // Real lists have only a few rules whose source and destination are both large networks.
        let broad = rule.source.1 < 16 && rule.destination.1 < 16;
        if (!broad || random.below(count) < 40) && known.insert(rule.clone()) {
            rules.push((rule.openness() * 4 + random.below(24) as u32, rule));
        }
    }
    rules.sort_by_key(|(order, _)| *order);
    rules.into_iter().map(|(_, rule)| rule).collect()
}

/// Returns a random key that a rule matches. In each field, the key has the lowest, the highest or a random number of
/// the rule's range.
pub fn inside(rule: &FiveTuple, random: &mut Random) -> [u8; KEY_BYTES] {
    let mut pick = |low: u64, high: u64| match random.below(4) {
        0 => low,
        1 => high,
        _ => low + random.number() % (high - low + 1),
    };
    let mut address =
        |(value, length): (u32, u32)| pick(value.into(), (value | !mask(length)).into()) as u32;
    let (source, destination) = (address(rule.source), address(rule.destination));
    let mut port =
        |range: &RangeInclusive<u16>| pick((*range.start()).into(), (*range.end()).into()) as u16;
    let (from, to) = (port(&rule.source_ports), port(&rule.destination_ports));
    let protocol = rule.protocol.unwrap_or([6, 17, 1, 47][random.below(4)]);
    key(source, destination, from, to, protocol)
}

/// Returns the key for a five-tuple, with its fields in network byte order.
pub fn key(source: u32, destination: u32, from: u16, to: u16, protocol: u8) -> [u8; KEY_BYTES] {
    let mut key = [0; KEY_BYTES];
    key[0..4].copy_from_slice(&source.to_be_bytes());
    key[4..8].copy_from_slice(&destination.to_be_bytes());
    key[8..10].copy_from_slice(&from.to_be_bytes());
    key[10..12].copy_from_slice(&to.to_be_bytes());
    key[12] = protocol;
    key
}

/// Returns random keys of packets. Nine of ten keys match a rule that is drawn uniformly. The other keys mix the
/// addresses of two rules.
pub fn trace(rules: &[FiveTuple], count: usize, seed: u64) -> Vec<[u8; KEY_BYTES]> {
    let random = &mut Random::new(seed);
    (0..count)
        .map(|_| {
            let mut key = inside(&rules[random.below(rules.len())], random);
            if random.below(10) == 0 {
                let other = inside(&rules[random.below(rules.len())], random);
                key[4..8].copy_from_slice(&other[4..8]);
            }
            key
        })
        .collect()
}

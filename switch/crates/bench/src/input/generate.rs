// SPDX-License-Identifier: Apache-2.0
//! Generates routing tables of any size that resemble a full Internet table. The tables have similar shares of each
//! prefix length, of nested prefixes, and of adjacent prefixes (see [`super::mix`]).

use std::collections::HashSet;

use sluice_fib::Prefix;

use super::mix::{IPV4, IPV6, IPV6_REGIONS, Share};
use super::random::Random;
use super::routes::Family;

/// Maximum number of attempts to find a new prefix that is nested or adjacent as the mix requires. If all attempts
/// fail, the prefix may lie anywhere in the assigned space.
const ATTEMPTS: u32 = 64;

/// Parameters of an address family for the generation of tables.
pub(crate) trait Space: Family {
    /// Number of prefixes of each length in a real table, with the shares of nested and of adjacent prefixes.
    const MIX: &'static [Share];

    /// Returns a random address from the space that registries assign.
    fn anywhere(random: &mut Random) -> Self;
}

impl Space for u32 {
    const MIX: &'static [Share] = IPV4;

    fn anywhere(random: &mut Random) -> Self {
        loop {
            let address = random.word() as u32;
            if matches!(address >> 24, 1..=9 | 11..=126 | 128..=223) {
                return address;
            }
        }
    }
}

impl Space for u128 {
    const MIX: &'static [Share] = IPV6;

    fn anywhere(random: &mut Random) -> Self {
        let region = *random.pick(IPV6_REGIONS);
        u128::from(region) << 112 | random.wide() >> 16
    }
}

/// A table that is being generated.
struct Table<A> {
    random: Random,
    prefixes: Vec<Prefix<A>>,
    present: HashSet<(A, u32)>,
}

impl<A: Space> Table<A> {
    fn holds(&self, prefix: Prefix<A>) -> bool {
        self.present.contains(&(prefix.address(), prefix.length()))
    }

    fn push(&mut self, prefix: Prefix<A>) {
        self.present.insert((prefix.address(), prefix.length()));
        self.prefixes.push(prefix);
    }

    /// Generates a new prefix with the length of `share`. The first `shorter` prefixes of the table are shorter than
    /// this length.
    fn prefix(&mut self, share: &Share, shorter: usize) -> Prefix<A> {
        for _ in 0..ATTEMPTS {
            let last = self
                .prefixes
                .last()
                .filter(|last| last.length() == share.length);
            let next = last.and_then(|last| last.address().following(share.length));
            if let Some(next) = next
                && self.random.chance(f64::from(share.adjacent) / 100.0)
            {
                let prefix = Prefix::new(next, share.length);
                if !self.holds(prefix) {
                    return prefix;
                }
            }
            let nested = self.random.chance(f64::from(share.nested) / 100.0) && shorter > 0;
            let address = if nested {
                let outer = *self.random.pick(&self.prefixes[..shorter]);
                A::within(outer, &mut self.random)
            } else {
                A::anywhere(&mut self.random)
            };
            let prefix = Prefix::new(address, share.length);
            if !self.holds(prefix) && (nested || !self.covered(prefix)) {
                return prefix;
            }
        }
        loop {
            let prefix = Prefix::new(A::anywhere(&mut self.random), share.length);
            if !self.holds(prefix) {
                return prefix;
            }
        }
    }

    fn covered(&self, prefix: Prefix<A>) -> bool {
        let shorter = A::MIX.iter().map(|share| share.length);
        shorter
            .take_while(|length| *length < prefix.length())
            .any(|length| self.holds(Prefix::new(prefix.address(), length)))
    }
}

/// Generates a table of `count` prefixes, shortest first.
pub(crate) fn table<A: Space>(count: usize, seed: u64) -> Vec<Prefix<A>> {
    let mut table = Table {
        random: Random::new(seed),
        prefixes: Vec::with_capacity(count),
        present: HashSet::with_capacity(count),
    };
    let total: u64 = A::MIX.iter().map(|share| u64::from(share.count)).sum();
    let mut counted = 0;
    for share in A::MIX {
        counted += u64::from(share.count);
        let until = (counted as u128 * count as u128 / u128::from(total)) as usize;
        let shorter = table.prefixes.len();
        while table.prefixes.len() < until {
            let prefix = table.prefix(share, shorter);
            table.push(prefix);
        }
    }
    table.prefixes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nested_share<A: Space>(prefixes: &[Prefix<A>]) -> f64 {
        let present: HashSet<_> = prefixes.iter().map(|p| (p.address(), p.length())).collect();
        let nested = prefixes.iter().filter(|prefix| {
            (0..prefix.length())
                .any(|length| present.contains(&(prefix.address().truncate(length), length)))
        });
        nested.count() as f64 / prefixes.len() as f64
    }

    #[test]
    fn ipv4_tables_have_the_mix_and_the_nesting() {
        let prefixes = table::<u32>(20_000, 1);
        assert_eq!(prefixes.len(), 20_000);
        let long = prefixes
            .iter()
            .filter(|prefix| prefix.length() == 24)
            .count();
        assert!((11_000..13_000).contains(&long), "{long}");
        let nested = nested_share(&prefixes);
        assert!((0.4..0.7).contains(&nested), "{nested}");
    }

    #[test]
    fn ipv6_tables_are_distinct_and_the_same_for_the_same_seed() {
        let prefixes = table::<u128>(5_000, 2);
        let distinct: HashSet<_> = prefixes.iter().map(|p| (p.address(), p.length())).collect();
        assert_eq!(distinct.len(), 5_000);
        assert_eq!(prefixes, table::<u128>(5_000, 2));
        let nested = nested_share(&prefixes);
        assert!((0.4..0.75).contains(&nested), "{nested}");
    }
}

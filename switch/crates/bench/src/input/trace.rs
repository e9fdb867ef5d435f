// SPDX-License-Identifier: Apache-2.0
//! Draws traces of addresses, which the benchmarks look up.
//!
//! - *uniform*: each announced address has the same probability. Used only for IPv4, because nine in ten announced
//!   addresses of IPv6 lie in a few short prefixes.
//! - *prefixes*: each prefix has the same probability, and so has each address in a prefix. Replaces the uniform trace
//!   for IPv6.
//! - *zipf*: the keys are chosen from a million destinations of the uniform trace. The probability of the n-th
//!   destination is proportional to 1/n.

use sluice_fib::Prefix;

use super::random::{Random, Zipf};
use super::routes::{Family, Route};

/// A named trace of keys.
pub(crate) struct Trace<A> {
    pub(crate) name: &'static str,
    pub(crate) keys: Vec<A>,
    /// The keys in network order, for IPv6 peers that require this order.
    pub(crate) bytes: Vec<[u8; 16]>,
}

impl<A: Family> Trace<A> {
    /// Creates a trace of these keys.
    pub(crate) fn new(name: &'static str, keys: Vec<A>) -> Self {
        let bytes = if A::BITS > 32 {
            keys.iter().map(|key| key.bytes()).collect()
        } else {
            Vec::new()
        };
        Self { name, keys, bytes }
    }
}

/// The union of all prefixes, as disjoint intervals of addresses.
struct Announced<A> {
    first: Vec<A>,
    /// For each interval, the number of addresses in it and in all earlier intervals.
    until: Vec<f64>,
}

impl<A: Family> Announced<A> {
    fn of(routes: &[Route<A>]) -> Self {
        let mut prefixes: Vec<Prefix<A>> = routes.iter().map(|(prefix, _)| *prefix).collect();
        prefixes.sort();
        let mut announced = Self {
            first: Vec::new(),
            until: Vec::new(),
        };
        let (mut last, mut total) = (None, 0.0);
        for prefix in prefixes {
            if last.is_none_or(|last| prefix.address() > last) {
                total += prefix.address().distance(A::last(prefix)) + 1.0;
                announced.first.push(prefix.address());
                announced.until.push(total);
                last = Some(A::last(prefix));
            }
        }
        announced
    }

    fn address(&self, random: &mut Random) -> A {
        let at = random.unit() * self.until.last().copied().unwrap_or(0.0);
        let interval = self.until.partition_point(|until| *until <= at);
        let before = interval
            .checked_sub(1)
            .map_or(0.0, |before| self.until[before]);
        self.first[interval].plus(at - before)
    }
}

/// Draws a trace of `count` keys. The distribution is uniform over the announced addresses or, for IPv6, over the
/// prefixes.
pub(crate) fn uniform<A: Family>(routes: &[Route<A>], count: usize, seed: u64) -> Trace<A> {
    let random = &mut Random::new(seed);
    if A::BITS > 32 {
        let keys = (0..count).map(|_| A::within(random.pick(routes).0, random));
        Trace::new("prefixes", keys.collect())
    } else {
        let announced = Announced::of(routes);
        let keys = (0..count).map(|_| announced.address(random));
        Trace::new("uniform", keys.collect())
    }
}

/// Draws a trace of `count` keys with Zipf's distribution over `destinations` keys of the uniform trace.
pub(crate) fn zipf<A: Family>(
    routes: &[Route<A>],
    destinations: usize,
    count: usize,
    seed: u64,
) -> Trace<A> {
    let all = uniform(routes, destinations, seed ^ 0x5a).keys;
    let (ranks, mut random) = (Zipf::new(all.len()), Random::new(seed));
    let keys = (0..count).map(|_| all[ranks.rank(&mut random)]);
    Trace::new("zipf", keys.collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::input::{generate, routes};

    #[test]
    fn all_keys_are_announced() {
        let routes = routes::with_next_hops(generate::table::<u32>(2_000, 5));
        for trace in [uniform(&routes, 4_096, 6), zipf(&routes, 512, 4_096, 7)] {
            let known = |key| routes.iter().any(|(prefix, _)| prefix.contains(key));
            assert!(trace.keys.iter().all(|key| known(*key)), "{}", trace.name);
        }
    }

    #[test]
    fn uniform_keys_follow_the_size_of_prefixes() {
        let routes = [
            (Prefix::new(0x0a00_0000_u32, 8), 1),
            (Prefix::new(0x1400_0000, 10), 2),
        ];
        let trace = uniform(&routes, 10_000, 8);
        let small = trace.keys.iter().filter(|key| **key >> 24 == 0x14).count();
        assert!((1_800..2_200).contains(&small), "{small}");
    }

    #[test]
    fn some_destinations_are_far_more_popular_in_zipf() {
        let routes = routes::with_next_hops(generate::table::<u128>(500, 9));
        let mut keys = zipf(&routes, 1_000, 8_192, 10).keys;
        keys.sort_unstable();
        let most = keys.chunk_by(|a, b| a == b).map(<[u128]>::len).max();
        assert!(most > Some(600), "{most:?}");
    }
}

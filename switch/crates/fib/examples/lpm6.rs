// SPDX-License-Identifier: Apache-2.0
//! Measures IPv6 lookups in a routing table: the lookup rates, the memory and the cost of updates.
//!
//! ```text
//! BGP_TABLE=prefixes.txt cargo run --release -p sluice-fib --example lpm6
//! ```
//! The file has one prefix per line. Without a file, the example uses a random table with the prefix lengths of the
//! Internet's table. Each result is the best of several short rounds. Use this example to compare two versions of this
//! crate. The crate `bench` compares this crate with other implementations.

use std::hint::black_box;
use std::net::Ipv6Addr;
use std::time::{Duration, Instant};

use sluice_fib::{Algorithm, BoundTree16, Prefix, Rib};

/// Prefix lengths of the Internet's table, each with its share in 1/1000.
const MIX: [(u32, u64); 16] = [
    (28, 1),
    (29, 27),
    (32, 141),
    (33, 18),
    (34, 16),
    (36, 37),
    (38, 10),
    (39, 9),
    (40, 84),
    (42, 14),
    (44, 90),
    (45, 10),
    (46, 19),
    (47, 20),
    (48, 502),
    (64, 2),
];

/// `PIECE` is the number of addresses that are timed together, `BATCH` the number of addresses that one call looks up,
/// and `ROUNDS` the number of rounds over all addresses.
const PIECE: usize = 1 << 14;
const BATCH: usize = 256;
const ROUNDS: usize = 20;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ word >> 31
    }

    fn below(&mut self, limit: usize) -> usize {
        (self.next() % limit as u64) as usize
    }

    fn address(&mut self) -> u128 {
        u128::from(self.next()) << 64 | u128::from(self.next())
    }

    /// Returns a random rank from 0 to `count` - 1. Its probability is inversely proportional to rank + 1.
    fn zipf(&mut self, count: usize) -> usize {
        let unit = (self.next() >> 11) as f64 / (1u64 << 53) as f64;
        ((count as f64).powf(unit) as usize - 1).min(count - 1)
    }
}

fn table(random: &mut Random) -> Vec<Prefix<u128>> {
    let Ok(path) = std::env::var("BGP_TABLE") else {
        return made_up(random, 160_000);
    };
    let text = std::fs::read_to_string(path).expect("BGP_TABLE can be read");
    let lines = text.lines().filter_map(|line| line.trim().split_once('/'));
    let parsed = lines.filter_map(|(address, length)| {
        let address: Ipv6Addr = address.parse().ok()?;
        Some(Prefix::new(address.into(), length.parse().ok()?))
    });
    parsed.collect()
}

/// Returns random prefixes. Their first 16 bits have only about sixty different values. More than half of the prefixes
/// are inside other prefixes.
fn made_up(random: &mut Random, count: usize) -> Vec<Prefix<u128>> {
    let mut prefixes: Vec<Prefix<u128>> = Vec::new();
    while prefixes.len() < count {
        let mut rest = random.below(1000) as u64;
        let mixed = MIX.iter().find(|(_, share)| {
            let here = rest < *share;
            rest = rest.saturating_sub(*share);
            here
        });
        let length = mixed.map_or(48, |(length, _)| *length);
        let outer = match prefixes.len() {
            0 => Prefix::new(0, 0),
            known => prefixes[random.below(known)],
        };
        let base = if outer.length() > 0 && outer.length() < length && random.below(5) < 3 {
            outer
        } else {
            let block = 0x2400 + 0x200 * random.below(4) as u128 + random.below(15) as u128;
            Prefix::new(block << 112, 16)
        };
        let within = random.address().checked_shr(base.length()).unwrap_or(0);
        prefixes.push(Prefix::new(base.address() | within, length));
    }
    prefixes
}

/// Returns the time that `work` takes for all addresses. Times each piece of the addresses several times, and adds up
/// the best time of each piece. So other load on the machine has little effect.
fn best(addresses: &[u128], mut work: impl FnMut(&[u128])) -> f64 {
    let mut bests = vec![f64::INFINITY; addresses.len().div_ceil(PIECE)];
    for _ in 0..ROUNDS {
        for (piece, best) in addresses.chunks(PIECE).zip(&mut bests) {
            let start = Instant::now();
            work(piece);
            *best = best.min(start.elapsed().as_secs_f64());
        }
    }
    bests.iter().sum()
}

fn rates<T: Algorithm<u128>>(fib: &T, name: &str, addresses: &[u128]) {
    let mut values = vec![0; PIECE];
    let batch = best(addresses, |piece| {
        for (addresses, values) in piece.chunks(BATCH).zip(values.chunks_mut(BATCH)) {
            fib.lookup_batch(addresses, values);
        }
    });
    let single = best(addresses, |piece| {
        for (address, value) in piece.iter().zip(&mut values) {
            *value = fib.lookup(*address);
        }
    });
    let dependent = best(addresses, |piece| {
        let mut last = 0;
        for address in piece {
            last = fib.lookup(*address ^ u128::from(last & 1));
        }
        black_box(last);
    });
    let ns = |time: f64| time * 1e9 / addresses.len() as f64;
    println!(
        "{name:10} batch {:6.1} M/s ({:5.2} ns)   single {:6.2} ns   dependent {:6.2} ns",
        1e3 / ns(batch),
        ns(batch),
        ns(single),
        ns(dependent),
    );
}

fn main() {
    let mut random = Random(1);
    let prefixes = table(&mut random);
    let mut rib = Rib::new();
    let next_hops = 1 << 14;
    for prefix in &prefixes {
        rib.insert(*prefix, random.below(next_hops) as u32);
    }
    let start = Instant::now();
    let mut fib = BoundTree16::build(&rib).expect("the routes fit");
    println!(
        "{} routes, built in {:?}, {:.2} MiB, RIB {:.2} MiB",
        rib.len(),
        start.elapsed(),
        fib.memory_bytes() as f64 / 1048576.0,
        rib.memory_bytes() as f64 / 1048576.0,
    );
    let trace = 1 << 20;
    let host = |random: &mut Random, prefix: Prefix<u128>| {
        prefix.address() | random.address().checked_shr(prefix.length()).unwrap_or(0)
    };
    let uniform: Vec<u128> = (0..trace)
        .map(|_| {
            let prefix = prefixes[random.below(prefixes.len())];
            host(&mut random, prefix)
        })
        .collect();
    let mut ranked = prefixes.clone();
    for index in (1..ranked.len()).rev() {
        ranked.swap(index, random.below(index + 1));
    }
    let zipf: Vec<u128> = (0..trace)
        .map(|_| {
            let prefix = ranked[random.zipf(ranked.len())];
            host(&mut random, prefix)
        })
        .collect();
    // Looks up the same few addresses repeatedly. This shows the cost when all data is in the first-level cache.
    let few: Vec<u128> = uniform
        .iter()
        .copied()
        .take(128)
        .cycle()
        .take(PIECE)
        .collect();
    for (name, addresses) in [("few", &few), ("uniform", &uniform), ("zipf", &zipf)] {
        for address in addresses {
            let expected = rib.lookup(*address).map_or(u32::MAX, |(_, value)| value);
            assert_eq!(fib.lookup(*address), expected, "{address:x}");
        }
        rates(&fib, name, addresses);
    }
    updates(&mut random, &prefixes, &mut rib, &mut fib);
    rates(&fib, "uniform", &uniform);
}

fn updates(
    random: &mut Random,
    prefixes: &[Prefix<u128>],
    rib: &mut Rib<u128>,
    fib: &mut BoundTree16,
) {
    let mut spent = Duration::ZERO;
    let count = 100_000;
    let mut slowest = Duration::ZERO;
    for step in 0..count {
        let prefix = prefixes[random.below(prefixes.len())];
        if step % 3 == 0 {
            rib.remove(prefix);
        } else {
            rib.insert(prefix, random.below(1 << 14) as u32);
        }
        let start = Instant::now();
        fib.refresh(prefix, rib).expect("the routes fit");
        let took = start.elapsed();
        spent += took;
        slowest = slowest.max(took);
    }
    println!(
        "updates: {:.2} us each, the slowest {slowest:?}; then {:.2} MiB",
        spent.as_secs_f64() * 1e6 / f64::from(count),
        fib.memory_bytes() as f64 / 1048576.0
    );
    for prefix in prefixes {
        let address = prefix.address();
        let expected = rib.lookup(address).map_or(u32::MAX, |(_, value)| value);
        assert_eq!(fib.lookup(address), expected, "{prefix:?}");
    }
}

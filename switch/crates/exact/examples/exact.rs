// SPDX-License-Identifier: Apache-2.0
//! Measures lookups in this table and in `hashbrown` with its default keyed hash. Also measures a chain of dependent
//! reads in as much memory as the table has. Prints nanoseconds per operation, as the median of seven interleaved
//! rounds.
//!
//! `cargo run --release -p sluice-exact --example exact -- [ENTRIES] [KEY_BYTES] [LOOKUPS]`

use std::hint::black_box;
use std::time::{Duration, Instant};

use hashbrown::HashMap;
use sluice_exact::Exact;

const ROUNDS: usize = 7;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

fn key<const N: usize>(random: &mut Random) -> [u8; N] {
    std::array::from_fn(|_| (random.next() >> 24) as u8)
}

/// Returns a random cycle through all cache lines of `bytes` bytes of memory.
fn chain(bytes: usize, random: &mut Random) -> Vec<[u32; 16]> {
    let lines = (bytes / 64).max(2);
    let mut order: Vec<u32> = (0..lines as u32).collect();
    for index in (1..lines).rev() {
        order.swap(index, (random.next() % (index as u64 + 1)) as usize);
    }
    let mut chain = vec![[0; 16]; lines];
    for (at, next) in order.iter().zip(order.iter().cycle().skip(1)) {
        chain[*at as usize][0] = *next;
    }
    chain
}

fn nanoseconds(times: &mut [Duration], count: usize) -> f64 {
    times.sort_unstable();
    times[times.len() / 2].as_secs_f64() * 1e9 / count as f64
}

fn run<const N: usize>(entries: usize, count: usize) {
    let mut random = Random(0x1234_5678_9abc_def1);
    let keys: Vec<[u8; N]> = (0..entries).map(|_| key(&mut random)).collect();
    let mut ours = Exact::new(N);
    let mut longest = Duration::ZERO;
    let start = Instant::now();
    for (index, key) in keys.iter().enumerate() {
        let before = Instant::now();
        ours.insert(key, index as u32);
        longest = longest.max(before.elapsed());
    }
    let ours_insert = start.elapsed();
    let mut theirs = HashMap::<[u8; N], u32>::new();
    let start = Instant::now();
    for (index, key) in keys.iter().enumerate() {
        theirs.insert(*key, index as u32);
    }
    let theirs_insert = start.elapsed();
    let trace: Vec<[u8; N]> = (0..count)
        .map(|_| keys[(random.next() % entries as u64) as usize])
        .collect();
    let line = chain(ours.memory_bytes(), &mut random);
    let mut times: [Vec<Duration>; 6] = Default::default();
    let mut values = vec![0; count];
    for _ in 0..ROUNDS {
        let mut timed = |index: usize, what: &mut dyn FnMut()| {
            let start = Instant::now();
            what();
            times[index].push(start.elapsed());
        };
        timed(0, &mut || {
            ours.lookup_batch(trace.as_flattened(), &mut values)
        });
        timed(1, &mut || {
            let sum = trace.iter().fold(0, |sum, key| sum ^ theirs[key]);
            black_box(sum);
        });
        timed(2, &mut || {
            let sum = trace
                .iter()
                .fold(0, |sum, key| sum ^ ours.get(key).unwrap_or(0));
            black_box(sum);
        });
        // Measures dependent lookups: the value of one key determines the next key.
        timed(3, &mut || {
            let mut at = 0usize;
            for step in 0..count {
                let found = ours.get(&trace[at]).unwrap_or(0) as usize;
                at = (step + (found & 1)) & (count - 1);
            }
            black_box(at);
        });
        timed(4, &mut || {
            let mut at = 0usize;
            for step in 0..count {
                let found = theirs[&trace[at]] as usize;
                at = (step + (found & 1)) & (count - 1);
            }
            black_box(at);
        });
        timed(5, &mut || {
            let mut at = 0u32;
            for _ in 0..count {
                at = line[at as usize][0];
            }
            black_box(at);
        });
    }
    let [batch, theirs_get, get, dependent, theirs_dependent, read] =
        times.each_mut().map(|times| nanoseconds(times, count));
    let per_key = |bytes: usize| bytes as f64 / entries as f64;
    println!(
        "{entries} keys of {N} bytes: {:.1} bytes a key; insert {:.0} ns, longest {:.0} us \
         (hashbrown {:.0} ns)\n  batch {batch:.1} ns, one by one {get:.1}, hashbrown \
         {theirs_get:.1}: {:.2} x and {:.2} x\n  dependent {dependent:.1}, hashbrown \
         {theirs_dependent:.1}, a dependent read {read:.1}: {:.2} of a read",
        per_key(ours.memory_bytes()),
        ours_insert.as_secs_f64() * 1e9 / entries as f64,
        longest.as_secs_f64() * 1e6,
        theirs_insert.as_secs_f64() * 1e9 / entries as f64,
        theirs_get / batch,
        theirs_get / get,
        dependent / read,
    );
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let mut number = |default: usize| {
        let given = arguments.next().and_then(|text| text.parse().ok());
        given.unwrap_or(default)
    };
    let (entries, key_bytes) = (number(1_000_000), number(13));
    let lookups = number(1 << 20).next_power_of_two();
    match key_bytes {
        13 => run::<13>(entries, lookups),
        19 => run::<19>(entries, lookups),
        37 => run::<37>(entries, lookups),
        43 => run::<43>(entries, lookups),
        other => eprintln!("keys of 13, 19, 37 or 43 bytes, not {other}"),
    }
}

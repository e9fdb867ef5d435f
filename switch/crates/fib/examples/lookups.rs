// SPDX-License-Identifier: Apache-2.0
//! Measures lookup rates and sizes of the IPv4 algorithms: `BGP_TABLE=FILE cargo run --release --example lookups`.
//!
//! FILE has one prefix per line. If its name ends with `.xz`, `xz` unpacks the file. Without FILE, the example uses a
//! random table with the prefix lengths of the Internet's table.

use std::hint::black_box;
use std::net::Ipv4Addr;
use std::time::Instant;

use sluice_fib::{Algorithm, BitmapRank16, BitmapRank32, Prefix, Rib};

/// Shares of the prefixes of length 8, 9, ... 24, in 1/1000.
const LENGTHS: [u32; 17] = [0, 0, 0, 0, 1, 1, 1, 2, 15, 9, 15, 28, 47, 56, 121, 107, 597];

fn random(state: &mut u64) -> u32 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1);
    let mixed = *state ^ *state >> 29;
    (mixed.wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32) as u32
}

fn made_up(count: usize, state: &mut u64) -> Vec<Prefix<u32>> {
    let all: u32 = LENGTHS.iter().sum();
    let mut prefixes = Vec::with_capacity(count);
    while prefixes.len() < count {
        let mut at = random(state) % all;
        let mut length = 8;
        for weight in LENGTHS {
            if at < weight {
                break;
            }
            at -= weight;
            length += 1;
        }
        let address = random(state) % 0xdf00_0000;
        prefixes.push(Prefix::new(address, length));
    }
    prefixes
}

fn read(path: &str) -> std::io::Result<Vec<Prefix<u32>>> {
    let text = if path.ends_with(".xz") {
        let output = std::process::Command::new("xz")
            .args(["-dc", path])
            .output()?;
        String::from_utf8_lossy(&output.stdout).into_owned()
    } else {
        std::fs::read_to_string(path)?
    };
    let prefixes = text.lines().filter_map(|line| {
        let (address, length) = line.trim().split_once('/')?;
        let address: Ipv4Addr = address.parse().ok()?;
        Some(Prefix::new(address.into(), length.parse().ok()?))
    });
    Ok(prefixes.collect())
}

/// Number of lookups in a slice, which is timed as a whole. It is small, so that another process seldom interrupts a
/// slice.
const SLICE: usize = 2048;

/// Returns the number of lookups per second in the median slice.
fn typical(keys: &[u32], mut look_up: impl FnMut(&[u32]) -> u32) -> f64 {
    let mut times = Vec::new();
    for _ in 0..3 {
        for slice in keys.chunks_exact(SLICE) {
            let start = Instant::now();
            black_box(look_up(slice));
            times.push(start.elapsed().as_secs_f64());
        }
    }
    times.sort_by(f64::total_cmp);
    SLICE as f64 / times[times.len() / 2]
}

fn rate<T: Algorithm<u32>>(name: &str, rib: &mut Rib<u32>, prefixes: &[Prefix<u32>], values: u32) {
    let start = Instant::now();
    let mut algorithm = match T::build(rib) {
        Ok(algorithm) => algorithm,
        Err(error) => return println!("{name:8} {error}"),
    };
    let built = start.elapsed();
    let mut state = 7;
    let keys: Vec<u32> = (0..1 << 20)
        .map(|_| {
            let prefix = prefixes[random(&mut state) as usize % prefixes.len()];
            prefix.address() | random(&mut state).checked_shr(prefix.length()).unwrap_or(0)
        })
        .collect();
    let batch = typical(&keys, |keys| {
        let mut found = [0; SLICE];
        for (keys, found) in keys.chunks(256).zip(found.chunks_mut(256)) {
            algorithm.lookup_batch(keys, found);
        }
        black_box(found)[0]
    });
    let dependent = typical(&keys, |keys| {
        let look_up = |last: u32, key: &u32| algorithm.lookup(key ^ (last & 1) << 8);
        keys.iter().fold(0, look_up)
    });
    let bytes = algorithm.memory_bytes();
    let start = Instant::now();
    let updates = 100_000;
    for _ in 0..updates {
        let prefix = prefixes[random(&mut state) as usize % prefixes.len()];
        rib.insert(prefix, random(&mut state) % values);
        if algorithm.refresh(prefix, rib).is_err() {
            println!("{name} rebuilt at {prefix:?}");
        }
    }
    let update = start.elapsed().as_secs_f64() / f64::from(updates);
    println!(
        "{name:8} {:8.1} M/s in batches, {:6.1} M/s dependent, {:6.2} MiB, built in {built:.0?}, \
         {:.2} us an update, {:.2} MiB after them",
        batch / 1e6,
        dependent / 1e6,
        bytes as f64 / f64::from(1 << 20),
        update * 1e6,
        algorithm.memory_bytes() as f64 / f64::from(1 << 20),
    );
}

fn main() -> std::io::Result<()> {
    let mut state = 1;
    let prefixes = match std::env::var("BGP_TABLE") {
        Ok(path) => read(&path)?,
        Err(_) => made_up(1_000_000, &mut state),
    };
    for values in [16, 256, 30_000] {
        let mut rib = Rib::new();
        let start = Instant::now();
        for prefix in &prefixes {
            rib.insert(*prefix, random(&mut state) % values);
        }
        let insert = start.elapsed().as_secs_f64() / prefixes.len() as f64;
        println!(
            "{} routes, {values} values: RIB {:.1} MiB, {:.2} us an insert",
            rib.len(),
            rib.memory_bytes() as f64 / f64::from(1 << 20),
            insert * 1e6
        );
        rate::<BitmapRank16>("rank16", &mut rib, &prefixes, values);
        rate::<BitmapRank32>("rank32", &mut rib, &prefixes, values);
    }
    Ok(())
}

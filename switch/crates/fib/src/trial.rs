// SPDX-License-Identifier: Apache-2.0
//! Measures every algorithm on the current routes, with addresses of randomly chosen routes.

use std::hint::black_box;
use std::time::{Duration, Instant};

use sluice_random::Random;

use crate::address::{Address, Prefix};
use crate::algorithm::{Algorithm, BuildError};
use crate::named_algorithm::{Family, NamedAlgorithm};
use crate::rib::Rib;

/// Number of lookups in a slice, which is timed as a whole. It is small, so that other work seldom interrupts a slice.
const SLICE: usize = 1024;

/// Number of slices that are timed. The result is their median.
const SLICES: usize = 256;

/// Result of one algorithm for the current routes.
#[derive(Clone, Debug)]
pub struct Trial {
    /// Name of the algorithm.
    pub algorithm: &'static str,
    /// Rates and size, or the reason why the algorithm cannot hold the routes.
    pub outcome: Result<Rates, BuildError>,
}

/// Lookup rates, size and build time of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Rates {
    /// Lookups per second, in batches.
    pub batch: f64,
    /// Lookups per second, if each lookup depends on the previous one.
    pub dependent: f64,
    /// Size in bytes.
    pub bytes: usize,
    /// Duration of the build.
    pub build: Duration,
}

impl<A: Family> Rib<A> {
    /// Builds every algorithm for these routes and measures it. Each algorithm takes its build time, and a few
    /// milliseconds for the lookups.
    pub fn try_algorithms(&self) -> Vec<Trial> {
        let addresses = self.addresses();
        let trial = |kind: &NamedAlgorithm<A>| Trial {
            algorithm: kind.name,
            outcome: self.measure(kind, &addresses),
        };
        A::ALGORITHMS.iter().map(trial).collect()
    }

    fn measure(&self, kind: &NamedAlgorithm<A>, addresses: &[A]) -> Result<Rates, BuildError> {
        let start = Instant::now();
        let structure = kind.build(self)?;
        let build = start.elapsed();
        let mut values = [0; SLICE];
        let batch = typical(addresses, |addresses| {
            structure.lookup_batch(addresses, &mut values);
            values[0]
        });
        let dependent = typical(addresses, |addresses| dependent(&*structure, addresses));
        Ok(Rates {
            batch,
            dependent,
            bytes: structure.memory_bytes(),
            build,
        })
    }

    /// Returns addresses of randomly chosen routes.
    fn addresses(&self) -> Vec<A> {
        let mut prefixes = Vec::with_capacity(self.len());
        self.for_each(&mut |prefix, _| prefixes.push(prefix));
        if prefixes.is_empty() {
            prefixes.push(Prefix::new(A::default(), 0));
        }
        let mut random = Random::new(1);
        let mut address = || {
            let prefix = prefixes[(random.next_u64() >> 32) as usize % prefixes.len()];
            let bits = (0..A::BITS).step_by(32).fold(A::default(), |bits, start| {
                bits.union(A::of_bits((random.next_u64() >> 32) as u32, start, 32))
            });
            prefix.host(bits)
        };
        (0..SLICE * SLICES).map(|_| address()).collect()
    }
}

/// Looks up addresses one after the other. One bit of each address comes from the previous answer, so each lookup
/// depends on the previous one.
fn dependent<A: Address>(structure: &dyn Algorithm<A>, addresses: &[A]) -> u32 {
    let other = [A::default(), A::of_bits(1, 16, 8)];
    addresses.iter().fold(0, |last, address| {
        structure.lookup(address.union(other[(last & 1) as usize]))
    })
}

/// Returns the number of lookups per second in the median slice.
fn typical<A>(addresses: &[A], mut look_up: impl FnMut(&[A]) -> u32) -> f64 {
    let timed = addresses.chunks_exact(SLICE).map(|slice| {
        let start = Instant::now();
        black_box(look_up(slice));
        start.elapsed()
    });
    let mut times: Vec<_> = timed.collect();
    times.sort_unstable();
    SLICE as f64 / times[times.len() / 2].as_secs_f64()
}

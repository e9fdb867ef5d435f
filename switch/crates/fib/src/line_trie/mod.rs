// SPDX-License-Identifier: Apache-2.0
//! IPv6 look-ups in a few cache lines: [`LineTrie`].
//!
//! ```text
//! address  |   16 bits   |        32 bits         |     32     |     32     |  16  |
//!            index into      key of segment 0        segment 1    segment 2   segment 3
//!            `roots`              |
//!               |                 v
//!               +--> lines[start + (key >> shift)]     one cache line:
//!               |      starts  s7 <= s6 <= ... <= s0   8 or 16 intervals of keys ...
//!          or, if the  slots   v7    v6    ...    v0   ... and what each leads to:
//!          first 32 bits        |     |           |
//!          have a shortcut:  a value  |        lines over the next segment
//!          those lines            lines that split the interval further
//! ```
//!
//! The routes cut the space of addresses into ranges with one answer each. The first 16 bits pick
//! an array of lines (only some sixty of the 65,536 entries are in use on the Internet: they stay
//! in the first-level cache), the next bits pick a line by a shift alone, and the line is searched
//! with one vector compare. Where a region is denser than that, it has lines of its own under one
//! slot of a line; how far it is split is chosen by the ranges in it.
//!
//! More than half of the Internet's ranges are in a few thousand /32s with many routes each, which
//! would be three lines down. Those have shortcuts: a small hash table, looked at at the same time
//! as the roots, leads to their lines directly. Only 16 bits of the key are left there: if the values
//! are small, such lines hold 16 intervals of two times two bytes instead of 8 of two times four. So
//! an address costs one or two cache misses, and a batch has those of 32 or 64 addresses under way
//! together.
//!
//! After the direct index and range search of DXR (Zec, Rizzo, Mikuc: "DXR: towards a billion
//! routing lookups per second in software", SIGCOMM CCR 2012), made recursive, with lines as nodes.
//!
//! Depends on the RIB. Promises: the answers of a search over all prefixes, whatever the order of
//! updates; values below 2^31 - 1 and at most 2^23 lines (512 MiB), else an error when it is built.

#[cfg(target_arch = "x86_64")]
mod avx512;
mod batch;
mod build;
mod dense;
mod line;
mod pool;
mod roots;
mod update;

use std::collections::HashMap;

use build::Full;
use line::Slot;
use pool::Pool;
use roots::Roots;

use crate::{Algorithm, BuildError, NeedsRebuild, Prefix, Rib};

/// IPv6 routes as arrays of cache lines; see the module.
#[derive(Clone, Debug)]
pub struct LineTrie {
    roots: Roots,
    pool: Pool,
    /// For each root or dense /32, by its bits and their number: how often lines of it have
    /// overflown since it was built.
    overflows: HashMap<(u32, u32), u32>,
    kernel: batch::Kernel,
}

/// The ranges of a prefix' addresses with their answers, in ascending order.
fn ranges(rib: &Rib<u128>, prefix: Prefix<u128>) -> Result<Vec<(u128, Slot)>, BuildError> {
    let mut ranges = Vec::new();
    let mut largest = None;
    rib.for_each_range(prefix, &mut |first, value| {
        largest = largest.max(value);
        ranges.push((first, value.map_or(Slot::NONE, Slot::of_value)));
    });
    match largest {
        Some(value) if value >= Slot::MAX_VALUE => Err(BuildError::ValueTooLarge {
            value,
            limit: Slot::MAX_VALUE - 1,
        }),
        _ => Ok(ranges),
    }
}

impl From<Full> for BuildError {
    fn from(Full: Full) -> Self {
        Self::TooManyRoutes
    }
}

impl Algorithm<u128> for LineTrie {
    fn build(rib: &Rib<u128>) -> Result<Self, BuildError> {
        let mut pool = Pool::default();
        let ranges = ranges(rib, Prefix::new(0, 0))?;
        let roots = Roots::new(&mut pool, &ranges)?;
        pool.shrink();
        Ok(Self {
            roots,
            pool,
            overflows: HashMap::new(),
            kernel: batch::Kernel::detect(),
        })
    }

    #[inline]
    fn lookup(&self, address: u128) -> u32 {
        let mut key = build::key(address, 0);
        let mut segment = 0;
        let mut array = self.roots.find((address >> 64) as u64);
        loop {
            // SAFETY: every array in `roots` and in the lines in use leads to lines of the pool
            // for each key in its region (`Array` and `build`).
            let line = unsafe { self.pool.lines().get_unchecked(array.line(key)) };
            let slot = if array.is_narrow() {
                let line = line.narrow();
                let short = line.slots[line.select(key)];
                match short.escaped() {
                    None => return short.widened().result(),
                    Some(index) => self.pool.escapes()[index],
                }
            } else {
                let line = line.wide();
                line.slots[line.select(key)]
            };
            if slot.is_final() {
                return slot.result();
            }
            array = slot.array();
            if slot.is_next() {
                segment += 1;
                key = build::key(address, segment);
            }
        }
    }

    fn lookup_batch(&self, addresses: &[u128], values: &mut [u32]) {
        assert_eq!(addresses.len(), values.len());
        self.kernel.run(&self.roots, &self.pool, addresses, values);
    }

    fn refresh(&mut self, prefix: Prefix<u128>, rib: &Rib<u128>) -> Result<(), NeedsRebuild> {
        self.update(prefix, rib).map_err(|_| NeedsRebuild)
    }

    fn memory_bytes(&self) -> usize {
        let overflows = self.overflows.capacity() * size_of::<((u32, u32), u32)>();
        size_of::<Self>() + overflows + self.roots.memory_bytes() + self.pool.memory_bytes()
    }
}

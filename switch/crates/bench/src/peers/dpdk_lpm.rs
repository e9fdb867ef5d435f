// SPDX-License-Identifier: Apache-2.0
//! Wraps rte_fib, rte_lpm, rte_fib6 and rte_lpm6.

use std::ffi::{c_int, c_void};
use std::marker::PhantomData;
use std::ops::Range;

use anyhow::{Result, bail};

use super::dpdk::{Dpdk, Handle};
use crate::input::routes::{Family, Route};
use crate::input::trace::Trace;
use crate::lookup_tables::LpmTable;

type New = unsafe extern "C" fn(*const c_void, *const u8, *const u32, usize, usize) -> Handle;
type Run = unsafe extern "C" fn(Handle, *const c_void, usize) -> u64;
type Values = unsafe extern "C" fn(Handle, *const c_void, usize, *mut u32);
type Tune = unsafe extern "C" fn(Handle, *const c_void, usize) -> c_int;
type Free = unsafe extern "C" fn(Handle);

/// The structures of DPDK that look up routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DpdkStructure {
    Fib,
    Lpm,
}

/// A DPDK structure, filled with routes.
pub(crate) struct DpdkLpm<A> {
    name: &'static str,
    pub(super) table: Handle,
    lookup: Run,
    chain: Run,
    values: Values,
    free: Free,
    dpdk: Dpdk,
    family: PhantomData<A>,
}

/// Returns the keys of a trace in the library's form. IPv4 keys are in host order, IPv6 keys are 16 bytes in network
/// order.
fn keys<A: Family>(trace: &Trace<A>) -> *const c_void {
    from(trace, &(0..trace.keys.len()))
}

/// Returns the keys of a range of the trace, in the library's form.
fn from<A: Family>(trace: &Trace<A>, range: &Range<usize>) -> *const c_void {
    match A::BITS {
        32 => trace.keys[range.clone()].as_ptr().cast(),
        _ => trace.bytes[range.clone()].as_ptr().cast(),
    }
}

impl<A: Family> DpdkLpm<A> {
    /// Builds the structure with these routes, which must be sorted by length, shortest first. Leaves room for some
    /// more routes. Measures the structure's lookup functions with `sample`, and selects the fastest one.
    ///
    /// # Errors
    /// Fails if the structure cannot store all routes.
    pub(crate) fn new(
        dpdk: Dpdk,
        structure: DpdkStructure,
        routes: &[Route<A>],
        room: usize,
        sample: &Trace<A>,
    ) -> Result<Self> {
        let (name, stem) = match (structure, A::BITS) {
            (DpdkStructure::Fib, 32) => ("rte_fib", "peer_fib4"),
            (DpdkStructure::Lpm, 32) => ("rte_lpm", "peer_lpm4"),
            (DpdkStructure::Fib, _) => ("rte_fib6", "peer_fib6"),
            (DpdkStructure::Lpm, _) => ("rte_lpm6", "peer_lpm6"),
        };
        // SAFETY: the functions in dpdk.c have these types. Addresses and keys of both families are passed as untyped
        // pointers.
        let (new, lookup, chain, values, free) = unsafe {
            (
                dpdk.function::<New>(&format!("{stem}_new"))?,
                dpdk.function::<Run>(&format!("{stem}_lookup"))?,
                dpdk.function::<Run>(&format!("{stem}_chain"))?,
                dpdk.function::<Values>(&format!("{stem}_values"))?,
                dpdk.function::<Free>(&format!("{stem}_free"))?,
            )
        };
        let addresses: Vec<A> = routes.iter().map(|(prefix, _)| prefix.address()).collect();
        let addresses = Trace::new("", addresses);
        let lengths: Vec<u8> = routes
            .iter()
            .map(|(prefix, _)| prefix.length() as u8)
            .collect();
        let hops: Vec<u32> = routes.iter().map(|(_, hop)| *hop).collect();
        // SAFETY: the call only reads three arrays of `routes.len()` elements each.
        let table = unsafe {
            new(
                keys(&addresses),
                lengths.as_ptr(),
                hops.as_ptr(),
                routes.len(),
                room,
            )
        };
        if table.is_null() {
            bail!("{name} cannot hold {} {} routes", routes.len(), A::NAME);
        }
        let mut made = Self {
            name,
            table,
            lookup,
            chain,
            values,
            free,
            dpdk,
            family: PhantomData,
        };
        made.tune(stem, structure, sample)?;
        Ok(made)
    }

    /// Selects the fastest of the structure's lookup functions.
    fn tune(&mut self, stem: &str, structure: DpdkStructure, sample: &Trace<A>) -> Result<()> {
        if structure == DpdkStructure::Fib {
            // SAFETY: `peer_fib*_tune` has the type `Tune`.
            let tune = unsafe { self.dpdk.function::<Tune>(&format!("{stem}_tune"))? };
            // SAFETY: the table exists, and the passed length is the number of the sample's keys.
            if unsafe { tune(self.table, keys(sample), sample.keys.len()) } < 0 {
                bail!("{}: no look-up function for this processor", self.name);
            }
        } else if A::BITS == 32 {
            // SAFETY: `peer_lpm4_lookup_bulk` has the type `Run`.
            let bulk = unsafe { self.dpdk.function::<Run>("peer_lpm4_lookup_bulk")? };
            let time = |run: Run| {
                let passes = (0..3).map(|_| {
                    let start = crate::system::thread_time();
                    // SAFETY: the table exists, and the passed length is the number of the sample's keys.
                    unsafe { run(self.table, keys(sample), sample.keys.len()) };
                    crate::system::thread_time() - start
                });
                passes.min()
            };
            if time(bulk) < time(self.lookup) {
                self.lookup = bulk;
            }
        }
        Ok(())
    }
}

impl<A: Family> LpmTable<A> for DpdkLpm<A> {
    fn name(&self) -> &str {
        self.name
    }

    fn values(&self, trace: &Trace<A>, count: usize) -> Vec<u32> {
        let count = count.min(trace.keys.len());
        let mut values = vec![0; count];
        // SAFETY: the table exists. The call reads `count` keys and writes `count` values.
        unsafe { (self.values)(self.table, keys(trace), count, values.as_mut_ptr()) };
        values
    }

    fn lookup(&self, trace: &Trace<A>, range: Range<usize>) -> u64 {
        let some = from(trace, &range);
        // SAFETY: the table exists, and the passed keys are within the trace.
        unsafe { (self.lookup)(self.table, some, range.len()) }
    }

    fn chain(&self, trace: &Trace<A>) -> u64 {
        // SAFETY: the table exists, and the passed length is the number of the trace's keys.
        unsafe { (self.chain)(self.table, keys(trace), trace.keys.len()) }
    }
}

impl<A> Drop for DpdkLpm<A> {
    fn drop(&mut self) {
        // SAFETY: the table exists, and is not used afterwards.
        unsafe { (self.free)(self.table) }
    }
}

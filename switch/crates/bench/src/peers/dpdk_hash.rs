// SPDX-License-Identifier: Apache-2.0
//! Wraps rte_hash, with CRC32 instructions as its hash function. Keys are padded to a length for which rte_hash has a
//! specialized comparison. A lookup returns a key's position. The caller finds the entry by this position.

use std::ffi::c_void;
use std::slice::ChunksExact;

use anyhow::{Result, bail};

use super::dpdk::{Dpdk, Handle};
use crate::lookup_tables::{ExactTable, Keys};

/// Name of the peer in the results.
pub(crate) const NAME: &str = "rte_hash";

type New = unsafe extern "C" fn(*const u8, u32, u32, *mut i32) -> Handle;
type Run = unsafe extern "C" fn(Handle, *const u8, u32, usize) -> u64;
type Values = unsafe extern "C" fn(Handle, *const u8, u32, usize, *mut i32);
type Free = unsafe extern "C" fn(*mut c_void);

/// A table filled with entries, and the keys of the trace in the library's form.
pub(crate) struct DpdkHash {
    table: Handle,
    width: usize,
    trace: Vec<u8>,
    /// Entry numbers, indexed by the position that rte_hash returns for a key.
    entries: Vec<u32>,
    lookup: Run,
    chain: Run,
    values: Values,
    free: Free,
}

fn padded(keys: ChunksExact<'_, u8>, width: usize) -> Vec<u8> {
    let mut padded = Vec::with_capacity(keys.len() * width);
    for key in keys {
        padded.extend(key);
        padded.resize(padded.len().next_multiple_of(width), 0);
    }
    padded
}

impl DpdkHash {
    /// Builds the table with these keys, for the given trace.
    ///
    /// # Errors
    /// Fails if the table cannot store all keys.
    pub(crate) fn new(dpdk: Dpdk, table: &[u8], keys: &Keys) -> Result<Self> {
        // SAFETY: the functions in dpdk.c have these types.
        let (new, lookup, chain, values, free) = unsafe {
            (
                dpdk.function::<New>("peer_hash_new")?,
                dpdk.function::<Run>("peer_hash_lookup")?,
                dpdk.function::<Run>("peer_hash_chain")?,
                dpdk.function::<Values>("peer_hash_values")?,
                dpdk.function::<Free>("peer_hash_free")?,
            )
        };
        let width = keys.width.next_multiple_of(16);
        let count = table.len() / keys.width;
        let all = padded(table.chunks_exact(keys.width), width);
        let mut positions = vec![0; count];
        // SAFETY: `all` has `count` keys of `width` bytes, and `positions` has room for `count` positions.
        let handle = unsafe {
            let positions = positions.as_mut_ptr();
            new(all.as_ptr(), width as u32, count as u32, positions)
        };
        if handle.is_null() {
            bail!("rte_hash cannot hold {count} keys");
        }
        let last = positions.iter().max().map_or(0, |last| *last as usize);
        let mut entries = vec![u32::MAX; last + 1];
        for (entry, position) in positions.iter().enumerate() {
            entries[*position as usize] = entry as u32;
        }
        Ok(Self {
            table: handle,
            width,
            trace: padded(keys.bytes.chunks_exact(keys.width), width),
            entries,
            lookup,
            chain,
            values,
            free,
        })
    }

    fn run(&self, function: Run) -> u64 {
        let count = self.trace.len() / self.width;
        // SAFETY: the table exists, and the trace has `count` keys of `width` bytes.
        unsafe { function(self.table, self.trace.as_ptr(), self.width as u32, count) }
    }
}

impl ExactTable for DpdkHash {
    fn name(&self) -> &str {
        NAME
    }

    fn entries(&self, _: &Keys, count: usize) -> Vec<Option<u32>> {
        let count = count.min(self.trace.len() / self.width);
        let mut positions = vec![0; count];
        // SAFETY: the trace has at least `count` keys, and `positions` has room for `count` positions.
        unsafe {
            let (trace, width) = (self.trace.as_ptr(), self.width as u32);
            (self.values)(self.table, trace, width, count, positions.as_mut_ptr());
        }
        let entry = |position: i32| self.entries.get(usize::try_from(position).ok()?).copied();
        positions.into_iter().map(entry).collect()
    }

    fn lookup(&self, _: &Keys) -> u64 {
        self.run(self.lookup)
    }

    fn chain(&self, _: &Keys) -> u64 {
        self.run(self.chain)
    }

    fn memory_bytes(&self) -> Option<usize> {
        None
    }
}

impl Drop for DpdkHash {
    fn drop(&mut self) {
        // SAFETY: the table exists, and is not used afterwards.
        unsafe { (self.free)(self.table) }
    }
}

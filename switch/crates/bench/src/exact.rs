// SPDX-License-Identifier: Apache-2.0
//! Measures exact match of 5-tuples (`exact`), from a thousand to ten million entries.
//!
//! All keys that are looked up are in the table. Their order is random.
//!
//! * *batch*: as many lookups at a time as possible. Our table and rte_hash look up bursts of keys. hashbrown looks up
//!   one key after the other, so its lookups overlap only as far as the processor executes instructions ahead.
//! * *dependent*: each key depends on the previous value, whose lowest bit selects one of the next two keys of the
//!   trace.
//!
//! For comparison, `random-read` is a chain of reads in memory of the same size as our table, with one read in each
//! cache line. A lookup in such a table cannot take less time than such a read.

use std::collections::BTreeMap;
use std::hint::black_box;

use anyhow::{Result, bail};
use sluice_exact::Exact;

use crate::input::random::Random;
use crate::lookup_tables::{ExactTable, Keys, choose};
use crate::measure::{Contender, interleave};
use crate::peers::dpdk_hash::{self, DpdkHash};
use crate::peers::hashbrown;
use crate::report::{Case, Memory, OURS, Report};
use crate::setting::Setting;

const BURST: usize = 256;
const SEED: u64 = 0x6578;
/// Heap for rte_hash, in bytes.
const HEAP_BYTES: usize = 5 << 28;
/// Size in bytes of a 5-tuple: two addresses, two ports, and the protocol.
const IPV4_BYTES: usize = 13;
const IPV6_BYTES: usize = 37;

struct Own(Exact);

impl Own {
    fn new(width: usize, keys: &[u8]) -> Self {
        let mut table = Exact::new(width);
        for (entry, key) in keys.chunks_exact(width).enumerate() {
            table.insert(key, entry as u32);
        }
        Self(table)
    }
}

impl ExactTable for Own {
    fn name(&self) -> &str {
        OURS
    }

    fn entries(&self, keys: &Keys, count: usize) -> Vec<Option<u32>> {
        let some = &keys.bytes[..count * keys.width];
        let mut found = vec![0; count];
        self.0.lookup_batch(some, &mut found);
        let single = some.chunks_exact(keys.width).map(|key| self.0.get(key));
        let both = found.iter().zip(single);
        both.map(|(value, single)| single.filter(|single| single == value))
            .collect()
    }

    fn lookup(&self, keys: &Keys) -> u64 {
        let (mut values, mut digest) = ([0; BURST], 0);
        for burst in keys.bytes.chunks(BURST * keys.width) {
            let values = &mut values[..burst.len() / keys.width];
            self.0.lookup_batch(burst, values);
            digest += u64::from(black_box(&*values)[0]);
        }
        digest
    }

    fn chain(&self, keys: &Keys) -> u64 {
        let (mut value, mut digest) = (0, 0);
        for step in 0..keys.entries.len() / 2 {
            let at = choose(step, value) * keys.width;
            value = self.0.get(&keys.bytes[at..at + keys.width]).unwrap_or(0);
            digest += u64::from(value);
        }
        digest
    }

    fn memory_bytes(&self) -> Option<usize> {
        Some(self.0.memory_bytes())
    }
}

/// A cycle through all cache lines of a memory block, in random order (Sattolo's algorithm).
struct Reads(Vec<[u32; 16]>);

impl Reads {
    fn new(bytes: usize, random: &mut Random) -> Self {
        let lines = (bytes / 64).max(2);
        let mut order: Vec<u32> = (0..lines as u32).collect();
        for last in (1..lines).rev() {
            order.swap(last, random.below(last as u64) as usize);
        }
        let line = |next| {
            let mut line = [0; 16];
            line[0] = next;
            line
        };
        Self(order.into_iter().map(line).collect())
    }

    fn follow(&self, count: usize) -> u64 {
        let mut at = 0;
        for _ in 0..count {
            at = self.0[at as usize][0];
        }
        u64::from(at)
    }
}

/// Generates `count` distinct 5-tuples of TCP and UDP flows.
fn tuples(width: usize, count: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(count * width);
    for number in 0..count {
        let start = bytes.len();
        while bytes.len() < start + width - 1 {
            bytes.extend(random.word().to_be_bytes());
        }
        bytes.truncate(start + width - 1);
        bytes.push([6, 17][number % 2]);
    }
    bytes
}

fn trace(width: usize, table: &[u8], count: usize, random: &mut Random) -> Keys {
    let entries = (table.len() / width) as u64;
    let entries: Vec<u32> = (0..count).map(|_| random.below(entries) as u32).collect();
    let key = |entry: &u32| &table[*entry as usize * width..][..width];
    let bytes = entries.iter().flat_map(|entry| key(entry).iter().copied());
    Keys {
        width,
        bytes: bytes.collect(),
        entries,
    }
}

/// Measures the exact-match tables at every size.
pub(crate) fn run(setting: &Setting) -> Result<Report> {
    let mut report = setting.report("look-ups per second of one core");
    let sizes: &[(usize, usize)] = if setting.quick {
        &[(1_000, IPV4_BYTES), (3_000, IPV6_BYTES)]
    } else {
        &[
            (1_000, IPV4_BYTES),
            (10_000, IPV4_BYTES),
            (100_000, IPV4_BYTES),
            (1_000_000, IPV4_BYTES),
            (10_000_000, IPV4_BYTES),
            (1_000_000, IPV6_BYTES),
        ]
    };
    for (count, width) in sizes {
        let name = format!("{count} entries, keys of {width} bytes");
        setting.progress(&name);
        one_size(setting, &name, *count, *width, &mut report)?;
    }
    Ok(report)
}

fn one_size(
    setting: &Setting,
    name: &str,
    count: usize,
    width: usize,
    report: &mut Report,
) -> Result<()> {
    let random = &mut Random::new(SEED + count as u64 + width as u64);
    let table = tuples(width, count, random);
    let keys = trace(
        width,
        &table,
        if setting.quick { 1 << 12 } else { 1 << 20 },
        random,
    );
    let own = Own::new(width, &table);
    let reads = Reads::new(own.0.memory_bytes(), random);
    let mut tables: Vec<Box<dyn ExactTable>> = vec![Box::new(own)];
    let (map, hash) = hashbrown::fastest(&table, &keys);
    tables.push(map);
    if let Some(dpdk) = setting.dpdk(&[dpdk_hash::NAME], HEAP_BYTES, report) {
        match DpdkHash::new(dpdk, &table, &keys) {
            Ok(table) => tables.push(Box::new(table)),
            Err(why) => report.misses(dpdk_hash::NAME, format!("{why:#}")),
        }
    }
    agree(&tables, &keys)?;
    report.memory.push(memory(name, &tables));
    for kind in ["batch", "dependent"] {
        let mut contenders: Vec<Contender<'_>> = tables
            .iter()
            .map(|table| contender(&**table, kind, &keys))
            .collect();
        if kind == "dependent" {
            let count = keys.entries.len();
            let reads = &reads;
            let pass = move || reads.follow(count);
            contenders.push(Contender::new("random-read", count, pass));
        }
        let rates = interleave(&mut contenders, setting.effort());
        let mut case = Case::new(format!("{name}, {kind}"), kind, &rates);
        case.detail("hashbrown's hash", hash);
        setting.tell(&case.workload, &rates);
        report.cases.push(case);
    }
    Ok(())
}

fn contender<'a>(table: &'a dyn ExactTable, kind: &str, keys: &'a Keys) -> Contender<'a> {
    let all = keys.entries.len();
    match kind {
        "batch" => Contender::new(table.name(), all, || table.lookup(keys)),
        _ => Contender::new(table.name(), all / 2, || table.chain(keys)),
    }
}

fn memory(name: &str, tables: &[Box<dyn ExactTable>]) -> Memory {
    let mut peers = BTreeMap::new();
    let mut ours = 0;
    for table in tables {
        match table.memory_bytes() {
            Some(bytes) if table.name() == OURS => ours = bytes,
            Some(bytes) => {
                peers.insert(table.name().to_string(), bytes);
            }
            None => {}
        }
    }
    Memory {
        workload: name.into(),
        ours,
        peers,
    }
}

/// Checks that all tables find every key.
///
/// # Errors
/// Fails if a table misses a key, because the measurement would be meaningless.
fn agree(tables: &[Box<dyn ExactTable>], keys: &Keys) -> Result<()> {
    let sample = keys.entries.len().min(1 << 16);
    for table in tables {
        let found = table.entries(keys, sample);
        let differs = found
            .iter()
            .zip(&keys.entries)
            .position(|(found, entry)| *found != Some(*entry));
        if let Some(at) = differs {
            let (found, entry) = (found[at], keys.entries[at]);
            bail!("{} found {found:?} instead of entry {entry}", table.name());
        }
    }
    Ok(())
}

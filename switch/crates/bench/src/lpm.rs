// SPDX-License-Identifier: Apache-2.0
//! Measures longest-prefix match in full tables (`lpm4-full` and `lpm6-full`).
//!
//! There are two tables. The first one is a real table if a file is given, else a generated table of the same size and
//! mix. The second one is larger and always generated. Lookups are measured in three ways:
//!
//! * in batches, with the uniform trace
//! * in batches, with the Zipf trace
//! * one key at a time, with the dependent trace
//!
//! The dependent trace has the keys of the uniform trace, but one bit of a key is flipped if the previous value was
//! odd. So no lookup starts before the previous lookup ends. The bit is the last one of an IPv4 key, or the 64th one of
//! an IPv6 key.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};
use sluice_fib::{Prefix, Status};

use crate::input::generate::{self, Space};
use crate::input::routes::{self, Family, Route};
use crate::input::trace::{self, Trace};
use crate::lookup_tables::LpmTable;
use crate::measure::{Contender, interleave};
use crate::own_lpm::Own;
use crate::peers::dpdk_lpm::{DpdkLpm, DpdkStructure};
use crate::peers::prefix_trie::{Net, Trie};
use crate::report::{Case, Memory, Report};
use crate::setting::Setting;

/// Number of keys on which all contenders must agree before they are measured.
const SAMPLE: usize = 1 << 16;
const SEED: u64 = 0x51;
/// Heap for DPDK's structures, in bytes.
pub(crate) const HEAP_BYTES: usize = 3 << 29;

/// Sizes of the tables and traces of a run.
pub(crate) struct Sizes {
    /// Number of routes of the real table, or of the generated table that replaces it.
    pub(crate) real: usize,
    /// Number of routes of the larger table.
    pub(crate) larger: usize,
    /// Number of keys in a trace.
    pub(crate) keys: usize,
    /// Number of destinations of a Zipf trace.
    pub(crate) destinations: usize,
}

impl Sizes {
    /// Returns the sizes for a family.
    pub(crate) fn of<A: Family>(quick: bool) -> Self {
        if quick {
            return Self {
                real: 2_000,
                larger: 3_000,
                keys: 1 << 13,
                destinations: 1 << 10,
            };
        }
        let (real, larger) = match A::BITS {
            32 => (901_899, 1_200_000),
            _ => (160_147, 250_000),
        };
        Self {
            real,
            larger,
            keys: 1 << 20,
            destinations: 1 << 20,
        }
    }
}

/// Returns the real table or, without a file, a generated table of the same size and mix. Also returns the table's
/// source.
pub(crate) fn real_table<A: Space>(
    setting: &Setting,
    size: usize,
) -> Result<(Vec<Prefix<A>>, String)> {
    let Some(path) = &setting.table else {
        return Ok((
            generate::table(size, SEED),
            format!("generated, seed {SEED}"),
        ));
    };
    let prefixes = routes::read(path)?;
    if prefixes.is_empty() {
        bail!("{}: no {} prefixes", path.display(), A::NAME);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    Ok((prefixes, name.into_owned()))
}

/// Measures the tables of one address family.
pub(crate) fn run<A: Space + Net>(setting: &Setting) -> Result<Report> {
    let sizes = Sizes::of::<A>(setting.quick);
    let mut report = setting.report("look-ups per second of one core");
    let (prefixes, source) = real_table::<A>(setting, sizes.real)?;
    report.input.insert("table".into(), source);
    report.note("next hops", routes::NEXT_HOPS);
    let tables = [prefixes, generate::table(sizes.larger, SEED + 1)];
    for (prefixes, kind) in tables.into_iter().zip(["full", "larger"]) {
        let name = format!("{kind} table, {} {} routes", prefixes.len(), A::NAME);
        setting.progress(&name);
        let routes = routes::with_next_hops(prefixes);
        one_table(setting, &sizes, &name, &routes, &mut report)?;
    }
    Ok(report)
}

fn one_table<A: Net>(
    setting: &Setting,
    sizes: &Sizes,
    name: &str,
    routes: &[Route<A>],
    report: &mut Report,
) -> Result<()> {
    let traces = [
        trace::uniform(routes, sizes.keys, SEED + 2),
        trace::zipf(routes, sizes.destinations, sizes.keys, SEED + 3),
    ];
    let own = Own::automatic(routes);
    let status = own.status();
    report.memory.push(memory(name, &status, routes));
    let mut tables: Vec<Box<dyn LpmTable<A>>> = vec![Box::new(own)];
    tables.extend(dpdk_tables(setting, routes, &traces[0], report));
    tables.push(Box::new(Trie::new(routes)));
    for trace in &traces {
        agree(&tables, trace)?;
    }
    let runs = [
        (&traces[0], "batch", traces[0].name),
        (&traces[1], "batch", traces[1].name),
        (&traces[0], "dependent", "dependent"),
    ];
    for (trace, kind, what) in runs {
        let mut contenders = contenders(&tables, trace, kind);
        let rates = interleave(&mut contenders, setting.effort());
        let mut case = Case::new(format!("{name}, {what}"), kind, &rates);
        case.detail("algorithm", status.algorithm);
        setting.tell(&case.workload, &rates);
        report.cases.push(case);
    }
    Ok(())
}

/// Creates one contender for each table, which looks up the keys of one trace. `kind` selects dependent lookups or
/// batches.
pub(crate) fn contenders<'a, A: Family>(
    tables: &'a [Box<dyn LpmTable<A>>],
    trace: &'a Trace<A>,
    kind: &'static str,
) -> Vec<Contender<'a>> {
    let count = trace.keys.len();
    let mut contenders = Vec::new();
    for table in tables {
        let pass = move || match kind {
            "dependent" => table.chain(trace),
            _ => table.lookup(trace, 0..count),
        };
        contenders.push(Contender::new(table.name(), count, pass));
    }
    contenders
}

/// Returns DPDK's tables for a family. Leaves out tables that cannot be built, and records them as missing in the
/// report.
fn dpdk_tables<A: Family>(
    setting: &Setting,
    routes: &[Route<A>],
    sample: &Trace<A>,
    report: &mut Report,
) -> Vec<Box<dyn LpmTable<A>>> {
    let mut tables: Vec<Box<dyn LpmTable<A>>> = Vec::new();
    let Some(dpdk) = setting.dpdk(&dpdk_names::<A>(), HEAP_BYTES, report) else {
        return tables;
    };
    for (structure, name) in [DpdkStructure::Fib, DpdkStructure::Lpm]
        .into_iter()
        .zip(dpdk_names::<A>())
    {
        match DpdkLpm::new(dpdk, structure, routes, 0, sample) {
            Ok(table) => tables.push(Box::new(table)),
            Err(why) => report.misses(name, format!("{why:#}")),
        }
    }
    tables
}

/// Returns the names of DPDK's tables of a family.
pub(crate) fn dpdk_names<A: Family>() -> [&'static str; 2] {
    match A::BITS {
        32 => ["rte_fib", "rte_lpm"],
        _ => ["rte_fib6", "rte_lpm6"],
    }
}

/// Reports the memory of our table. For IPv4, also reports the memory of DIR-24-8 (Gupta, Lin, McKeown 1998), computed
/// from its definition. DIR-24-8 has one entry for each /24, and 256 more entries for each /24 with longer prefixes. An
/// entry takes two bytes.
fn memory<A: Family>(workload: &str, own: &Status, routes: &[Route<A>]) -> Memory {
    let mut peers = BTreeMap::new();
    if A::BITS == 32 {
        let long = routes.iter().filter(|(prefix, _)| prefix.length() > 24);
        let blocks: BTreeSet<A> = long
            .map(|(prefix, _)| prefix.address().truncate(24))
            .collect();
        peers.insert("dir-24-8".into(), 2 * ((1 << 24) + 256 * blocks.len()));
    }
    Memory {
        workload: workload.into(),
        ours: own.bytes,
        peers,
    }
}

/// Checks that all tables return the same values.
///
/// # Errors
/// Fails if the tables differ, because the measurement would be meaningless.
pub(crate) fn agree<A: Family>(tables: &[Box<dyn LpmTable<A>>], trace: &Trace<A>) -> Result<()> {
    let expected = tables[0].values(trace, SAMPLE);
    for table in &tables[1..] {
        let values = table.values(trace, SAMPLE);
        let differs = values
            .iter()
            .zip(&expected)
            .position(|(one, other)| one != other);
        if let Some(at) = differs {
            bail!(
                "{:?}: {} returns {}, {} returns {}",
                trace.keys[at],
                tables[0].name(),
                expected[at],
                table.name(),
                values[at]
            );
        }
    }
    Ok(())
}

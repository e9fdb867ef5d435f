// SPDX-License-Identifier: Apache-2.0
//! Measures the automatic choice of an algorithm and the rate of updates (`lpm-auto`).
//!
//! - *size*: compares the automatic choice with each single algorithm, for tables of one route to a million routes.
//!   `best-own` is the fastest single algorithm of a case.
//! - *updates*: measures how many updates a second are done, one after the other. Updates change next hops, remove
//!   routes and add them again. Our structure and the peer both update RIB and lookup structure.
//! - *churn*: measures lookups per second with nearly 10,000 updates per second. If a contender does n lookups per
//!   second, an update follows after every n / 10,000 lookups. `without-updates` is our structure without updates.

use std::cell::Cell;

use anyhow::Result;
use sluice_fib::{Prefix, Rib};

use crate::input::generate::{self, Space};
use crate::input::random::Random;
use crate::input::routes::{self, Family, Route, next_hop};
use crate::input::trace::{self, Trace};
use crate::lookup_tables::{BURST, LpmTable};
use crate::lpm::{self, Sizes};
use crate::measure::{Contender, Rates, interleave};
use crate::own_lpm::{Followed, Own};
use crate::peers::dpdk_lpm::{DpdkLpm, DpdkStructure};
use crate::peers::dpdk_updates::Updater;
use crate::report::{Case, OURS, Report};
use crate::setting::Setting;

const SEED: u64 = 0x6175;
/// Number of routes drawn for one pass of updates. A pass changes the next hop of each drawn route, then removes the
/// drawn routes, and then adds them again.
const CHANGED: usize = 2_000;
/// Updates per second in the *churn* measurement.
const CHURN: f64 = 10_000.0;
const BEST: &str = "best-own";

/// Measures both address families.
pub(crate) fn run(setting: &Setting) -> Result<Report> {
    let mut report = setting.report("look-ups per second of one core (updates: updates)");
    by_size::<u32>(setting, &mut report)?;
    by_size::<u128>(setting, &mut report)?;
    following::<u32>(setting, &mut report)?;
    following::<u128>(setting, &mut report)?;
    Ok(report)
}

/// Measures the automatic choice of an algorithm for tables of different sizes.
fn by_size<A: Space>(setting: &Setting, report: &mut Report) -> Result<()> {
    let most = if setting.quick { 1_000 } else { 1_000_000 };
    let sizes = (0..)
        .map(|power| 10usize.pow(power))
        .take_while(|size| *size <= most);
    for size in sizes {
        let name = format!("{size} {} routes", A::NAME);
        let routes = routes::with_next_hops(small_or_mixed::<A>(size));
        let keys = Sizes::of::<A>(setting.quick).keys;
        let trace = trace::uniform(&routes, keys, SEED + 1);
        let mut rib = Rib::new();
        for (prefix, hop) in &routes {
            rib.insert(*prefix, *hop);
        }
        let own = Own::automatic(&routes);
        let chosen = own.status().algorithm;
        let mut tables: Vec<Box<dyn LpmTable<A>>> = vec![Box::new(own)];
        for kind in A::ALGORITHMS {
            if let Some(table) = Own::algorithm(kind, &rib) {
                tables.push(Box::new(table));
            }
        }
        lpm::agree(&tables, &trace)?;
        for kind in ["batch", "dependent"] {
            let mut contenders = lpm::contenders(&tables, &trace, kind);
            let mut rates = interleave(&mut contenders, setting.fine_effort());
            let best = name_best(&mut rates);
            let mut case = Case::new(format!("{name}, {kind}"), "size", &rates);
            case.detail("chosen", chosen);
            case.detail("best", best);
            setting.tell(&case.workload, &rates);
            report.cases.push(case);
        }
    }
    Ok(())
}

/// Returns a table of this size. It includes the default route, like the table of a host or a site.
fn small_or_mixed<A: Space>(size: usize) -> Vec<Prefix<A>> {
    let mut prefixes = generate::table(size, SEED);
    if let Some(first) = prefixes.first_mut() {
        *first = Prefix::new(A::default(), 0);
    }
    prefixes
}

/// Adds the rates of the fastest algorithm again, under the name [`BEST`]. Returns the algorithm's name.
fn name_best(rates: &mut Vec<Rates>) -> String {
    let fastest = rates.iter().filter(|rates| rates.name != OURS);
    let fastest = fastest.max_by(|one, other| one.median().total_cmp(&other.median()));
    let Some(mut best) = fastest.cloned() else {
        return String::new();
    };
    let name = std::mem::replace(&mut best.name, BEST.into());
    rates.push(best);
    name
}

/// An update of a route: the prefix and its new next hop, or `None` to remove the route.
type Update<A> = (Prefix<A>, Option<u32>);

/// Returns updates that cancel each other: after all of them, the table has its original content.
fn updates<A: Family>(routes: &[Route<A>]) -> Vec<Update<A>> {
    let mut random = Random::new(SEED + 2);
    let mut some: Vec<Route<A>> = (0..CHANGED).map(|_| *random.pick(routes)).collect();
    some.sort_unstable();
    some.dedup();
    random.shuffle(&mut some);
    let changed = some
        .iter()
        .map(|(prefix, _)| (*prefix, Some(next_hop(*prefix, 1))));
    let removed = some.iter().map(|(prefix, _)| (*prefix, None));
    let added = some.iter().map(|(prefix, hop)| (*prefix, Some(*hop)));
    changed.chain(removed).chain(added).collect()
}

/// Function that applies an update to the table of a contender.
type Apply<'a, A> = Box<dyn Fn(&Update<A>) + 'a>;

/// Measures updates alone, and then lookups with updates between them.
fn following<A: Space>(setting: &Setting, report: &mut Report) -> Result<()> {
    let sizes = Sizes::of::<A>(setting.quick);
    let (prefixes, source) = lpm::real_table::<A>(setting, sizes.real)?;
    report.note(A::NAME, source);
    let routes = routes::with_next_hops(prefixes);
    let trace = trace::uniform(&routes, sizes.keys, SEED + 3);
    let updates = updates(&routes);
    let own = Own::automatic(&routes);
    let quiet = Own::automatic(&routes);
    let peer = peer(setting, &routes, &trace, report);
    let refused = Cell::new(0usize);

    let mut updated: Vec<(&dyn LpmTable<A>, Apply<'_, A>)> =
        vec![(&own, Box::new(|(prefix, hop)| own.update(*prefix, *hop)))];
    if let Some((table, updater)) = &peer {
        let refused = &refused;
        let apply = move |(prefix, hop): &Update<A>| {
            let done = updater.update(table, *prefix, *hop);
            refused.set(refused.get() + usize::from(!done));
        };
        updated.push((table, Box::new(apply)));
    }
    let name = format!("{} {} routes", routes.len(), A::NAME);

    let mut contenders = Vec::new();
    for (table, apply) in &updated {
        let updates = &updates;
        let pass = move || {
            updates.iter().for_each(apply);
            0
        };
        contenders.push(Contender::new(table.name(), updates.len(), pass));
    }
    let mut rates = interleave(&mut contenders, setting.fine_effort());
    leave_out_who_refuses(&refused, &mut rates, report);
    let mut case = Case::new(format!("{name}, updates"), "updates", &rates);
    case.detail("builds", own.status().builds);
    setting.tell(&case.workload, &rates);
    report.cases.push(case);
    same_again(&own, &quiet, &trace);

    let mut contenders = Vec::new();
    for (table, apply) in &updated {
        contenders.push(churning(*table, apply, &updates, &trace, setting));
    }
    let undisturbed = || quiet.lookup(&trace, 0..trace.keys.len());
    contenders.push(Contender::new(
        "without-updates",
        trace.keys.len(),
        undisturbed,
    ));
    let mut rates = interleave(&mut contenders, setting.effort());
    leave_out_who_refuses(&refused, &mut rates, report);
    let case = Case::new(format!("{name}, look-ups among updates"), "churn", &rates);
    setting.tell(&case.workload, &rates);
    report.cases.push(case);
    Ok(())
}

/// Excludes peers that refused updates, because they did less work than the others. Records the exclusion in the
/// report. DPDK's structures refuse an update when no free table group is left, and they never free some of their table
/// groups.
fn leave_out_who_refuses(refused: &Cell<usize>, rates: &mut Vec<Rates>, report: &mut Report) {
    let peers = |rates: &Rates| rates.name.starts_with("rte_");
    if refused.get() == 0 {
        return;
    }
    for rates in rates.iter().filter(|rates| peers(rates)) {
        report.misses(&rates.name, format!("refused {} updates", refused.get()));
    }
    rates.retain(|rates| !peers(rates));
}

/// Checks that the table has its original content after the updates.
fn same_again<A: Family>(own: &Own<Followed<A>>, quiet: &Own<Followed<A>>, trace: &Trace<A>) {
    let count = trace.keys.len().min(1 << 16);
    assert_eq!(own.values(trace, count), quiet.values(trace, count));
}

/// Returns DPDK's FIB and its update functions, if DPDK is available.
fn peer<A: Family>(
    setting: &Setting,
    routes: &[Route<A>],
    trace: &Trace<A>,
    report: &mut Report,
) -> Option<(DpdkLpm<A>, Updater)> {
    let [name, _] = lpm::dpdk_names::<A>();
    let dpdk = setting.dpdk(&[name], lpm::HEAP_BYTES, report)?;
    let made = DpdkLpm::new(dpdk, DpdkStructure::Fib, routes, CHANGED, trace)
        .and_then(|table| Ok((table, Updater::new::<A>(dpdk)?)));
    match made {
        Ok(peer) => Some(peer),
        Err(why) => {
            report.misses(name, format!("{why:#}"));
            None
        }
    }
}

/// Creates a contender that looks up the whole trace, with updates between the lookups.
fn churning<'a, A: Family>(
    table: &'a dyn LpmTable<A>,
    apply: &'a Apply<'a, A>,
    updates: &'a [Update<A>],
    trace: &'a Trace<A>,
    setting: &Setting,
) -> Contender<'a> {
    let count = trace.keys.len();
    let alone = Contender::new(table.name(), count, || table.lookup(trace, 0..count));
    let alone = interleave(&mut [alone], setting.effort())[0].median();
    let between = ((alone / CHURN) as usize / BURST).max(1) * BURST;
    let next = Cell::new(0);
    Contender::new(table.name(), count, move || {
        let mut digest = 0;
        for start in (0..count).step_by(between) {
            digest += table.lookup(trace, start..(start + between).min(count));
            apply(&updates[next.get()]);
            next.set((next.get() + 1) % updates.len());
        }
        digest
    })
}

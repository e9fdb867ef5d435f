// SPDX-License-Identifier: Apache-2.0
//! Collects metrics of the running program: its tables, its action profiles, and its route lookup.

use sluice_device::Device;
use sluice_program::{ProfileId, TableId};
use sluice_tables::{FibDetail, FibInfo, Store};

use crate::family::{Families, Sample};

/// Maximum number of FIBs with separate metrics. If there are more FIBs, only those with the most routes get metrics.
const FIBS: usize = 128;

pub(crate) fn all(device: &Device, families: &mut Families) {
    let Some(store) = device.store() else {
        families.value("program_loaded", "1 while a program runs, else 0.", 0.0);
        return;
    };
    families.value("program_loaded", "1 while a program runs, else 0.", 1.0);
    let engine = device.engine();
    let labels = vec![
        ("program", store.program().name.clone()),
        ("engine", engine.map_or_else(String::new, |e| e.to_string())),
    ];
    let help = "1, with the running program and its engine (interpreter or native) as labels.";
    families.gauge("program_info", help, [(labels, 1.0)]);
    tables(&store, families);
    fibs(&store, families);
}

fn tables(store: &Store, families: &mut Families) {
    let (program, view) = (store.program(), store.view());
    let (mut entries, mut sizes) = (Vec::new(), Vec::new());
    for (index, table) in program.tables.iter().enumerate() {
        if table.key.is_empty() {
            continue;
        }
        let used = view.entry_count(TableId(index as u32));
        let by = |value: usize| -> Sample { (vec![("table", table.name.clone())], value as f64) };
        entries.push(by(used));
        sizes.push(by(table.max_size));
    }
    let (mut members, mut limits, mut groups) = (Vec::new(), Vec::new(), Vec::new());
    for (index, profile) in program.profiles.iter().enumerate() {
        let (used, grouped) = view.profile_counts(ProfileId(index as u32));
        let by =
            |value: usize| -> Sample { (vec![("profile", profile.name.clone())], value as f64) };
        members.push(by(used));
        limits.push(by(profile.max_size));
        groups.push(by(grouped));
    }
    // Order: the view of the tables is released before the text is built.
    drop(view);
    families.gauge("table_entries", "Entries of a table.", entries);
    families.gauge(
        "table_limit_entries",
        "Maximum number of entries in a table.",
        sizes,
    );
    families.gauge("profile_members", "Members of an action profile.", members);
    families.gauge(
        "profile_limit_members",
        "Maximum number of members in an action profile.",
        limits,
    );
    families.gauge("profile_groups", "Groups of an action profile.", groups);
}

fn fibs(store: &Store, families: &mut Families) {
    let mut found = store.fibs(FibDetail::Sizes);
    found.sort_by_key(|fib| std::cmp::Reverse(fib.status.routes));
    let left_out = found.len().saturating_sub(FIBS);
    found.truncate(FIBS);
    let labels = |fib: &FibInfo| {
        let exact: Vec<_> = fib.exact.iter().map(u128::to_string).collect();
        vec![
            ("table", store.program().table(fib.table).name.clone()),
            ("vrf", exact.join(",")),
        ]
    };
    let each = |value: fn(&FibInfo) -> f64| {
        let sample = |fib: &FibInfo| (labels(fib), value(fib));
        found.iter().map(sample).collect::<Vec<Sample>>()
    };
    let algorithms = found.iter().map(|fib| {
        let mut labels = labels(fib);
        labels.push(("algorithm", fib.status.algorithm.to_owned()));
        (labels, 1.0)
    });
    families.gauge(
        "fib_info",
        "1, with the lookup algorithm of a FIB as a label. `vrf`: the values of the key's exact fields.",
        algorithms,
    );
    families.gauge(
        "fib_routes",
        "Routes of a FIB.",
        each(|fib| fib.status.routes as f64),
    );
    families.gauge(
        "fib_bytes",
        "Memory of one copy of a FIB's lookup structure, in bytes.",
        each(|fib| fib.status.bytes as f64),
    );
    families.counter(
        "fib_builds_total",
        "Number of builds of a FIB's lookup structure.",
        each(|fib| fib.status.builds as f64),
    );
    families.gauge(
        "fib_last_build_seconds",
        "Duration of the last build of a FIB's lookup structure.",
        each(|fib| fib.status.last_build.as_secs_f64()),
    );
    families.value(
        "fibs_left_out",
        "Number of FIBs without their own metrics. Only the 128 FIBs with the most routes have metrics.",
        left_out as f64,
    );
}

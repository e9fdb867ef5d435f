// SPDX-License-Identifier: Apache-2.0
//! Formats answers as text: tables for people, JSON for programs.

use std::io::{self, Write};

use serde_json::{Map, Value, json};
use sluice_admin::proto::{
    BenchFibResponse, Counter, Fib, FibTrial, GetCountersResponse, GetProfileResponse,
    GetTablesResponse, Occupancy, Port, ProfileRow, Switch, TraceLine, TraceResponse,
};
use sluice_device::trace::format_line;

/// Prints an answer, as JSON or as text.
pub(super) fn show(
    answer: &impl serde::Serialize,
    json: bool,
    text: impl FnOnce() -> String,
) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    if json {
        writeln!(output, "{}", serde_json::to_string_pretty(answer)?)?;
    } else {
        write!(output, "{}", text())?;
    }
    Ok(output.flush()?)
}

/// Returns whether an error means that the reader of the output has closed the pipe.
pub(super) fn is_closed_pipe(error: &anyhow::Error) -> bool {
    let io = error.downcast_ref::<io::Error>();
    io.is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}

/// Formats a table whose columns are as wide as their widest cell. Numbers are right-aligned.
pub(super) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([head[column].len()]).max().unwrap_or(0)
    };
    let widths: Vec<_> = (0..head.len()).map(width).collect();
    let number = |column: usize| {
        let digits =
            |row: &Vec<String>| row[column].chars().all(|c| c.is_ascii_digit() || c == '.');
        !rows.is_empty() && rows.iter().all(digits)
    };
    let numbers: Vec<_> = (0..head.len()).map(number).collect();
    let line = |cells: Vec<&str>| {
        let padded = cells.iter().enumerate().map(|(column, cell)| {
            let width = widths[column];
            if numbers[column] {
                format!("{cell:>width$}")
            } else {
                format!("{cell:<width$}")
            }
        });
        let line: Vec<_> = padded.collect();
        format!("{}\n", line.join("  ").trim_end())
    };
    let rows = rows
        .iter()
        .map(|row| line(row.iter().map(String::as_str).collect()));
    std::iter::once(line(head.to_vec())).chain(rows).collect()
}

pub(super) fn switch(found: &Switch) -> String {
    let seconds = found.uptime_us / 1_000_000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let program = if found.program.is_empty() {
        "none"
    } else {
        &found.program
    };
    let cpu_port = found
        .cpu_port
        .map_or_else(|| "none".to_owned(), |port| port.to_string());
    [
        ("version", found.version.clone()),
        ("device id", found.device_id.to_string()),
        ("process", found.process_id.to_string()),
        ("uptime", format!("{hours}:{minutes:02}:{seconds:02}")),
        ("program", program.to_owned()),
        ("engine", found.engine.clone()),
        ("P4Runtime", found.p4runtime_address.clone()),
        ("workers", found.workers.to_string()),
        ("CPU port", cpu_port),
        ("drop port", found.drop_port.to_string()),
    ]
    .map(|(name, value)| format!("{name:<10} {value}\n"))
    .concat()
}

pub(super) fn ports(ports: &[Port]) -> String {
    let head = [
        "PORT",
        "NAME",
        "LINK",
        "QDISC",
        "RX PACKETS",
        "RX BYTES",
        "RX FULL",
        "RX DAMAGED",
        "TX PACKETS",
        "TX BYTES",
        "TX DOWN",
        "TX FULL",
        "TX LENGTH",
    ];
    let row = |port: &Port| {
        let counted = port.statistics.unwrap_or_default();
        let numbers = [
            counted.rx_packets,
            counted.rx_bytes,
            counted.rx_ring_full,
            counted.rx_damaged,
            counted.tx_packets,
            counted.tx_bytes,
            counted.tx_link_down,
            counted.tx_queue_full,
            counted.tx_bad_length,
        ];
        let link = if port.up { "up" } else { "down" };
        let qdisc = if port.qdisc.is_empty() {
            "none"
        } else {
            &port.qdisc
        };
        let words = [
            port.number.to_string(),
            port.name.clone(),
            link.to_owned(),
            qdisc.to_owned(),
        ];
        words
            .into_iter()
            .chain(numbers.map(|number| number.to_string()))
            .collect()
    };
    table(&head, &ports.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn counters(found: &GetCountersResponse) -> String {
    let row = |place: &'static str| {
        move |counter: &Counter| {
            vec![
                place.to_owned(),
                counter.name.clone(),
                counter.value.to_string(),
            ]
        }
    };
    let device = found.device.iter().map(row("device"));
    let rows: Vec<_> = device
        .chain(found.program.iter().map(row("program")))
        .collect();
    table(&["OF", "COUNTER", "VALUE"], &rows)
}

pub(super) fn tables(found: &GetTablesResponse) -> String {
    let row = |kind: &str, name: &str, used: Option<Occupancy>, note: String| {
        let Occupancy { used, size } = used.unwrap_or_default();
        let percent = if size == 0 {
            0
        } else {
            used.saturating_mul(100).div_ceil(size)
        };
        let numbers = [used, size, percent].map(|number| number.to_string());
        let words = [kind.to_owned(), name.to_owned()];
        words
            .into_iter()
            .chain(numbers)
            .chain([note])
            .collect::<Vec<_>>()
    };
    let tables = found.tables.iter().map(|table| {
        let note = if table.is_const { "const" } else { "" };
        row("table", &table.name, table.entries, note.to_owned())
    });
    let profiles = found.action_profiles.iter().map(|profile| {
        let note = format!("{} groups", profile.groups);
        row("action profile", &profile.name, profile.members, note)
    });
    let replication = [
        row(
            "multicast groups",
            "",
            found.multicast_groups,
            String::new(),
        ),
        row("clone sessions", "", found.clone_sessions, String::new()),
    ];
    let rows: Vec<_> = tables.chain(profiles).chain(replication).collect();
    table(&["KIND", "NAME", "USED", "SIZE", "%", ""], &rows)
}

/// Formats a profile: shares of the time, and the nanoseconds of each visit and of each
/// packet.
pub(super) fn profile(found: &GetProfileResponse) -> String {
    let all: u64 = found.rows.iter().map(|row| row.nanoseconds).sum();
    let per = |count: u64, of: u64| format!("{:.1}", count as f64 / of.max(1) as f64);
    let row = |row: &ProfileRow| {
        vec![
            per(row.nanoseconds.saturating_mul(100), all),
            per(row.nanoseconds, found.packets),
            per(row.nanoseconds, row.visits),
            row.visits.to_string(),
            row.kind.clone(),
            row.name.clone(),
        ]
    };
    let head = ["%", "NS/PACKET", "NS/VISIT", "VISITS", "KIND", "NAME"];
    let rows: Vec<_> = found.rows.iter().map(row).collect();
    let packet = per(all, found.packets);
    let (packets, engine) = (found.packets, &found.engine);
    format!(
        "{engine}: {packets} packets measured, {packet} ns each\n{}",
        table(&head, &rows)
    )
}

pub(super) fn fibs(fibs: &[Fib]) -> String {
    let head = [
        "TABLE",
        "VRF",
        "ALGORITHM",
        "ROUTES",
        "VALUES",
        "BYTES",
        "RIB BYTES",
        "BUILDS",
        "LAST US",
        "",
    ];
    let row = |fib: &Fib| {
        let numbers = [
            fib.routes,
            fib.values,
            fib.bytes,
            fib.rib_bytes,
            fib.builds,
            fib.last_build_us,
        ];
        let notes = [(fib.pinned, "pinned"), (fib.pending, "to be built")];
        let notes = notes
            .iter()
            .filter(|(there, _)| *there)
            .map(|(_, note)| *note);
        let words = [
            fib.table.clone(),
            fib.exact.join(","),
            fib.algorithm.clone(),
        ];
        words
            .into_iter()
            .chain(numbers.map(|number| number.to_string()))
            .chain([notes.collect::<Vec<_>>().join(", ")])
            .collect()
    };
    table(&head, &fibs.iter().map(row).collect::<Vec<_>>())
}

pub(super) fn fib_trials(found: &BenchFibResponse) -> String {
    let head = [
        "ALGORITHM",
        "BATCHED/S",
        "DEPENDENT/S",
        "BYTES",
        "BUILD US",
        "",
    ];
    let row = |trial: &FibTrial| {
        let numbers = if trial.problem.is_empty() {
            [
                trial.batch as u64,
                trial.dependent as u64,
                trial.bytes,
                trial.build_us,
            ]
            .map(|number| number.to_string())
        } else {
            Default::default()
        };
        let note = trial.problem.clone();
        std::iter::once(trial.algorithm.clone())
            .chain(numbers)
            .chain([note])
            .collect()
    };
    let rows: Vec<_> = found.trials.iter().map(row).collect();
    let fib = found
        .fib
        .as_ref()
        .map_or_else(String::new, |fib| fibs(std::slice::from_ref(fib)));
    format!("{fib}\n{}", table(&head, &rows))
}

/// Prints the steps of a traced packet, one line each.
pub(super) fn trace(found: &TraceResponse, json: bool) -> anyhow::Result<()> {
    let mut output = io::stdout().lock();
    if found.lost != 0 && !json {
        writeln!(
            output,
            "... {} packets were not traced: the reader is too slow",
            found.lost
        )?;
    }
    for line in &found.lines {
        if json {
            writeln!(output, "{}", json_line(found, line))?;
        } else {
            let details = line
                .details
                .iter()
                .map(|detail| (&*detail.name, &*detail.value));
            let text = format_line(found.packet, found.time_us, &line.step, &line.name, details);
            writeln!(output, "{text}")?;
        }
    }
    Ok(output.flush()?)
}

fn json_line(found: &TraceResponse, line: &TraceLine) -> Value {
    let details = line.details.iter();
    let details: Map<String, Value> = details
        .map(|detail| (detail.name.clone(), detail.value.clone().into()))
        .collect();
    json!({
        "packet": found.packet,
        "time_us": found.time_us,
        "step": line.step,
        "name": line.name,
        "details": details,
        "lost_before": found.lost,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be_and_numbers_are_to_the_right() {
        let row = |cells: [&str; 2]| cells.map(str::to_owned).to_vec();
        let text = table(&["NAME", "N"], &[row(["a", "1"]), row(["longer", "100"])]);
        assert_eq!(text, "NAME      N\na         1\nlonger  100\n");
        assert_eq!(table(&["NAME", "N"], &[]), "NAME  N\n");
    }
}

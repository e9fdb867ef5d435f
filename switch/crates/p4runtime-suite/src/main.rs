// SPDX-License-Identifier: Apache-2.0
//! Implements `p4runtime-suite`, which runs the cases against a server and reports which cases pass.

use std::process::ExitCode;

use clap::Parser;
use sluice_p4runtime_suite::report::Report;
use sluice_p4runtime_suite::spawn::Spawned;
use sluice_p4runtime_suite::{Case, Failure, Target, Verdict, cases};

/// Tests a P4Runtime server against the specification. Sets its own pipeline (BMv2 JSON for v1model), so do not use a
/// switch that forwards traffic. Exit code 1 if a case fails
#[derive(Debug, Parser)]
#[command(name = "p4runtime-suite", version, max_term_width = 100)]
struct Options {
    /// Address of the server, which must have CPU port 510
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9559")]
    server: String,

    /// Command that starts the server before each case; it is killed after the case
    #[arg(long, value_name = "COMMAND")]
    spawn: Option<String>,

    /// Device id
    #[arg(long, value_name = "ID", default_value_t = 1)]
    device_id: u64,

    /// Run only cases whose section or name contains this text; repeat for more
    #[arg(long, value_name = "TEXT")]
    filter: Vec<String>,

    /// Print the results as JSON
    #[arg(long)]
    json: bool,

    /// List the cases without running them
    #[arg(long)]
    list: bool,
}

fn chosen(options: &Options) -> Vec<Case> {
    let matches = |case: &Case| {
        let name = case.full_name();
        options.filter.is_empty() || options.filter.iter().any(|text| name.contains(text))
    };
    cases::all().into_iter().filter(matches).collect()
}

async fn spawned(options: &Options) -> std::io::Result<Option<Spawned>> {
    match &options.spawn {
        Some(command) => Ok(Some(Spawned::start(command, &options.server).await?)),
        None => Ok(None),
    }
}

/// Runs a case, on a server of its own if requested. The case fails if its server has died by its end.
async fn verdict(options: &Options, target: &Target, case: &Case) -> anyhow::Result<Verdict> {
    let mut server = spawned(options).await?;
    let mut verdict = case.run(target).await;
    if let Some(end) = server.as_mut().and_then(Spawned::end) {
        let reason = match verdict.outcome {
            Err(Failure::Failed(reason)) => format!("{end}\n{reason}"),
            _ => end,
        };
        verdict.outcome = Err(Failure::Failed(reason));
    }
    Ok(verdict)
}

async fn run(options: &Options) -> anyhow::Result<Report> {
    let first = spawned(options).await?;
    let target = Target::probe(&options.server, options.device_id).await?;
    drop(first);
    if !target.has_packet_io() {
        eprintln!(
            "p4runtime-suite: packets do not come back; check that the server has CPU port 510"
        );
    }
    let mut report = Report::default();
    for case in chosen(options) {
        let verdict = verdict(options, &target, &case).await?;
        let line = report.add(&case, &verdict).text();
        if !options.json {
            println!("{line}");
        }
    }
    Ok(report)
}

#[tokio::main]
async fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        for case in chosen(&options) {
            println!("{}", case.full_name());
        }
        return ExitCode::SUCCESS;
    }
    let report = match run(&options).await {
        Ok(report) => report,
        Err(error) => {
            eprintln!("p4runtime-suite: {error:#}");
            return ExitCode::FAILURE;
        }
    };
    if options.json {
        println!("{}", report.json());
    } else {
        println!("\n{}\n{}", report.table(), report.summary());
    }
    ExitCode::from(u8::from(report.has_failures()))
}

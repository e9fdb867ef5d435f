// SPDX-License-Identifier: Apache-2.0
//! Implements `p4runtime-load`, which writes to a P4Runtime server as fast as the server accepts, or at a fixed rate.
//!
//! The updates are encoded beforehand, so that encoding does not disturb the measurement of the server. [`requests`]
//! cuts a file into Write requests, and [`session`] makes this client the primary. [`load`] sends the requests over a
//! few connections, with several in flight on each. [`usage`] reads the resource use of client and server, and
//! [`report`] prints it.

mod load;
mod report;
mod requests;
mod session;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

/// Writes updates to a P4Runtime server, and prints the duration as JSON. Exit code 1 if a write is refused
#[derive(Debug, Parser)]
#[command(name = "p4runtime-load", version, max_term_width = 100)]
struct Options {
    /// Address of the server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9559")]
    server: String,

    /// Device id
    #[arg(long, value_name = "ID", default_value_t = 1)]
    device_id: u64,

    /// Election id with which this client becomes the primary
    #[arg(long, value_name = "ID", default_value_t = 1)]
    election_id: u64,

    /// Updates per request
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,

    /// Number of connections. With more than one, sluice-switch needs the option --writes-from-any-connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// Outstanding requests per connection
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    window: u32,

    /// Updates per second (default: as fast as the server accepts)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// Process id of the server, to measure its processor time and memory
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// File with an encoded WriteRequest, of any length, that has no fields besides updates
    file: PathBuf,
}

async fn run(options: &Options) -> anyhow::Result<report::Report> {
    let updates = std::fs::read(&options.file)
        .with_context(|| format!("cannot read {}", options.file.display()))?;
    let requests = requests::cut(
        updates.into(),
        options.device_id,
        options.election_id,
        options.batch as usize,
    )?;
    let session = session::Session::open(options).await?;
    let report = load::run(options, requests, session.channel()).await;
    session.close();
    report
}

fn main() -> ExitCode {
    let options = Options::parse();
    // Uses one thread. On a machine with few processors, more threads would take time from the server.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build();
    let report = runtime
        .context("starting")
        .and_then(|runtime| runtime.block_on(run(&options)));
    match report.and_then(|report| Ok(serde_json::to_string_pretty(&report)?)) {
        Ok(json) => {
            println!("{json}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("p4runtime-load: {error:#}");
            ExitCode::FAILURE
        }
    }
}

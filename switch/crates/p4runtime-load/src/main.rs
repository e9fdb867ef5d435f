// SPDX-License-Identifier: Apache-2.0
//! `p4runtime-load`: writes to a P4Runtime server as fast as the server accepts, or at a fixed rate.
//!
//! The updates are encoded beforehand, so that the server is measured. [`requests`] cuts a file into Write requests,
//! [`session`] makes this client the primary, and [`load`] sends the requests over a few connections with several in
//! flight on each. [`usage`] reads the resource use of client and server, and [`report`] prints it.

mod load;
mod report;
mod requests;
mod session;
mod usage;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

/// Writes updates to a P4Runtime server and says, in JSON, how long it took. Exit code 1 if a write is refused
#[derive(Debug, Parser)]
#[command(name = "p4runtime-load", version, max_term_width = 100)]
struct Options {
    /// The server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9559")]
    server: String,

    /// The device
    #[arg(long, value_name = "ID", default_value_t = 1)]
    device_id: u64,

    /// The election id to become primary with
    #[arg(long, value_name = "ID", default_value_t = 1)]
    election_id: u64,

    /// Updates of one request
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    batch: u32,

    /// Connections; sluice-switch takes more than one with --writes-from-any-connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,

    /// Requests under way on each connection
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    window: u32,

    /// Updates a second; as many as the server takes if this is not given
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rate: Option<u32>,

    /// The server's process, to say what it takes
    #[arg(long, value_name = "PID")]
    pid: Option<u32>,

    /// Encoded updates: an encoded WriteRequest that has nothing else, of any length
    file: PathBuf,
}

async fn run(options: &Options) -> anyhow::Result<report::Report> {
    let updates = std::fs::read(&options.file)
        .with_context(|| format!("reading {}", options.file.display()))?;
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
    // One thread: on a machine with few processors the client takes time from the server.
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

// SPDX-License-Identifier: Apache-2.0
//! Implements `p4runtime-load`, which writes to a P4Runtime server as fast as the server accepts, or at a fixed rate.
//!
//! The updates are encoded beforehand, so that encoding does not disturb the measurement of the server. [`requests`]
//! cuts a file into Write requests, and [`session`] makes this client the primary. [`load`] sends the requests over a
//! few connections, with several in flight on each. [`usage`] reads the resource use of client and server, and
//! [`report`] prints it.

mod load;
mod options;
mod report;
mod requests;
mod session;
mod usage;

use std::process::ExitCode;

use anyhow::Context;
use clap::Parser;

use options::Options;

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

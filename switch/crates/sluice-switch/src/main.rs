// SPDX-License-Identifier: Apache-2.0
//! Reads the command line, starts the device and its servers, and stops them on a signal.
//!
//! Two commands do something else. `sluice-switch ctl ...` is a client of a running switch ([`ctl`]). `sluice-switch
//! completion SHELL` prints a shell's completion script for the switch and `ctl` ([`completion`]).

mod admin;
mod completion;
mod ctl;
mod engine_ports;
mod log_file;
mod logging;
mod metrics;
mod options;
mod privileges;
mod run;
mod service_manager;
mod tls;
mod trace_log;
mod version;

use std::process::ExitCode;

use anyhow::Context;
use options::Options;

/// The newest version of p4c's BMv2 JSON that can be loaded.
const JSON_VERSION: &str = "2.24";

/// Exit code for an invalid command line, the same as clap's.
const USAGE: u8 = 2;

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == "ctl" => return ctl::main(arguments),
        Some(first) if first == "completion" => return completion::main(arguments),
        _ => {}
    }
    let options = match Options::read(std::env::args_os()) {
        Ok(options) => options,
        Err(error) => error.exit(),
    };
    if options.json_version {
        println!("{JSON_VERSION}");
        return ExitCode::SUCCESS;
    }
    if let Err(problem) = options.check() {
        eprintln!("sluice-switch: {problem}");
        return ExitCode::from(USAGE);
    }
    match start(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-switch: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start(options: &Options) -> anyhow::Result<()> {
    // Order: sockets and files are opened while the process still has all capabilities. Ports below 1024, a socket's
    // group, and files of other users may need them.
    let inputs = run::Inputs::open(options)?;
    logging::start(options)?;
    privileges::give_up(options.use_files.is_none()).context("cannot give up capabilities")?;
    run::run(options, inputs)
}

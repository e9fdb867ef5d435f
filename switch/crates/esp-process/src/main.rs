// SPDX-License-Identifier: Apache-2.0
//! Runs the ESP engine on a network interface (`sluice-esp`). `sluice-esp ctl ...` adds SAs to a running engine, and
//! queries it.
//!
//! ```text
//!   interface ──► worker (one thread: Engine) ──► interface
//!                   ▲ commands, between batches
//!   Unix socket ──► sluice-esp-control
//! ```
//!
//! Keys come over the socket, which only its owner can open, or from files that only their owner can read. No option
//! takes a key. The process writes no core file and cannot be traced.

mod link;
mod options;
mod run;
mod worker;

use std::process::ExitCode;

use clap::Parser;
use sluice_esp_control::ctl;
use sluice_esp_control::hardening::no_core;

fn main() -> ExitCode {
    if let Err(error) = no_core() {
        eprintln!("sluice-esp: cannot disable core files: {error}");
        return ExitCode::FAILURE;
    }
    let mut arguments = std::env::args_os().skip(1);
    let result = if arguments.next().is_some_and(|first| first == "ctl") {
        let words = std::iter::once("sluice-esp ctl".into()).chain(arguments);
        let options = options::Ctl::parse_from(words);
        ctl::run(&options.admin, options.command)
    } else {
        run::main()
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-esp: {error:#}");
            ExitCode::FAILURE
        }
    }
}

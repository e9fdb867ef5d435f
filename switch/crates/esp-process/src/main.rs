// SPDX-License-Identifier: Apache-2.0
//! `sluice-esp`: the ESP engine on a network interface. `sluice-esp ctl ...` gives SAs to one that runs, and asks it.
//!
//! ```text
//!   interface ──► worker (one thread: Engine) ──► interface
//!                   ▲ commands, between batches
//!   Unix socket ──► admin (a thread for each connection): prepares SAs, writes their numbers to disk
//! ```
//!
//! Keys come over the socket, which is its owner's alone, or from files that are; never by the command line. The process
//! writes no core file and cannot be traced.

mod admin;
mod ctl;
mod hardening;
mod options;
mod protocol;
mod run;
mod sas;
mod worker;

use std::process::ExitCode;

fn main() -> ExitCode {
    if let Err(error) = hardening::no_core() {
        eprintln!("sluice-esp: cannot switch core files off: {error}");
        return ExitCode::FAILURE;
    }
    let mut arguments = std::env::args_os().skip(1);
    let result = if arguments.next().is_some_and(|first| first == "ctl") {
        ctl::main(arguments)
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

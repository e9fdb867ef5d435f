// SPDX-License-Identifier: Apache-2.0
//! Defines the command line.

use std::path::PathBuf;

use clap::Parser;
use sluice_esp_control::ctl::Command;

/// Default path of the admin socket.
pub(crate) const ADMIN_SOCKET: &str = "/run/sluice-esp/admin.sock";

/// Version of the program, and the commit from which it was built (build.rs).
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("SLUICE_BUILT_FROM"),
    ")"
);

/// Runs an ESP engine on a network interface. `sluice-esp ctl` manages its SAs.
#[derive(Debug, Parser)]
#[command(name = "sluice-esp", version = VERSION, max_term_width = 100)]
pub(crate) struct Options {
    /// Interface whose peer is the engine port of the switch
    #[arg(short, long, value_name = "IFACE")]
    pub(crate) interface: String,

    /// Directory in which sequence numbers are reserved; it must survive restarts of the process and of the machine
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/sluice-esp")]
    pub(crate) state_directory: PathBuf,

    /// Unix socket of `sluice-esp ctl` (mode 0600)
    #[arg(long, value_name = "PATH", default_value = ADMIN_SOCKET)]
    pub(crate) admin: PathBuf,

    /// JSON file of initial SAs, as for `ctl add`
    #[arg(long, value_name = "FILE")]
    pub(crate) sas: Option<PathBuf>,

    /// Accept SAs of the algorithm null-without-integrity, which protects nothing; for benchmarks
    #[arg(long)]
    pub(crate) allow_null_without_integrity_for_benchmarks: bool,
}

/// Add, delete and show SAs of a running engine.
#[derive(Debug, Parser)]
#[command(name = "sluice-esp ctl", version = VERSION, max_term_width = 100)]
pub(crate) struct Ctl {
    /// Admin socket of the engine
    #[arg(long, value_name = "PATH", global = true, default_value = ADMIN_SOCKET)]
    pub(crate) admin: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::path::PathBuf;

use clap::Parser;
use sluice_esp_control::ctl::Command;

/// Default path of the admin socket.
pub(crate) const ADMIN_SOCKET: &str = "/run/sluice-esp/admin.sock";

/// The version, and the commit of the build (build.rs).
const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (",
    env!("SLUICE_BUILT_FROM"),
    ")"
);

/// Sluice's ESP engine on a network interface. `sluice-esp ctl` gives it SAs.
#[derive(Debug, Parser)]
#[command(name = "sluice-esp", version = VERSION, max_term_width = 100)]
pub(crate) struct Options {
    /// The interface whose other end is the switch's engine port
    #[arg(short, long, value_name = "IFACE")]
    pub(crate) interface: String,

    /// Where sequence numbers are reserved; it has to outlive the process, and the machine's restarts
    #[arg(long, value_name = "DIRECTORY", default_value = "/var/lib/sluice-esp")]
    pub(crate) state_directory: PathBuf,

    /// The Unix socket of `sluice-esp ctl` (mode 0600)
    #[arg(long, value_name = "PATH", default_value = ADMIN_SOCKET)]
    pub(crate) admin: PathBuf,

    /// SAs to begin with: a JSON file as for `ctl add`
    #[arg(long, value_name = "FILE")]
    pub(crate) sas: Option<PathBuf>,

    /// Take SAs of the algorithm null-without-integrity, which protects nothing
    #[arg(long)]
    pub(crate) allow_null_without_integrity_for_benchmarks: bool,
}

/// Give SAs to a running engine, end them, show them.
#[derive(Debug, Parser)]
#[command(name = "sluice-esp ctl", version = VERSION, max_term_width = 100)]
pub(crate) struct Ctl {
    /// The engine's admin socket
    #[arg(long, value_name = "PATH", global = true, default_value = ADMIN_SOCKET)]
    pub(crate) admin: PathBuf,

    #[command(subcommand)]
    pub(crate) command: Command,
}

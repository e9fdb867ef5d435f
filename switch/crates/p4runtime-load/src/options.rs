// SPDX-License-Identifier: Apache-2.0
//! The command line.

use std::path::PathBuf;

use clap::Parser;

/// Writes updates to a P4Runtime server, and prints the duration as JSON. Exit code 1 if a write is refused
#[derive(Debug, Parser)]
#[command(name = "p4runtime-load", version, max_term_width = 100)]
pub(crate) struct Options {
    /// Address of the server
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:9559")]
    pub(crate) server: String,

    /// Device id
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pub(crate) device_id: u64,

    /// Election id with which this client becomes the primary
    #[arg(long, value_name = "ID", default_value_t = 1)]
    pub(crate) election_id: u64,

    /// Updates per request
    #[arg(long, value_name = "N", default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,

    /// Number of connections. With more than one, sluice-switch needs the option --writes-from-any-connection
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) connections: u32,

    /// Outstanding requests per connection
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) window: u32,

    /// Updates per second (default: as fast as the server accepts)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rate: Option<u32>,

    /// Process id of the server, to measure its processor time and memory
    #[arg(long, value_name = "PID")]
    pub(crate) pid: Option<u32>,

    /// File with an encoded WriteRequest, of any length, that has no fields besides updates
    pub(crate) file: PathBuf,
}

// SPDX-License-Identifier: Apache-2.0
//! Sends a process's log to a terminal, a file or the journal. The process selects the destination and the filter.
//!
//! Promises: only a terminal gets ANSI escapes. The journal gets priorities, and each value as a field `SLUICE_NAME`.
//! If the reader of the log is gone, the process continues.

use std::io::{self, IsTerminal};

use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

pub use tracing_subscriber::EnvFilter;
pub use tracing_subscriber::filter::LevelFilter;

/// Systemd's journal as a log destination.
pub struct Journal(tracing_journald::Layer);

impl Journal {
    /// Returns the journal if standard error is connected to it (`JOURNAL_STREAM`, systemd.exec(5)). Records have
    /// `program` as their identifier.
    pub fn behind_standard_error(program: &str) -> Option<Self> {
        let named = std::env::var("JOURNAL_STREAM").ok()?;
        let error = rustix::fs::fstat(io::stderr()).ok()?;
        if named != format!("{}:{}", error.st_dev, error.st_ino) {
            return None;
        }
        let journal = tracing_journald::layer().ok()?;
        let journal = journal.with_syslog_identifier(program.to_owned());
        Some(Self(journal.with_field_prefix(Some("SLUICE".to_owned()))))
    }
}

/// Starts logging to the journal.
pub fn to_journal(journal: Journal, filter: EnvFilter) {
    tracing_subscriber::registry()
        .with(journal.0)
        .with(filter)
        .init();
}

/// Starts logging to standard output. Each record is one line.
pub fn to_standard_output(filter: EnvFilter) {
    to_lines(io::stdout, io::stdout().is_terminal(), filter);
}

/// Starts logging to standard error. Each record is one line.
pub fn to_standard_error(filter: EnvFilter) {
    to_lines(io::stderr, io::stderr().is_terminal(), filter);
}

/// Starts logging to a file. Each record is one line.
pub fn to_file(file: impl for<'w> MakeWriter<'w> + Send + Sync + 'static, filter: EnvFilter) {
    to_lines(file, false, filter);
}

fn to_lines(
    writer: impl for<'w> MakeWriter<'w> + Send + Sync + 'static,
    is_terminal: bool,
    filter: EnvFilter,
) {
    tracing_subscriber::fmt()
        .with_target(false)
        .with_ansi(is_terminal)
        // If the reader of the log is gone, writing fails. The process must ignore this error.
        .log_internal_errors(false)
        .with_env_filter(filter)
        .with_writer(writer)
        .init();
}

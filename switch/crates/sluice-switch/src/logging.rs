// SPDX-License-Identifier: Apache-2.0
//! Selects where the log goes: standard output or a file. Without such an option, warnings go to standard error. If
//! standard error is the journal, messages of level `info` go there too, with each value as a field `SLUICE_NAME`.

use std::sync::Mutex;

use anyhow::Context;
use sluice_logging::{EnvFilter, Journal, LevelFilter};

use crate::log_file::{self, LogFile};
use crate::options::{Level, Options};

/// Starts logging for the whole process.
pub(crate) fn start(options: &Options) -> anyhow::Result<()> {
    let level = match options.log_level() {
        Level::Trace => LevelFilter::TRACE,
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warn => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
        Level::Off => LevelFilter::OFF,
    };
    // The filter selects only this project's crates, whose names begin with `sluice`. Libraries would log every frame
    // of every connection.
    let ours = |level: LevelFilter| EnvFilter::new(format!("off,sluice={level}"));
    if options.log_console {
        sluice_logging::to_standard_output(ours(level));
    } else if let Some(path) = &options.log_file {
        let file = LogFile::create(path, options.rotation());
        let file = file.with_context(|| log_file::path(path, 0).display().to_string())?;
        sluice_logging::to_file(Mutex::new(file), ours(level));
    } else if let Some(journal) = Journal::behind_standard_error("sluice-switch") {
        sluice_logging::to_journal(journal, ours(level.min(LevelFilter::INFO)));
    } else {
        sluice_logging::to_standard_error(ours(level.min(LevelFilter::WARN)));
    }
    Ok(())
}

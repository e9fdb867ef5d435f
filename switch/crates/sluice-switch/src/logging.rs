// SPDX-License-Identifier: Apache-2.0
//! Where log lines go: standard output, a file, or, without being asked, warnings to standard error. Where standard
//! error is the journal, it gets what is worth knowing too, each value as a field `SLUICE_NAME`.

use std::io::IsTerminal;
use std::sync::Mutex;

use anyhow::Context;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

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
    // Only what this project logs: its libraries trace every frame of every connection.
    let ours = |level: LevelFilter| {
        let filter = tracing_subscriber::EnvFilter::new("off");
        [
            "sluice_switch",
            "sluice_p4runtime",
            "sluice_device",
            "sluice_ports",
            "sluice_engine",
            "sluice_admin",
            "sluice_esp_control",
            "sluice_esp_port",
        ]
        .iter()
        .filter_map(|name| format!("{name}={level}").parse().ok())
        .fold(filter, tracing_subscriber::EnvFilter::add_directive)
    };
    let terminal = std::io::stdout().is_terminal();
    let subscriber = tracing_subscriber::fmt()
        .with_target(false)
        .with_ansi(terminal)
        // Nobody may be reading any more; that is no reason to fail.
        .log_internal_errors(false);
    if options.log_console {
        subscriber.with_env_filter(ours(level)).init();
    } else if let Some(path) = &options.log_file {
        let file = LogFile::create(path, options.rotation());
        let file = file.with_context(|| log_file::path(path, 0).display().to_string())?;
        subscriber
            .with_env_filter(ours(level))
            .with_ansi(false)
            .with_writer(Mutex::new(file))
            .init();
    } else if let Some(journal) = journal() {
        let level = level.min(LevelFilter::INFO);
        let journal = journal
            .with_syslog_identifier("sluice-switch".to_owned())
            .with_field_prefix(Some("SLUICE".to_owned()));
        tracing_subscriber::registry()
            .with(journal)
            .with(ours(level))
            .init();
    } else {
        let level = level.min(LevelFilter::WARN);
        subscriber
            .with_env_filter(ours(level))
            .with_writer(std::io::stderr)
            .init();
    }
    Ok(())
}

/// The journal, if standard error leads to it (`JOURNAL_STREAM`, systemd.exec(5)).
fn journal() -> Option<tracing_journald::Layer> {
    let named = std::env::var("JOURNAL_STREAM").ok()?;
    let error = rustix::fs::fstat(std::io::stderr()).ok()?;
    if named != format!("{}:{}", error.st_dev, error.st_ino) {
        return None;
    }
    tracing_journald::layer().ok()
}

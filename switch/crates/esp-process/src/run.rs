// SPDX-License-Identifier: Apache-2.0
//! Starts an engine with the given options, and ends it.

use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Context, anyhow, bail};
use clap::Parser;
use crossbeam_channel::{RecvTimeoutError, Sender, bounded};
use rustix::thread::CapabilitySet;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sluice_esp::Reservations;
use sluice_esp_control::admin::{self, Admin};
use sluice_esp_control::command::{Command, Handle};
use sluice_esp_control::sas;
use sluice_logging::{EnvFilter, Journal};
use sluice_ports::privilege;
use sluice_service_manager::ServiceManager;

use crate::link::Link;
use crate::options::Options;
use crate::worker::Worker;

/// Interval between two checks of the interface.
const CHECK: Duration = Duration::from_secs(1);

enum Event {
    Stop,
    WorkerEnded,
}

/// Sends [`Event::WorkerEnded`] when the worker's thread ends, also after an error or a panic.
struct EndNotice(Sender<Event>);

impl Drop for EndNotice {
    fn drop(&mut self) {
        // A full channel holds a signal to stop already, so the process ends without this event.
        let _ = self.0.try_send(Event::WorkerEnded);
    }
}

/// Runs the engine until SIGTERM or SIGINT.
///
/// # Errors
/// Describes the obstacle, such as an interface that cannot be opened.
pub(crate) fn main() -> anyhow::Result<()> {
    let options = Options::parse();
    log();
    // Order: signal handlers are installed, and privileged operations done, before any thread starts.
    let mut signals = Signals::new([SIGTERM, SIGINT])?;
    let directory = &options.state_directory;
    let named = || options.interface.clone();
    let mut link = Link::take(&options.interface).with_context(named)?;
    let (worker, engine) = Worker::open(&options.interface).with_context(named)?;
    let (listener, _socket) =
        admin::listen(&options.admin).with_context(|| options.admin.display().to_string())?;
    let specs = options.sas.as_deref().map(sas::read).transpose()?;
    // The capabilities that the port needs become effective only while the port is checked or restored.
    privilege::keep_only(privilege::NEEDED, CapabilitySet::empty())
        .context("cannot give up capabilities")?;
    let reservations = Reservations::open(directory)
        .with_context(|| format!("--state-directory {}", directory.display()))?;

    let (events, happened) = bounded(2);
    let moving = start(events.clone(), move || worker.run())?;
    let admin = Arc::new(Admin {
        engine: engine.clone(),
        reservations: Arc::new(reservations),
        allow_no_integrity: options.allow_null_without_integrity_for_benchmarks,
    });
    for spec in specs.into_iter().flatten() {
        let number = spec.sa;
        let added = admin.add(spec);
        added.map_err(|problem| anyhow!("SA {number}: {problem}"))?;
    }
    admin::serve(listener, admin)?;
    thread::Builder::new()
        .name("signals".into())
        .spawn(move || {
            if signals.forever().next().is_some() {
                drop(events.send(Event::Stop));
            }
        })?;
    tracing::info!(interface = options.interface, "ready");
    let manager = Arc::new(ServiceManager::from_environment());
    manager.tell("READY=1");
    keep_informed(Arc::clone(&manager), engine.clone())?;
    loop {
        match happened.recv_timeout(CHECK) {
            Ok(Event::Stop) => break,
            Ok(Event::WorkerEnded) | Err(RecvTimeoutError::Disconnected) => {
                join(moving)?;
                bail!("the worker's thread has ended");
            }
            Err(RecvTimeoutError::Timeout) => link.check()?,
        }
    }
    manager.tell("STOPPING=1");
    engine.stop();
    join(moving)
}

/// Sets up logging to the journal if standard error is connected to the journal, else to standard error. The level is
/// info unless `RUST_LOG` sets another.
fn log() {
    let filter = EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    match Journal::behind_standard_error("sluice-esp") {
        Some(journal) => sluice_logging::to_journal(journal, filter),
        None => sluice_logging::to_standard_error(filter),
    }
}

/// Starts the worker's thread, which sends an event when it ends.
fn start(
    events: Sender<Event>,
    work: impl FnOnce() -> io::Result<()> + Send + 'static,
) -> io::Result<JoinHandle<io::Result<()>>> {
    let notice = EndNotice(events);
    thread::Builder::new().name("worker".into()).spawn(move || {
        let _notice = notice;
        work()
    })
}

/// Waits until the worker's thread has ended.
///
/// # Errors
/// The worker's error, or a report that the worker panicked.
fn join(moving: JoinHandle<io::Result<()>>) -> anyhow::Result<()> {
    let result = moving.join();
    result.map_err(|_| anyhow!("the worker's thread has panicked"))??;
    Ok(())
}

/// Starts a thread that sends keep-alives to the service manager as long as the worker answers.
fn keep_informed(manager: Arc<ServiceManager>, engine: Handle) -> io::Result<()> {
    let Some(interval) = manager.interval() else {
        return Ok(());
    };
    let informing = thread::Builder::new().name("watchdog".into());
    informing.spawn(move || {
        while engine.ask(Command::Totals).is_some() {
            manager.tell("WATCHDOG=1");
            thread::sleep(interval);
        }
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEADLINE: Duration = Duration::from_secs(20);

    /// Runs a worker whose thread executes `work`. Returns the error that ends the process.
    fn end(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> String {
        // The channel has the same capacity as in a running process. So there is room for a second event, a signal to
        // stop.
        let (events, happened) = bounded(2);
        let moving = start(events.clone(), work).unwrap();
        let event = happened.recv_timeout(DEADLINE).unwrap();
        assert!(matches!(event, Event::WorkerEnded));
        join(moving).unwrap_err().to_string()
    }

    #[test]
    fn a_worker_that_panics_ends_the_process() {
        assert_eq!(
            end(|| panic!("a test's")),
            "the worker's thread has panicked"
        );
    }

    #[test]
    fn a_worker_that_fails_ends_the_process_with_its_error() {
        assert_eq!(end(|| Err(io::Error::other("no more"))), "no more");
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sends commands to the engine's thread. That thread runs the commands between two batches. So no lock is taken while
//! packets are served.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sluice_esp::Engine;
use sluice_esp::engine::{CountersView, Sa, SaStatus, Totals};

/// Returns nanoseconds since boot, including time suspended. SA lifetimes are measured by this clock.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// Command to the engine's thread from another thread. The engine's thread sends a removed SA back to the other thread,
/// which drops the SA.
pub enum Command {
    /// Add an SA.
    Add(Sa, Sender<Result<(), (Sa, String)>>),
    /// Remove and return an outbound SA, by its number.
    RemoveOutbound(u32, Sender<Option<Sa>>),
    /// Remove and return an inbound SA, by its VRF and SPI.
    RemoveInbound(u16, u32, Sender<Option<Sa>>),
    /// Return the engine's status.
    Status(Sender<Status>),
    /// Return the sums of the engine's counters over all SAs.
    Totals(Sender<Totals>),
    /// Check the lifetimes of SAs. An SA that has reached a hard lifetime erases its keys.
    Tick(Sender<()>),
    /// End the thread.
    Stop,
}

/// Status of an engine: its SAs, counters and port.
#[derive(Debug, Serialize)]
pub struct Status {
    /// SAs of the engine.
    pub sas: Vec<SaStatus>,
    /// Counters of packets without an SA.
    pub others: CountersView,
    /// Frame counters of the engine's port.
    pub port: Frames,
}

/// Frame counters of the engine's port. "Received" and "sent" are meant from the engine's point of view.
#[derive(Debug, Serialize)]
pub struct Frames {
    /// Frames received from the switch.
    pub received: u64,
    /// Frames from the switch that were lost before they reached the engine.
    pub receive_dropped: u64,
    /// Frames sent to the switch.
    pub sent: u64,
    /// Frames that were lost on the path to the switch.
    pub send_dropped: u64,
}

/// Sends commands to the engine's thread.
#[derive(Clone)]
pub struct Handle {
    commands: Sender<Command>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// Receiver of commands, used by the engine's thread.
pub struct Commands(Receiver<Command>);

/// Creates sender and receiver of commands. `wake` interrupts the wait of the engine's thread.
pub fn channel(wake: impl Fn() + Send + Sync + 'static) -> (Handle, Commands) {
    // The channel is unbounded, so that it drops its commands together with its receiver. A bounded channel would keep
    // the commands behind a `Stop` as long as a sender exists, and the clients of these commands would wait forever.
    // Each client thread has at most one command in the channel, so the channel stays small.
    let (commands, waiting) = unbounded();
    let wake = Arc::new(wake);
    (Handle { commands, wake }, Commands(waiting))
}

/// Interval at which lifetimes are checked even if no packets arrive.
const TICK: Duration = Duration::from_secs(1);

/// Starts a thread that sends ticks until the engine has ended, and then calls `ended`.
///
/// # Errors
/// The kernel's error, if the thread cannot be started.
pub fn tick(engine: Handle, ended: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let ticking = thread::Builder::new().name("esp-clock".into());
    ticking.spawn(move || {
        while engine.ask(Command::Tick).is_some() {
            thread::sleep(TICK);
        }
        ended();
    })?;
    Ok(())
}

impl Handle {
    /// Sends a command and waits for the answer. Returns None if the engine has ended.
    pub fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = bounded(1);
        self.commands.send(command(answer)).ok()?;
        (self.wake)();
        answered.recv().ok()
    }

    /// Asks the engine's thread to end.
    pub fn stop(&self) {
        if self.commands.send(Command::Stop).is_ok() {
            (self.wake)();
        }
    }
}

impl Commands {
    /// Returns whether no command is waiting.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Runs all waiting commands. Returns false if the thread must end. `frames` reads the port's frame counters.
    pub fn serve(&self, engine: &mut Engine, now: u64, frames: impl Fn() -> Frames) -> bool {
        while let Ok(command) = self.0.try_recv() {
            if !obey(command, engine, now, &frames) {
                return false;
            }
        }
        true
    }
}

/// Runs one command. Returns false if the thread must end. If the client is gone, the answer is dropped.
fn obey(command: Command, engine: &mut Engine, now: u64, frames: &impl Fn() -> Frames) -> bool {
    match command {
        Command::Add(sa, answer) => drop(answer.send(engine.add(sa))),
        Command::RemoveOutbound(sa, answer) => drop(answer.send(engine.remove_outbound(sa))),
        Command::RemoveInbound(vrf, spi, answer) => {
            drop(answer.send(engine.remove_inbound(vrf, spi)));
        }
        Command::Status(answer) => {
            let status = Status {
                sas: engine.status(now),
                others: engine.counters().into(),
                port: frames(),
            };
            drop(answer.send(status));
        }
        Command::Totals(answer) => drop(answer.send(engine.totals())),
        Command::Tick(answer) => {
            engine.tick(now);
            let _ = answer.send(());
        }
        Command::Stop => return false,
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_behind_a_stop_gets_no_answer_and_waits_no_longer() {
        let (handle, commands) = channel(|| {});
        handle.stop();
        let asking = thread::spawn({
            let handle = handle.clone();
            move || handle.ask(Command::Tick)
        });
        while commands.0.len() < 2 {
            thread::yield_now();
        }
        let (ended, end) = bounded(1);
        assert!(!commands.serve(&mut Engine::default(), 0, || unreachable!()));
        drop(commands);
        thread::spawn(move || ended.send(asking.join()));
        let answer = end.recv_timeout(Duration::from_secs(20));
        assert!(matches!(answer, Ok(Ok(None))), "the command waits for ever");
        assert!(handle.ask(Command::Tick).is_none());
    }
}

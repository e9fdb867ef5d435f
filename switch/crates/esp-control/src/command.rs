// SPDX-License-Identifier: Apache-2.0
//! The way from the admin socket to the thread that has the engine. Commands wait until that thread is between two batches,
//! so no packet takes a lock.

use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use rustix::time::{ClockId, clock_gettime};
use serde::Serialize;
use sluice_esp::Engine;
use sluice_esp::engine::{CountersView, Sa, SaStatus, Totals};

/// Nanoseconds since the machine started, time asleep included: the clock of lifetimes.
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Boottime);
    (time.tv_sec as u64) * 1_000_000_000 + time.tv_nsec as u64
}

/// A request of another thread. SAs that end go back, to be dropped there.
pub enum Command {
    /// Take an SA.
    Add(Sa, Sender<Result<(), (Sa, String)>>),
    /// Give an outbound SA back, by its number.
    RemoveOutbound(u32, Sender<Option<Sa>>),
    /// Give an inbound SA back, by its VRF and SPI.
    RemoveInbound(u16, u32, Sender<Option<Sa>>),
    /// Describe the engine.
    Status(Sender<Status>),
    /// Add up what the engine has counted.
    Totals(Sender<Totals>),
    /// Look at the clock: SAs whose time is over give up their keys.
    Tick(Sender<()>),
    /// End the thread.
    Stop,
}

/// Describes an engine: its SAs, counters and port.
#[derive(Debug, Serialize)]
pub struct Status {
    /// Its SAs.
    pub sas: Vec<SaStatus>,
    /// Counts of packets that met no SA.
    pub others: CountersView,
    /// Its frames.
    pub port: Frames,
}

/// Counts of frames, as the engine sees them.
#[derive(Debug, Serialize)]
pub struct Frames {
    /// From the switch.
    pub received: u64,
    /// From the switch, and lost before the engine.
    pub receive_dropped: u64,
    /// To the switch.
    pub sent: u64,
    /// For the switch, and lost.
    pub send_dropped: u64,
}

/// Reaches the thread that has the engine.
#[derive(Clone)]
pub struct Handle {
    commands: Sender<Command>,
    wake: Arc<dyn Fn() + Send + Sync>,
}

/// The end of that thread.
pub struct Commands(Receiver<Command>);

/// Makes both ends. `wake` ends the wait of the thread that has the engine.
pub fn channel(wake: impl Fn() + Send + Sync + 'static) -> (Handle, Commands) {
    // Not bounded: a bounded channel keeps the commands behind a `Stop` for as long as it has senders, and whoever asked
    // would wait for ever. An unbounded one drops them with its receiver. Each thread that asks has one command in it.
    let (commands, waiting) = unbounded();
    let wake = Arc::new(wake);
    (Handle { commands, wake }, Commands(waiting))
}

/// How often SAs look at the clock where no packet comes.
const TICK: Duration = Duration::from_secs(1);

/// Has the engine look at the clock for as long as there is one, then calls `ended`. On a thread of its own.
///
/// # Errors
/// The kernel's, if there is no thread.
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
    /// Has a command done, and returns the answer; none if the engine has ended.
    pub fn ask<T>(&self, command: impl FnOnce(Sender<T>) -> Command) -> Option<T> {
        let (answer, answered) = bounded(1);
        self.commands.send(command(answer)).ok()?;
        (self.wake)();
        answered.recv().ok()
    }

    /// Has the engine's thread end.
    pub fn stop(&self) {
        if self.commands.send(Command::Stop).is_ok() {
            (self.wake)();
        }
    }
}

impl Commands {
    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Does all commands that wait; false to end. `frames` counts those of the engine's port.
    pub fn serve(&self, engine: &mut Engine, now: u64, frames: impl Fn() -> Frames) -> bool {
        while let Ok(command) = self.0.try_recv() {
            if !obey(command, engine, now, &frames) {
                return false;
            }
        }
        true
    }
}

/// Does a command; false to end. Where the client has gone, its answer is dropped.
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
        assert!(matches!(answer, Ok(Ok(None))), "it waits for ever");
        assert!(handle.ask(Command::Tick).is_none());
    }
}

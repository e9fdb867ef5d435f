// SPDX-License-Identifier: Apache-2.0
//! Runs a target on one input after another, and stores the input of a crash.
//!
//! Inputs are mutations of the seeds. The target runs on the calling thread. A watchdog thread detects an input that
//! never ends.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use parking_lot::Mutex;

use crate::random::Random;
use crate::target::{Tally, Target};
use sluice_random::mix;

/// Time limit of an input. An input that takes longer counts as a hang of the switch.
const TOO_LONG: Duration = Duration::from_secs(20);
const REPORT: Duration = Duration::from_secs(10);

/// Condition that ends a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// The run has lasted for this time.
    Elapsed(Duration),
    /// The target has counted this number of its units, such as packets.
    Count(u64),
}

/// Runs one target.
pub struct Driver {
    name: &'static str,
    target: Box<dyn Target>,
    random: Random,
    corpus: Vec<Vec<u8>>,
    tally: Tally,
    artifacts: PathBuf,
    running: Arc<Mutex<Option<Running>>>,
}

/// The input that currently runs.
struct Running {
    since: Instant,
    input: Vec<u8>,
}

impl Driver {
    /// Creates a driver for a target. The inputs of crashes are written to the folder `artifacts`.
    pub fn new(
        name: &'static str,
        target: Box<dyn Target>,
        seed: u64,
        artifacts: impl Into<PathBuf>,
    ) -> Self {
        Self {
            name,
            corpus: target.seeds(),
            target,
            random: Random::new(seed),
            tally: Tally::default(),
            artifacts: artifacts.into(),
            running: Arc::new(Mutex::new(None)),
        }
    }

    /// Returns the counts up to now.
    pub fn tally(&self) -> &Tally {
        &self.tally
    }

    /// Runs the seeds, then mutations of them. Returns the counts.
    ///
    /// # Errors
    /// Returns a crash, with the path of the stored input and the command to replay it. An input that hangs ends the
    /// process.
    pub fn run(&mut self, until: Until) -> Result<&Tally> {
        let (stop, stopped) = mpsc::channel();
        let watchdog = Watchdog {
            name: self.name,
            artifacts: self.artifacts.clone(),
            running: Arc::clone(&self.running),
            stopped,
        };
        let watchdog = std::thread::spawn(move || watchdog.run());
        let result = self.try_all(until);
        drop(stop);
        watchdog.join().expect("the watchdog does not panic");
        result.map(|()| &self.tally)
    }

    fn try_all(&mut self, until: Until) -> Result<()> {
        let start = Instant::now();
        let mut reported = start;
        for seed in 0..self.corpus.len() {
            if self.done(until, start) {
                return Ok(());
            }
            let input = self.corpus[seed].clone();
            self.input(&input)?;
        }
        while !self.done(until, start) {
            let input = self.next_input();
            self.input(&input)?;
            if reported.elapsed() > REPORT {
                reported = Instant::now();
                eprintln!("{}", self.report(start.elapsed()));
            }
        }
        Ok(())
    }

    fn done(&self, until: Until, start: Instant) -> bool {
        match until {
            Until::Elapsed(time) => start.elapsed() >= time,
            Until::Count(count) => self.tally.get(self.target.unit()) >= count,
        }
    }

    fn next_input(&mut self) -> Vec<u8> {
        let one = self.random.below(self.corpus.len());
        let two = self.random.below(self.corpus.len());
        let (input, other) = (&self.corpus[one], &self.corpus[two]);
        self.target.mutate(&mut self.random, input, other)
    }

    /// Runs one input.
    fn input(&mut self, input: &[u8]) -> Result<()> {
        *self.running.lock() = Some(Running {
            since: Instant::now(),
            input: input.to_vec(),
        });
        self.tally.add("inputs", 1);
        let (target, tally) = (&mut self.target, &mut self.tally);
        let outcome = catch_unwind(AssertUnwindSafe(|| target.run(input, tally)));
        *self.running.lock() = None;
        if outcome.is_err() {
            let path = save(&self.artifacts, self.name, input)?;
            bail!("{} crashed; {}", self.name, how_to_replay(self.name, &path));
        }
        Ok(())
    }

    /// Returns the counts in one line.
    pub fn report(&self, elapsed: Duration) -> String {
        let seconds = elapsed.as_secs_f64().max(0.001);
        let mut line = format!("{}: {seconds:.1} s", self.name);
        for (name, count) in self.tally.iter() {
            line += &format!(", {count} {name}");
        }
        let unit = self.target.unit();
        let rate = self.tally.get(unit) as f64 / seconds;
        line + &format!("; {rate:.0} {unit} a second")
    }
}

/// Runs a target on a stored input.
///
/// # Panics
/// If the target panics.
pub fn replay(target: &mut dyn Target, input: &[u8]) -> Tally {
    let mut tally = Tally::default();
    target.run(input, &mut tally);
    tally
}

fn save(folder: &Path, name: &str, input: &[u8]) -> Result<PathBuf> {
    let digest = input
        .iter()
        .fold(0, |state, byte| mix(state ^ u64::from(*byte)));
    let path = folder.join(format!("{name}-{digest:016x}"));
    std::fs::create_dir_all(folder)
        .and_then(|()| std::fs::write(&path, input))
        .with_context(|| format!("cannot write the input of a crash to {}", path.display()))?;
    Ok(path)
}

fn how_to_replay(name: &str, path: &Path) -> String {
    let path = path.display();
    format!("the input is {path}\nreplay it: sluice-fuzz replay {name} {path}")
}

/// Ends the process if an input never ends. There is no other way to stop a thread that does not return.
struct Watchdog {
    name: &'static str,
    artifacts: PathBuf,
    running: Arc<Mutex<Option<Running>>>,
    stopped: mpsc::Receiver<()>,
}

impl Watchdog {
    fn run(self) {
        while self.stopped.recv_timeout(TOO_LONG / 4) == Err(RecvTimeoutError::Timeout) {
            let running = self.running.lock();
            let Some(late) = running.as_ref().filter(|r| r.since.elapsed() > TOO_LONG) else {
                continue;
            };
            match save(&self.artifacts, self.name, &late.input) {
                Ok(path) => eprintln!("{} hangs; {}", self.name, how_to_replay(self.name, &path)),
                Err(error) => eprintln!("{} hangs; {error:#}", self.name),
            }
            std::process::exit(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Target that crashes on inputs that begin with an exclamation mark.
    struct Fragile;

    impl Target for Fragile {
        fn unit(&self) -> &'static str {
            "inputs"
        }

        fn bar(&self) -> u64 {
            1
        }

        fn seeds(&self) -> Vec<Vec<u8>> {
            vec![b"  ".to_vec()]
        }

        fn run(&mut self, input: &[u8], _tally: &mut Tally) {
            assert_ne!(input.first(), Some(&b'!'), "an exclamation mark");
        }
    }

    #[test]
    fn a_crash_is_found_and_its_input_kept() {
        let folder = tempfile::tempdir().expect("a folder can be made");
        let mut driver = Driver::new("fragile", Box::new(Fragile), 1, folder.path());
        let error = driver.run(Until::Count(1_000_000)).expect_err("a crash");
        let message = error.to_string();
        assert!(
            message.contains("replay it: sluice-fuzz replay fragile"),
            "{message}"
        );
        let file = std::fs::read_dir(folder.path())
            .expect("the folder can be read")
            .next();
        let path = file
            .expect("the folder contains one file")
            .expect("the folder contains one file")
            .path();
        assert_eq!(
            std::fs::read(path).expect("the input can be read").first(),
            Some(&b'!')
        );
    }

    #[test]
    fn equal_seeds_try_equal_inputs() {
        let inputs = |seed| {
            let mut driver = Driver::new("fragile", Box::new(Fragile), seed, "");
            (0..50).map(|_| driver.next_input()).collect::<Vec<_>>()
        };
        assert_eq!(inputs(3), inputs(3));
        assert_ne!(inputs(3), inputs(4));
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Implements `sluice-fuzz`, which fuzzes each target for a given time or up to a required amount of input, and replays
//! crashes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use sluice_fuzz::engines::{self, EnginesTarget};
use sluice_fuzz::{Driver, Target, Until, driver, programs, targets};

/// Fuzz targets for programs, packets and P4Runtime requests.
#[derive(Debug, Parser)]
#[command(name = "sluice-fuzz")]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Lists the targets
    List,
    /// Fuzzes targets one after another: all of them if none is named
    Run {
        /// Names of targets
        targets: Vec<String>,
        /// Seconds for each target (default: until the target has run its required number of packets, programs, updates
        /// or messages)
        #[arg(long)]
        seconds: Option<u64>,
        /// Folder of compiled programs (NAME.json, also in subfolders) that `engines` runs in addition to the
        /// project's own
        #[arg(long)]
        programs: Option<PathBuf>,
        /// Seed of the random generator; equal seeds generate equal inputs
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Folder for inputs that crash
        #[arg(long, default_value = "fuzz-artifacts")]
        artifacts: PathBuf,
    },
    /// Runs a target on one input file
    Replay {
        /// Name of the target
        target: String,
        /// Input file
        file: PathBuf,
        /// Folder that was given with `run --programs` when the input was found
        #[arg(long)]
        programs: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let result = match Options::parse().command {
        Command::List => {
            targets().iter().for_each(|(name, _)| println!("{name}"));
            Ok(())
        }
        Command::Run {
            targets,
            seconds,
            programs,
            seed,
            artifacts,
        } => run(&targets, seconds, programs.as_deref(), seed, &artifacts),
        Command::Replay {
            target,
            file,
            programs,
        } => replay(&target, &file, programs.as_deref()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("sluice-fuzz: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(
    wanted: &[String],
    seconds: Option<u64>,
    programs: Option<&Path>,
    seed: u64,
    artifacts: &Path,
) -> Result<()> {
    for name in wanted {
        if targets().iter().all(|(known, _)| known != name) {
            bail!("there is no target {name:?}; `sluice-fuzz list` names them");
        }
    }
    for (name, make) in targets() {
        if !wanted.is_empty() && !wanted.iter().any(|wanted| wanted == name) {
            continue;
        }
        let target = target(name, make, programs)?;
        let until = match seconds {
            Some(seconds) => Until::Elapsed(Duration::from_secs(seconds)),
            None => Until::Count(target.bar()),
        };
        let start = Instant::now();
        let mut driver = Driver::new(name, target, seed, artifacts);
        let outcome = driver.run(until).map(drop);
        println!("{}", driver.report(start.elapsed()));
        outcome?;
    }
    Ok(())
}

/// Creates the target with this name. If a folder of programs is given, `engines` also runs the programs in it.
fn target(
    name: &str,
    make: fn() -> Box<dyn Target>,
    programs: Option<&Path>,
) -> Result<Box<dyn Target>> {
    let Some(folder) = programs.filter(|_| name == engines::NAME) else {
        return Ok(make());
    };
    let others = programs::within(folder)?;
    if others.is_empty() {
        bail!(
            "{} contains no compiled program (NAME.json)",
            folder.display()
        );
    }
    let found = others.len();
    let (target, refused) = EnginesTarget::with(others);
    refused
        .iter()
        .for_each(|reason| println!("program left out: {reason}"));
    println!("{} of {found} programs", found - refused.len());
    Ok(Box::new(target))
}

fn replay(name: &str, file: &Path, programs: Option<&Path>) -> Result<()> {
    let Some((_, make)) = targets().into_iter().find(|(known, _)| *known == name) else {
        bail!("there is no target {name:?}; `sluice-fuzz list` names them");
    };
    let input = std::fs::read(file).with_context(|| file.display().to_string())?;
    let tally = driver::replay(&mut *target(name, make, programs)?, &input);
    for (name, count) in tally.iter() {
        println!("{count} {name}");
    }
    Ok(())
}

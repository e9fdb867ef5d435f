// SPDX-License-Identifier: Apache-2.0
//! Measures the switch's lookup structures and its ESP engine, and compares them with structures of other projects. All
//! of them run in one process, one after the other.
//!
//! `make bench-NAME` runs this program and writes the results. The program prints every round as JSON on standard
//! output, and its progress on standard error. The program is not part of the product.
//!
//! - [`input`]: tables, rules and traces; [`peers`]: lookup structures of other projects
//! - [`measure`]: runs the contenders in turn, in rounds; [`report`]: the output
//! - [`lpm`] and the other modules: one benchmark per module
//!
//! Promises: before contenders are measured, all of them give the same results for a sample of lookups. The same seed
//! yields the same input.

mod esp;
mod exact;
mod input;
mod lookup_tables;
mod lpm;
mod lpm_auto;
mod measure;
mod own_lpm;
mod peers;
mod report;
mod setting;
mod system;
mod ternary;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Parser, ValueEnum};

use report::Report;
use setting::Setting;

/// The benchmarks.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum Name {
    Lpm4Full,
    Lpm6Full,
    LpmAuto,
    Exact,
    Ternary,
    Esp,
}

/// Measures lookup structures and the ESP engine against peers.
#[derive(Parser)]
#[command(name = "sluice-bench")]
struct Arguments {
    name: Name,
    /// Tiny tables and short rounds: checks that everything works; the rates mean nothing
    #[arg(long)]
    quick: bool,
    /// Rounds per case
    #[arg(long, default_value_t = 7)]
    rounds: usize,
    /// File with one prefix per line; a file named .xz is unpacked
    #[arg(long)]
    table: Option<PathBuf>,
    /// Library compiled from bench/peers/dpdk.c
    #[arg(long)]
    dpdk: Option<PathBuf>,
}

fn run(name: Name, setting: &Setting) -> Result<Report> {
    match name {
        Name::Lpm4Full => lpm::run::<u32>(setting),
        Name::Lpm6Full => lpm::run::<u128>(setting),
        Name::LpmAuto => lpm_auto::run(setting),
        Name::Exact => exact::run(setting),
        Name::Ternary => ternary::run(setting),
        Name::Esp => esp::run(setting),
    }
}

fn measured(arguments: Arguments) -> Result<()> {
    let processor = system::pin().context("cannot bind to one processor")?;
    let setting = Setting::new(
        arguments.quick,
        arguments.rounds,
        arguments.table,
        arguments.dpdk,
        processor,
    );
    let report = run(arguments.name, &setting)?;
    println!("{}", serde_json::to_string(&report)?);
    Ok(())
}

fn main() -> ExitCode {
    match measured(Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("sluice-bench: {why:#}");
            ExitCode::FAILURE
        }
    }
}

#[cfg(test)]
mod tests;

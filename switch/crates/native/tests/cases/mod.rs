// SPDX-License-Identifier: Apache-2.0
//! Parses and runs case files: packets for a program, and the expected output. `switch/programs/README.md` describes
//! the format.

mod command;
mod run;

#[allow(unused_imports)] // the benchmarks and the tests each use only some
pub(crate) use run::{Bench, Runs, run_file};

// SPDX-License-Identifier: Apache-2.0
//! Case files: what a program must do with packets. The format is described in
//! `switch/programs/README.md`.

mod command;
mod run;

#[allow(unused_imports)] // the benchmark uses one, the tests the other
pub(crate) use run::{Bench, Runs, run_file};

// SPDX-License-Identifier: Apache-2.0
//! Case files: what a program must do with packets. The format is described in
//! `switch/programs/README.md`.

mod command;
mod run;

pub(crate) use run::run_file;

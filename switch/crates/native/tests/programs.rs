// SPDX-License-Identifier: Apache-2.0
//! Checks that every program in `switch/programs` behaves as its case file requires.
//!
//! The source of a program is NAME.p4, the compiled program build/NAME.json. The program's cases are in NAME.case. The
//! environment variable SLUICE_PROGRAMS selects another folder with the same layout.

mod cases;

use std::path::{Path, PathBuf};

use sluice_interpreter::Interpreter;
use sluice_native::Native;

fn folder() -> PathBuf {
    match std::env::var_os("SLUICE_PROGRAMS") {
        Some(folder) => folder.into(),
        None => Path::new(env!("CARGO_MANIFEST_DIR")).join("../../programs"),
    }
}

fn with_extension(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut paths: Vec<PathBuf> = std::fs::read_dir(folder)
        .expect("the folder of programs can be read")
        .map(|entry| entry.expect("the folder of programs can be read").path())
        .filter(|path| path.extension().is_some_and(|found| found == extension))
        .collect();
    paths.sort();
    paths
}

#[test]
fn every_program_does_what_its_cases_say() {
    run_all::<Interpreter>(false);
}

#[test]
fn every_program_does_what_its_cases_say_as_machine_code() {
    run_all::<Native>(false);
}

#[test]
fn what_programs_do_does_not_change_where_packets_wait_before_egress() {
    run_all::<Interpreter>(true);
}

#[test]
fn what_machine_code_does_does_not_change_where_packets_wait_before_egress() {
    run_all::<Native>(true);
}

fn run_all<E: cases::Runs>(through_queues: bool) {
    let folder = folder();
    let programs = with_extension(&folder, "case");
    assert!(!programs.is_empty(), "no program in {}", folder.display());
    let mut failures = Vec::new();
    for program in &programs {
        let name = program.file_stem().expect("a file has a name");
        let json = folder.join("build").join(name).with_extension("json");
        let case = program.clone();
        // A panic in one program must not hide the results of the others.
        let result =
            std::panic::catch_unwind(|| cases::run_file::<E>(&json, &case, through_queues));
        match result {
            Ok(Ok(())) => {}
            Ok(Err(failure)) => failures.push(failure),
            Err(_) => failures.push(format!("{}: panic", case.display())),
        }
    }
    let (failed, all) = (failures.len(), programs.len());
    assert!(
        failures.is_empty(),
        "{failed} of {all} failed:\n{}",
        failures.join("\n")
    );
}

// SPDX-License-Identifier: Apache-2.0
//! Provides the project's own compiled programs as input for fuzzing, and switches that run them.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use sluice_engine::{Config, Trace, TraceStep, TrafficManager};
use sluice_interpreter::Interpreter;
use sluice_native::{Code, Lanes, Native};
use sluice_program::{Op, Program};

use crate::choices::Choices;
use crate::random::Random;

/// A compiled program.
pub struct Compiled {
    /// Name of the program's file, without extension.
    pub name: String,
    /// BMv2 JSON.
    pub json: Vec<u8>,
    /// P4Info in text format.
    pub p4info: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..")
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn load(json: &Path) -> Option<Compiled> {
    let name = json.file_stem()?.to_str()?.to_owned();
    let p4info = json.with_extension("p4info.txtpb");
    if !p4info.exists() {
        return None;
    }
    Some(Compiled {
        name,
        json: read(json),
        p4info: String::from_utf8(read(&p4info)).expect("P4Info is text"),
    })
}

/// Returns the router.
///
/// # Panics
/// If the source tree is missing.
pub fn router() -> Compiled {
    load(&root().join("p4src/build/v1model/router.json")).expect("the router is compiled")
}

/// Returns the program that has every P4Runtime entity. The P4Runtime server's own tests also use it.
///
/// # Panics
/// If the source tree is missing.
pub fn surface() -> Compiled {
    let path = "switch/crates/p4runtime/tests/server/programs/surface.json";
    load(&root().join(path)).expect("the program `surface` was compiled")
}

/// Returns the router, followed by the programs of `switch/programs` in the order of their names.
///
/// # Panics
/// If the source tree is missing.
pub fn all() -> Vec<Compiled> {
    let folder = root().join("switch/programs/build");
    let files = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut files: Vec<_> = files
        .map(|file| file.expect("the folder can be read").path())
        .collect();
    files.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "json")
    });
    files.sort();
    let mut programs = vec![router()];
    programs.extend(files.iter().filter_map(|path| load(path)));
    programs
}

/// Loads every JSON file of a folder and its subfolders, in the order of their paths. The loaded programs have no
/// P4Info.
///
/// # Errors
/// A file or folder cannot be read.
pub fn within(folder: &Path) -> Result<Vec<Compiled>> {
    let entries = std::fs::read_dir(folder).with_context(|| folder.display().to_string())?;
    let mut paths = entries
        .map(|entry| Ok(entry?.path()))
        .collect::<Result<Vec<_>>>()?;
    paths.sort();
    let mut programs = Vec::new();
    for path in paths {
        if path.is_dir() {
            programs.extend(within(&path)?);
        } else if path.extension().is_some_and(|end| end == "json") {
            let json = std::fs::read(&path).with_context(|| path.display().to_string())?;
            programs.push(Compiled {
                name: path.display().to_string(),
                json,
                p4info: String::new(),
            });
        }
    }
    Ok(programs)
}

/// Returns initial inputs of this length, two for each program.
pub fn seeds<T>(programs: &[T], length: usize) -> Vec<Vec<u8>> {
    let choices = programs.len() * 2;
    let seed = |program: usize| {
        // The first bytes select the program. Their number is the number that `choose` reads.
        let mut bytes = match choices {
            0..=0x100 => vec![program as u8],
            _ => (program as u16).to_be_bytes().to_vec(),
        };
        bytes.extend(Random::new(program as u64).bytes(length));
        bytes
    };
    (0..choices).map(seed).collect()
}

/// Selects the program of an input. About every second input selects the first program, the router.
pub fn choose<'a, T>(programs: &'a [T], choices: &mut Choices<'_>) -> &'a T {
    let index = choices.below(programs.len() * 2);
    programs.get(index).unwrap_or(&programs[0])
}

/// Returns low limits, so that the engine soon ends a program that loops. Otherwise the loop would look like a hang of
/// the switch.
fn limits() -> Config {
    Config {
        max_passes: 64,
        max_parser_steps: 512,
        max_action_steps: 4096,
        ..Config::default()
    }
}

/// Creates a switch that runs the program.
pub fn switch(program: &Arc<Program>) -> TrafficManager<Interpreter> {
    TrafficManager::new(Interpreter::new(Arc::clone(program), limits()))
}

/// Compiles a program to machine code.
///
/// # Panics
/// If the program cannot be compiled, or if a part of it would remain interpreted.
pub fn compile(program: &Arc<Program>) -> Arc<Code> {
    let name = &program.name;
    let (code, report) =
        Code::compile(program, &limits()).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert!(report.not_compiled.is_empty(), "{name}: {report:?}");
    code
}

/// Creates a switch that runs machine code.
pub fn native(code: &Arc<Code>) -> TrafficManager<Native> {
    TrafficManager::new(Native::new(Arc::clone(code), limits()))
}

/// Creates lanes (coroutines that process packets) that yield at every lookup. Returns `None` for programs that use
/// random numbers.
///
/// # Panics
/// If there is not enough memory for the stacks.
pub fn lanes(code: &Arc<Code>) -> Option<Lanes> {
    Lanes::new(code, &limits(), 0).expect("there is memory for the stacks")
}

/// Counts the steps of packets.
#[derive(Debug, Default)]
pub struct Steps(pub u64);

impl Trace for Steps {
    fn step(&mut self, _step: TraceStep<'_>) {
        self.0 += 1;
    }
}

/// Creates a switch that traces every packet of the program.
pub fn watched(program: &Arc<Program>) -> TrafficManager<Interpreter<Steps>> {
    let steps = Steps::default();
    TrafficManager::new(Interpreter::traced(Arc::clone(program), limits(), steps))
}

/// Returns whether a packet may influence later packets, by registers or by using random numbers.
pub fn has_memory(program: &Program) -> bool {
    let mut ops = program.actions.iter().flat_map(|action| &action.ops);
    !program.registers.is_empty() || ops.any(|op| matches!(op, Op::Random(..)))
}

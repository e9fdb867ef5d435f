// SPDX-License-Identifier: Apache-2.0
//! Implements the target `engines`: sends the same frames through two engines, with equal tables.
//!
//! An input selects a program, then tables, then frames, until no bytes are left. Two stores get equal contents, one
//! for each engine. Both engines get the same frames at the same times. Invariants:
//!
//! * After every frame, both engines have sent the same output: packets in order with their ports, digests and log
//!   lines.
//! * After every frame, the counters of both engines are equal.
//! * After the last frame, all state that frames can change is equal ([`residue`]).
//!
//! The interpreter is the reference. Three engines are compared with it: the native engine, the interpreter with
//! tracing, and the native engine that processes several packets at a time. For the last one, outputs are compared
//! after each batch, not after each frame.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_engine::{Engine, PacketIn, Sink, TrafficManager};
use sluice_native::{Code, Lanes};
use sluice_program::{DigestId, Program};
use sluice_tables::Store;

use crate::choices::Choices;
use crate::frames;
use crate::programs;
use crate::random::Random;
use crate::residue;
use crate::state;
use crate::target::{Tally, Target};
use sluice_random::mix;

/// Name of the target.
pub const NAME: &str = "engines";

/// Maximum number of frames of one input.
const MAX_FRAMES: u64 = 1024;
/// One in this number of inputs compares the plain interpreter with the interpreter that traces.
const WATCHED: usize = 16;
/// Of the remaining inputs, one in this number compares the interpreter with the native engine that processes several
/// packets at a time.
const IN_LANES: usize = 3;
/// Maximum number of frames in a batch. The native engine's lanes (coroutines) cannot queue so many packets, so they
/// run within the batch.
const BATCH: usize = 100;
/// Length of a new input in bytes.
const LENGTH: usize = 32 << 10;

/// Fuzz target `engines`; see the module's documentation.
pub struct EnginesTarget {
    programs: Vec<(Arc<Program>, Arc<Code>)>,
}

impl EnginesTarget {
    /// Creates the target, with the router and all programs of `switch/programs`.
    ///
    /// # Panics
    /// If the source tree is missing, or if a program cannot be compiled completely.
    pub fn new() -> Self {
        let load = |compiled| load(&compiled).unwrap_or_else(|refused| panic!("{refused}"));
        Self {
            programs: programs::all().into_iter().map(load).collect(),
        }
    }

    /// Creates the target with additional programs. Returns the reasons for programs that were refused.
    ///
    /// # Panics
    /// See [`new`](Self::new).
    pub fn with(others: Vec<programs::Compiled>) -> (Self, Vec<String>) {
        let mut target = Self::new();
        let mut refused = Vec::new();
        for compiled in others {
            match load(&compiled) {
                Ok(loaded) => target.programs.push(loaded),
                Err(why) => refused.push(why),
            }
        }
        (target, refused)
    }
}

/// Loads and compiles a program. Returns the reason if the program is refused.
fn load(compiled: &programs::Compiled) -> Result<(Arc<Program>, Arc<Code>), String> {
    let program = Program::from_json(&compiled.json);
    let program = program.map_err(|error| format!("{}: {error}", compiled.name))?;
    let program = Arc::new(program);
    let code = programs::compile(&program);
    Ok((program, code))
}

impl Default for EnginesTarget {
    fn default() -> Self {
        Self::new()
    }
}

impl Target for EnginesTarget {
    fn unit(&self) -> &'static str {
        "packets"
    }

    fn bar(&self) -> u64 {
        10_000_000
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        programs::seeds(&self.programs, LENGTH)
    }

    /// In three of four cases returns new random bytes. Keeping parts of an old input would help only if its quality
    /// were known, such as its coverage.
    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        if random.one_in(4) {
            return crate::mutate::bytes(random, input, other);
        }
        random.bytes(LENGTH)
    }

    fn run(&mut self, input: &[u8], tally: &mut Tally) {
        let mut choices = Choices::new(input);
        let (program, code) = programs::choose(&self.programs, &mut choices);
        let seed = u64::from(choices.u32());
        let sent = if choices.one_in(WATCHED) {
            let rival = programs::watched(program);
            against_interpreter(program, seed, rival, &mut choices)
        } else if choices.one_in(IN_LANES)
            && let Some(mut lanes) = programs::lanes(code)
        {
            let mut oracle = Lane::new(filled(program, seed), programs::switch(program));
            compare_batches(
                &mut oracle,
                &filled(program, seed),
                &mut lanes,
                &mut choices,
            )
        } else {
            against_interpreter(program, seed, programs::native(code), &mut choices)
        };
        tally.add("packets", sent.packets);
        tally.add("outputs", sent.outputs);
    }
}

/// Sends frames through the interpreter and through another engine. The seed determines the contents of the tables.
///
/// # Panics
/// If the two engines differ.
pub fn against_interpreter<E: Engine>(
    program: &Arc<Program>,
    seed: u64,
    rival: TrafficManager<E>,
    choices: &mut Choices<'_>,
) -> Sent {
    let mut oracle = Lane::new(filled(program, seed), programs::switch(program));
    let mut rival = Lane::new(filled(program, seed), rival);
    compare(&mut oracle, &mut rival, choices)
}

/// Creates a store, and fills its tables. The seed determines the contents.
fn filled(program: &Arc<Program>, seed: u64) -> Store {
    // The switch's clock shows 0 until this time, so all entries have the same age.
    let later = Instant::now() + Duration::from_secs(3600);
    let store = Store::with_epoch(Arc::clone(program), later);
    let mut random = Random::new(seed);
    state::populate(&store, &mut random);
    state::set_meters(&store, &mut random);
    store
}

/// Counts of the frames that one input caused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Frames sent into the switch.
    pub packets: u64,
    /// Frames, digests and log lines from the switch.
    pub outputs: u64,
}

/// An engine with its tables and output.
pub struct Lane<E> {
    store: Store,
    switch: TrafficManager<E>,
    outputs: Outputs,
}

impl<E: Engine> Lane<E> {
    /// Creates a lane from a store and a switch.
    pub fn new(store: Store, switch: TrafficManager<E>) -> Self {
        Self {
            store,
            switch,
            outputs: Outputs::default(),
        }
    }

    fn residue(&self) -> Vec<residue::Cell> {
        residue::of(&self.store)
    }

    /// Returns the program's name.
    fn name(&self) -> String {
        self.store.program().name.clone()
    }
}

/// Sends frames through both lanes until all bytes of `choices` are used.
///
/// # Panics
/// If the outputs, counters or residues of the lanes differ.
pub fn compare<A: Engine, B: Engine>(
    oracle: &mut Lane<A>,
    rival: &mut Lane<B>,
    choices: &mut Choices<'_>,
) -> Sent {
    let mut sent = Sent::default();
    let program = oracle.name();
    let (mut left, mut right) = (oracle.store.reader(), rival.store.reader());
    let (left, right) = (left.pin(), right.pin());
    while sent.packets < MAX_FRAMES && !choices.is_empty() {
        let frame = frames::frame(choices, mix(sent.packets));
        let input = PacketIn {
            data: &frame.bytes,
            port: frame.port,
            now_us: sent.packets * 100,
        };
        oracle.outputs.0.clear();
        rival.outputs.0.clear();
        let externs = oracle.store.externs();
        oracle
            .switch
            .process(&left, externs, input, &mut oracle.outputs);
        let externs = rival.store.externs();
        rival
            .switch
            .process(&right, externs, input, &mut rival.outputs);
        let number = sent.packets;
        assert_eq!(
            oracle.outputs, rival.outputs,
            "{program}: the outputs differ on frame {number}, {frame:x?}"
        );
        assert_eq!(
            oracle.switch.counters(),
            rival.switch.counters(),
            "{program}: the counters differ on frame {number}, {frame:x?}"
        );
        sent.packets += 1;
        sent.outputs += oracle.outputs.0.len() as u64;
    }
    drop((left, right));
    let cells = oracle.residue().into_iter().zip(rival.residue());
    for (ours, theirs) in cells {
        assert_eq!(
            ours, theirs,
            "{program}: the states after the frames differ"
        );
    }
    sent
}

/// Sends the same frames through two engines with equal tables, until all bytes of `choices` are used. `oracle` gets
/// one frame after another. The engine with lanes gets batches.
///
/// # Panics
/// If the outputs, counters or residues differ.
pub fn compare_batches<E: Engine>(
    oracle: &mut Lane<E>,
    store: &Store,
    lanes: &mut Lanes,
    choices: &mut Choices<'_>,
) -> Sent {
    let mut sent = Sent::default();
    let mut outputs = Outputs::default();
    let program = oracle.name();
    let (mut left, mut right) = (oracle.store.reader(), store.reader());
    let (left, right) = (left.pin(), right.pin());
    while sent.packets < MAX_FRAMES && !choices.is_empty() {
        let mut batch = Vec::new();
        let most = 1 + choices.below(BATCH);
        while batch.len() < most && !choices.is_empty() {
            batch.push(frames::frame(
                choices,
                mix(sent.packets + batch.len() as u64),
            ));
        }
        let now_us = sent.packets * 100;

        oracle.outputs.0.clear();
        outputs.0.clear();
        for frame in &batch {
            let (data, port) = (&frame.bytes, frame.port);
            let input = PacketIn { data, port, now_us };
            let externs = oracle.store.externs();
            oracle
                .switch
                .process(&left, externs, input, &mut oracle.outputs);
        }
        lanes.batch(&right, store.externs(), &mut outputs, |lanes| {
            for (index, frame) in batch.iter().enumerate() {
                let (data, port) = (&frame.bytes, frame.port);
                // Some frames are passed as short-lived copies, so that the lanes must copy them.
                if index % 5 == 3 {
                    let data = &data.clone();
                    lanes.process_copy(PacketIn { data, port, now_us });
                } else {
                    lanes.process(PacketIn { data, port, now_us });
                }
            }
        });
        let number = sent.packets;
        assert_eq!(
            oracle.outputs, outputs,
            "{program}: the outputs differ in the batch from frame {number} on"
        );
        assert_eq!(
            *oracle.switch.counters(),
            lanes.counters(),
            "{program}: the counters differ in the batch from frame {number} on"
        );
        sent.packets += batch.len() as u64;
        sent.outputs += outputs.0.len() as u64;
    }
    drop((left, right));
    for (ours, theirs) in oracle.residue().into_iter().zip(residue::of(store)) {
        assert_eq!(
            ours, theirs,
            "{program}: the states after the frames differ"
        );
    }
    sent
}

/// One output of a switch.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Output {
    Frame(u32, Vec<u8>),
    Digest(DigestId, Vec<u8>),
    Log(String),
}

/// Outputs of a switch, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outputs(Vec<Output>);

impl Sink for Outputs {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        self.0.push(Output::Frame(port, data.to_vec()));
    }

    fn digest(&mut self, digest: DigestId, fields: &[u8]) {
        self.0.push(Output::Digest(digest, fields.to_vec()));
    }

    fn log(&mut self, message: &str) {
        self.0.push(Output::Log(message.to_owned()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn router(seed: u64) -> Lane<sluice_interpreter::Interpreter> {
        let program =
            Arc::new(Program::from_json(&programs::router().json).expect("the program loads"));
        let store = Store::new(Arc::clone(&program));
        let mut random = Random::new(seed);
        state::populate(&store, &mut random);
        state::set_meters(&store, &mut random);
        Lane::new(store, programs::switch(&program))
    }

    #[test]
    fn equal_lanes_agree() {
        // The random tables of a single seed may drop all packets, so the test uses several seeds.
        let (mut packets, mut outputs) = (0, 0);
        for seed in 1..=6 {
            let bytes = Random::new(seed).bytes(LENGTH);
            let choices = &mut Choices::new(&bytes);
            let sent = compare(&mut router(seed), &mut router(seed), choices);
            packets += sent.packets;
            outputs += sent.outputs;
        }
        assert!(
            packets > 100 && outputs > 0,
            "{packets} packets, {outputs} sent"
        );
    }

    #[test]
    #[should_panic(expected = "differ")]
    fn other_tables_are_noticed() {
        let bytes = Random::new(7).bytes(LENGTH);
        compare(&mut router(1), &mut router(2), &mut Choices::new(&bytes));
    }
}

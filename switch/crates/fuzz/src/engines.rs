// SPDX-License-Identifier: Apache-2.0
//! Target `engines`: the same frames through two engines, over equal tables.
//!
//! An input chooses a program, then tables, then frames, until it is used up. Two stores are filled alike, one for each
//! engine; both get the same frames at the same times. What must hold:
//!
//! * after every frame, what was sent, in order, with ports, digests and log lines, is equal;
//! * so is what the engines have counted;
//! * after the last frame, so is everything that frames leave behind ([`residue`]).
//!
//! The interpreter is what the native engine has to agree with; and so has the interpreter itself when it is watched, and
//! the native engine when it runs several packets at a time, of which what is sent and counted is compared batch by batch.

use std::sync::Arc;
use std::time::{Duration, Instant};

use sluice_engine::native::{Code, Lanes};
use sluice_engine::{Engine, PacketIn, Sink, Switch};
use sluice_program::{DigestId, Program};
use sluice_tables::Store;

use crate::choices::Choices;
use crate::frames;
use crate::programs;
use crate::random::{Random, scramble};
use crate::residue;
use crate::state;
use crate::target::{Tally, Target};

/// The target's name.
pub const NAME: &str = "engines";

/// Most frames of one input.
const MAX_FRAMES: u64 = 1024;
/// Every so often the other engine is the interpreter that is watched.
const WATCHED: usize = 16;
/// And so often it runs several packets at a time.
const IN_LANES: usize = 3;
/// Frames of a batch at most: more than lanes gather before they run.
const BATCH: usize = 100;
/// Bytes of a new input.
const LENGTH: usize = 32 << 10;

/// See the module.
pub struct EnginesTarget {
    programs: Vec<(Arc<Program>, Arc<Code>)>,
}

impl EnginesTarget {
    /// The target, with the router and all programs of `switch/programs`.
    ///
    /// # Panics
    /// Without the source tree, and if a program is not compiled as a whole.
    pub fn new() -> Self {
        let load = |compiled| load(&compiled).unwrap_or_else(|refused| panic!("{refused}"));
        Self {
            programs: programs::all().into_iter().map(load).collect(),
        }
    }

    /// Those and others, of which some may be refused: why they are is returned beside.
    ///
    /// # Panics
    /// As above.
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

/// A program and its code, or why the program is refused.
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

    /// Mostly new decisions: old ones are worth keeping only if something tells that they are good.
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

/// Sends frames through the interpreter and through another engine, over tables that the seed decides.
///
/// # Panics
/// When the two differ.
pub fn against_interpreter<E: Engine>(
    program: &Arc<Program>,
    seed: u64,
    rival: Switch<E>,
    choices: &mut Choices<'_>,
) -> Sent {
    let mut oracle = Lane::new(filled(program, seed), programs::switch(program));
    let mut rival = Lane::new(filled(program, seed), rival);
    compare(&mut oracle, &mut rival, choices)
}

/// Tables that the seed decides.
fn filled(program: &Arc<Program>, seed: u64) -> Store {
    // The clock of control is at 0 until then: entries are not of different ages.
    let later = Instant::now() + Duration::from_secs(3600);
    let store = Store::with_epoch(Arc::clone(program), later);
    let mut random = Random::new(seed);
    state::populate(&store, &mut random);
    state::set_meters(&store, &mut random);
    store
}

/// What came of the frames of one input.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Frames that went in.
    pub packets: u64,
    /// Frames, digests and log lines that came out.
    pub outputs: u64,
}

/// An engine, its tables, and what it sent.
pub struct Lane<E> {
    store: Store,
    switch: Switch<E>,
    outputs: Outputs,
}

impl<E: Engine> Lane<E> {
    /// A lane of its own tables.
    pub fn new(store: Store, switch: Switch<E>) -> Self {
        Self {
            store,
            switch,
            outputs: Outputs::default(),
        }
    }

    fn residue(&self) -> Vec<residue::Cell> {
        residue::of(&self.store)
    }

    /// The program's name.
    fn name(&self) -> String {
        self.store.program().name.clone()
    }
}

/// Sends frames through both lanes until the choices are used up.
///
/// # Panics
/// When the lanes differ.
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
        let frame = frames::frame(choices, scramble(sent.packets));
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
            "{program}: what is sent differs on frame {number}, {frame:x?}"
        );
        assert_eq!(
            oracle.switch.counters(),
            rival.switch.counters(),
            "{program}: counts differ on frame {number}, {frame:x?}"
        );
        sent.packets += 1;
        sent.outputs += oracle.outputs.0.len() as u64;
    }
    drop((left, right));
    let cells = oracle.residue().into_iter().zip(rival.residue());
    for (ours, theirs) in cells {
        assert_eq!(ours, theirs, "{program}: what frames left behind differs");
    }
    sent
}

/// Sends frames through a lane one after the other, and in batches through lanes over equal tables, until the choices are
/// used up.
///
/// # Panics
/// When the two differ.
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
                scramble(sent.packets + batch.len() as u64),
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
                // Some of them do not stay.
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
            "{program}: what is sent differs in the batch from frame {number} on"
        );
        assert_eq!(
            *oracle.switch.counters(),
            lanes.counters(),
            "{program}: counts differ in the batch from frame {number} on"
        );
        sent.packets += batch.len() as u64;
        sent.outputs += outputs.0.len() as u64;
    }
    drop((left, right));
    for (ours, theirs) in oracle.residue().into_iter().zip(residue::of(store)) {
        assert_eq!(ours, theirs, "{program}: what frames left behind differs");
    }
    sent
}

/// Something that left.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Output {
    Frame(u32, Vec<u8>),
    Digest(DigestId, Vec<u8>),
    Log(String),
}

/// All that left, in order.
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

    fn router(seed: u64) -> Lane<sluice_engine::Interpreter> {
        let program = Arc::new(Program::from_json(&programs::router().json).expect("it loads"));
        let store = Store::new(Arc::clone(&program));
        let mut random = Random::new(seed);
        state::populate(&store, &mut random);
        state::set_meters(&store, &mut random);
        Lane::new(store, programs::switch(&program))
    }

    #[test]
    fn equal_lanes_agree() {
        // Random tables of one seed may let nothing out.
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

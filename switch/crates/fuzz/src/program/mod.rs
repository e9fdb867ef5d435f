// SPDX-License-Identifier: Apache-2.0
//! Implements the target `program`: passes damaged BMv2 JSON to the loader.
//!
//! The input is the JSON. The loader must either refuse it with an error that describes the problem, or return a
//! program that can run. The target sends about fifty frames through such a program with random tables, and checks the
//! invariants of the target `packet`. It also compiles one in eight programs. A compiled program must give the same
//! results as the interpreter, as in the target `engines`.

mod json;

use sluice_program::Program;
use sluice_tables::Store;
use std::sync::Arc;

use crate::choices::Choices;
use crate::random::Random;
use crate::target::{Tally, Target};
use crate::{engines, mutate, packet, programs, state};
use sluice_random::mix;

/// Name of the target.
pub const NAME: &str = "program";

/// Number of choice bytes for about fifty frames.
const CHOICES: usize = 2_500;
/// One in this number of loaded programs is compiled. A compilation takes as long as hundreds of frames.
const COMPILED: u64 = 8;

/// Fuzz target `program`; see the module's documentation.
pub struct ProgramTarget {
    seeds: Vec<Vec<u8>>,
}

impl ProgramTarget {
    /// Creates the target. Its seeds are the router and all programs of `switch/programs`.
    ///
    /// # Panics
    /// If the source tree is missing.
    pub fn new() -> Self {
        let compiled = programs::all().into_iter().chain([programs::surface()]);
        Self {
            seeds: compiled.map(|program| program.json).collect(),
        }
    }
}

impl Default for ProgramTarget {
    fn default() -> Self {
        Self::new()
    }
}

impl Target for ProgramTarget {
    fn unit(&self) -> &'static str {
        "programs"
    }

    fn bar(&self) -> u64 {
        10_000
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        self.seeds.clone()
    }

    /// Mutates the input. Mutates it mostly as JSON, so that the result is nearly a program, and otherwise as plain
    /// bytes.
    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        match json::mutate(random, input, other) {
            Some(changed) if !random.one_in(16) => changed,
            _ => mutate::bytes(random, input, other),
        }
    }

    fn run(&mut self, input: &[u8], tally: &mut Tally) {
        tally.add("programs", 1);
        let program = match Program::from_json(input) {
            Ok(program) => Arc::new(program),
            Err(error) => {
                assert!(!error.message().is_empty(), "an error without a message");
                return tally.add("refused", 1);
            }
        };
        let digest = digest(input);
        let mut random = Random::new(digest);
        if digest.is_multiple_of(COMPILED) {
            let rival = programs::native(&programs::compile(&program));
            let bytes = random.bytes(CHOICES);
            let mut choices = Choices::new(&bytes);
            let sent = engines::against_interpreter(&program, digest, rival, &mut choices);
            tally.add("compiled", 1);
            return tally.add("packets", sent.packets);
        }
        let store = Store::new(program);
        state::populate(&store, &mut random);
        let bytes = random.bytes(CHOICES);
        let sent = packet::run(&store, &mut Choices::new(&bytes));
        tally.add("packets", sent.packets);
        tally.add("transmitted", sent.transmitted);
    }
}

/// Returns a hash of the input.
fn digest(input: &[u8]) -> u64 {
    let words = input.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    });
    words.fold(0, |state, word| mix(state ^ word))
}

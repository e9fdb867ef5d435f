// SPDX-License-Identifier: Apache-2.0
//! Configuration of an engine.

use std::fmt;
use std::str::FromStr;

use crate::queue::Congestion;

/// Selects the engine that runs programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Interprets the program. This engine defines correct behaviour.
    Interpreter,
    /// Compiles the program to machine code and runs it.
    #[default]
    Native,
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Interpreter => "interpreter",
            Self::Native => "native",
        })
    }
}

impl FromStr for EngineKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        [Self::Interpreter, Self::Native]
            .into_iter()
            .find(|kind| kind.to_string() == name)
            .ok_or_else(|| format!("{name:?} is neither interpreter nor native"))
    }
}

/// Configuration of an engine. Its limits make sure that no program, and no packet crafted for a program, blocks a
/// worker forever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The value of `egress_spec` that drops a packet.
    pub drop_port: u32,
    /// Maximum number of times that a received packet and all its copies enter ingress or egress, in total.
    pub max_passes: u32,
    /// Maximum number of states that the parser enters for one packet.
    pub max_parser_steps: u32,
    /// Maximum number of operations in one run of an action.
    pub max_action_steps: u32,
    /// Whether native code is compiled for profiling; see `sluice_native::NativeProfiled`.
    pub profile: bool,
    /// Whether packets leave all state unchanged. If so, counters do not count, registers are not written, and meters
    /// are not charged and return green. Only the interpreter implements this.
    pub dry_run: bool,
    /// Number of queues per port, at least 1. A packet whose priority is not below this number is dropped.
    pub queues: u32,
    /// Whether packets may have to wait for egress.
    pub congestion: Congestion,
    /// Seed of `random`; equal seeds give equal sequences.
    pub seed: u64,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            drop_port: 511,
            max_passes: 1_000,
            max_parser_steps: 10_000,
            max_action_steps: 100_000,
            profile: false,
            dry_run: false,
            queues: 1,
            congestion: Congestion::default(),
            seed: 1,
        }
    }
}

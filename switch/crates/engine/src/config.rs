// SPDX-License-Identifier: Apache-2.0
//! What can be set for an engine.

use std::fmt;
use std::str::FromStr;

use crate::queue::Congestion;

/// Which engine runs programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// Walks the program; the oracle.
    Interpreter,
    /// Runs machine code that was made of the program.
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

/// Limits keep a program, or a packet made for it, from occupying a worker for ever.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The value of `egress_spec` that drops.
    pub drop_port: u32,
    /// How often one packet that came in may enter ingress or egress, copies included.
    pub max_passes: u32,
    /// States that one parser run may enter.
    pub max_parser_steps: u32,
    /// Operations that one run of an action may execute.
    pub max_action_steps: u32,
    /// Machine code tells where packets are: see [`crate::native::NativeProfiled`].
    pub profile: bool,
    /// Packets leave nothing behind: they count nowhere, use up no meter (all are green), and write no register. The
    /// interpreter alone knows this.
    pub rehearsal: bool,
    /// Queues of each port, at least 1: a packet of this priority or a higher one is dropped.
    pub queues: u32,
    /// Whether packets may have to wait for egress.
    pub congestion: Congestion,
    /// Where `random` starts; equal seeds give equal sequences.
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
            rehearsal: false,
            queues: 1,
            congestion: Congestion::default(),
            seed: 1,
        }
    }
}

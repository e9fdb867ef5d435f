// SPDX-License-Identifier: Apache-2.0
//! Fuzzing of what outsiders can reach: programs (BMv2 JSON), packets, ESP, and P4Runtime requests and streams.
//!
//! ```text
//!   main ──► driver ──► Target::run(&[u8])     program | packet | engines | esp | stream | update
//!              │            │
//!              │            └── a panic is a finding
//!              └── inputs: seeds, mutated
//! ```
//!
//! * [`target`]: what a fuzz target is; [`targets`](targets()) lists them
//! * [`driver`]: runs a target on mutated inputs, writes down the input of a crash, replays it
//! * [`choices`], [`random`], [`mutate`]: bytes into decisions, seeds into bytes, bytes into other bytes
//! * [`frames`], [`state`], [`programs`]: packets, table states and loaded programs, made from choices
//! * [`residue`]: what packets leave behind
//! * [`program`], [`packet`], [`engines`], [`esp`], [`stream`], [`update`]: the targets
//!
//! Depends on all of the switch but its command line. Promises: an input alone decides what a target does with it, so
//! that a crash can be repeated from its file (but for `stream`, where timing has a part); two runs with equal seeds try
//! the same inputs.

pub mod choices;
pub mod driver;
pub mod engines;
pub mod esp;
pub mod frames;
pub mod mutate;
pub mod packet;
pub mod program;
pub mod programs;
pub mod random;
pub mod residue;
pub mod state;
pub mod stream;
pub mod target;
pub mod update;

pub use driver::{Driver, Until};
pub use random::Random;
pub use target::{Named, Tally, Target};

/// The name of each target and how it is made.
pub fn targets() -> [Named; 6] {
    [
        (program::NAME, || Box::new(program::ProgramTarget::new())),
        (packet::NAME, || Box::new(packet::PacketTarget::new())),
        (engines::NAME, || Box::new(engines::EnginesTarget::new())),
        (esp::NAME, || Box::new(esp::EspTarget::new())),
        (stream::NAME, || Box::new(stream::StreamTarget::new())),
        (update::NAME, || Box::new(update::UpdateTarget::new())),
    ]
}

// SPDX-License-Identifier: Apache-2.0
//! Fuzzes what outsiders can reach: programs (BMv2 JSON), packets, ESP, P4Runtime requests and streams.
//!
//! ```text
//!   main ──► driver ──► Target::run(&[u8])     program | packet | engines | esp | stream | update
//!              │            │
//!              │            └── a panic is a finding
//!              └── inputs: seeds, mutated
//! ```
//!
//! * [`target`]: the interface of a fuzz target; [`targets`](targets()) lists them
//! * [`driver`]: runs a target on mutated inputs, stores the input of a crash, replays it
//! * [`choices`], [`random`], [`mutate`]: turn bytes into decisions, seeds into bytes, and bytes into other bytes
//! * [`frames`], [`state`], [`programs`]: packets, table states and loaded programs, made from choices
//! * [`residue`]: the state that packets leave in a store
//! * [`program`], [`packet`], [`engines`], [`esp`], [`stream`], [`update`]: the targets
//!
//! Depends on all of the switch except its command line. Promises: the behaviour of a target depends only on the input,
//! so a crash can be repeated from its stored input. Only `stream` also depends on timing. Two runs with equal seeds
//! run the same inputs.

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

/// Returns the name and the constructor of each target.
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

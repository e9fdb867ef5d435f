// SPDX-License-Identifier: Apache-2.0
//! Fuzzes the parts of the switch that outsiders can reach: programs (BMv2 JSON), packets, ESP, and P4Runtime requests
//! and streams.
//!
//! ```text
//!   main ──► driver ──► Target::run(&[u8])     program | packet | engines | esp | stream | update
//!              │            │
//!              │            └── a panic is a finding
//!              └── inputs: seeds, mutated
//! ```
//!
//! * [`target`] defines the interface of a fuzz target; [`targets`](targets()) lists the targets.
//! * [`driver`] runs a target on mutated inputs, stores the input of a crash, and replays it.
//! * [`choices`] turns bytes into decisions, [`random`] turns seeds into bytes, and [`mutate`] changes bytes.
//! * [`frames`], [`state`] and [`programs`] make packets, table contents and loaded programs from choices.
//! * [`residue`] collects the state that packets leave in a store.
//! * [`program`], [`packet`], [`engines`], [`esp`], [`stream`] and [`update`] are the targets.
//!
//! Depends on all of the switch except its command line. Promises: two runs with equal seeds run the same inputs. What
//! a target does depends only on the input, so a crash can be repeated from its stored input. Exception: the target
//! `stream` also depends on timing.

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

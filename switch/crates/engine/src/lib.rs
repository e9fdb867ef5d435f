// SPDX-License-Identifier: Apache-2.0
//! Runs loaded programs on packets.
//!
//! * [`Switch`]: a packet's whole life: [`Switch::process`] takes one packet and tells a [`Sink`]
//!   what leaves;
//! * [`Engine`]: the parts of a program that a `Switch` puts together, and [`Interpreter`], the
//!   engine that defines what is right;
//! * [`native`]: the engine that is fast: the program as machine code, made when it is loaded;
//! * [`Trace`]: watching a packet, [`Step`] by [`Step`]; [`Profile`]: where its time goes.
//!
//! Depends on `program` and `tables`. Promises: no bytes on the wire can make it panic, loop for
//! ever, or show one packet's content to another; after the first packets it does not allocate
//! (but for logging, values wider than 255 bits, and new peaks of packet size or copies).

mod action;
mod bits;
mod checksum;
mod config;
mod control;
mod counters;
mod eval;
mod hash;
mod interpreter;
mod machine;
pub mod native;
mod number;
mod packet;
mod parser;
mod phv;
mod profile;
mod queue;
mod random;
mod standard;
mod switch;
mod trace;

pub use config::{Config, EngineKind};
pub use counters::Counters;
pub use interpreter::{Engine, Interpreter, Parsed, Way};
pub use machine::Context;
pub use packet::{InstanceType, Packet, PacketIn, Sink};
pub use profile::{Clocked, Place, Profile, Profiled, Row};
pub use queue::{Admission, Arrival, Congestion, Queued};
pub use switch::Switch;
pub use trace::{Extern, Fate, NoTrace, Stage, Step, Trace};

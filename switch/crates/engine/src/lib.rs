// SPDX-License-Identifier: Apache-2.0
//! Runs loaded programs on packets.
//!
//! * [`Switch`]: the v1model architecture. [`Switch::process`] takes one packet and passes all output to a [`Sink`].
//! * [`Engine`]: runs the parts of a program, in the order that a `Switch` decides.
//! * [`Interpreter`]: the reference engine, which defines correct behaviour.
//! * [`native`]: the fast engine, which compiles the program to machine code when it is loaded.
//! * [`Trace`]: reports every [`Step`] of a packet. [`Profile`]: measures where the time goes.
//!
//! Depends on `program` and `tables`. Promises:
//!
//! * No packet can make it panic or loop forever, and no packet's content leaks into another.
//! * After the first packets it does not allocate, except for logging, for values wider than 255 bits, and for new
//!   peaks of packet size or number of copies.

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

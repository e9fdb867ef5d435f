// SPDX-License-Identifier: Apache-2.0
//! The parts that all engines share: packets, the traffic manager around an engine, traces and profiles.
//!
//! * [`Engine`]: runs the parts of a program. Two crates implement it. `sluice-native`, the default, compiles a program
//!   to machine code. `sluice-interpreter` defines correct behaviour.
//! * [`TrafficManager`]: the v1model architecture. [`TrafficManager::process`] takes one packet, runs the parts of the
//!   program in order, and passes all output to a [`Sink`].
//! * [`Trace`]: reports every [`TraceStep`] of a packet. [`Profile`]: measures how much time packets spend in each part
//!   of the program.
//!
//! The public modules are for implementations of engines. They contain the packet header vector, P4's operations on
//! headers, the hash functions, and the updates of entries that packets hit.
//!
//! Depends on `program`, `tables`, `checksum` and `random`. Promises:
//!
//! * No packet can make this crate panic or loop forever. No packet sees the content of another packet.
//! * After the first packets, this crate allocates memory only for logging, for values wider than 255 bits, and when
//!   packets are larger or copies more numerous than ever before.

pub mod bits;
pub mod calculation;
mod config;
mod counters;
mod engine;
pub mod hash;
mod headers;
pub mod hit;
pub mod number;
mod packet;
pub mod phv;
mod profile;
mod program_point;
mod queue;
mod sink;
mod standard;
mod trace;
mod traffic_manager;

pub use config::{Config, EngineKind};
pub use counters::Counters;
pub use engine::{Context, Engine, Parsed, Progress};
pub use packet::{CloneRequest, InstanceType, Packet, PacketIn, Requests};
pub use profile::{Profile, Profiled, ProfiledPoint};
pub use program_point::ProgramPoint;
pub use queue::{Admission, Arrival, Congestion, Queued};
pub use sink::Sink;
pub use trace::{Extern, Fate, NoTrace, Stage, Trace, TraceStep};
pub use traffic_manager::TrafficManager;

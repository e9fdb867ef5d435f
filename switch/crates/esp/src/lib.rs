// SPDX-License-Identifier: Apache-2.0
//! The ESP engine (RFC 4303): encrypts and decrypts what the pipeline steers to it behind the shim (p4src/headers.p4).
//!
//! ```text
//!   frame ─► shim ─► ENCRYPT: SA by number ─► outbound ─► cipher ─► ENCRYPTED frame
//!                └─► DECRYPT: ip ─► SA by VRF and SPI ─► replay ─► cipher ─► inbound ─► DECRYPTED frame
//! ```
//!
//! * [`engine`]: all SAs; a batch of frames in, each one's answer or [`Drop`] out
//! * [`batch`]: frames with room around them, so that packets are encrypted where they are
//! * [`outbound`], [`inbound`]: one SA each way
//! * [`cipher`], [`algorithm`], [`key`]: algorithms over a crypto library
//! * [`reassembly`]: ESP that was fragmented on the way, within bounds
//! * [`replay`], [`lifetime`]: anti-replay window, limits by bytes, packets and time
//! * [`reservation`]: sequence numbers, on disk ahead of their use
//! * [`ip`], [`shim`]: checked views of bytes
//! * [`spec`]: an SA as JSON
//!
//! Depends on nothing else of the switch. Promises: bytes from the wire never panic; no packet allocates but fragments; each
//! packet has one outcome, counted by name; nothing leaves that is not encrypted; a pair of key and sequence number is never used
//! twice, whenever the process dies; keys are erased when their SA ends, and never printed.

mod aead;
pub mod algorithm;
pub mod batch;
pub mod cipher;
pub mod counters;
pub mod engine;
pub mod inbound;
pub mod ip;
pub mod key;
pub mod lifetime;
pub mod outbound;
mod prefetch;
pub mod reassembly;
pub mod replay;
pub mod reservation;
mod sa_table;
pub mod shim;
pub mod spec;

pub use algorithm::Algorithm;
pub use batch::{Batch, Outcome};
pub use counters::{Counters, Drop};
pub use engine::{Engine, MAX_OUTPUT};
pub use key::Key;
pub use reservation::Reservations;
pub use spec::{Direction, SaSpec};

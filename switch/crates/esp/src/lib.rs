// SPDX-License-Identifier: Apache-2.0
//! Implements the ESP engine (RFC 4303). It encrypts and decrypts packets that the pipeline sends behind the shim
//! (p4src/headers.p4).
//!
//! ```text
//!   frame ─► shim ─► ENCRYPT: SA by number ─► outbound ─► cipher ─► ENCRYPTED frame
//!                └─► DECRYPT: ip ─► SA by VRF and SPI ─► replay ─► cipher ─► inbound ─► DECRYPTED frame
//! ```
//!
//! * [`engine`]: all SAs; serves a batch of frames, each with an answer or a [`Drop`]
//! * [`batch`]: frames with headroom and tailroom, so that packets are encrypted in place
//! * [`outbound`], [`inbound`]: one SA of each direction
//! * [`cipher`], [`algorithm`], [`key`]: algorithms over a crypto library
//! * [`reassembly`]: reassembly of fragmented ESP, within bounds
//! * [`replay`], [`lifetime`]: anti-replay window, limits by bytes, packets and time
//! * [`reservation`]: sequence numbers, reserved on disk ahead of their use
//! * [`ip`], [`shim`]: checked views of bytes
//! * [`spec`]: an SA as JSON
//!
//! Depends on nothing else of the switch. Promises:
//!
//! * Bytes from the wire never cause a panic. Only fragments allocate memory.
//! * Each packet has one outcome, counted by name. No packet to be encrypted is ever returned in clear.
//! * A pair of key and sequence number is never used twice, even across crashes.
//! * Keys are erased when their SA ends, and never printed.

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

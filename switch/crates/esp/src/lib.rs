// SPDX-License-Identifier: Apache-2.0
//! Implements the ESP engine (RFC 4303), which encrypts and decrypts packets for the pipeline. Each packet follows a
//! shim header, which p4src/headers.p4 defines.
//!
//! ```text
//!   frame ─► shim ─► ENCRYPT: SA by number ─► outbound ─► cipher ─► ENCRYPTED frame
//!                └─► DECRYPT: ip ─► SA by VRF and SPI ─► replay ─► cipher ─► inbound ─► DECRYPTED frame
//! ```
//!
//! * [`engine`] holds all SAs. The engine replaces each frame of a batch by an answer, drops the frame, or keeps the
//!   frame as a fragment.
//! * [`batch`] holds frames with headroom and tailroom, so that packets are encrypted in place.
//! * [`outbound`] encrypts with one SA; [`inbound`] decrypts with one SA.
//! * [`cipher`], [`algorithm`] and [`key`] adapt the crypto library AWS-LC.
//! * [`reassembly`] reassembles fragmented ESP within limits.
//! * [`replay`] is the anti-replay window. [`lifetime`] limits an SA by bytes, packets and time.
//! * [`reservation`] reserves sequence numbers on disk before they are used.
//! * [`ip`] and [`shim`] parse headers and check them.
//! * [`spec`] defines the JSON form of an SA.
//!
//! Depends on no other crate of the switch except for checksums. Promises:
//!
//! * Bytes from the wire never cause a panic. Only fragments allocate memory.
//! * Each packet has one outcome, which a named counter counts. A packet that must be encrypted is never returned in
//!   clear.
//! * A sequence number is never used twice with the same key, even across crashes.
//! * Keys are erased when their SA ends, and are never printed.

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
pub use engine::Engine;
pub use key::Key;
pub use reservation::Reservations;
pub use shim::MAX_OUTPUT;
pub use spec::{Direction, SaSpec};

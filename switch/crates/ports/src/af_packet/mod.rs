// SPDX-License-Identifier: Apache-2.0
//! Implements ports on Linux interfaces, over AF_PACKET.
//!
//! A receiver uses a memory-mapped ring. While frames keep arriving, it makes no system call. While no frames arrive, a
//! poller can wait for it. The ring is TPACKET_V2, which shows each frame at once; V3 shows only whole blocks of
//! frames. A transmitter sends each batch by one `sendmmsg`. This bypasses the qdisc unless a user has set one
//! ([`crate::qdisc`]). Frames have the bytes that they would have on a wire, because [`crate::offload`] completes the
//! work that the kernel left to hardware. Frames that this host sends on the interface are not delivered. Requires
//! CAP_NET_RAW.

mod ring;
mod socket;
mod transmit;

pub use ring::RingReceiver;
pub use transmit::{BatchTransmitter, SendPath};

/// Default size of the receive ring, in frames.
pub const DEFAULT_RING_FRAMES: usize = 2048;

// SPDX-License-Identifier: Apache-2.0
//! Provides the switch's ports: AF_PACKET, pcap files and memory, behind two traits.
//!
//! A port has a receiving half ([`Receiver`]) and a sending half ([`Transmitter`]). So a worker can pass a frame that
//! is still in a receive ring to the pipeline, and queue other frames for transmission meanwhile. Each half belongs
//! to one worker. Threads share only counters.
//!
//! * [`af_packet`] implements ports on Linux interfaces, with a mapped receive ring and batched sending.
//! * [`interface`] takes an interface over from the kernel and releases it. An interface belongs to one switch or
//!   engine at a time.
//! * [`host_filter`] closes an interface to the host's network stack.
//! * [`privilege`] raises the capabilities for taking interfaces over, only while they are needed.
//! * [`qdisc`] finds the queueing discipline that a user has set on an interface.
//! * [`link_monitor`] reports carrier changes at once.
//! * [`files`] reads `NAME_in.pcap` and writes `NAME_out.pcap`.
//! * [`memory`] has in-process ports for tests.
//! * [`replay`] delivers frames from memory, for measurements.
//! * [`recorder`] writes the frames that another port receives and sends into pcap files.
//! * [`poller`] waits for any of many receivers, and for other threads.
//!
//! Depends on two small crates, for checksums and for huge pages. Promises:
//!
//! * Bytes from the wire never cause a panic.
//! * A full queue never blocks. The port drops and counts the frames, or tells the sender to wait.
//! * A port under load makes no system call for a single packet. An idle port makes no system calls, except for the
//!   link monitor's check every few seconds.
//! * No frame that arrives on a taken interface reaches the host's network stack.

pub mod af_packet;
pub mod counters;
pub mod files;
pub mod host_filter;
pub mod interface;
mod interface_lock;
pub mod link_monitor;
pub mod memory;
mod netlink;
pub mod offload;
pub mod pcap;
pub mod poller;
pub mod privilege;
pub mod qdisc;
pub mod recorder;
pub mod replay;
mod sys;

pub use counters::{PortCounters, PortStatistics, SendDrop};

use std::ops::Deref;
use std::os::fd::BorrowedFd;
use std::time::Instant;

/// Data-plane port number, as P4 programs see it. v1model has 9 bits; this crate does not check the range.
pub type PortId = u16;

/// Maximum length of a frame in bytes that a port accepts or sends: 64 KiB of payload, link-layer header and one tag.
pub const MAX_FRAME: usize = 65_536 + 18;

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'b, 'f> {
    /// The frame stays in place until the caller uses the receiver again.
    Kept(&'b [u8]),
    /// The frame is in a buffer that the next frame overwrites.
    Passing(&'f [u8]),
}

impl Deref for Frame<'_, '_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Kept(bytes) => bytes,
            Self::Passing(bytes) => bytes,
        }
    }
}

/// Callback that receives frames, each with its ingress port.
pub type Deliver<'d, 'b> = dyn FnMut(PortId, Frame<'b, '_>) + 'd;

/// The receiving half of one or more ports.
pub trait Receiver: Send {
    /// Delivers up to `budget` waiting frames in order of arrival. Returns the number of delivered frames. Never
    /// blocks. Frames are [`Kept`](Frame::Kept) if possible, so that a caller can process several frames at a time
    /// without copying them. A link that is down has no frames, which is not an error.
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize;

    /// Returns a descriptor that is readable while frames wait (level-triggered). `None` if this receiver never has
    /// frames.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Clears an error that the descriptor has reported. The descriptor reports the error again and again until this
    /// is called.
    fn clear_error(&mut self) {}

    /// Returns whether no further frame can arrive, as at the end of a pcap file.
    fn finished(&self) -> bool {
        false
    }
}

/// The sending half of one port.
pub trait Transmitter: Send {
    /// Queues a copy of a frame, given in two parts. Sends the batch when it is full. Drops and counts frames that
    /// cannot be sent. Returns false if the port accepts no more frames. The caller should then wait for the
    /// condition of [`retry`](Self::retry), and flush. If the caller pushes more frames instead, the port keeps about
    /// one batch of them.
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool;

    /// Queues a frame in one part, like [`push_parts`](Self::push_parts).
    fn push(&mut self, frame: &[u8]) -> bool {
        self.push_parts(frame, &[])
    }

    /// Sends the queued frames. Returns false if some remain because the port accepts no more frames.
    fn flush(&mut self) -> bool;

    /// Returns the condition under which to flush a port that accepts no more frames. `None` if the port accepts
    /// frames.
    fn retry(&self) -> Option<Retry<'_>> {
        None
    }
}

/// Condition under which a port may accept frames again.
#[derive(Clone, Copy, Debug)]
pub enum Retry<'a> {
    /// The descriptor becomes writable.
    Writable(BorrowedFd<'a>),
    /// This time is reached. There is no event that reports room.
    At(Instant),
}

// SPDX-License-Identifier: Apache-2.0
//! The switch's ports: AF_PACKET, pcap files and memory, behind two traits.
//!
//! A port has a receiving half ([`Receiver`]) and a sending half ([`Transmitter`]). So a worker can pass a frame that
//! still lies in a receive ring to the pipeline while it queues others for transmission. Every worker owns its halves;
//! threads share only counters.
//!
//! * [`af_packet`]: a mapped receive ring and batched sends on a Linux interface
//! * [`interface`]: takes an interface over (silent in the kernel) and gives it back; one switch or engine at a time
//! * [`host_filter`]: closes an interface to the host's network stack
//! * [`privilege`]: the capabilities for that, raised only while needed
//! * [`qdisc`]: the queueing discipline that a user has set on an interface
//! * [`link_monitor`]: carrier changes, as they happen
//! * [`files`]: `NAME_in.pcap` and `NAME_out.pcap`
//! * [`memory`]: in-process ports for tests
//! * [`replay`]: frames in memory, for measurements
//! * [`recorder`]: writes the frames that another port receives and sends into pcap files
//! * [`poller`]: waiting for any of many receivers, and for other threads
//!
//! Depends on nothing else of the switch. Promises:
//!
//! * Bytes from the wire never cause a panic.
//! * A full queue never blocks: it drops and counts, or reports to the sender.
//! * Loaded ports make no system call per packet. Idle ones make none but the link monitor's check every few seconds.
//! * Nothing that arrives on a taken interface reaches the host's network stack.

pub mod af_packet;
pub mod checksum;
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

/// A data-plane port number as P4 programs see it (9 bits in v1model; wider ones are the program's concern).
pub type PortId = u16;

/// The longest frame that any port accepts or sends: 64 KiB of payload, link-layer header and one tag.
pub const MAX_FRAME: usize = 65_536 + 18;

/// A received frame.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'b, 'f> {
    /// The frame stays in place until its receiver is used again.
    Kept(&'b [u8]),
    /// The frame lies in a buffer that the next frame overwrites.
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

/// Receives frames, each with its ingress port.
pub type Deliver<'d, 'b> = dyn FnMut(PortId, Frame<'b, '_>) + 'd;

/// The receiving half of one or more ports.
pub trait Receiver: Send {
    /// Delivers up to `budget` waiting frames in order of arrival, and returns their number. Never blocks. Frames are
    /// [`Kept`](Frame::Kept) where possible, so that a caller can process several at a time without copying them. A
    /// link that is down has no frames; that is not an error.
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize;

    /// Returns a descriptor that becomes readable when frames wait (level-triggered); `None` if this receiver never has
    /// any.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// Clears an error that the descriptor has reported; otherwise it would be reported for ever.
    fn clear_error(&mut self) {}

    /// Whether no further frame can arrive (the end of a pcap file).
    fn finished(&self) -> bool {
        false
    }
}

/// The sending half of one port.
pub trait Transmitter: Send {
    /// Queues a copy of a frame, which is given in two parts; sends when its batch is full. Frames that cannot be sent
    /// are dropped and counted. False if the port takes no more: the caller should wait ([`retry`](Self::retry)) and
    /// flush. About one batch that is pushed nevertheless is kept.
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool;

    /// As [`push_parts`](Self::push_parts), for a frame in one part.
    fn push(&mut self, frame: &[u8]) -> bool {
        self.push_parts(frame, &[])
    }

    /// Sends the queued frames. False if frames remain because the port takes no more.
    fn flush(&mut self) -> bool;

    /// Returns when to flush a port that takes no more; `None` if it takes frames.
    fn retry(&self) -> Option<Retry<'_>> {
        None
    }
}

/// The condition under which a port may take frames again.
#[derive(Clone, Copy, Debug)]
pub enum Retry<'a> {
    /// This descriptor becomes writable.
    Writable(BorrowedFd<'a>),
    /// This time has come; no event reports it.
    At(Instant),
}

// SPDX-License-Identifier: Apache-2.0
//! Where frames enter and leave the switch: AF_PACKET, pcap files and memory, behind two traits.
//!
//! A port has a receiving half ([`Receiver`]) and a sending half ([`Transmitter`]), so that a worker can hand a
//! frame that still lies in a receive ring to the pipeline while it queues others for transmission. Every worker
//! owns its own halves; nothing here is shared between threads but counters.
//!
//! * [`af_packet`]: a mapped receive ring and batched sends on a Linux interface
//! * [`interface`]: takes an interface over (silent in the kernel) and gives it back; one switch or engine at a time
//! * [`host_filter`]: closes an interface to the host's network stack
//! * [`privilege`]: the capabilities that this takes, raised only meanwhile
//! * [`qdisc`]: which queueing discipline somebody has put on an interface
//! * [`link_monitor`]: carrier changes, as they happen
//! * [`files`]: `NAME_in.pcap` and `NAME_out.pcap`
//! * [`memory`]: in-process ports for tests
//! * [`replay`]: frames that lie in memory, for measuring
//! * [`recorder`]: writes what another port receives and sends into pcap files
//! * [`poller`]: waiting for any of many receivers, and for other threads
//!
//! Depends on nothing else of the switch. Promises: bytes from the wire never panic; a full queue drops and
//! counts, or says so to who sends, it never blocks; loaded ports make no system call per packet, idle ones none but the link monitor's check every few
//! seconds; nothing of what arrives on a taken interface reaches the host's network stack.

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

/// A frame that came in.
#[derive(Clone, Copy, Debug)]
pub enum Frame<'b, 'f> {
    /// It stays where it is until its receiver is used again.
    Kept(&'b [u8]),
    /// It lies in a buffer that the next frame is put into.
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

/// Is given frames, each with the port that it came in by.
pub type Deliver<'d, 'b> = dyn FnMut(PortId, Frame<'b, '_>) + 'd;

/// The receiving half of one or more ports.
pub trait Receiver: Send {
    /// Delivers up to `budget` waiting frames in order of arrival, and returns how many there were. Never blocks.
    /// Frames are kept as far as they can be, so that who processes several at a time need not copy them. A link
    /// that is down has no frames; that is not an error.
    fn receive<'b>(&'b mut self, budget: usize, deliver: &mut Deliver<'_, 'b>) -> usize;

    /// A descriptor that becomes readable when frames wait (level triggered), if this receiver can ever have some.
    fn readiness(&self) -> Option<BorrowedFd<'_>>;

    /// To be called when the descriptor reported an error, so that it does not report it for ever.
    fn clear_error(&mut self) {}

    /// True when no frame will ever come again (the end of a pcap file).
    fn finished(&self) -> bool {
        false
    }
}

/// The sending half of one port.
pub trait Transmitter: Send {
    /// Queues a copy of a frame, which is given in two parts; sends when its batch is full. What cannot be sent is
    /// dropped and counted. False if the port takes no more: the caller should wait ([`retry`](Self::retry)) and flush.
    /// A batch or so that is pushed nevertheless is kept.
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool;

    /// Likewise, a frame in one part.
    fn push(&mut self, frame: &[u8]) -> bool {
        self.push_parts(frame, &[])
    }

    /// Sends what is queued. False if frames remain because the port takes no more.
    fn flush(&mut self) -> bool;

    /// When to flush a port that takes no more; none if it takes.
    fn retry(&self) -> Option<Retry<'_>> {
        None
    }
}

/// When a port may take frames again.
#[derive(Clone, Copy, Debug)]
pub enum Retry<'a> {
    /// When this descriptor is writable.
    Writable(BorrowedFd<'a>),
    /// At this time: nothing tells.
    At(Instant),
}

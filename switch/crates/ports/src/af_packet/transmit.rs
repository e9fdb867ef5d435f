// SPDX-License-Identifier: Apache-2.0
//! Batched sending on an interface.
//!
//! A [holding](BatchTransmitter::holding) transmitter keeps what the interface has no room for. The kernel says so in two
//! ways. EAGAIN: as many bytes of this socket as may be are under way, in a qdisc or in a receiver's backlog; the socket
//! becomes writable when half of them have gone. ENOBUFS: the qdisc or the driver's ring is full; nothing tells when it is
//! not any more, so it is tried again, less and less often.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::bind;
use crate::host_filter::send_mark;
use crate::interface;
use crate::privilege::Raised;
use crate::{MAX_FRAME, PortCounters, Retry, SendDrop, Transmitter, sys};

const BATCH: usize = 64;
/// Frames that a holding transmitter keeps: those that were refused, and as many that were under way to it meanwhile.
const MOST_HELD: usize = 2 * BATCH;
const BUFFER: usize = MOST_HELD * 2048 + MAX_FRAME;

/// Bytes under way round the qdisc. Room for what waits in the receiver's backlog; the kernel caps it silently.
const DIRECT_BYTES: libc::c_int = 4 << 20;
/// Bytes under way through a qdisc, which the kernel doubles and counts with its own overhead: some thirty full frames. The
/// rest waits in the queue of the port, where the program sees it. A qdisc alone (TCLink's) may hold a thousand.
const QDISC_BYTES: libc::c_int = 32 << 10;

/// How long a full ring or qdisc is left alone, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// A frame that is refused for so long, though nothing of this socket is under way, is not refused for want of room but for
/// ever: by a filter (tc), or because it is longer than what the qdisc lets pass at once.
const PATIENCE: Duration = Duration::from_millis(50);

/// Whether the frames of a sending socket go round the interface's qdisc, which can be changed while it sends.
#[derive(Debug, Clone)]
pub struct SendPath {
    socket: Arc<OwnedFd>,
    index: i32,
}

impl SendPath {
    /// Sends through the interface's qdisc, or round it.
    ///
    /// # Errors
    /// As the kernel has them: a mark takes CAP_NET_ADMIN.
    pub fn honour_qdisc(&self, honour: bool) -> io::Result<()> {
        let _raised = Raised::here();
        let fd = self.socket.as_fd();
        // Order: a frame that meets the filter to the host has the mark.
        let mark = || {
            let mark = if honour { send_mark(self.index) } else { 0 };
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_MARK, &mark)
        };
        let bypass = || {
            let bypass = libc::c_int::from(!honour);
            sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &bypass)
        };
        let room = || {
            let bytes = if honour { QDISC_BYTES } else { DIRECT_BYTES };
            sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &bytes)
        };
        if honour {
            mark().and_then(|()| room()).and_then(|()| bypass())
        } else {
            bypass().and_then(|()| room()).and_then(|()| mark())
        }
    }
}

/// Sends frames on one interface in batches of up to 64.
pub struct BatchTransmitter {
    name: String,
    socket: Arc<OwnedFd>,
    index: i32,
    buffer: Box<[u8]>,
    used: usize,
    /// Where each queued frame starts and ends in the buffer.
    frames: Vec<(usize, usize)>,
    counters: Arc<PortCounters>,
    /// Keeps what is refused for want of room.
    holding: bool,
    /// The interface takes no more.
    refused: Option<Refused>,
}

/// How the interface refused the first frame that is queued.
#[derive(Debug, Clone, Copy)]
enum Refused {
    /// Enough is under way.
    Bytes,
    /// No room in the qdisc or the ring.
    Queue {
        /// When it first did.
        since: Instant,
        /// How long it is left alone now.
        pause: Duration,
        /// When to try again.
        until: Instant,
    },
}

impl Refused {
    /// No room in the qdisc or the ring, again perhaps.
    fn queue(before: Option<Self>) -> Self {
        let now = Instant::now();
        let (since, pause) = match before {
            Some(Self::Queue { since, pause, .. }) => (since, (2 * pause).min(LONGEST_PAUSE)),
            _ => (now, FIRST_PAUSE),
        };
        let until = now + pause;
        Self::Queue {
            since,
            pause,
            until,
        }
    }
}

impl BatchTransmitter {
    /// Opens a sending socket on the interface called `name`.
    pub fn open(name: &str, counters: Arc<PortCounters>) -> io::Result<Self> {
        let _raised = Raised::here();
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        let fd = socket.as_fd();
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &DIRECT_BYTES)?;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
        let index = sys::interface_index(name)?;
        bind(fd, index, 0)?;
        Ok(Self {
            name: name.to_owned(),
            socket: Arc::new(socket),
            index,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            used: 0,
            frames: Vec::with_capacity(MOST_HELD),
            counters,
            holding: false,
            refused: None,
        })
    }

    /// Keeps frames that the interface has no room for, until it has; otherwise they are dropped and counted.
    #[must_use]
    pub fn holding(mut self) -> Self {
        self.holding = true;
        self
    }

    /// How its frames go; round the qdisc, to begin with.
    pub fn path(&self) -> SendPath {
        SendPath {
            socket: Arc::clone(&self.socket),
            index: self.index,
        }
    }

    /// Why the kernel did not take a frame. It says ENOBUFS for a link without carrier, too.
    fn reason(&self, error: &io::Error) -> SendDrop {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE | libc::EINVAL) => SendDrop::Length,
            Some(libc::ENOBUFS | libc::EAGAIN) if interface::is_running(&self.name) => {
                SendDrop::QueueFull
            }
            _ => SendDrop::LinkDown,
        }
    }

    /// Sends frames from number `first` on; returns how many went, or the first one's error.
    fn send(&mut self, first: usize) -> io::Result<usize> {
        let waiting = &self.frames[first..];
        let waiting = &waiting[..waiting.len().min(BATCH)];
        // SAFETY: all bit patterns, zero included, are valid for these plain C structures.
        let (mut vectors, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        for (slot, &(start, end)) in waiting.iter().enumerate() {
            vectors[slot].iov_base = self.buffer[start..end].as_mut_ptr().cast();
            vectors[slot].iov_len = end - start;
            messages[slot].msg_hdr.msg_iov = &raw mut vectors[slot];
            messages[slot].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: the first `waiting.len()` messages each point to one vector, and that to bytes of `buffer`, all
        // live and unmoved during the call.
        let sent = unsafe {
            sys::check(libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                waiting.len() as u32,
                libc::MSG_DONTWAIT,
            ))?
        };
        Ok(sent as usize)
    }

    /// Whether the frame that was refused for want of room is kept.
    fn keeps(&mut self, error: &io::Error) -> bool {
        if !self.holding {
            return false;
        }
        let refused = match error.raw_os_error() {
            Some(libc::EAGAIN) => Refused::Bytes,
            _ => Refused::queue(self.refused),
        };
        if let Refused::Queue { since, .. } = refused
            && since.elapsed() >= PATIENCE
            && self.is_idle()
        {
            return false;
        }
        self.refused = Some(refused);
        true
    }

    /// Whether nothing of this socket is under way.
    fn is_idle(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one integer.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        result == 0 && bytes == 0
    }

    /// Moves frames from this number on to the beginning of the buffer; the others are done.
    fn keep_from(&mut self, first: usize) {
        let Some(&(start, _)) = self.frames.get(first) else {
            self.frames.clear();
            self.used = 0;
            return;
        };
        self.buffer.copy_within(start..self.used, 0);
        self.used -= start;
        self.frames.drain(..first);
        for (from, to) in &mut self.frames {
            *from -= start;
            *to -= start;
        }
    }

    fn has_room(&self, bytes: usize, most: usize) -> bool {
        self.frames.len() < most && self.used + bytes <= self.buffer.len()
    }
}

impl Transmitter for BatchTransmitter {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let bytes = headers.len() + payload.len();
        if bytes > MAX_FRAME {
            self.counters.send_dropped(SendDrop::Length, 1);
            return self.refused.is_none();
        }
        if !self.has_room(bytes, BATCH) {
            if self.refused.is_none() {
                self.flush();
            }
            if !self.has_room(bytes, MOST_HELD) {
                self.counters.send_dropped(SendDrop::QueueFull, 1);
                return false;
            }
        }
        let end = self.used + bytes;
        let (first, second) = self.buffer[self.used..end].split_at_mut(headers.len());
        first.copy_from_slice(headers);
        second.copy_from_slice(payload);
        self.frames.push((self.used, end));
        self.used = end;
        self.refused.is_none()
    }

    fn flush(&mut self) -> bool {
        let mut done = 0;
        let mut dropped = 0;
        let mut bytes = 0;
        while done < self.frames.len() {
            match self.send(done) {
                Ok(sent) => {
                    bytes += self.frames[done..done + sent]
                        .iter()
                        .map(|(start, end)| end - start)
                        .sum::<usize>();
                    done += sent;
                    self.refused = None;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let why = self.reason(&error);
                    if why == SendDrop::QueueFull && self.keeps(&error) {
                        break;
                    }
                    self.refused = None;
                    // A link that is down is down for all others too; else the next may do better.
                    let lost = match why {
                        SendDrop::LinkDown => self.frames.len() - done,
                        SendDrop::QueueFull | SendDrop::Length => 1,
                    };
                    self.counters.send_dropped(why, lost as u64);
                    dropped += lost;
                    done += lost;
                }
            }
        }
        if done > 0 {
            self.counters.sent((done - dropped) as u64, bytes as u64);
        }
        self.keep_from(done);
        self.refused.is_none()
    }

    fn retry(&self) -> Option<Retry<'_>> {
        Some(match self.refused? {
            Refused::Bytes => Retry::Writable(self.socket.as_fd()),
            Refused::Queue { until, .. } => Retry::At(until),
        })
    }
}

impl Drop for BatchTransmitter {
    fn drop(&mut self) {
        // The interface is gone, or given back.
        if !self.frames.is_empty() {
            let lost = self.frames.len() as u64;
            self.counters.send_dropped(SendDrop::LinkDown, lost);
        }
    }
}

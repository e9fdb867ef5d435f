// SPDX-License-Identifier: Apache-2.0
//! Sends batches on an interface.
//!
//! A [holding](BatchTransmitter::holding) transmitter keeps frames that the interface has no room for. The kernel
//! reports that in two ways:
//!
//! * EAGAIN: the limit of bytes in flight for this socket is reached, in a qdisc or in a receiver's backlog. The socket
//!   becomes writable when half of them have gone.
//! * ENOBUFS: the qdisc or the driver's ring is full. No event reports when it has room again, so sending is retried
//!   with back-off.

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
/// Frames that a holding transmitter keeps: the refused ones, and as many that were pushed in the meantime.
const MOST_HELD: usize = 2 * BATCH;
const BUFFER: usize = MOST_HELD * 2048 + MAX_FRAME;

/// Limit of bytes in flight past the qdisc. Covers the receiver's backlog; the kernel caps the value silently.
const DIRECT_BYTES: libc::c_int = 4 << 20;
/// Limit of bytes in flight through a qdisc, which the kernel doubles and counts with its own overhead: some thirty
/// full frames. The rest waits in the queue of the port, where the program sees it. A qdisc alone (TCLink's) may hold a
/// thousand.
const QDISC_BYTES: libc::c_int = 32 << 10;

/// First and longest pause of the back-off after a full ring or qdisc.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// A frame that is refused for so long, although nothing of this socket is in flight, is not refused for lack of room
/// but permanently: by a filter (tc), or because it is longer than the qdisc's burst.
const PATIENCE: Duration = Duration::from_millis(50);

/// The path of a sending socket's frames, through or past the interface's qdisc. It can change while the socket sends.
#[derive(Debug, Clone)]
pub struct SendPath {
    socket: Arc<OwnedFd>,
    index: i32,
}

impl SendPath {
    /// Sends through the interface's qdisc, or past it.
    ///
    /// # Errors
    /// Errors from the kernel: setting a mark requires CAP_NET_ADMIN.
    pub fn honour_qdisc(&self, honour: bool) -> io::Result<()> {
        let _raised = Raised::here();
        let fd = self.socket.as_fd();
        // Order: a frame that goes through the filter to the host must carry the mark.
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
    /// Start and end of each queued frame in the buffer.
    frames: Vec<(usize, usize)>,
    counters: Arc<PortCounters>,
    /// Whether to keep frames that are refused for lack of room.
    holding: bool,
    /// Set while the interface takes no more.
    refused: Option<Refused>,
}

/// The way in which the interface refused the first queued frame.
#[derive(Debug, Clone, Copy)]
enum Refused {
    /// Too many bytes of this socket are in flight (EAGAIN).
    Bytes,
    /// The qdisc or the ring is full (ENOBUFS).
    Queue {
        /// Time of the first refusal.
        since: Instant,
        /// The current pause of the back-off.
        pause: Duration,
        /// Time of the next try.
        until: Instant,
    },
}

impl Refused {
    /// Returns the state after ENOBUFS, given the state before it.
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

    /// Keeps frames that the interface has no room for; otherwise they are dropped and counted.
    #[must_use]
    pub fn holding(mut self) -> Self {
        self.holding = true;
        self
    }

    /// Returns a handle to the path of its frames; initially past the qdisc.
    pub fn path(&self) -> SendPath {
        SendPath {
            socket: Arc::clone(&self.socket),
            index: self.index,
        }
    }

    /// Returns the reason why the kernel did not take a frame. ENOBUFS also occurs on a link without carrier.
    fn reason(&self, error: &io::Error) -> SendDrop {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE | libc::EINVAL) => SendDrop::Length,
            Some(libc::ENOBUFS | libc::EAGAIN) if interface::is_running(&self.name) => {
                SendDrop::QueueFull
            }
            _ => SendDrop::LinkDown,
        }
    }

    /// Sends frames from number `first` on. Returns how many were sent, or the error of the first one.
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

    /// Whether to keep the frame that was refused with this error.
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

    /// Whether nothing of this socket is in flight.
    fn is_idle(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (TIOCOUTQ) writes one integer.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        result == 0 && bytes == 0
    }

    /// Moves frames from this number on to the start of the buffer, and drops the ones before it.
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
                    // A link that is down loses all queued frames; after another error the next frame may succeed.
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
        // The interface is gone or was released.
        if !self.frames.is_empty() {
            let lost = self.frames.len() as u64;
            self.counters.send_dropped(SendDrop::LinkDown, lost);
        }
    }
}

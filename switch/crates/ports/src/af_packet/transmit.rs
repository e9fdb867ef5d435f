// SPDX-License-Identifier: Apache-2.0
//! Sends batches on an interface.
//!
//! A [holding](BatchTransmitter::holding) transmitter keeps frames for which the interface has no room. The kernel
//! reports lack of room by two errors:
//!
//! * EAGAIN: this socket has reached its limit of bytes in flight, that is, in a qdisc or in the backlog of the far end
//!   of a veth. The socket becomes writable when half of these bytes are gone.
//! * ENOBUFS: the qdisc or the driver's ring is full. The kernel gives no event when there is room again, so the
//!   transmitter retries with back-off.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::socket::bind;
use crate::host_filter::send_mark;
use crate::interface;
use crate::privilege::Raised;
use crate::{MAX_FRAME, PortCounters, Retry, SendDrop, Transmitter, sys};

const BATCH: usize = 64;
/// Maximum number of frames that a holding transmitter keeps: the batch that was refused, and one batch that was pushed
/// afterwards.
const MOST_HELD: usize = 2 * BATCH;
const BUFFER: usize = MOST_HELD * 2048 + MAX_FRAME;

/// Limit of bytes in flight for frames that bypass the qdisc. Frames in the backlog of a veth's far end count, too. If
/// the kernel allows less, it silently uses its own limit.
const DIRECT_BYTES: libc::c_int = 4 << 20;
/// Limit of bytes in flight through a qdisc. The kernel doubles this value and adds its own overhead to each frame, so
/// it means about thirty full-size frames. Further frames wait in the port's queue, whose length the program can read.
/// Without this limit, a qdisc such as that of Mininet's TCLink could hold a thousand frames.
const QDISC_BYTES: libc::c_int = 32 << 10;

/// Shortest and longest pause of the back-off after a full ring or qdisc.
const FIRST_PAUSE: Duration = Duration::from_micros(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(5);
/// Time after which a refused frame is dropped if this socket has nothing in flight. The kernel will then never accept
/// the frame: a tc filter drops it, or it is longer than the qdisc's burst.
const PATIENCE: Duration = Duration::from_millis(50);

/// Controls whether a socket's frames pass the interface's qdisc or bypass it. This can change while the socket sends.
#[derive(Debug, Clone)]
pub struct SendPath {
    socket: Arc<OwnedFd>,
    index: i32,
}

impl SendPath {
    /// Makes frames pass the interface's qdisc, or bypass it.
    ///
    /// # Errors
    /// Errors from the kernel, for example EPERM: setting a mark requires CAP_NET_ADMIN.
    pub fn honour_qdisc(&self, honour: bool) -> io::Result<()> {
        let _raised = Raised::here();
        let fd = self.socket.as_fd();
        // Order: the mark is set before frames go through the qdisc, because the egress filter drops frames without the
        // mark.
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
    /// Whether to keep frames that are refused because there is no room.
    holding: bool,
    /// Reason why the interface refused the first queued frame; `None` while the interface accepts frames.
    refused: Option<Refused>,
}

/// Reason why the interface refused the first queued frame.
#[derive(Debug, Clone, Copy)]
enum Refused {
    /// Too many bytes of this socket are in flight (EAGAIN).
    Bytes,
    /// The qdisc or the ring is full (ENOBUFS).
    Queue {
        /// Time of the first refusal of this frame.
        since: Instant,
        /// Current pause of the back-off.
        pause: Duration,
        /// Time of the next attempt.
        until: Instant,
    },
}

impl Refused {
    /// Returns the state after ENOBUFS, given the state before.
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
    /// Opens a sending socket on the interface `name`.
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

    /// Makes the transmitter keep frames for which the interface has no room. By default the transmitter drops and
    /// counts these frames.
    #[must_use]
    pub fn holding(mut self) -> Self {
        self.holding = true;
        self
    }

    /// Returns a handle that controls whether this transmitter's frames bypass the qdisc. At first they do.
    pub fn path(&self) -> SendPath {
        SendPath {
            socket: Arc::clone(&self.socket),
            index: self.index,
        }
    }

    /// Returns why the kernel refused a frame. ENOBUFS alone does not tell: the kernel also returns it on a link
    /// without carrier.
    fn reason(&self, error: &io::Error) -> SendDrop {
        match error.raw_os_error() {
            Some(libc::EMSGSIZE | libc::EINVAL) => SendDrop::Length,
            Some(libc::ENOBUFS | libc::EAGAIN) if interface::is_running(&self.name) => {
                SendDrop::QueueFull
            }
            _ => SendDrop::LinkDown,
        }
    }

    /// Sends frames from index `first` on. Returns how many were sent, or the error of the frame at `first`.
    fn send(&mut self, first: usize) -> io::Result<usize> {
        let waiting = &self.frames[first..];
        let waiting = &waiting[..waiting.len().min(BATCH)];
        // SAFETY: every bit pattern, including zero, is valid for these plain C structures.
        let (mut vectors, mut messages): ([libc::iovec; BATCH], [libc::mmsghdr; BATCH]) =
            unsafe { (mem::zeroed(), mem::zeroed()) };
        for (slot, &(start, end)) in waiting.iter().enumerate() {
            vectors[slot].iov_base = self.buffer[start..end].as_mut_ptr().cast();
            vectors[slot].iov_len = end - start;
            messages[slot].msg_hdr.msg_iov = &raw mut vectors[slot];
            messages[slot].msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: each of the first `waiting.len()` messages points to one vector, which points to bytes of `buffer`.
        // All of them live during the call and are not moved.
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

    /// Returns whether to keep a frame that the kernel refused with this error.
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

    /// Returns whether this socket has nothing in flight.
    fn is_idle(&self) -> bool {
        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ (equal to TIOCOUTQ) writes one integer.
        let result = unsafe { libc::ioctl(self.socket.as_raw_fd(), libc::TIOCOUTQ, &mut bytes) };
        result == 0 && bytes == 0
    }

    /// Drops the frames before index `first`, and moves the others to the start of the buffer.
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
                    // If the link is down, the remaining frames are all lost. After any other error, only this frame
                    // is.
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
        // The interface is gone or was released, so the remaining frames are lost.
        if !self.frames.is_empty() {
            let lost = self.frames.len() as u64;
            self.counters.send_dropped(SendDrop::LinkDown, lost);
        }
    }
}

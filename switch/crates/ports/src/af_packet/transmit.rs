// SPDX-License-Identifier: Apache-2.0
//! Batched sending on an interface.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use super::bind;
use crate::host_filter::send_mark;
use crate::interface;
use crate::privilege::Raised;
use crate::{MAX_FRAME, PortCounters, SendDrop, Transmitter, sys};

const BATCH: usize = 64;
const BUFFER: usize = BATCH * 2048 + MAX_FRAME;

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
        if honour {
            mark().and_then(|()| bypass())
        } else {
            bypass().and_then(|()| mark())
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
}

impl BatchTransmitter {
    /// Opens a sending socket on the interface called `name`.
    pub fn open(name: &str, counters: Arc<PortCounters>) -> io::Result<Self> {
        let _raised = Raised::here();
        let socket = sys::socket(libc::AF_PACKET, libc::SOCK_RAW, 0)?;
        let fd = socket.as_fd();
        // Room for what waits in the receiver's backlog; the kernel caps it silently.
        sys::set_option(fd, libc::SOL_SOCKET, libc::SO_SNDBUF, &(4 << 20))?;
        sys::set_option(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, &1)?;
        let index = sys::interface_index(name)?;
        bind(fd, index, 0)?;
        Ok(Self {
            name: name.to_owned(),
            socket: Arc::new(socket),
            index,
            buffer: vec![0; BUFFER].into_boxed_slice(),
            used: 0,
            frames: Vec::with_capacity(BATCH),
            counters,
        })
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
}

impl Transmitter for BatchTransmitter {
    fn push_parts(&mut self, headers: &[u8], payload: &[u8]) {
        let bytes = headers.len() + payload.len();
        if bytes > MAX_FRAME {
            self.counters.send_dropped(SendDrop::Length, 1);
            return;
        }
        if self.frames.len() == BATCH || self.used + bytes > self.buffer.len() {
            self.flush();
        }
        let end = self.used + bytes;
        let (first, second) = self.buffer[self.used..end].split_at_mut(headers.len());
        first.copy_from_slice(headers);
        second.copy_from_slice(payload);
        self.frames.push((self.used, end));
        self.used = end;
    }

    fn flush(&mut self) {
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
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    let why = self.reason(&error);
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
        self.frames.clear();
        self.used = 0;
    }
}

// SPDX-License-Identifier: Apache-2.0
//! A Linux interface as a port, over AF_PACKET.
//!
//! Receiving: a memory-mapped ring, so that a loaded port makes no system call and an idle one can be polled. The ring
//! is TPACKET_V2, whose frames are visible at once, unlike V3's blocks. Sending: batches with one `sendmmsg` each,
//! which bypass the qdisc unless a user has set one ([`crate::qdisc`]). Frames are delivered as they would be on a
//! wire: [`crate::offload`] undoes what the kernel left to hardware. Frames that this host sends out of the interface
//! are not delivered. Requires CAP_NET_RAW.

mod ring;
mod transmit;

pub use ring::RingReceiver;
pub use transmit::{BatchTransmitter, SendPath};

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

/// Default size of the receive ring, in frames.
pub const DEFAULT_RING_FRAMES: usize = 2048;

/// Binds a packet socket to one interface; protocol 0 receives nothing.
fn bind(fd: BorrowedFd<'_>, index: libc::c_int, protocol: libc::c_int) -> io::Result<()> {
    // SAFETY: all bit patterns, zero included, are valid for this plain C structure.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: pointer and length describe exactly `address`, which lives during the call.
    unsafe {
        let pointer = std::ptr::from_ref(&address).cast();
        let length = mem::size_of_val(&address) as libc::socklen_t;
        sys::check(libc::bind(fd.as_raw_fd(), pointer, length))?;
    }
    Ok(())
}

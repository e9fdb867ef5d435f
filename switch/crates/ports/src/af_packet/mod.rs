// SPDX-License-Identifier: Apache-2.0
//! A Linux interface as a port, over AF_PACKET.
//!
//! Receiving: a memory-mapped ring (TPACKET_V2, whose frames are visible at once, unlike V3's blocks), so that a loaded
//! port makes no system call and an idle one is waited for. Sending: batches with one `sendmmsg` each, past the queueing
//! discipline unless somebody has put one there ([`crate::qdisc`]). Frames come as on a wire: [`crate::offload`] undoes what the kernel left to hardware. What this host sends
//! out of the interface is not seen. Needs CAP_NET_RAW.

mod ring;
mod transmit;

pub use ring::RingReceiver;
pub use transmit::{BatchTransmitter, SendPath};

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

/// Room for frames that wait to be received, unless told otherwise.
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

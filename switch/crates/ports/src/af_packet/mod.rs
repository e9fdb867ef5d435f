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
mod transmit;

pub use ring::RingReceiver;
pub use transmit::{BatchTransmitter, SendPath};

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

/// Default size of the receive ring, in frames.
pub const DEFAULT_RING_FRAMES: usize = 2048;

/// Binds a packet socket to one interface. With protocol 0 the socket receives nothing.
fn bind(fd: BorrowedFd<'_>, index: libc::c_int, protocol: libc::c_int) -> io::Result<()> {
    // SAFETY: every bit pattern, including zero, is valid for this plain C structure.
    let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index;
    // SAFETY: pointer and length describe `address`, which lives during the call.
    unsafe {
        let pointer = std::ptr::from_ref(&address).cast();
        let length = mem::size_of_val(&address) as libc::socklen_t;
        sys::check(libc::bind(fd.as_raw_fd(), pointer, length))?;
    }
    Ok(())
}

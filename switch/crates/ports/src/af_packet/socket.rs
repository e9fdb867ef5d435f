// SPDX-License-Identifier: Apache-2.0
//! Packet sockets.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd};

use crate::sys;

/// Binds a packet socket to one interface. With protocol 0 the socket receives nothing.
pub(super) fn bind(
    fd: BorrowedFd<'_>,
    index: libc::c_int,
    protocol: libc::c_int,
) -> io::Result<()> {
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

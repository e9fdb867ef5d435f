// SPDX-License-Identifier: Apache-2.0
//! Provides safe functions for the system calls that this crate needs and the standard library lacks.

use std::ffi::{CStr, CString};
use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Converts a negative result to the error in the thread's `errno`.
pub(crate) fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result)
    }
}

/// Creates a socket that is closed on exec.
pub(crate) fn socket(
    domain: libc::c_int,
    kind: libc::c_int,
    protocol: libc::c_int,
) -> io::Result<OwnedFd> {
    // SAFETY: `socket` takes no pointers; a non-negative result is a new descriptor that only this function owns.
    unsafe {
        let fd = check(libc::socket(domain, kind | libc::SOCK_CLOEXEC, protocol))?;
        Ok(OwnedFd::from_raw_fd(fd))
    }
}

/// Sets a socket option from a plain C value.
pub(crate) fn set_option<T: Copy>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
    value: &T,
) -> io::Result<()> {
    // SAFETY: pointer and length describe the value behind the reference, which lives during the call.
    unsafe {
        let pointer = std::ptr::from_ref(value).cast();
        let length = mem::size_of::<T>() as libc::socklen_t;
        check(libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            pointer,
            length,
        ))?;
    }
    Ok(())
}

/// Reads a socket option into a plain C value.
///
/// # Safety
/// Every bit pattern must be a valid `T`.
pub(crate) unsafe fn get_option<T: Copy + Default>(
    fd: BorrowedFd<'_>,
    level: libc::c_int,
    name: libc::c_int,
) -> io::Result<T> {
    let mut value = T::default();
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: pointer and length describe `value`; the caller ensures that every bit pattern is valid.
    unsafe {
        let pointer = std::ptr::from_mut(&mut value).cast();
        check(libc::getsockopt(
            fd.as_raw_fd(),
            level,
            name,
            pointer,
            &mut length,
        ))?;
    }
    Ok(value)
}

/// Returns the index of an interface in this network namespace.
pub(crate) fn interface_index(name: &str) -> io::Result<libc::c_int> {
    let name = CString::new(name).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: the pointer refers to a NUL-terminated string that outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    if index == 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(index as libc::c_int)
    }
}

/// Returns the name of an interface in this network namespace, if it exists.
pub(crate) fn interface_name(index: libc::c_int) -> Option<String> {
    let mut name = [0u8; libc::IF_NAMESIZE];
    // SAFETY: the buffer has room for the longest name and its terminating zero.
    let found = unsafe { libc::if_indextoname(index as libc::c_uint, name.as_mut_ptr().cast()) };
    if found.is_null() {
        return None;
    }
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

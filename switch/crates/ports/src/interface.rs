// SPDX-License-Identifier: Apache-2.0
//! Takes an interface over from the kernel, and releases it.
//!
//! An interface belongs to one switch or engine at a time. Invariant: while the interface is taken over, the host
//! neither delivers nor forwards frames that arrive on the interface, and sends none there. [`HostFilter`] enforces
//! this. The filter is installed before any other change to the interface, and before a packet socket is opened. If the
//! filter cannot be installed, the interface is not taken over.
//!
//! Further settings reduce what the host tries to send: NOARP, no addresses, no IPv6, no IPv4 forwarding, and strict
//! reverse-path filtering. Strict filtering refuses all IPv4 unicast if there are neither addresses nor routes. If
//! another process removes the filter, these settings protect the interface until the switch installs the filter again.
//! If the host does not allow a setting, a warning is logged. Generic receive offload is switched off, so that frames
//! arrive as they were sent.
//!
//! Dropping [`SilentInterface`] undoes the changes in reverse order. Taking over fails if the interface does not exist
//! or cannot be brought up.

use std::ffi::c_char;
use std::fs;
use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};

use crate::host_filter::{Checked, HostFilter};
use crate::interface_lock::InterfaceLock;
use crate::netlink::{self, Message, Socket};
use crate::privilege::Raised;
use crate::sys;

/// An interface that belongs to this process until this value is dropped.
#[derive(Debug)]
pub struct SilentInterface {
    name: String,
    index: i32,
    undo: Vec<Undo>,
    /// Order: the filter is removed last, after all other changes are undone. Until then, the host gets no frame.
    filter: Option<HostFilter>,
    /// Whether the interface was set down because it could not be closed to the host.
    shut: bool,
    /// Lock of the interface, released last. `None` when the interface is gone.
    lock: Option<InterfaceLock>,
}

/// A change to undo when the interface is released.
#[derive(Debug)]
enum Undo {
    Flags(libc::c_short),
    Setting { path: String, value: String },
    Address(Vec<u8>),
    ReceiveOffload,
}

impl SilentInterface {
    /// Closes the interface to the host, takes it over and brings it up.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if another switch or engine has the interface; errors from the kernel.
    pub fn take(name: &str) -> io::Result<Self> {
        let _raised = Raised::here();
        let index = sys::interface_index(name)?;
        if flags(name)? & libc::IFF_LOOPBACK as libc::c_short != 0 {
            let problem = "the loopback interface cannot be a port, because the host needs it";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
        }
        let lock = InterfaceLock::take(index)?;
        let filter = HostFilter::put(index).map_err(|error| {
            let problem =
                format!("cannot close the interface to the host's network stack: {error}");
            io::Error::new(error.kind(), problem)
        })?;
        let mut this = Self {
            name: name.into(),
            index,
            undo: Vec::new(),
            filter: Some(filter),
            shut: false,
            lock: Some(lock),
        };
        for message in addresses(index)? {
            this.attempt("remove an address", |this| this.remove_address(message));
        }
        for (family, setting, value) in [
            ("ipv6", "disable_ipv6", "1"),
            ("ipv4", "forwarding", "0"),
            ("ipv4", "rp_filter", "1"),
        ] {
            this.attempt(setting, |this| this.set(family, setting, value));
        }
        this.attempt("switch receive offload off", Self::disable_receive_offload);
        this.bring_up()?;
        Ok(this)
    }

    /// Returns the interface's index. If another interface later gets the same name, its index differs.
    pub fn index(&self) -> i32 {
        self.index
    }

    /// Releases the lock of an interface that is gone. If an interface with this index appears later, another switch or
    /// engine can lock it.
    pub fn release(&mut self) {
        self.lock = None;
    }

    /// Drops this without undoing changes. Must be called when the interface is gone, because a new interface with its
    /// name must not be changed.
    pub fn abandon(mut self) {
        self.undo.clear();
        if let Some(filter) = self.filter.take() {
            filter.forget();
        }
    }

    /// Checks that the interface is closed to the host, and closes it again if it is not. If this fails, sets the
    /// interface down. A later check that succeeds sets it up again.
    ///
    /// # Errors
    /// Describes why the interface cannot be closed. The interface is then down.
    pub fn check(&mut self) -> io::Result<Checked> {
        let _raised = Raised::here();
        let Some(filter) = &mut self.filter else {
            return Ok(Checked::Intact);
        };
        let checked = filter.check();
        // An index without a name belongs to an interface that is gone. The link monitor reports that.
        let Some(name) = sys::interface_name(self.index) else {
            return Ok(Checked::Intact);
        };
        match checked {
            Ok(_) if self.shut => {
                set_flags(&name, flags(&name)? | libc::IFF_UP as libc::c_short)?;
                self.shut = false;
                Ok(Checked::Restored)
            }
            Err(error) if !self.shut => {
                set_flags(&name, flags(&name)? & !(libc::IFF_UP as libc::c_short))?;
                self.shut = true;
                Err(error)
            }
            checked => checked,
        }
    }

    /// Performs an optional step of taking the interface over. If the step fails, only logs a warning.
    fn attempt(&mut self, what: &str, action: impl FnOnce(&mut Self) -> io::Result<()>) {
        if let Err(error) = action(self) {
            tracing::warn!(interface = self.name, what, %error, "the host may still try to send on the interface");
        }
    }

    fn remove_address(&mut self, message: Message) -> io::Result<()> {
        Socket::open(0)?.request(libc::RTM_DELADDR, 0, &message.body)?;
        self.undo.push(Undo::Address(message.body));
        Ok(())
    }

    fn set(&mut self, family: &str, setting: &str, value: &str) -> io::Result<()> {
        let path = format!("/proc/sys/net/{family}/conf/{}/{setting}", self.name);
        let before = match fs::read_to_string(&path) {
            // A setting that does not exist belongs to a protocol that the kernel lacks. The kernel then sends no
            // packets of it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?.trim().to_owned(),
        };
        if before != value {
            fs::write(&path, value)?;
            self.undo.push(Undo::Setting {
                path,
                value: before,
            });
        }
        Ok(())
    }

    fn disable_receive_offload(&mut self) -> io::Result<()> {
        match receive_offload(&self.name, None) {
            Ok(true) => {
                receive_offload(&self.name, Some(false))?;
                self.undo.push(Undo::ReceiveOffload);
                Ok(())
            }
            Ok(false) => Ok(()),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn bring_up(&mut self) -> io::Result<()> {
        let before = flags(&self.name)?;
        let wanted = before | (libc::IFF_UP | libc::IFF_NOARP) as libc::c_short;
        if wanted != before {
            set_flags(&self.name, wanted)?;
            self.undo.push(Undo::Flags(before));
        }
        Ok(())
    }
}

impl Drop for SilentInterface {
    fn drop(&mut self) {
        let _raised = Raised::here();
        while let Some(undo) = self.undo.pop() {
            let result = match undo {
                Undo::Flags(before) => set_flags(&self.name, before),
                Undo::Setting { path, value } => fs::write(path, value),
                Undo::ReceiveOffload => receive_offload(&self.name, Some(true)).map(drop),
                Undo::Address(body) => Socket::open(0).and_then(|mut socket| {
                    let flags = (libc::NLM_F_CREATE | libc::NLM_F_REPLACE) as u16;
                    socket.request(libc::RTM_NEWADDR, flags, &body)
                }),
            };
            if let Err(error) = result {
                // The interface is gone, for example because a topology was deleted, so there is nothing to restore.
                tracing::debug!(interface = self.name, %error, "the interface's settings could not be restored");
            }
        }
    }
}

fn addresses(index: i32) -> io::Result<Vec<Message>> {
    const IFADDRMSG: usize = 8;
    let mut messages = Socket::open(0)?.dump(libc::RTM_GETADDR, &[0; IFADDRMSG])?;
    messages.retain(|message| netlink::address_index(&message.body) == Some(index));
    Ok(messages)
}

/// Creates an interface request for `ioctl`.
fn request(name: &str) -> io::Result<libc::ifreq> {
    // SAFETY: every bit pattern, including zero, is valid for this plain C structure.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as c_char;
    }
    Ok(request)
}

fn ioctl(operation: libc::c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    let socket = sys::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?;
    // SAFETY: the operations used here read and write one `ifreq`, and the object that its data pointer refers to. The
    // caller keeps that object alive.
    unsafe {
        let fd = socket.as_fd().as_raw_fd();
        sys::check(libc::ioctl(fd, operation as _, std::ptr::from_mut(request)))?;
    }
    Ok(())
}

/// Returns the interface's MTU in bytes.
pub fn mtu(name: &str) -> io::Result<usize> {
    let mut request = request(name)?;
    ioctl(libc::SIOCGIFMTU as _, &mut request)?;
    // SAFETY: SIOCGIFMTU has set this member of the union.
    let mtu = unsafe { request.ifr_ifru.ifru_mtu };
    usize::try_from(mtu).map_err(|_| io::ErrorKind::InvalidData.into())
}

/// Returns whether the interface exists, is up and has carrier.
pub fn is_running(name: &str) -> bool {
    let wanted = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    flags(name).is_ok_and(|flags| flags & wanted == wanted)
}

fn flags(name: &str) -> io::Result<libc::c_short> {
    let mut request = request(name)?;
    ioctl(libc::SIOCGIFFLAGS as _, &mut request)?;
    // SAFETY: SIOCGIFFLAGS has set this member of the union.
    Ok(unsafe { request.ifr_ifru.ifru_flags })
}

fn set_flags(name: &str, flags: libc::c_short) -> io::Result<()> {
    let mut request = request(name)?;
    request.ifr_ifru.ifru_flags = flags;
    ioctl(libc::SIOCSIFFLAGS as _, &mut request)
}

/// Returns whether generic receive offload is on. If `set` is given, switches the offload on or off first.
fn receive_offload(name: &str, set: Option<bool>) -> io::Result<bool> {
    const SIOCETHTOOL: libc::c_ulong = 0x8946;
    const ETHTOOL_GGRO: u32 = 0x2b;
    const ETHTOOL_SGRO: u32 = 0x2c;
    let command = if set.is_some() {
        ETHTOOL_SGRO
    } else {
        ETHTOOL_GGRO
    };
    let mut value = [command, u32::from(set.unwrap_or_default())];
    let mut request = request(name)?;
    request.ifr_ifru.ifru_data = value.as_mut_ptr().cast();
    ioctl(SIOCETHTOOL, &mut request)?;
    Ok(value[1] != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_interface_can_have_are_errors() {
        assert!(request("a-name-of-16-byte").is_err());
        assert!(SilentInterface::take("no-such-if").is_err());
        assert!(SilentInterface::take("nul\0").is_err());
        assert!(SilentInterface::take("lo").is_err());
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Controls one TAP interface: creation, MAC address, state, and non-blocking frame I/O
//! (Documentation/networking/tuntap.rst, `man 7 netdevice`).

use std::ffi::c_ulong;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::OpenOptionsExt;

const CLONE_DEVICE: &str = "/dev/net/tun";
/// `_IOW('T', 226, int)`. The libc crate does not define this constant.
const TUNSETCARRIER: c_ulong = 0x4004_54e2;
/// `_IOW('T', 217, int)`. The libc crate does not define this constant.
const TUNSETQUEUE: c_ulong = 0x4004_54d9;
/// Constants from linux/sockios.h and linux/ethtool.h.
const SIOCETHTOOL: c_ulong = 0x8946;
const ETHTOOL_GLINK: u32 = 0x0a;
/// `_IOR('T', 210, unsigned int)`.
const TUNGETIFF: c_ulong = 0x8004_54d2;
const IFF_ATTACH_QUEUE: libc::c_short = 0x0200;
const IFF_DETACH_QUEUE: libc::c_short = 0x0400;

/// `struct ethtool_value` (linux/ethtool.h).
#[repr(C)]
struct EthtoolValue {
    command: u32,
    data: u32,
}

/// A 48-bit Ethernet address.
pub type Mac = [u8; 6];

/// An open TAP interface. Dropping the value removes the interface. The interface remains if it is persistent, or
/// if another process has a queue of it open.
#[derive(Debug)]
pub struct Tap {
    file: File,
    /// Socket for interface ioctls, in the interface's network namespace.
    control: OwnedFd,
    name: String,
    index: u32,
}

impl Tap {
    /// Creates the TAP `name` in this network namespace, or opens an existing persistent TAP. Sets MTU and MAC. A
    /// new TAP is administratively down. If the caller has an open queue of the TAP, it passes this queue as
    /// `queue`.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid name, or for a queue of another interface. Otherwise the
    /// kernel's error with the failed step. Possible causes: no `/dev/net/tun`, no CAP_NET_ADMIN,
    /// name already used, MTU or MAC refused.
    pub fn create(
        name: &str,
        mtu: u32,
        mac: Mac,
        persist: bool,
        queue: Option<OwnedFd>,
    ) -> io::Result<Self> {
        let tap = match queue {
            Some(queue) => Self::adopt(name, queue)?,
            None => Self::open(name)?,
        };
        tap.set_mtu(mtu)?;
        tap.set_mac(mac)?;
        // Order: the TAP is made persistent last, so that no interface is left behind if an earlier step fails.
        ioctl_int(
            tap.as_raw_fd(),
            libc::TUNSETPERSIST as c_ulong,
            persist.into(),
        )
        .map_err(doing(|| format!("making {name} persistent or not")))?;
        Ok(tap)
    }

    /// Takes over an open queue of the TAP with this name and ifindex. Attaches the queue. Does not change the
    /// TAP's MTU, MAC or state.
    ///
    /// # Errors
    /// `NotFound` if no interface has this name, or if the interface has another ifindex. Otherwise
    /// the kernel's error.
    pub fn join(name: &str, index: u32, queue: OwnedFd) -> io::Result<Self> {
        let tap = Self::adopt(name, queue)?;
        if tap.index != index {
            let message = format!("{name} is not interface {index} any more");
            return Err(io::Error::new(io::ErrorKind::NotFound, message));
        }
        if !tap.is_attached()? {
            tap.attach(true)?;
        }
        Ok(tap)
    }

    /// Creates a `Tap` from an open queue of the interface `name`.
    fn adopt(name: &str, queue: OwnedFd) -> io::Result<Self> {
        let of = queue_request(queue.as_raw_fd())?;
        if of.ifr_name != request(name)?.ifr_name {
            let message = format!("the queue does not belong to {name}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        set_nonblocking(queue.as_raw_fd())?;
        Self::of(File::from(queue), name)
    }

    fn open(name: &str) -> io::Result<Self> {
        let mut request = request(name)?;
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(CLONE_DEVICE)
            .map_err(doing(|| format!("opening {CLONE_DEVICE} for {name}")))?;
        // IFF_MULTI_QUEUE: a TAP can have several open queues. A keeper process also holds this queue open, so that
        // the interface and its carrier outlive this process. Earlier keeper processes may still hold other queues.
        // The flags fit in the kernel's 16-bit field.
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_MULTI_QUEUE;
        request.ifr_ifru.ifru_flags = flags as libc::c_short;
        ioctl_ifreq(file.as_raw_fd(), libc::TUNSETIFF as c_ulong, &mut request)
            .map_err(doing(|| format!("creating the TAP {name}")))?;
        Self::of(file, name)
    }

    fn of(file: File, name: &str) -> io::Result<Self> {
        let control = control_socket()?;
        let index = interface_index(&control, name)?;
        Ok(Self {
            file,
            control,
            name: name.to_owned(),
            index,
        })
    }

    /// Attaches or detaches this queue. A detached queue can be neither read nor written. The TAP
    /// remains, and its other queues receive the host's frames.
    ///
    /// # Errors
    /// The kernel's error. EINVAL if the queue is already in this state.
    pub fn attach(&self, attached: bool) -> io::Result<()> {
        let mut request = request(&self.name)?;
        let flag = if attached {
            IFF_ATTACH_QUEUE
        } else {
            IFF_DETACH_QUEUE
        };
        request.ifr_ifru.ifru_flags = flag;
        ioctl_ifreq(self.as_raw_fd(), TUNSETQUEUE, &mut request).map_err(doing(|| {
            format!("attaching or detaching a queue of {}", self.name)
        }))
    }

    /// Returns whether this queue is attached.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn is_attached(&self) -> io::Result<bool> {
        let request = queue_request(self.as_raw_fd())?;
        // SAFETY: TUNGETIFF has filled this member of the union.
        Ok(unsafe { request.ifr_ifru.ifru_flags } & IFF_DETACH_QUEUE == 0)
    }

    /// Returns the kernel's interface index.
    pub fn index(&self) -> u32 {
        self.index
    }

    /// Returns the interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets or clears IFF_UP.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_up(&self, up: bool) -> io::Result<()> {
        let mut request = request(&self.name)?;
        self.ask(libc::SIOCGIFFLAGS, &mut request, "reading the flags")?;
        // SAFETY: SIOCGIFFLAGS has filled this member of the union.
        let flags = unsafe { request.ifr_ifru.ifru_flags };
        let bit = libc::IFF_UP as libc::c_short;
        request.ifr_ifru.ifru_flags = if up { flags | bit } else { flags & !bit };
        self.ask(libc::SIOCSIFFLAGS, &mut request, "setting the flags")
    }

    /// Sets the carrier, independently of the administrative state.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn set_carrier(&self, up: bool) -> io::Result<()> {
        let value = i32::from(up);
        // SAFETY: TUNSETCARRIER reads an int through the pointer; `value` lives during the call.
        let result = unsafe { libc::ioctl(self.file.as_raw_fd(), TUNSETCARRIER, &raw const value) };
        check(result).map_err(doing(|| format!("setting the carrier of {}", self.name)))
    }

    /// Returns whether ethtool's ioctl reports a link, that is, whether the interface is up and has a carrier.
    ///
    /// # Errors
    /// The kernel's error.
    pub fn is_running(&self) -> io::Result<bool> {
        let mut question = EthtoolValue {
            command: ETHTOOL_GLINK,
            data: 0,
        };
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_data = (&raw mut question).cast();
        self.ask(SIOCETHTOOL, &mut request, "asking for the carrier")?;
        Ok(question.data != 0)
    }

    /// Reads one frame into `buffer`. Returns the frame's length.
    ///
    /// # Errors
    /// `WouldBlock` if no frame is waiting; EBADFD if the interface was deleted; other errors of the kernel.
    pub fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        (&self.file).read(buffer)
    }

    /// Sends one frame to the host's kernel.
    ///
    /// # Errors
    /// The kernel's error: EIO while the interface is down, EAGAIN if the interface's queue is full, EINVAL for a
    /// frame that is shorter than an Ethernet header.
    pub fn write(&self, frame: &[u8]) -> io::Result<()> {
        (&self.file).write(frame).map(drop)
    }

    fn set_mtu(&self, mtu: u32) -> io::Result<()> {
        let mut request = request(&self.name)?;
        request.ifr_ifru.ifru_mtu = i32::try_from(mtu).unwrap_or(i32::MAX);
        self.ask(libc::SIOCSIFMTU, &mut request, "setting the MTU")
    }

    /// Sets the MAC only if it differs from the present MAC, because the kernel flushes the interface's neighbours
    /// whenever a MAC is set.
    fn set_mac(&self, mac: Mac) -> io::Result<()> {
        let mut request = request(&self.name)?;
        self.ask(libc::SIOCGIFHWADDR, &mut request, "reading the MAC")?;
        // SAFETY: SIOCGIFHWADDR has filled this member of the union.
        let present = unsafe { request.ifr_ifru.ifru_hwaddr };
        if present
            .sa_data
            .iter()
            .zip(mac)
            .all(|(have, want)| *have == want as libc::c_char)
        {
            return Ok(());
        }
        let mut address = libc::sockaddr {
            sa_family: libc::ARPHRD_ETHER,
            sa_data: [0; 14],
        };
        for (to, from) in address.sa_data.iter_mut().zip(mac) {
            *to = from as libc::c_char;
        }
        request.ifr_ifru.ifru_hwaddr = address;
        self.ask(libc::SIOCSIFHWADDR, &mut request, "setting the MAC")
    }

    /// Runs an ioctl on this interface. If it fails, the error names the step as `what`.
    fn ask(&self, command: c_ulong, request: &mut libc::ifreq, what: &str) -> io::Result<()> {
        ioctl_ifreq(self.control.as_raw_fd(), command, request)
            .map_err(doing(|| format!("{what} of {}", self.name)))
    }
}

impl AsRawFd for Tap {
    fn as_raw_fd(&self) -> RawFd {
        self.file.as_raw_fd()
    }
}

/// Parses a unicast MAC address like "02:00:00:00:01:01".
///
/// # Errors
/// A sentence that describes the problem. Multicast addresses and the all-zero address are refused.
pub fn parse_mac(text: &str) -> Result<Mac, String> {
    let octets: Vec<u8> = text
        .split(':')
        .filter(|part| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_hexdigit()))
        .filter_map(|part| u8::from_str_radix(part, 16).ok())
        .collect();
    let well_formed = text.split(':').count() == 6;
    let mac: Mac = match octets.try_into() {
        Ok(mac) if well_formed => mac,
        _ => {
            return Err(format!(
                "{text:?} is no MAC address: write six octets, like \"02:00:00:00:01:01\""
            ));
        }
    };
    if mac == [0; 6] || mac[0] & 1 != 0 {
        return Err(format!(
            "{text} cannot be an interface's MAC: it is zero or multicast"
        ));
    }
    Ok(mac)
}

/// Creates an ifreq for the interface `name`. All other fields are zero.
fn request(name: &str) -> io::Result<libc::ifreq> {
    let impossible = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if name.is_empty()
        || name.len() >= libc::IFNAMSIZ
        || name.starts_with('.')
        || name.contains(impossible)
        || name.contains('%')
    {
        let message =
            format!("{name:?} is no interface name: 1 to 15 bytes without spaces, '/', ':' or '%'");
        return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
    }
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

/// Returns an ifreq with the interface name and the flags of a queue.
fn queue_request(queue: RawFd) -> io::Result<libc::ifreq> {
    // SAFETY: ifreq is plain data, for which all zeros is a valid value.
    let mut found: libc::ifreq = unsafe { std::mem::zeroed() };
    ioctl_ifreq(queue, TUNGETIFF, &mut found)
        .map_err(doing(|| "asking for the interface of a queue".to_owned()))?;
    Ok(found)
}

fn set_nonblocking(file: RawFd) -> io::Result<()> {
    // SAFETY: F_GETFL and F_SETFL take no pointers.
    let flags = unsafe { libc::fcntl(file, libc::F_GETFL) };
    check(flags)?;
    // SAFETY: F_SETFL takes no pointers.
    check(unsafe { libc::fcntl(file, libc::F_SETFL, flags | libc::O_NONBLOCK) })
}

fn interface_index(control: &OwnedFd, name: &str) -> io::Result<u32> {
    let mut request = request(name)?;
    ioctl_ifreq(
        control.as_raw_fd(),
        libc::SIOCGIFINDEX as c_ulong,
        &mut request,
    )
    .map_err(doing(|| format!("asking for the index of {name}")))?;
    // SAFETY: SIOCGIFINDEX has filled this member of the union.
    let index = unsafe { request.ifr_ifru.ifru_ifindex };
    u32::try_from(index).map_err(io::Error::other)
}

/// Opens a socket for interface ioctls, in the calling thread's network namespace.
fn control_socket() -> io::Result<OwnedFd> {
    // SAFETY: socket takes no pointers; the result is checked before it is used.
    let raw = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    check(raw)?;
    // SAFETY: `raw` was just opened and has no other owner.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn ioctl_ifreq(fd: RawFd, command: c_ulong, request: &mut libc::ifreq) -> io::Result<()> {
    // SAFETY: each command used with this function reads or writes one ifreq. `request` lives during the call.
    check(unsafe { libc::ioctl(fd, command, std::ptr::from_mut(request)) })
}

fn ioctl_int(fd: RawFd, command: c_ulong, value: i32) -> io::Result<()> {
    // SAFETY: each command used with this function takes its argument by value.
    check(unsafe { libc::ioctl(fd, command, value) })
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Wraps an error in a [`DeviceError`], which adds the failed step. The errno is kept.
fn doing(context: impl Fn() -> String) -> impl Fn(io::Error) -> io::Error {
    move |error| {
        let number = error.raw_os_error().unwrap_or(libc::EIO);
        io::Error::new(
            error.kind(),
            DeviceError {
                context: context(),
                number,
            },
        )
    }
}

/// Error of an operation on an interface: the failed step, and the kernel's error.
#[derive(Debug, thiserror::Error)]
#[error("{context}: {}", io::Error::from_raw_os_error(*.number))]
pub struct DeviceError {
    context: String,
    /// The kernel's errno.
    pub number: i32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn macs_are_parsed_whole_or_refused() {
        assert_eq!(parse_mac("02:00:00:00:01:fF"), Ok([2, 0, 0, 0, 1, 255]));
        for wrong in [
            "",
            "02",
            "02:00:00:00:01",
            "02:00:00:00:01:01:01",
            "02:00:00:00:01:g1",
            "2:0:0:0:1:1",
            "+2:00:00:00:01:01",
        ] {
            assert!(
                parse_mac(wrong).is_err_and(|error| error.contains("no MAC address")),
                "{wrong}"
            );
        }
        for wrong in ["00:00:00:00:00:00", "01:00:5e:00:00:01"] {
            assert!(
                parse_mac(wrong).is_err_and(|error| error.contains("zero or multicast")),
                "{wrong}"
            );
        }
    }

    #[test]
    fn impossible_names_are_refused_before_the_kernel_is_asked() {
        for wrong in ["", "sixteen-bytes-ab", "a/b", "a b", "a:1", "tap%d", "."] {
            let error = Tap::create(wrong, 1500, [2; 6], false, None)
                .err()
                .map(|error| error.kind());
            assert_eq!(error, Some(io::ErrorKind::InvalidInput), "{wrong:?}");
        }
    }
}

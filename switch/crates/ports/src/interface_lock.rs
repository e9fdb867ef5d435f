// SPDX-License-Identifier: Apache-2.0
//! One switch or engine for each interface: a second one on it would process every packet a second time.
//!
//! The lock is an abstract Unix socket named after the interface's index. Such a name is of one network namespace, as
//! the interface is, and is free again when its process is gone, however it ended. Any user of the namespace may take a
//! name, so a holder counts only if it is of root or of this process's own user: nobody else can keep one from
//! starting.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;

/// An interface that is this process's until this is dropped.
#[derive(Debug)]
pub(crate) struct InterfaceLock {
    /// Nobody connects to it but who looks whose it is. None: another user has taken the name.
    _listener: Option<UnixListener>,
}

impl InterfaceLock {
    /// Takes an interface's lock.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`], with the other process's number, if a switch or engine has it.
    pub(crate) fn take(index: i32) -> io::Result<Self> {
        let name = format!("sluice-switch/interface/{index}");
        let address = SocketAddr::from_abstract_name(name)?;
        let listener = match UnixListener::bind_addr(&address) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if let Some(process) = holder(&address)? {
                    let problem =
                        format!("it belongs to another switch or engine, process {process}");
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
                }
                tracing::warn!(
                    ?address,
                    "the name that keeps other switches and engines away from the interface is taken by a user who has no right to it"
                );
                None
            }
            Err(error) => return Err(error),
        };
        Ok(Self {
            _listener: listener,
        })
    }
}

/// The process that has taken a name, if it may.
fn holder(address: &SocketAddr) -> io::Result<Option<i32>> {
    let Ok(stream) = UnixStream::connect_addr(address) else {
        // It does not listen, or is gone by now.
        return Ok(None);
    };
    let peer = socket_peercred(&stream)?;
    let entitled = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    Ok(entitled.then(|| peer.pid.as_raw_nonzero().get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No interface has such an index.
    const INDEX: i32 = i32::MAX - 7;

    #[test]
    fn an_interface_has_one_lock() {
        let lock = InterfaceLock::take(INDEX).unwrap();
        let error = InterfaceLock::take(INDEX).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let own = format!("process {}", std::process::id());
        assert!(error.to_string().ends_with(&own), "{error}");
        InterfaceLock::take(INDEX + 1).unwrap();
        drop(lock);
        InterfaceLock::take(INDEX).unwrap();
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Locks an interface for one switch or engine. A second switch or engine on the same interface would process every
//! packet again.
//!
//! The lock is an abstract Unix socket, named after the interface's index. Its name is local to the network
//! namespace, like the interface. The kernel frees the name when the process ends, for any reason. Any user of the
//! namespace can bind the name. To keep other users from blocking a switch, a holder counts only if it runs as root
//! or as this process's user.

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;

/// A lock on an interface, held until this is dropped.
#[derive(Debug)]
pub(crate) struct InterfaceLock {
    /// Listening socket. Other processes connect only to read the holder's credentials. `None` if another user has
    /// bound the name.
    _listener: Option<UnixListener>,
}

impl InterfaceLock {
    /// Takes the lock of an interface.
    ///
    /// # Errors
    /// [`io::ErrorKind::AddrInUse`] if a switch or engine has the lock. The error contains its process id.
    pub(crate) fn take(index: i32) -> io::Result<Self> {
        let name = format!("sluice-switch/interface/{index}");
        let address = SocketAddr::from_abstract_name(name)?;
        let listener = match UnixListener::bind_addr(&address) {
            Ok(listener) => Some(listener),
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if let Some(process) = holder(&address)? {
                    let problem = format!(
                        "the interface belongs to another switch or engine, process {process}"
                    );
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
                }
                tracing::warn!(
                    ?address,
                    "another user holds the name of the interface's lock, so the interface is not locked"
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

/// Returns the id of the process that holds a name, if the process counts as a holder.
fn holder(address: &SocketAddr) -> io::Result<Option<i32>> {
    let Ok(stream) = UnixStream::connect_addr(address) else {
        // The other socket does not listen, or has been closed meanwhile.
        return Ok(None);
    };
    let peer = socket_peercred(&stream)?;
    let entitled = peer.uid.is_root() || peer.uid == rustix::process::geteuid();
    Ok(entitled.then(|| peer.pid.as_raw_nonzero().get()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// No interface has this index.
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

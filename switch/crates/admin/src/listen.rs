// SPDX-License-Identifier: Apache-2.0
//! Listening, on a Unix socket or on loopback.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::Arc;
use std::{fmt, fs};

use sluice_device::Device;
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server as GrpcServer;
use tonic::transport::server::TcpIncoming;

use crate::find;
use crate::proto::admin_server::AdminServer;
use crate::service::{About, PortPolicy, Service};

/// Who may connect: the owner and the group.
const SOCKET_MODE: u32 = 0o660;
/// Who may see the sockets.
const DIRECTORY_MODE: u32 = 0o750;

/// Where a switch is administered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// On a Unix socket.
    Unix(PathBuf),
    /// On a loopback address.
    Loopback(SocketAddr),
}

impl Address {
    /// A socket of this process in the directory where [`find`] looks.
    pub fn default_socket() -> Self {
        Self::Unix(find::directory().join(format!("{}.sock", std::process::id())))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Loopback(address) => address.fmt(f),
        }
    }
}

impl FromStr for Address {
    type Err = String;

    /// `unix:PATH`, or `HOST:PORT` with a loopback address for host.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.trim_start_matches("//") {
                "" => Err("no path after `unix:`".to_owned()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address: SocketAddr = text
            .replace("localhost", "127.0.0.1")
            .parse()
            .map_err(|_| format!("{text:?} is neither unix:PATH nor ADDRESS:PORT"))?;
        if !address.ip().is_loopback() {
            let problem = "whoever connects may do everything, so only a loopback address will do";
            return Err(format!("{address}: {problem}"));
        }
        Ok(Self::Loopback(address))
    }
}

enum Listener {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// Removed when the switch ends.
struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            tracing::debug!(path = %self.0.display(), %error, "the socket was gone already");
        }
    }
}

/// A server that listens and does not yet serve.
pub struct Server {
    listener: Listener,
    service: Service,
}

impl Server {
    /// Listens. A socket that a dead switch left behind is replaced; one that is served is an error.
    pub async fn bind(
        address: &Address,
        device: Arc<Device>,
        about: About,
        ports: PortPolicy,
    ) -> io::Result<Self> {
        let listener = match address {
            Address::Unix(path) => bind_unix(path)?,
            Address::Loopback(address) => Listener::Tcp(TcpListener::bind(address).await?),
        };
        let service = Service {
            about,
            ports,
            device,
        };
        Ok(Self { listener, service })
    }

    /// Where it listens: `unix:PATH` or `ADDRESS:PORT`.
    pub fn address(&self) -> io::Result<String> {
        Ok(match &self.listener {
            Listener::Unix(_, file) => format!("unix:{}", file.0.display()),
            Listener::Tcp(listener) => listener.local_addr()?.to_string(),
        })
    }

    /// Serves until `stop` is ready.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let router = GrpcServer::builder().add_service(AdminServer::new(self.service));
        match self.listener {
            Listener::Unix(listener, _file) => {
                let incoming = UnixListenerStream::new(listener);
                router.serve_with_incoming_shutdown(incoming, stop).await
            }
            Listener::Tcp(listener) => {
                let incoming = TcpIncoming::from(listener).with_nodelay(Some(true));
                router.serve_with_incoming_shutdown(incoming, stop).await
            }
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<Listener> {
    if let Some(directory) = path.parent().filter(|directory| !directory.exists()) {
        let mut builder = fs::DirBuilder::new();
        builder
            .recursive(true)
            .mode(DIRECTORY_MODE)
            .create(directory)?;
    }
    make_room(path)?;
    let listener = UnixListener::bind(path)?;
    let file = SocketFile(path.to_owned());
    fs::set_permissions(path, fs::Permissions::from_mode(SOCKET_MODE))?;
    Ok(Listener::Unix(listener, file))
}

/// Removes a socket that nobody serves.
fn make_room(path: &Path) -> io::Result<()> {
    let kind = match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?.file_type(),
    };
    if !kind.is_socket() {
        let problem = format!("{} is there and is not a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, problem));
    }
    if find::is_served(path) {
        let problem = format!("{} is served by another switch", path.display());
        return Err(io::Error::new(io::ErrorKind::AddrInUse, problem));
    }
    fs::remove_file(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_sockets_and_loopback_will_do() {
        for (text, address) in [
            ("unix:/run/x.sock", Address::Unix("/run/x.sock".into())),
            ("unix:///run/x.sock", Address::Unix("/run/x.sock".into())),
            (
                "127.0.0.1:9560",
                Address::Loopback(([127, 0, 0, 1], 9560).into()),
            ),
            (
                "localhost:9560",
                Address::Loopback(([127, 0, 0, 1], 9560).into()),
            ),
        ] {
            assert_eq!(text.parse(), Ok(address));
        }
        assert!(
            "0.0.0.0:9560"
                .parse::<Address>()
                .unwrap_err()
                .contains("loopback")
        );
        assert!("192.0.2.1:9560".parse::<Address>().is_err());
        assert!("unix:".parse::<Address>().is_err());
        assert!("/run/x.sock".parse::<Address>().is_err());
    }

    #[tokio::test]
    async fn a_socket_is_for_owner_and_group_and_replaces_a_dead_one() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("new/x.sock");
        let Listener::Unix(dead, file) = bind_unix(&path).unwrap() else {
            panic!("not a Unix socket")
        };
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(
            (mode(&path), mode(path.parent().unwrap())),
            (SOCKET_MODE, DIRECTORY_MODE)
        );
        let refused = bind_unix(&path).err().unwrap();
        assert_eq!(refused.kind(), io::ErrorKind::AddrInUse);
        drop(dead);
        std::mem::forget(file);
        assert!(path.exists());
        drop(bind_unix(&path).unwrap());
        assert!(!path.exists(), "removed at the end");
        fs::write(&path, "precious").unwrap();
        assert!(bind_unix(&path).is_err());
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}

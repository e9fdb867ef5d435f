// SPDX-License-Identifier: Apache-2.0
//! Listens on a Unix socket or on loopback.
//!
//! Only the owner and the group of the Unix socket can open it (mode 0660). Clients of this socket may send all
//! requests. But any user of the host can connect to loopback. So clients on loopback may only send read requests that
//! cannot harm the switch.

use std::fmt;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;

use sluice_device::Device;
use sluice_unix_socket::{Access, SocketFile};
use tokio::net::{TcpListener, UnixListener};
use tokio_stream::wrappers::UnixListenerStream;
use tonic::transport::Server as GrpcServer;
use tonic::transport::server::TcpIncoming;

use crate::find;
use crate::proto::admin_server::AdminServer;
use crate::service::{About, PortPolicy, Rights, Service};

/// Limit in bytes for a request; all valid requests are small.
const MAX_REQUEST: usize = 64 << 10;
/// Limit for simultaneous requests on one connection.
const MAX_STREAMS: u32 = 16;

/// Address of the admin service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// A Unix socket.
    Unix(PathBuf),
    /// A loopback address, for read requests only.
    Loopback(SocketAddr),
}

impl Address {
    /// Returns the default socket of this process, in the directory that [`find`] searches.
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

    /// Parses `unix:PATH`, or `HOST:PORT` where the host is a loopback address.
    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return match path.trim_start_matches("//") {
                "" => Err("there is no path after `unix:`".to_owned()),
                path => Ok(Self::Unix(path.into())),
            };
        }
        let address: SocketAddr = text
            .replace("localhost", "127.0.0.1")
            .parse()
            .map_err(|_| format!("{text:?} is neither unix:PATH nor ADDRESS:PORT"))?;
        if !address.ip().is_loopback() {
            let problem =
                "this is not a loopback address, and every client that connects can send requests";
            return Err(format!("{address}: {problem}"));
        }
        Ok(Self::Loopback(address))
    }
}

enum Listener {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// A server that is bound to its address but does not serve yet.
pub struct Server {
    listener: Listener,
    service: Service,
}

impl Server {
    /// Binds and listens. Replaces a stale socket of a dead switch. Fails if another server uses the socket.
    pub async fn bind(
        address: &Address,
        device: Arc<Device>,
        about: About,
        ports: PortPolicy,
    ) -> io::Result<Self> {
        let listener = match address {
            Address::Unix(path) => {
                let (listener, file) = sluice_unix_socket::listen(path, Access::default())?;
                Listener::Unix(UnixListener::from_std(listener)?, file)
            }
            Address::Loopback(address) => Listener::Tcp(TcpListener::bind(address).await?),
        };
        let service = Service {
            about,
            ports,
            device,
            // Any user of this host can connect to loopback. So clients on loopback may only send harmless read
            // requests.
            rights: match listener {
                Listener::Unix(..) => Rights::All,
                Listener::Tcp(_) => Rights::Questions,
            },
            dry_running: Arc::default(),
            baselines: std::sync::Mutex::default(),
        };
        Ok(Self { listener, service })
    }

    /// Returns the address of the server: `unix:PATH` or `ADDRESS:PORT`.
    pub fn address(&self) -> io::Result<String> {
        Ok(match &self.listener {
            Listener::Unix(_, file) => format!("unix:{}", file.path().display()),
            Listener::Tcp(listener) => listener.local_addr()?.to_string(),
        })
    }

    /// Serves until `stop` is ready.
    pub async fn serve(
        self,
        stop: impl Future<Output = ()> + Send,
    ) -> Result<(), tonic::transport::Error> {
        let service = AdminServer::new(self.service).max_decoding_message_size(MAX_REQUEST);
        let router = GrpcServer::builder()
            .max_concurrent_streams(MAX_STREAMS)
            .add_service(service);
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
}

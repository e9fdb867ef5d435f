// SPDX-License-Identifier: Apache-2.0
//! Listens for P4Runtime on a Unix socket or on TCP, and numbers connections.
//!
//! Any client that reaches the server may become primary. Therefore file permissions restrict access to a Unix socket,
//! and an address other than loopback requires mutual TLS. Callers check the address with [`Listener::is_local`], and
//! then require TLS if necessary.

use std::io;
use std::net::{IpAddr, TcpListener, ToSocketAddrs};
use std::os::unix::net::UnixListener;
use std::path::PathBuf;
use std::pin::Pin;
use std::str::FromStr;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{fmt, net};

use sluice_unix_socket::{Access, SocketFile};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_stream::Stream;
use tonic::transport::server::Connected;

use crate::grpc::tls::Handshake;

/// Largest number of open connections. Further connections are closed at once.
pub const MAX_CONNECTIONS: usize = 256;

/// An address in text form.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    /// `unix:PATH`
    Unix(PathBuf),
    /// `HOST:PORT`
    Tcp(String),
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(path) = text.strip_prefix("unix:") else {
            return match text.rsplit_once(':') {
                Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                    Ok(Self::Tcp(text.to_owned()))
                }
                _ => Err(format!("{text:?} is neither unix:PATH nor HOST:PORT")),
            };
        };
        match path.strip_prefix("//").unwrap_or(path) {
            "" => Err("there is no path after `unix:`".to_owned()),
            path => Ok(Self::Unix(path.into())),
        }
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(address) => f.write_str(address),
        }
    }
}

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// A Unix socket, and the socket's file, which is removed at the end.
    Unix(UnixListener, SocketFile),
    /// A TCP socket.
    Tcp(TcpListener),
}

impl Listener {
    /// Binds an address and listens. `access` restricts the users who may open a Unix socket.
    ///
    /// # Errors
    /// Errors from the kernel, or something that is in the way at the path of a Unix socket.
    pub fn bind(address: &Address, access: Access) -> io::Result<Self> {
        match address {
            Address::Unix(path) => {
                let (listener, file) = sluice_unix_socket::listen(path, access)?;
                Ok(Self::Unix(listener, file))
            }
            Address::Tcp(address) => {
                let addresses: Vec<_> = address.to_socket_addrs()?.collect();
                let listener = TcpListener::bind(addresses.as_slice())?;
                listener.set_nonblocking(true)?;
                Ok(Self::Tcp(listener))
            }
        }
    }

    /// Returns the address of the socket: `unix:PATH` or `ADDRESS:PORT`.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn address(&self) -> io::Result<String> {
        Ok(match self {
            Self::Unix(_, file) => format!("unix:{}", file.path().display()),
            Self::Tcp(listener) => listener.local_addr()?.to_string(),
        })
    }

    /// Returns whether only this host can reach the socket.
    ///
    /// # Errors
    /// Errors from the kernel.
    pub fn is_local(&self) -> io::Result<bool> {
        Ok(match self {
            Self::Unix(..) => true,
            Self::Tcp(listener) => is_loopback(listener.local_addr()?),
        })
    }
}

fn is_loopback(address: net::SocketAddr) -> bool {
    match address.ip() {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip
            .to_ipv4_mapped()
            .map_or(ip.is_loopback(), |ip| ip.is_loopback()),
    }
}

/// A connection's number, unique for as long as the server runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionId(pub u64);

/// A client's connection.
pub(crate) struct Connection {
    id: ConnectionId,
    transport: Transport,
    handshake: Handshake,
    _permit: OwnedSemaphorePermit,
}

enum Transport {
    Unix(UnixStream),
    Tcp(TcpStream),
}

impl Connected for Connection {
    type ConnectInfo = ConnectionId;

    fn connect_info(&self) -> ConnectionId {
        self.id
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = match &mut self.transport {
            Transport::Unix(stream) => Pin::new(stream).poll_read(context, buffer),
            Transport::Tcp(stream) => Pin::new(stream).poll_read(context, buffer),
        };
        if buffer.filled().len() > before {
            self.handshake.heard();
        }
        read
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        if self.handshake.keeps(bytes, bytes.len()) {
            return Poll::Ready(Ok(bytes.len()));
        }
        match &mut self.transport {
            Transport::Unix(stream) => Pin::new(stream).poll_write(context, bytes),
            Transport::Tcp(stream) => Pin::new(stream).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let length = slices.iter().map(|slice| slice.len()).sum();
        let first = slices.first().map_or(&[][..], |slice| slice);
        if self.handshake.keeps(first, length) {
            return Poll::Ready(Ok(length));
        }
        match &mut self.transport {
            Transport::Unix(stream) => Pin::new(stream).poll_write_vectored(context, slices),
            Transport::Tcp(stream) => Pin::new(stream).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Unix(stream) => Pin::new(stream).poll_flush(context),
            Transport::Tcp(stream) => Pin::new(stream).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.transport {
            Transport::Unix(stream) => Pin::new(stream).poll_shutdown(context),
            Transport::Tcp(stream) => Pin::new(stream).poll_shutdown(context),
        }
    }
}

/// The stream of accepted connections.
pub(crate) struct Incoming {
    accept: Accept,
    next: u64,
    room: Arc<Semaphore>,
    /// Keeps the socket's file as long as connections are accepted.
    _file: Option<SocketFile>,
}

enum Accept {
    Unix(tokio::net::UnixListener),
    Tcp(tokio::net::TcpListener),
}

impl Incoming {
    /// Starts accepting.
    pub(crate) fn new(listener: Listener) -> io::Result<Self> {
        let (accept, file) = match listener {
            Listener::Unix(listener, file) => {
                let listener = tokio::net::UnixListener::from_std(listener)?;
                (Accept::Unix(listener), Some(file))
            }
            Listener::Tcp(listener) => {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                (Accept::Tcp(listener), None)
            }
        };
        Ok(Self {
            accept,
            next: 1,
            room: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            _file: file,
        })
    }

    fn poll_transport(&mut self, context: &mut Context<'_>) -> Poll<io::Result<Transport>> {
        match &self.accept {
            Accept::Unix(listener) => listener
                .poll_accept(context)
                .map_ok(|(stream, _)| Transport::Unix(stream)),
            Accept::Tcp(listener) => listener.poll_accept(context).map_ok(|(stream, _)| {
                // TCP_NODELAY only shortens delays. The connection works without it, so a failure is ignored.
                let _ = stream.set_nodelay(true);
                Transport::Tcp(stream)
            }),
        }
    }
}

impl Stream for Incoming {
    type Item = io::Result<Connection>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        loop {
            let transport = match self.poll_transport(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(transport)) => transport,
            };
            let Ok(permit) = Arc::clone(&self.room).try_acquire_owned() else {
                tracing::warn!(MAX_CONNECTIONS, "too many connections: one is closed");
                continue;
            };
            let id = ConnectionId(self.next);
            self.next += 1;
            return Poll::Ready(Some(Ok(Connection {
                id,
                transport,
                handshake: Handshake::default(),
                _permit: permit,
            })));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_paths_or_host_and_port() {
        let unix = Address::Unix("/run/x.sock".into());
        assert_eq!("unix:/run/x.sock".parse(), Ok(unix.clone()));
        assert_eq!("unix:///run/x.sock".parse(), Ok(unix));
        for tcp in ["127.0.0.1:0", "[::1]:9559", "localhost:9559"] {
            assert_eq!(tcp.parse(), Ok(Address::Tcp(tcp.into())));
        }
        for wrong in ["unix:", "/run/x.sock", "localhost", ":9559", "host:99999"] {
            assert!(wrong.parse::<Address>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn loopback_is_of_either_version() {
        for (address, loopback) in [
            ("127.0.0.1:1", true),
            ("127.9.9.9:1", true),
            ("[::1]:1", true),
            ("[::ffff:127.0.0.1]:1", true),
            ("0.0.0.0:1", false),
            ("[::]:1", false),
            ("192.0.2.1:1", false),
            ("[::ffff:192.0.2.1]:1", false),
        ] {
            assert_eq!(is_loopback(address.parse().unwrap()), loopback, "{address}");
        }
    }
}

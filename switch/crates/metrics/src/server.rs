// SPDX-License-Identifier: Apache-2.0
//! Serves a scraper over HTTP/1.1. Answers GET and HEAD for one path, and one request on each connection.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::TEXT_FORMAT;
use sluice_admin::Address;
use sluice_unix_socket::{Access, SocketFile};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::{Mutex, Semaphore, oneshot};

use crate::source::Source;

const PATH: &str = "/metrics";
/// Limit for simultaneous connections. Further clients wait until a connection ends.
const CONNECTIONS: usize = 8;
/// Limit in bytes for the head of a request.
const MAX_HEAD: usize = 16 << 10;
/// Time limit for a client to send its request and read the response.
const PATIENCE: Duration = Duration::from_secs(10);
/// Minimum interval between two scrapes, because each scrape interrupts all workers.
const BETWEEN_SCRAPES: Duration = Duration::from_millis(20);

enum Listener {
    Unix(UnixListener, SocketFile),
    Tcp(TcpListener),
}

/// A server that is bound to its address but does not serve yet.
pub struct Server {
    listener: Listener,
    scraper: Arc<Scraper>,
}

impl Server {
    /// Binds and listens. Replaces a stale socket of a dead switch. Fails if another server uses the socket.
    ///
    /// # Errors
    /// The kernel's error, if the server cannot listen on the address.
    pub async fn bind(address: &Address, source: Source) -> io::Result<Self> {
        let listener = match address {
            Address::Unix(path) => {
                let (listener, file) = sluice_unix_socket::listen(path, Access::default())?;
                Listener::Unix(UnixListener::from_std(listener)?, file)
            }
            Address::Loopback(address) => Listener::Tcp(TcpListener::bind(address).await?),
        };
        let scraper = Arc::new(Scraper {
            source,
            one: Arc::default(),
        });
        Ok(Self { listener, scraper })
    }

    /// Returns the address of the server, as `unix:PATH` or `ADDRESS:PORT`.
    ///
    /// # Errors
    /// Fails if the operating system cannot return the socket's address.
    pub fn address(&self) -> io::Result<String> {
        Ok(match &self.listener {
            Listener::Unix(_, file) => format!("unix:{}", file.path().display()),
            Listener::Tcp(listener) => listener.local_addr()?.to_string(),
        })
    }

    /// Serves until `stop` is ready.
    pub async fn serve(self, stop: impl Future<Output = ()> + Send) {
        let Self { listener, scraper } = self;
        let accept = async {
            let room = Arc::new(Semaphore::new(CONNECTIONS));
            loop {
                // This error cannot occur, because the semaphore is never closed.
                let Ok(permit) = Arc::clone(&room).acquire_owned().await else {
                    return;
                };
                let scraper = Arc::clone(&scraper);
                let accepted = match &listener {
                    Listener::Unix(listener, _) => {
                        let accepted = listener.accept().await;
                        accepted.map(|(stream, _)| tokio::spawn(talk(stream, scraper, permit)))
                    }
                    Listener::Tcp(listener) => {
                        let accepted = listener.accept().await;
                        accepted.map(|(stream, _)| tokio::spawn(talk(stream, scraper, permit)))
                    }
                };
                if let Err(error) = accepted {
                    tracing::warn!(%error, "cannot accept a client of the metrics");
                    // Accepting fails if there are no free descriptors. Without a pause, this loop would spin.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        };
        tokio::select! {
            () = accept => {}
            () = stop => {}
        }
    }
}

/// Serves one connection and its only request. Dropping `_room` at the end admits the next connection.
async fn talk(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    scraper: Arc<Scraper>,
    _room: tokio::sync::OwnedSemaphorePermit,
) {
    let service = service_fn(move |request| {
        let scraper = Arc::clone(&scraper);
        async move { Ok::<_, Infallible>(scraper.answer(&request).await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .max_buf_size(MAX_HEAD)
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), service);
    match tokio::time::timeout(PATIENCE, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(%error, "the connection of a client of the metrics failed")
        }
        Err(_) => tracing::debug!("a client of the metrics is too slow"),
    }
}

struct Scraper {
    source: Source,
    /// Lock held while metrics are collected, and for [`BETWEEN_SCRAPES`] afterwards.
    one: Arc<Mutex<()>>,
}

impl Scraper {
    async fn answer(&self, request: &Request<Incoming>) -> Response<Full<Bytes>> {
        if request.uri().path() != PATH {
            let text = format!("there is {PATH} here, and nothing else\n");
            return plain(StatusCode::NOT_FOUND, text);
        }
        if request.method() != Method::GET && request.method() != Method::HEAD {
            let mut refusal = plain(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n".into());
            let methods = HeaderValue::from_static("GET, HEAD");
            refusal.headers_mut().insert(ALLOW, methods);
            return refusal;
        }
        match self.made().await {
            Ok(text) => {
                let mut response = plain(StatusCode::OK, text);
                let form = HeaderValue::from_static(TEXT_FORMAT);
                response.headers_mut().insert(CONTENT_TYPE, form);
                response
            }
            Err(error) => {
                tracing::error!(%error, "metrics could not be made");
                let text = "metrics could not be made: the log has the cause\n";
                plain(StatusCode::INTERNAL_SERVER_ERROR, text.into())
            }
        }
    }

    /// Returns the metrics as text. Another thread collects the metrics, because this may block.
    async fn made(&self) -> anyhow::Result<String> {
        let turn = Arc::clone(&self.one).lock_owned().await;
        let source = self.source.clone();
        let (answer, text) = oneshot::channel();
        // Spawned as a separate task. So if the client disconnects, the scrape is not cancelled, and the lock is not
        // released early.
        tokio::spawn(async move {
            let _ = answer.send(tokio::task::spawn_blocking(move || source.text()).await);
            tokio::time::sleep(BETWEEN_SCRAPES).await;
            drop(turn);
        });
        Ok(text.await???)
    }
}

fn plain(status: StatusCode, text: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let form = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, form);
    response
}

// SPDX-License-Identifier: Apache-2.0
//! Runs the FPM server, which accepts zebra's connections and queues whole frames for Python.
//!
//! Each read of a socket wakes Python once, no matter how many routes it returns. So while a whole
//! table is transferred, the server pauses between reads ([`Pace`]). This makes the reads fewer and
//! larger.
//!
//! The server drops no frame. All queued frames together may hold a limited number of bytes. When
//! this budget is used up, the server stops reading until Python has fetched frames. zebra's send
//! buffer then fills, and TCP makes zebra wait.
//!
//! A connection holds one of [`MAX_CONNECTIONS`] slots until Python has fetched its `Closed` event.
//! If no slot is free, the server refuses new connections and counts the refusals.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};

use super::framing::Framer;
use super::pace::Pace;
use crate::mailbox::{Contents, Mailbox, lock};
use crate::runtime;

/// Limit of concurrent connections. A router has only one zebra, but old connections may remain
/// when zebra reconnects.
pub const MAX_CONNECTIONS: usize = 16;
/// Number of bytes requested by one read of a socket.
const READ_SIZE: usize = 256 * 1024;
/// Pause before the next accept after a failed one.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);
/// Pause before the next read while a table arrives in pieces smaller than [`READ_SIZE`].
const PAUSE: Duration = Duration::from_millis(40);
/// Memory in bytes that a queued frame takes in addition to its payload.
const FRAME_OVERHEAD: usize = 64;

/// An event of a connection. The events of one connection are in order.
#[derive(Debug)]
pub struct ConnectionEvent {
    /// Number of the connection, never reused.
    pub connection: u64,
    /// Kind of the event.
    pub kind: EventKind,
    /// Share of the byte budget that the event's bytes hold, or the slot of the connection. Released
    /// when Python has fetched the event.
    _permit: Option<OwnedSemaphorePermit>,
}

/// The kinds of [`ConnectionEvent`].
#[derive(Debug)]
pub enum EventKind {
    /// A peer connected.
    Open(SocketAddr),
    /// Payloads of whole frames.
    Frames(Vec<Bytes>),
    /// A framing error. The event `Closed` follows.
    Error(String),
    /// The connection ended for this reason. Last event of the connection.
    Closed(String),
}

#[derive(Debug, Default)]
struct Inbox(VecDeque<ConnectionEvent>);

impl Contents for Inbox {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Counters of a server. The values never decrease.
#[derive(Debug, Default)]
pub struct Counters {
    /// Connections accepted.
    pub connections: AtomicU64,
    /// Connections refused because [`MAX_CONNECTIONS`] were open.
    pub connections_refused: AtomicU64,
    /// Whole frames received.
    pub frames: AtomicU64,
    /// Bytes received.
    pub bytes: AtomicU64,
    /// Connections ended by framing errors.
    pub framing_errors: AtomicU64,
    /// Number of times that a connection stopped reading until Python had fetched frames.
    pub reads_paused: AtomicU64,
}

#[derive(Debug)]
struct Shared {
    mailbox: Mailbox<Inbox>,
    counters: Counters,
    budget: Arc<Semaphore>,
    budget_size: u32,
    slots: Arc<Semaphore>,
    disconnects: Mutex<HashMap<u64, oneshot::Sender<String>>>,
}

/// A listening FPM server. Dropping the server closes its socket and all connections.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    address: SocketAddr,
    /// Set to true when the server must stop.
    stop: watch::Sender<bool>,
}

impl Server {
    /// Listens on `address` (for example "127.0.0.1:2620"). Queues at most `queue_bytes` for Python.
    ///
    /// # Errors
    /// `InvalidInput` for an invalid address, or the kernel's error if listening fails.
    pub fn listen(address: &str, queue_bytes: u32) -> io::Result<Self> {
        let address: SocketAddr = address.parse().map_err(|_| {
            let message = format!("{address:?} is no listen address: write IP:PORT, like \"127.0.0.1:2620\" or \"[::1]:2620\"");
            io::Error::new(io::ErrorKind::InvalidInput, message)
        })?;
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            mailbox: Mailbox::new(Inbox::default())?,
            counters: Counters::default(),
            budget: Arc::new(Semaphore::new(queue_bytes as usize)),
            budget_size: queue_bytes,
            slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)),
            disconnects: Mutex::default(),
        });
        let (stop, stopped) = watch::channel(false);
        let handle = runtime::handle()?;
        let listener = {
            let _context = handle.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        handle.spawn(accept(listener, Arc::clone(&shared), stopped));
        Ok(Self {
            shared,
            address,
            stop,
        })
    }

    /// Returns the port of the server.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Returns a descriptor that is readable while [`Self::poll`] has events.
    pub fn descriptor(&self) -> RawFd {
        self.shared.mailbox.descriptor()
    }

    /// Removes and returns at most `max_events` events.
    pub fn poll(&self, max_events: usize) -> Vec<ConnectionEvent> {
        self.shared.mailbox.update(|inbox| {
            let count = max_events.min(inbox.0.len());
            inbox.0.drain(..count).collect()
        })
    }

    /// Closes a connection if it is still open.
    pub fn disconnect(&self, connection: u64, reason: String) {
        if let Some(sender) = lock(&self.shared.disconnects).remove(&connection) {
            // Sending fails if the connection has ended meanwhile. Then nothing needs to be closed.
            drop(sender.send(reason));
        }
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Stops listening and closes every connection.
    pub fn close(&self) {
        self.stop.send_replace(true);
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    for connection in 1_u64.. {
        let accepted = tokio::select! {
            _ = stopped.wait_for(|stopped| *stopped) => return,
            accepted = listener.accept() => accepted,
        };
        // Accepting fails if the peer has already closed the connection, or if no descriptor is
        // available. Without a free descriptor, the connection stays in the backlog, so an immediate
        // retry would be a busy loop.
        let Ok((stream, peer)) = accepted else {
            tokio::time::sleep(ACCEPT_RETRY).await;
            continue;
        };
        let Ok(slot) = Arc::clone(&shared.slots).try_acquire_owned() else {
            shared.counters.connections_refused.fetch_add(1, Relaxed);
            continue;
        };
        // Order: connections are counted before their task starts. So `connections` is never less
        // than the number of connections that Python has seen.
        shared.counters.connections.fetch_add(1, Relaxed);
        tokio::spawn(serve(
            connection,
            stream,
            peer,
            slot,
            Arc::clone(&shared),
            stopped.clone(),
        ));
    }
}

/// Serves one connection until its end.
async fn serve(
    connection: u64,
    stream: TcpStream,
    peer: SocketAddr,
    slot: OwnedSemaphorePermit,
    shared: Arc<Shared>,
    mut stopped: watch::Receiver<bool>,
) {
    let (sender, disconnected) = oneshot::channel();
    lock(&shared.disconnects).insert(connection, sender);
    shared.post(connection, EventKind::Open(peer), None);
    let reason = tokio::select! {
        _ = stopped.wait_for(|stopped| *stopped) => "the server was closed".to_owned(),
        Ok(reason) = disconnected => reason,
        reason = receive(connection, stream, &shared) => reason,
    };
    lock(&shared.disconnects).remove(&connection);
    shared.post(connection, EventKind::Closed(reason), Some(slot));
}

/// Reads frames until the connection ends. Returns the reason for its end.
async fn receive(connection: u64, mut stream: TcpStream, shared: &Shared) -> String {
    let mut framer = Framer::default();
    let mut pace = Pace::default();
    loop {
        framer.buffer().reserve(READ_SIZE);
        let received = match stream.read_buf(framer.buffer()).await {
            Ok(received) => received,
            Err(error) => return format!("reading failed: {error}"),
        };
        shared.counters.bytes.fetch_add(received as u64, Relaxed);
        let mut frames = Vec::new();
        let result = framer.frames(&mut frames);
        if !frames.is_empty() {
            shared.post_frames(connection, frames).await;
        }
        let result = if received == 0 {
            result.and_then(|()| framer.finish())
        } else {
            result
        };
        if let Err(error) = result {
            shared.counters.framing_errors.fetch_add(1, Relaxed);
            shared.post(connection, EventKind::Error(error.to_string()), None);
            return "bad framing".to_owned();
        }
        if received == 0 {
            return "the peer closed the connection".to_owned();
        }
        let is_bulk = pace.is_bulk(received, Instant::now());
        if is_bulk && received < READ_SIZE {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

impl Shared {
    fn post(&self, connection: u64, kind: EventKind, permit: Option<OwnedSemaphorePermit>) {
        let event = ConnectionEvent {
            connection,
            kind,
            _permit: permit,
        };
        self.mailbox.update(|inbox| inbox.0.push_back(event));
    }

    /// Waits until the budget has room, then queues frames for Python.
    async fn post_frames(&self, connection: u64, frames: Vec<Bytes>) {
        let size: usize = frames
            .iter()
            .map(|frame| frame.len() + FRAME_OVERHEAD)
            .sum();
        // A batch larger than the whole budget takes all of it, so this waits until the queue is
        // empty.
        let size = u32::try_from(size)
            .unwrap_or(u32::MAX)
            .min(self.budget_size);
        let budget = Arc::clone(&self.budget);
        let permit = match Arc::clone(&budget).try_acquire_many_owned(size) {
            Ok(permit) => Some(permit),
            Err(_) => {
                self.counters.reads_paused.fetch_add(1, Relaxed);
                budget.acquire_many_owned(size).await.ok()
            }
        };
        self.counters.frames.fetch_add(frames.len() as u64, Relaxed);
        self.post(connection, EventKind::Frames(frames), permit);
    }
}

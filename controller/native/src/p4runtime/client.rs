// SPDX-License-Identifier: Apache-2.0
//! Provides the handle through which Python uses a session. The handle checks arguments, queues requests, and
//! returns the events of the inbox.

use std::io;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc::{self, Sender, UnboundedSender, error::TrySendError};
use tokio::sync::{oneshot, watch};

use super::dry_run;
use super::inbox::{Counters, Event, Inbox, Refused};
use super::inlet::Inlet;
use super::outlet::{Outlet, PacketOut};
use super::packet::{Layout, LayoutError};
use super::role::Role;
use super::session::{self, Call, Method, SessionChannels};
use super::shared::Shared;
use super::stream::{Outgoing, arbitration};
use super::target::{self, Tls};
use crate::fast_path::FastPath;
use crate::mailbox::{Mailbox, lock};
use crate::punts::PuntQueue;
use crate::runtime;
use std::sync::Mutex;

/// Limit of control messages (arbitration, digest acknowledgements) queued for the switch.
const CONTROL_LIMIT: usize = 256;

/// Settings of a session.
#[derive(Clone, Debug)]
pub struct Options {
    /// Address of the P4Runtime server: "host:port" or "unix:path".
    pub address: String,
    /// Mutual TLS. `None` for a Unix socket, or for TCP without TLS.
    pub tls: Option<Tls>,
    /// Device id. Must not be 0.
    pub device_id: u64,
    /// Election id (high, low). Must not be (0, 0).
    pub election_id: (u64, u64),
    /// Role of the client; `None` for the default role.
    pub role: Option<Role>,
    /// Time limit for an answer of the switch.
    pub request_timeout: Duration,
    /// Limit of packet-ins queued for Python.
    pub packet_in_limit: usize,
    /// Limit of packet-outs queued for the switch.
    pub packet_out_limit: usize,
    /// Limit of outstanding requests, which are requests whose answer Python has not polled yet.
    pub request_limit: usize,
}

/// Reasons to refuse a call. A refused call has no effect.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// An invalid argument.
    #[error("{0}")]
    Argument(String),
    /// The packet metadata do not fit the layout.
    #[error(transparent)]
    Metadata(#[from] LayoutError),
    /// A packet-out was sent before the metadata layout was set.
    #[error("packet metadata is not known yet: call set_packet_metadata() first")]
    NoLayout,
    /// The session has ended.
    #[error("the P4Runtime session with {0} has ended: make a new P4RuntimeClient")]
    Closed(String),
    /// Too many requests are outstanding.
    #[error("{0} are under way: poll() first")]
    Busy(&'static str),
    /// The kernel provides no thread or descriptor for the session.
    #[error(transparent)]
    System(#[from] io::Error),
}

/// A session with a switch. The session ends when this value is dropped.
#[derive(Debug)]
pub struct Client {
    options: Options,
    shared: Arc<Shared>,
    ordered: UnboundedSender<Call>,
    concurrent: UnboundedSender<Call>,
    control: Sender<Bytes>,
    packets: Sender<PacketOut>,
    packet_out: Mutex<Option<Layout>>,
    stop: watch::Sender<bool>,
}

impl Client {
    /// Starts a session. The session connects and arbitrates in the background. Once the metadata layout is set,
    /// packets pass through `fast_path`. Packets that Python must handle go to `punts`.
    ///
    /// # Errors
    /// An invalid argument, or the kernel's error if no thread or descriptor is available.
    pub fn start(
        options: Options,
        fast_path: Option<Arc<FastPath>>,
        punts: Option<Arc<PuntQueue>>,
    ) -> Result<Self, ClientError> {
        check(&options)?;
        let endpoint = target::endpoint(&options.address, options.tls.as_ref())
            .map_err(ClientError::Argument)?;
        let inbox = Inbox::new(options.packet_in_limit, options.request_limit);
        let mailbox = Mailbox::new(inbox)?;
        let shared = Arc::new(Shared::new(
            options.address.clone(),
            options.request_timeout,
            mailbox,
            fast_path.map(|path| Inlet::new(path, punts)),
        ));
        // These channels need no limit, because the inbox limits the number of outstanding requests.
        let (ordered, ordered_calls) = mpsc::unbounded_channel();
        let (concurrent, concurrent_calls) = mpsc::unbounded_channel();
        let (control, control_messages) = mpsc::channel(CONTROL_LIMIT);
        let (packets, packet_messages) = mpsc::channel(options.packet_out_limit);
        let (stop, stopped) = watch::channel(false);
        let (session_end, ended) = oneshot::channel();
        let work = SessionChannels {
            endpoint,
            ordered: ordered_calls,
            concurrent: concurrent_calls,
            outgoing: Outgoing {
                control: control_messages,
                packets: packet_messages,
                session_end: ended,
            },
            session_end,
        };
        let election_id = options.election_id;
        let client = Self {
            options,
            shared: Arc::clone(&shared),
            ordered,
            concurrent,
            control,
            packets,
            packet_out: Mutex::default(),
            stop,
        };
        client.arbitrate(election_id)?;
        runtime::handle()?.spawn(session::run(shared, work, stopped));
        Ok(client)
    }

    /// Returns a descriptor that is readable while [`Self::poll`] has events.
    pub fn descriptor(&self) -> RawFd {
        self.shared.mailbox.descriptor()
    }

    /// Removes and returns at most `max_events` events; each packet-in counts as one.
    pub fn poll(&self, max_events: usize) -> Vec<Event> {
        self.shared.mailbox.update(|inbox| inbox.poll(max_events))
    }

    /// Sets the metadata fields of packet-ins and packet-outs. Starts the fast path.
    pub fn set_packet_metadata(&self, packet_in: Layout, packet_out: Layout) {
        self.shared
            .mailbox
            .update(|inbox| inbox.set_layout(packet_in.clone()));
        *lock(&self.packet_out) = Some(packet_out.clone());
        if let Some(fast_path) = &self.shared.fast_path {
            let outlet = Outlet {
                layout: packet_out,
                packets: self.packets.clone(),
                session: Arc::downgrade(&self.shared),
            };
            fast_path.open(packet_in, Arc::new(outlet));
        }
    }

    /// Returns the metadata fields of packet-outs, in order.
    ///
    /// # Errors
    /// [`ClientError::NoLayout`] before [`Self::set_packet_metadata`].
    pub fn packet_out_layout(&self) -> Result<Layout, ClientError> {
        lock(&self.packet_out).clone().ok_or(ClientError::NoLayout)
    }

    /// Queues packet-outs that were encoded with [`Self::packet_out_layout`]. Returns how many of them had room
    /// in the queue.
    ///
    /// # Errors
    /// [`ClientError::Closed`].
    pub fn packet_out(&self, messages: Vec<Bytes>) -> Result<usize, ClientError> {
        self.check_open()?;
        let given = messages.len();
        let mut queued = 0;
        for message in messages {
            let packet = PacketOut {
                message,
                _waiting: None,
            };
            match self.packets.try_send(packet) {
                Ok(()) => queued += 1,
                Err(TrySendError::Full(_)) => break,
                Err(TrySendError::Closed(_)) => return Err(self.closed()),
            }
        }
        self.counters().packet_out.fetch_add(queued as u64, Relaxed);
        self.counters()
            .packet_out_dropped
            .fetch_add((given - queued) as u64, Relaxed);
        Ok(queued)
    }

    /// Sends a serialized WriteRequest. Each request is sent after the previous request was
    /// answered.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn write(&self, token: u64, request: Bytes) -> Result<(), ClientError> {
        self.call(token, Method::Write, request)
    }

    /// Sends a serialized SetForwardingPipelineConfigRequest. Writes and these requests are sent in
    /// the order of the calls.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn set_pipeline(&self, token: u64, request: Bytes) -> Result<(), ClientError> {
        self.call(token, Method::SetPipeline, request)
    }

    /// Sends a serialized GetForwardingPipelineConfigRequest.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn get_pipeline(&self, token: u64, request: Bytes) -> Result<(), ClientError> {
        self.call(token, Method::GetPipeline, request)
    }

    /// Requests the switch's capabilities.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn capabilities(&self, token: u64) -> Result<(), ClientError> {
        self.call(token, Method::Capabilities, Bytes::new())
    }

    /// Asks sluice-switch for its ports. Other targets answer UNIMPLEMENTED.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn ports(&self, token: u64) -> Result<(), ClientError> {
        self.call(token, Method::Ports, Bytes::new())
    }

    /// Asks sluice-switch for a dry run of a packet that arrives on a port. Other targets answer
    /// UNIMPLEMENTED.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn dry_run(&self, token: u64, port: u32, packet: &[u8]) -> Result<(), ClientError> {
        let request = dry_run::encode(port, packet);
        self.call(token, Method::DryRun, request)
    }

    /// Sends a serialized ReadRequest.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn read(&self, token: u64, request: Bytes) -> Result<(), ClientError> {
        self.call(token, Method::Read, request)
    }

    /// Sends an arbitration request with a new election id.
    ///
    /// # Errors
    /// An election id of zero, [`ClientError::Closed`], [`ClientError::Busy`].
    pub fn arbitrate(&self, election_id: (u64, u64)) -> Result<(), ClientError> {
        check_election_id(election_id)?;
        self.send(arbitration(
            self.options.device_id,
            election_id,
            self.options.role.as_ref(),
        ))
    }

    /// Sends a serialized StreamMessageRequest, ahead of queued packet-outs.
    ///
    /// # Errors
    /// [`ClientError::Closed`] and [`ClientError::Busy`].
    pub fn send(&self, message: Bytes) -> Result<(), ClientError> {
        self.check_open()?;
        self.control.try_send(message).map_err(|error| match error {
            TrySendError::Full(_) => ClientError::Busy("too many stream messages"),
            TrySendError::Closed(_) => self.closed(),
        })
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Returns the number of requests whose answer Python has not polled yet.
    pub fn requests_pending(&self) -> usize {
        self.shared.mailbox.update(|inbox| inbox.outstanding())
    }

    /// Ends the session. The event `Closed` follows.
    pub fn close(&self) {
        self.shared.end();
        self.stop.send_replace(true);
    }

    fn call(&self, token: u64, method: Method, message: Bytes) -> Result<(), ClientError> {
        if *self.stop.borrow() {
            return Err(self.closed());
        }
        let queue = if method.is_ordered() {
            &self.ordered
        } else {
            &self.concurrent
        };
        // Order: the lock is held while a request is numbered and queued, so that requests are sent in the order
        // of their numbers.
        let refused = self.shared.mailbox.update(|inbox| {
            let number = inbox.register(token, method.kind())?;
            // The receiver is gone if the session is ending. When the session ends, it answers all registered
            // requests.
            drop(queue.send(Call {
                number,
                method,
                message,
            }));
            Ok(())
        });
        refused.map_err(|refused| match refused {
            Refused::Closed => self.closed(),
            Refused::Busy => ClientError::Busy("too many requests"),
        })
    }

    /// Returns an error if the session has ended. The queues do not show this in time, because they close only
    /// when the connection is dropped.
    fn check_open(&self) -> Result<(), ClientError> {
        let ended = *self.stop.borrow() || self.shared.mailbox.update(|inbox| inbox.is_closed());
        if ended { Err(self.closed()) } else { Ok(()) }
    }

    fn closed(&self) -> ClientError {
        ClientError::Closed(self.options.address.clone())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        self.close();
    }
}

fn check(options: &Options) -> Result<(), ClientError> {
    let refuse = |message: String| Err(ClientError::Argument(message));
    if options.device_id == 0 {
        return refuse("device id 0 means none in P4Runtime: use 1 or more".to_owned());
    }
    if options.packet_in_limit == 0 || options.packet_out_limit == 0 || options.request_limit == 0 {
        return refuse("a queue limit of 0 holds nothing: use 1 or more".to_owned());
    }
    if options.request_timeout.is_zero() {
        return refuse("with a request timeout of 0 every request fails: use more".to_owned());
    }
    check_election_id(options.election_id)
}

fn check_election_id(election_id: (u64, u64)) -> Result<(), ClientError> {
    if election_id == (0, 0) {
        let message = "election id (0, 0) can never be primary: use a larger one";
        return Err(ClientError::Argument(message.to_owned()));
    }
    Ok(())
}

// SPDX-License-Identifier: Apache-2.0
//! Holds the streams of all controllers. Knows the primaries, and queues for each client the messages to send.
//!
//! Every stream has two bounded queues. The control queue holds arbitration messages; if it is full, the server
//! disconnects the client. The event queue holds packet-ins, digests, idle notifications and stream errors; if it is
//! full, events are dropped. Stream errors may contain data from the client, so only a few of them may wait. Thus a
//! slow client occupies two queues and delays no other client.
//!
//! The packet path takes no lock: it reads the primaries from a list that is swapped atomically. A packet-in is
//! encoded only when the client's stream takes it from the queue.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{SystemTime, UNIX_EPOCH};

use arc_swap::{ArcSwap, ArcSwapOption};
use bytes::Bytes;
use parking_lot::Mutex;
use sluice_device::Handler;
use sluice_program::{DigestId, TableId};
use sluice_tables::Entry;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_stream::Stream;
use tonic::Status;

use crate::entity::requested::RequestedFields;
use crate::pipeline::Pipeline;
use crate::proto::v1::stream_message_response::Update;
use crate::proto::v1::{
    IdleTimeoutNotification, MasterArbitrationUpdate, PacketIn, StreamError, StreamMessageResponse,
    TableEntry, Uint128,
};
use crate::role::Rights;
use crate::stream::arbitration::{Arbiter, ControllerId, DEFAULT_ROLE, Notification, Takeover};
use crate::stream::moderation::Moderation;
pub use crate::stream::packets::Response;

const CONTROL_QUEUE: usize = 32;
/// Largest number of events that wait for one client.
pub const EVENT_QUEUE: usize = 2048;
const DIGEST_QUEUE: usize = 4096;

/// Largest number of stream errors that wait for one client.
const ERRORS: usize = 32;

/// Largest number of open streams, with or without an arbitration message.
pub const MAX_STREAMS: usize = 128;

/// Number of a transport connection. `None` if there is no connection, or if requests on any connection are accepted.
pub type ConnectionNumber = Option<u64>;

/// An item in the event queue of a stream.
enum Event {
    /// A packet-in with its controller header, its pipeline, and the rights of the role that receives it.
    Packet(Arc<Pipeline>, Bytes, Arc<Rights>),
    Message(Update),
    Error(
        Box<StreamError>,
        #[expect(dead_code, reason = "held")] OwnedSemaphorePermit,
    ),
}

/// The sending ends of a stream's queues.
#[derive(Clone)]
struct Client {
    control: mpsc::Sender<Result<MasterArbitrationUpdate, Status>>,
    events: mpsc::Sender<Event>,
    errors: Arc<Semaphore>,
    /// Connection that carries the client's stream.
    connection: ConnectionNumber,
    /// Set when the control queue was full, because the client did not read arbitration messages.
    overrun: Arc<AtomicBool>,
}

/// The stream of messages to a controller. It ends when the task that reads the controller's requests ends. If this
/// stream is dropped, that task is aborted.
pub struct Outbound {
    control: mpsc::Receiver<Result<MasterArbitrationUpdate, Status>>,
    events: mpsc::Receiver<Event>,
    overrun: Arc<AtomicBool>,
    /// Whether an arbitration message was sent. Order: no event is sent before the first arbitration message.
    told: bool,
    moderation: Moderation,
    reader: Option<AbortHandle>,
}

impl Outbound {
    /// Sets the task that reads the controller's requests.
    pub fn set_reader(&mut self, reader: AbortHandle) {
        self.reader = Some(reader);
    }
}

impl Drop for Outbound {
    fn drop(&mut self) {
        if let Some(reader) = &self.reader {
            reader.abort();
        }
    }
}

impl Stream for Outbound {
    type Item = Result<Response, Status>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let ready = |update| {
            Poll::Ready(Some(Ok(Response::Message(StreamMessageResponse {
                update: Some(update),
            }))))
        };
        match self.control.poll_recv(context) {
            Poll::Ready(Some(Ok(update))) => {
                self.told = true;
                return ready(Update::Arbitration(update));
            }
            Poll::Ready(Some(Err(status))) => return Poll::Ready(Some(Err(status))),
            Poll::Ready(None) if self.overrun.swap(false, Ordering::Relaxed) => {
                let status =
                    Status::resource_exhausted("the client did not read its arbitration messages");
                return Poll::Ready(Some(Err(status)));
            }
            Poll::Ready(None) => return Poll::Ready(None),
            Poll::Pending => {}
        }
        while self.told {
            let is_empty = self.events.is_empty();
            if self.moderation.waits(is_empty, context) {
                return Poll::Pending;
            }
            match self.events.poll_recv(context) {
                Poll::Ready(Some(Event::Message(update))) => return ready(update),
                Poll::Ready(Some(Event::Error(error, _))) => return ready(Update::Error(*error)),
                Poll::Ready(Some(Event::Packet(pipeline, packet, rights))) => {
                    self.moderation.count();
                    if rights.receives_all() && is_of_numbers(&pipeline, &packet) {
                        return Poll::Ready(Some(Ok(Response::Packet(pipeline, packet))));
                    }
                    match packet_in(&pipeline, packet) {
                        Some(packet) if rights.receives(&packet.metadata) => {
                            return ready(Update::Packet(packet));
                        }
                        _ => {}
                    }
                }
                Poll::Ready(None) | Poll::Pending => return Poll::Pending,
            }
        }
        Poll::Pending
    }
}

/// Returns whether a packet with this header can be encoded directly ([`Response::Packet`]).
fn is_of_numbers(pipeline: &Pipeline, packet: &[u8]) -> bool {
    let header = pipeline.schema.packet_in.as_ref();
    header.is_some_and(|header| header.numbers().is_some() && packet.len() >= header.bytes())
}

/// Removes the controller header from a packet. Returns `None` if the packet is shorter than the header.
fn packet_in(pipeline: &Pipeline, mut packet: Bytes) -> Option<PacketIn> {
    let Some(header) = &pipeline.schema.packet_in else {
        return Some(PacketIn {
            payload: packet,
            metadata: Vec::new(),
        });
    };
    let metadata = header.decode(&packet)?;
    let payload = packet.split_off(header.bytes());
    Some(PacketIn { payload, metadata })
}

/// A digest message on its way from a worker to the task that buffers it.
pub type DigestMessage = (DigestId, Vec<u8>);

struct State {
    arbiter: Arbiter,
    clients: HashMap<ControllerId, Client>,
    next: ControllerId,
}

/// Counts of the open streams and of the events that wait in them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sessions {
    /// Open streams.
    pub streams: usize,
    /// Whether the default role has a primary.
    pub has_default_primary: bool,
    /// Roles with a name that have a primary.
    pub named_primaries: usize,
    /// Packet-ins, digests and other events that are queued, summed over all streams.
    pub waiting: usize,
    /// Length of the longest event queue, which is that of the slowest client. A queue holds [`EVENT_QUEUE`] events;
    /// further events are dropped.
    pub longest: usize,
}

/// The streams of one device.
pub struct Hub {
    state: Mutex<State>,
    primaries: ArcSwap<Vec<(Client, Arc<Rights>)>>,
    /// The pipeline from which packets, digests and idle entries come.
    running: ArcSwapOption<Pipeline>,
    digests: mpsc::Sender<DigestMessage>,
}

impl Hub {
    /// Creates a hub without streams. Also returns the receiver for the task that buffers digests.
    pub fn new(device_id: u64) -> (Arc<Self>, mpsc::Receiver<DigestMessage>) {
        let (digests, receiver) = mpsc::channel(DIGEST_QUEUE);
        let arbiter = Arbiter::new(device_id);
        let hub = Self {
            state: Mutex::new(State {
                arbiter,
                clients: HashMap::new(),
                next: 1,
            }),
            primaries: ArcSwap::default(),
            running: ArcSwapOption::empty(),
            digests,
        };
        (Arc::new(hub), receiver)
    }

    /// From now on, restricts roles without a configuration to objects that the program assigns to them or to no role.
    pub fn enforce_annotations(&self) {
        self.state.lock().arbiter.enforce_annotations();
    }

    /// Returns the running pipeline, from which packets, digests and idle entries come.
    pub fn running(&self) -> Option<Arc<Pipeline>> {
        self.running.load_full()
    }

    /// Sets the running pipeline, from which packets, digests and idle entries come.
    pub fn set_running(&self, pipeline: Option<Arc<Pipeline>>) {
        self.running.store(pipeline);
    }

    /// Counts the open streams and the events that wait in them.
    pub fn sessions(&self) -> Sessions {
        let state = self.state.lock();
        let waiting = |client: &Client| EVENT_QUEUE - client.events.capacity();
        let waiting: Vec<_> = state.clients.values().map(waiting).collect();
        let has_default_primary = state.arbiter.has_primary(DEFAULT_ROLE);
        Sessions {
            streams: state.clients.len(),
            has_default_primary,
            named_primaries: state.arbiter.primaries().count() - usize::from(has_default_primary),
            waiting: waiting.iter().sum(),
            longest: waiting.into_iter().max().unwrap_or(0),
        }
    }

    /// Opens a stream.
    ///
    /// # Errors
    /// RESOURCE_EXHAUSTED if too many streams are open.
    pub fn connect(
        &self,
        connection: ConnectionNumber,
    ) -> Result<(ControllerId, Outbound), Status> {
        let (control, control_receiver) = mpsc::channel(CONTROL_QUEUE);
        let (events, event_receiver) = mpsc::channel(EVENT_QUEUE);
        let mut state = self.state.lock();
        if state.clients.len() >= MAX_STREAMS {
            let message = format!("{MAX_STREAMS} streams are open on this device, the maximum");
            return Err(Status::resource_exhausted(message));
        }
        let id = state.next;
        state.next += 1;
        let overrun = Arc::new(AtomicBool::new(false));
        state.clients.insert(
            id,
            Client {
                control,
                events,
                errors: Arc::new(Semaphore::new(ERRORS)),
                connection,
                overrun: overrun.clone(),
            },
        );
        let (control, events) = (control_receiver, event_receiver);
        let outbound = Outbound {
            control,
            events,
            overrun,
            told: false,
            moderation: Moderation::new(),
            reader: None,
        };
        Ok((id, outbound))
    }

    /// Removes a stream that has ended.
    pub fn disconnect(&self, controller: ControllerId) {
        let mut state = self.state.lock();
        let notifications = state.arbiter.disconnect(controller);
        state.clients.remove(&controller);
        self.deliver(&mut state, notifications);
    }

    /// Ends a stream with this status.
    pub fn end(&self, controller: ControllerId, status: Status) {
        let client = self.state.lock().clients.get(&controller).cloned();
        if let Some(client) = client {
            // If the queue is full, the client does not read, and would not see the status anyway.
            let _ = client.control.try_send(Err(status));
        }
        self.disconnect(controller);
    }

    /// Ends all streams.
    pub fn end_all(&self, status: &Status) {
        let controllers: Vec<_> = self.state.lock().clients.keys().copied().collect();
        for controller in controllers {
            self.end(controller, status.clone());
        }
    }

    /// Does the first step of arbitration: stops accepting writes of the old primary, and notifies the other
    /// controllers. After an error, the caller must end the stream.
    pub fn arbitrate(
        &self,
        controller: ControllerId,
        update: &MasterArbitrationUpdate,
    ) -> Result<Option<Takeover>, Status> {
        let mut state = self.state.lock();
        let verdict = state.arbiter.update(controller, update)?;
        self.deliver(&mut state, verdict.notifications);
        Ok(verdict.takeover)
    }

    /// Does the second step of arbitration: accepts writes of the new primary, and notifies it. Must be called when no
    /// write of the old primary is in flight any more.
    pub fn complete(&self, takeover: &Takeover) {
        let mut state = self.state.lock();
        let notifications = state.arbiter.complete(takeover);
        self.deliver(&mut state, notifications);
    }

    /// Checks that a request comes from the primary of `role`, on the connection of the primary's stream. If
    /// `connection` is `None`, does not check the connection. Returns the primary's rights.
    ///
    /// The election id alone does not prove who sent the request, because the server tells this id to the other
    /// controllers, too.
    pub fn authorize(
        &self,
        role: &str,
        election_id: Option<&Uint128>,
        connection: ConnectionNumber,
    ) -> Result<Rights, Status> {
        let state = self.state.lock();
        let (primary, rights) = state.arbiter.authorize(role, election_id)?;
        let stream = state.clients.get(&primary).and_then(|c| c.connection);
        if connection.is_some() && stream != connection {
            return Err(Status::permission_denied(
                "the primary's stream is on another connection: send requests on the connection of the stream",
            ));
        }
        Ok(rights.clone())
    }

    /// Returns the rights of the client of a stream, if the client is a primary.
    pub fn rights_of(&self, controller: ControllerId) -> Option<Rights> {
        self.state.lock().arbiter.rights_of(controller).cloned()
    }

    /// Returns whether the client of a stream is a primary that may send every packet-out.
    pub fn sends_all(&self, controller: ControllerId) -> bool {
        let state = self.state.lock();
        let rights = state.arbiter.rights_of(controller);
        rights.is_some_and(Rights::sends_all)
    }

    /// Returns the rights of a role.
    pub fn rights(&self, role: &str) -> Rights {
        self.state.lock().arbiter.rights(role)
    }

    /// Publishes the changed primaries to the packet path, then sends the notifications. The caller holds the state's
    /// lock, so every client receives its notifications in the order of the changes. Order: publishing comes first, so
    /// that a new primary receives every packet-in after its notification.
    fn deliver(&self, state: &mut State, notifications: Vec<Notification>) {
        self.publish(state);
        let mut lost = false;
        for (controller, update) in notifications {
            let Some(client) = state.clients.get(&controller) else {
                continue;
            };
            if client.control.try_send(Ok(update)).is_err() {
                tracing::warn!(
                    controller,
                    "a client does not read its stream: disconnected"
                );
                client.overrun.store(true, Ordering::Relaxed);
                // The client's task will see that its stream has ended, and will tell the arbiter.
                state.clients.remove(&controller);
                lost = true;
            }
        }
        if lost {
            self.publish(state);
        }
    }

    fn publish(&self, state: &State) {
        let primaries = state.arbiter.primaries();
        let primaries = primaries.filter_map(|(controller, rights)| {
            let client = state.clients.get(&controller)?;
            Some((client.clone(), Arc::new(rights.clone())))
        });
        self.primaries.store(Arc::new(primaries.collect()));
    }

    /// Sends a stream error to one client. Drops the error if the client's queue is full or too many errors wait.
    pub fn send_error(&self, controller: ControllerId, error: StreamError) {
        let state = self.state.lock();
        if let Some(client) = state.clients.get(&controller)
            && let Ok(permit) = Arc::clone(&client.errors).try_acquire_owned()
        {
            let _ = client
                .events
                .try_send(Event::Error(Box::new(error), permit));
        }
    }

    /// Sends an event to each primary. `event` builds it for the rights of the primary's role, or returns `None` to
    /// send nothing. If a client's queue is full, drops its event.
    pub fn send_to_primaries(&self, event: impl Fn(&Rights) -> Option<Update>) {
        for (client, rights) in self.primaries.load().iter() {
            if let Some(update) = event(rights) {
                let _ = client.events.try_send(Event::Message(update));
            }
        }
    }
}

/// Returns nanoseconds since the Unix epoch.
pub fn timestamp() -> i64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(now.as_nanos()).unwrap_or(i64::MAX)
}

impl Handler for Hub {
    fn packet_in(&self, packet: &[u8]) -> bool {
        let primaries = self.primaries.load();
        let running = self.running.load();
        let Some(pipeline) = running.as_ref().filter(|_| !primaries.is_empty()) else {
            return false;
        };
        let packet = Bytes::copy_from_slice(packet);
        let mut taken = false;
        let receivers = primaries
            .iter()
            .filter(|(_, rights)| rights.receives_packets());
        for (client, rights) in receivers {
            let event = Event::Packet(pipeline.clone(), packet.clone(), rights.clone());
            taken |= client.events.try_send(event).is_ok();
        }
        taken
    }

    fn digest(&self, digest: DigestId, fields: &[u8]) -> bool {
        self.digests.try_send((digest, fields.to_vec())).is_ok()
    }

    fn idle(&self, entries: Vec<(TableId, Entry)>) {
        let Some(pipeline) = self.running.load_full() else {
            return;
        };
        let context = pipeline.context();
        let encode = |(table, entry): (TableId, Entry)| {
            let (id, table) = pipeline.schema.table_of(table)?;
            crate::entity::table::encode(&context, id, table, &entry, RequestedFields::default(), 0)
        };
        let table_entry: Vec<_> = entries.into_iter().filter_map(encode).collect();
        if table_entry.is_empty() {
            return;
        }
        let timestamp = timestamp();
        self.send_to_primaries(|rights| {
            let covered = |entry: &&TableEntry| rights.covers_id(&pipeline.schema, entry.table_id);
            let table_entry: Vec<_> = table_entry.iter().filter(covered).cloned().collect();
            (!table_entry.is_empty()).then(|| {
                Update::IdleTimeoutNotification(IdleTimeoutNotification {
                    table_entry,
                    timestamp,
                })
            })
        });
    }
}

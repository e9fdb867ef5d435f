// SPDX-License-Identifier: Apache-2.0
//! Queues a session's answers, notifications and packet-ins for Python, and tracks outstanding
//! requests.
//!
//! Invariants:
//!
//! * Each request is answered exactly once, by the switch or by the end of the session.
//! * `Closed` is the last event.
//! * All queues are bounded. The limit of requests counts each request until Python has polled its answer.
//!   Notifications and packet-ins have limits of their own. The parts of a read's answer each hold a permit.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bytes::Bytes;
use tokio::sync::OwnedSemaphorePermit;

use super::packet::{Layout, PacketIn};
use crate::mailbox::Contents;

/// Limit of notifications (digests, idle timeouts, stream errors) queued for Python.
const NOTIFICATION_LIMIT: usize = 1024;
/// Limit of arbitration results queued for Python. When it is reached, a new result replaces the last one.
const ARBITRATION_LIMIT: usize = 64;

/// Canonical gRPC code, and message.
pub type Code = (i32, String);

/// An event for Python.
#[derive(Debug)]
pub enum Event {
    /// The connection is up.
    Connected,
    /// Result of an arbitration. This client or another client may have caused it.
    Arbitration {
        /// OK if this client is primary. Otherwise says why it is not.
        status: Code,
        /// Highest election id that the switch knows, as (high, low).
        election_id: Option<(u64, u64)>,
    },
    /// Packet-ins, oldest first.
    Packets(Vec<PacketIn>),
    /// A serialized notification.
    Notification(Notification, Bytes),
    /// Part of the answer to a read. Further parts may follow. The permit is held until the part is
    /// taken.
    ReadPart(u64, Bytes, OwnedSemaphorePermit),
    /// The answer to a request. The number is Python's token.
    Answer(u64, RequestOutcome),
    /// The session has ended.
    Closed(Code),
}

/// Kinds of notifications that are passed to Python unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Notification {
    /// DigestList
    Digest,
    /// IdleTimeoutNotification
    IdleTimeout,
    /// StreamError
    StreamError,
}

/// The kinds of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Write
    Write,
    /// Read
    Read,
    /// SetForwardingPipelineConfig or GetForwardingPipelineConfig
    Pipeline,
    /// Capabilities
    Capabilities,
    /// ListPorts of sluice-switch
    Ports,
    /// DryRun of sluice-switch
    DryRun,
}

/// Outcome of a request.
#[derive(Debug)]
pub struct RequestOutcome {
    /// Kind of the request.
    pub kind: RequestKind,
    /// OK, or the error from the switch or this client.
    pub status: Code,
    /// Errors of a failed Write, one for each update. May be empty.
    pub errors: Vec<Code>,
    /// The serialized response. Empty if this kind of request has no response.
    pub response: Bytes,
}

impl RequestOutcome {
    /// Creates the answer to a request that failed as a whole.
    pub fn failed(kind: RequestKind, status: Code) -> Self {
        Self {
            kind,
            status,
            errors: Vec::new(),
            response: Bytes::new(),
        }
    }
}

/// Reasons to refuse a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// The session has ended.
    Closed,
    /// Too many requests are outstanding: not answered, or answered but not polled by Python.
    Busy,
}

/// Counters of a session. They never decrease.
#[derive(Debug, Default)]
pub struct Counters {
    /// Packet-ins queued for Python.
    pub packet_in: AtomicU64,
    /// Packet-ins dropped because Python fetched them too slowly.
    pub packet_in_dropped: AtomicU64,
    /// Packet-ins that do not fit the metadata layout.
    pub packet_in_malformed: AtomicU64,
    /// Packet-ins that arrived before the layout was set.
    pub packet_in_unexpected: AtomicU64,
    /// Packet-outs queued for the switch, including those of the fast path.
    pub packet_out: AtomicU64,
    /// Packet-outs dropped because the queue was full.
    pub packet_out_dropped: AtomicU64,
    /// Digests dropped because Python fetched them too slowly.
    pub digests_dropped: AtomicU64,
    /// Idle timeouts dropped because Python fetched them too slowly.
    pub idle_timeouts_dropped: AtomicU64,
    /// Stream errors dropped because Python fetched them too slowly.
    pub stream_errors_dropped: AtomicU64,
    /// Stream messages of an unknown kind.
    pub unknown_stream_messages: AtomicU64,
}

/// The queues and outstanding requests of one session.
#[derive(Debug)]
pub struct Inbox {
    packet_limit: usize,
    request_limit: usize,
    layout: Option<Layout>,
    events: VecDeque<Event>,
    notifications: usize,
    arbitrations: usize,
    packets: VecDeque<PacketIn>,
    /// Requests that are not answered yet, by request number. Holds Python's token and the kind of each
    /// request.
    pending: BTreeMap<u64, (u64, RequestKind)>,
    next_request: u64,
    /// Number of outstanding requests: those in `pending`, and those whose answer is in `events`.
    outstanding: usize,
    closed: bool,
    /// Status for the `Closed` event, if Python has not polled this event yet.
    farewell: Option<Code>,
}

impl Contents for Inbox {
    fn is_empty(&self) -> bool {
        self.events.is_empty() && self.packets.is_empty() && self.farewell.is_none()
    }
}

impl Inbox {
    /// Creates an empty inbox with these limits.
    pub fn new(packet_limit: usize, request_limit: usize) -> Self {
        Self {
            packet_limit,
            request_limit,
            layout: None,
            events: VecDeque::new(),
            notifications: 0,
            arbitrations: 0,
            packets: VecDeque::new(),
            pending: BTreeMap::new(),
            next_request: 0,
            outstanding: 0,
            closed: false,
            farewell: None,
        }
    }

    /// Sets the layout of further packet-ins.
    pub fn set_layout(&mut self, layout: Layout) {
        self.layout = Some(layout);
    }

    /// Returns the layout of packet-ins.
    pub fn layout(&self) -> Option<&Layout> {
        self.layout.as_ref()
    }

    /// Returns whether the session has ended.
    pub fn is_closed(&self) -> bool {
        self.closed
    }

    /// Returns the number of requests that are pending or whose answer Python has not polled.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    /// Registers a request and returns its number.
    ///
    /// # Errors
    /// [`Refused::Closed`] if the session has ended, [`Refused::Busy`] if too many requests are outstanding.
    /// In both cases, the request is not registered.
    pub fn register(&mut self, token: u64, kind: RequestKind) -> Result<u64, Refused> {
        if self.closed {
            return Err(Refused::Closed);
        }
        if self.outstanding >= self.request_limit {
            return Err(Refused::Busy);
        }
        let request = self.next_request;
        self.next_request += 1;
        self.outstanding += 1;
        self.pending.insert(request, (token, kind));
        Ok(request)
    }

    /// Queues the answer to a request, unless the session's end has already answered the request.
    pub fn answer(&mut self, request: u64, answer: RequestOutcome) {
        if let Some((token, _)) = self.pending.remove(&request) {
            self.events.push_back(Event::Answer(token, answer));
        }
    }

    /// Queues a part of the answer to a read, unless the session's end has already answered the read.
    pub fn read_part(&mut self, request: u64, part: Bytes, permit: OwnedSemaphorePermit) {
        if let Some((token, _)) = self.pending.get(&request) {
            self.events.push_back(Event::ReadPart(*token, part, permit));
        }
    }

    /// Queues the event `Connected`.
    pub fn connected(&mut self) {
        self.events.push_back(Event::Connected);
    }

    /// Queues an arbitration result.
    pub fn arbitration(&mut self, status: Code, election_id: Option<(u64, u64)>) {
        let event = Event::Arbitration {
            status,
            election_id,
        };
        if self.arbitrations >= ARBITRATION_LIMIT {
            let last = self
                .events
                .iter_mut()
                .rfind(|event| matches!(event, Event::Arbitration { .. }));
            if let Some(last) = last {
                *last = event;
                return;
            }
        }
        self.arbitrations += 1;
        self.events.push_back(event);
    }

    /// Queues a notification. If there is no room, drops and counts the notification.
    pub fn notification(&mut self, kind: Notification, message: Bytes, counters: &Counters) {
        if self.notifications < NOTIFICATION_LIMIT {
            self.notifications += 1;
            self.events.push_back(Event::Notification(kind, message));
            return;
        }
        match kind {
            Notification::Digest => &counters.digests_dropped,
            Notification::IdleTimeout => &counters.idle_timeouts_dropped,
            Notification::StreamError => &counters.stream_errors_dropped,
        }
        .fetch_add(1, Relaxed);
    }

    /// Decodes and queues a serialized PacketIn. If the packet-in is malformed or there is no room,
    /// drops and counts it.
    pub fn packet_in(&mut self, message: &Bytes, counters: &Counters) {
        let counter = match self
            .layout
            .as_ref()
            .map(|layout| layout.decode_packet_in(message))
        {
            None => &counters.packet_in_unexpected,
            Some(Err(_)) => &counters.packet_in_malformed,
            Some(Ok(packet)) => return self.put(packet, counters),
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Queues a packet-in. If there is no room, drops and counts the packet-in.
    pub fn put(&mut self, packet: PacketIn, counters: &Counters) {
        let counter = if self.packets.len() >= self.packet_limit {
            &counters.packet_in_dropped
        } else {
            self.packets.push_back(packet);
            &counters.packet_in
        };
        counter.fetch_add(1, Relaxed);
    }

    /// Ends the session. Answers every pending request with UNAVAILABLE, and then queues `Closed`.
    pub fn close(&mut self, status: Code) {
        if self.closed {
            return;
        }
        self.closed = true;
        for (token, kind) in std::mem::take(&mut self.pending).into_values() {
            let message = format!("the session ended before an answer: {}", status.1);
            let status = (tonic::Code::Unavailable as i32, message);
            self.events
                .push_back(Event::Answer(token, RequestOutcome::failed(kind, status)));
        }
        self.farewell = Some(status);
    }

    /// Removes and returns at most `max` events. Each packet-in counts as one event.
    ///
    /// Packet-ins may take half of `max`, and all other events the other half. If one half is not used up,
    /// the other kind may use the rest. So neither packet-ins nor other events starve.
    pub fn poll(&mut self, max: usize) -> Vec<Event> {
        let for_packets = self
            .packets
            .len()
            .min(max.div_ceil(2).max(max.saturating_sub(self.events.len())));
        let for_events = self.events.len().min(max - for_packets);
        let mut taken: Vec<Event> = self.events.drain(..for_events).collect();
        for event in &taken {
            match event {
                Event::Answer(..) => self.outstanding -= 1,
                Event::Notification(..) => self.notifications -= 1,
                Event::Arbitration { .. } => self.arbitrations -= 1,
                _ => {}
            }
        }
        if for_packets > 0 {
            taken.push(Event::Packets(self.packets.drain(..for_packets).collect()));
        }
        if self.events.is_empty() && self.packets.is_empty() && for_events + for_packets < max {
            taken.extend(self.farewell.take().map(Event::Closed));
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::Field;
    use super::*;

    fn packet() -> Bytes {
        Bytes::from_static(&[0x0a, 1, b'x', 0x12, 5, 8, 1, 0x12, 1, 7])
    }

    fn inbox() -> Inbox {
        let mut inbox = Inbox::new(4, 3);
        inbox.set_layout(Layout::new(vec![Field { id: 1, width: 8 }]).unwrap_or_default());
        inbox
    }

    fn ok() -> Code {
        (0, String::new())
    }

    fn packets(events: &[Event]) -> usize {
        events
            .iter()
            .map(|event| {
                if let Event::Packets(packets) = event {
                    packets.len()
                } else {
                    0
                }
            })
            .sum()
    }

    #[test]
    fn packet_ins_beyond_the_limit_are_dropped_and_counted() {
        let (mut inbox, counters) = (inbox(), Counters::default());
        for _ in 0..6 {
            inbox.packet_in(&packet(), &counters);
        }
        inbox.packet_in(&Bytes::from_static(b"\xff"), &counters);
        assert_eq!(packets(&inbox.poll(100)), 4);
        let count = |counter: &AtomicU64| counter.load(Relaxed);
        assert_eq!(count(&counters.packet_in), 4);
        assert_eq!(count(&counters.packet_in_dropped), 2);
        assert_eq!(count(&counters.packet_in_malformed), 1);
    }

    #[test]
    fn without_a_layout_packet_ins_are_counted_as_unexpected() {
        let (mut inbox, counters) = (Inbox::new(4, 3), Counters::default());
        inbox.packet_in(&packet(), &counters);
        assert!(inbox.is_empty());
        assert_eq!(counters.packet_in_unexpected.load(Relaxed), 1);
    }

    #[test]
    fn neither_events_nor_packets_starve() {
        let (mut inbox, counters) = (inbox(), Counters::default());
        for _ in 0..4 {
            inbox.packet_in(&packet(), &counters);
            inbox.arbitration(ok(), None);
        }
        let slice = inbox.poll(4);
        assert_eq!(
            (slice.len(), packets(&slice)),
            (3, 2),
            "two events and a batch of two"
        );
        let slice = inbox.poll(3);
        assert_eq!(
            (slice.len(), packets(&slice)),
            (2, 2),
            "one event and a batch of two"
        );
        assert_eq!(inbox.poll(3).len(), 1);
        assert!(inbox.is_empty());
    }

    #[test]
    fn requests_count_until_their_answer_is_polled() {
        let mut inbox = inbox();
        let numbers: Vec<_> = (0..3)
            .map(|token| inbox.register(token, RequestKind::Write))
            .collect();
        assert_eq!(numbers, [Ok(0), Ok(1), Ok(2)]);
        assert_eq!(inbox.register(9, RequestKind::Read), Err(Refused::Busy));
        inbox.answer(0, RequestOutcome::failed(RequestKind::Write, ok()));
        assert_eq!(
            inbox.register(9, RequestKind::Read),
            Err(Refused::Busy),
            "not polled yet"
        );
        assert_eq!(inbox.poll(1).len(), 1);
        assert_eq!(inbox.register(9, RequestKind::Read), Ok(3));
    }

    #[test]
    fn the_end_answers_every_request_once_and_is_the_last_event() {
        let (mut inbox, counters) = (inbox(), Counters::default());
        assert_eq!(inbox.register(10, RequestKind::Write), Ok(0));
        assert_eq!(inbox.register(11, RequestKind::Read), Ok(1));
        inbox.packet_in(&packet(), &counters);
        inbox.close((14, "gone".to_owned()));
        inbox.close((0, "again".to_owned()));
        inbox.answer(0, RequestOutcome::failed(RequestKind::Write, ok()));
        assert_eq!(inbox.register(12, RequestKind::Read), Err(Refused::Closed));
        let mut kinds = Vec::new();
        while !inbox.is_empty() {
            for event in inbox.poll(1) {
                kinds.push(match event {
                    Event::Answer(
                        token,
                        RequestOutcome {
                            kind,
                            status: (14, _),
                            ..
                        },
                    ) => format!("{token} {kind:?}"),
                    Event::Packets(packets) => format!("{} packet", packets.len()),
                    Event::Closed((code, message)) => format!("{code} {message}"),
                    other => format!("{other:?}"),
                });
            }
        }
        kinds.sort();
        assert_eq!(kinds, ["1 packet", "10 Write", "11 Read", "14 gone"]);
        assert_eq!(inbox.outstanding(), 0);
    }

    #[test]
    fn too_many_arbitrations_keep_the_newest() {
        let mut inbox = inbox();
        for low in 0..100 {
            inbox.arbitration(ok(), Some((0, low)));
        }
        let events = inbox.poll(1000);
        assert_eq!(events.len(), ARBITRATION_LIMIT);
        let last = events.last();
        assert!(matches!(
            last,
            Some(Event::Arbitration {
                election_id: Some((0, 99)),
                ..
            })
        ));
    }

    #[test]
    fn notifications_beyond_the_limit_are_dropped_by_name() {
        let (mut inbox, counters) = (inbox(), Counters::default());
        for _ in 0..NOTIFICATION_LIMIT {
            inbox.notification(Notification::Digest, Bytes::new(), &counters);
        }
        inbox.notification(Notification::IdleTimeout, Bytes::new(), &counters);
        assert_eq!(counters.idle_timeouts_dropped.load(Relaxed), 1);
        assert_eq!(inbox.poll(usize::MAX).len(), NOTIFICATION_LIMIT);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Forwards packets between host and switch without Python (the fast path). Threads of this crate
//! forward BFD, BGP, ARP and similar packets, so a busy Python process does not delay them.
//!
//! ```text
//!   TAP thread      frame     -> rules::from_host -> packet-out queue of the session
//!   session's task  packet-in -> rules::to_host   -> TAP
//!                                      | no
//!                                      v
//!                   Python, through the same queues as without a fast path
//! ```
//!
//! [`rules`] decides which frames to forward, with tables that Python sets and updates. Python gets
//! all frames that the tables do not cover. The rules themselves drop no frame. The fast path drops
//! a frame only if a queue is full.
//!
//! Python may need to know which packets were delivered to the host. The fast path then queues a
//! copy of each delivered packet for Python ([`FastPath::told`]). This queue is bounded. If the
//! queue is full, the fast path does not deliver the packet, but passes it to Python. Packets of one
//! punt reason may fill at most half of the queue, so a flood of pings does not displace routing
//! protocols.
//!
//! The session's queue of packet-outs is bounded, too. Each TAP may have [`WAITING`] frames in this
//! queue. If there are many TAPs, each has an equal share of [`ALL_WAITING`] instead, so no TAP
//! displaces another. All TAPs together use at most half of the queue, which leaves room for
//! Python's packets.
//!
//! Invariant: no thread waits for Python's GIL while it holds a lock of this module.

mod frame;
pub mod rules;

use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, PoisonError, RwLock, Weak};

use crate::mailbox::{Contents, Mailbox};
use crate::p4runtime::packet::PacketIn;
use frame::without_tag;
use rules::{Interfaces, Rules};

/// Limit of the frames of one TAP that wait in the session's queue.
const WAITING: usize = 512;
/// Limit of the waiting frames of all TAPs together: half of the queue's default size.
const ALL_WAITING: usize = 2048;

/// Interface to a session with a switch.
pub trait Switch: Debug + Send + Sync {
    /// Queues a packet-out.
    fn send(&self, frame: &[u8], metadata: &[u128], waiting: WaitingFrame) -> Sent;
}

/// Interface to the TAPs of the host.
pub trait Host: Debug + Send + Sync {
    /// Sends a frame to the host; returns whether the host accepted it.
    fn give(&self, index: u32, frame: &[u8]) -> bool;
    /// Starts to pass the host's frames to the fast path. Called when a switch is attached. A
    /// repeated call has no effect.
    fn wake(&self);
}

/// Result of a packet-out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sent {
    /// The packet-out was queued.
    Queued,
    /// The queue was full; the packet was dropped and counted.
    Full,
    /// The session has ended, or does not accept these metadata.
    Refused,
}

/// Counts one frame of a TAP as waiting for the switch. Dropping the value decreases the count.
#[derive(Debug)]
pub struct WaitingFrame(Arc<AtomicUsize>);

impl WaitingFrame {
    fn among(waiting: &Arc<AtomicUsize>, share: usize) -> Option<Self> {
        let frame = Self(Arc::clone(waiting));
        (waiting.fetch_add(1, Relaxed) < share).then_some(frame)
    }
}

/// Returns the limit of waiting frames for each TAP, if there are `taps` TAPs.
fn share(taps: usize) -> usize {
    (ALL_WAITING / taps.max(1)).clamp(1, WAITING)
}

impl Drop for WaitingFrame {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// Counters of the fast path. They never decrease.
#[derive(Debug, Default)]
pub struct Counters {
    /// Frames of the host that were queued for the switch.
    pub from_host: AtomicU64,
    /// Frames of the host that were dropped because the queue was full.
    pub from_host_dropped: AtomicU64,
    /// Frames that were written to a TAP.
    pub to_host: AtomicU64,
    /// Frames that could not be written to the TAP.
    pub to_host_refused: AtomicU64,
    /// Packets for the host that were passed to Python because the queue of copies was full.
    pub to_host_untold: AtomicU64,
}

/// Copies of delivered packets that Python has not fetched yet, each with its punt reason.
#[derive(Debug, Default)]
struct PendingCopies {
    packets: VecDeque<(u128, PacketIn)>,
    by_reason: BTreeMap<u128, usize>,
}

impl PendingCopies {
    /// Adds a packet if there is room. `limit` is the capacity of the queue. Packets of one reason
    /// may use at most half of this capacity.
    fn add(&mut self, limit: usize, reason: u128, packet: &PacketIn) -> bool {
        let waiting = self.by_reason.entry(reason).or_default();
        let has_room = self.packets.len() < limit && *waiting < limit.div_ceil(2);
        if has_room {
            *waiting += 1;
            self.packets.push_back((reason, packet.clone()));
        }
        has_room
    }

    fn take(&mut self, max_packets: usize) -> Vec<PacketIn> {
        let count = max_packets.min(self.packets.len());
        let taken = self.packets.drain(..count);
        let counted = taken.map(|(reason, packet)| {
            if let Some(waiting) = self.by_reason.get_mut(&reason) {
                *waiting -= 1;
            }
            packet
        });
        counted.collect()
    }
}

impl Contents for PendingCopies {
    fn is_empty(&self) -> bool {
        self.packets.is_empty()
    }
}

/// The fast path between the TAPs of a host and the session with a switch.
#[derive(Debug)]
pub struct FastPath {
    rules: Rules,
    interfaces: RwLock<Arc<Interfaces>>,
    switch: RwLock<Option<Arc<dyn Switch>>>,
    host: RwLock<Option<Weak<dyn Host>>>,
    told: Mailbox<PendingCopies>,
    told_limit: usize,
    counters: Counters,
    by_reason: BTreeMap<u128, AtomicU64>,
}

impl FastPath {
    /// Creates a fast path without interfaces. It forwards nothing until [`Self::set_interfaces`] is
    /// called.
    ///
    /// # Errors
    /// The kernel's error if no descriptor is available.
    pub fn new(rules: Rules, told_limit: usize) -> io::Result<Self> {
        let reasons = rules.for_the_host.keys();
        Ok(Self {
            by_reason: reasons.map(|reason| (*reason, AtomicU64::new(0))).collect(),
            rules,
            interfaces: RwLock::default(),
            switch: RwLock::default(),
            host: RwLock::default(),
            told: Mailbox::new(PendingCopies::default())?,
            told_limit,
            counters: Counters::default(),
        })
    }

    /// Replaces the tables of interfaces. Applies to all further frames.
    pub fn set_interfaces(&self, mut interfaces: Interfaces) {
        let before = self.interfaces();
        for (index, tap) in &mut interfaces.taps {
            if let Some(known) = before.taps.get(index) {
                tap.waiting = Arc::clone(&known.waiting);
            }
        }
        set(&self.interfaces, Arc::new(interfaces));
    }

    /// From now on, sends the host's frames to this session.
    pub fn attach_switch(&self, switch: Arc<dyn Switch>) {
        set(&self.switch, Some(switch));
        if let Some(host) = get(&self.host).and_then(|host| host.upgrade()) {
            host.wake();
        }
    }

    /// From now on, delivers packets to these interfaces.
    pub fn attach_host(&self, host: Weak<dyn Host>) {
        set(&self.host, Some(host));
    }

    /// Sends a frame of the host to the switch, or drops and counts the frame if the queue is full.
    /// Returns false if Python must handle the frame.
    pub fn from_host(&self, index: u32, frame: &[u8]) -> bool {
        let Some(switch) = get(&self.switch) else {
            return false;
        };
        let interfaces = self.interfaces();
        let Some((tap, metadata)) = rules::from_host(&self.rules, &interfaces, index, frame) else {
            return false;
        };
        let sent = match WaitingFrame::among(&tap.waiting, share(interfaces.taps.len())) {
            Some(waiting) => switch.send(frame, metadata, waiting),
            None => Sent::Full,
        };
        let counter = match sent {
            Sent::Queued => &self.counters.from_host,
            Sent::Full => &self.counters.from_host_dropped,
            Sent::Refused => return false,
        };
        counter.fetch_add(1, Relaxed);
        true
    }

    /// Delivers a packet-in to the host. Returns false if Python must handle the packet.
    pub fn to_host(&self, packet: &PacketIn) -> bool {
        let (frame, metadata) = (&packet.payload, &*packet.metadata);
        let Some(host) = get(&self.host).and_then(|host| host.upgrade()) else {
            return false;
        };
        let Some((index, is_ip)) = self.would_reach(frame, metadata) else {
            return false;
        };
        if is_ip && self.rules.remember && !self.tell(packet) {
            self.counters.to_host_untold.fetch_add(1, Relaxed);
            return false;
        }
        let reason = metadata.get(self.rules.reason);
        if let Some(count) = reason.and_then(|reason| self.by_reason.get(reason)) {
            count.fetch_add(1, Relaxed);
        }
        let taken = match without_tag(frame) {
            Some(frame) => host.give(index, &frame),
            None => host.give(index, frame),
        };
        let counter = if taken {
            &self.counters.to_host
        } else {
            &self.counters.to_host_refused
        };
        counter.fetch_add(1, Relaxed);
        true
    }

    /// Returns the metadata with which the fast path would send a frame of the host to the switch.
    /// Returns `None` if Python must handle the frame.
    pub fn would_send(&self, index: u32, frame: &[u8]) -> Option<Vec<u128>> {
        let interfaces = self.interfaces();
        let found = rules::from_host(&self.rules, &interfaces, index, frame);
        found.map(|(_, metadata)| metadata.to_vec())
    }

    /// Returns the TAP and the frame that the host would get for a packet-in. Returns `None` if
    /// Python must handle the packet.
    pub fn would_give(&self, frame: &[u8], metadata: &[u128]) -> Option<(u32, Vec<u8>)> {
        let (index, _) = self.would_reach(frame, metadata)?;
        Some((index, without_tag(frame).unwrap_or_else(|| frame.to_vec())))
    }

    fn would_reach(&self, frame: &[u8], metadata: &[u128]) -> Option<(u32, bool)> {
        rules::to_host(&self.rules, &self.interfaces(), frame, metadata)
    }

    /// Returns a descriptor that is readable while [`Self::told`] has packets.
    pub fn descriptor(&self) -> RawFd {
        self.told.descriptor()
    }

    /// Removes and returns at most `max_packets` copies of IP packets that were delivered to the
    /// host. The oldest is first.
    pub fn told(&self, max_packets: usize) -> Vec<PacketIn> {
        self.told.update(|told| told.take(max_packets))
    }

    /// Returns the counters.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns the number of packets that were delivered to the host, for each punt reason.
    pub fn by_reason(&self) -> impl Iterator<Item = (u128, u64)> + '_ {
        let counts = self.by_reason.iter();
        counts.map(|(reason, count)| (*reason, count.load(Relaxed)))
    }

    fn tell(&self, packet: &PacketIn) -> bool {
        // `would_reach` has checked that the metadata include the reason.
        let reason = packet.metadata.get(self.rules.reason).copied();
        let reason = reason.unwrap_or_default();
        self.told
            .update(|told| told.add(self.told_limit, reason, packet))
    }

    fn interfaces(&self) -> Arc<Interfaces> {
        get(&self.interfaces)
    }
}

fn get<T: Clone>(lock: &RwLock<T>) -> T {
    lock.read().unwrap_or_else(PoisonError::into_inner).clone()
}

fn set<T>(lock: &RwLock<T>, value: T) {
    let before = {
        let mut held = lock.write().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *held, value)
    };
    // Order: the lock is released before the old value is dropped, because freeing a large table
    // takes long.
    drop(before);
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::{HashMap, HashSet};
    use std::net::IpAddr;
    use std::sync::Mutex;

    use bytes::Bytes;

    use super::*;
    use crate::mailbox::lock;
    use rules::TapSettings;

    const INDEX: u32 = 11;
    const L3_IF: u128 = 1;
    const LOCAL: u128 = 6;
    const ROUTING_PROTOCOL: u128 = 7;
    const TOLD: usize = 3;
    const TOLD_OF_ONE_REASON: usize = 2;

    /// Counts a frame as waiting in `waiting`. Dropping the returned value decreases the count.
    pub(crate) fn a_waiting_frame(waiting: &Arc<AtomicUsize>) -> WaitingFrame {
        waiting.fetch_add(1, Relaxed);
        WaitingFrame(Arc::clone(waiting))
    }

    type Queued = (Vec<u8>, Vec<u128>, WaitingFrame);

    /// A switch that keeps every sent frame with its [`WaitingFrame`], like a session that never
    /// drains its queue.
    #[derive(Debug, Default)]
    struct Queue {
        frames: Mutex<Vec<Queued>>,
        refuses: bool,
    }

    impl Switch for Queue {
        fn send(&self, frame: &[u8], metadata: &[u128], waiting: WaitingFrame) -> Sent {
            if self.refuses {
                return Sent::Refused;
            }
            lock(&self.frames).push((frame.to_vec(), metadata.to_vec(), waiting));
            Sent::Queued
        }
    }

    #[derive(Debug, Default)]
    struct Given(Mutex<Vec<(u32, Vec<u8>)>>);

    impl Host for Given {
        fn give(&self, index: u32, frame: &[u8]) -> bool {
            lock(&self.0).push((index, frame.to_vec()));
            true
        }

        fn wake(&self) {}
    }

    fn interfaces() -> Interfaces {
        let tap = TapSettings {
            vrf: 0,
            macs: vec![[2; 6]],
            link_metadata: [1].into(),
            ip_metadata: [2].into(),
            waiting: Arc::default(),
        };
        Interfaces {
            taps: HashMap::from([(INDEX, tap)]),
            by_l3_if: HashMap::from([(L3_IF, INDEX)]),
            sources: HashMap::from([(0, HashSet::from([IpAddr::from([10, 0, 0, 1])]))]),
        }
    }

    fn path() -> io::Result<FastPath> {
        let rules = Rules {
            interface: 1,
            for_the_host: BTreeMap::from([(LOCAL, true), (ROUTING_PROTOCOL, true)]),
            link_protocols: HashSet::from([0x0806]),
            protocols: HashSet::from([6]),
            remember: true,
            ..Rules::default()
        };
        let path = FastPath::new(rules, TOLD)?;
        path.set_interfaces(interfaces());
        Ok(path)
    }

    fn arp() -> Vec<u8> {
        [&[2; 12][..], &[0x08, 0x06], &[0; 28]].concat()
    }

    fn packet_in(reason: u128) -> PacketIn {
        PacketIn {
            payload: Bytes::from(arp()),
            metadata: [reason, L3_IF].into(),
        }
    }

    #[test]
    fn without_a_session_or_with_one_that_refuses_frames_are_pythons() -> io::Result<()> {
        let path = path()?;
        assert!(!path.from_host(INDEX, &arp()));
        path.attach_switch(Arc::new(Queue {
            refuses: true,
            ..Queue::default()
        }));
        assert!(!path.from_host(INDEX, &arp()));
        assert_eq!(path.counters().from_host_dropped.load(Relaxed), 0);
        Ok(())
    }

    #[test]
    fn a_tap_has_so_many_frames_in_the_queue_and_no_more() -> io::Result<()> {
        let (path, queue) = (path()?, Arc::new(Queue::default()));
        path.attach_switch(Arc::clone(&queue) as Arc<dyn Switch>);
        for _ in 0..WAITING + 5 {
            assert!(path.from_host(INDEX, &arp()));
        }
        assert_eq!(lock(&queue.frames).len(), WAITING);
        assert_eq!(path.counters().from_host_dropped.load(Relaxed), 5);
        // Tables that are set anew share the old tables' counts of waiting frames.
        path.set_interfaces(interfaces());
        assert!(path.from_host(INDEX, &arp()));
        assert_eq!(lock(&queue.frames).len(), WAITING);
        lock(&queue.frames).pop();
        assert!(path.from_host(INDEX, &arp()));
        let frames = lock(&queue.frames);
        let sent = frames
            .last()
            .map(|(frame, metadata, _)| (frame.clone(), metadata.clone()));
        assert_eq!((frames.len(), sent), (WAITING, Some((arp(), vec![1]))));
        Ok(())
    }

    #[test]
    fn taps_share_the_queue() {
        for taps in [0, 1, 4] {
            assert_eq!(share(taps), WAITING);
        }
        for taps in [5, 16, 100, ALL_WAITING] {
            assert!(taps * share(taps) <= ALL_WAITING);
            assert!(share(taps) > 0);
        }
        assert_eq!(share(ALL_WAITING + 1), 1);
    }

    #[test]
    fn the_host_gets_nothing_that_could_not_be_told() -> io::Result<()> {
        let (path, given) = (path()?, Arc::new(Given::default()));
        let host: Weak<Given> = Arc::downgrade(&given);
        path.attach_host(host);
        let (ping, bfd) = (packet_in(LOCAL), packet_in(ROUTING_PROTOCOL));
        for _ in 0..TOLD_OF_ONE_REASON {
            assert!(path.to_host(&ping));
        }
        assert!(!path.to_host(&ping), "it is Python's now");
        assert!(path.to_host(&bfd), "the other half is for other reasons");
        assert!(!path.to_host(&bfd), "and the room is full");
        assert_eq!(lock(&given.0).len(), TOLD);
        assert_eq!(path.told(2), [ping.clone(), ping.clone()]);
        assert!(path.to_host(&ping));
        assert_eq!(path.told(TOLD + 1), [bfd, ping]);
        let counts: Vec<_> = path.by_reason().collect();
        assert_eq!(counts, [(LOCAL, 3), (ROUTING_PROTOCOL, 1)]);
        assert_eq!(path.counters().to_host_untold.load(Relaxed), 2);
        assert!(
            !path.to_host(&packet_in(ROUTING_PROTOCOL + 1)),
            "another reason"
        );
        Ok(())
    }

    #[test]
    fn interfaces_that_are_gone_give_their_frames_to_python() -> io::Result<()> {
        let (path, given) = (path()?, Arc::new(Given::default()));
        let host: Weak<Given> = Arc::downgrade(&given);
        path.attach_host(host);
        path.set_interfaces(Interfaces::default());
        assert!(!path.to_host(&packet_in(LOCAL)));
        path.set_interfaces(interfaces());
        drop(given);
        assert!(!path.to_host(&packet_in(LOCAL)));
        assert!(path.told(1).is_empty());
        Ok(())
    }
}

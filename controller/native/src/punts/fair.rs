// SPDX-License-Identifier: Apache-2.0
//! Queues packets fairly between interfaces and punt reasons, between sources, and between flows.
//!
//! The queue serves three levels round robin: shares (ingress interface and punt reason), the sources of a share, and
//! the flows of a source. A source is an IP address. So a host that opens many flows delays only its own packets, and
//! so does a flow of many packets. Sources and flows are not hashed into a fixed number of queues, so none of them
//! shares its turn with another.
//!
//! The whole queue is bounded, and so is each share. If there is no room, the newest packet of the longest queue is
//! dropped. If no queue is longer than the arriving packet's own queue, the arriving packet is dropped instead. So a
//! source with few packets always finds room. `sources/punt.py` is the specification of this module; a test compares
//! the two.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;

use super::ring::Ring;

/// Ingress port, interface and punt reason.
pub type ShareKey = (u128, u128, u128);

type Flows<T> = Ring<Bytes, VecDeque<T>>;
type Sources<T> = Ring<Bytes, Flows<T>>;

/// A bounded queue of packets of type `T`.
#[derive(Debug)]
pub struct FairQueue<T> {
    shares: Ring<ShareKey, Sources<T>>,
    waiting: usize,
    limit: usize,
    limit_each: usize,
    dropped: BTreeMap<u128, u64>,
}

impl<T> FairQueue<T> {
    /// Creates an empty queue of at most `limit` packets, and `limit_each` packets of one share.
    pub fn new(limit: usize, limit_each: usize) -> Self {
        Self {
            shares: Ring::default(),
            waiting: 0,
            limit,
            limit_each,
            dropped: BTreeMap::new(),
        }
    }

    /// Sets the limits for all further packets.
    pub fn set_limit(&mut self, limit: usize, limit_each: usize) {
        (self.limit, self.limit_each) = (limit, limit_each);
    }

    /// Returns the number of waiting packets.
    pub fn len(&self) -> usize {
        self.waiting
    }

    /// Returns whether no packet waits.
    pub fn is_empty(&self) -> bool {
        self.waiting == 0
    }

    /// Returns the number of dropped packets of each reason.
    pub fn dropped(&self) -> &BTreeMap<u128, u64> {
        &self.dropped
    }

    /// Queues a packet. If there is no room, drops a packet, which may be this one. Returns whether this packet is
    /// queued.
    pub fn put(&mut self, share: ShareKey, frame: &Bytes, packet: T) -> bool {
        let flow = flow_of(frame);
        let source = source_of(&flow);
        let is_full = self.waiting >= self.limit || self.shares.length(&share) >= self.limit_each;
        if is_full && !self.make_room(&share, &source, &flow) {
            *self.dropped.entry(share.2).or_default() += 1;
            return false;
        }
        self.waiting += 1;
        self.shares.put(share, |sources| {
            sources.put(source, |flows| {
                flows.put(flow, |queue| queue.push_back(packet))
            });
        });
        true
    }

    /// Drops a packet so that one of this flow can be queued. Returns false if no queue is longer than this flow's.
    fn make_room(&mut self, share: &ShareKey, source: &Bytes, flow: &Bytes) -> bool {
        let Some(victim) = self.victim(share, source, flow) else {
            return false;
        };
        let (share, source, flow) = victim;
        let dropped = self.shares.remove(&share, |sources| {
            sources.remove(&source, |flows| flows.remove(&flow, VecDeque::pop_back))
        });
        if dropped.is_some() {
            self.waiting -= 1;
            *self.dropped.entry(share.2).or_default() += 1;
        }
        dropped.is_some()
    }

    /// Returns the flow that loses a packet to a packet of the given flow.
    fn victim(
        &self,
        share: &ShareKey,
        source: &Bytes,
        flow: &Bytes,
    ) -> Option<(ShareKey, Bytes, Bytes)> {
        let length = self.shares.length(share);
        let (longest, most) = self.shares.longest()?;
        if length < self.limit_each && most > length + 1 {
            let sources = self.shares.get(longest)?;
            let (source, _) = sources.longest()?;
            let (flow, _) = sources.get(source)?.longest()?;
            return Some((*longest, source.clone(), flow.clone()));
        }
        let sources = self.shares.get(share)?;
        let (longest, most) = sources.longest()?;
        if most > sources.length(source) + 1 {
            let (flow, _) = sources.get(longest)?.longest()?;
            return Some((*share, longest.clone(), flow.clone()));
        }
        let flows = sources.get(source)?;
        let (longest, most) = flows.longest()?;
        (most > flows.length(flow) + 1).then(|| (*share, source.clone(), longest.clone()))
    }

    /// Removes and returns the next packet.
    pub fn take(&mut self) -> Option<T> {
        let taken = self
            .shares
            .take(|sources| sources.take(|flows| flows.take(VecDeque::pop_front)));
        self.waiting -= usize::from(taken.is_some());
        taken
    }
}

/// Returns the key of a frame's flow: the addresses, and the ports if they follow the IP header. The key of a fragment
/// has only addresses, so all fragments of a datagram have the same key and keep their order. All frames other than IP
/// have the empty key.
pub fn flow_of(frame: &Bytes) -> Bytes {
    let octets = |from: usize, to: usize| {
        let end = to.min(frame.len());
        frame.get(from.min(end)..end).unwrap_or_default()
    };
    let (kind, at) = match octets(12, 14) {
        [0x81, 0] => (octets(16, 18), 4),
        kind => (kind, 0),
    };
    let (from, to) = match kind {
        [0x08, 0x00] => {
            let is_whole = matches!(octets(at + 20, at + 22), [0 | 0x40, 0]);
            (at + 26, at + if is_whole { 38 } else { 34 })
        }
        [0x86, 0xdd] => {
            let is_fragment = octets(at + 20, at + 21) == [0x2c];
            (at + 22, at + if is_fragment { 54 } else { 58 })
        }
        _ => return Bytes::new(),
    };
    let end = to.min(frame.len());
    frame.slice(from.min(end)..end)
}

/// Returns the source address in a flow's key.
fn source_of(flow: &Bytes) -> Bytes {
    let length = if flow.len() > 12 { 16 } else { 4 };
    flow.slice(..length.min(flow.len()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn frame(source: u8, port: u8) -> Bytes {
        let mut frame = vec![0; 44];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[29] = source;
        frame[35] = port;
        frame.into()
    }

    fn take_all(queue: &mut FairQueue<u32>) -> Vec<u32> {
        std::iter::from_fn(|| queue.take()).collect()
    }

    #[test]
    fn a_source_with_one_packet_goes_ahead_of_a_flood() {
        let mut queue = FairQueue::new(64, 8);
        for port in 0..100 {
            queue.put((1, 1, 1), &frame(1, port), 1);
        }
        assert!(queue.put((1, 1, 1), &frame(2, 0), 2));
        assert_eq!(queue.len(), 8);
        assert_eq!(queue.dropped(), &[(1, 93)].into());
        assert_eq!(take_all(&mut queue), [1, 2, 1, 1, 1, 1, 1, 1]);
    }

    #[test]
    fn a_share_that_is_empty_finds_room() {
        let mut queue = FairQueue::new(8, 8);
        for port in 0..9 {
            queue.put((1, 1, 1), &frame(1, port), 1);
        }
        assert!(queue.put((2, 2, 1), &frame(1, 0), 2));
        assert_eq!(take_all(&mut queue), [1, 2, 1, 1, 1, 1, 1, 1]);
    }

    proptest! {
        #[test]
        fn nothing_is_lost_without_being_counted(
            steps in proptest::collection::vec((0..3_u8, 0..4_u8, 0..3_u8, any::<bool>()), 0..200),
        ) {
            let mut queue = FairQueue::new(12, 5);
            let (mut offered, mut taken) = (0, 0);
            for (share, source, port, take) in steps {
                if take {
                    taken += usize::from(queue.take().is_some());
                } else {
                    offered += 1;
                    queue.put((share.into(), 0, 0), &frame(source, port), ());
                }
                let dropped: u64 = queue.dropped().values().sum();
                prop_assert!(queue.len() <= 12);
                prop_assert_eq!(offered, taken + queue.len() + dropped as usize);
            }
            while queue.take().is_some() {
                taken += 1;
            }
            let dropped: u64 = queue.dropped().values().sum();
            prop_assert_eq!(offered, taken + dropped as usize);
        }

        #[test]
        fn arbitrary_frames_never_panic(octets: Vec<u8>) {
            source_of(&flow_of(&octets.into()));
        }
    }
}

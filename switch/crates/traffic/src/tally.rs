// SPDX-License-Identifier: Apache-2.0
//! Counts the packets of a run at the sink: received, duplicated, reordered, damaged and missing packets, and their
//! latencies. The module does no I/O: it gets frames and times, and returns counts.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::inspect::{Damage, Inspector, Verdict};
use crate::probe::Probe;

/// Largest latency that is recorded, in nanoseconds: an hour. A longer latency is recorded as this one.
const LONGEST_LATENCY: u64 = 3_600_000_000_000;
/// Precision of a recorded latency, in significant decimal digits.
const LATENCY_DIGITS: u8 = 3;

/// Number of sequence numbers, counted back from the highest one, that are remembered for each flow to recognize
/// duplicates.
const WINDOW: u64 = 64;

/// What was received of one flow.
#[derive(Clone, Copy, Debug, Default)]
struct Flow {
    /// The highest sequence number received, plus 1.
    next: u64,
    /// Bit n tells whether `next - 1 - n` was received.
    window: u64,
    received: u64,
}

/// Relation of a packet's sequence number to the numbers received before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// The packet is in order.
    Next,
    /// The packet arrived after a packet with a higher sequence number (RFC 4737, 3.3).
    Reordered,
    Duplicate,
}

impl Flow {
    fn accept(&mut self, sequence: u64) -> Order {
        if sequence >= self.next {
            let ahead = sequence - self.next + 1;
            self.window = if ahead < WINDOW {
                self.window << ahead | 1
            } else {
                1
            };
            self.next = sequence + 1;
            self.received += 1;
            return Order::Next;
        }
        let behind = self.next - 1 - sequence;
        // If the number is too far back to be remembered, counts the packet as reordered, because that is more likely
        // than duplicated.
        if behind < WINDOW {
            if self.window >> behind & 1 == 1 {
                return Order::Duplicate;
            }
            self.window |= 1 << behind;
        }
        self.received += 1;
        Order::Reordered
    }
}

/// Counts of damaged packets.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Corrupt {
    pub(crate) ip_checksum: u64,
    pub(crate) transport_checksum: u64,
    pub(crate) payload: u64,
}

/// Counts of a run; see the module's documentation.
#[derive(Debug)]
pub(crate) struct Tally {
    run: u32,
    inspector: Inspector,
    flows: Vec<Flow>,
    /// Undamaged packets, including duplicates, and their bytes.
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    pub(crate) duplicates: u64,
    pub(crate) reordered: u64,
    pub(crate) corrupt: Corrupt,
    /// Frames that do not belong to this run.
    pub(crate) other: u64,
    pub(crate) latency: Histogram<u64>,
    pub(crate) first: Option<u64>,
    pub(crate) last: u64,
    /// Longest time between two packets, in nanoseconds.
    pub(crate) longest_gap: u64,
    hop_limits: Box<[u64; 256]>,
}

impl Tally {
    pub(crate) fn new(run: u32) -> Self {
        Self {
            run,
            inspector: Inspector::default(),
            flows: Vec::new(),
            packets: 0,
            bytes: 0,
            duplicates: 0,
            reordered: 0,
            corrupt: Corrupt::default(),
            other: 0,
            latency: Histogram::new_with_max(LONGEST_LATENCY, LATENCY_DIGITS)
                .expect("valid bounds"),
            first: None,
            last: 0,
            longest_gap: 0,
            hop_limits: Box::new([0; 256]),
        }
    }

    /// Counts a frame that arrived at `now` (nanoseconds of CLOCK_MONOTONIC). Returns true if the frame is an undamaged
    /// packet of this run.
    pub(crate) fn receive(&mut self, frame: &[u8], now: u64) -> bool {
        match self.inspector.inspect(frame, self.run) {
            Verdict::Sound { probe, hop_limit } => {
                self.accept(&probe, frame.len(), now);
                self.hop_limits[usize::from(hop_limit)] += 1;
                return true;
            }
            Verdict::Corrupt(Damage::IpChecksum) => self.corrupt.ip_checksum += 1,
            Verdict::Corrupt(Damage::TransportChecksum) => self.corrupt.transport_checksum += 1,
            Verdict::Corrupt(Damage::Payload) => self.corrupt.payload += 1,
            Verdict::Other => self.other += 1,
        }
        false
    }

    fn accept(&mut self, probe: &Probe, length: usize, now: u64) {
        self.packets += 1;
        self.bytes += length as u64;
        self.latency.saturating_record(probe.latency(now));
        match self.first {
            None => self.first = Some(now),
            Some(_) => self.longest_gap = self.longest_gap.max(now.saturating_sub(self.last)),
        }
        self.last = now;
        // A flow number has 24 bits, so the size of `flows` is bounded.
        let index = probe.flow as usize;
        if index >= self.flows.len() {
            self.flows.resize(index + 1, Flow::default());
        }
        match self.flows[index].accept(probe.sequence) {
            Order::Next => {}
            Order::Reordered => self.reordered += 1,
            Order::Duplicate => self.duplicates += 1,
        }
    }

    /// Returns the number of packets without duplicates.
    pub(crate) fn unique(&self) -> u64 {
        self.flows.iter().map(|flow| flow.received).sum()
    }

    /// Returns whether at least `count` distinct packets were received. Adds up the flows only if enough packets were
    /// received at all.
    pub(crate) fn has(&self, count: u64) -> bool {
        self.packets >= count && self.unique() >= count
    }

    /// Returns the number of packets that are missing before the last received packet of their flow.
    pub(crate) fn missing(&self) -> u64 {
        self.flows
            .iter()
            .map(|flow| flow.next - flow.received)
            .sum()
    }

    /// Returns the number of flows with at least one received packet.
    pub(crate) fn flows_seen(&self) -> u64 {
        self.flows.iter().filter(|flow| flow.received > 0).count() as u64
    }

    /// Returns the number of packets for each TTL or hop limit.
    pub(crate) fn hop_limits(&self) -> BTreeMap<u8, u64> {
        (0..=u8::MAX)
            .zip(*self.hop_limits)
            .filter(|(_, packets)| *packets > 0)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn tally(sequences: &[u64]) -> Tally {
        let mut tally = Tally::new(1);
        for (now, sequence) in (0..).zip(sequences) {
            let probe = Probe {
                run: 1,
                flow: 2,
                sequence: *sequence,
                departure: 0,
            };
            tally.accept(&probe, 60, now);
        }
        tally
    }

    fn counts(sequences: &[u64]) -> (u64, u64, u64, u64) {
        let tally = tally(sequences);
        (
            tally.unique(),
            tally.missing(),
            tally.reordered,
            tally.duplicates,
        )
    }

    #[test]
    fn order_loss_and_duplicates_are_told_apart() {
        assert_eq!(counts(&[0, 1, 2, 3]), (4, 0, 0, 0));
        assert_eq!(counts(&[0, 2, 3]), (3, 1, 0, 0), "one packet is missing");
        assert_eq!(counts(&[0, 2, 1, 3]), (4, 0, 1, 0), "one packet is late");
        assert_eq!(
            counts(&[0, 1, 1, 0, 2]),
            (3, 0, 0, 2),
            "two packets arrive twice"
        );
        assert_eq!(
            counts(&[0, 1000, 999, 1]),
            (4, 997, 2, 0),
            "the gap is long"
        );
        assert_eq!(
            counts(&[63, 0, 0]),
            (2, 62, 1, 1),
            "the packet is at the window's edge"
        );
        assert_eq!(
            counts(&[64, 0]),
            (2, 63, 1, 0),
            "the packet is outside the window"
        );
    }

    #[test]
    fn gaps_and_flows_are_seen() {
        let mut tally = Tally::new(1);
        for (flow, now) in [(0, 10), (5, 30), (0, 35)] {
            tally.accept(
                &Probe {
                    run: 1,
                    flow,
                    sequence: now,
                    departure: 0,
                },
                60,
                now,
            );
        }
        assert_eq!(
            (tally.flows_seen(), tally.longest_gap, tally.first),
            (2, 20, Some(10))
        );
    }

    proptest! {
        #[test]
        fn a_shuffled_window_loses_nothing(order in Just((0_u64..60).collect::<Vec<_>>()).prop_shuffle()) {
            let (unique, missing, _, duplicates) = counts(&order);
            prop_assert_eq!((unique, missing, duplicates), (60, 0, 0));
        }
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Sends the packets of a run. In a loop, takes the packets that are due by the schedule, builds their frames, and
//! sends them in a batch.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use sluice_ports::Transmitter;

use crate::clock;
use crate::flows::{FlowSpace, Picker};
use crate::frame::Builder;
use crate::probe::Probe;
use crate::schedule::Schedule;

/// Maximum number of packets in a batch. The clock is read again after each batch.
const BATCH: usize = 64;
/// Maximum sleep in nanoseconds, so that a request to stop is noticed.
const NAP: u64 = 20_000_000;

/// The traffic to send.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) run: u32,
    pub(crate) flows: FlowSpace,
    pub(crate) picker: Picker,
    pub(crate) builder: Builder,
    pub(crate) schedule: Schedule,
    /// Maximum number of packets.
    pub(crate) count: u64,
    /// Maximum duration, in nanoseconds.
    pub(crate) duration: u64,
    /// Whether to busy-wait for the next packet instead of sleeping.
    pub(crate) spin: bool,
}

/// What a generator has sent.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    pub(crate) packets: u64,
    /// Nanoseconds from the start to the end of the last batch.
    pub(crate) elapsed: u64,
    /// Longest delay of a packet behind its scheduled time, in nanoseconds.
    pub(crate) worst_lag: u64,
}

impl Plan {
    /// Sends until the plan is fulfilled or `stop` is set. `sequences` has one element per flow.
    pub(crate) fn send(
        &mut self,
        port: &mut dyn Transmitter,
        sequences: &mut [u64],
        stop: &AtomicBool,
    ) -> Sent {
        clock::sleep_precisely();
        let start = clock::now();
        let mut sent = Sent::default();
        while sent.packets < self.count && !stop.load(Relaxed) {
            let elapsed = clock::now() - start;
            let next = self
                .schedule
                .next_departure()
                .max(if self.schedule.is_paced() { 0 } else { elapsed });
            if next >= self.duration {
                break;
            }
            if next > elapsed {
                self.wait(start + next);
                continue;
            }
            sent.worst_lag = sent.worst_lag.max(elapsed - next);
            sent.packets +=
                self.send_batch(port, sequences, start, elapsed, self.count - sent.packets);
            sent.elapsed = clock::now() - start;
        }
        sent
    }

    /// Sends the packets that are due at `elapsed`, up to one batch. Returns the number of packets sent.
    fn send_batch(
        &mut self,
        port: &mut dyn Transmitter,
        sequences: &mut [u64],
        start: u64,
        elapsed: u64,
        most: u64,
    ) -> u64 {
        let most = (BATCH as u64).min(most);
        let mut packets = 0;
        while packets < most && self.schedule.next_departure() <= elapsed {
            let planned = if self.schedule.is_paced() {
                self.schedule.next_departure()
            } else {
                elapsed
            };
            if planned >= self.duration {
                break;
            }
            let flow = self.picker.pick();
            let sequence = &mut sequences[flow as usize];
            let probe = Probe {
                run: self.run,
                flow,
                sequence: *sequence,
                departure: start + planned,
            };
            *sequence += 1;
            port.push(self.builder.build(&self.flows.flow(flow), &probe));
            self.schedule.advance();
            packets += 1;
        }
        port.flush();
        packets
    }

    fn wait(&self, until: u64) {
        if self.spin {
            std::hint::spin_loop();
        } else {
            clock::sleep_until(until.min(clock::now() + NAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::flows::Pick;
    use crate::frame::{Mac, Protocol, Shape, Size};
    use crate::schedule::Arrivals;
    use crate::tally::Tally;

    /// A port that gives each frame to a tally as if it had been received.
    struct Loop(Tally);

    impl Transmitter for Loop {
        fn push_parts(&mut self, headers: &[u8], payload: &[u8]) -> bool {
            self.0.receive(&[headers, payload].concat(), clock::now());
            true
        }

        fn flush(&mut self) -> bool {
            true
        }
    }

    fn plan(rate: Option<f64>, count: u64, duration: u64) -> Plan {
        let shape = Shape {
            source_mac: Mac([2, 0, 0, 0, 0, 1]),
            destination_mac: Mac([2, 0, 0, 0, 0, 2]),
            vlan: None,
            protocol: Protocol::Udp,
            size: Size::Imix,
            hop_limit: 64,
            traffic_class: 0,
            dont_fragment: false,
        };
        Plan {
            run: 1,
            flows: FlowSpace {
                sources: "10.0.0.1+10".parse().unwrap(),
                destinations: "10.1.0.1".parse().unwrap(),
                source_numbers: "1".parse().unwrap(),
                destination_numbers: "2".parse().unwrap(),
                flow_labels: "0".parse().unwrap(),
            },
            picker: Picker::new(Pick::Random, 10, 1),
            builder: Builder::new(shape, false).unwrap(),
            schedule: Schedule::new(rate, Arrivals::Constant, 1, 1),
            count,
            duration,
            spin: false,
        }
    }

    fn send(mut plan: Plan) -> (Sent, Tally) {
        let mut port = Loop(Tally::new(1));
        let sent = plan.send(&mut port, &mut [0; 10], &AtomicBool::new(false));
        (sent, port.0)
    }

    #[test]
    fn a_run_arrives_whole_and_in_order() {
        let (sent, tally) = send(plan(None, 10_000, u64::MAX));
        assert_eq!(sent.packets, 10_000);
        assert_eq!(
            (
                tally.unique(),
                tally.missing(),
                tally.reordered,
                tally.other
            ),
            (10_000, 0, 0, 0)
        );
        assert_eq!(
            (tally.flows_seen(), tally.hop_limits()),
            (10, [(64, 10_000)].into())
        );
    }

    #[test]
    fn a_rate_and_a_duration_give_their_product() {
        let (sent, tally) = send(plan(Some(100_000.0), u64::MAX, 50_000_000));
        assert_eq!((sent.packets, tally.unique()), (5_000, 5_000));
        assert!(sent.elapsed >= 49_000_000, "{}", sent.elapsed);
    }

    #[test]
    fn a_stop_is_obeyed_while_asleep() {
        let mut plan = plan(Some(0.001), u64::MAX, u64::MAX);
        let mut port = Loop(Tally::new(1));
        let stop = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let sender = scope.spawn(|| plan.send(&mut port, &mut [0; 10], &stop));
            stop.store(true, Relaxed);
            sender.join().unwrap()
        });
        assert!(sent.packets <= 1);
    }
}

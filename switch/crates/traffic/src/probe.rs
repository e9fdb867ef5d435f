// SPDX-License-Identifier: Apache-2.0
//! Defines the probe, which is the payload of a generated packet. From it the sink computes all its results.
//!
//! | bytes | contents |
//! |---|---|
//! | 4 | run; the sink ignores packets with another number |
//! | 3 | flow: index into the generator's flows |
//! | 5 | sequence: counts the packets of the flow from 0 |
//! | 6 | departure: nanoseconds of CLOCK_MONOTONIC, modulo 2^48 (3 days) |
//! | rest | filler that follows from flow and sequence |
//!
//! All fields are big-endian. The 18 bytes fit into the smallest Ethernet frame with IPv4 and UDP. Sender and receiver
//! run on one machine, so they can use the same clock.

use sluice_random::mix;

/// Number of bytes in front of the filler.
pub(crate) const PROBE: usize = 18;
/// Maximum number of flows of a run.
pub(crate) const MAX_FLOWS: u32 = 1 << 24;
const TIME_BITS: u32 = 48;
const SEQUENCE_MASK: u64 = (1 << 40) - 1;

/// Fields of a probe, which identify a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Probe {
    pub(crate) run: u32,
    pub(crate) flow: u32,
    pub(crate) sequence: u64,
    /// Scheduled departure, in nanoseconds of CLOCK_MONOTONIC.
    pub(crate) departure: u64,
}

impl Probe {
    /// Fills `payload`, which must have at least [`PROBE`] bytes.
    pub(crate) fn write(&self, payload: &mut [u8]) {
        let (head, filler) = payload.split_at_mut(PROBE);
        head[..4].copy_from_slice(&self.run.to_be_bytes());
        head[4..7].copy_from_slice(&self.flow.to_be_bytes()[1..]);
        head[7..12].copy_from_slice(&self.sequence.to_be_bytes()[3..]);
        head[12..].copy_from_slice(&self.departure.to_be_bytes()[2..]);
        self.fill(filler, |chunk, expected| {
            chunk.copy_from_slice(expected);
            true
        });
    }

    /// Parses the probe. Returns `None` if the payload is too short or belongs to another run.
    pub(crate) fn read(payload: &[u8], run: u32) -> Option<Self> {
        let head: &[u8; PROBE] = payload.first_chunk()?;
        if head[..4] != run.to_be_bytes() {
            return None;
        }
        let number = |bytes: &[u8]| {
            bytes
                .iter()
                .fold(0, |number, byte| number << 8 | u64::from(*byte))
        };
        Some(Self {
            run,
            flow: number(&head[4..7]) as u32,
            sequence: number(&head[7..12]),
            departure: number(&head[12..]),
        })
    }

    /// Returns whether the rest of the payload is the filler that the generator writes.
    pub(crate) fn filler_matches(&self, payload: &mut [u8]) -> bool {
        self.fill(&mut payload[PROBE..], |chunk, expected| chunk == expected)
    }

    /// Returns the nanoseconds from the departure to `now`.
    pub(crate) fn latency(&self, now: u64) -> u64 {
        let elapsed = now.wrapping_sub(self.departure) & ((1 << TIME_BITS) - 1);
        // A departure time in the future gives a latency of 0.
        if elapsed >> (TIME_BITS - 1) == 1 {
            0
        } else {
            elapsed
        }
    }

    fn fill(&self, filler: &mut [u8], mut visit: impl FnMut(&mut [u8], &[u8]) -> bool) -> bool {
        let seed = mix(u64::from(self.flow) << 40 | self.sequence & SEQUENCE_MASK);
        let mut word = seed;
        filler.chunks_mut(8).all(|chunk| {
            let bytes = word.to_be_bytes();
            word = word.wrapping_add(seed | 1);
            let length = chunk.len();
            visit(chunk, &bytes[..length])
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_is_read_and_any_changed_byte_is_seen(
            run: u32, flow in 0..MAX_FLOWS, sequence in 0..=SEQUENCE_MASK,
            departure in 0_u64..1 << TIME_BITS, length in PROBE..200, at: prop::sample::Index,
        ) {
            let probe = Probe { run, flow, sequence, departure };
            let mut payload = vec![0; length];
            probe.write(&mut payload);
            prop_assert_eq!(Probe::read(&payload, run), Some(probe));
            prop_assert_eq!(Probe::read(&payload, !run), None);
            prop_assert!(probe.filler_matches(&mut payload));
            let at = at.index(length);
            payload[at] ^= 0x10;
            let seen = Probe::read(&payload, run) != Some(probe) || !probe.filler_matches(&mut payload);
            prop_assert!(seen);
        }
    }

    #[test]
    fn the_clock_may_wrap_between_departure_and_arrival() {
        let probe = Probe {
            run: 0,
            flow: 0,
            sequence: 0,
            departure: (1 << TIME_BITS) - 10,
        };
        assert_eq!(probe.latency((5 << TIME_BITS) + 20), 30);
        assert_eq!(
            probe.latency((5 << TIME_BITS) - 30),
            0,
            "the packet arrives before its departure"
        );
    }

    #[test]
    fn short_payloads_are_not_ours() {
        assert_eq!(Probe::read(&[0; PROBE - 1], 0), None);
    }
}

// SPDX-License-Identifier: Apache-2.0
//! Implements the target `packet`: sends frames through a program with random tables.
//!
//! An input selects a program, then tables, then frames, until no bytes are left. Invariants:
//!
//! * No frame causes a panic or an endless loop.
//! * No frame or digest that the switch sends contains payload bytes of another frame.
//! * If the program has no state, a switch that has processed other packets sends the same output as a new switch.

use std::collections::HashMap;
use std::sync::Arc;

use sluice_engine::{PacketIn, Sink};
use sluice_program::{DigestId, Program};
use sluice_tables::Store;

use crate::choices::Choices;
use crate::frames::{self, Frame};
use crate::programs;
use crate::random::Random;
use crate::state;
use crate::target::{Tally, Target};
use sluice_random::mix;

/// Name of the target.
pub const NAME: &str = "packet";

/// Maximum number of frames of one input.
const MAX_FRAMES: u64 = 256;
/// Length of a new input in bytes.
const LENGTH: usize = 8 << 10;
/// One in this number of frames is also sent through a new switch.
const AGAIN: u64 = 16;

/// Fuzz target `packet`; see the module's documentation.
pub struct PacketTarget {
    programs: Vec<Arc<Program>>,
}

impl PacketTarget {
    /// Creates the target, with the router and all programs of `switch/programs`.
    ///
    /// # Panics
    /// If the source tree is missing.
    pub fn new() -> Self {
        let load = |compiled: programs::Compiled| {
            let program = Program::from_json(&compiled.json);
            Arc::new(program.unwrap_or_else(|error| panic!("{}: {error}", compiled.name)))
        };
        Self {
            programs: programs::all().into_iter().map(load).collect(),
        }
    }
}

impl Default for PacketTarget {
    fn default() -> Self {
        Self::new()
    }
}

impl Target for PacketTarget {
    fn unit(&self) -> &'static str {
        "packets"
    }

    fn bar(&self) -> u64 {
        10_000_000
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        programs::seeds(&self.programs, LENGTH)
    }

    /// In half of the cases returns new random bytes. Keeping parts of an old input would help only if its quality were
    /// known, such as its coverage.
    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        if random.one_in(2) {
            return crate::mutate::bytes(random, input, other);
        }
        random.bytes(LENGTH)
    }

    fn run(&mut self, input: &[u8], tally: &mut Tally) {
        let mut choices = Choices::new(input);
        let program = programs::choose(&self.programs, &mut choices);
        let store = Store::new(Arc::clone(program));
        state::populate(&store, &mut Random::new(u64::from(choices.u32())));
        let sent = run(&store, &mut choices);
        tally.add("packets", sent.packets);
        tally.add("transmitted", sent.transmitted);
        tally.add("digests", sent.digests);
    }
}

/// Counts of the frames that one input caused.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sent {
    /// Frames sent into the switch.
    pub packets: u64,
    /// Frames from the switch.
    pub transmitted: u64,
    /// Digests sent.
    pub digests: u64,
}

/// Sends frames through the program of a store, until all bytes of `choices` are used.
///
/// # Panics
/// If an invariant is violated.
pub fn run(store: &Store, choices: &mut Choices<'_>) -> Sent {
    let program = store.shared_program();
    let remembers = programs::has_memory(program);
    let mut switch = programs::switch(program);
    let mut witness = Witness::default();
    let mut reader = store.reader();
    let tables = reader.pin();
    let mut sent = Sent::default();
    while sent.packets < MAX_FRAMES && !choices.is_empty() {
        let frame = frames::frame(choices, tag(sent.packets));
        let input = input(&frame, sent.packets);
        witness.expect(sent.packets);
        switch.process(&tables, store.externs(), input, &mut witness);
        if !remembers && sent.packets % AGAIN == AGAIN - 1 {
            let mut again = Witness::default();
            again.expect(sent.packets);
            programs::switch(program).process(&tables, store.externs(), input, &mut again);
            assert_eq!(
                witness.seen, again.seen,
                "a new switch differs on {frame:?}"
            );
        }
        sent.packets += 1;
        sent.transmitted += witness.seen.len() as u64;
    }
    let counters = switch.counters();
    check_balance(counters);
    sent.digests = counters.digests;
    sent
}

fn input(frame: &Frame, number: u64) -> PacketIn<'_> {
    PacketIn {
        data: &frame.bytes,
        port: frame.port,
        now_us: number * 100,
    }
}

/// Checks that every packet and every copy was sent, dropped or replaced, and only one of these.
fn check_balance(counters: &sluice_engine::Counters) {
    let ends = counters.transmitted
        + counters.dropped_ingress
        + counters.dropped_egress
        + counters.dropped_queue_full
        + counters.dropped_priority
        + counters.dropped_no_replica
        + counters.dropped_pass_limit
        + counters.dropped_parser_limit
        + counters.replaced;
    assert_eq!(
        counters.received + counters.copies,
        ends,
        "a packet has no fate or two fates: {counters:?}"
    );
}

/// Returns the tag of a frame. The frame's payload is filled with this tag.
fn tag(number: u64) -> u64 {
    mix(number + 0x5109_ce00)
}

/// Receives the outputs. Checks that they belong to the packet that was just sent.
#[derive(Default)]
struct Witness {
    /// Number of each packet sent so far, by the first half of the packet's tag.
    tags: HashMap<u32, u64>,
    now: u64,
    seen: Vec<(u32, Vec<u8>)>,
}

impl Witness {
    /// Sets the packet to which all further outputs must belong.
    fn expect(&mut self, number: u64) {
        self.tags.insert((tag(number) >> 32) as u32, number);
        self.now = number;
        self.seen.clear();
    }

    fn check(&self, what: &str, bytes: &[u8]) {
        for (at, window) in bytes.windows(8).enumerate() {
            let half = u32::from_be_bytes([window[0], window[1], window[2], window[3]]);
            let Some(number) = self.tags.get(&half).filter(|number| **number != self.now) else {
                continue;
            };
            let whole = tag(*number).to_be_bytes();
            assert_ne!(
                window, whole,
                "{what} of packet {} has bytes of packet {number} at {at}",
                self.now
            );
        }
    }
}

impl Sink for Witness {
    fn transmit(&mut self, port: u32, data: &[u8]) {
        self.check("a frame", data);
        self.seen.push((port, data.to_vec()));
    }

    fn digest(&mut self, _digest: DigestId, fields: &[u8]) {
        self.check("a digest", fields);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[should_panic(expected = "a frame of packet 1 has bytes of packet 0")]
    fn bytes_of_another_packet_are_noticed() {
        let mut witness = Witness::default();
        witness.expect(0);
        witness.transmit(1, &tag(0).to_be_bytes());
        witness.expect(1);
        witness.transmit(1, &tag(1).to_be_bytes());
        let mut leak = vec![0; 3];
        leak.extend(tag(0).to_be_bytes());
        witness.transmit(1, &leak);
    }
}

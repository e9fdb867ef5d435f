// SPDX-License-Identifier: Apache-2.0
//! Implements the target `esp`: passes packets to an ESP engine, as a peer and as attackers could.
//!
//! An input selects an algorithm, a mode and a window, and then packets. One engine encrypts these packets. The other
//! engine receives them unchanged, repeated, modified, truncated, fragmented or spliced from two packets. It also
//! receives invented packets. Invariants:
//!
//! * No input causes a panic. Each frame has exactly one outcome: it is counted, or the engine keeps it as a fragment.
//! * A decrypted packet equals the packet that was encrypted with the same sequence number, and is delivered once.
//! * A packet from the peer is decrypted if it is new and not older than the window.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use sluice_esp::algorithm::ALGORITHMS;
use sluice_esp::engine::Sa;
use sluice_esp::shim::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, PACKET, Shim, Task};
use sluice_esp::spec::{Direction, Mode};
use sluice_esp::{Algorithm, Drop, Engine, Key, MAX_OUTPUT, Reservations, SaSpec};

use crate::choices::Choices;
use crate::random::Random;
use crate::target::{Tally, Target};

/// Name of the target.
pub const NAME: &str = "esp";

/// Length of a new input in bytes.
const LENGTH: usize = 2 << 10;
const MAX_STEPS: usize = 256;
const OUTER: usize = 20;
/// Packets that are delivered in fragments have identifications above this value. The bit flips of other steps change
/// too few bits to make a fragment with such an identification.
const FIRST_ID: u16 = 0x3000;
/// Maximum number of fragments that the engine can keep. All come from one source and have few identifications.
const MAX_KEPT: u64 = 2 * 64 * 64;
const SPI: u32 = 0x1002;

/// Fuzz target `esp`; see the module's documentation.
#[derive(Default)]
pub struct EspTarget {
    _private: (),
}

impl EspTarget {
    /// Creates the target.
    pub fn new() -> Self {
        Self::default()
    }
}

impl Target for EspTarget {
    fn unit(&self) -> &'static str {
        "packets"
    }

    fn bar(&self) -> u64 {
        10_000_000
    }

    fn seeds(&self) -> Vec<Vec<u8>> {
        let mut random = Random::new(7);
        (0..32).map(|_| random.bytes(LENGTH)).collect()
    }

    /// In half of the cases returns new random bytes, as the target `packet` does.
    fn mutate(&self, random: &mut Random, input: &[u8], other: &[u8]) -> Vec<u8> {
        if random.one_in(2) {
            return crate::mutate::bytes(random, input, other);
        }
        random.bytes(LENGTH)
    }

    fn run(&mut self, input: &[u8], tally: &mut Tally) {
        let mut choices = Choices::new(input);
        let mut pair = Pair::new(&mut choices);
        for _ in 0..MAX_STEPS {
            if choices.is_empty() {
                break;
            }
            pair.step(&mut choices, tally);
        }
    }
}

/// Two engines, and the packets between them.
struct Pair {
    sender: Engine,
    receiver: Engine,
    mode: Mode,
    window: u64,
    /// The packet in clear and the encrypted packet, indexed by sequence number.
    sent: Vec<(Vec<u8>, Vec<u8>)>,
    accepted: HashSet<u64>,
    top: u64,
    /// Identification of the last packet that was delivered in fragments.
    last_id: u16,
    out: Vec<u8>,
    _reservations: Reservations,
    _state: tempfile::TempDir,
}

impl Pair {
    fn new(choices: &mut Choices<'_>) -> Self {
        // Without integrity, the result of a modified packet is undefined.
        let sound: Vec<Algorithm> = ALGORITHMS
            .into_iter()
            .filter(|algorithm| algorithm.icv_len() != 0)
            .collect();
        let algorithm = *choices.pick(&sound);
        let mode = *choices.pick(&[Mode::Tunnel, Mode::Transport]);
        let window = *choices.pick(&[64_u32, 1, 32, 1000, 4096]);
        let esn = choices.one_in(2);
        // Uses a tmpfs if the machine has one. The files need not survive the process.
        let memory = Path::new("/dev/shm");
        let state = if memory.is_dir() {
            tempfile::tempdir_in(memory)
        } else {
            tempfile::tempdir()
        };
        let state = state.expect("a directory can be made");
        let reservations =
            Reservations::open(state.path()).expect("the sequence numbers can be reserved");
        let spec = |direction| SaSpec {
            replay_window: (direction == Direction::In).then_some(window),
            ..spec(direction, algorithm, mode, esn)
        };
        let (mut sender, mut receiver) = (Engine::default(), Engine::default());
        for (engine, spec) in [
            (&mut sender, spec(Direction::Out)),
            (&mut receiver, spec(Direction::In)),
        ] {
            spec.check(false).expect("the SA is valid");
            let sa = Sa::prepare(spec, &reservations, 0).expect("an SA");
            assert!(engine.add(sa).is_ok());
        }
        Self {
            sender,
            receiver,
            mode,
            window: u64::from(window),
            sent: Vec::new(),
            accepted: HashSet::new(),
            top: 0,
            last_id: FIRST_ID,
            out: vec![0; MAX_OUTPUT],
            _reservations: reservations,
            _state: state,
        }
    }

    fn step(&mut self, choices: &mut Choices<'_>, tally: &mut Tally) {
        tally.add("packets", 1);
        if self.sent.is_empty() || choices.one_in(4) {
            self.encrypt(choices, tally);
            return;
        }
        let chosen = choices.below(self.sent.len().min(200));
        let index = self.sent.len() - 1 - chosen;
        let original = self.sent[index].1.clone();
        match choices.below(10) {
            0..=2 => self.deliver_as_it_is(index, tally),
            8 => self.deliver_in_fragments(index, choices, tally),
            9 => {
                let (from, to) = range(choices, original.len() - OUTER);
                let id = choices.below(4) as u16;
                let mut piece = fragment(&original, id, from, to);
                if choices.one_in(8) {
                    let at = choices.below(piece.len());
                    piece[at] ^= 1 << choices.below(8);
                }
                self.deliver(&piece, tally);
            }
            3 => {
                let mut changed = original;
                for _ in 0..=choices.below(3) {
                    let at = choices.below(changed.len());
                    changed[at] ^= 1 << choices.below(8);
                }
                self.deliver(&changed, tally);
            }
            4 => {
                let end = OUTER + choices.below(original.len() - OUTER + 1);
                let mut cut = original[..end].to_vec();
                write_length(&mut cut);
                self.deliver(&cut, tally);
            }
            5 => {
                let other = &self.sent[choices.below(self.sent.len())].1;
                let at = OUTER + choices.below(original.len().min(other.len()) - OUTER);
                let mut spliced = [&original[..at], &other[at..]].concat();
                write_length(&mut spliced);
                self.deliver(&spliced, tally);
            }
            6 => {
                let mut longer = original;
                let count = choices.below(64);
                longer.extend(choices.bytes(count));
                write_length(&mut longer);
                self.deliver(&longer, tally);
            }
            _ => {
                let length = choices.below(200);
                let frame = choices.bytes(length);
                self.give(&frame, tally);
                if let Some(packet) = frame.get(4..) {
                    self.deliver(packet, tally);
                }
            }
        }
    }

    fn encrypt(&mut self, choices: &mut Choices<'_>, tally: &mut Tally) {
        let length = choices.below(300);
        let payload = choices.bytes(length);
        let number = (self.sent.len() as u32).to_be_bytes();
        let mut packet = vec![
            0x45, 0, 0, 0, 0, 0, 0, 0, 64, 253, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2,
        ];
        packet.extend(number);
        packet.extend(payload);
        write_length(&mut packet);
        let frame = shim(Task::Encrypt, &packet).frame(&packet);
        let length = self
            .sender
            .process(&frame, 0, &mut self.out)
            .expect("the packet is for the SA");
        let sealed = self.out[PACKET..length].to_vec();
        tally.add("encrypted", 1);
        self.sent.push((packet, sealed));
    }

    /// Delivers an unmodified packet. The receiver must decrypt it unless it is too old or was already accepted.
    fn deliver_as_it_is(&mut self, index: usize, tally: &mut Tally) {
        let number = index as u64 + 1;
        let late = number + self.window <= self.top;
        let expected = !late && !self.accepted.contains(&number);
        let sealed = self.sent[index].1.clone();
        let opened = self.deliver(&sealed, tally);
        assert_eq!(opened, expected, "number {number}, highest {}", self.top);
    }

    /// Delivers the fragments of a packet in any order, with an unused identification.
    fn deliver_in_fragments(&mut self, index: usize, choices: &mut Choices<'_>, tally: &mut Tally) {
        let sealed = self.sent[index].1.clone();
        let number = index as u64 + 1;
        let late = number + self.window <= self.top;
        let expected = !late && !self.accepted.contains(&number);
        let data = sealed.len() - OUTER;
        let size = 8 * (1 + choices.below(16)).max(data.div_ceil(8 * 60));
        self.last_id += 1;
        let mut pieces: Vec<_> = (0..data)
            .step_by(size)
            .map(|from| fragment(&sealed, self.last_id, from, data.min(from + size)))
            .collect();
        let mut opened = false;
        while !pieces.is_empty() {
            let piece = pieces.swap_remove(choices.below(pieces.len()));
            tally.add("packets", 1);
            opened |= self.deliver(&piece, tally);
        }
        assert_eq!(opened, expected, "number {number} in fragments");
    }

    /// Passes a packet to the receiver. Returns whether it was decrypted.
    fn deliver(&mut self, packet: &[u8], tally: &mut Tally) -> bool {
        let frame = shim(Task::Decrypt, packet).frame(packet);
        self.give(&frame, tally)
    }

    fn give(&mut self, frame: &[u8], tally: &mut Tally) -> bool {
        let before = outcomes(&mut self.receiver);
        let result = self.receiver.process(frame, 0, &mut self.out);
        let after = outcomes(&mut self.receiver);
        assert_eq!(
            after.values().sum::<u64>(),
            before.values().sum::<u64>() + 1,
            "a packet has one outcome"
        );
        assert!(after["kept"] <= MAX_KEPT, "too many fragments are kept");
        let length = match result {
            Ok(0) => {
                tally.add("kept", 1);
                return false;
            }
            Ok(length) => length,
            Err(why) => {
                let counted = |all: &HashMap<&str, u64>| all.get(why.name()).copied().unwrap_or(0);
                // If a fragment makes its datagram invalid, the receiver also drops the kept fragments of this
                // datagram.
                let dropped = counted(&after) - counted(&before);
                assert!(dropped >= 1 && dropped <= before["kept"] + 1, "{why:?}");
                tally.add(
                    if why == Drop::IntegrityFailed {
                        "not authentic"
                    } else {
                        "dropped"
                    },
                    1,
                );
                return false;
            }
        };
        tally.add("decrypted", 1);
        let opened = &self.out[PACKET..length];
        let packet = &frame[PACKET..];
        let number = if packet[6] & 0x3f != 0 || packet[7] != 0 {
            // The ESP header was in another fragment, so the number is read from the decrypted packet.
            let at = usize::from(opened[0] & 15) * 4;
            u64::from(word(&opened[at..])) + 1
        } else {
            let esp = &packet[usize::from(packet[0] & 15) * 4..];
            u64::from(word(&esp[4..]))
        };
        let (clear, _) = &self.sent[number as usize - 1];
        // In transport mode, ESP does not protect the packet's own IP header.
        let protected = if self.mode == Mode::Tunnel { 0 } else { OUTER };
        let header = if protected == 0 {
            0
        } else {
            usize::from(opened[0] & 15) * 4
        };
        assert_eq!(opened[header..], clear[protected..], "number {number}");
        assert!(
            self.accepted.insert(number),
            "number {number} was accepted before"
        );
        self.top = self.top.max(number);
        true
    }
}

/// Returns all counters of an engine with one SA.
fn outcomes(engine: &mut Engine) -> HashMap<&'static str, u64> {
    let mut all: HashMap<_, _> = engine.counters().nonzero().collect();
    for sa in engine.status(0) {
        for (name, count) in sa.counters.drops {
            *all.entry(name).or_default() += count;
        }
        all.insert("decrypted", sa.counters.packets);
    }
    let of_none = engine.counters();
    let merged = of_none.reassembled_fragments - of_none.reassembled;
    all.insert("fragments in a packet with others", merged);
    all.insert("kept", engine.held_fragments());
    all
}

fn word(bytes: &[u8]) -> u32 {
    u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

/// Selects a range of the data, at most this long. The range begins where a fragment can begin.
fn range(choices: &mut Choices<'_>, data: usize) -> (usize, usize) {
    let from = choices.below(data.div_ceil(8)) * 8;
    let to = from + 8 * (1 + choices.below(16));
    (from, to.min(data))
}

/// Builds a fragment from a range of an IPv4 packet's data.
fn fragment(packet: &[u8], id: u16, from: usize, to: usize) -> Vec<u8> {
    let (header, data) = packet.split_at(OUTER);
    let mut piece = [header, &data[from..to]].concat();
    write_length(&mut piece);
    let more = if to < data.len() { 0x2000 } else { 0 };
    piece[4..6].copy_from_slice(&id.to_be_bytes());
    piece[6..8].copy_from_slice(&((from / 8) as u16 | more).to_be_bytes());
    piece
}

fn spec(direction: Direction, algorithm: Algorithm, mode: Mode, esn: bool) -> SaSpec {
    let end = |last| Some(std::net::Ipv4Addr::new(192, 0, 2, last).into());
    let outbound = direction == Direction::Out;
    let key = |length| Key::from_hex("7e".repeat(length).as_bytes()).ok();
    SaSpec {
        direction,
        sa: 1,
        spi: SPI,
        bundle: 1,
        vrf: 0,
        mode,
        algorithm,
        key: key(algorithm.key_len()),
        key_file: None,
        integrity_key: key(algorithm.integrity_key_len()),
        integrity_key_file: None,
        resume: false,
        esn,
        replay_window: None,
        local: if outbound { end(1) } else { None },
        remote: if outbound { end(2) } else { None },
        encapsulation: None,
        encapsulated: false,
        followed_by: None,
        ttl: None,
        dscp: None,
        // The outer header is not authenticated, so its ECN may be modified. Copying the ECN would change the result.
        ecn: false,
        df: Default::default(),
        tfc_pad_to: 0,
        soft: Default::default(),
        hard: Default::default(),
    }
}

fn shim(task: Task, packet: &[u8]) -> Shim {
    let six = packet.first().is_some_and(|first| first >> 4 == 6);
    Shim {
        task,
        engine: 1,
        bundle: 1,
        sa: 1,
        ingress_l3_if: 1,
        vrf: 0,
        ether_type: if six { ETHERTYPE_IPV6 } else { ETHERTYPE_IPV4 },
    }
}

fn write_length(packet: &mut [u8]) {
    let length = (packet.len() as u16).to_be_bytes();
    packet[2..4].copy_from_slice(&length);
}

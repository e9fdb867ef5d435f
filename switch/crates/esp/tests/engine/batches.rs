// SPDX-License-Identifier: Apache-2.0
//! Tests that frames served as a batch have the same results as frames served one at a time.

use proptest::prelude::*;
use sluice_esp::algorithm::ALGORITHMS;
use sluice_esp::batch::BATCH;
use sluice_esp::engine::Sa;
use sluice_esp::lifetime::Limits;
use sluice_esp::shim::Shim;
use sluice_esp::spec::Mode;
use sluice_esp::{Algorithm, Batch, Engine, Key, MAX_OUTPUT, Outcome, Reservations};

use crate::support::*;

const SAS: u32 = 3;

/// A sending and a receiving engine, with several SAs between them. Each SA has its own keys. SA numbers begin with
/// [`SA`].
struct Both {
    sender: Engine,
    receiver: Engine,
    _state: (tempfile::TempDir, Reservations),
}

impl Both {
    fn new(algorithm: Algorithm, mode: Mode, hard: Option<u64>) -> Self {
        let state = tempfile::tempdir().unwrap();
        let reservations = reservations(state.path());
        let (mut sender, mut receiver) = (Engine::default(), Engine::default());
        for number in 0..SAS {
            let (outbound, inbound) = specs(algorithm, mode, true);
            for (engine, mut spec) in [(&mut sender, outbound), (&mut receiver, inbound)] {
                (spec.sa, spec.spi) = (SA + number, SPI + number);
                let digits = format!("{:02x}", 0x10 + number);
                let key = |length| Key::from_hex(digits.repeat(length).as_bytes()).ok();
                spec.key = key(algorithm.key_len());
                spec.integrity_key = key(algorithm.integrity_key_len());
                spec.hard = Limits {
                    packets: hard,
                    ..Limits::default()
                };
                let sa = Sa::prepare(spec, &reservations, 0).unwrap();
                assert!(engine.add(sa).is_ok());
            }
        }
        Self {
            sender,
            receiver,
            _state: (state, reservations),
        }
    }
}

/// Passes frames to an engine one at a time. Returns their outcomes and answers.
fn one_by_one(engine: &mut Engine, frames: &[Vec<u8>]) -> Vec<(Outcome, Vec<u8>)> {
    let mut out = vec![0; MAX_OUTPUT];
    let serve = |frame: &Vec<u8>| match engine.process(frame, 0, &mut out) {
        Ok(length) => (Outcome::Answered, out[..length].to_vec()),
        Err(why) => (Outcome::Dropped(why), Vec::new()),
    };
    frames.iter().map(serve).collect()
}

fn in_batches(engine: &mut Engine, frames: &[Vec<u8>]) -> Vec<(Outcome, Vec<u8>)> {
    let mut batch = Batch::default();
    let mut all = Vec::new();
    for frames in frames.chunks(BATCH) {
        batch.clear();
        for (index, frame) in frames.iter().enumerate() {
            let at = frame.len() * index / BATCH;
            assert!(batch.push(&frame[..at], &frame[at..]));
        }
        engine.process_batch(&mut batch, 0);
        let mut answers = batch.answers();
        for place in 0..batch.len() {
            let outcome = batch.outcome(place);
            let answer = match outcome {
                Outcome::Answered => answers.next().unwrap().to_vec(),
                _ => Vec::new(),
            };
            all.push((outcome, answer));
        }
        assert!(answers.next().is_none());
    }
    all
}

fn counts(engine: &mut Engine) -> String {
    let of_sas = serde_json::to_string(&engine.status(0)).unwrap();
    format!("{of_sas} {:?}", engine.counters())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_batch_is_its_frames_one_by_one(
        algorithm in prop::sample::select(vec![ALGORITHMS[0], ALGORITHMS[2], ALGORITHMS[5]]),
        transport: bool,
        hard in prop::sample::select(vec![None, Some(20)]),
        picks in prop::collection::vec((0..SAS + 1, 0_usize..200, 0_u8..8), 1..150),
    ) {
        let mode = if transport { Mode::Transport } else { Mode::Tunnel };
        let (mut one, mut other) = (Both::new(algorithm, mode, hard), Both::new(algorithm, mode, hard));
        let mut frames = Vec::new();
        for (number, size, damage) in &picks {
            let (from, to) = if transport { (LOCAL, REMOTE) } else { ("10.0.0.1", "10.0.0.2") };
            let packet = ipv4(from, to, 253, &vec![*damage; *size]);
            // The highest of these SA numbers does not exist.
            let mut frame = Shim { sa: SA + number, ..to_encrypt() }.frame_of(&packet);
            if *damage == 7 {
                frame.truncate(frame.len() / 2);
            }
            frames.push(frame);
        }
        let sealed = one_by_one(&mut one.sender, &frames);
        prop_assert_eq!(&sealed, &in_batches(&mut other.sender, &frames));
        prop_assert_eq!(counts(&mut one.sender), counts(&mut other.sender));

        let mut frames = Vec::new();
        for ((_, answer), (_, _, damage)) in sealed.into_iter().zip(&picks) {
            if answer.is_empty() {
                continue;
            }
            let mut frame = to_decrypt().frame_of(&answer[28..]);
            match damage {
                6 => frames.push(frame.clone()),
                5 => *frame.last_mut().unwrap() ^= 1,
                4 => frame[50] ^= 1,
                _ => {}
            }
            frames.push(frame);
        }
        let opened = one_by_one(&mut one.receiver, &frames);
        prop_assert_eq!(&opened, &in_batches(&mut other.receiver, &frames));
        prop_assert_eq!(counts(&mut one.receiver), counts(&mut other.receiver));
    }
}

#[test]
fn a_full_batch_takes_no_more() {
    let mut batch = Batch::default();
    for _ in 0..BATCH {
        assert!(!batch.is_full() && batch.push(b"short", &[]));
    }
    assert!(batch.is_full() && !batch.push(b"short", &[]) && batch.room().is_none());
    let mut engine = Engine::default();
    engine.process_batch(&mut batch, 0);
    assert_eq!(batch.answers().count(), 0);
    assert_eq!(engine.counters().all_drops(), BATCH as u64);
    batch.clear();
    let long = vec![0; 70_000];
    assert!(batch.is_empty() && batch.push(&long, &long));
    engine.process_batch(&mut batch, 0);
    assert!(matches!(batch.outcome(0), Outcome::Dropped(_)));
}
